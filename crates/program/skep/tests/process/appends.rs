//! O_APPEND by writers on two mounts.

use super::{plan, start};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Writer, number, length: 12 bytes before each record's content.
const HEADER: usize = 12;
const MOUNTS: u32 = 2;
const WRITERS: u32 = 4;

fn record(writer: u32, number: u32, len: usize) -> Vec<u8> {
    let mut record = Vec::with_capacity(HEADER + len);
    for word in [writer, number, len as u32] {
        record.extend_from_slice(&word.to_le_bytes());
    }
    record.extend((0..len).map(|at| (writer as usize * 31 + number as usize * 7 + at) as u8 | 1));
    record
}

fn appender(path: &Path) -> File {
    OpenOptions::new().append(true).create(true).open(path).unwrap()
}

/// Every record of every writer is there once, whole, and nothing else.
fn check(path: &Path, numbers: u32) {
    let content = fs::read(path).unwrap();
    let mut seen = BTreeMap::new();
    let mut at = 0;
    while at < content.len() {
        let word = |n: usize| u32::from_le_bytes(content[at + 4 * n..][..4].try_into().unwrap());
        let (writer, number, len) = (word(0), word(1), word(2) as usize);
        assert!(writer < MOUNTS * WRITERS && number < numbers, "at {at}: no record begins here");
        assert!(content[at..at + HEADER + len] == record(writer, number, len), "at {at}: mixed");
        if let Some(first) = seen.insert((writer, number), at) {
            panic!(
                "record {number} of writer {writer} is there twice: at {first} and at {at}, {len} bytes each"
            );
        }
        at += HEADER + len;
    }
    assert_eq!(seen.len() as u32, MOUNTS * WRITERS * numbers, "records are lost");
}

fn race(mounts: &[PathBuf], name: &str, numbers: u32, len: impl Fn(u32, u32) -> usize + Sync) {
    std::thread::scope(|scope| {
        for writer in 0..MOUNTS * WRITERS {
            let (path, len) = (mounts[(writer % MOUNTS) as usize].join(name), &len);
            scope.spawn(move || {
                let mut file = appender(&path);
                for number in 0..numbers {
                    // One write each: that is what is promised to stay whole.
                    let record = record(writer, number, len(writer, number));
                    assert_eq!(file.write(&record).unwrap(), record.len());
                }
            });
        }
    });
    for mount in mounts {
        check(&mount.join(name), numbers);
    }
}

/// Goal: records of 100 bytes to 1 MiB, appended by four writers on each of two mounts, are all there,
/// whole and once: small files, files that grow out of the metadata meanwhile, and long records over
/// chunk borders.
#[test]
fn nothing_is_lost_or_mixed() {
    let cluster = start(plan());
    let second = cluster.second_mount("mnt1", &[]).unwrap();
    let mounts = [cluster.mount().to_owned(), second];
    race(&mounts, "small", 5, |_, _| 88);
    race(&mounts, "growing", 60, |writer, number| 100 + (writer * 37 + number * 113) as usize % 3_000);
    // The kernel cuts a write whose buffer is not aligned to pages one page below a mebibyte.
    race(&mounts, "long", 8, |writer, number| (1 << 20) - 4_200 - (writer * 1_000 + number * 77) as usize);
}

/// Goal: an appender on one mount sees what the other appended, a truncate in between begins anew at its
/// end, and a descriptor of its own mount reads everything.
#[test]
fn taking_turns() {
    let cluster = start(plan());
    let second = cluster.second_mount("mnt1", &[]).unwrap();
    let paths = [cluster.mount().join("log"), second.join("log")];
    let mut files = [appender(&paths[0]), appender(&paths[1])];
    let mut expected = Vec::new();
    for turn in 0..40usize {
        let line = vec![b'a' + (turn % 26) as u8; 1 + turn * 97 % 4_000];
        files[turn % 2].write_all(&line).unwrap();
        expected.extend_from_slice(&line);
        if turn % 13 == 12 {
            let cut = expected.len() / 3;
            files[(turn + 1) % 2].set_len(cut as u64).unwrap();
            expected.truncate(cut);
        }
        for path in &paths {
            assert!(fs::read(path).unwrap() == expected, "turn {turn}, {}", path.display());
        }
    }
}

/// Goal: a killed metadata server loses no reservation: what is appended before, during and after is whole.
#[test]
fn over_a_restart() {
    let cluster = start(plan());
    let second = cluster.second_mount("mnt1", &[]).unwrap();
    let mounts = [cluster.mount().to_owned(), second];
    std::thread::scope(|scope| {
        let racing =
            scope.spawn(|| race(&mounts, "log", 150, |writer, number| 500 + (writer + number) as usize * 60));
        for _ in 0..2 {
            std::thread::sleep(std::time::Duration::from_millis(400));
            cluster.one("metad").unwrap().kill().unwrap();
            cluster.up().unwrap();
        }
        racing.join().unwrap();
    });
}
