//! `cargo xtask contended`: programs on two mounts create, rename and unlink in one directory and look at each other's names,
//! beside the same on a local file system. Each answer must be right for the time in which nothing was changed, and nobody
//! may wait long.

mod names;

use crate::program::built;
use names::Names;
use skep_model::Rng;
use skep_rig::{Cluster, Plan};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// Programs on each mount.
const EACH: usize = 2;
/// Names that each of them changes.
const OWN: usize = 12;
/// Answers that are shown; all are counted.
const SHOWN: usize = 5;

/// What to run, and where.
#[derive(clap::Args)]
pub struct Arguments {
    #[arg(long, default_value_t = 600)]
    seconds: u64,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Use this program instead of building one.
    #[arg(long)]
    program: Option<PathBuf>,
    /// FUSE transport of the mounts: auto, uring or dev.
    #[arg(long)]
    transport: Option<String>,
    /// One directory as two mounts show it, of a cluster that is there; else one is started.
    #[arg(long, value_delimiter = ',', value_name = "DIR,DIR", conflicts_with_all = ["program", "transport"])]
    through: Vec<PathBuf>,
    /// Where the same is done locally.
    #[arg(long, default_value = "/dev/shm")]
    local: PathBuf,
    /// Longest that a program may wait, in milliseconds, if none waits half as long locally.
    #[arg(long, default_value_t = 1_000)]
    longest: u64,
}

/// What came of it in one place.
#[derive(Default)]
struct Outcome {
    operations: u64,
    wrong: u64,
    first_wrong: Vec<String>,
    longest: Duration,
    /// Operations that took longer than they may.
    long: u64,
}

/// Runs it; true when nothing was wrong and nobody waited long.
pub fn run(root: &Path, arguments: &Arguments) -> Result<bool, String> {
    if let [one, other] = &arguments.through[..] {
        return contend([one, other], arguments);
    }
    if !arguments.through.is_empty() {
        return Err("--through takes two directories".to_owned());
    }
    let program = match &arguments.program {
        Some(program) => program.clone(),
        None => built(root, "skep", true)?,
    };
    let mut plan = Plan::new(program);
    if let Some(transport) = &arguments.transport {
        plan = plan.with("SKEP_MOUNT_TRANSPORT", transport);
    }
    let cluster = Cluster::start(plan)?;
    let second = cluster.second_mount("second", &[])?;
    make(&cluster.mount().join("contended"))?;
    let good = contend([&cluster.mount().join("contended"), &second.join("contended")], arguments);
    if good != Ok(true) {
        cluster.show_logs();
    }
    good
}

fn contend([one, other]: [&Path; 2], arguments: &Arguments) -> Result<bool, String> {
    let local = arguments.local.join(format!("skep-contended-{}", std::process::id()));
    make(&local)?;
    let ends = AtomicBool::new(false);
    let (shared, locally) = std::thread::scope(|scope| {
        let shared = scope.spawn(|| together([one, other], arguments, &ends));
        let locally = scope.spawn(|| together([&local, &local], arguments, &ends));
        std::thread::sleep(Duration::from_secs(arguments.seconds));
        ends.store(true, SeqCst);
        (shared.join(), locally.join())
    });
    let _ = std::fs::remove_dir_all(&local);
    let joined = |outcome: std::thread::Result<Outcome>| outcome.map_err(|_| "a program panicked".to_owned());
    let (shared, locally) = (joined(shared)?, joined(locally)?);
    for (place, outcome) in [("two mounts", &shared), ("locally", &locally)] {
        println!(
            "{place}: {} operations in {} s, {} wrong, longest {} ms, longer than {} ms: {}",
            outcome.operations,
            arguments.seconds,
            outcome.wrong,
            outcome.longest.as_millis(),
            arguments.longest,
            outcome.long
        );
        outcome.first_wrong.iter().for_each(|wrong| println!("  {wrong}"));
    }
    let is_quiet = locally.longest.as_millis() as u64 <= arguments.longest / 2;
    if shared.long > 0 && !is_quiet {
        println!("the machine itself was slow: how long programs waited says nothing");
    }
    Ok(shared.operations > 0 && shared.wrong + locally.wrong == 0 && (shared.long == 0 || !is_quiet))
}

/// Programs at work in one directory, by two ways to it.
fn together(ways: [&Path; 2], arguments: &Arguments, ends: &AtomicBool) -> Outcome {
    let names = Names::new(2 * EACH, OWN);
    let longest = Duration::from_millis(arguments.longest);
    std::thread::scope(|scope| {
        let programs: Vec<_> = (0..2 * EACH)
            .map(|number| {
                let (names, way) = (&names, ways[number % 2]);
                let rng = Rng::new(arguments.seed.wrapping_mul(31).wrapping_add(number as u64));
                scope.spawn(move || work(names, number, way, rng, longest, ends))
            })
            .collect();
        let mut all = Outcome::default();
        for program in programs {
            match program.join() {
                Ok(one) => all.add(one),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        all
    })
}

fn work(names: &Names, me: usize, way: &Path, mut rng: Rng, longest: Duration, ends: &AtomicBool) -> Outcome {
    let mut outcome = Outcome::default();
    while !ends.load(SeqCst) {
        let begun = Instant::now();
        let done = match rng.below(100) {
            0 => names.list(way),
            1..=49 => names.look(way, &mut rng),
            _ => names.change(way, me, &mut rng),
        };
        let took = begun.elapsed();
        outcome.operations += 1;
        outcome.longest = outcome.longest.max(took);
        outcome.long += u64::from(took > longest);
        if let Err(wrong) = done {
            outcome.wrong += 1;
            if outcome.first_wrong.len() < SHOWN {
                outcome.first_wrong.push(format!("{}: {wrong}", way.display()));
            }
        }
    }
    outcome
}

impl Outcome {
    fn add(&mut self, other: Self) {
        self.operations += other.operations;
        self.wrong += other.wrong;
        self.first_wrong.extend(other.first_wrong);
        self.first_wrong.truncate(SHOWN);
        self.longest = self.longest.max(other.longest);
        self.long += other.long;
    }
}

fn make(dir: &Path) -> Result<(), String> {
    std::fs::create_dir(dir).map_err(|e| format!("{}: {e}", dir.display()))
}
