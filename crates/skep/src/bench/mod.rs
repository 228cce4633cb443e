//! `skep bench`: load and its measurement.

mod net;
mod storage;

use clap::{Args, Subcommand};
use std::process::ExitCode;

/// What was asked.
#[derive(Debug, Args)]
pub struct BenchArgs {
    #[command(subcommand)]
    command: BenchCommand,
}

/// What there is to measure.
#[derive(Debug, Subcommand)]
enum BenchCommand {
    /// The storage daemons' own targets, without network
    #[command(subcommand)]
    Storage(storage::StorageCommand),
    /// The network, without disks
    #[command(subcommand)]
    Net(net::NetCommand),
}

/// Does it.
pub fn run(args: &BenchArgs) -> ExitCode {
    let out = &mut crate::cli::output::stdout();
    let outcome = match &args.command {
        BenchCommand::Storage(command) => storage::run(command, out),
        BenchCommand::Net(command) => net::run(command, out),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("skep: {failure}");
            ExitCode::FAILURE
        }
    }
}
