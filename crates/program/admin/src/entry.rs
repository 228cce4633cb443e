//! `skep entry info`, `skep entry repair`, `skep entry set`.

use super::entry_info::{EntryInfo, gather};
use super::entry_repair::{self, RepairArgs};
use super::entry_set::{self, SetArgs};
use clap::{Args, Subcommand};
use skep_base::Outcome;
use skep_base::access::AccessArgs;
use skep_base::output::{self, OutputArgs};
use std::io::Write;
use std::path::PathBuf;

/// `skep entry ...`
#[derive(Debug, Subcommand)]
pub enum EntryCommand {
    /// Show where entries and their bytes are
    Info(InfoArgs),
    /// Show what chunk files of files have lost, and give it up
    Repair(RepairArgs),
    /// Set the striping and the pool of new files in directories, or of files without chunks
    Set(SetArgs),
}

/// Arguments of `skep entry info`.
#[derive(Debug, Args)]
pub struct InfoArgs {
    /// Paths on a mount; with --cluster or --mgmtd also absolute paths in the namespace
    #[arg(required = true)]
    paths: Vec<PathBuf>,
    #[command(flatten)]
    access: AccessArgs,
    #[command(flatten)]
    output: OutputArgs,
}

fn info(args: &InfoArgs, out: &mut dyn Write) -> Outcome {
    let mut found = Vec::new();
    let mut failed = Vec::new();
    for path in &args.paths {
        match gather(&args.access, path) {
            Ok(info) => found.push(info),
            Err(failure) => failed.push(failure),
        }
    }
    output::documents(args.output.output, &found, EntryInfo::text, out)?;
    match failed.split_last() {
        None => Ok(()),
        Some((last, before)) => {
            before.iter().for_each(|failure| eprintln!("skep: {failure}"));
            Err(last.clone())
        }
    }
}

pub fn run(command: &EntryCommand, out: &mut dyn Write) -> Outcome {
    match command {
        EntryCommand::Info(args) => info(args, out),
        EntryCommand::Repair(args) => entry_repair::run(args, out),
        EntryCommand::Set(args) => entry_set::run(args, out),
    }
}
