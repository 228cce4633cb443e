//! `cargo xtask bench`: Skep beside tmpfs and beside an empty FUSE file system, in one run.
//!
//! The machine is noisy, so nothing here is an absolute figure: in every round the systems take
//! turns at each group of phases, and a ratio is the median of the ratios within the rounds.
//! `pinned` puts everything (load, client, servers) on one core, which measures the length of the path.

pub mod measure;
pub mod page;
pub mod place;
mod profile;
pub mod result;
pub mod socket;
mod symbols;
pub mod system;
pub mod table;
pub mod transport;
mod verdict;
pub mod worker;

use crate::bench_peers;
use measure::{Amount, Sample};
use place::{Cores, Place};
use profile::Profile;
use result::{Machine, Placed, Report};
use std::path::{Path, PathBuf};
use system::Systems;
use transport::Transport;

pub use place::realtime;
pub use worker::WorkerArguments;

/// What to measure and where.
#[derive(clap::Args)]
pub struct Arguments {
    /// Rounds; in each all systems take turns.
    #[arg(long, default_value_t = 5)]
    pub rounds: usize,
    /// How the kernel's requests reach the file systems.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "dev,uring")]
    pub transport: Vec<Transport>,
    /// On one core, or where the kernel likes.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "pinned,free")]
    pub place: Vec<Place>,
    /// The core of the pinned part [default: the last].
    #[arg(long)]
    pub pin: Option<usize>,
    /// Files of each process in the metadata phases.
    #[arg(long, default_value_t = 2_000)]
    pub files: u64,
    /// MiB of each run in the phases that move data.
    #[arg(long, default_value_t = 256)]
    pub mib: u64,
    /// Where state and targets live; tmpfs keeps the disk's noise out.
    #[arg(long, default_value = "/dev/shm")]
    pub backing: PathBuf,
    /// Only phases whose name contains one of these.
    #[arg(long, value_delimiter = ',')]
    pub filter: Vec<String>,
    /// Write the result as JSON to this file as well.
    #[arg(long)]
    pub json: Option<PathBuf>,
    /// Only make the tables of this page anew, from the JSON files that it names.
    #[arg(long)]
    pub page: Option<PathBuf>,
    /// Measure what is built already.
    #[arg(long)]
    pub built: bool,
    /// Where the programs lie [default: target/release].
    #[arg(long)]
    pub binaries: Option<PathBuf>,
    /// Measure another build of Skep as well, whose programs lie here.
    #[arg(long)]
    pub beside: Option<PathBuf>,
    /// Only these numbers of processes.
    #[arg(long, value_delimiter = ',', default_value = "1,4")]
    pub processes: Vec<usize>,
    /// Run everything in the real-time class (`chrt`): other work of the machine disturbs less, and nobody is switched
    /// away from by whom he wakes, which flatters all systems, the empty one most.
    #[arg(long)]
    pub realtime: bool,
    /// Profile every phase, pinned, with one process: what an operation costs and where (needs perf).
    #[arg(long)]
    pub profile: bool,
    /// Measure beside MooseFS and GlusterFS instead: docs/bench/peers.md. Needs root; what is not installed is left out.
    #[arg(long)]
    pub peers: bool,
    /// What only that has.
    #[command(flatten)]
    pub with_peers: bench_peers::Options,
}

impl Arguments {
    /// Is this phase to be measured?
    pub fn wants(&self, phase: &str) -> bool {
        self.filter.is_empty() || self.filter.iter().any(|text| phase.contains(text.as_str()))
    }

    fn amount(&self, processes: usize) -> Amount {
        Amount { processes, files: self.files, mib: self.mib }
    }
}

/// Runs the benchmark; true when it came to its end.
pub fn run(root: &Path, arguments: &Arguments) -> Result<bool, String> {
    if arguments.peers {
        return bench_peers::run(root, arguments);
    }
    if let Some(page) = &arguments.page {
        return page::write(page).map(|()| true);
    }
    if !arguments.built {
        build(root, &BUILDS)?;
    }
    let binaries = arguments.binaries.clone().unwrap_or_else(|| root.join("target/release"));
    if arguments.realtime {
        place::realtime()?;
    }
    let cores = Cores::now(arguments.pin)?;
    let transports = transport::available(&arguments.transport)?;
    let mut samples: Vec<Sample> = Vec::new();
    let mut profiles = Vec::new();
    for place in &arguments.place {
        cores.go(*place)?;
        let systems =
            Systems::start(&binaries, arguments.beside.as_deref(), &arguments.backing, &transports)?;
        for round in 0..arguments.rounds {
            eprintln!("{}, round {} of {}", place.name(), round + 1, arguments.rounds);
            one_round(&systems, *place, round, arguments, &mut samples)?;
        }
        if arguments.profile && *place == Place::Pinned {
            profiles = profile_all(&systems, &transports, cores.pinned, arguments)?;
        }
    }
    let placed = arguments.place.iter().map(|place| Placed::of(&samples, *place, &transports)).collect();
    let report = Report {
        date: today()?,
        command: command_line(),
        machine: machine(&cores)?,
        pinned_to: cores.pinned,
        rounds: arguments.rounds,
        places: placed,
        profiles,
    };
    print!("{}", table::text(&report));
    if let Some(path) = &arguments.json {
        let text = serde_json::to_string_pretty(&report).map_err(|e| e.to_string())?;
        std::fs::write(path, text + "\n").map_err(|e| format!("{}: {e}", path.display()))?;
    }
    Ok(true)
}

/// All phases once: at each group all systems take turns, another one first in every round.
fn one_round(
    systems: &Systems,
    place: Place,
    round: usize,
    arguments: &Arguments,
    samples: &mut Vec<Sample>,
) -> Result<(), String> {
    let mut add = |system, phase: &str, processes, rate| {
        samples.push(Sample { place, round, system, phase: phase.to_owned(), processes, rate });
    };
    add(socket::NAME, socket::PHASE, 1, socket::stream(arguments.mib)?);
    for processes in &arguments.processes {
        for group in measure::GROUPS {
            if !group.phases.iter().any(|phase| arguments.wants(phase.name)) {
                continue;
            }
            let all = systems.all();
            for turn in 0..all.len() {
                let system = &all[(turn + round) % all.len()];
                for (phase, rate) in measure::run(system, group, arguments.amount(*processes))? {
                    if arguments.wants(phase) {
                        add(system.name, phase, *processes, rate);
                    }
                }
            }
        }
    }
    Ok(())
}

fn profile_all(
    systems: &Systems,
    transports: &[Transport],
    core: usize,
    arguments: &Arguments,
) -> Result<Vec<Profile>, String> {
    let mut profiles = Vec::new();
    for transport in transports {
        eprintln!("profile, {}", transport.name());
        let system = systems.all().iter().find(|system| system.name == transport.skep());
        let system = system.ok_or("there is nothing to profile")?;
        let wanted = |phase: &str| arguments.wants(phase);
        profiles.extend(profile::run(system, *transport, core, arguments.amount(1), &wanted)?);
    }
    Ok(profiles)
}

/// What a benchmark runs, each a list of words for cargo.
pub const BUILDS: [&[&str]; 2] = [
    &["build", "--release", "--package", "skep"],
    &["build", "--release", "--package", "skep-fuse", "--example", "empty_mount"],
];

/// Builds it.
pub fn build(root: &Path, builds: &[&[&str]]) -> Result<(), String> {
    for arguments in builds {
        let status = std::process::Command::new("cargo").args(*arguments).current_dir(root).status();
        match status {
            Ok(status) if status.success() => {}
            Ok(status) => return Err(format!("cargo {}: {status}", arguments.join(" "))),
            Err(e) => return Err(format!("cargo: {e}")),
        }
    }
    Ok(())
}

/// The day.
pub fn today() -> Result<String, String> {
    let output = std::process::Command::new("date").args(["-u", "+%F"]).output();
    let output = output.map_err(|e| format!("date: {e}"))?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// How to repeat it; where files lie does not matter for that.
pub fn command_line() -> String {
    let mut words = vec!["cargo xtask".to_owned()];
    let mut arguments = std::env::args().skip(1);
    while let Some(word) = arguments.next() {
        match word.as_str() {
            "--json" | "--binaries" | "--beside" | "--disk" => drop(arguments.next()),
            "--built" => {}
            _ => words.push(word),
        }
    }
    words.join(" ")
}

/// What it was measured on.
pub fn machine(cores: &Cores) -> Result<Machine, String> {
    let text = std::fs::read_to_string("/proc/cpuinfo").map_err(|e| format!("/proc/cpuinfo: {e}"))?;
    let model = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    Ok(Machine {
        processor: model.map_or("unknown", |(_, name)| name).to_owned(),
        cores: cores.count(),
        kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
    })
}

/// The hidden sub-command that a worker process runs.
pub fn work(arguments: &WorkerArguments) -> Result<bool, String> {
    worker::run(arguments).map(|()| true)
}
