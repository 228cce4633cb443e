//! `skep plan`: sizing.

use clap::Args;
use std::process::ExitCode;

/// What was asked.
#[derive(Debug, Args)]
pub struct PlanArgs {}

/// Does it.
pub fn run(_args: &PlanArgs) -> ExitCode {
    ExitCode::SUCCESS
}
