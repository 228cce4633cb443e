//! Sizes and times of files that two mounts change while both have them open.

use super::{Running, plan, start};
use rustix::fs::{FallocateFlags, fallocate};
use std::fs::{self, File, FileTimes, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

fn two_mounts() -> (Running, PathBuf, PathBuf) {
    let cluster = start(plan());
    let second = cluster.second_mount("mnt1", &[]).unwrap();
    let first = cluster.mount().to_owned();
    (cluster, first, second)
}

fn both(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).unwrap()
}

/// By its path: no mount learns of a writer.
fn cut_by_path(path: &Path, size: u64) {
    const CUT: &str = "import os, sys; os.truncate(sys.argv[1], int(sys.argv[2]))";
    let done = Command::new("python3").args(["-c", CUT]).arg(path).arg(size.to_string()).status();
    assert!(done.unwrap().success());
}

fn size(path: PathBuf) -> u64 {
    fs::metadata(path).unwrap().len()
}

/// Goal: space that is asked for through a descriptor that knows an older, smaller file cuts nothing that another
/// mount has written since, and makes the file longer only where it must.
#[test]
fn allocated_space_cuts_nothing() {
    let (_cluster, a, b) = two_mounts();
    for first in [100, 20_000] {
        let name = format!("f{first}");
        fs::write(a.join(&name), vec![b'x'; first]).unwrap();
        let open = both(&a.join(&name));
        let mut other = OpenOptions::new().append(true).open(b.join(&name)).unwrap();
        other.write_all(&vec![b'y'; 1_000_000]).unwrap();
        drop(other);
        let whole = first as u64 + 1_000_000;
        for (end, expected) in [(2_000, whole), (500_000, whole), (whole + 5, whole + 5)] {
            fallocate(&open, FallocateFlags::empty(), 0, end).unwrap();
            assert_eq!(size(b.join(&name)), expected, "allocated up to {end}");
            assert_eq!(size(a.join(&name)), expected);
        }
        let mut content = vec![b'x'; first];
        content.extend(vec![b'y'; 1_000_000]);
        content.extend([0; 5]);
        assert!(fs::read(b.join(&name)).unwrap() == content);
    }
}

/// Goal: a truncate by another mount stays one, whether this one is asked for the size, writes on, appends or closes,
/// and whether the other one opened the file or cut it by its path.
#[test]
fn a_close_does_not_undo_a_truncate() {
    let (_cluster, a, b) = two_mounts();
    for by_path in [true, false] {
        let name = format!("g{by_path}");
        let cut = |size: u64| match by_path {
            true => cut_by_path(&b.join(&name), size),
            false => drop(OpenOptions::new().write(true).truncate(true).open(b.join(&name)).unwrap()),
        };
        let left = if by_path { 4_096 } else { 0 };
        let open = both(&a.join(&name));
        open.write_all_at(&vec![b'z'; 1 << 20], 0).unwrap();
        cut(left);
        assert_eq!(size(a.join(&name)), left, "seen by the writer");
        drop(open);
        assert_eq!((size(a.join(&name)), size(b.join(&name))), (left, left), "closed");

        let open = both(&a.join(&name));
        open.write_all_at(&vec![b'z'; 1 << 20], 0).unwrap();
        cut(left);
        open.write_all_at(b"late", 10_000).unwrap();
        drop(open);
        assert_eq!((size(a.join(&name)), size(b.join(&name))), (10_004, 10_004), "written after it");
    }
}

/// Goal: a log that another mount copies and cuts goes on at its new end.
#[test]
fn appends_go_on_behind_a_truncate() {
    let (_cluster, a, b) = two_mounts();
    fs::write(a.join("log"), vec![b'a'; 100_000]).unwrap();
    let mut open = OpenOptions::new().append(true).open(a.join("log")).unwrap();
    open.write_all(&vec![b'b'; 50_000]).unwrap();
    let file = OpenOptions::new().read(true).write(true).open(b.join("log")).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 150_000);
    file.set_len(0).unwrap();
    drop(file);
    open.write_all(b"new line").unwrap();
    drop(open);
    assert_eq!(fs::read(b.join("log")).unwrap(), b"new line");
    let mut reader = File::open(a.join("log")).unwrap();
    let mut text = String::new();
    reader.seek(SeekFrom::Start(4)).unwrap();
    reader.read_to_string(&mut text).unwrap();
    assert_eq!(text, "line");
}

/// Goal: a close takes back neither a time that another mount gave the file nor the time of a later write; a write
/// after all that counts again. ctime never falls.
#[test]
fn a_close_takes_no_time_back() {
    let (_cluster, a, b) = two_mounts();
    let open = both(&a.join("h"));
    open.write_all_at(&vec![b'z'; 1 << 17], 0).unwrap();
    let given = UNIX_EPOCH + Duration::from_secs(2_000_000_000);
    let other = both(&b.join("h"));
    other.set_times(FileTimes::new().set_accessed(given).set_modified(given)).unwrap();
    let before = fs::metadata(b.join("h")).unwrap();
    drop((open, other));
    for mount in [&a, &b] {
        let seen = fs::metadata(mount.join("h")).unwrap();
        assert_eq!(seen.modified().unwrap(), given);
        assert!((seen.ctime(), seen.ctime_nsec()) >= (before.ctime(), before.ctime_nsec()));
    }
    let late = both(&a.join("h"));
    late.write_all_at(&vec![b'y'; 1 << 17], 0).unwrap();
    drop(late);
    let seen = fs::metadata(b.join("h")).unwrap().modified().unwrap();
    assert!(seen < SystemTime::now() + Duration::from_secs(60), "{seen:?} is not the time of the last write");

    let (first, second) = (both(&a.join("i")), both(&b.join("i")));
    first.write_all_at(&vec![b'1'; 1 << 17], 0).unwrap();
    second.write_all_at(&vec![b'2'; 1 << 17], 0).unwrap();
    drop(second);
    let newest = fs::metadata(b.join("i")).unwrap().modified().unwrap();
    drop(first);
    assert_eq!(fs::metadata(b.join("i")).unwrap().modified().unwrap(), newest);
}
