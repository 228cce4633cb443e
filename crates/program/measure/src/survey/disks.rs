//! What is under each target, and each target through its daemon.

use super::rounds::{any_may_lag, side_by_side};
use super::{Run, at_once, commands};
use skep_base::units::Size;
use skep_base::{Failure, Outcome};
use skep_bench::job::format_size;
use skep_instruments::client::{ask, ask_all, own_set};
use skep_instruments::question::{Direction, Findings, Measurement, Path, StorageTest, TargetFound};
use skep_survey::ids::{DEVICE, EACH, READ, STORAGE, WRITE};
use skep_survey::model::{Curve, Layer, LayerId, MemberResult, Point, SideBySide};
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
    id: LayerId,
    name: &'static str,
    path: Path,
    direct: bool,
    what: &'static str,
}

impl Way {
    fn of(id: LayerId, direct: bool) -> Self {
        match id {
            LayerId::Device => Self {
                id,
                name: DEVICE,
                path: Path::Raw,
                direct,
                what: "plain files in the target's directory",
            },
            _ => Self {
                id,
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
            set: own_set(),
            path: self.path,
            direction,
            block,
            size,
            threads,
            direct: self.direct,
            ..StorageTest::default()
        }
    }

    /// The line that does it; `more` are flags of the place.
    fn line(&self, test: &StorageTest, rounds: usize, more: &str) -> String {
        let path = match self.path {
            Path::Raw => "raw",
            Path::Target => "target",
        };
        let direct = if test.direct { " --direct" } else { "" };
        let objects = match test.objects {
            0 => String::new(),
            n => format!(" --objects {n}"),
        };
        let (block, size) = (Size(test.block), Size(test.size));
        format!(
            "skep bench storage run --path {path} --block {block} --size {size}{objects}{direct} --rounds {rounds}{more}"
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
    let measured = sides(run, &way);
    // All at once as the daemon does it, so that the layers can be compared: through the page cache, but synced
    // within the time of writes and dropped before reads.
    let (curves, failed) = if measured.is_ok() { curves(run, id) } else { Default::default() };
    cleanup(run);
    let sides = measured?;
    if let Some(failure) = failed {
        run.remark(format!("{}: all targets at once: not measured to the end: {failure}", way.what));
    }
    let alone = match (id, direct) {
        (LayerId::Device, true) => "By itself a target was measured past the page cache (O_DIRECT); all",
        (LayerId::Device, false) => "The file system does not take O_DIRECT, so all",
        _ => "All",
    };
    let about = format!(
        "{}: each target by itself with {EACH_THREADS} threads, {} times in turn; then all targets at once with a \
         growing number of threads: they begin at one moment, and all bytes count over the time in which any was at \
         work. Each thread wrote a file of {} and read it again; the sync at the end of a write \
         is inside its time. {alone} files go through the page cache, and their pages are dropped before they are \
         read, so that a disk has to answer; a file system in memory keeps them.",
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
    let works = |at: usize, direct: bool| {
        let (target, node) = &run.members.targets[at];
        let way = Way::of(LayerId::Device, direct);
        let test = way.test(Some(target.target.0), Direction::Write, 1, EACH_BLOCK, EACH_BLOCK);
        one(run, &run.members.nodes[*node], test).is_ok()
    };
    let taken = none_refuses(run.members.targets.len(), works);
    cleanup(run);
    taken
}

/// Does O_DIRECT work at so many targets, as far as anything `works` there? One that fails both ways (a dead daemon, a
/// full disk) says nothing of it.
fn none_refuses(targets: usize, works: impl Fn(usize, bool) -> bool) -> bool {
    (0..targets).all(|at| works(at, true) || !works(at, false))
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
    let missing = |name: &str| run.absent.iter().any(|one| one.name == name);
    let sets: Vec<(String, Vec<String>)> = run
        .members
        .likes(&run.media)
        .into_iter()
        // Of a daemon that does not answer nobody knows the media: its targets are no set of their own.
        .filter(|(_, members)| !members.iter().all(|at| missing(&run.members.nodes[targets[*at].1].alias)))
        .map(|(set, members)| (set, members.into_iter().map(|at| names[at].clone()).collect()))
        .collect();
    let doubtful = |_, members: &[_]| any_may_lag(sets.iter().map(|(_, names)| names.as_slice()), members);
    let (sides, failed) = side_by_side(&names, run.preset.rounds, 2, measure, doubtful);
    let line = |target: &str| {
        let more = format!(" --threads {EACH_THREADS} --target {target}{}", run.lines.cluster());
        way.line(&test(0, Direction::Write), run.preset.rounds, &more)
    };
    let measured: Vec<&String> = sides.iter().flatten().map(|member| &member.name).collect();
    let measured: Vec<&String> = measured.iter().copied().take(measured.len() / 2).collect();
    let command = commands::each("target", &measured, line);
    run.missing(way.id, failed);
    for (set, names) in sets.iter().filter(|(_, names)| names.len() == 1 && way.id == LayerId::Device) {
        run.remark(format!(
            "{} is the only target of its kind ({set}): it has no likes, so nothing tells whether it is slow",
            names[0]
        ));
    }
    if sides.first().is_none_or(Vec::is_empty) {
        return Err(Failure::new("no target could be measured"));
    }
    run.commands.push(command.clone());
    let titled = [(WRITE, "Write"), (READ, "Read")].into_iter().zip(sides);
    let side = |(id, title): (&str, &str), members: Vec<MemberResult>| SideBySide {
        id: format!("{}.{id}{EACH}", way.name),
        title: format!("{title}, each target by itself, {}", way.what),
        unit: "MB/s".to_owned(),
        more_is_better: true,
        members,
        command: command.clone(),
    };
    Ok(titled.flat_map(|(names, members)| by_likes(&side(names, members), &sets)).collect())
}

/// A side for each set of targets that should be equal; as it is when there is one set only.
fn by_likes(side: &SideBySide, sets: &[(String, Vec<String>)]) -> Vec<SideBySide> {
    let word = |set: &str| set.replace(", ", "-").replace(' ', "-");
    let of = |(set, names): &(String, Vec<String>)| match sets.len() {
        1 => side.clone(),
        _ => SideBySide {
            id: format!("{}.{}{EACH}", side.id.trim_end_matches(EACH), word(set)),
            title: format!("{}, {set}", side.title),
            members: side.members.iter().filter(|member| names.contains(&member.name)).cloned().collect(),
            ..side.clone()
        },
    };
    sets.iter().map(of).filter(|side| !side.members.is_empty()).collect()
}

/// What was measured until something failed, and that.
type SoFar = (Vec<Curve>, Option<Failure>);

/// All targets at once: threads x record size, and for storage daemons x files.
fn curves(run: &mut Run<'_>, id: LayerId) -> SoFar {
    let way = Way::of(id, false);
    let mut all = Vec::new();
    for &objects in run.preset.objects {
        if objects > 0 && id == LayerId::Device {
            continue;
        }
        // With as many files as threads each thread has its own, which is measured already.
        let threads: Vec<u32> = run.preset.target_threads.iter().copied().filter(|n| *n > objects).collect();
        for &block in run.preset.records.iter().filter(|_| !threads.is_empty()) {
            let (found, failed) = over_threads(run, &way, &threads, block, objects);
            all.extend(found);
            if failed.is_some() {
                return (all, failed);
            }
        }
    }
    (all, None)
}

/// At so many threads on each target: samples of writing and reading.
fn at_threads(run: &Run<'_>, test: impl Fn(Direction) -> StorageTest) -> Outcome<[Vec<f64>; 2]> {
    let mut samples: [Vec<f64>; 2] = Default::default();
    for _ in 0..run.preset.repeats {
        for (direction, samples) in [Direction::Write, Direction::Read].into_iter().zip(&mut samples) {
            let test = test(direction);
            samples.push(at_once::rate(run, &test, limit(&test))? / MEGABYTE);
        }
    }
    Ok(samples)
}

/// One record size and number of files, over threads; the plain name is that of 1 MiB and own files.
fn over_threads(run: &mut Run<'_>, way: &Way, threads: &[u32], block: u64, objects: u32) -> SoFar {
    let (mut points, mut failed): ([Vec<Point>; 2], _) = (Default::default(), None);
    let size = run.preset.target_size;
    for &threads in threads {
        let test = |direction| StorageTest { objects, ..way.test(None, direction, threads, block, size) };
        match at_threads(run, test) {
            Ok(samples) => points.iter_mut().zip(samples).for_each(|(points, samples)| {
                points.push(Point { x: f64::from(threads), samples });
            }),
            Err(failure) => {
                failed = Some(failure);
                break;
            }
        }
    }
    let threads = &threads[..points[0].len()];
    if threads.is_empty() {
        return (Vec::new(), failed);
    }
    let record = format_size(block);
    let files = match objects {
        0 => String::new(),
        1 => ", one file for all threads".to_owned(),
        n => format!(", {n} files for all threads"),
    };
    let suffix = match (block == EACH_BLOCK, objects) {
        (true, 0) => String::new(),
        (_, 0) => format!(".{record}"),
        _ => format!(".{record}.objects-{objects}"),
    };
    let test = StorageTest { objects, ..way.test(None, Direction::Write, 1, block, size) };
    let line = |threads: &str| {
        let more = format!(" --threads {threads}{}", run.lines.cluster());
        way.line(&test, run.preset.repeats as usize, &more)
    };
    let command = commands::each("n", threads, line);
    run.commands.push(command.clone());
    let curve = |((id, title), points): ((&str, &str), Vec<Point>)| Curve {
        id: format!("{}.{id}{suffix}", way.name),
        title: format!("{title}, all targets at once, records of {record}{files}"),
        unit: "MB/s".to_owned(),
        axis: "threads per target".to_owned(),
        points,
        command: command.clone(),
    };
    ([(WRITE, "Write"), (READ, "Read")].into_iter().zip(points).map(curve).collect(), failed)
}

/// Storage daemons.
fn daemons<'a>(run: &Run<'a>) -> Vec<&'a NodeEntry> {
    let serves = |at: usize| run.members.targets.iter().any(|(_, node)| *node == at);
    run.members.nodes.iter().enumerate().filter(|(at, _)| serves(*at)).map(|(_, node)| node).collect()
}

/// Whatever was left behind goes, also after a failure. Did all daemons say so?
pub fn cleanup(run: &Run<'_>) -> bool {
    let all = Measurement::Cleanup { targets: Vec::new(), sets: vec![own_set()] };
    let nodes = daemons(run);
    let questions: Vec<_> = nodes.iter().map(|node| (*node, all.clone())).collect();
    let mut gone = true;
    for (node, answer) in nodes.iter().zip(ask_all(run.cluster, &questions, GRACE)) {
        if let Err(failure) = answer {
            gone = false;
            eprintln!(
                "  note: {}: files of the measurement stay until it starts again: {failure}",
                node.alias
            );
        }
    }
    gone
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: only a target at which all else works tells that O_DIRECT does not.
    #[test]
    fn who_fails_in_any_way_says_nothing_of_direct() {
        // How each target does: past the page cache, through it.
        let all = |targets: &[(bool, bool)]| {
            none_refuses(targets.len(), |at, direct| if direct { targets[at].0 } else { targets[at].1 })
        };
        let (takes, refuses, dead) = ((true, true), (false, true), (false, false));
        assert!(all(&[takes, takes]) && all(&[dead, takes]) && all(&[takes, dead]));
        assert!(!all(&[takes, refuses]) && !all(&[dead, refuses]));
    }

    /// Goal: targets of two media are judged apart, so that a healthy disk is not blamed for not being flash.
    #[test]
    fn disks_are_no_likes_of_flash() {
        let member = |name: &str, rate: f64| MemberResult {
            name: name.to_owned(),
            samples: vec![rate, rate * 1.02, rate * 0.98],
            outlier: None,
        };
        let mut members: Vec<MemberResult> = (0..4).map(|n| member(&format!("flash-{n}"), 2_000.0)).collect();
        members.extend((0..2).map(|n| member(&format!("disk-{n}"), 150.0)));
        let side = SideBySide {
            id: format!("device.write{EACH}"),
            title: "Write".to_owned(),
            unit: "MB/s".to_owned(),
            more_is_better: true,
            members,
            command: String::new(),
        };
        assert_eq!(skep_survey::lag::laggards(&side).len(), 2, "together they would be");
        let names =
            |word: &str, count: usize| (0..count).map(|n| format!("{word}-{n}")).collect::<Vec<String>>();
        let set = |name: &str, names| (name.to_owned(), names);
        let sets = [set("pool a, ssd", names("flash", 4)), set("pool a, hdd", names("disk", 2))];
        let apart = by_likes(&side, &sets);
        assert_eq!(apart[1].id, "device.write.pool-a-hdd.each");
        assert!(apart.iter().all(|side| skep_survey::lag::laggards(side).is_empty()));
        assert!(!any_may_lag(sets.iter().map(|(_, names)| names.as_slice()), &side.members));
        assert_eq!(by_likes(&side, &sets[..1])[0].id, side.id);
    }
}
