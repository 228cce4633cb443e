//! Suites: each starts clusters of real daemons, and judges or measures them. `cargo xtask <suite>` runs them.

mod bench;
mod bench_fio;
mod bench_metas;
mod bench_peers;
mod browser;
mod calibrate;
mod conform;
mod contended;
mod crash;
mod hosts;
mod posix;
mod power;
mod process;
mod program;
mod programs;
mod rigged;
mod servers;
mod sim;
mod vm;
mod ways;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Suites that start clusters of Skep, and judge or measure them.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    suite: Suite,
}

#[derive(Subcommand)]
enum Suite {
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
    /// Measure how much more several metadata servers do, each in a part of a processor.
    BenchMetas(bench_metas::Arguments),
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
    /// Let programs on two mounts change one directory and look at each other's names.
    Contended(contended::Arguments),
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
    let done = match arguments.suite {
        Suite::Sim(arguments) => sim::run(&root, &arguments),
        Suite::Bench(arguments) => bench::run(&root, &arguments),
        Suite::Calibrate(arguments) => calibrate::run(&root, &arguments),
        Suite::Browser(arguments) => browser::run(&root, &arguments),
        Suite::BenchFio(arguments) => bench_fio::run(&root, &arguments),
        Suite::BenchMetas(arguments) => bench_metas::run(&root, &arguments),
        Suite::Process(arguments) => process::run(&root, &arguments),
        Suite::Posix(arguments) => posix::run(&root, &arguments),
        Suite::Programs(arguments) => programs::run(&root, &arguments),
        Suite::OldKernel(arguments) => vm::old_kernel::run(&root, &arguments),
        Suite::Systemd(arguments) => vm::systemd::run(&root, &arguments),
        Suite::Conform(arguments) => conform::run(&root, &arguments),
        Suite::Crash(arguments) => crash::run(&root, &arguments),
        Suite::Contended(arguments) => contended::run(&root, &arguments),
        Suite::Power(arguments) => power::run(&root, &arguments),
        Suite::Hosts(arguments) => hosts::run(&root, &arguments),
        Suite::Rigged(arguments) => rigged::run(&root, &arguments),
        Suite::Ways(arguments) => ways::run(&root, &arguments),
        Suite::RiggedDisk(arguments) => rigged::serve(&arguments),
        Suite::CrashWorker(arguments) => crash::work(&arguments),
        Suite::BenchWorker(arguments) => bench::work(&arguments),
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

/// The root of the source tree: three above this package.
fn root() -> PathBuf {
    let package = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    package.ancestors().nth(3).map_or_else(|| package.clone(), Path::to_path_buf)
}

/// Where cargo puts what it builds.
fn target_directory(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |set| root.join(set))
}
