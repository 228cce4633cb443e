//! A shard moves to another metadata server while programs use it.

use super::{Running, bytes, plan, start_with_room};
use skep_rig::{Plan, patiently};
use std::fs::{self, File};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

fn two() -> Plan {
    Plan { metas: 2, shards: 4, ..plan() }
}

/// State and server of a shard, as `skep shard list` has them.
fn place(cluster: &Running, shard: u64) -> (String, String) {
    let list = cluster.admin(["shard", "list", "--output", "json"]).unwrap();
    let rows: serde_json::Value = serde_json::from_str(&list).unwrap();
    let rows = rows.as_array().unwrap();
    let row = rows.iter().find(|row| row["id"] == shard).unwrap();
    let text = |field: &str| row[field].as_str().unwrap_or_default().to_owned();
    (text("state"), text("server"))
}

fn other(server: &str) -> &'static str {
    if server == "metad-1" { "metad-2" } else { "metad-1" }
}

fn give(cluster: &Running, shard: u64, to: &str) {
    cluster.admin(["shard", "give", &shard.to_string(), to]).unwrap();
}

fn arrives(cluster: &Running, shard: u64, at: &str) {
    patiently("the shard is served elsewhere", || place(cluster, shard) == ("active".into(), at.into()))
        .unwrap();
}

fn directory(cluster: &Running, shard: u64) -> PathBuf {
    let path = cluster.mount().join(format!("on-{shard}"));
    cluster.admin(["dir", "create", "--shard", &shard.to_string(), path.to_str().unwrap()]).unwrap();
    path
}

/// Creates, renames and removes, with a look at each, until it is told to stop. The longest that one took.
fn work(dir: &Path, stop: &AtomicBool, done: &AtomicU32) -> (u32, Duration) {
    let (mut rounds, mut longest) = (0, Duration::ZERO);
    while !stop.load(Ordering::Relaxed) {
        let begun = Instant::now();
        let (from, to) = (dir.join(format!("a{rounds}")), dir.join(format!("b{rounds}")));
        fs::write(&from, rounds.to_string()).unwrap();
        fs::rename(&from, &to).unwrap();
        assert_eq!(fs::read_to_string(&to).unwrap(), rounds.to_string());
        if rounds % 3 != 0 {
            fs::remove_file(&to).unwrap();
        }
        longest = longest.max(begun.elapsed());
        rounds += 1;
        done.store(rounds, Ordering::Relaxed);
    }
    (rounds, longest)
}

/// Goal: whatever programs do on a shard goes on over its moves: there, back, and there again, with files open, locked and
/// deleted while they are open. The shard beside it serves as if nothing happened.
#[test]
fn programs_go_on_over_moves() {
    let cluster = start_with_room(two());
    let (moving, staying) = (directory(&cluster, 2), directory(&cluster, 3));
    let content = bytes(7, 3 << 20);
    fs::write(moving.join("large"), &content).unwrap();
    for number in 0..2_500 {
        File::create(moving.join(format!("many{number}"))).unwrap();
    }
    let mut open =
        File::options().create(true).truncate(true).read(true).write(true).open(moving.join("open")).unwrap();
    let mut gone =
        File::options().create(true).truncate(true).read(true).write(true).open(moving.join("gone")).unwrap();
    gone.write_all(b"still here").unwrap();
    fs::remove_file(moving.join("gone")).unwrap();
    let locked = File::create(moving.join("locked")).unwrap();
    rustix::fs::flock(&locked, rustix::fs::FlockOperation::LockExclusive).unwrap();

    let stop = AtomicBool::new(false);
    let done = [const { AtomicU32::new(0) }; 2];
    let rounds = || done.each_ref().map(|done| done.load(Ordering::Relaxed));
    let (moved, stayed) = thread::scope(|scope| {
        let moved = scope.spawn(|| work(&moving, &stop, &done[0]));
        let stayed = scope.spawn(|| work(&staying, &stop, &done[1]));
        let (_, mut at) = place(&cluster, 2);
        for _ in 0..3 {
            let before = rounds();
            patiently("both go on", || rounds().iter().zip(before).all(|(now, before)| *now >= before + 5))
                .unwrap();
            let to = other(&at);
            give(&cluster, 2, to);
            arrives(&cluster, 2, to);
            open.write_all(b"more").unwrap();
            open.sync_all().unwrap();
            at = to.to_owned();
        }
        stop.store(true, Ordering::Relaxed);
        (moved.join().unwrap(), stayed.join().unwrap())
    });
    eprintln!("rounds on the shard that moved {moved:?}, on the one that stayed {stayed:?}");
    assert!(moved.0 > 10 && stayed.0 > 10);
    assert_eq!(fs::read(moving.join("large")).unwrap(), content);
    assert_eq!(fs::read_to_string(moving.join("open")).unwrap(), "moremoremore");
    gone.rewind().unwrap();
    let mut text = String::new();
    gone.read_to_string(&mut text).unwrap();
    assert_eq!(text, "still here");
    let second = File::open(moving.join("locked")).unwrap();
    assert!(rustix::fs::flock(&second, rustix::fs::FlockOperation::NonBlockingLockExclusive).is_err());
    drop(locked);
    patiently("the lock is free", || {
        rustix::fs::flock(&second, rustix::fs::FlockOperation::NonBlockingLockExclusive).is_ok()
    })
    .unwrap();
    let kept = fs::read_dir(&moving).unwrap().filter(|entry| {
        entry.as_ref().is_ok_and(|entry| entry.file_name().to_string_lossy().starts_with('b'))
    });
    assert_eq!(kept.count() as u32, moved.0.div_ceil(3));
    drop((open, gone, second));
    cluster.down().unwrap();
    cluster.up().unwrap();
    assert_eq!(fs::read(moving.join("large")).unwrap(), content);
    assert_eq!(
        fs::read_dir(&moving).unwrap().filter(|entry| entry.is_ok()).count(),
        2_503 + kept_of(moved.0)
    );
}

fn kept_of(rounds: u32) -> usize {
    rounds.div_ceil(3) as usize
}

fn kill(cluster: &Running, name: &str) {
    let is_it =
        |daemon: &&skep_rig::Daemon| daemon.words.iter().any(|word| word.to_string_lossy().contains(name));
    cluster.of("metad").iter().find(is_it).unwrap().kill().unwrap();
}

/// Goal: killed in the middle of a move, the server that had the shard and the one that is to have it go on with it; what was
/// there arrives.
#[test]
fn moves_survive_kills() {
    let cluster = start_with_room(two());
    let dir = directory(&cluster, 2);
    for number in 0..4_000 {
        File::create(dir.join(format!("many{number}"))).unwrap();
    }
    fs::write(dir.join("file"), b"content").unwrap();
    let (_, mut at) = place(&cluster, 2);
    for (round, pause) in [0, 20, 60, 120].into_iter().enumerate() {
        let to = other(&at);
        give(&cluster, 2, to);
        // Where in the move the kill falls; wherever it does, the rest must hold.
        thread::sleep(Duration::from_millis(pause));
        let victim = if round % 2 == 0 { to } else { at.as_str() };
        kill(&cluster, victim);
        cluster.up().unwrap();
        arrives(&cluster, 2, to);
        assert_eq!(fs::read(dir.join("file")).unwrap(), b"content");
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 4_001);
        at = to.to_owned();
    }
}
