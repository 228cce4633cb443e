//! Files that are replaced by a rename over them, without fsync, as editors and package managers do, while their mount is
//! killed.

use super::fresh::two_mounts;
use skep_rig::unmount_lazily;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

/// Programs at once; each replaces a file of its own.
const PROGRAMS: usize = 8;
/// More of them: `SKEP_KILLS=1250` makes ten thousand files.
const KILLS: u64 = 4;
const PIECE: usize = 700;
/// Inline, grown from that, in chunks, in several of them.
const LENGTHS: [usize; 5] = [90, 3_000, 9_000, 60_000, 300_000];

/// What a program writes the so-many-th time: a line that says which it is, and bytes that follow from it.
fn content(program: usize, time: u64) -> Vec<u8> {
    let mut content = format!("{program} {time}\n").into_bytes();
    let length = LENGTHS[(time as usize + program) % LENGTHS.len()];
    let mut word = (program as u64) << 32 | time;
    while content.len() < length {
        // xorshift64
        word ^= word << 13;
        word ^= word >> 7;
        word ^= word << 17;
        content.extend_from_slice(&word.to_le_bytes());
    }
    content
}

fn name(dir: &Path, program: usize) -> PathBuf {
    dir.join(format!("replaced-{program}"))
}

/// Replaces its file until its mount is gone. `done`: the last time that was answered for.
fn replaces(dir: &Path, program: usize, done: &AtomicU64) -> std::io::Result<()> {
    loop {
        let time = done.load(Ordering::Relaxed) + 1;
        let new = dir.join(format!("new-{program}"));
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).open(&new)?;
        for piece in content(program, time).chunks(PIECE) {
            file.write_all(piece)?;
        }
        drop(file);
        fs::rename(&new, name(dir, program))?;
        done.store(time, Ordering::Relaxed);
    }
}

/// Goal: a file that is replaced so has its old content or its new one, whole, whenever the mount is killed; and the new one once
/// the rename was answered.
#[test]
fn old_or_new_whenever_the_mount_is_killed() {
    let kills = std::env::var("SKEP_KILLS").map_or(KILLS, |text| text.parse().unwrap());
    let (cluster, here, there) = two_mounts();
    let done: [AtomicU64; PROGRAMS] = Default::default();
    let mut torn = 0;
    for kill in 0..kills {
        let daemon = cluster.mount_daemon(cluster.mount()).unwrap();
        thread::scope(|scope| {
            for (program, done) in done.iter().enumerate() {
                let here = &here;
                scope.spawn(move || replaces(here, program, done));
            }
            // Anywhere in what they do.
            thread::sleep(Duration::from_millis(60 + kill * 37 % 190));
            daemon.kill().unwrap();
            unmount_lazily(cluster.mount());
        });
        cluster.mount_again(cluster.mount()).unwrap();
        for (program, done) in done.iter().enumerate() {
            let found = fs::read(name(&there, program)).unwrap_or_default();
            let last = done.load(Ordering::Relaxed);
            let which = (last..last + 2).find(|time| found == content(program, *time));
            assert!(
                which.is_some() || found.is_empty() && last == 0,
                "kill {kill}: program {program} was answered for {last}, and {} bytes are there",
                found.len()
            );
            torn += usize::from(which == Some(last + 1));
            done.store(which.unwrap_or(0), Ordering::Relaxed);
        }
    }
    println!("{} files, {torn} of them replaced and not answered for", kills * PROGRAMS as u64);
}
