//! `skep bench`: load and its measurement.

use clap::Args;
use std::process::ExitCode;

/// What was asked.
#[derive(Debug, Args)]
pub struct BenchArgs {}

/// Does it.
pub fn run(_args: &BenchArgs) -> ExitCode {
    ExitCode::SUCCESS
}
