//! `skep tune auto`: chunk size and targets of a directory, searched by measurement.
//!
//! These are what can be changed while everything runs. Candidates are measured in directories of their own
//! below the one that is tuned, which is not touched until one of them is better beyond doubt.

use crate::admin::access::AccessArgs;
use crate::admin::namespace::Namespace;
use crate::admin::{Failure, Outcome};
use crate::cli::output::{self, OutputArgs, Row, human};
use crate::units::Size;
use clap::{Args, ValueEnum};
use serde::Serialize;
use skep_bench::engine::{LocalCrew, Silent, run as run_job};
use skep_bench::job::{IoJob, IoKind, IoPhase, Job, Readers, Work};
use skep_tune::auto::{Measure, Outcome as Found, Search, Settings, run as search};
use skep_types::limits::{CHUNK_MAX, CHUNK_MIN, TARGETS_MAX};
use skep_types::{Consistency, Ino, Kind, Policy, PoolId};
use skep_wire::meta::{Inspect, SetPolicy};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// Most candidates of one search.
const CANDIDATES_MAX: usize = 64;
/// Chunk sizes that are tried when none are named.
const CHUNKS: &str = "512KiB,1MiB,2MiB,4MiB";

/// What shall be fast.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum Goal {
    /// Writing
    Write,
    /// Reading
    Read,
    /// Both: writing everything, and another worker reading it
    #[default]
    Both,
}

/// Arguments of `skep tune auto`.
#[derive(Debug, Args)]
pub struct AutoArgs {
    /// A directory on a mount
    pub(super) path: PathBuf,
    /// Search settings of the mount (transport, threads, queue_depth, request_size, io) on mounts of their own
    #[arg(long)]
    mount_options: bool,
    /// With --mount-options: the configuration file of the mount [default: that of skep up, or the installed one]
    #[arg(long, value_name = "FILE", requires = "mount_options")]
    pub(super) config: Option<PathBuf>,
    /// With --mount-options: do not ask before the file is changed
    #[arg(long, short = 'y', requires = "mount_options")]
    pub(super) yes: bool,
    /// With --mount-options: where the configuration and the undo file are
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub(super) root: PathBuf,
    /// What shall be fast
    #[arg(long, value_enum, default_value_t)]
    goal: Goal,
    /// Workers that write and read at once, a file each
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=1024))]
    workers: u32,
    /// Bytes of each worker in one measurement
    #[arg(long, value_name = "SIZE", default_value = "64MiB")]
    size: Size,
    /// Bytes of one read or write
    #[arg(long, value_name = "SIZE", default_value = "1MiB")]
    transfer: Size,
    /// Chunk sizes to try, separated by commas
    #[arg(long, value_delimiter = ',', value_name = "SIZE", default_value = CHUNKS)]
    chunk_sizes: Vec<Size>,
    /// Targets of a file to try, separated by commas; 0: progressive [default: 0, powers of two, all of the pool]
    #[arg(long, value_delimiter = ',', value_name = "N")]
    targets: Vec<u32>,
    /// Pairs of measurements that decide in the end
    #[arg(long, value_name = "N", default_value_t = Settings::default().pairs as u32, value_parser = clap::value_parser!(u32).range(7..=24))]
    pairs: u32,
    /// Per cent that must be gained
    #[arg(long, value_name = "PERCENT", default_value_t = 3)]
    gain: u32,
    /// Only measure; keep nothing
    #[arg(long, short = 'n')]
    pub(super) dry_run: bool,
    #[command(flatten)]
    pub(super) access: AccessArgs,
    #[command(flatten)]
    pub(super) output: OutputArgs,
}

/// One setting that was tried.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CandidateRow {
    /// Absent: the cluster's default.
    chunk_size: Option<u32>,
    /// Absent: progressive.
    targets: Option<u32>,
    /// Settings of a mount; absent: those of a directory are searched.
    mount_options: Option<String>,
    /// The one that the directory had.
    present: bool,
    /// Best of the first part, bytes per second, and that of the present setting in the same round; absent for the
    /// present setting.
    best: Option<f64>,
    present_best: Option<f64>,
    /// Of the one that was measured against the present setting in pairs: median of the ratio.
    ratio: Option<f64>,
    /// Probability of such a gain if both were alike.
    p: Option<f64>,
    /// The directory has it now.
    kept: bool,
}

impl Row for CandidateRow {
    const TITLES: &'static [&'static str] = &["SETTING", ">RATE", ">PRESENT", ">RATIO", ">P", "RESULT"];

    fn cells(&self) -> Vec<String> {
        let rate =
            |rate: Option<f64>| rate.map_or("-".to_owned(), |rate| format!("{}/s", human(rate as u64)));
        let number = |number: Option<f64>, digits| number.map_or("-".to_owned(), |n| format!("{n:.digits$}"));
        let result = match (self.present, self.kept, self.ratio) {
            (true, ..) => "present setting",
            (_, true, _) => "kept",
            (_, _, Some(_)) => "measured in pairs, not kept",
            _ => "",
        };
        let chunk = self.chunk_size.map_or("default".to_owned(), |size| human(u64::from(size)));
        let targets = self.targets.map_or("progressive".to_owned(), |targets| targets.to_string());
        vec![
            self.mount_options.clone().unwrap_or(format!("chunk {chunk}, targets {targets}")),
            rate(self.best),
            rate(self.present_best),
            number(self.ratio, 3),
            number(self.p, 4),
            result.to_owned(),
        ]
    }
}

impl AutoArgs {
    /// The present policy first, then every other combination.
    fn candidates(&self, present: Policy, available: u32) -> Outcome<Vec<Policy>> {
        let mut widths = self.targets.clone();
        if widths.is_empty() {
            let powers = (0..).map(|power| 1u32 << power).take_while(|width| *width < available);
            widths = std::iter::once(0).chain(powers).chain([available]).collect();
        }
        if let Some(wide) = widths.iter().find(|width| **width as usize > TARGETS_MAX || **width > available)
        {
            return Err(Failure::new(format!(
                "--targets {wide}: the pool has {available} that take new files"
            )));
        }
        let mut all = vec![present];
        for size in &self.chunk_sizes {
            let chunk = u32::try_from(size.bytes()).ok();
            let chunk =
                chunk.filter(|chunk| (CHUNK_MIN..=CHUNK_MAX).contains(chunk) && chunk.is_power_of_two());
            let chunk = chunk.ok_or_else(|| {
                Failure::new(format!(
                    "--chunk-sizes {size}: a power of two from {} on",
                    Size(u64::from(CHUNK_MIN))
                ))
            })?;
            for targets in &widths {
                let policy = Policy { chunk_size: chunk, targets: *targets, ..present };
                if !all.contains(&policy) {
                    all.push(policy);
                }
            }
        }
        match all.len() {
            len if len > CANDIDATES_MAX => Err(Failure::new(format!(
                "{len} combinations are more than {CANDIDATES_MAX}: name fewer --chunk-sizes or --targets"
            ))),
            1 => Err(Failure::new("there is nothing to try beside the present setting")),
            _ => Ok(all),
        }
    }

    pub(super) fn job(&self, dir: &Path) -> Outcome<Job> {
        let dir = dir.to_str().ok_or_else(|| Failure::new("the path must be UTF-8"))?;
        let mut job = Job::new(Work::Io(IoJob {
            transfer: self.transfer.bytes(),
            block: self.size.bytes(),
            phases: match self.goal {
                Goal::Write => vec![IoPhase::new(IoKind::Write)],
                Goal::Read => vec![IoPhase::new(IoKind::Write).as_setup(), IoPhase::new(IoKind::Read)],
                Goal::Both => vec![IoPhase::new(IoKind::Write), IoPhase::new(IoKind::Read)],
            },
            invalidate: true,
            readers: Readers::Shift { workers: 1 },
            ..IoJob::new(dir)
        }));
        job.workers.processes = self.workers;
        Ok(job)
    }
}

/// Directories of the candidates, removed when it is over.
pub(super) struct Scratch(PathBuf);

impl Scratch {
    pub(super) fn make(above: &Path, candidates: usize) -> Outcome<Self> {
        let dir = above.join(format!(".skep-tune-{}", std::process::id()));
        let named = |e: std::io::Error| Failure::local(dir.display(), e);
        std::fs::create_dir(&dir).map_err(named)?;
        let scratch = Self(dir.clone());
        for candidate in 0..candidates {
            std::fs::create_dir(scratch.of(candidate)).map_err(named)?;
        }
        Ok(scratch)
    }

    pub(super) fn of(&self, candidate: usize) -> PathBuf {
        self.0.join(format!("candidate-{candidate}"))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(e) = std::fs::remove_dir_all(&self.0) {
            eprintln!("note: {}: {e}; remove it by hand", self.0.display());
        }
    }
}

/// Measures candidates by writing and reading files in their directories.
pub(super) struct Loads<'a> {
    pub(super) jobs: Vec<Job>,
    pub(super) stop: &'a AtomicBool,
    pub(super) done: usize,
    pub(super) most: usize,
    pub(super) began: Instant,
}

impl Measure for Loads<'_> {
    fn measure(&mut self, candidate: usize) -> Result<f64, String> {
        let job = self.jobs.get(candidate).ok_or("there is no such candidate")?;
        let mut crew = LocalCrew::in_process(job.workers.processes, "here").map_err(|e| e.to_string())?;
        let result = run_job(job, &mut crew, &mut Silent, self.stop).map_err(|e| e.to_string())?;
        if self.stop.load(Ordering::Relaxed) {
            return Err("interrupted; the directory is as it was".to_owned());
        }
        let bytes: u64 = result.steps.iter().map(|step| step.bytes).sum();
        let seconds: f64 = result.steps.iter().map(|step| step.seconds).sum();
        self.done += 1;
        if self.done == 1 {
            let all = self.began.elapsed().as_secs_f64() * self.most as f64;
            eprintln!("at most {} measurements, about {:.0} s", self.most, all);
        }
        match bytes > 0 && seconds > 0.0 {
            true => Ok(bytes as f64 / seconds),
            false => Err("a measurement moved nothing".to_owned()),
        }
    }
}

/// Targets of a pool that take new files.
fn available(namespace: &Namespace, pool: PoolId) -> u32 {
    let pool = if pool == PoolId(0) { PoolId(1) } else { pool };
    let good = |target: &&skep_wire::mgmt::TargetEntry| {
        target.pool == pool && target.consistency == Consistency::Good
    };
    namespace.status.targets.iter().filter(good).count() as u32
}

fn set(namespace: &mut Namespace, path: &Path, policy: Policy) -> Outcome<Ino> {
    let ino = namespace.resolve(path)?;
    namespace.ask(ino, &SetPolicy { ino, policy })?;
    Ok(ino)
}

/// Raised by an interrupt.
pub(super) fn stop_flag() -> Outcome<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, stop.clone()).map_err(|e| Failure::local("signals", e))?;
    }
    Ok(stop)
}

/// How hard it is looked.
pub(super) fn settings(args: &AutoArgs) -> Settings {
    Settings { pairs: args.pairs as usize, gain: f64::from(args.gain) / 100.0, ..Settings::default() }
}

/// Runs the search; says what it found, and which candidate is to be kept.
pub(super) fn decided(
    rule: &mut Search,
    measure: &mut dyn Measure,
    dry_run: bool,
) -> Outcome<(Found, Option<usize>)> {
    // The first measurement warms up, and tells how long it will take.
    measure.measure(0).map_err(Failure::new)?;
    let found = search(rule, measure).map_err(Failure::new)?;
    let keep = found.keep.filter(|_| !dry_run);
    Ok((found, keep))
}

/// Does it.
pub fn run(args: &AutoArgs, out: &mut dyn Write) -> Outcome {
    if args.mount_options {
        return super::mount_options::run(args, out);
    }
    let mut namespace = Namespace::connect(&args.access, &args.path)?;
    let ino = namespace.resolve(&args.path)?;
    let now = namespace.ask(ino, &Inspect { ino })?;
    if now.attr.kind != Kind::Dir {
        return Err(Failure::new(format!("{}: not a directory; name one", args.path.display())));
    }
    let candidates = args.candidates(now.policy, available(&namespace, now.policy.pool))?;
    let stop = stop_flag()?;
    let scratch = Scratch::make(&args.path, candidates.len())?;
    let mut jobs = Vec::new();
    for (candidate, policy) in candidates.iter().enumerate() {
        let dir = scratch.of(candidate);
        set(&mut namespace, &dir, *policy)?;
        jobs.push(args.job(&dir)?);
    }
    let mut rule = Search::new(candidates.len() - 1, settings(args));
    let mut loads = Loads { jobs, stop: &stop, done: 0, most: rule.most(), began: Instant::now() };
    let (found, keep) = decided(&mut rule, &mut loads, args.dry_run)?;
    drop(scratch);
    if let Some(policy) = keep.and_then(|keep| candidates.get(keep)) {
        set(&mut namespace, &args.path, *policy)?;
    }
    let rows: Vec<CandidateRow> =
        (0..candidates.len()).map(|at| row(at, &candidates[at], &found, keep)).collect();
    output::rows(args.output.output, &rows, out)?;
    eprintln!("{}", verdict(args, &now.policy, now.policy_is_own, &candidates, &found));
    Ok(())
}

fn row(at: usize, policy: &Policy, found: &Found, keep: Option<usize>) -> CandidateRow {
    let given = |value: u32| (value != 0).then_some(value);
    let base = CandidateRow::of(at, found, keep);
    CandidateRow { chunk_size: given(policy.chunk_size), targets: given(policy.targets), ..base }
}

impl CandidateRow {
    /// What was found of a candidate, without its settings.
    fn of(at: usize, found: &Found, keep: Option<usize>) -> Self {
        let rates = found.best.get(at).filter(|(rate, _)| *rate > 0.0);
        let decision = found.decision.filter(|_| found.finalist == Some(at));
        Self {
            chunk_size: None,
            targets: None,
            mount_options: None,
            present: at == 0,
            best: rates.map(|(rate, _)| *rate),
            present_best: rates.map(|(_, present)| *present),
            ratio: decision.map(|decision| decision.ratio),
            p: decision.map(|decision| decision.p),
            kept: keep == Some(at),
        }
    }

    /// Of a candidate for a mount.
    pub(super) fn of_mount(at: usize, words: String, found: &Found, keep: Option<usize>) -> Self {
        Self { mount_options: Some(words), ..Self::of(at, found, keep) }
    }
}

/// Words of a policy as `skep entry set` takes them.
fn words(policy: &Policy) -> String {
    let chunk = match policy.chunk_size {
        0 => String::new(),
        size => format!("--chunk-size {} ", Size(u64::from(size))),
    };
    let targets = if policy.targets == 0 { "progressive".to_owned() } else { policy.targets.to_string() };
    format!("{chunk}--targets {targets}")
}

fn verdict(args: &AutoArgs, before: &Policy, own: bool, candidates: &[Policy], found: &Found) -> String {
    let path = args.path.display();
    let Some((decision, best)) = found.decision.zip(found.finalist.and_then(|at| candidates.get(at))) else {
        return format!("{path}: nothing was tried; it stays as it is");
    };
    let per_cent = (decision.ratio - 1.0) * 100.0;
    let said = format!("{per_cent:+.1} % in {} pairs, p = {:.4}", found.pairs.len(), decision.p);
    match (decision.better, args.dry_run) {
        (true, false) => {
            let back = if own { words(before) } else { "--default".to_owned() };
            format!(
                "{path}: new files get {} ({said}); files that are there keep theirs. Back: skep entry set {back} {path}",
                words(best)
            )
        }
        (true, true) => {
            format!("{path}: {} would be better ({said}): skep entry set {} {path}", words(best), words(best))
        }
        (false, _) => format!(
            "{path}: stays as it is; the best other one, {}, is not clearly better ({said})",
            words(best)
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Candidates whose true worth is known, without noise but for the last digit.
    struct Rigged(Vec<f64>, usize);

    impl Measure for Rigged {
        fn measure(&mut self, candidate: usize) -> Result<f64, String> {
            self.1 += 1;
            Ok(self.0[candidate] + (self.1 % 3) as f64 * 1e-3)
        }
    }

    /// Goal: where the right answer is known it is the answer: the better one is kept and shown as kept, with its own
    /// ratio; none is kept when none is better, or nobody asked to keep one.
    #[test]
    fn the_right_answer() {
        for (truth, dry_run, right) in [
            (vec![100.0, 100.0, 130.0, 90.0], false, Some(2)),
            (vec![100.0, 100.0, 130.0, 90.0], true, None),
            (vec![100.0, 100.0, 101.0, 90.0], false, None),
            (vec![100.0, 60.0, 70.0, 90.0], false, None),
            (vec![100.0, 110.0], false, Some(1)),
        ] {
            let mut rule = Search::new(truth.len() - 1, Settings::default());
            let (found, keep) = decided(&mut rule, &mut Rigged(truth.clone(), 0), dry_run).unwrap();
            assert_eq!(keep, right, "{truth:?} {dry_run}");
            let policy =
                |at: usize| Policy { chunk_size: 1 << 20, targets: at as u32 + 1, ..Policy::default() };
            let rows: Vec<_> = (0..truth.len()).map(|at| row(at, &policy(at), &found, keep)).collect();
            let kept: Vec<usize> = (0..rows.len()).filter(|at| rows[*at].kept).collect();
            assert_eq!(kept, Vec::from_iter(right));
            let shown: Vec<_> = rows.iter().filter_map(|row| row.ratio).collect();
            let best = truth[1..].iter().copied().fold(0.0, f64::max) / truth[0];
            assert!(shown.len() == 1 && (shown[0] - best).abs() < 1e-3, "{shown:?}");
        }
    }
}
