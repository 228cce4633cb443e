//! `skep bench net run`: a file per process, written and read, with the disks left out.

use super::super::load::{perform, size};
use super::super::output::ShowArgs;
use super::super::worker;
use super::mode::{Scratch, WhichArgs};
use clap::Args;
use skep_base::{Failure, Outcome};
use skep_bench::job::{IoJob, Job, Work, Workers};
use std::io::Write;

/// Arguments of `skep bench net run`.
#[derive(Debug, Args)]
pub struct RunArgs {
    #[command(flatten)]
    which: WhichArgs,
    /// Worker processes
    #[arg(long, short = 'p', default_value_t = 4, value_name = "N")]
    processes: u32,
    /// Threads of each process
    #[arg(long, default_value_t = 1, value_name = "N")]
    threads: u32,
    /// How often everything is done
    #[arg(long, short = 'i', default_value_t = 3, value_name = "N")]
    repetitions: u32,
    /// Bytes of one call
    #[arg(long, short = 't', default_value = "1m", value_name = "SIZE", value_parser = size)]
    transfer: u64,
    /// Bytes of each worker
    #[arg(long, short = 'b', default_value = "256m", value_name = "SIZE", value_parser = size)]
    block: u64,
    /// O_DIRECT: past the page cache
    #[arg(long)]
    direct: bool,
    #[command(flatten)]
    show: ShowArgs,
}

impl RunArgs {
    fn job(&self, directory: &str) -> Job {
        let mut io = IoJob::new(directory);
        (io.transfer, io.block, io.direct) = (self.transfer, self.block, self.direct);
        Job {
            workers: Workers { processes: self.processes, threads: self.threads, ..Workers::default() },
            repetitions: self.repetitions,
            ..Job::new(Work::Io(io))
        }
    }
}

pub fn run(args: &RunArgs, out: &mut dyn Write) -> Outcome {
    let plain = |e: &dyn std::fmt::Display| Failure::new(e.to_string());
    args.job("/").check().map_err(|e| Failure::usage(e.to_string()))?;
    let mut scratch = Scratch::new(&args.which, None)?;
    let directory = scratch.path().to_str().ok_or_else(|| Failure::new("the mount's path is not text"))?;
    let job = args.job(directory);
    let mut crew = worker::crew(args.processes).map_err(|e| plain(&e))?;
    let outcome = perform(&job, &mut crew, &args.show, out);
    scratch.check().and(outcome)
}
