//! The command line: what there is, and which module does it.
//!
//! Exit codes of every command: 0 done, 1 failed (the line on standard error says what, where and
//! what to do), 2 wrong usage. `skep health` has its own: 0 healthy, 1 degraded, 2 down or not reachable,
//! 3 wrong usage or no permission.

use crate::manual::{self, CompletionsArgs, ManArgs};
use clap::{Parser, Subcommand};
use skep_admin::up::{self, DownArgs, StatusArgs, UpArgs};
use skep_admin::{AdminCommand, finish, health};
use skep_base::cli::{EXIT_USAGE, ServiceCommand};
use skep_base::deadline::ProbeArgs;
use skep_base::{mounted, output};
use skep_measure::MeasureCommand;
use std::ffi::OsString;
use std::process::ExitCode;

/// Skep: a parallel cluster file system in one binary.
#[derive(Debug, Parser)]
#[command(name = "skep", version, propagate_version = true, arg_required_else_help = true)]
#[command(
    after_help = "Exit codes: 0 done, 1 failed, 2 wrong usage. `skep health`: 0 healthy, 1 degraded, 2 down, 3 no permission."
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What there is to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Services
    #[command(flatten)]
    Service(ServiceCommand),
    /// Start a whole cluster on this machine and mount it
    Up(UpArgs),
    /// Unmount and stop what skep up started; the files stay
    Down(DownArgs),
    /// Show what of a cluster of skep up runs
    Status(StatusArgs),
    /// Measuring
    #[command(flatten)]
    Measure(MeasureCommand),
    /// Look whether a path answers: a helper of other commands, which can be left behind
    #[command(hide = true)]
    Probe(ProbeArgs),
    /// Administration
    #[command(flatten)]
    Admin(AdminCommand),
    /// Print what a shell needs to complete commands
    Completions(CompletionsArgs),
    /// Write the manual pages
    Man(ManArgs),
}

/// Does what was asked.
pub fn run(cli: Cli) -> ExitCode {
    match cli.command {
        Command::Service(service) => skep_daemons::run(&service),
        Command::Up(args) => up::up(&args),
        Command::Down(args) => up::down(&args),
        Command::Status(args) => up::status(&args),
        Command::Measure(command) => skep_measure::run(&command),
        Command::Probe(args) => mounted::probe(&args),
        Command::Admin(command) => skep_admin::run(&command),
        Command::Completions(args) => finish(manual::completions(&args, &mut output::stdout())),
        Command::Man(args) => finish(manual::man(&args)),
    }
}

/// The file that `skep config check` was given in the place of a service.
fn file_for_check(arguments: &[OsString]) -> Option<std::borrow::Cow<'_, str>> {
    let [_, config, check, file, ..] = arguments else { return None };
    let file = file.to_string_lossy();
    let is_file = file.contains('/') || file.ends_with(".toml");
    (config == "config" && check == "check" && is_file && !file.starts_with('-')).then_some(file)
}

/// Prints what clap says: help and version on standard output, mistakes on standard error.
pub fn refuse(error: &clap::Error, arguments: &[OsString]) -> ExitCode {
    // Nothing sensible can be done when the terminal is gone.
    let _ = error.print();
    if let Some(file) = file_for_check(arguments) {
        eprintln!("\nA file is named by --config: skep config check SERVICE --config {file}");
    }
    let health = arguments.get(1).is_some_and(|word| word == "health");
    let usage = if health { health::EXIT_USAGE } else { EXIT_USAGE };
    if error.use_stderr() { ExitCode::from(usage) } else { ExitCode::SUCCESS }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    /// Goal: clap finds no contradiction in any sub-command.
    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    /// Goal: who gives `config check` a file is told how; nobody else is.
    #[test]
    fn a_file_instead_of_a_service() {
        let told = |line: &str| {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            file_for_check(&words).map(|file| file.into_owned())
        };
        assert_eq!(told("skep config check s3/s3.toml").as_deref(), Some("s3/s3.toml"));
        assert_eq!(told("skep config check s3.toml --set a=b").as_deref(), Some("s3.toml"));
        for other in [
            "skep config check storagd",
            "skep config check --dir=/a",
            "skep config template a/b",
            "skep config",
        ] {
            assert_eq!(told(other), None, "{other}");
        }
    }
}
