//! `skep bench job`: a load written down.

use super::coordinator::HostsArgs;
use super::load::perform;
use super::output::ShowArgs;
use crate::admin::{Failure, Outcome};
use clap::Args;
use skep_bench::job::Job;
use std::io::{Read, Write};
use std::path::PathBuf;

/// Bytes of a job file.
const MAX_JOB: u64 = 16 << 20;

/// `skep bench job FILE`
#[derive(Debug, Args)]
pub struct JobArgs {
    /// The job as JSON; -: standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Where workers run.
    #[command(flatten)]
    hosts: HostsArgs,
    /// How to show it.
    #[command(flatten)]
    show: ShowArgs,
}

/// Does it.
pub fn run(args: &JobArgs, out: &mut dyn Write) -> Outcome {
    let name = args.file.display();
    let wrong = |error: &dyn std::fmt::Display| Failure::new(format!("{name}: {error}"));
    let mut text = String::new();
    let read = if args.file.as_os_str() == "-" {
        std::io::stdin().take(MAX_JOB).read_to_string(&mut text)
    } else {
        std::fs::File::open(&args.file).and_then(|file| file.take(MAX_JOB).read_to_string(&mut text))
    };
    read.map_err(|error| wrong(&error))?;
    let job: Job = serde_json::from_str(&text).map_err(|error| wrong(&error))?;
    job.check().map_err(|error| wrong(&error))?;
    let mut crew = args.hosts.crew(&job).map_err(Failure::new)?;
    perform(&job, crew.as_mut(), &args.show, out)
}
