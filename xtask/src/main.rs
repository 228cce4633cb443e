//! Development tasks: `cargo xtask <task>`.
//!
//! Chores are done here. Suites, which start clusters, are another program, and compiled with all that they judge only
//! when one is run.

mod bare;
mod build;
mod ci;
mod coverage;
mod fuzz;
mod notices;
mod tidy;
mod units;

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use clap::{Parser, Subcommand};

/// Development tasks of Skep.
#[derive(Parser)]
#[command(
    name = "cargo xtask",
    bin_name = "cargo xtask",
    after_help = "All other tasks are suites: cargo xtask suites lists them."
)]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Check the rules of the house: sizes, arrows, names, documents.
    Tidy,
    /// Compile every program and test, with clippy's lints: no warning.
    Build,
    /// Run unit tests and fuzz smoke of every crate, several programs at a time.
    Units,
    /// Link vocabulary, rules and model into a program without `std` and without a system below it.
    Bare,
    /// Fuzz every reader of bytes from outside, led by the code that inputs reach.
    Fuzz(fuzz::Arguments),
    /// Write THIRD-PARTY.md from Cargo.lock and the licences of dependencies.
    Notices(notices::Arguments),
    /// Measure which lines of the rules their unit tests reach.
    Coverage(coverage::Arguments),
    /// Run the steps of `make test`, or only those named, and count what passed.
    Ci(ci::Arguments),
    /// List the suites.
    Suites,
    /// A suite, with its arguments.
    #[command(external_subcommand)]
    Suite(Vec<OsString>),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let root = root();
    let done = match arguments.task {
        Task::Tidy => tidy::run(&root),
        Task::Build => build::run(&root),
        Task::Units => units::run(&root),
        Task::Bare => bare::run(&root),
        Task::Fuzz(arguments) => fuzz::run(&root, &arguments),
        Task::Notices(arguments) => notices::run(&root, &arguments),
        Task::Coverage(arguments) => coverage::run(&root, &arguments),
        Task::Ci(arguments) => ci::run(&root, &arguments),
        Task::Suites => Err(become_suite(&root, &["--help".into()])),
        Task::Suite(words) => Err(become_suite(&root, &words)),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xtask: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Becomes the program of the suites, built if need be, where the caller stands; returns only when that failed.
///
/// Not by `--package`: so that its dependencies have the features that the tests of the workspace give them.
fn become_suite(root: &Path, words: &[OsString]) -> String {
    let mut cargo = Command::new("cargo");
    cargo.args(["run", "--quiet", "--bin", "skep-suites", "--manifest-path"]).arg(root.join("Cargo.toml"));
    let error = cargo.arg("--").args(words).exec();
    format!("cargo cannot be started: {error}")
}

/// The root of the source tree: one above this package.
fn root() -> PathBuf {
    let package = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    package.parent().map_or_else(|| package.clone(), Path::to_path_buf)
}

/// Where cargo puts what it builds.
fn target_directory(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |set| root.join(set))
}
