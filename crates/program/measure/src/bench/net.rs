//! `skep bench net`: the network by itself.

mod mode;
mod pairs;
mod run;

pub use pairs::PairsReport;

use clap::Subcommand;
use skep_base::Outcome;
use std::io::Write;

/// `skep bench net ...`
#[derive(Debug, Subcommand)]
pub enum NetCommand {
    /// Bandwidth and latency between any two daemons; what is slow is named
    Pairs(pairs::PairsArgs),
    /// A directory on a mount whose files never reach a disk, as long as this command runs: for any load generator
    Mode(mode::ModeArgs),
    /// Write and read files of such a directory: what client and network carry without the disks
    Run(run::RunArgs),
}

pub fn run(command: &NetCommand, out: &mut dyn Write) -> Outcome {
    match command {
        NetCommand::Pairs(args) => pairs::run(args, out),
        NetCommand::Mode(args) => mode::run(args, out),
        NetCommand::Run(args) => run::run(args, out),
    }
}
