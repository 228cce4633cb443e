//! `skep-conform`: runs the POSIX conformance suite over a directory.

use clap::{Parser, ValueEnum};
use skep_conform::{Options, deviation::Deviations, report::Report, runner, table};
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

#[derive(Clone, Copy, ValueEnum)]
enum Output {
    Table,
    Json,
}

/// Runs Skep's POSIX conformance suite over any directory of any mounted file system. Needs root.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// A directory of the file system under test; a fresh sub-directory is made and removed
    #[arg(long, required_unless_present = "list")]
    dir: Option<PathBuf>,
    /// Only cases whose id contains TEXT (or the one whose id is TEXT)
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,
    /// Only one of N cases: a sample of all kinds
    #[arg(long, value_name = "N", default_value_t = 1)]
    every: usize,
    /// Print the ids of the cases and stop
    #[arg(long)]
    list: bool,
    /// How to print the outcome
    #[arg(long, value_enum, default_value = "table")]
    output: Output,
    /// Cases to leave out, comma-separated: full ids or leading parts of them, such as rename/exchange
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    unsupported: Vec<String>,
    /// A file of cases that may come to another error here: an error and a case's id in each line, `#` before a remark
    #[arg(long, value_name = "FILE")]
    deviations: Option<PathBuf>,
    /// A capability that the file system lacks fails the cases that need it
    #[arg(long)]
    require_all: bool,
    /// Cases at a time
    #[arg(long, default_value_t = 1)]
    jobs: usize,
    /// Seconds one case may take
    #[arg(long, value_name = "SECONDS", default_value_t = runner::DEADLINE.as_secs())]
    deadline: u64,
    /// A command that makes the directory of each case ready before it; the directory is added to its words
    #[arg(last = true, value_name = "COMMAND")]
    prepare: Vec<OsString>,
}

/// Exit code when the suite could not run at all.
const UNUSABLE: u8 = 2;

fn main() -> ExitCode {
    match go(Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(what) => {
            eprintln!("skep-conform: {what}");
            ExitCode::from(UNUSABLE)
        }
    }
}

fn go(arguments: Arguments) -> Result<bool, String> {
    let cases = table::all()?;
    if arguments.list {
        let cases = runner::select(cases, arguments.filter.as_deref());
        for case in cases.iter().step_by(arguments.every.max(1)) {
            println!("{}", case.id);
        }
        return Ok(true);
    }
    let options = Options {
        dir: arguments.dir.ok_or("--dir is missing")?,
        filter: arguments.filter,
        every: arguments.every,
        unsupported: arguments.unsupported,
        deviations: arguments
            .deviations
            .as_deref()
            .map_or_else(|| Ok(Deviations::default()), Deviations::read)?,
        prepare: arguments.prepare,
        require_all: arguments.require_all,
        jobs: arguments.jobs,
        deadline: Duration::from_secs(arguments.deadline.max(1)),
    };
    let report = runner::run(cases, &options)?;
    print(&report, arguments.output)?;
    Ok(report.clean())
}

fn print(report: &Report, output: Output) -> Result<(), String> {
    match output {
        Output::Table => print!("{}", report.table()),
        Output::Json => {
            println!("{}", report.json()?);
            eprintln!("{}", report.summary());
        }
    }
    Ok(())
}
