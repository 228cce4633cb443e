//! `cargo xtask bench-metas`: how much more one, two and three metadata servers do.
//!
//! Each server runs in a control group of its own that gives it a part of one processor, so that servers are what there is
//! too little of, on a machine of any size. The load is the client core without FUSE, in this process: threads that each
//! create, look at and remove files in a directory of their own; the directories are dealt to all shards. The clusters run all the time and take turns, another one first in every round.

mod cage;
mod load;
mod page;
mod port;
mod result;

use crate::program::built;
use cage::Cage;
use load::Load;
use result::{Results, Sample};
use skep_rig::{Cluster, Daemon, Plan};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Shards of each cluster. Of three servers one has 22 of them, the others 21.
const SHARDS: u32 = 64;
/// Numbers of servers that are compared; the first is what the others are measured by.
const SERVERS: [u32; 3] = [1, 2, 3];
/// The load runs for so long before it is counted.
const WARMING: Duration = Duration::from_secs(2);

/// What to measure.
#[derive(clap::Args)]
pub struct Arguments {
    /// Part of one processor that each server gets, in percent.
    #[arg(long, default_value_t = 20)]
    percent: u32,
    /// Threads of the load for each server: what a server does at once depends on how many wait for it.
    #[arg(long, default_value_t = 64)]
    threads: u32,
    /// How often each cluster has its turn.
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// Seconds of a turn.
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// Use this program instead of building one.
    #[arg(long)]
    program: Option<PathBuf>,
    /// Where the clusters' directories are made.
    #[arg(long, default_value = "/dev/shm")]
    backing: PathBuf,
    /// Write the result to this file.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Write the tables of this page anew, from the JSON files beside it, and measure nothing.
    #[arg(long)]
    page: Option<PathBuf>,
}

/// A cluster with its servers in their cages, and the load on it.
struct Place {
    servers: u32,
    metads: Vec<Daemon>,
    load: Load,
    // Last: what is in a cage ends before it.
    _cluster: Cluster,
    _cages: Vec<Cage>,
}

/// Measures, or writes the page.
pub fn run(root: &Path, arguments: &Arguments) -> Result<bool, String> {
    if let Some(page) = &arguments.page {
        return page::write(page).map(|()| true);
    }
    let program = match &arguments.program {
        Some(program) => program.clone(),
        None => built(root, "skep", true)?,
    };
    let mut places = Vec::new();
    for servers in SERVERS {
        places.push(place(&program, servers, arguments)?);
    }
    let mut samples = Vec::new();
    for round in 0..arguments.rounds as usize {
        for turn in 0..places.len() {
            let at = (turn + round) % places.len();
            let sample = measured(&places[at], Duration::from_secs(arguments.seconds))?;
            eprintln!("round {}: {sample}", round + 1);
            samples.push(sample);
        }
    }
    let results = Results {
        command: command_line(),
        percent: arguments.percent,
        threads: arguments.threads,
        rounds: arguments.rounds,
        samples,
    };
    print!("{}", page::table(&results)?);
    if let Some(path) = &arguments.json {
        let text = serde_json::to_string_pretty(&results).map_err(|e| e.to_string())?;
        std::fs::write(path, text + "\n").map_err(|e| format!("{}: {e}", path.display()))?;
    }
    Ok(true)
}

fn place(program: &Path, servers: u32, arguments: &Arguments) -> Result<Place, String> {
    let plan =
        Plan { metas: servers, shards: SHARDS, base: Some(arguments.backing.clone()), ..Plan::new(program) };
    let cluster = Cluster::start(plan)?;
    let load = Load::new(&cluster, servers, arguments.threads * servers, SHARDS)?;
    let metads = cluster.of("metad");
    let mut cages = Vec::new();
    for daemon in &metads {
        let cage = Cage::new(&format!("skep-bench-{servers}-{}", daemon.name()))?;
        cage.limit(arguments.percent)?;
        cage.take(daemon.pid)?;
        cages.push(cage);
    }
    Ok(Place { servers, metads, load, _cluster: cluster, _cages: cages })
}

/// One turn.
fn measured(place: &Place, time: Duration) -> Result<Sample, String> {
    let used =
        || place.metads.iter().map(|daemon| daemon.cpu_seconds()).collect::<Result<Vec<f64>, String>>();
    let run = place.load.start()?;
    std::thread::sleep(WARMING);
    let (begun, before, done) = (Instant::now(), used()?, run.operations());
    std::thread::sleep(time);
    let (seconds, after, operations) = (begun.elapsed().as_secs_f64(), used()?, run.operations() - done);
    run.stop()?;
    let cpu = before.iter().zip(&after).map(|(before, after)| after - before).collect();
    Ok(Sample { servers: place.servers, seconds, operations, cpu })
}

/// How to repeat it; where files lie does not matter for that.
fn command_line() -> String {
    let mut words = vec!["cargo xtask".to_owned()];
    let mut arguments = std::env::args().skip(1);
    while let Some(word) = arguments.next() {
        match word.as_str() {
            "--json" | "--program" | "--backing" => drop(arguments.next()),
            _ => words.push(word),
        }
    }
    words.join(" ")
}
