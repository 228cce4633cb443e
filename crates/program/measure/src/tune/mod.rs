//! `skep tune`: settings of this machine and of Skep: what they are, what they should be, changed and put
//! back, searched by measurement. Rules and changes are in the crate `skep-tune`; here is what knows Skep's
//! own configuration and cluster.

mod apply;
mod auto;
mod check;
mod leftovers;
mod machine;
mod mount_options;

pub use auto::CandidateRow;
pub use check::SettingRow;

#[cfg(test)]
mod tests;

use clap::{Args, Subcommand};
use skep_base::Outcome;
use std::process::ExitCode;

/// What was asked.
#[derive(Debug, Args)]
pub struct TuneArgs {
    #[command(subcommand)]
    command: TuneCommand,
}

#[derive(Debug, Subcommand)]
enum TuneCommand {
    /// Lay each setting beside the recommended one; changes nothing
    Check(check::CheckArgs),
    /// Change what can be put back: shows a diff, asks, keeps an undo file
    Apply(apply::ApplyArgs),
    /// Put back what apply changed
    Undo(apply::UndoArgs),
    /// Search chunk size and targets of a directory, its limit of files in the metadata, or settings of a mount, by
    /// measurement; keeps them only when clearly better
    Auto(auto::AutoArgs),
}

pub fn run(args: &TuneArgs) -> ExitCode {
    let out = &mut skep_base::output::stdout();
    let outcome: Outcome = match &args.command {
        TuneCommand::Check(args) => check::run(args, out),
        TuneCommand::Apply(args) => apply::run(args, out),
        TuneCommand::Undo(args) => apply::undo(args),
        TuneCommand::Auto(args) => auto::run(args, out),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("skep: {failure}");
            failure.exit_code()
        }
    }
}
