//! Storage measurements on directories.

use super::super::jobs::Jobs;
use super::super::question::{Direction, JobShown, JobState, Measurement, Order, Path, StorageFound};
use super::place::Place;
use super::*;
use skep_bench::engine::now_ns;
use skep_rig::begins_in_memory;
use skep_types::{TargetId, Uuid};
use std::collections::BTreeSet;

fn target(number: u32, path: &std::path::Path) -> BenchTarget {
    BenchTarget { target: TargetId(number), path: path.to_owned(), cluster: Uuid([1; 16]), reserve: 0 }
}

fn small(path: Path, direction: Direction) -> StorageTest {
    StorageTest { path, direction, block: 64 << 10, size: 1 << 20, threads: 3, ..StorageTest::default() }
}

fn found(all: &[BenchTarget], test: &StorageTest) -> StorageFound {
    match measure(all, test, &Control::default()) {
        Ok(Findings::Storage(found)) => found,
        other => panic!("{other:?}"),
    }
}

/// Goal: on each way what is written can be read, every byte is counted, files of other kinds are not touched,
/// and cleaning up leaves the target as it was.
#[test]
fn both_ways_of_both_paths() {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let all = [target(101, dirs[0].path()), target(102, dirs[1].path())];
    std::fs::create_dir(dirs[0].path().join("chunks")).unwrap();
    std::fs::write(dirs[0].path().join("chunks/user"), b"data").unwrap();
    for path in [Path::Raw, Path::Target] {
        let early = measure(&all, &small(path, Direction::Read), &Control::default());
        assert!(early.unwrap_err().contains("write with the same size"));
        for direction in [Direction::Write, Direction::Read] {
            for objects in [0, 2] {
                let test = StorageTest { objects, random: objects > 0, ..small(path, direction) };
                if direction == Direction::Read {
                    found(&all, &StorageTest { direction: Direction::Write, random: false, ..test.clone() });
                }
                for one in found(&all, &test).targets {
                    assert_eq!((one.state, one.error), (JobState::Done, None));
                    assert_eq!((one.flow.bytes, one.latency.count), (3 << 20, 48), "{path:?} {direction:?}");
                    assert!(one.flow.seconds > 0.0 && one.latency.max_us >= one.latency.p50_us);
                }
            }
        }
        found(&all, &StorageTest { rewrite: true, ..small(path, Direction::Write) });
    }
    let Ok(Findings::Cleanup { removed }) = cleanup(&all, &[101], &[]) else { panic!() };
    assert!(removed >= 6, "{removed}");
    assert!(dirs[1].path().join("bench").exists(), "not asked for");
    clear_leftovers(&all[1]);
    assert!(!dirs[1].path().join("bench").exists());
    assert_eq!(std::fs::read(dirs[0].path().join("chunks/user")).unwrap(), b"data");
}

/// Goal: what a read brought into memory is gone behind it, so that a measurement that goes round asks the disk
/// again; nothing that is written resembles what was written, by the same measurement or an earlier one.
#[test]
fn reads_leave_nothing_in_memory() {
    let dir = tempfile::tempdir().unwrap();
    let all = [target(101, dir.path())];
    let mut before = Vec::new();
    for random in [false, true] {
        let test = StorageTest { random, threads: 1, ..small(Path::Raw, Direction::Read) };
        found(&all, &StorageTest { direction: Direction::Write, random: false, ..test.clone() });
        found(&all, &test);
        let file = dir.path().join("bench/unnamed/raw/object.0");
        let bytes = std::fs::read(&file).unwrap();
        // Neither within a block nor from one to the next is there anything to pack.
        let words: BTreeSet<&[u8]> = bytes.chunks(8).collect();
        assert_eq!(words.len(), bytes.len() / 8);
        assert_ne!(bytes, before);
        before.clone_from(&bytes);
        // A file system that lives in memory keeps what it has.
        let opened = std::fs::File::open(&file).unwrap();
        rustix::fs::fadvise(&opened, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        if begins_in_memory(&opened).unwrap() {
            return;
        }
        std::fs::read(&file).unwrap();
        assert!(begins_in_memory(&opened).unwrap());
        let area = Place::open(&all[0], &test, 1, 1 << 20).unwrap();
        let mut into = vec![0; 64 << 10];
        area.read(0, 0, &mut into).unwrap();
        assert!(begins_in_memory(&opened).unwrap());
        found(&all, &StorageTest { seconds: if random { 0.2 } else { 0.0 }, ..test });
        assert!(!begins_in_memory(&opened).unwrap(), "random {random}");
    }
}

/// Goal: a measurement over a time goes round, and stops at once when told.
#[test]
fn over_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let all = [target(101, dir.path())];
    let test = StorageTest { seconds: 0.2, size: 128 << 10, ..small(Path::Raw, Direction::Write) };
    let one = &found(&all, &test).targets[0];
    assert!(one.flow.seconds >= 0.2 && one.flow.bytes > 3 * (128 << 10), "{one:?}");
    let control = Control::default();
    control.stop();
    let Ok(Findings::Storage(stopped)) = measure(&all, &StorageTest { seconds: 60.0, ..test }, &control)
    else {
        panic!()
    };
    assert_eq!((stopped.targets[0].state, stopped.targets[0].flow.bytes), (JobState::Stopped, 0));
    let chunks = small(Path::Target, Direction::Write);
    let Ok(Findings::Storage(stopped)) = measure(&all, &chunks, &control) else { panic!() };
    assert_eq!((stopped.targets[0].state, &stopped.targets[0].error), (JobState::Stopped, &None));
}

/// Goal: a held measurement prepares and says so, moves nothing until it is told the moment, and begins then; what it
/// found holds a histogram of every request.
#[test]
fn held_until_told() {
    let dir = tempfile::tempdir().unwrap();
    let all = [target(101, dir.path())];
    let test = StorageTest { held: true, ..small(Path::Target, Direction::Write) };
    let jobs = Jobs::default();
    let order =
        Order { what: Measurement::Storage(test.clone()), by: String::new(), lease_ms: 0, keep: true };
    let number = jobs.start(order, |_| false, move |control| measure(&all, &test, control)).unwrap();
    let look = || match jobs.asked(number).unwrap() {
        JobShown { state, findings: Some(Findings::Storage(found)), .. } => Some((state, found)),
        _ => None,
    };
    let ready = loop {
        match look() {
            Some((state, found)) if found.ready => break (state, found),
            _ => std::thread::yield_now(),
        }
    };
    assert_eq!((ready.0, ready.1.began_ns, ready.1.targets[0].flow.bytes), (JobState::Running, None, 0));
    let at = now_ns() + 50_000_000;
    jobs.go(number, at).unwrap();
    let found = loop {
        match look() {
            Some((JobState::Done, found)) => break found,
            _ => std::thread::yield_now(),
        }
    };
    assert!(found.began_ns.unwrap() >= at, "{found:?}");
    let one = &found.targets[0];
    assert_eq!((one.flow.bytes, one.buckets.iter().map(|(_, count)| count).sum::<u64>()), (3 << 20, 48));
}

/// Goal: what does not fit, or makes no sense, is refused with the reason before anything is written.
#[test]
fn refusals() {
    let dir = tempfile::tempdir().unwrap();
    let all = [target(101, dir.path())];
    let ok = small(Path::Target, Direction::Write);
    for (test, part) in [
        (StorageTest { threads: 0, ..ok.clone() }, "threads"),
        (StorageTest { block: 0, ..ok.clone() }, "block"),
        (StorageTest { block: 8 << 20, size: 8 << 20, ..ok.clone() }, "block"),
        (
            StorageTest { block: 64 << 20, size: 64 << 20, threads: 99, path: Path::Raw, ..ok.clone() },
            "together",
        ),
        (StorageTest { size: 1, ..ok.clone() }, "size"),
        (StorageTest { seconds: f64::NAN, ..ok.clone() }, "seconds"),
        (StorageTest { direct: true, ..ok.clone() }, "direct"),
        (StorageTest { set: "../chunks".to_owned(), ..ok.clone() }, "name"),
        (StorageTest { set: ".".to_owned(), ..ok.clone() }, "name"),
        (StorageTest { targets: vec![7], ..ok.clone() }, "served are 101"),
    ] {
        let why = measure(&all, &test, &Control::default()).unwrap_err();
        assert!(why.contains(part), "{why}");
    }
    assert!(cleanup(&all, &[], &["../chunks".to_owned()]).is_err());
    assert!(!dir.path().join("bench").exists());
    assert!(measure(&[], &ok, &Control::default()).unwrap_err().contains("no targets"));
}

/// Goal: what does not fit is refused for each target by itself, with its file system's figures for people, and nothing
/// is written.
#[test]
fn too_little_room() {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let all = [target(101, dirs[0].path()), target(102, dirs[1].path())];
    let large = StorageTest { size: 1 << 40, threads: 256, ..small(Path::Target, Direction::Write) };
    for one in found(&all, &large).targets {
        let why = one.error.unwrap();
        assert!(why.starts_with("512 TiB") || why.starts_with("512.0 TiB"), "{why}");
        assert!(why.contains("by the 2 targets on it") && !why.contains("10"), "{why}");
        assert!(!dirs[0].path().join("bench").exists());
    }
}

/// Goal: a set's files outlive other measurements, are found by what reads them, are listed, and removed by name only.
#[test]
fn sets_are_apart() {
    let dir = tempfile::tempdir().unwrap();
    let all = [target(101, dir.path())];
    let of =
        |set: &str, size, direction| StorageTest { set: set.to_owned(), size, ..small(Path::Raw, direction) };
    found(&all, &of("kept", 1 << 20, Direction::Write));
    found(&all, &of("other", 2 << 20, Direction::Write));
    let Ok(Findings::Cleanup { removed: 3 }) = cleanup(&all, &[], &["other".to_owned()]) else { panic!() };
    let listed = sets(&all, |set| set == "kept");
    let one = SetFound { target: 101, set: "kept".to_owned(), files: 3, bytes: 3 << 20, used: true };
    assert_eq!(listed, [one]);
    let read = found(&all, &of("new", 1 << 20, Direction::Read));
    assert_eq!(read.targets[0].flow.bytes, 3 << 20, "{read:?}");
    assert!(measure(&all, &of("new", 2 << 20, Direction::Read), &Control::default()).is_err());
    found(&all, &StorageTest { rewrite: true, ..of("new", 1 << 20, Direction::Write) });
    assert_eq!(sets(&all, |_| false).len(), 1, "written over, not beside");
    cleanup(&all, &[], &["kept".to_owned()]).unwrap();
    assert!(!dir.path().join("bench").exists());
}
