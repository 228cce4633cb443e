//! Development tasks: `cargo xtask <task>`.

mod bare;
mod bench;
mod bench_fio;
mod browser;
mod build;
mod calibrate;
mod ci;
mod conform;
mod coverage;
mod crash;
mod fuzz;
mod hosts;
mod notices;
mod posix;
mod power;
mod process;
mod program;
mod programs;
mod rigged;
mod sim;
mod tidy;
mod units;
mod vm;
mod ways;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Development tasks of Skep.
#[derive(Parser)]
#[command(name = "cargo xtask")]
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
    /// Simulate a whole cluster from a seed, against the oracle.
    Sim(sim::Arguments),
    /// Measure Skep beside tmpfs and an empty FUSE file system.
    Bench(bench::Arguments),
    /// Measure what Skep's operations cost, for `skep plan scale`.
    Calibrate(calibrate::Arguments),
    /// Open the survey's report in a real browser, print it, and look at every chart.
    Browser(browser::Arguments),
    /// Compare `skep bench io` with fio on the same files.
    BenchFio(bench_fio::Arguments),
    /// Run the tests of real daemons and mounts, several at a time.
    Process(process::Arguments),
    /// Run pjdfstest and fsx, built elsewhere, over a mount.
    Posix(posix::Arguments),
    /// Run real programs (git, SQLite, PostgreSQL, a compiler ...) over mounts.
    Programs(programs::Arguments),
    /// Run a cluster and the conformance table on another kernel, in a virtual machine.
    OldKernel(vm::old_kernel::Arguments),
    /// Set up a machine with systemd by units and fstab, reboot, reset and tune it, in a virtual machine.
    Systemd(vm::systemd::Arguments),
    /// Run the POSIX conformance suite over a mount.
    Conform(conform::Arguments),
    /// Kill daemons at random under load, and check that nothing is lost.
    Crash(crash::Arguments),
    /// Cut the power of servers under load, and check what every good fsync vouched for.
    Power(power::Arguments),
    /// Set up, extend and repair four hosts by the pages of docs/admin, word for word, under load.
    Hosts(hosts::Arguments),
    /// Survey set-ups in which something was made slow: the right culprit must be named, and none in a control.
    Rigged(rigged::Arguments),
    /// Measure which way bytes of files should go: past the kernel's page cache, or through it.
    Ways(ways::Arguments),
    /// One disk of `rigged`.
    #[command(hide = true)]
    RiggedDisk(rigged::DiskArguments),
    /// One load process of `crash`.
    #[command(hide = true)]
    CrashWorker(crash::WorkerArguments),
    /// One load process of `bench`.
    #[command(hide = true)]
    BenchWorker(bench::WorkerArguments),
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
        Task::Sim(arguments) => sim::run(&root, &arguments),
        Task::Bench(arguments) => bench::run(&root, &arguments),
        Task::Calibrate(arguments) => calibrate::run(&root, &arguments),
        Task::Browser(arguments) => browser::run(&root, &arguments),
        Task::BenchFio(arguments) => bench_fio::run(&root, &arguments),
        Task::Process(arguments) => process::run(&root, &arguments),
        Task::Posix(arguments) => posix::run(&root, &arguments),
        Task::Programs(arguments) => programs::run(&root, &arguments),
        Task::OldKernel(arguments) => vm::old_kernel::run(&root, &arguments),
        Task::Systemd(arguments) => vm::systemd::run(&root, &arguments),
        Task::Conform(arguments) => conform::run(&root, &arguments),
        Task::Crash(arguments) => crash::run(&root, &arguments),
        Task::Power(arguments) => power::run(&root, &arguments),
        Task::Hosts(arguments) => hosts::run(&root, &arguments),
        Task::Rigged(arguments) => rigged::run(&root, &arguments),
        Task::Ways(arguments) => ways::run(&root, &arguments),
        Task::RiggedDisk(arguments) => rigged::serve(&arguments),
        Task::CrashWorker(arguments) => crash::work(&arguments),
        Task::BenchWorker(arguments) => bench::work(&arguments),
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
