//! What is under each target, and each target through its daemon.

use super::Run;
use super::rounds::{may_lag, side_by_side};
use crate::admin::{Failure, Outcome};
use crate::instruments::client::{ask, ask_all};
use crate::instruments::question::{Direction, Findings, Measurement, Path, StorageTest, TargetFound};
use skep_bench::job::format_size;
use skep_survey::ids::{DEVICE, EACH, READ, STORAGE, WRITE};
use skep_survey::model::{Curve, Layer, LayerId, Point, SideBySide};
use skep_wire::mgmt::NodeEntry;
use std::time::Duration;

/// Threads on a target when it is measured beside the others.
const EACH_THREADS: u32 = 2;
/// Record size when targets are measured beside each other.
const EACH_BLOCK: u64 = 1 << 20;
/// Slowest target that is waited for, bytes a second; what is slower is stopped and named.
const SLOWEST: f64 = 500_000.0;
/// Time that a daemon may need besides.
const GRACE: Duration = Duration::from_secs(60);
/// Rates are told in these.
const MEGABYTE: f64 = 1e6;

/// How a layer is measured.
struct Way {
    name: &'static str,
    path: Path,
    direct: bool,
    what: &'static str,
}

impl Way {
    fn of(id: LayerId, direct: bool) -> Self {
        match id {
            LayerId::Device => {
                Self { name: DEVICE, path: Path::Raw, direct, what: "plain files in the target's directory" }
            }
            _ => Self {
                name: STORAGE,
                path: Path::Target,
                direct: false,
                what: "chunk files, through the daemon's code",
            },
        }
    }

    fn test(
        &self,
        target: Option<u32>,
        direction: Direction,
        threads: u32,
        block: u64,
        size: u64,
    ) -> StorageTest {
        StorageTest {
            targets: target.into_iter().collect(),
            path: self.path,
            direction,
            block,
            size,
            threads,
            direct: self.direct,
            ..StorageTest::default()
        }
    }

    fn command(&self, test: &StorageTest) -> String {
        let path = match self.path {
            Path::Raw => "raw",
            Path::Target => "target",
        };
        let target = if test.targets.is_empty() { "" } else { " --target TARGET" };
        let direct = if test.direct { " --direct" } else { "" };
        let (block, size) = (format_size(test.block), format_size(test.size));
        format!(
            "skep bench storage run{target} --path {path} --block {block} --size {size} --threads {}{direct}",
            test.threads
        )
    }
}

fn limit(test: &StorageTest) -> Duration {
    Duration::from_secs_f64((test.size * u64::from(test.threads)) as f64 / SLOWEST) + GRACE
}

fn rate(found: &TargetFound) -> Outcome<f64> {
    match &found.error {
        Some(error) => Err(Failure::new(error.clone())),
        None => Ok(found.flow.rate() / MEGABYTE),
    }
}

fn one(run: &Run<'_>, node: &NodeEntry, test: StorageTest) -> Outcome<f64> {
    let limit = limit(&test);
    match ask(run.cluster, node, &Measurement::Storage(test), limit)? {
        Findings::Storage(found) => {
            found.targets.first().map_or_else(|| Err(Failure::new("no target answered")), rate)
        }
        _ => Err(Failure::new("the answer is to another question")),
    }
}

/// The layer of devices or that of storage daemons.
pub fn measure(run: &mut Run<'_>, id: LayerId) -> Outcome<Layer> {
    if run.members.targets.is_empty() {
        return Err(Failure::new("the cluster has no target"));
    }
    let direct = id == LayerId::Device && takes_direct(run);
    let way = Way::of(id, direct);
    let measured = sides(run, &way).and_then(|sides| Ok((sides, curves(run, &way)?)));
    cleanup(run);
    let (sides, curves) = measured?;
    let reads = match (id, direct) {
        (LayerId::Device, true) => "Requests went past the page cache (O_DIRECT).",
        (LayerId::Device, false) => {
            "The file system does not take O_DIRECT, so what was just written is read from memory."
        }
        _ => "Chunk files go through the page cache, so what was just written is read from memory.",
    };
    let about = format!(
        "{}: each target by itself with {EACH_THREADS} threads, {} times in turn; then all targets at once with a \
         growing number of threads. Each thread wrote a file of {} and read it again; the sync at the end of a write \
         is inside its time. {reads}",
        capitalised(way.what),
        run.preset.rounds,
        format_size(run.preset.target_size),
    );
    Ok(Layer { id, about, curves, sides })
}

fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// Whether the file systems of all targets take O_DIRECT.
fn takes_direct(run: &Run<'_>) -> bool {
    let way = Way::of(LayerId::Device, true);
    let taken = run.members.targets.iter().all(|(target, node)| {
        let test = way.test(Some(target.target.0), Direction::Write, 1, EACH_BLOCK, EACH_BLOCK);
        one(run, &run.members.nodes[*node], test).is_ok()
    });
    cleanup(run);
    taken
}

fn sides(run: &mut Run<'_>, way: &Way) -> Outcome<Vec<SideBySide>> {
    let targets = &run.members.targets;
    let names: Vec<String> = targets.iter().map(|(target, _)| target.alias.clone()).collect();
    let test = |at: usize, direction| {
        way.test(Some(targets[at].0.target.0), direction, EACH_THREADS, EACH_BLOCK, run.preset.target_size)
    };
    let measure = |at: usize| {
        let node = &run.members.nodes[targets[at].1];
        let written = one(run, node, test(at, Direction::Write))?;
        Ok(vec![written, one(run, node, test(at, Direction::Read))?])
    };
    let doubtful = |_, members: &[_]| may_lag(members, true);
    let (sides, failed) = side_by_side(&names, run.preset.rounds, 2, measure, doubtful);
    let command = way.command(&test(0, Direction::Write));
    failed.into_iter().for_each(|text| run.remark(text));
    if sides.first().is_none_or(Vec::is_empty) {
        return Err(Failure::new("no target could be measured"));
    }
    run.commands.push(command.clone());
    let titled = [(WRITE, "Write"), (READ, "Read")].into_iter().zip(sides);
    let side = |((id, title), members): ((&str, &str), Vec<_>)| SideBySide {
        id: format!("{}.{id}{EACH}", way.name),
        title: format!("{title}, each target by itself, {}", way.what),
        unit: "MB/s".to_owned(),
        more_is_better: true,
        members,
        command: command.clone(),
    };
    Ok(titled.map(side).collect())
}

/// All targets at once, over threads, for each record size; the plain name is that of 1 MiB.
fn curves(run: &mut Run<'_>, way: &Way) -> Outcome<Vec<Curve>> {
    let mut curves = Vec::new();
    for &block in run.preset.records {
        let mut points: [Vec<Point>; 2] = Default::default();
        for &threads in run.preset.target_threads {
            let mut samples: [Vec<f64>; 2] = Default::default();
            for _ in 0..run.preset.repeats {
                for (direction, samples) in [Direction::Write, Direction::Read].into_iter().zip(&mut samples)
                {
                    samples.push(together(run, way, direction, threads, block)?);
                }
            }
            points.iter_mut().zip(samples).for_each(|(points, samples)| {
                points.push(Point { x: f64::from(threads), samples });
            });
        }
        let size = format_size(block);
        let command = way.command(&way.test(None, Direction::Write, 1, block, run.preset.target_size));
        let command = command.replace("--threads 1", "--threads THREADS");
        run.commands.push(command.clone());
        for ((id, title), points) in [(WRITE, "Write"), (READ, "Read")].into_iter().zip(points) {
            curves.push(Curve {
                id: if block == EACH_BLOCK {
                    format!("{}.{id}", way.name)
                } else {
                    format!("{}.{id}.{size}", way.name)
                },
                title: format!("{title}, all targets at once, records of {size}"),
                unit: "MB/s".to_owned(),
                axis: "threads per target".to_owned(),
                points,
                command: command.clone(),
            });
        }
    }
    Ok(curves)
}

/// Sum over all targets that work at the same time.
fn together(run: &Run<'_>, way: &Way, direction: Direction, threads: u32, block: u64) -> Outcome<f64> {
    let test = way.test(None, direction, threads, block, run.preset.target_size);
    let (limit, nodes) = (limit(&test), daemons(run));
    let questions: Vec<_> = nodes.iter().map(|node| (*node, Measurement::Storage(test.clone()))).collect();
    let mut sum = 0.0;
    for answer in ask_all(run.cluster, &questions, limit) {
        let Findings::Storage(found) = answer? else {
            return Err(Failure::new("the answer is to another question"));
        };
        for target in &found.targets {
            sum += rate(target)?;
        }
    }
    Ok(sum)
}

fn daemons<'a>(run: &Run<'a>) -> Vec<&'a NodeEntry> {
    let serves = |at: usize| run.members.targets.iter().any(|(_, node)| *node == at);
    run.members.nodes.iter().enumerate().filter(|(at, _)| serves(*at)).map(|(_, node)| node).collect()
}

/// Whatever was left behind goes, also after a failure.
fn cleanup(run: &Run<'_>) {
    let all = Measurement::Cleanup { targets: Vec::new() };
    let nodes = daemons(run);
    let questions: Vec<_> = nodes.iter().map(|node| (*node, all.clone())).collect();
    for (node, answer) in nodes.iter().zip(ask_all(run.cluster, &questions, GRACE)) {
        if let Err(failure) = answer {
            eprintln!(
                "  note: {}: files of the measurement stay until it starts again: {failure}",
                node.alias
            );
        }
    }
}
