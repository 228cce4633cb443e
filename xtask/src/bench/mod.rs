//! `cargo xtask bench`: Skep beside tmpfs and beside an empty FUSE file system, in one run.
//!
//! The machine is noisy, so nothing here is an absolute figure: every round runs every system one
//! after the other, and the result is the median of the ratios' parts over the rounds. `--pin CPU`
//! puts everything (load, client, servers) on one core, which measures the length of the path.

mod measure;
mod report;
mod socket;
mod system;
mod worker;

use measure::Sample;
use std::path::{Path, PathBuf};
use system::{System, Systems};

pub use worker::WorkerArguments;

/// What to measure and where.
#[derive(clap::Args)]
pub struct Arguments {
    /// Rounds; each runs every system once.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Put everything on this core.
    #[arg(long)]
    pin: Option<usize>,
    /// Files of each process in the metadata phases.
    #[arg(long, default_value_t = 2_000)]
    files: u64,
    /// MiB of each run in the phases that move data.
    #[arg(long, default_value_t = 256)]
    mib: u64,
    /// Where state and targets live; tmpfs keeps the disk's noise out.
    #[arg(long, default_value = "/dev/shm")]
    backing: PathBuf,
    /// Only phases whose name contains this.
    #[arg(long)]
    filter: Option<String>,
    /// Write the result as JSON to this file as well.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Measure what is built already.
    #[arg(long)]
    built: bool,
    /// Only these numbers of processes.
    #[arg(long, value_delimiter = ',', default_value = "1,4")]
    processes: Vec<usize>,
}

/// Runs the benchmark; true when it came to its end.
pub fn run(root: &Path, arguments: &Arguments) -> Result<bool, String> {
    if !arguments.built {
        build(root)?;
    }
    if let Some(cpu) = arguments.pin {
        pin(cpu)?;
    }
    let systems = Systems::start(root, &arguments.backing)?;
    let mut samples: Vec<Sample> = Vec::new();
    for round in 0..arguments.rounds {
        eprintln!("round {} of {}", round + 1, arguments.rounds);
        samples.push(socket::stream(arguments.mib)?);
        for processes in &arguments.processes {
            for system in systems.all() {
                samples.extend(one(system, *processes, arguments)?);
            }
        }
    }
    drop(systems);
    let result = report::Result::of(&samples, arguments.pin, arguments.rounds);
    print!("{}", result.table());
    if let Some(path) = &arguments.json {
        std::fs::write(path, result.json()).map_err(|e| format!("{}: {e}", path.display()))?;
    }
    Ok(true)
}

/// All phases of one system with one number of processes.
fn one(system: &System, processes: usize, arguments: &Arguments) -> Result<Vec<Sample>, String> {
    let mut samples = Vec::new();
    for group in measure::GROUPS {
        let wanted = |name: &str| arguments.filter.as_ref().is_none_or(|text| name.contains(text.as_str()));
        if group.phases.iter().any(|phase| wanted(phase.name)) {
            samples.extend(measure::run(system, group, processes, arguments.files, arguments.mib)?);
        }
    }
    samples
        .retain(|sample| arguments.filter.as_ref().is_none_or(|text| sample.phase.contains(text.as_str())));
    Ok(samples)
}

fn build(root: &Path) -> Result<(), String> {
    for arguments in [
        &["build", "--release", "--package", "skep"][..],
        &["build", "--release", "--package", "skep-fuse", "--example", "empty_mount"],
    ] {
        let status = std::process::Command::new("cargo").args(arguments).current_dir(root).status();
        match status {
            Ok(status) if status.success() => {}
            Ok(status) => return Err(format!("cargo {}: {status}", arguments.join(" "))),
            Err(e) => return Err(format!("cargo: {e}")),
        }
    }
    Ok(())
}

/// Children inherit it, the daemons among them.
fn pin(cpu: usize) -> Result<(), String> {
    let mut set = rustix::thread::CpuSet::new();
    if cpu >= rustix::thread::CpuSet::MAX_CPU {
        return Err(format!("--pin {cpu}: there is no such core"));
    }
    set.set(cpu);
    rustix::thread::sched_setaffinity(None, &set).map_err(|e| format!("--pin {cpu}: {e}"))
}

/// The hidden sub-command that a worker process runs.
pub fn work(arguments: &WorkerArguments) -> Result<bool, String> {
    worker::run(arguments).map(|()| true)
}
