//! `skep bench storage`: the storage daemons read and write their own targets, without network.

mod shown;
pub(crate) mod together;

pub use shown::StorageReport;

use super::report::ReportArgs;
use clap::{ArgGroup, Args, Subcommand};
use skep_base::access::{AccessArgs, Cluster};
use skep_base::daemon::Stop;
use skep_base::output::human;
use skep_base::units::{Period, Size};
use skep_base::{Failure, Outcome, find};
use skep_instruments::client;
use skep_instruments::question::{Direction, Findings, Measurement, Order, Path, SetFound, StorageTest};
use skep_types::NodeId;
use skep_wire::mgmt::{NodeEntry, StatusReply, TargetEntry};
use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::time::Duration;
use together::{Member, begin, end, wait};

/// Listing files takes no longer.
const SETS_LIMIT: Duration = Duration::from_secs(5);

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
    /// All targets (so it is when none is named)
    #[arg(long, conflicts_with_all = ["targets", "nodes"])]
    all: bool,
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
    /// Write over files that an earlier run with --keep left
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
    /// Leave the files, until `skep bench storage cleanup`
    #[arg(long)]
    keep: bool,
    /// How often each direction is measured: a target is called slow only when rounds agree
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
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
    /// Only show what would be removed
    #[arg(long)]
    list: bool,
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    access: AccessArgs,
}

impl Load {
    /// Said before anything is asked of a daemon.
    fn check(&self) -> Outcome {
        if self.direct && self.path == Path::Target {
            let text =
                "--direct goes with --path raw: chunk files are read and written through the page cache";
            return Err(Failure::usage(text));
        }
        Ok(())
    }

    fn test(&self, direction: Direction) -> StorageTest {
        StorageTest {
            targets: Vec::new(),
            set: client::own_set(),
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
            held: false,
        }
    }
}

/// A daemon and those of its targets that are meant.
pub struct Served {
    /// The daemon.
    pub node: NodeEntry,
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

/// What a daemon says of the targets that are meant.
fn rows_of(member: &Member<'_>, report: &mut StorageReport) {
    let Measurement::Storage(test) = &member.job.what else { return };
    for target in &member.of.targets {
        if !test.targets.is_empty() && !test.targets.contains(&target.target.0) {
            continue;
        }
        let found = member.found().iter().find(|one| one.target == target.target.0);
        let error = found.and_then(|one| one.error.clone()).or_else(|| member.job.error.clone());
        let found = found.map(|found| (found, member.window(found)));
        report.add(&member.of.node.alias, target, test, member.job.state, found, error);
    }
}

fn show_progress(members: &[Member<'_>]) {
    let found = || members.iter().flat_map(Member::found);
    let bytes = found().map(|one| one.flow.bytes).sum();
    let seconds = found().map(|one| one.flow.seconds).fold(0.0, f64::max);
    let rate = if seconds > 0.0 { bytes as f64 / seconds } else { 0.0 };
    let done = members.iter().filter(|one| !one.is_running()).count();
    eprint!("\r{} at {}/s, {done} of {} daemons done   ", human(bytes), human(rate as u64), members.len());
    if done == members.len() {
        eprintln!();
    }
}

/// Removes these sets from these targets; all of them when none is named. A daemon that does not answer keeps those of
/// no other.
fn clean(cluster: &Cluster, served: &[Served], sets: &[String], patience: Duration) -> Outcome<u64> {
    let of = |one: &Served| {
        let targets = one.targets.iter().map(|target| target.target.0).collect();
        let what = Measurement::Cleanup { targets, sets: sets.to_vec() };
        match client::ask(cluster, &one.node, &what, patience)? {
            Findings::Cleanup { removed } => Ok(removed),
            _ => Ok(0),
        }
    };
    let all: Vec<Outcome<u64>> = served.iter().map(of).collect();
    all.into_iter().sum()
}

/// Removing the files of a large measurement takes a while.
const CLEANUP_LIMIT: Duration = Duration::from_secs(600);

/// One direction after the other; `false`: told to stop.
fn measure(
    args: &RunArgs,
    cluster: &Cluster,
    served: &[Served],
    stop: &Stop,
    report: &mut StorageReport,
) -> Outcome<bool> {
    let directions: &[Direction] = match (args.write, args.read) {
        (true, _) => &[Direction::Write],
        (_, true) => &[Direction::Read],
        _ => &[Direction::Write, Direction::Read],
    };
    let progress = std::io::stderr().is_terminal();
    let rounds = directions.iter().flat_map(|direction| (0..args.rounds).map(move |_| direction));
    for direction in rounds {
        let order = |what| Order { keep: args.keep, ..Order::leased(what) };
        let mut members = begin(cluster, served, &args.load.test(*direction), Some(stop), order)?;
        let result = wait(&mut members, stop, progress);
        members.iter().for_each(|member| rows_of(member, report));
        // What could not be written cannot be read.
        if !result? {
            return Ok(false);
        }
        if report.is_void() {
            break;
        }
    }
    Ok(true)
}

fn run_all(args: &RunArgs, out: &mut dyn Write) -> Outcome {
    args.load.check()?;
    let stop = Stop::of_command().map_err(|e| Failure::local("signals", e))?;
    let mut cluster = args.access.connect(None)?;
    cluster.require_admin("measuring targets")?;
    let served = served(&cluster.status()?, &args.which)?;
    let mut report = StorageReport::default();
    let mut result = measure(args, &cluster, &served, &stop, &mut report);
    // Only what this run wrote: neither what others keep nor what they measure with.
    if !args.keep && !report.is_empty() {
        // A file system may take longer to free what was written at random than it took to write it.
        eprintln!("removing what was written (--keep leaves it) ...");
        let cleaned = clean(&cluster, &served, &[client::own_set()], CLEANUP_LIMIT);
        result = result.and_then(|whole| cleaned.map(|_| whole));
    }
    report.conclude();
    report.write(args.output, out)?;
    match result? {
        true => report.verdict(),
        false => {
            let fate = match (args.read, args.keep) {
                (true, _) => "",
                (false, true) => "; what was written stays until `skep bench storage cleanup`",
                (false, false) => "; what was written is removed",
            };
            let text = format!("stopped before the end; what was measured until then is shown{fate}");
            Err(Failure::interrupted(text))
        }
    }
}

fn start(args: &StartArgs) -> Outcome {
    args.load.check()?;
    let mut cluster = args.access.connect(None)?;
    cluster.require_admin("measuring targets")?;
    let served = served(&cluster.status()?, &args.which)?;
    let direction = if args.write { Direction::Write } else { Direction::Read };
    let members = begin(&cluster, &served, &args.load.test(direction), None, Order::alone)?;
    eprintln!("{} daemons measure: see `skep bench storage status`", members.len());
    Ok(())
}

fn status(args: &ShowArgs, stop: bool, out: &mut dyn Write) -> Outcome {
    let mut cluster = args.access.connect(None)?;
    cluster.require_admin("measuring targets")?;
    let served = served(&cluster.status()?, &args.which)?;
    let mut report = StorageReport::default();
    let members: Vec<Option<Member<'_>>> =
        served.iter().map(|one| Member::last(&cluster, one)).collect::<Outcome<_>>()?;
    let mut members: Vec<Member<'_>> = members.into_iter().flatten().collect();
    if stop {
        end(&mut members)?;
    }
    members.iter().for_each(|member| rows_of(member, &mut report));
    report.conclude();
    report.write(args.output, out)
}

fn cleanup(args: &CleanupArgs) -> Outcome {
    let mut cluster = args.access.connect(None)?;
    cluster.require_admin("measuring targets")?;
    let served = served(&cluster.status()?, &args.which)?;
    for one in &served {
        for found in client::sets(cluster.node(&one.node), &one.node, SETS_LIMIT)? {
            if let Some(target) = one.targets.iter().find(|target| target.target.0 == found.target) {
                let SetFound { set, files, bytes, used, .. } = found;
                let used = if used { ", in use" } else { "" };
                eprintln!("{}: set {set}: {files} files, {}{used}", target.alias, human(bytes));
            }
        }
    }
    if !args.list {
        let removed = clean(&cluster, &served, &[], CLEANUP_LIMIT)?;
        eprintln!("{removed} files removed");
    }
    Ok(())
}

pub fn run(command: &StorageCommand, out: &mut dyn Write) -> Outcome {
    match command {
        StorageCommand::Run(args) => run_all(args, out),
        StorageCommand::Start(args) => start(args),
        StorageCommand::Status(args) => status(args, false, out),
        StorageCommand::Stop(args) => status(args, true, out),
        StorageCommand::Cleanup(args) => cleanup(args),
    }
}
