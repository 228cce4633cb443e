//! `skep survey`: the whole system, layer by layer.

use clap::Args;
use std::process::ExitCode;

/// What was asked.
#[derive(Debug, Args)]
pub struct SurveyArgs {}

/// Does it.
pub fn run(_args: &SurveyArgs) -> ExitCode {
    ExitCode::SUCCESS
}
