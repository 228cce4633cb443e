//! Small writes that wait for one another: what they cost, what others see, and what a mount takes with it.

use super::fresh::{answered_by, two_mounts};
use super::http::{metrics, ports};
use super::{Running, bytes};
use rustix::process::Signal;
use skep_rig::{PATIENCE, until};
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

const PIECE: usize = 512;
/// Leases hold for 4 s and a margin; who is silent for longer is passed over.
const PASSED: Duration = Duration::from_secs(9);
/// A mount's tellers may have brought all that it kept to its targets just before it is stopped or killed: once more then.
const TRIES: usize = 5;

fn writes(cluster: &Running) -> u64 {
    answered_by(cluster, "storaged").get("WriteChunk").copied().unwrap_or(0)
}

/// Small writes that stayed with the first mount, as it counts them.
pub(super) fn gathered(cluster: &Running) -> f64 {
    metrics(ports(cluster)["mount"])
        .value("skep_mount_answered_from_memory_total", &[("what", "gathered")])
        .unwrap()
}

/// Waits until small writes to new files of the first mount stay with it: targets that have just begun promise room only where
/// there is plenty.
pub(super) fn until_gathered(cluster: &Running, dir: &Path) {
    let all = bytes(9, 64 * PIECE);
    let path = dir.join("probe");
    until("small writes stay with the mount", PATIENCE, || {
        let before = gathered(cluster);
        let (mut file, at) = begun(&path, &all);
        write_to(&mut file, &all, at, all.len());
        drop(file);
        fs::remove_file(&path).unwrap();
        let stayed = gathered(cluster) - before;
        if stayed >= 16.0 { Ok(()) } else { Err(format!("{stayed} of 32")) }
    })
    .unwrap();
}

/// Makes a file with the first bytes of these, so many that it is in chunks.
fn begun(path: &Path, all: &[u8]) -> (File, usize) {
    let mut file = OpenOptions::new().read(true).write(true).create_new(true).open(path).unwrap();
    let begun = 32 * PIECE;
    file.write_all(&all[..begun]).unwrap();
    (file, begun)
}

fn write_to(file: &mut File, all: &[u8], from: usize, to: usize) {
    for piece in all[from..to].chunks(PIECE) {
        file.write_all(piece).unwrap();
    }
}

/// Goal: small writes in order cost a few requests to storage servers for each MiB, and all of it is read back, here while the file
/// is open, and by another mount.
#[test]
fn small_writes_go_together() {
    let (cluster, here, there) = two_mounts();
    let all = bytes(1, 4 << 20);
    let mut number = 0;
    // Targets that have just begun promise room only where there is plenty.
    until("small writes wait for one another", PATIENCE, || {
        let before = writes(&cluster);
        number += 1;
        let (mut file, at) = begun(&here.join(format!("{number}")), &all);
        write_to(&mut file, &all, at, 2 * at);
        let cost = writes(&cluster) - before;
        if cost < 32 { Ok(()) } else { Err(format!("{cost} requests for 33 writes")) }
    })
    .unwrap();
    let before = writes(&cluster);
    let (mut file, at) = begun(&here.join("f"), &all);
    write_to(&mut file, &all, at, all.len());
    assert_eq!(file.metadata().unwrap().len(), all.len() as u64);
    let cost = writes(&cluster) - before;
    assert!(cost < 400, "{cost} requests for {} writes", all.len() / PIECE);
    assert!(fs::read(here.join("f")).unwrap() == all);
    drop(file);
    assert!(fs::read(there.join("f")).unwrap() == all);
}

/// Goal: whenever another mount looks it finds all that was written until then, and what comes behind that as well.
#[test]
fn another_mount_misses_nothing() {
    let (_cluster, here, there) = two_mounts();
    let all = bytes(2, 64 << 10);
    for number in 0..40 {
        let name = format!("{number}");
        let (mut file, at) = begun(&here.join(&name), &all);
        let looked = at + (number * 37 + 1) * PIECE % (all.len() - at);
        write_to(&mut file, &all, at, looked);
        match number % 3 {
            0 => assert_eq!(fs::metadata(there.join(&name)).unwrap().len(), looked as u64, "{number}"),
            1 => assert!(fs::read(there.join(&name)).unwrap() == all[..looked], "{number}"),
            _ => {
                let theirs = OpenOptions::new().write(true).open(there.join(&name)).unwrap();
                assert_eq!(theirs.metadata().unwrap().len(), looked as u64, "{number}");
            }
        }
        write_to(&mut file, &all, looked, all.len());
        assert!(fs::read(there.join(&name)).unwrap() == all, "{number}");
    }
}

/// Goal: a mount that is killed takes what was written within a second or so, and no more: what is left is a beginning of what was
/// written, with all that was synced. It does take something, or this says nothing of what is kept.
#[test]
fn a_killed_mount_leaves_a_beginning() {
    let (cluster, here, there) = two_mounts();
    let all = bytes(3, 8 << 20);
    until_gathered(&cluster, &here);
    let took = (0..TRIES).any(|round| {
        let (name, synced_name) = (format!("f{round}"), format!("synced{round}"));
        let daemon = cluster.mount_daemon(cluster.mount()).unwrap();
        let (mut file, mut at) = begun(&here.join(&name), &all);
        let (mut synced, _) = begun(&here.join(&synced_name), &all);
        write_to(&mut synced, &all, at, 2 * at);
        synced.sync_all().unwrap();
        write_to(&mut synced, &all, 2 * at, 3 * at);
        let started = Instant::now();
        let mut old = 0;
        while started.elapsed() < Duration::from_secs(3) {
            let next = (at + PIECE).min(all.len());
            write_to(&mut file, &all, at, next);
            at = next;
            if started.elapsed() < Duration::from_millis(500) {
                old = at;
            }
            if at < all.len() {
                std::thread::sleep(Duration::from_micros(200));
            }
        }
        daemon.kill().unwrap();
        drop((file, synced));
        skep_rig::unmount_lazily(cluster.mount());
        cluster.mount_again(cluster.mount()).unwrap();
        let found = fs::read(there.join(&name)).unwrap();
        assert!(found.len() >= old && found.len() <= at, "{} of {at}, {old} of which old", found.len());
        assert!(found == all[..found.len()]);
        let synced = fs::read(there.join(&synced_name)).unwrap();
        assert!(synced.len() >= 64 * PIECE && synced == all[..synced.len()], "{}", synced.len());
        found.len() < at
    });
    assert!(took, "the mount had kept nothing in any of {TRIES} kills");
}

/// Goal: nobody waits for a minute for a mount that stands still: it is passed over. What it had kept is told when it goes on, if
/// nobody has changed the file meanwhile; else it is lost, and the next fsync says so.
#[test]
fn who_stands_still_is_passed_over() {
    let (cluster, here, there) = two_mounts();
    let all = bytes(4, 64 << 10);
    until_gathered(&cluster, &here);
    let both_kept = (0..TRIES).any(|round| {
        let names = ["kept", "changed"].map(|name| format!("{name}{round}"));
        stands_still(&cluster, (&here, &there), names.each_ref().map(String::as_str), &all)
    });
    assert!(both_kept, "the mount had kept nothing in any of {TRIES} rounds");
}

/// One round; true if the mount had kept some of both files when it was stopped.
fn stands_still(
    cluster: &Running,
    (here, there): (&Path, &Path),
    [kept_name, changed_name]: [&str; 2],
    all: &[u8],
) -> bool {
    let daemon = cluster.mount_daemon(cluster.mount()).unwrap();
    let (mut kept, at) = begun(&here.join(kept_name), all);
    let (mut changed, _) = begun(&here.join(changed_name), all);
    write_to(&mut kept, all, at, all.len());
    write_to(&mut changed, all, at, all.len());
    daemon.signal(Signal::STOP).unwrap();
    let asked = Instant::now();
    let shown = fs::metadata(there.join(kept_name)).unwrap().len() as usize;
    assert!(asked.elapsed() < PASSED, "{:?}", asked.elapsed());
    assert!(fs::read(there.join(kept_name)).unwrap() == all[..shown], "what targets have is shown");
    fs::set_permissions(there.join(changed_name), Permissions::from_mode(0o640)).unwrap();
    assert!(asked.elapsed() < 2 * PASSED, "{:?}", asked.elapsed());
    let left = fs::metadata(there.join(changed_name)).unwrap().len() as usize;
    daemon.signal(Signal::CONT).unwrap();
    kept.sync_all().unwrap();
    until("it is told late", PATIENCE, || {
        if fs::read(there.join(kept_name)).unwrap() == all { Ok(()) } else { Err("not yet".to_owned()) }
    })
    .unwrap();
    let lost = changed.sync_all();
    let found = fs::read(there.join(changed_name)).unwrap();
    assert!(found == all[..found.len()]);
    assert!(lost.is_err() || found == all, "{} bytes are lost, and nobody says so", all.len() - found.len());
    if left < all.len() {
        assert!(lost.is_err() && found.len() == left, "what was changed meanwhile is not written over");
    }
    assert_eq!(fs::metadata(here.join(changed_name)).unwrap().mode() & 0o777, 0o640);
    shown < all.len() && left < all.len()
}

/// Goal: a file that was there before, written to in small pieces or appended to, is gathered as a new one once nobody else has it
/// open; and at any time another mount is shown all that was written until then.
#[test]
fn a_file_that_was_there_before() {
    let (cluster, here, there) = two_mounts();
    let all = bytes(4, 8 << 20);
    for (name, appends) in [("written", false), ("appended", true)] {
        // Made by the other mount, and closed.
        let (_, mut at) = begun(&there.join(name), &all);
        let mut file = OpenOptions::new().append(appends).write(true).open(here.join(name)).unwrap();
        if !appends {
            std::io::Seek::seek(&mut file, std::io::SeekFrom::End(0)).unwrap();
        }
        let mut looks = 0;
        until("small writes wait for one another", PATIENCE, || {
            let before = writes(&cluster);
            let next = at + 16 * PIECE;
            write_to(&mut file, &all, at, next);
            at = next;
            let cost = writes(&cluster) - before;
            // Shown at once, whether some of it waits or not. That ends a hold: now and then, so that another one may begin.
            looks += 1;
            if looks % 128 == 0 {
                assert_eq!(fs::metadata(there.join(name)).unwrap().len(), at as u64, "{name}");
            }
            std::thread::sleep(Duration::from_millis(20));
            if cost < 4 { Ok(()) } else { Err(format!("{name}: {cost} requests for 16 writes")) }
        })
        .unwrap();
        assert_eq!(fs::metadata(there.join(name)).unwrap().len(), at as u64, "{name}");
        write_to(&mut file, &all, at, at + 9 * PIECE);
        at += 9 * PIECE;
        assert!(fs::read(there.join(name)).unwrap() == all[..at], "{name}");
        drop(file);
        assert!(fs::read(there.join(name)).unwrap() == all[..at], "{name}");
    }
}

/// Goal: who only looks, again and again, is shown all that was written until then, and small writes go together all the same.
#[test]
fn looks_do_not_part_small_writes() {
    let (cluster, here, there) = two_mounts();
    let all = bytes(3, 1 << 20);
    let mut number = 0;
    until("small writes wait for one another beside looks", PATIENCE, || {
        number += 1;
        let name = format!("looked{number}");
        let (mut file, mut at) = begun(&here.join(&name), &all);
        let before = writes(&cluster);
        for _ in 0..4 {
            write_to(&mut file, &all, at, at + 64 * PIECE);
            at += 64 * PIECE;
            assert_eq!(fs::metadata(there.join(&name)).unwrap().len(), at as u64);
        }
        // Ended by the first look, three of four would have gone by themselves.
        let cost = writes(&cluster) - before;
        if cost < 64 { Ok(()) } else { Err(format!("{cost} requests for 256 writes")) }
    })
    .unwrap();
}
