//! `cargo xtask contended`: programs on two mounts create, rename and unlink in one directory and look at each other's names,
//! beside the same on a local file system. Each answer must be right for the time in which nothing was changed, and nobody
//! may wait long.

mod names;

use crate::program::built;
use names::Names;
use skep_model::Rng;
use skep_rig::{Cluster, Plan};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// Programs on each mount.
const EACH: usize = 2;
/// Names that each of them changes.
const OWN: usize = 12;
/// Wrong answers that are shown; all are counted.
const SHOWN: usize = 5;
/// Local programs are there to show how long the machine lets one wait, not to keep it busy.
const LOCAL_PAUSE: Duration = Duration::from_millis(1);
/// An operation that has not come back so long after the end never will.
const HANGS: Duration = Duration::from_secs(60);

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
    /// Longest that a program may wait, in milliseconds; or twice as long as one waited locally.
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
        checked([one, other])?;
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
    let (one, other) = (cluster.mount().join("contended"), second.join("contended"));
    std::fs::create_dir(&one).map_err(|e| format!("{}: {e}", one.display()))?;
    let good = contend([&one, &other], arguments);
    if good != Ok(true) {
        cluster.show_logs();
    }
    good
}

fn contend(ways: [&Path; 2], arguments: &Arguments) -> Result<bool, String> {
    let local = arguments.local.join(format!("skep-contended-{}", std::process::id()));
    std::fs::create_dir(&local).map_err(|e| format!("{}: {e}", local.display()))?;
    let shared = Place::begin(ways, None, arguments);
    let locally = Place::begin([&local, &local], Some(LOCAL_PAUSE), arguments);
    std::thread::sleep(Duration::from_secs(arguments.seconds));
    let (shared, locally) = (shared.end(), locally.end());
    let _ = std::fs::remove_dir_all(&local);
    let (shared, locally) = (shared?, locally?);
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
    // A machine that lets local programs wait is excused for that, and for no more.
    let may_wait = Duration::from_millis(arguments.longest).max(2 * locally.longest);
    if shared.longest > may_wait {
        println!("somebody waited for more than {} ms", may_wait.as_millis());
    }
    Ok(shared.wrong + locally.wrong == 0 && shared.longest <= may_wait)
}

/// Programs at work in one directory.
struct Place {
    programs: Vec<std::thread::JoinHandle<Outcome>>,
    ends: Arc<AtomicBool>,
    ways: [PathBuf; 2],
}

impl Place {
    /// By two ways to the directory. `pause`: after each operation.
    fn begin(ways: [&Path; 2], pause: Option<Duration>, arguments: &Arguments) -> Self {
        let names = Arc::new(Names::new(2 * EACH, OWN));
        let ends = Arc::new(AtomicBool::new(false));
        let longest = Duration::from_millis(arguments.longest);
        let programs = (0..2 * EACH)
            .map(|number| {
                let (names, ends, way) = (names.clone(), ends.clone(), ways[number % 2].to_owned());
                let rng = Rng::new(arguments.seed.wrapping_mul(31).wrapping_add(number as u64));
                let me = Program { names, number, way, longest, pause, ends };
                std::thread::spawn(move || me.work(rng))
            })
            .collect();
        Self { programs, ends, ways: ways.map(Path::to_owned) }
    }

    /// Err: a program did nothing, panicked, or hangs.
    fn end(self) -> Result<Outcome, String> {
        self.ends.store(true, SeqCst);
        let ended = Instant::now();
        let mut all = Outcome::default();
        for (number, program) in self.programs.into_iter().enumerate() {
            let way = self.ways[number % 2].display();
            while !program.is_finished() {
                if ended.elapsed() > HANGS {
                    return Err(format!("a program in {way} has waited for more than {} s", HANGS.as_secs()));
                }
                std::thread::sleep(Duration::from_millis(20));
            }
            let one = program.join().map_err(|_| format!("a program in {way} panicked"))?;
            if one.operations == 0 {
                return Err(format!("a program in {way} came to nothing"));
            }
            all.add(one);
        }
        Ok(all)
    }
}

struct Program {
    names: Arc<Names>,
    number: usize,
    way: PathBuf,
    longest: Duration,
    pause: Option<Duration>,
    ends: Arc<AtomicBool>,
}

impl Program {
    fn work(self, mut rng: Rng) -> Outcome {
        let mut outcome = Outcome::default();
        while !self.ends.load(SeqCst) {
            let begun = Instant::now();
            let done = match rng.below(100) {
                0 => self.names.list(&self.way),
                1..=49 => self.names.look(&self.way, &mut rng),
                _ => self.names.change(&self.way, self.number, &mut rng),
            };
            let took = begun.elapsed();
            outcome.operations += 1;
            outcome.longest = outcome.longest.max(took);
            outcome.long += u64::from(took > self.longest);
            if let Err(wrong) = done {
                outcome.wrong += 1;
                if outcome.first_wrong.len() < SHOWN {
                    outcome.first_wrong.push(format!("{}: {wrong}", self.way.display()));
                }
            }
            if let Some(pause) = self.pause {
                std::thread::sleep(pause);
            }
        }
        outcome
    }
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

/// Are these two ways to one directory, which nobody uses?
fn checked([one, other]: [&Path; 2]) -> Result<(), String> {
    let device = |dir: &Path| rustix::fs::stat(dir).map(|found| found.st_dev);
    let failed = |dir: &Path, e: &dyn std::fmt::Display| format!("{}: {e}", dir.display());
    let same = device(one).map_err(|e| failed(one, &e))? == device(other).map_err(|e| failed(other, &e))?;
    if same {
        return Err("--through takes one directory as two mounts show it; these are of one mount".to_owned());
    }
    for dir in [one, other] {
        if std::fs::read_dir(dir).map_err(|e| failed(dir, &e))?.next().is_some() {
            return Err(format!("{} is not empty", dir.display()));
        }
    }
    Ok(())
}
