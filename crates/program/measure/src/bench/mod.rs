//! `skep bench`: load and its measurement.

mod agent;
mod coordinator;
mod dialect;
mod files;
mod io;
mod job_file;
mod load;
mod meta;
pub mod net;
mod output;
mod report;
pub mod scratch;
pub mod storage;
mod worker;

pub use agent::AGENT_PORT;
pub use coordinator::HostsArgs;
pub use load::{bare, on_signals};

use clap::{Args, Subcommand};
use skep_bench::dialect::Tool;
use std::process::ExitCode;

/// What was asked.
#[derive(Debug, Args)]
#[command(
    after_help = "What ctrl-C ends removes what it made unless that is to be kept, and has exit code 130."
)]
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
    /// What IOR's options ask for: `skep bench ior -- -w -r -t 1m -b 1g -F`
    Ior(dialect::DialectArgs),
    /// What mdtest's options ask for
    Mdtest(dialect::DialectArgs),
    /// What IOzone's options ask for
    Iozone(dialect::DialectArgs),
    /// What fio's options or job files ask for
    Fio(dialect::DialectArgs),
    /// What elbencho's options ask for
    Elbencho(dialect::DialectArgs),
    /// Names the command that does what `beegfs-ctl --storagebench` does
    #[command(hide = true)]
    BeegfsCtl(dialect::RelativeArgs),
    /// Names the command that does what qperf does
    #[command(hide = true)]
    Qperf(dialect::RelativeArgs),
    /// Name the command that does what a line of other tools does: obdfilter-survey, qperf, beegfs-ctl, netbench_mode
    Instead(dialect::RelativeArgs),
    /// Run worker processes for a coordinator on another host
    Agent(agent::AgentArgs),
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

pub fn run(args: &BenchArgs) -> ExitCode {
    let out = &mut skep_base::output::stdout();
    let outcome = match &args.command {
        BenchCommand::Io(args) => io::run(args, out),
        BenchCommand::Meta(args) => meta::run(args, out),
        BenchCommand::Files(args) => files::run(args, out),
        BenchCommand::Job(args) => job_file::run(args, out),
        BenchCommand::Ior(args) => dialect::run(Tool::Ior, args, out),
        BenchCommand::Mdtest(args) => dialect::run(Tool::Mdtest, args, out),
        BenchCommand::Iozone(args) => dialect::run(Tool::Iozone, args, out),
        BenchCommand::Fio(args) => dialect::run(Tool::Fio, args, out),
        BenchCommand::Elbencho(args) => dialect::run(Tool::Elbencho, args, out),
        BenchCommand::BeegfsCtl(args) => dialect::run_relative(Some("beegfs-ctl"), args, out),
        BenchCommand::Qperf(args) => dialect::run_relative(Some("qperf"), args, out),
        BenchCommand::Instead(args) => dialect::run_relative(None, args, out),
        BenchCommand::Agent(args) => return agent::run(args),
        BenchCommand::Worker => return worker::run(),
        BenchCommand::Storage(command) => storage::run(command, out),
        BenchCommand::Net(command) => net::run(command, out),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("skep: {failure}");
            failure.exit_code()
        }
    }
}
