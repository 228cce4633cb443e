//! `skep tune auto`: what new files of a directory follow, searched by measurement.
//!
//! That is what can be changed while everything runs: daemons read their configuration when they start. Candidates are
//! measured in directories of their own below the one that is tuned, which is not touched until one of them is better
//! beyond doubt.

mod shown;

pub use shown::{CandidateRow, show};

use super::leftovers;
use crate::bench::scratch::own_name;
use crate::bench::{HostsArgs, on_signals};
use clap::{Args, ValueEnum};
use shown::{BYTES, FILES, row, verdict};
use skep_base::access::AccessArgs;
use skep_base::mounted;
use skep_base::namespace::Namespace;
use skep_base::namespace::available;
use skep_base::output::OutputArgs;
use skep_base::units::Size;
use skep_base::{Failure, Outcome};
use skep_bench::engine::{Ends, Silent, run_until};
use skep_bench::job::{IoJob, IoKind, IoPhase, Items, Job, MetaJob, MetaPhase, Readers, Work};
use skep_bench::result::StepResult;
use skep_tune::auto::{Measure, Outcome as Found, Search, Settings, run as search};
use skep_types::limits::{CHUNK_MAX, CHUNK_MIN, INLINE_MAX, TARGETS_MAX};
use skep_types::{Ino, Kind, Policy};
use skep_wire::meta::{Inspect, InspectReply, SetPolicy};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// Most candidates of one search.
const CANDIDATES_MAX: usize = 64;
/// Chunk sizes that are tried when none are named.
const CHUNKS: &str = "512KiB,1MiB,2MiB,4MiB";
/// Limits of files in the metadata that are tried when none are named.
const INLINE: &str = "0B,8KiB";

/// What is said of a search that a signal ended.
const INTERRUPTED: &str =
    "stopped before the end: nothing is kept; what the search made is removed, unless it is named above";

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
    /// Small files: creating and writing them, and another worker opening and reading them
    Small,
}

/// Arguments of `skep tune auto`.
#[derive(Debug, Args)]
pub struct AutoArgs {
    /// A directory on a mount
    pub(super) path: PathBuf,
    /// Search settings of the mount (transport, threads, queue_depth, request_size, io) on mounts of their own
    #[arg(long, conflicts_with_all = ["hosts", "host_file"])]
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
    /// Targets of a file to try, separated by commas; 0: progressive [default: 0, powers of two, all of the pool, 256 at most]
    #[arg(long, value_delimiter = ',', value_name = "N")]
    targets: Vec<u32>,
    /// With --goal small: files of each worker in one measurement
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..))]
    files: u32,
    /// With --goal small: bytes of each file
    #[arg(long, value_name = "SIZE", default_value = "4KiB")]
    file_size: Size,
    /// With --goal small: largest files in the metadata to try, separated by commas
    #[arg(long, value_delimiter = ',', value_name = "SIZE", default_value = INLINE)]
    inline_limits: Vec<Size>,
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
    pub(super) hosts: HostsArgs,
    #[command(flatten)]
    pub(super) access: AccessArgs,
    #[command(flatten)]
    pub(super) output: OutputArgs,
}

impl AutoArgs {
    /// The present policy first, then every other combination.
    fn candidates(&self, present: Policy, available: u32) -> Outcome<Vec<Policy>> {
        let mut all = vec![present];
        let wanted = match self.goal {
            Goal::Small => self.inline_limits(present)?,
            _ => self.stripes(present, available)?,
        };
        for policy in wanted {
            if !all.contains(&policy) {
                all.push(policy);
            }
        }
        match all.len() {
            len if len > CANDIDATES_MAX => Err(Failure::usage(format!(
                "{len} combinations are more than {CANDIDATES_MAX}: name fewer --chunk-sizes or --targets"
            ))),
            1 => Err(Failure::new("there is nothing to try beside the present setting")),
            _ => Ok(all),
        }
    }

    fn stripes(&self, present: Policy, available: u32) -> Outcome<Vec<Policy>> {
        let mut widths = self.targets.clone();
        if widths.is_empty() {
            let most = available.min(TARGETS_MAX as u32);
            let powers = (0..).map(|power| 1u32 << power).take_while(|width| *width < most);
            widths = std::iter::once(0).chain(powers).chain([most]).collect();
        }
        if let Some(wide) = widths.iter().find(|width| **width as usize > TARGETS_MAX) {
            return Err(Failure::usage(format!("--targets {wide}: a file has {TARGETS_MAX} at most")));
        }
        if let Some(wide) = widths.iter().find(|width| **width > available) {
            return Err(Failure::new(format!(
                "--targets {wide}: the pool has {available} that take new files; name fewer"
            )));
        }
        let mut all = Vec::new();
        for size in &self.chunk_sizes {
            let chunk = u32::try_from(size.bytes()).ok();
            let chunk =
                chunk.filter(|chunk| (CHUNK_MIN..=CHUNK_MAX).contains(chunk) && chunk.is_power_of_two());
            let chunk = chunk.ok_or_else(|| {
                Failure::usage(format!(
                    "--chunk-sizes {size}: a power of two from {} on",
                    Size(u64::from(CHUNK_MIN))
                ))
            })?;
            all.extend(widths.iter().map(|targets| Policy {
                chunk_size: chunk,
                targets: *targets,
                ..present
            }));
        }
        Ok(all)
    }

    fn inline_limits(&self, present: Policy) -> Outcome<Vec<Policy>> {
        let limit = |size: &Size| {
            let limit = u32::try_from(size.bytes()).ok().filter(|limit| *limit <= INLINE_MAX);
            let limit = limit.ok_or_else(|| {
                Failure::usage(format!("--inline-limits {size}: {} at most", Size(u64::from(INLINE_MAX))))
            })?;
            Ok(Policy { inline_limit: Some(limit), ..present })
        };
        self.inline_limits.iter().map(limit).collect()
    }

    pub(super) fn unit(&self) -> &'static str {
        if self.goal == Goal::Small { FILES } else { BYTES }
    }

    pub(super) fn job(&self, dir: &Path) -> Outcome<Job> {
        let dir = dir.to_str().ok_or_else(|| Failure::new("the path must be UTF-8"))?;
        let work = match self.goal {
            Goal::Small => Work::Meta(MetaJob {
                items: Items::Total(u64::from(self.files)),
                phases: vec![MetaPhase::Create, MetaPhase::OpenRead, MetaPhase::Remove],
                write_bytes: self.file_size.bytes(),
                read_bytes: self.file_size.bytes(),
                readers: Readers::Shift { workers: 1 },
                ..MetaJob::new(dir)
            }),
            _ => Work::Io(self.stream(dir)),
        };
        let mut job = Job::new(work);
        job.workers.processes = self.workers;
        job.slots = self.hosts.slots().map_err(Failure::new)?;
        job.check().map_err(|e| Failure::usage(e.to_string()))?;
        Ok(job)
    }

    fn stream(&self, dir: &str) -> IoJob {
        IoJob {
            transfer: self.transfer.bytes(),
            block: self.size.bytes(),
            phases: match self.goal {
                Goal::Write => vec![IoPhase::new(IoKind::Write)],
                Goal::Read => vec![IoPhase::new(IoKind::Write).as_setup(), IoPhase::new(IoKind::Read)],
                Goal::Both | Goal::Small => vec![IoPhase::new(IoKind::Write), IoPhase::new(IoKind::Read)],
            },
            invalidate: true,
            readers: Readers::Shift { workers: 1 },
            ..IoJob::new(dir)
        }
    }
}

/// Directories of the candidates, removed when it is over.
pub(super) struct Scratch(PathBuf);

impl Scratch {
    pub(super) fn make(above: &Path, candidates: usize) -> Outcome<Self> {
        leftovers::sweep_directories(above);
        let dir = above.join(own_name(leftovers::DIRECTORY));
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
            let _ = writeln!(std::io::stderr(), "note: {}: {e}; remove it by hand", self.0.display());
        }
    }
}

/// Measures candidates by writing and reading files in their directories, with the processes and hosts of `skep bench`
/// and `skep survey`.
pub(super) struct Loads<'a> {
    pub(super) jobs: Vec<Job>,
    pub(super) hosts: &'a HostsArgs,
    pub(super) ends: Ends<'a>,
    pub(super) done: usize,
    pub(super) most: usize,
    pub(super) began: Instant,
}

impl Measure for Loads<'_> {
    fn measure(&mut self, candidate: usize) -> Result<f64, String> {
        let job = self.jobs.get(candidate).ok_or("there is no such candidate")?;
        let mut crew = self.hosts.crew(job)?;
        let result = run_until(job, crew.as_mut(), &mut Silent, self.ends).map_err(|e| e.to_string())?;
        if self.ends.stop.load(Ordering::Relaxed) {
            return Err(INTERRUPTED.to_owned());
        }
        let (moved, seconds) = moved(&job.work, &result.steps);
        self.done += 1;
        if self.done == 1 {
            let all = self.began.elapsed().as_secs_f64() * self.most as f64;
            // The terminal may be gone: that is no reason to leave what was made.
            let _ = writeln!(std::io::stderr(), "at most {} measurements, about {:.0} s", self.most, all);
        }
        match moved > 0 && seconds > 0.0 {
            true => Ok(moved as f64 / seconds),
            false => Err("a measurement moved nothing".to_owned()),
        }
    }
}

/// Bytes of a stream, or small files that were made and read (removing them costs the same however they are kept), and
/// the time of it.
fn moved(work: &Work, steps: &[StepResult]) -> (u64, f64) {
    let small = matches!(work, Work::Meta(_));
    let counts = |step: &&StepResult| !small || !step.phase.ends_with(MetaPhase::Remove.name());
    let steps = || steps.iter().filter(counts);
    (
        steps().map(|step| if small { step.ops } else { step.bytes }).sum(),
        steps().map(|step| step.seconds).sum(),
    )
}

fn set(namespace: &mut Namespace, ino: Ino, policy: Policy) -> Outcome {
    namespace.ask(ino, &SetPolicy { ino, policy, spread: None })?;
    Ok(())
}

/// Has the directory still the policy that candidates were measured against? A search takes minutes, and what somebody
/// set meanwhile is not ours to overwrite.
fn unchanged(path: &Path, then: (&Policy, bool), now: (&Policy, bool)) -> Outcome {
    match then == now {
        true => Ok(()),
        false => Err(Failure::new(format!(
            "{}: its settings were changed by somebody else during the search; they stay, nothing is kept. Search again",
            path.display()
        ))),
    }
}

/// Gives the directory what was found, unless somebody else was at it.
fn keep_it(namespace: &mut Namespace, path: &Path, ino: Ino, then: &InspectReply, policy: Policy) -> Outcome {
    let now = namespace.ask(ino, &Inspect { ino })?;
    unchanged(path, (&then.policy, then.policy_is_own), (&now.policy, now.policy_is_own))?;
    set(namespace, ino, policy)
}

/// What a search came to; where a signal ended it, that is what is said, whatever it was doing when it ended.
pub(super) fn unless_stopped<T>(outcome: Outcome<T>, stop: &AtomicBool) -> Outcome<T> {
    match outcome {
        Err(_) if stop.load(Ordering::Relaxed) => Err(Failure::interrupted(INTERRUPTED)),
        outcome => outcome,
    }
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

/// Measures the candidates in directories of their own, which are gone afterwards.
fn searched(
    args: &AutoArgs,
    namespace: &mut Namespace,
    path: &Path,
    candidates: &[Policy],
    ends: Ends<'_>,
) -> Outcome<(Found, Option<usize>)> {
    let scratch = Scratch::make(path, candidates.len())?;
    let mut jobs = Vec::new();
    for (candidate, policy) in candidates.iter().enumerate() {
        let dir = scratch.of(candidate);
        let ino = namespace.resolve(&dir)?;
        set(namespace, ino, *policy)?;
        jobs.push(args.job(&dir)?);
    }
    let mut rule = Search::new(candidates.len() - 1, settings(args));
    let most = rule.most();
    let mut loads = Loads { jobs, hosts: &args.hosts, ends, done: 0, most, began: Instant::now() };
    decided(&mut rule, &mut loads, args.dry_run)
}

pub fn run(args: &AutoArgs, out: &mut dyn Write) -> Outcome {
    leftovers::sweep_temporary(&std::env::temp_dir());
    if args.mount_options {
        return super::mount_options::run(args, out);
    }
    // Workers, on whichever host, have no idea of this process's directory.
    let path = mounted::real(&args.path, args.access.timeout.duration())?;
    let mut namespace = Namespace::connect(&args.access, &path)?;
    let ino = namespace.resolve(&path)?;
    let now = namespace.ask(ino, &Inspect { ino })?;
    if now.attr.kind != Kind::Dir {
        return Err(Failure::new(format!("{}: not a directory; name one", path.display())));
    }
    let candidates = args.candidates(now.policy, available(&namespace.status, now.policy.pool))?;
    let ends = on_signals()?;
    let searched = searched(args, &mut namespace, &path, &candidates, ends);
    let (found, keep) = unless_stopped(searched, ends.stop)?;
    let better = keep.and_then(|keep| candidates.get(keep));
    let kept = better.map_or(Ok(()), |policy| keep_it(&mut namespace, &path, ino, &now, *policy));
    // What was measured is shown all the same.
    let keep = keep.filter(|_| kept.is_ok());
    let rows: Vec<CandidateRow> =
        (0..candidates.len()).map(|at| row(at, args.unit(), &candidates[at], &found, keep)).collect();
    show(args.output.output, &rows, out)?;
    kept?;
    eprintln!("{}", verdict(&path, args.dry_run, &now.policy, now.policy_is_own, &candidates, &found));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::shown::back;
    use super::*;
    use skep_types::PoolId;

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
            let rows: Vec<_> = (0..truth.len()).map(|at| row(at, BYTES, &policy(at), &found, keep)).collect();
            let kept: Vec<usize> = (0..rows.len()).filter(|at| rows[*at].kept).collect();
            assert_eq!(kept, Vec::from_iter(right));
            let shown: Vec<_> = rows.iter().filter_map(|row| row.ratio).collect();
            let best = truth[1..].iter().copied().fold(0.0, f64::max) / truth[0];
            assert!(shown.len() == 1 && (shown[0] - best).abs() < 1e-3, "{shown:?}");
        }
    }

    /// Goal: a search that a signal ended has the exit code and the words of that, whatever error it ended with; what fails
    /// by itself, and what was found before, stays.
    #[test]
    fn what_a_signal_ended() {
        let stop = AtomicBool::new(false);
        let failed = || Err::<(), _>(Failure::new("the cluster cannot be mounted"));
        assert!(unless_stopped(failed(), &stop).unwrap_err().to_string().contains("mounted"));
        stop.store(true, Ordering::Relaxed);
        let failure = unless_stopped(failed(), &stop).unwrap_err();
        assert_eq!(
            (failure.to_string().as_str(), failure.exit_code()),
            (INTERRUPTED, Failure::interrupted("").exit_code())
        );
        assert!(unless_stopped(Ok(()), &stop).is_ok());
    }

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: AutoArgs,
    }

    fn args(words: &[&str]) -> AutoArgs {
        use clap::Parser;
        Line::try_parse_from([&["auto", "dir"], words].concat()).unwrap().args
    }

    /// Goal: each goal searches what it depends on, the present setting first and once, and the answer says how to go
    /// back, whatever was left to the cluster.
    #[test]
    fn what_is_searched() {
        let present = Policy { inline_limit: Some(8 << 10), ..Policy::default() };
        let small = args(&["--goal", "small"]).candidates(present, 4).unwrap();
        assert_eq!(small, [present, Policy { inline_limit: Some(0), ..present }]);
        let both = args(&["--chunk-sizes", "1MiB"]).candidates(present, 4).unwrap();
        assert_eq!(both[1..].iter().map(|one| one.targets).collect::<Vec<_>>(), [0, 1, 2, 4]);
        assert!(both.iter().all(|one| one.inline_limit == present.inline_limit));
        assert!(args(&["--goal", "small", "--inline-limits", "1MiB"]).candidates(present, 4).is_err());
        let job = args(&["--goal", "small", "--files", "7"]).job(Path::new("/x")).unwrap();
        assert!(
            matches!(job.work, Work::Meta(meta) if meta.items == Items::Total(7) && meta.write_bytes == 4096)
        );
        let path = Path::new("/m/d");
        assert_eq!(back(&present, false, path), "skep entry set --default /m/d");
        assert_eq!(
            back(&Policy { pool: PoolId(2), ..present }, true, path),
            "skep entry set --default /m/d && skep entry set --targets progressive --inline-limit 8KiB --pool 2 /m/d"
        );
        let whole = Policy { chunk_size: 1 << 20, targets: 2, ..present };
        assert_eq!(
            back(&whole, true, path),
            "skep entry set --chunk-size 1MiB --targets 2 --inline-limit 8KiB /m/d"
        );
    }

    /// Goal: the largest pool is searched up to the widest file there can be; what was named in excess is told apart.
    #[test]
    fn pools_of_any_size() {
        let present = Policy::default();
        let widths = |available: u32| {
            let all = args(&["--chunk-sizes", "1MiB"]).candidates(present, available).unwrap();
            all[1..].iter().map(|one| one.targets).collect::<Vec<_>>()
        };
        assert_eq!(widths(3), [0, 1, 2, 3]);
        let wide = [0, 1, 2, 4, 8, 16, 32, 64, 128, 256];
        for available in [256, 257, 5000] {
            assert_eq!(widths(available), wide);
        }
        let refused = |targets: &str, available: u32| {
            args(&["--targets", targets]).candidates(present, available).unwrap_err().to_string()
        };
        assert!(refused("300", 5000).contains("256 at most"));
        assert!(refused("8", 4).contains("the pool has 4"));
    }

    /// Goal: what somebody set during the search, on the directory or above it, is not overwritten.
    #[test]
    fn a_policy_that_was_set_meanwhile() {
        let path = Path::new("/m/d");
        let then = Policy { chunk_size: 1 << 20, ..Policy::default() };
        unchanged(path, (&then, true), (&then, true)).unwrap();
        let other = Policy { targets: 4, ..then };
        for now in [(&other, true), (&then, false)] {
            let error = unchanged(path, (&then, true), now).unwrap_err().to_string();
            assert!(error.contains("/m/d") && error.contains("somebody else"), "{error}");
        }
    }
}
