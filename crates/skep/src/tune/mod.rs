//! `skep tune`: settings of this machine.

use clap::Args;
use std::process::ExitCode;

/// What was asked.
#[derive(Debug, Args)]
pub struct TuneArgs {}

/// Does it.
pub fn run(_args: &TuneArgs) -> ExitCode {
    ExitCode::SUCCESS
}
