//! Full targets.

use super::pools::{Disk, directory_of, set};
use super::{bytes, plan, start};
use rustix::fs::{FallocateFlags, fallocate, statvfs};
use rustix::io::Errno;
use skep_rig::{MemoryDisk, PATIENCE, Plan, until};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;

/// Writes until there is an error; gives it and how much was written.
fn fill(file: &File, part: &[u8]) -> (io::Error, u64) {
    for number in 0..1_000u64 {
        if let Err(error) = file.write_all_at(part, number * part.len() as u64) {
            return (error, number * part.len() as u64);
        }
    }
    panic!("the target never became full");
}

/// Goal: a writer on full targets gets ENOSPC, at the write; what was written before is intact, small
/// files still work, and after space was freed so do large ones.
#[test]
fn full_targets_give_enospc_and_lose_nothing() {
    let small = MemoryDisk::new(512).unwrap();
    // Targets keep 384 MiB free of the 512, so that the daemons' own state always has room.
    let plan = Plan { base: Some(small.path().to_owned()), ..plan() }.with("SKEP_STORAGED_RESERVE", "384MiB");
    let cluster = start(plan);
    let before = bytes(1, 20 << 20);
    let mut file = File::create(cluster.mount().join("before")).unwrap();
    file.write_all(&before).unwrap();
    file.sync_all().unwrap();
    let part = bytes(2, 1 << 20);
    let filler = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .open(cluster.mount().join("filler"))
        .unwrap();
    let (error, written) = fill(&filler, &part);
    assert_eq!(Errno::from_io_error(&error), Some(Errno::NOSPC), "{error}");
    assert!((20 << 20..160 << 20).contains(&written), "{written} bytes were written");
    filler.sync_all().unwrap();
    let mut found = vec![0; part.len()];
    for number in 0..written / part.len() as u64 {
        filler.read_exact_at(&mut found, number * part.len() as u64).unwrap();
        assert!(found == part, "MiB {number} of the filler");
    }
    assert!(fs::read(cluster.mount().join("before")).unwrap() == before);
    fs::write(cluster.mount().join("inline"), b"fits into the metadata").unwrap();
    assert_eq!(fs::read(cluster.mount().join("inline")).unwrap(), b"fits into the metadata");
    drop(filler);
    fs::remove_file(cluster.mount().join("filler")).unwrap();
    // Chunks are deleted in the background.
    until("space is free again", PATIENCE, || {
        fs::write(cluster.mount().join("after"), bytes(3, 10 << 20)).map_err(|e| e.to_string())
    })
    .unwrap();
    assert!(fs::read(cluster.mount().join("after")).unwrap() == bytes(3, 10 << 20));
    drop(cluster);
    drop(small);
}

/// Goal: a program that has reserved nearly all that is free writes every byte of it, although others have filled the rest
/// until they were refused; the disks below keep their reserve.
#[test]
fn a_reservation_is_kept_while_others_fill_the_disks() {
    let reserve = 32 << 20;
    let cluster = start(plan().with("SKEP_STORAGED_RESERVE", "32MiB"));
    set(&cluster, &["pool", "create", "small", "--targets", "101,102"]);
    let directories = [101, 102].map(|id| directory_of(&cluster, id));
    cluster.down().unwrap();
    let disks = directories.each_ref().map(|directory| {
        let image = cluster.beside(&format!("{}.image", directory.file_name().unwrap().display()));
        Disk::ext4_under(directory, 160, &image)
    });
    let left = || {
        directories
            .each_ref()
            .map(|directory| statvfs(directory).map(|at| at.f_bavail * at.f_frsize).unwrap())
    };
    cluster.up().unwrap();
    let dir = cluster.mount().join("dir");
    set(&cluster, &["dir", "create", dir.to_str().unwrap(), "--pool", "small"]);
    set(&cluster, &["entry", "set", dir.to_str().unwrap(), "--targets", "2"]);
    let parts = left().map(|left| (left - reserve) >> 20).iter().min().unwrap() * 2 * 8 / 10;
    let new = |name| File::options().read(true).write(true).create_new(true).open(dir.join(name)).unwrap();
    let file = new("reserved");
    fallocate(&file, FallocateFlags::empty(), 0, parts << 20).unwrap();
    for name in ["filler", "another"] {
        let (error, _) = fill(&new(name), &bytes(9, 1 << 20));
        assert_eq!(Errno::from_io_error(&error), Some(Errno::NOSPC), "{error}");
    }
    let part = |number: u64| bytes(number as u32, 1 << 20);
    for number in 0..parts {
        let written = file.write_all_at(&part(number), number << 20);
        written.unwrap_or_else(|e| panic!("MiB {number} of {parts}: {e}"));
    }
    file.sync_all().unwrap();
    let mut found = vec![0; 1 << 20];
    for number in 0..parts {
        file.read_exact_at(&mut found, number << 20).unwrap();
        assert!(found == part(number), "MiB {number} of {parts}");
    }
    // Up to 8 MiB are written between two looks at the free space, and what was on its way then.
    let slack = 16 << 20;
    assert!(left().iter().all(|left| left + slack >= reserve), "{:?} bytes are left", left());
    drop(file);
    drop(cluster);
    drop(disks);
}

/// Goal: servers that are killed while their disk is full to the last byte start on it, and what is there is read.
#[test]
fn daemons_start_on_a_full_disk() {
    let small = MemoryDisk::new(512).unwrap();
    let plan = Plan { base: Some(small.path().to_owned()), ..plan() }.with("SKEP_STORAGED_RESERVE", "64MiB");
    let cluster = start(plan);
    fs::write(cluster.mount().join("before"), bytes(1, 300_000)).unwrap();
    fs::write(cluster.mount().join("small"), b"in the metadata").unwrap();
    let filler = small.path().join("filler");
    let mut file = File::create(&filler).unwrap();
    for size in [1 << 20, 1 << 12, 1] {
        while file.write_all(&vec![1; size]).is_ok() {}
    }
    let logs = tempfile::tempdir().unwrap();
    let mut children = Vec::new();
    let daemons =
        [("mgmtd", "mgmtd"), ("storaged", "storaged-1"), ("storaged", "storaged-2"), ("metad", "metad-1")];
    for (service, name) in daemons {
        let config = cluster.dir().join(format!("etc/{name}.toml"));
        let old = cluster.of(service).into_iter().find(|old| old.words.iter().any(|word| *word == *config));
        old.unwrap().kill().unwrap();
        let log = File::create(logs.path().join(name)).unwrap();
        let mut command = cluster.command([service.as_ref(), "--config".as_ref(), config.as_os_str()]);
        children.push(command.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap());
        until("it serves", PATIENCE, || {
            let said = fs::read_to_string(logs.path().join(name)).unwrap();
            if said.contains("ready: ") { Ok(()) } else { Err(said) }
        })
        .unwrap();
    }
    assert!(fs::read(cluster.mount().join("before")).unwrap() == bytes(1, 300_000));
    assert_eq!(fs::read(cluster.mount().join("small")).unwrap(), b"in the metadata");
    fs::remove_file(&filler).unwrap();
    for mut child in children {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    cluster.up().unwrap();
    assert!(fs::read(cluster.mount().join("before")).unwrap() == bytes(1, 300_000));
}
