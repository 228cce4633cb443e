//! The command line: what there is, and which module does it.
//!
//! Exit codes of every command: 0 done, 1 failed (the line on standard error says what, where and
//! what to do), 2 wrong usage. `skep health` has its own: 0 healthy, 1 degraded, 2 down or not reachable,
//! 3 wrong usage or no permission.

mod daemon_args;
pub mod output;

pub use daemon_args::{DaemonArgs, MountArgs, RestorableArgs, StoragedArgs};

use crate::admin::AdminCommand;
use crate::admin::deadline::ProbeArgs;
use crate::up::{self, DownArgs, StatusArgs, UpArgs};
use crate::{admin, bench, daemon, metad, mgmtd, mount, plan, storaged, survey, tune};
use clap::{Parser, Subcommand};
use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

/// Exit code of wrong usage.
pub const EXIT_USAGE: u8 = 2;

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
    /// Run the management service: registry of nodes, targets, shards and sessions
    Mgmtd(RestorableArgs),
    /// Run a metadata server: the namespace
    Metad(RestorableArgs),
    /// Run a storage server: file contents on targets
    Storaged(StoragedArgs),
    /// Mount a cluster (mount.skep is the same, with the arguments of mount(8))
    Mount(MountArgs),
    /// Start a whole cluster on this machine and mount it
    Up(UpArgs),
    /// Unmount and stop what skep up started; the files stay
    Down(DownArgs),
    /// Show what of a cluster of skep up runs
    Status(StatusArgs),
    /// Load generators: what a file system, the disks below it or the network between deliver
    Bench(bench::BenchArgs),
    /// Measure every layer and name the one that limits
    Survey(survey::SurveyArgs),
    /// Size a system: what hardware delivers, what requirements need
    Plan(plan::PlanArgs),
    /// Check the settings of this machine, change them, undo it
    Tune(tune::TuneArgs),
    /// Look whether a path answers: a helper of other commands, which can be left behind
    #[command(hide = true)]
    Probe(ProbeArgs),
    /// Administration
    #[command(flatten)]
    Admin(AdminCommand),
}

/// Names by which mount(8) calls the program: for the type that fstab names, and for the one that the kernel lists.
pub const MOUNT_HELPERS: [&str; 2] = ["mount.skep", "mount.fuse.skep"];

/// Called by one of [`MOUNT_HELPERS`], the program is `skep mount`.
pub fn arguments(given: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut given: Vec<OsString> = given.collect();
    let called = given.first().and_then(|first| Path::new(first).file_name());
    if called.is_some_and(|name| MOUNT_HELPERS.iter().any(|helper| name == *helper)) {
        given.splice(1..1, ["mount".into(), "--by-mount".into()]);
    }
    given
}

/// Does what was asked.
pub fn run(cli: Cli) -> ExitCode {
    if matches!(cli.command, Command::Mgmtd(_) | Command::Metad(_) | Command::Storaged(_) | Command::Mount(_))
    {
        daemon::leave_terminal();
    }
    match cli.command {
        // One line per service: its module, its `run`.
        Command::Mgmtd(args) => mgmtd::run(&args),
        Command::Metad(args) => metad::run(&args),
        Command::Storaged(args) => storaged::run(&args),
        Command::Mount(args) => mount::run(&args),
        Command::Up(args) => up::up(&args),
        Command::Down(args) => up::down(&args),
        Command::Status(args) => up::status(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Survey(args) => survey::run(&args),
        Command::Plan(args) => plan::run(&args),
        Command::Tune(args) => tune::run(&args),
        Command::Probe(args) => admin::mounted::probe(&args),
        Command::Admin(command) => admin::run(&command),
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
    let usage = if health { admin::health::EXIT_USAGE } else { EXIT_USAGE };
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

    /// Goal: mount(8) calls `mount.skep SPEC DIR -o OPTIONS`, or `mount.fuse.skep` for a mount that it
    /// found in the list of the kernel; every other name is taken as it is.
    #[test]
    fn called_as_mount_helper() {
        let call = |words: &[&str]| arguments(words.iter().map(OsString::from));
        for helper in ["/sbin/mount.skep", "/sbin/mount.fuse.skep"] {
            assert_eq!(call(&[helper, "m:/", "/mnt"]), [helper, "mount", "--by-mount", "m:/", "/mnt"]);
        }
        assert_eq!(call(&["skep", "df"]), ["skep", "df"]);
        assert!(call(&[]).is_empty());
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
