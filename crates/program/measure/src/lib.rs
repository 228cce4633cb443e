//! Measuring commands: load generators, the survey, plans, settings. What they know of machines is in crates of its own,
//! which know nothing of this system; here is what reaches a cluster, its daemons and its mounts.
#[macro_use]
extern crate skep_base;

pub mod bench;
mod dealt;
pub mod plan;
pub mod survey;
pub mod tune;

use clap::Subcommand;
use std::process::ExitCode;

/// What there is to measure.
#[derive(Debug, Subcommand)]
pub enum MeasureCommand {
    /// Load generators: what a file system, the disks below it or the network between deliver
    Bench(bench::BenchArgs),
    /// Measure every layer and name the one that limits
    Survey(survey::SurveyArgs),
    /// Size a system: what hardware delivers, what requirements need
    Plan(plan::PlanArgs),
    /// Check the settings of this machine, change them, undo it
    Tune(tune::TuneArgs),
}

pub fn run(command: &MeasureCommand) -> ExitCode {
    match command {
        MeasureCommand::Bench(args) => bench::run(args),
        MeasureCommand::Survey(args) => survey::run(args),
        MeasureCommand::Plan(args) => plan::run(args),
        MeasureCommand::Tune(args) => tune::run(args),
    }
}

/// A line of the program that measures.
#[cfg(test)]
#[derive(clap::Parser)]
struct Line {
    #[command(subcommand)]
    _command: MeasureCommand,
}
