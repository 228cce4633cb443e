//! What all load generators share: workers, repetitions, ends; and doing a job.

use super::coordinator::HostsArgs;
use super::output::{Live, ShowArgs, show};
use clap::Args;
use skep_base::asking::{self, SIGHUP, SIGINT, SIGTERM};
use skep_base::units::{Period, Size};
use skep_base::{EXIT_INTERRUPTED, Failure, Outcome};
use skep_bench::engine::{Crew, Ends, TAKEN, run_until};
use skep_bench::job::{Job, Placement, Readers, Stonewall, Work, Workers, parse_size};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// How a load is done, whatever it is.
#[derive(Debug, Clone, Args)]
pub struct LoadArgs {
    /// Worker processes, on all hosts together
    #[arg(long, short = 'p', default_value_t = 1, value_name = "N")]
    pub processes: u32,
    /// Threads of each process
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub threads: u32,
    /// Where there are several hosts: round robin, or one host after the other
    #[arg(long, default_value = "by-node", value_name = "by-node|by-slot", value_parser = placement)]
    pub placement: Placement,
    /// How often everything is done
    #[arg(long, short = 'i', default_value_t = 1, value_name = "N")]
    pub repetitions: u32,
    /// Pause between repetitions
    #[arg(long, value_name = "TIME")]
    pub delay: Option<Period>,
    /// Orders, contents and trees follow from it
    #[arg(long, default_value_t = 0, value_name = "NUMBER")]
    pub seed: u64,
    /// End each phase after this time (of `bench files`: training)
    #[arg(long, value_name = "TIME", value_parser = wall)]
    pub stonewall: Option<Period>,
    /// After that time all go on until each has done as much as the fastest had
    #[arg(long, requires = "stonewall", conflicts_with = "repeat")]
    pub wear_out: bool,
    /// Start over when done before that time (contents only)
    #[arg(long, requires = "stonewall")]
    pub repeat: bool,
    /// Leave what was made
    #[arg(long)]
    pub keep: bool,
    /// Use what an earlier run with --keep has left
    #[arg(long)]
    pub existing: bool,
    /// Show the job as JSON and do nothing
    #[arg(long)]
    pub print_job: bool,
    /// Where workers run.
    #[command(flatten)]
    pub hosts: HostsArgs,
    /// How to show it.
    #[command(flatten)]
    pub show: ShowArgs,
}

impl LoadArgs {
    /// The job these arguments make of a load.
    pub fn job(&self, work: Work) -> Job {
        Job {
            workers: Workers { processes: self.processes, threads: self.threads, placement: self.placement },
            repetitions: self.repetitions,
            delay_ms: self.delay.map_or(0, |delay| delay.0.as_millis() as u64),
            seed: self.seed,
            keep: self.keep,
            existing: self.existing,
            slots: Vec::new(),
            stonewall: self.stonewall.map(|after| Stonewall {
                after_ms: (after.0.as_millis() as u64).max(1),
                wear_out: self.wear_out,
                repeat: self.repeat,
            }),
            work,
        }
    }

    /// Does the load, on this machine or where agents run, and shows the result.
    pub fn perform(&self, work: Work, out: &mut dyn Write) -> Outcome {
        let mut job = self.job(work);
        job.slots = self.hosts.slots().map_err(Failure::new)?;
        job.check().map_err(|error| Failure::usage(error.to_string()))?;
        others_data(&job)?;
        if self.print_job {
            let text = serde_json::to_string_pretty(&job).map_err(|error| Failure::new(error.to_string()))?;
            return writeln!(out, "{text}").map_err(|error| Failure::new(error.to_string()));
        }
        let mut crew = self.hosts.crew(&job).map_err(Failure::new)?;
        let other = match &job.work {
            Work::Io(io) if io.listed => "name another file, or have it used by --existing",
            _ => "name another by --name, or have it used by --existing",
        };
        perform(&job, crew.as_mut(), &self.show, out).map_err(|failure| advised(failure, other))
    }
}

/// A time after which a phase ends: at once is none.
fn wall(text: &str) -> Result<Period, String> {
    let time = Period::from_str(text).map_err(|error| error.to_string())?;
    if time.0.is_zero() {
        return Err(
            "a phase that ends before it begins measures nothing: name a time, or leave --stonewall out \
                    for phases that end when all is done"
                .to_owned(),
        );
    }
    Ok(time)
}

/// A shift that leads each of several workers back to itself was meant otherwise. (A lone worker has no others: scripts
/// go through numbers of processes, and the result says it.)
fn others_data(job: &Job) -> Outcome {
    let readers = match &job.work {
        Work::Io(io) => io.readers,
        Work::Meta(meta) => meta.readers,
        Work::Files(_) => return Ok(()),
    };
    let workers = job.workers.count();
    match readers {
        Readers::Shift { workers: by } if workers > 1 && by.is_multiple_of(workers) => {
            Err(Failure::usage(format!(
                "--readers shift:{by}: {by} further of {workers} workers is everybody itself again; name a distance that \
             {workers} does not divide (shift:1 is the next one's data), or own"
            )))
        }
        _ => Ok(()),
    }
}

/// Where a name is taken: adds which options of the command help.
pub fn advised(failure: Failure, other: &str) -> Failure {
    let text = failure.to_string();
    if !text.contains(TAKEN) {
        return failure;
    }
    Failure::new(text.replace(TAKEN, &format!("{TAKEN}, {other}")))
}

/// What signals ask for: the first ends the run, the second the cleaning up, the third the process.
#[derive(Debug, Default, Clone)]
struct Signals {
    stop: Arc<AtomicBool>,
    leave: Arc<AtomicBool>,
    /// There is nothing to put in order: the next one ends the process.
    bare: Arc<AtomicBool>,
}

impl Signals {
    fn listen() -> std::io::Result<Self> {
        let signals = Self::default();
        let told = signals.clone();
        asking::on_each(&[SIGINT, SIGTERM, SIGHUP], move |number| match number {
            _ if told.bare.load(Ordering::SeqCst) => std::process::exit(EXIT_INTERRUPTED.into()),
            1 => told.stop.store(true, Ordering::SeqCst),
            2 => told.leave.store(true, Ordering::SeqCst),
            _ => std::process::exit(EXIT_INTERRUPTED.into()),
        })?;
        Ok(signals)
    }
}

/// Once for all jobs of a command line.
static SIGNALS: OnceLock<Result<Signals, String>> = OnceLock::new();

/// From now on signals end a run: the first what it does, the second its cleaning up, the third the process.
pub fn on_signals() -> Outcome<Ends<'static>> {
    let signals = SIGNALS.get_or_init(|| Signals::listen().map_err(|error| error.to_string()));
    let signals = signals.as_ref();
    let signals = signals.map_err(|error| Failure::new(format!("cannot listen to signals: {error}")))?;
    Ok(Ends { stop: &signals.stop, leave: &signals.leave })
}

/// Does what leaves nothing to put in order, like asking a person: meanwhile the first signal ends the process.
pub fn bare<T>(ask: impl FnOnce() -> T) -> T {
    let signals = SIGNALS.get().and_then(|signals| signals.as_ref().ok());
    let set = |now| signals.inspect(|signals| signals.bare.store(now, Ordering::SeqCst));
    set(true);
    let answer = ask();
    set(false);
    answer
}

/// A second signal has come: nothing more is waited for.
pub fn leaves() -> bool {
    let signals = SIGNALS.get().and_then(|signals| signals.as_ref().ok());
    signals.is_some_and(|signals| signals.leave.load(Ordering::Relaxed))
}

/// Does a job with a crew and shows the result. An interrupt ends it: what was made is removed, what was
/// measured until then is shown. A second one does not wait for that, and what is left is named.
pub fn perform(job: &Job, crew: &mut dyn Crew, args: &ShowArgs, out: &mut dyn Write) -> Outcome {
    let ends = on_signals()?;
    let mut live = Live::new(args);
    let outcome = run_until(job, crew, &mut live, ends);
    live.clear();
    let written = |error: std::io::Error| Failure::new(format!("cannot write the result: {error}"));
    match outcome {
        Ok(result) => show(result, args, out).map_err(written),
        Err(error) => {
            let failure = match error.stopped {
                true => Failure::interrupted(error.to_string()),
                false => Failure::new(error.to_string()),
            };
            if !error.so_far.steps.is_empty() {
                show(*error.so_far, args, out).map_err(written)?;
            }
            Err(failure)
        }
    }
}

/// A size: `4k`, `1m` (powers of two), or with the units of the rest of this program: `1MiB`, `1MB`.
pub fn size(text: &str) -> Result<u64, String> {
    match Size::from_str(text) {
        Ok(size) => Ok(size.0),
        Err(_) => parse_size(text).map_err(|error| error.to_string()),
    }
}

fn placement(text: &str) -> Result<Placement, String> {
    match text {
        "by-node" => Ok(Placement::ByNode),
        "by-slot" => Ok(Placement::BySlot),
        _ => Err("write by-node or by-slot".to_owned()),
    }
}

/// `own`, `shift:N`, `node:N`, `random`, `random:SEED`.
pub fn readers(text: &str) -> Result<Readers, String> {
    let (kind, number) = text.split_once(':').unwrap_or((text, ""));
    let wrong = || "write own, shift:N (workers), node:N (hosts), random or random:SEED".to_owned();
    match (kind, number) {
        ("own", "") => Ok(Readers::Own),
        ("random", "") => Ok(Readers::Random { seed: 1 }),
        ("random", seed) => seed.parse().map(|seed| Readers::Random { seed }).map_err(|_| wrong()),
        ("shift", by) => by.parse().map(|workers| Readers::Shift { workers }).map_err(|_| wrong()),
        ("node", by) => by.parse().map(|nodes| Readers::ShiftNode { nodes }).map_err(|_| wrong()),
        _ => Err(wrong()),
    }
}

/// Paths from the root, as workers need them.
pub fn absolute(paths: &[PathBuf]) -> Result<Vec<String>, Failure> {
    let whole = |path: &Path| std::path::absolute(path).ok()?.to_str().map(str::to_owned);
    let all = paths.iter().map(|path| {
        let name = path.display();
        whole(path)
            .ok_or_else(|| Failure::new(format!("{name}: cannot use this path; give one of plain text")))
    });
    all.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use skep_bench::job::IoJob;

    /// Goal: a phase of no time is refused with what to do, and so is a shift that leads everybody of several back to
    /// itself; a lone worker, and a shift that leads elsewhere, are not.
    #[test]
    fn what_measures_nothing() {
        for text in ["0s", "0ms", "0"] {
            assert!(wall(text).unwrap_err().contains("leave --stonewall out"), "{text}");
        }
        assert_eq!(wall("2s"), Ok(Period::secs(2)));
        assert!(wall("2").unwrap_err().contains("unit of time"));
        let refused = |processes: u32, by: u32| {
            let io = IoJob { readers: Readers::Shift { workers: by }, ..IoJob::new("/tmp") };
            let mut job = Job::new(Work::Io(io));
            job.workers.processes = processes;
            others_data(&job).err().map(|failure| failure.to_string())
        };
        assert!(refused(2, 2).unwrap().contains("2 further of 2 workers is everybody itself again"));
        assert!(refused(3, 9).is_some() && refused(4, 0).is_some());
        assert_eq!([refused(2, 1), refused(2, 9), refused(1, 1), refused(4, 2)], [None, None, None, None]);
    }

    /// Goal: where a name is taken, the words are those of the command; other failures stay as they are.
    #[test]
    fn words_of_the_command() {
        let text = format!("checking the places: make /d/f: {TAKEN}; left behind: /d/g");
        let failure = advised(Failure::new(text), "name another by --name").to_string();
        assert!(failure.ends_with("; remove it, name another by --name; left behind: /d/g"), "{failure}");
        let other = advised(Failure::usage("no such thing"), "name another by --name");
        assert_eq!(
            (other.to_string().as_str(), other.exit_code()),
            ("no such thing", std::process::ExitCode::from(2))
        );
    }

    /// Goal: sizes and readers are understood in every spelling the help names, and nonsense is refused.
    #[test]
    fn words() {
        assert_eq!((size("4k"), size("1MiB"), size("47008")), (Ok(4096), Ok(1 << 20), Ok(47_008)));
        assert!(size("many").is_err());
        assert_eq!(readers("shift:3"), Ok(Readers::Shift { workers: 3 }));
        assert_eq!(readers("node:1"), Ok(Readers::ShiftNode { nodes: 1 }));
        assert_eq!(readers("random:9"), Ok(Readers::Random { seed: 9 }));
        assert_eq!(readers("own"), Ok(Readers::Own));
        for text in ["shift", "shift:x", "other", "own:1"] {
            assert!(readers(text).is_err(), "{text}");
        }
    }
}
