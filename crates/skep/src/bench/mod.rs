//! `skep bench`: load and its measurement.

mod files;
mod io;
mod job_file;
mod load;
mod meta;
mod net;
mod output;
mod storage;
mod worker;

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
    /// Contents of files: sequential and random, one file each or one for all
    Io(io::IoArgs),
    /// Files and directories: create, stat, open, list, rename, remove
    Meta(meta::MetaArgs),
    /// Source trees (untar, find, grep, copy, remove) and training samples
    Files(files::FilesArgs),
    /// A job as --print-job shows it, from a file or standard input
    Job(job_file::JobArgs),
    /// A worker process of the others
    #[command(hide = true)]
    Worker,
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
        BenchCommand::Io(args) => io::run(args, out),
        BenchCommand::Meta(args) => meta::run(args, out),
        BenchCommand::Files(args) => files::run(args, out),
        BenchCommand::Job(args) => job_file::run(args, out),
        BenchCommand::Worker => return worker::run(),
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
