//! `skep bench storage`: the storage daemons read and write their own targets, without network.

mod shown;

pub use shown::StorageReport;

use super::report::ReportArgs;
use crate::admin::access::{AccessArgs, Cluster};
use crate::admin::{Failure, Outcome, find};
use crate::cli::output::human;
use crate::daemon::Stop;
use crate::instruments::client;
use crate::instruments::question::{
    Direction, Findings, JobShown, JobState, Measurement, Path, StorageTest, TargetFound,
};
use crate::units::{Period, Size};
use clap::{ArgGroup, Args, Subcommand};
use skep_types::NodeId;
use skep_wire::mgmt::{NodeEntry, StatusReply, TargetEntry};
use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::time::Duration;

/// Between two looks at running measurements.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// `skep bench storage ...`
#[derive(Debug, Subcommand)]
pub enum StorageCommand {
    /// Write and read, wait, show what came out, remove the files
    Run(RunArgs),
    /// Begin; the daemons go on by themselves (see status, stop, cleanup)
    Start(StartArgs),
    /// Show the last measurement of each daemon, also while it runs
    Status(ShowArgs),
    /// End what runs, now
    Stop(ShowArgs),
    /// Remove the files that measurements left on targets
    Cleanup(CleanupArgs),
}

/// Which targets.
#[derive(Debug, Clone, Args)]
struct Which {
    /// Targets, by alias or number [default: all]
    #[arg(long = "target", value_delimiter = ',', value_name = "TARGET")]
    targets: Vec<String>,
    /// All targets of these daemons, by alias or number
    #[arg(long = "node", value_delimiter = ',', value_name = "NODE", conflicts_with = "targets")]
    nodes: Vec<String>,
}

/// How a target is used.
#[derive(Debug, Clone, Args)]
struct Load {
    /// Through which code: the daemon's own for chunk files, or plain files on the same disk
    #[arg(long, value_enum, default_value = "target")]
    path: Path,
    /// Bytes of one request
    #[arg(long, value_name = "SIZE", default_value = "1MiB")]
    block: Size,
    /// Bytes of each thread
    #[arg(long, value_name = "SIZE", default_value = "256MiB")]
    size: Size,
    /// Threads of each target
    #[arg(long, value_name = "N", default_value = "4")]
    threads: u32,
    /// Files of each target, shared by its threads [default: one for each thread]
    #[arg(long, value_name = "N", default_value = "0", hide_default_value = true)]
    objects: u32,
    /// Blocks in random order
    #[arg(long)]
    random: bool,
    /// Past the page cache (O_DIRECT); with --path raw
    #[arg(long)]
    direct: bool,
    /// Write over files that are there already
    #[arg(long)]
    rewrite: bool,
    /// Go round until this time is over, instead of once over the size
    #[arg(long = "for", value_name = "TIME")]
    time: Option<Period>,
}

/// Arguments of `skep bench storage run`.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// Only write [default: write, then read]
    #[arg(long)]
    write: bool,
    /// Only read what an earlier run with --keep left
    #[arg(long, conflicts_with = "write")]
    read: bool,
    /// Leave the files
    #[arg(long)]
    keep: bool,
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    load: Load,
    #[command(flatten)]
    access: AccessArgs,
    #[command(flatten)]
    output: ReportArgs,
}

/// Arguments of `skep bench storage start`.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("direction").required(true).args(["write", "read"]))]
pub struct StartArgs {
    /// Write
    #[arg(long)]
    write: bool,
    /// Read what an earlier write left
    #[arg(long)]
    read: bool,
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    load: Load,
    #[command(flatten)]
    access: AccessArgs,
}

/// Arguments of `skep bench storage status` and `stop`.
#[derive(Debug, Args)]
pub struct ShowArgs {
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    access: AccessArgs,
    #[command(flatten)]
    output: ReportArgs,
}

/// Arguments of `skep bench storage cleanup`.
#[derive(Debug, Args)]
pub struct CleanupArgs {
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    access: AccessArgs,
}

impl Load {
    fn test(&self, direction: Direction) -> StorageTest {
        StorageTest {
            targets: Vec::new(),
            path: self.path,
            direction,
            block: self.block.0,
            size: self.size.0,
            threads: self.threads,
            objects: self.objects,
            random: self.random,
            direct: self.direct,
            rewrite: self.rewrite,
            seconds: self.time.map_or(0.0, |time| time.duration().as_secs_f64()),
        }
    }
}

/// A daemon and those of its targets that are meant.
pub struct Served {
    /// The daemon.
    pub node: NodeEntry,
    /// Its targets.
    pub targets: Vec<TargetEntry>,
}

/// The chosen targets by their daemons.
fn served(status: &StatusReply, which: &Which) -> Outcome<Vec<Served>> {
    let nodes: Vec<NodeId> =
        which.nodes.iter().map(|text| Ok(find::node(status, text)?.node.node)).collect::<Outcome<_>>()?;
    let chosen: Vec<&TargetEntry> = match which.targets.is_empty() {
        true => status.targets.iter().filter(|one| nodes.is_empty() || nodes.contains(&one.node)).collect(),
        false => find::targets(status, &which.targets)?,
    };
    let mut by_node: BTreeMap<u32, Vec<TargetEntry>> = BTreeMap::new();
    for target in chosen {
        by_node.entry(target.node.0).or_default().push(target.clone());
    }
    if by_node.is_empty() {
        return Err(Failure::new("there is no target to measure: see `skep target list`"));
    }
    let with_node = |(number, targets): (u32, Vec<TargetEntry>)| {
        let node = status.nodes.iter().find(|one| one.node.node.0 == number);
        let node = node.ok_or_else(|| Failure::new(format!("node {number} of a target is unknown")))?;
        Ok(Served { node: node.node.clone(), targets })
    };
    by_node.into_iter().map(with_node).collect()
}

/// What a job says of the targets that are meant.
fn rows_of(served: &Served, job: &JobShown, report: &mut StorageReport) {
    let Measurement::Storage(test) = &job.what else { return };
    let found = match &job.findings {
        Some(Findings::Storage(found)) => found.targets.as_slice(),
        _ => &[],
    };
    for target in &served.targets {
        if !test.targets.is_empty() && !test.targets.contains(&target.target.0) {
            continue;
        }
        let of_target: Option<&TargetFound> = found.iter().find(|one| one.target == target.target.0);
        let error = of_target.and_then(|one| one.error.clone()).or_else(|| job.error.clone());
        report.add(&served.node.alias, target, test, job.state, of_target, error);
    }
}

fn begin(cluster: &Cluster, served: &[Served], test: &StorageTest) -> Outcome<Vec<JobShown>> {
    let mut begun: Vec<JobShown> = Vec::new();
    for one in served {
        let targets = one.targets.iter().map(|target| target.target.0).collect();
        let what = Measurement::Storage(StorageTest { targets, ..test.clone() });
        match client::start(cluster, &one.node, &what) {
            Ok(job) => begun.push(job),
            Err(failure) => {
                // All or none: half a measurement compares nothing.
                for (job, of) in begun.iter().zip(served) {
                    let _ = client::stop(cluster, &of.node, job.job);
                }
                return Err(failure);
            }
        }
    }
    Ok(begun)
}

/// Waits for all; told to stop, the measurements are stopped, and `false` comes back.
fn wait(
    cluster: &Cluster,
    served: &[Served],
    jobs: &mut [JobShown],
    stop: &Stop,
    progress: bool,
) -> Outcome<bool> {
    loop {
        for (job, of) in jobs.iter_mut().zip(served) {
            if job.state == JobState::Running {
                *job = client::status(cluster, &of.node, job.job)?;
            }
        }
        if progress {
            show_progress(jobs);
        }
        if jobs.iter().all(|job| job.state != JobState::Running) {
            return Ok(true);
        }
        if stop.wait(LOOK_EVERY) {
            for (job, of) in jobs.iter_mut().zip(served) {
                *job = client::stop(cluster, &of.node, job.job)?;
            }
            return Ok(false);
        }
    }
}

fn show_progress(jobs: &[JobShown]) {
    let (mut bytes, mut rate) = (0, 0.0);
    for job in jobs {
        let Some(Findings::Storage(found)) = &job.findings else { continue };
        bytes += found.targets.iter().map(|one| one.flow.bytes).sum::<u64>();
        rate += found.targets.iter().map(|one| one.flow.rate()).sum::<f64>();
    }
    let done = jobs.iter().filter(|job| job.state != JobState::Running).count();
    eprint!("\r{} at {}/s, {done} of {} daemons done   ", human(bytes), human(rate as u64), jobs.len());
    if done == jobs.len() {
        eprintln!();
    }
}

/// Removes what is left on these targets.
fn clean(cluster: &Cluster, served: &[Served], patience: Duration) -> Outcome<u64> {
    let mut removed = 0;
    for one in served {
        let targets = one.targets.iter().map(|target| target.target.0).collect();
        let found = client::ask(cluster, &one.node, &Measurement::Cleanup { targets }, patience)?;
        if let Findings::Cleanup { removed: files } = found {
            removed += files;
        }
    }
    Ok(removed)
}

/// Removing the files of a large measurement takes a while.
const CLEANUP_LIMIT: Duration = Duration::from_secs(600);

fn run_all(args: &RunArgs, out: &mut dyn Write) -> Outcome {
    let stop = Stop::on_signals().map_err(|e| Failure::local("signals", e))?;
    let mut cluster = args.access.connect(None)?;
    cluster.require_admin("measuring targets")?;
    let served = served(&cluster.status()?, &args.which)?;
    let directions: &[Direction] = match (args.write, args.read) {
        (true, _) => &[Direction::Write],
        (_, true) => &[Direction::Read],
        _ => &[Direction::Write, Direction::Read],
    };
    let progress = std::io::stderr().is_terminal();
    let mut report = StorageReport::default();
    let mut result = Ok(true);
    for direction in directions {
        let mut jobs = match begin(&cluster, &served, &args.load.test(*direction)) {
            Ok(jobs) => jobs,
            Err(failure) => {
                result = Err(failure);
                break;
            }
        };
        result = wait(&cluster, &served, &mut jobs, &stop, progress);
        jobs.iter().zip(&served).for_each(|(job, of)| rows_of(of, job, &mut report));
        if !matches!(result, Ok(true)) {
            break;
        }
    }
    if !args.keep {
        // Told to stop, the threads need a moment until they are done.
        let cleaned = clean_when_ended(&cluster, &served);
        result = result.and_then(|whole| cleaned.map(|()| whole));
    }
    report.conclude();
    report.write(args.output, out)?;
    match result? {
        true => report.verdict(),
        false => Err(Failure::new("stopped before the end; what was measured until then is shown")),
    }
}

/// A job that was stopped ends within a block's time.
fn clean_when_ended(cluster: &Cluster, served: &[Served]) -> Outcome {
    for one in served {
        while client::jobs(cluster, &one.node)?.iter().any(is_running) {
            std::thread::sleep(LOOK_EVERY / 10);
        }
    }
    clean(cluster, served, CLEANUP_LIMIT).map(drop)
}

fn is_storage(job: &JobShown) -> bool {
    matches!(job.what, Measurement::Storage(_))
}

fn is_running(job: &JobShown) -> bool {
    is_storage(job) && job.state == JobState::Running
}

fn start(args: &StartArgs) -> Outcome {
    let mut cluster = args.access.connect(None)?;
    cluster.require_admin("measuring targets")?;
    let served = served(&cluster.status()?, &args.which)?;
    let direction = if args.write { Direction::Write } else { Direction::Read };
    let jobs = begin(&cluster, &served, &args.load.test(direction))?;
    eprintln!("{} daemons measure: see `skep bench storage status`", jobs.len());
    Ok(())
}

fn status(args: &ShowArgs, end: bool, out: &mut dyn Write) -> Outcome {
    let mut cluster = args.access.connect(None)?;
    cluster.require_admin("measuring targets")?;
    let served = served(&cluster.status()?, &args.which)?;
    let mut report = StorageReport::default();
    for one in &served {
        let Some(mut last) = client::jobs(&cluster, &one.node)?.into_iter().rfind(is_storage) else {
            continue;
        };
        if end && last.state == JobState::Running {
            client::stop(&cluster, &one.node, last.job)?;
            while last.state == JobState::Running {
                std::thread::sleep(LOOK_EVERY / 10);
                last = client::status(&cluster, &one.node, last.job)?;
            }
        }
        rows_of(one, &last, &mut report);
    }
    report.conclude();
    report.write(args.output, out)
}

fn cleanup(args: &CleanupArgs) -> Outcome {
    let mut cluster = args.access.connect(None)?;
    cluster.require_admin("measuring targets")?;
    let served = served(&cluster.status()?, &args.which)?;
    let removed = clean(&cluster, &served, CLEANUP_LIMIT)?;
    eprintln!("{removed} files removed");
    Ok(())
}

/// Does it.
pub fn run(command: &StorageCommand, out: &mut dyn Write) -> Outcome {
    match command {
        StorageCommand::Run(args) => run_all(args, out),
        StorageCommand::Start(args) => start(args),
        StorageCommand::Status(args) => status(args, false, out),
        StorageCommand::Stop(args) => status(args, true, out),
        StorageCommand::Cleanup(args) => cleanup(args),
    }
}
