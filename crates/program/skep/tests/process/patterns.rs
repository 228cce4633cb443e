//! One file that four programs write at once, each its own records in turn with the others' (N-1): none is lost, or mixed with
//! its neighbours.

use super::{Over, Running, bytes, plan, start};
use rustix::io::Errno;
use skep_rig::{PATIENCE, until};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// As the hard rounds of IO500 have it: neighbours share pages and chunks.
const RECORD: usize = 47_008;
const WRITERS: usize = 4;
/// Of each writer.
const RECORDS: usize = 48;
/// Whoever is killed syncs that often, and so do the others beside it.
const SYNCED_AFTER: usize = 4;
/// Whose mount is killed: not the one that the cluster was started with.
const VICTIM: usize = WRITERS - 1;
/// The last of its records that it writes: the kill is to come in the middle, however late it is.
const MIDDLE: usize = RECORDS / 2;
/// Versions of all records.
const FIRST: u32 = 1;
const OLD: u32 = 2;
const NEW: u32 = 3;

fn four_mounts() -> (Running, Vec<PathBuf>) {
    let cluster = start(plan());
    let others = (1..WRITERS).map(|number| cluster.second_mount(&format!("mnt{number}"), &[]).unwrap());
    let mounts = std::iter::once(cluster.mount().to_owned()).chain(others).collect();
    (cluster, mounts)
}

fn open(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).unwrap()
}

/// What the so-many-th record of the file is in a version.
fn record(version: u32, number: usize) -> Vec<u8> {
    bytes(version * 10_000 + number as u32, RECORD)
}

/// Which record of the file a writer writes in its so-many-th turn.
fn number_of(writer: usize, turn: usize) -> usize {
    turn * WRITERS + writer
}

fn put(file: &File, version: u32, number: usize) -> io::Result<()> {
    file.write_all_at(&record(version, number), (number * RECORD) as u64)
}

/// All of them at once, each its own records; then each handle is synced.
fn all_write(files: &[File], version: u32) {
    std::thread::scope(|scope| {
        for (writer, file) in files.iter().enumerate() {
            scope.spawn(move || {
                for turn in 0..RECORDS {
                    put(file, version, number_of(writer, turn)).unwrap();
                }
            });
        }
    });
    for file in files {
        file.sync_all().unwrap();
    }
}

/// All of the file, in records.
fn content(path: &Path) -> Vec<Vec<u8>> {
    let found = fs::read(path).unwrap();
    assert_eq!(found.len(), WRITERS * RECORDS * RECORD, "{}", path.display());
    found.chunks(RECORD).map(<[u8]>::to_vec).collect()
}

/// Goal: what four writers of one mount, and then one on each of four mounts, write to one file in interleaved records and sync is
/// read by others byte by byte, while they have it open; and so it is when they write all of it once more.
#[test]
fn records_of_four_writers() {
    let (_cluster, mounts) = four_mounts();
    for (name, writers) in [("one", vec![&mounts[0]; WRITERS]), ("four", mounts.iter().collect())] {
        let files: Vec<File> = writers.iter().map(|mount| open(&mount.join(name))).collect();
        for version in [FIRST, OLD] {
            all_write(&files, version);
            // None of these has written all of it, and with one writing mount nothing.
            for mount in [&mounts[1], &mounts[WRITERS - 1]] {
                let path = mount.join(name);
                for (number, found) in content(&path).into_iter().enumerate() {
                    let is_right = found == record(version, number);
                    assert!(is_right, "version {version}: record {number} of {}", path.display());
                }
            }
        }
    }
}

/// Writes and syncs until its mount is killed, at last the record in its middle again and again: so the kill finds it at work, with
/// much left to do. The record that it was writing then, if any.
fn until_killed(file: &File, synced: &AtomicUsize, killed: &AtomicBool, ends: &AtomicBool) -> Option<usize> {
    for turn in 0_usize.. {
        if ends.load(Ordering::SeqCst) {
            break;
        }
        let number = number_of(VICTIM, turn.min(MIDDLE));
        if let Err(e) = put(file, NEW, number) {
            assert!(killed.load(Ordering::SeqCst), "turn {turn}: {e}");
            return Some(number);
        }
        if (turn + 1).is_multiple_of(SYNCED_AFTER) {
            if let Err(e) = file.sync_all() {
                assert!(killed.load(Ordering::SeqCst), "sync of turn {turn}: {e}");
                break;
            }
            synced.store(turn + 1, Ordering::SeqCst);
        }
    }
    None
}

/// All write the new version, each on its own mount, and the mount of one is killed meanwhile. How many of its records were synced
/// before, and which one it was writing.
fn one_is_killed(cluster: &Running, point: &Path, files: &[File]) -> (usize, Option<usize>) {
    /// So that the kill finds the others at work as well.
    const PACE: Duration = Duration::from_millis(5);
    let (synced, killed, ends) = (AtomicUsize::new(0), AtomicBool::new(false), AtomicBool::new(false));
    let daemon = cluster.mount_daemon(point).unwrap();
    let cut = std::thread::scope(|scope| {
        let _over = Over(&ends);
        let victim = scope.spawn(|| until_killed(&files[VICTIM], &synced, &killed, &ends));
        for (writer, file) in files.iter().enumerate().take(VICTIM) {
            scope.spawn(move || {
                for turn in 0..RECORDS {
                    put(file, NEW, number_of(writer, turn)).unwrap();
                    if (turn + 1).is_multiple_of(SYNCED_AFTER) {
                        file.sync_all().unwrap();
                    }
                    std::thread::sleep(PACE);
                }
            });
        }
        until("some of it is synced", PATIENCE, || match synced.load(Ordering::SeqCst) {
            synced if synced >= RECORDS / 4 => Ok(()),
            synced => Err(format!("{synced} records")),
        })
        .unwrap();
        killed.store(true, Ordering::SeqCst);
        daemon.kill().unwrap();
        victim.join().unwrap()
    });
    (synced.into_inner(), cut)
}

/// Is each of these bytes that of one or of the other?
fn is_of_both(found: &[u8], old: &[u8], new: &[u8]) -> bool {
    found.iter().zip(old.iter().zip(new)).all(|(byte, (old, new))| byte == old || byte == new)
}

/// The file after the kill: of who lives all is new. So is what the other one had synced; of the rest each record is old or new as
/// a whole, but for the one that it was writing. How many are old.
fn check(path: &Path, synced: usize, cut: Option<usize>) -> usize {
    let mut are_old = 0;
    for (number, found) in content(path).into_iter().enumerate() {
        let (writer, turn) = (number % WRITERS, number / WRITERS);
        let (old, new) = (record(OLD, number), record(NEW, number));
        let is_right = if writer != VICTIM || turn < synced.min(MIDDLE + 1) {
            found == new
        } else if turn > MIDDLE {
            found == old
        } else if cut == Some(number) {
            is_of_both(&found, &old, &new)
        } else {
            found == old || found == new
        };
        let has_both = is_of_both(&found, &old, &new);
        assert!(
            is_right,
            "{}: record {number}, of writer {writer}; {synced} of the victim's are synced, {cut:?} was being \
             written; nothing but old and new bytes: {has_both}",
            path.display()
        );
        are_old += usize::from(found == old);
    }
    are_old
}

/// Over the one that was killed, when the kernel knows that: its connection ends somewhat later than the process.
fn mount_again(cluster: &Running, point: &Path) {
    until("the mount has gone", PATIENCE, || match fs::metadata(point) {
        Err(e) if Errno::from_io_error(&e) == Some(Errno::NOTCONN) => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .unwrap();
    cluster.mount_again(point).unwrap();
}

/// Goal: when the mount of one of four writers is killed in the middle of its work the others go on, and lose nothing; all that it
/// had synced is there, and of what it had not each record is whole, the old one or the new one. Only the one that it was
/// writing may be of both.
#[test]
fn one_of_four_writers_is_killed() {
    let (cluster, mounts) = four_mounts();
    let files: Vec<File> = mounts.iter().map(|mount| open(&mount.join("file"))).collect();
    all_write(&files, OLD);
    let (synced, cut) = one_is_killed(&cluster, &mounts[VICTIM], &files);
    drop(files);
    mount_again(&cluster, &mounts[VICTIM]);
    for mount in &mounts {
        let are_old = check(&mount.join("file"), synced, cut);
        println!("{synced} turns were synced before the kill, {cut:?} was being written, {are_old} are old");
    }
}
