//! Holes, copies, zeroed ranges.

use super::{bytes, plan, start};
use rustix::fs::{FallocateFlags, SeekFrom, copy_file_range, fallocate, seek};
use rustix::io::Errno;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::time::{Duration, Instant};

fn new_file(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).create_new(true).open(path).unwrap()
}

fn data(file: &File, at: u64) -> Result<u64, Errno> {
    seek(file, SeekFrom::Data(at))
}

fn hole(file: &File, at: u64) -> Result<u64, Errno> {
    seek(file, SeekFrom::Hole(at))
}

/// Goal: SEEK_DATA and SEEK_HOLE tell the data of a striped sparse file of a tebibyte, quickly; nothing that
/// was written counts as a hole; the end is one, and beyond it is nothing.
#[test]
fn holes_are_found() {
    let cluster = start(plan());
    let file = new_file(&cluster.mount().join("sparse"));
    let end = (1 << 40) + 12_345;
    let parts =
        [(0u64, 10_000usize), (70 << 20, 3 << 20), (2 << 30, 5 << 20), (900 << 30, 4_096), (end - 100, 100)];
    for (at, len) in parts {
        file.write_all_at(&bytes(1, len), at).unwrap();
    }
    let began = Instant::now();
    let mut at = 0;
    for (start, len) in parts {
        let found = data(&file, at).unwrap();
        assert!(found <= start && start - found < 128 << 10, "data from {at}: {found}, written at {start}");
        at = hole(&file, start).unwrap();
        let after = start + len as u64;
        assert!(at >= after && at - after < 128 << 10, "hole from {start}: {at}, written to {after}");
        // In the middle of data, data is here.
        assert_eq!(data(&file, start + len as u64 / 2), Ok(start + len as u64 / 2));
    }
    assert_eq!(
        (hole(&file, end - 1), data(&file, end), hole(&file, end)),
        (Ok(end), Err(Errno::NXIO), Err(Errno::NXIO))
    );
    file.set_len(2 << 40).unwrap();
    assert_eq!(data(&file, end + (1 << 20)), Err(Errno::NXIO));
    assert_eq!(hole(&file, 1 << 41 >> 1 | 1 << 30), Ok(1 << 40 | 1 << 30));
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    let small = new_file(&cluster.mount().join("small"));
    small.write_all_at(b"inline", 0).unwrap();
    assert_eq!((data(&small, 2), hole(&small, 2)), (Ok(2), Ok(6)));
}

fn written_bytes(cluster: &super::Running) -> u64 {
    let stats = cluster.admin(["target", "list", "--output", "json"]).unwrap();
    drop(stats);
    let text = cluster.admin(["stats", "--output", "json"]).unwrap();
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    fn sum(value: &serde_json::Value) -> u64 {
        match value {
            serde_json::Value::Object(map) => map
                .iter()
                .map(|(key, value)| match key.as_str() {
                    "written_bytes" => value.as_u64().unwrap_or(0),
                    _ => sum(value),
                })
                .sum(),
            serde_json::Value::Array(list) => list.iter().map(sum).sum(),
            _ => 0,
        }
    }
    sum(&value)
}

/// Goal: copy_file_range gives the bytes that a read gives, holes included, between files of every size,
/// from and to any offset, and what the mount moves itself is little where the servers can copy.
#[test]
fn copies() {
    let cluster = start(plan());
    let source_path = cluster.mount().join("source");
    let source = new_file(&source_path);
    let len = 40 << 20;
    let mut content = bytes(2, len);
    content[5 << 20..9 << 20].fill(0);
    source.write_all_at(&content[..5 << 20], 0).unwrap();
    source.write_all_at(&content[9 << 20..], 9 << 20).unwrap();
    let before = written_bytes(&cluster);
    let copy_path = cluster.mount().join("copy");
    let copy = new_file(&copy_path);
    let (mut from, mut to) = (0u64, 0u64);
    while copy_file_range(&source, Some(&mut from), &copy, Some(&mut to), len).unwrap() > 0 {}
    assert_eq!((from, to), (len as u64, len as u64));
    drop(copy);
    assert!(fs::read(&copy_path).unwrap() == content);
    let copied = fs::metadata(&copy_path).unwrap();
    assert_eq!(copied.len(), len as u64);
    let taken = copied.blocks() * 512;
    assert!(
        (36 << 20..len as u64).contains(&taken),
        "the hole is one in the copy, and nothing else: {taken}"
    );
    let moved = written_bytes(&cluster) - before;
    assert!(moved < 1 << 20, "{moved} bytes were sent to the servers for a copy of {len}");
    // Parts, over chunk borders, into something that is there.
    let into_path = cluster.mount().join("into");
    for (from, to, part) in [(100u64, 7u64, 3_000usize), (1 << 20, 12_345, 3 << 20), (33, 1 << 20, 9 << 20)] {
        let into =
            OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&into_path).unwrap();
        let mut expected = bytes(9, 2 << 20);
        into.write_all_at(&expected, 0).unwrap();
        let (mut at, mut there, mut left) = (from, to, part);
        while left > 0 {
            left -= copy_file_range(&source, Some(&mut at), &into, Some(&mut there), left).unwrap();
        }
        expected.resize(expected.len().max(to as usize + part), 0);
        expected[to as usize..][..part].copy_from_slice(&content[from as usize..][..part]);
        assert!(fs::read(&into_path).unwrap() == expected, "{from} {to} {part}");
    }
    let mut end = len as u64;
    assert_eq!(copy_file_range(&source, Some(&mut end), &source, Some(&mut 0), 10), Ok(0));
}

/// Goal: zeroed ranges read as zeros and have their space, with and without growth, in files of every kind.
#[test]
fn zeroed_ranges() {
    let cluster = start(plan());
    let keep = FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE;
    for len in [3_000u64, 6 << 20] {
        let path = cluster.mount().join(format!("f{len}"));
        let file = new_file(&path);
        let mut content = bytes(4, len as usize);
        file.write_all_at(&content, 0).unwrap();
        fallocate(&file, FallocateFlags::ZERO_RANGE, len / 4, len / 2).unwrap();
        content[len as usize / 4..][..len as usize / 2].fill(0);
        fallocate(&file, keep, len - 10, 10_000).unwrap();
        content[len as usize - 10..].fill(0);
        assert!(fs::read(&path).unwrap() == content, "{len} bytes");
        fallocate(&file, FallocateFlags::ZERO_RANGE, len - 5, 3 << 20).unwrap();
        content.resize(len as usize - 5 + (3 << 20), 0);
        file.sync_all().unwrap();
        assert!(fs::read(&path).unwrap() == content, "{len} bytes, grown");
        assert!(fs::metadata(&path).unwrap().blocks() * 512 >= 3 << 20, "space is reserved");
        let moved = fallocate(&file, FallocateFlags::COLLAPSE_RANGE, 0, 4_096);
        assert_eq!(moved, Err(Errno::OPNOTSUPP));
    }
}
