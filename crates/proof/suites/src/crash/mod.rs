//! `cargo xtask crash`: random operations from several processes on several mounts, random kill -9 of
//! server daemons meanwhile, and checkers that know what was acknowledged.
//!
//! Every process has a directory of its own and the oracle of it in memory: each operation must have
//! exactly the oracle's outcome, whatever is killed (the mounts wait and go on by themselves). After
//! every few kills, all stop and every tree is compared with its oracle through every mount. In every second round the
//! sessions of one mount are ended under it, which its programs must not notice (histories, with their locks, pause). Then
//! mounts are killed: what was fsynced must be there through the mount that replaces each. At the end
//! everything is removed, and nothing may be left on any target.

mod brave;
mod bulk;
mod canary;
mod chaos;
mod crowd;
pub mod leaks;
mod load;
mod mapped;
mod rows;
mod team;
mod worker;

use crate::program::built;
use crate::servers::Servers;
use canary::Canary;
use chaos::Chaos;
use skep_model::Rng;
use skep_rig::{Cluster, Plan, unmount_by_force};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use team::Team;

pub use worker::WorkerArguments;

/// Kills between two comparisons of everything, at most; there are at least two rounds.
const KILLS_PER_ROUND: u32 = 10;
/// More of them when there are many: what is compared grows, and a comparison takes a minute after some hundred kills.
const ROUNDS_MAX: u32 = 25;

/// Longest time that an operation may take: daemons are away for about 5 s at most, and a disk that others keep busy
/// may take tens of seconds for one sync.
const STALL_MAX: Duration = Duration::from_secs(90);

/// What to do, and how much of it.
#[derive(clap::Args)]
pub struct Arguments {
    /// How often a random server daemon is killed; 0: never, however many `--seconds`.
    #[arg(long, default_value_t = 50)]
    kills: u32,
    /// How often a mount is killed, afterwards.
    #[arg(long, default_value_t = 3)]
    mount_kills: u32,
    /// Go on for at least so long, with more kills when those are done.
    #[arg(long, default_value_t = 0)]
    seconds: u64,
    /// Seed of histories and kills; absent: the clock's.
    #[arg(long)]
    seed: Option<u64>,
    /// Load processes.
    #[arg(long, default_value_t = 4)]
    processes: u32,
    /// Mounts that they are spread over.
    #[arg(long, default_value_t = 2)]
    mounts: u32,
    /// Do this damage: the test passes when it is found.
    #[arg(long)]
    canary: Option<Canary>,
    /// Build and use the release program: faster, without overflow checks.
    #[arg(long)]
    release: bool,
    /// Use this program instead of building one.
    #[arg(long)]
    program: Option<PathBuf>,
    /// Where the cluster's directory is made.
    #[arg(long)]
    backing: Option<PathBuf>,
    #[command(flatten)]
    servers: Servers,
}

/// What happened so far.
#[derive(Default)]
struct Verdict {
    passed: u64,
    failures: Vec<String>,
}

impl Verdict {
    fn add(&mut self, what: &str, result: Result<(), String>) {
        match result {
            Ok(()) => self.passed += 1,
            Err(e) => {
                eprintln!("FAILED {what}: {e}");
                self.failures.push(format!("{what}: {e}"));
            }
        }
    }

    fn is_good(&self) -> bool {
        self.failures.is_empty()
    }
}

/// Runs the test; true when nothing failed.
pub fn run(root: &Path, arguments: &Arguments) -> Result<bool, String> {
    if arguments.processes == 0 || arguments.mounts == 0 {
        return Err("--processes and --mounts must be at least 1".to_owned());
    }
    let seed = arguments.seed.unwrap_or_else(seed_of_the_clock);
    println!(
        "crash: {} kills, {} processes on {} mounts, --seed {seed}",
        arguments.kills, arguments.processes, arguments.mounts
    );
    let cluster = Cluster::start(plan(root, arguments)?)?;
    let mut verdict = Verdict::default();
    let done = test(&cluster, arguments, seed, &mut verdict);
    verdict.add("the test itself", done);
    if let Some(canary) = arguments.canary {
        return Ok(found(canary, &verdict));
    }
    if !verdict.is_good() {
        cluster.show_logs();
        keep_logs(&cluster, seed);
    }
    for failure in &verdict.failures {
        println!("FAILED {failure}");
    }
    if !verdict.is_good() {
        println!(
            "again with: cargo xtask crash --kills {} --seed {seed}{}",
            arguments.kills, arguments.servers
        );
    }
    println!("{} passed, {} failed", verdict.passed, verdict.failures.len());
    Ok(verdict.is_good())
}

/// With a canary the test passes when it fails as that damage makes it fail.
fn found(canary: Canary, verdict: &Verdict) -> bool {
    match verdict.failures.first() {
        Some(failure) if failure.contains(canary::NO_DAMAGE) || !canary.is_told_by(failure) => {
            println!("FAILED: {failure}\n0 passed, 1 failed");
            false
        }
        Some(failure) => {
            let first = failure.lines().next().unwrap_or_default();
            println!("the canary was found: {first}\n1 passed, 0 failed");
            true
        }
        None => {
            println!("FAILED: the canary was not found\n0 passed, 1 failed");
            false
        }
    }
}

/// The hidden sub-command that a load process runs.
pub fn work(arguments: &WorkerArguments) -> Result<bool, String> {
    worker::run(arguments)
}

fn test(cluster: &Cluster, arguments: &Arguments, seed: u64, verdict: &mut Verdict) -> Result<(), String> {
    let mut points = vec![cluster.mount().to_owned()];
    for number in 1..arguments.mounts {
        points.push(cluster.second_mount(&format!("mnt{number}"), &[])?);
    }
    let mut team = Team::start(&points, arguments.processes, seed)?;
    let mut rng = Rng::new(seed);
    let mut chaos = Chaos::new(arguments.canary);
    let begun = Instant::now();
    let per_round = KILLS_PER_ROUND.max(arguments.kills.div_ceil(ROUNDS_MAX));
    let (mut rounds, most) = (0, per_round.min(arguments.kills.div_ceil(2)));
    let long_enough = || begun.elapsed() >= Duration::from_secs(arguments.seconds);
    while verdict.is_good() && (chaos.kills < arguments.kills || !long_enough()) {
        let round = match arguments.kills.saturating_sub(chaos.kills) {
            // Without kills it is a test of plain operation.
            0 => most,
            left => left.min(most),
        };
        rounds += 1;
        // Another mount than the first has nobody evicted with it.
        let evicted = points.last().filter(|_| rounds % 2 == 0 && points.len() > 1);
        let told = team.all(if evicted.is_some() { "go beside evictions" } else { "go" });
        let evicted = evicted.map(PathBuf::as_path);
        let round = told.and_then(|()| chaos.round(cluster, &mut team, &mut rng, round, evicted));
        verdict.add("kills", round);
        if !verdict.is_good() {
            break;
        }
        let stopped = team.ask_all("stop", verdict);
        println!(
            "{:6.1} s: {} kills, {} operations, longest stall {:.1} s",
            begun.elapsed().as_secs_f32(),
            chaos.kills,
            stopped.operations,
            stopped.longest.as_secs_f32()
        );
        verdict.add("stalls", bounded(&stopped));
        if let Some(canary) = arguments.canary {
            verdict.add("canary", canary.before_comparison(cluster));
        }
        let begun = Instant::now();
        team.ask_all("verify", verdict);
        println!("          compared in {:.1} s", begun.elapsed().as_secs_f32());
    }
    for number in 0..arguments.mount_kills {
        if verdict.is_good() {
            let point = &points[number as usize % points.len()];
            verdict.add("killed mount", brave::kill_mount(cluster, point, &mut team, &mut rng));
            let begun = Instant::now();
            team.ask_all("verify", verdict);
            println!("mount {} killed, compared in {:.1} s", number + 1, begun.elapsed().as_secs_f32());
        }
    }
    if verdict.is_good() {
        team.ask_all("remove", verdict);
        verdict.add("leaks", leaks::check(cluster, &points));
        drop(team);
        verdict.add("metadata on disk", rows::check(cluster));
    }
    if !verdict.is_good() {
        // Processes end with their mapped files. Those wait for servers that are away as long as the mount tries,
        // and with a canary some may not come back.
        for point in &points {
            unmount_by_force(point);
        }
    }
    println!("killed: {chaos}");
    Ok(())
}

/// No operation may wait much longer than the daemons were away.
fn bounded(stopped: &team::Stopped) -> Result<(), String> {
    if stopped.longest <= STALL_MAX {
        return Ok(());
    }
    Err(format!("an operation took {:.1} s: {}", stopped.longest.as_secs_f32(), stopped.what))
}

fn plan(root: &Path, arguments: &Arguments) -> Result<Plan, String> {
    let program = match &arguments.program {
        Some(program) => program.clone(),
        None => built(root, "skep", arguments.release)?,
    };
    let plan = arguments.servers.of(Plan { base: arguments.backing.clone(), ..Plan::new(program) });
    // A killed mount's session ends within the time that the leak check waits.
    Ok(plan.with("SKEP_MGMTD_SESSION_TIMEOUT", "20s"))
}

/// For who names no seed: it is printed.
pub fn seed_of_the_clock() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as u64)
}

/// The logs outlive the cluster's directory when something failed.
fn keep_logs(cluster: &Cluster, seed: u64) {
    let kept = std::env::temp_dir().join(format!("skep-crash-{seed}"));
    let copied = std::fs::create_dir_all(&kept).and_then(|()| {
        cluster.logs().iter().try_for_each(|(name, text)| std::fs::write(kept.join(name), text))
    });
    match copied {
        Ok(()) => println!("the daemons' logs are kept in {}", kept.display()),
        Err(e) => eprintln!("{}: {e}", kept.display()),
    }
}
