//! A shard moves to another metadata server while programs use it.

use super::{Running, bytes, plan, start_with_room};
use skep_rig::{Plan, patiently};
use std::fs::{self, File};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
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

/// Operations of one kind that must have been seen before their times are compared.
const SAMPLES: usize = 300;
/// Moves that are made, and those after which so few operations beside them are a failure by themselves.
const MOVES_LEAST: u32 = 3;
const MOVES_MOST: u32 = 40;
/// Beside a move, 99 of 100 operations take no longer than this many times what they take without one, and this much
/// more: a machine that does other work too gives and takes so much by itself.
const TIMES: u32 = 3;
const MORE: Duration = Duration::from_millis(20);

/// Programs at work on two shards, of which one moves now and then.
#[derive(Default)]
struct Work {
    stop: AtomicBool,
    /// Moves begun and ended: while it is odd, a shard is moving.
    turns: AtomicU32,
}

/// What one of them has done so far.
#[derive(Default)]
struct Done {
    rounds: AtomicU32,
    times: Mutex<Times>,
}

/// How long operations took, beside a move and without one.
#[derive(Default)]
struct Times {
    beside: Vec<Duration>,
    without: Vec<Duration>,
}

impl Done {
    fn rounds(&self) -> u32 {
        self.rounds.load(Ordering::Relaxed)
    }

    fn seen(&self) -> [usize; 2] {
        let times = self.times.lock().unwrap();
        [times.beside.len(), times.without.len()]
    }

    fn p99(&self) -> [Duration; 2] {
        let mut times = self.times.lock().unwrap();
        let Times { beside, without } = &mut *times;
        [beside, without].map(|all| {
            all.sort_unstable();
            all[all.len() * 99 / 100]
        })
    }
}

impl Work {
    fn turn(&self) {
        self.turns.fetch_add(1, Ordering::SeqCst);
    }

    /// One operation; beside a move when any part of it was.
    fn timed<T>(&self, done: &Done, operation: impl FnOnce() -> std::io::Result<T>) -> T {
        let (turn, begun) = (self.turns.load(Ordering::SeqCst), Instant::now());
        let value = operation().unwrap();
        let took = begun.elapsed();
        let quiet = turn.is_multiple_of(2) && self.turns.load(Ordering::SeqCst) == turn;
        let mut times = done.times.lock().unwrap();
        if quiet {
            times.without.push(took)
        } else {
            times.beside.push(took)
        }
        value
    }

    /// Creates, renames and removes, with a look at each, until it is told to stop.
    fn go_on(&self, dir: &Path, done: &Done) {
        for round in 0.. {
            let (from, to) = (dir.join(format!("a{round}")), dir.join(format!("b{round}")));
            self.timed(done, || fs::write(&from, round.to_string()));
            self.timed(done, || fs::rename(&from, &to));
            assert_eq!(self.timed(done, || fs::read_to_string(&to)), round.to_string());
            if round % 3 != 0 {
                self.timed(done, || fs::remove_file(&to));
            }
            done.rounds.store(round + 1, Ordering::Relaxed);
            if self.stop.load(Ordering::Relaxed) {
                return;
            }
        }
    }
}

/// Moves the shard to and fro, with as many operations on the one that stays beside its moves as without one between them,
/// until there are enough to compare. Between them mgmtd is asked as often as while it moves, so only the moves differ.
fn to_and_fro(cluster: &Running, work: &Work, [moved, stayed]: &[Done; 2], mut after: impl FnMut()) -> u32 {
    let (_, mut at) = place(cluster, 2);
    let mut moves = 0;
    while moves < MOVES_LEAST || stayed.seen().iter().any(|seen| *seen < SAMPLES) {
        let (rounds, [beside, without]) = ([moved.rounds(), stayed.rounds()], stayed.seen());
        patiently("both go on", || {
            place(cluster, 2);
            let goes_on = |done: &Done, before: u32| done.rounds() >= before + 5;
            let enough = stayed.seen()[1] >= beside.max(without).min(SAMPLES);
            goes_on(moved, rounds[0]) && goes_on(stayed, rounds[1]) && enough
        })
        .unwrap();
        let to = other(&at);
        work.turn();
        give(cluster, 2, to);
        arrives(cluster, 2, to);
        work.turn();
        after();
        at = to.to_owned();
        moves += 1;
        assert!(moves < MOVES_MOST, "operations beside {moves} moves, and without: {:?}", stayed.seen());
    }
    moves
}

/// Goal: whatever programs do on a shard goes on over its moves: there, back, and there again, with files open, locked and
/// deleted while they are open. The shard beside it serves as if nothing happened: 99 of 100 operations there take no longer
/// beside a move than without one.
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

    let (work, done) = (Work::default(), <[Done; 2]>::default());
    let moves = thread::scope(|scope| {
        scope.spawn(|| work.go_on(&moving, &done[0]));
        scope.spawn(|| work.go_on(&staying, &done[1]));
        let _end = EndOf(&work);
        to_and_fro(&cluster, &work, &done, || {
            open.write_all(b"more").unwrap();
            open.sync_all().unwrap();
        })
    });
    let ([beside, without], seen) = (done[1].p99(), done[1].seen());
    eprintln!(
        "{moves} moves; on the shard that stayed p99 {beside:?} beside them, {without:?} without, of {seen:?}"
    );
    assert!(
        beside <= without * TIMES + MORE,
        "p99 {beside:?} beside moves, {without:?} without, of {seen:?}"
    );
    let rounds = done[0].rounds();
    assert_eq!(fs::read(moving.join("large")).unwrap(), content);
    assert_eq!(fs::read_to_string(moving.join("open")).unwrap(), "more".repeat(moves as usize));
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
    assert_eq!(kept.count() as u32, rounds.div_ceil(3));
    drop((open, gone, second));
    cluster.down().unwrap();
    cluster.up().unwrap();
    assert_eq!(fs::read(moving.join("large")).unwrap(), content);
    assert_eq!(fs::read_dir(&moving).unwrap().filter(|entry| entry.is_ok()).count(), 2_503 + kept_of(rounds));
}

/// Ends the work when it goes, also when a check fails: a scope waits for its threads.
struct EndOf<'a>(&'a Work);

impl Drop for EndOf<'_> {
    fn drop(&mut self) {
        self.0.stop.store(true, Ordering::Relaxed);
    }
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
