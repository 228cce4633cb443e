//! A mount that was cut off until the cluster gave it up comes back by itself; one that died keeps nobody waiting.

use super::agent::Agent;
use super::lives::{flush, goes_back, on_a_disk};
use super::pools::rows;
use super::{Running, bytes, plan, start};
use rustix::process::Signal;
use serde_json::Value;
use skep_rig::{PATIENCE, until};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// A file that is in chunks.
const LARGE: usize = 3 << 20;
/// Longest time that an append may take when a mount died: far less than the session's time-out (60 s) and the grace of
/// metad (75 s), one of which it would wait for.
const SOON: Duration = Duration::from_secs(30);

/// The line of `skep session list` about an eviction of `point`.
fn eviction(cluster: &Running, point: &Path) -> Result<String, String> {
    let list = cluster.admin(["session", "list"])?;
    let place = point.display().to_string();
    let line = list.lines().find(|line| line.contains(&place) && line.contains("evicted"));
    line.map(str::to_owned).ok_or(list)
}

/// Goal: a mount that nobody hears for longer than the session's time-out goes on by itself when it is heard again, with
/// everything that it wrote and did not sync: open handles work, closed files are whole for others, a handle sees what
/// others made of its file meanwhile, and no fsync complains, for the targets lost nothing. Only a program that believes
/// in a lock which went with the session is told. The eviction is listed, with its time and reason, also after mgmtd was
/// killed.
#[test]
fn a_mount_comes_back_by_itself() {
    let cluster = start(plan().with("SKEP_MGMTD_SESSION_TIMEOUT", "6s"));
    let second = cluster.second_mount("mnt1", &[]).unwrap();
    let (one, two) = (cluster.mount(), second.as_path());
    let open = |name: &str| {
        OpenOptions::new().read(true).write(true).create(true).truncate(false).open(two.join(name)).unwrap()
    };
    let (kept, taken) = (open("kept"), open("taken"));
    kept.write_all_at(&bytes(1, LARGE), 0).unwrap();
    taken.write_all_at(&bytes(2, LARGE), 0).unwrap();
    fs::write(two.join("closed"), bytes(3, LARGE)).unwrap();
    fs::write(two.join("small"), b"inline").unwrap();
    let mut locker = Agent::start();
    assert_eq!(locker.ask(&format!("open f {}/locked", two.display())), "ok");
    assert_eq!(locker.ask("setlk f w 0 10"), "ok");

    let daemon = cluster.mount_daemon(two).unwrap();
    daemon.signal(Signal::STOP).unwrap();
    let listed = until("the eviction is listed", PATIENCE, || eviction(&cluster, two).map(drop));
    // Another mount takes one of the files over.
    fs::write(one.join("taken"), bytes(4, LARGE / 2)).unwrap();
    daemon.signal(Signal::CONT).unwrap();
    listed.unwrap();

    kept.write_all_at(&bytes(5, 100), LARGE as u64).unwrap();
    kept.sync_all().unwrap();
    assert!(fs::read(one.join("kept")).unwrap() == [bytes(1, LARGE), bytes(5, 100)].concat());
    assert!(fs::read(one.join("closed")).unwrap() == bytes(3, LARGE));
    assert_eq!(fs::read(one.join("small")).unwrap(), b"inline");
    let mut found = vec![0; LARGE];
    let len = taken.read_at(&mut found, 0).unwrap();
    assert!(found[..len] == bytes(4, LARGE / 2)[..len] && len > 0, "the handle shows what is there now");
    taken.write_all_at(b"mine again", 0).unwrap();
    // What it had written is no part of the file any more: told at most once.
    let _ = taken.sync_all();
    taken.sync_all().unwrap();
    assert_eq!(&fs::read(one.join("taken")).unwrap()[..10], b"mine again");
    assert_eq!(locker.ask("write f 0 under it"), "EIO");
    assert_eq!(locker.ask("setlk f u 0 0"), "EIO", "told, once");
    assert_eq!(locker.ask("setlk f w 0 10"), "ok");
    assert_eq!(locker.ask("write f 0 under it"), "ok");
    fs::write(two.join("new"), b"as if nothing had been").unwrap();

    let line = eviction(&cluster, two).unwrap();
    assert!(line.contains("silent for 6 s"), "{line}");
    let health = cluster.run(cluster.admin_words(["health"])).unwrap();
    let health = String::from_utf8_lossy(&health.stdout).into_owned();
    assert!(health.contains("silent for 6 s"), "{health}");

    let place = two.display().to_string();
    let listed = || {
        let all = rows(&cluster, &["session", "list"]);
        all.into_iter().find(|row| row["mount"] == *place && row["evicted_ms"].is_u64())
    };
    let before = listed().unwrap();
    cluster.one("mgmtd").unwrap().kill().unwrap();
    cluster.up().unwrap();
    let after = listed().unwrap();
    let fields = |row: &Value| ["client", "host", "mount", "why"].map(|field| row[field].clone());
    assert_eq!(fields(&after), fields(&before));
    // By the same clock, in whole seconds.
    assert!(after["evicted_ms"].as_u64() >= before["evicted_ms"].as_u64(), "{before} {after}");
}

/// Goal: what a mount had written and not synced is lost with a target's file system while the mount is cut off and given
/// up. It comes back, and each handle of that file is told once, by fsync or by close; then it works. Handles of files
/// that lost nothing are told nothing.
#[test]
fn lost_writes_are_told_once_after_an_eviction() {
    let (cluster, disk, directory, dir) = on_a_disk(plan().with("SKEP_MGMTD_SESSION_TIMEOUT", "6s"));
    let two = cluster.second_mount("mnt1", &[]).unwrap();
    let dir = two.join(dir.file_name().unwrap());
    let old = bytes(1, LARGE);
    let new = [b"new", &old[3..]].concat();
    let (lost, steady, elsewhere) = (dir.join("lost"), dir.join("steady"), two.join("elsewhere"));
    // Another process has the files open: a child of this one would close them before it is another program, and wait
    // for the mount that is stopped.
    let mut program = Agent::start();
    for (names, path) in [(&["a", "b", "c"][..], &lost), (&["steady"], &steady), (&["elsewhere"], &elsewhere)]
    {
        fs::write(path, &old).unwrap();
        for name in names {
            assert_eq!(program.ask(&format!("open {name} {}", path.display())), "ok");
        }
        assert_eq!(program.ask(&format!("fsync {}", names[0])), "ok");
    }
    let flushed = flush(&cluster, &directory);
    assert_eq!(program.ask("write a 0 new"), "ok");
    assert_eq!(program.ask("write elsewhere 0 new"), "ok");

    let daemon = cluster.mount_daemon(&two).unwrap();
    daemon.signal(Signal::STOP).unwrap();
    let listed = until("the eviction is listed", PATIENCE, || eviction(&cluster, &two).map(drop));
    let disk = goes_back(&cluster, disk, &directory, &flushed);
    daemon.signal(Signal::CONT).unwrap();
    listed.unwrap();

    assert_eq!(program.ask("fsync a"), "EIO", "it holds the old bytes");
    assert_eq!(program.ask("fsync a"), "ok", "told once");
    assert_eq!(program.ask("fsync b"), "EIO", "each handle is told");
    assert_eq!(program.ask("fsync b"), "ok", "once");
    assert_eq!(program.ask("close c"), "EIO", "by its close");
    assert_eq!(program.ask("fsync steady"), "ok", "it lost nothing");
    assert_eq!(program.ask("fsync elsewhere"), "ok", "nor did this one");
    assert_eq!(program.ask("close elsewhere"), "ok");
    assert!(fs::read(&elsewhere).unwrap() == new && fs::read(&steady).unwrap() == old);
    assert_eq!(program.ask("write b 0 new"), "ok");
    for name in ["a", "b"] {
        assert_eq!(program.ask(&format!("fsync {name}")), "ok", "what is written now is there");
        assert_eq!(program.ask(&format!("close {name}")), "ok");
    }
    assert!(fs::read(cluster.mount().join("dir/lost")).unwrap() == new);
    drop(program);
    cluster.down().unwrap();
    drop(disk);
}

/// Goal: an eviction under a working program is not noticed by it, and neither is the next one.
#[test]
fn evictions_are_not_noticed() {
    let cluster = start(plan());
    let second = cluster.second_mount("mnt1", &[]).unwrap();
    let (done, rounds) = (AtomicBool::new(false), AtomicU32::new(0));
    let name = format!("{}:{}", rustix::system::uname().nodename().to_string_lossy(), second.display());
    std::thread::scope(|scope| {
        let program = scope.spawn(|| {
            while !done.load(Ordering::SeqCst) {
                let round = rounds.load(Ordering::SeqCst);
                let path = second.join(format!("f{}", round % 5));
                fs::write(&path, bytes(round, 300_000)).unwrap();
                assert!(fs::read(&path).unwrap() == bytes(round, 300_000), "round {round}");
                File::open(&path).unwrap().sync_all().unwrap();
                rounds.store(round + 1, Ordering::SeqCst);
            }
        });
        let mut result = Ok(());
        for _ in 0..3 {
            // A new session is there when the name is.
            let evicted =
                until("the mount is evicted", PATIENCE, || cluster.admin(["session", "evict", &name]));
            let before = rounds.load(Ordering::SeqCst);
            let goes_on = until("the program goes on", PATIENCE, || {
                (rounds.load(Ordering::SeqCst) > before + 1).then_some(()).ok_or("it waits".to_owned())
            });
            result = result.and(evicted).and(goes_on);
        }
        done.store(true, Ordering::SeqCst);
        assert!(program.join().is_ok(), "the program met an error");
        result.unwrap();
    });
}

/// Goal: a mount that takes the place of one that was killed ends its session at once: appends of others, which after a
/// restart of metad wait for all mounts to say what they hold, do not wait until the dead one is missed.
#[test]
fn a_dead_mount_keeps_no_append_waiting() {
    let cluster = start(plan());
    let second = cluster.second_mount("mnt1", &[]).unwrap();
    let append = |at: &Path| OpenOptions::new().append(true).create(true).open(at.join("log")).unwrap();
    append(cluster.mount()).write_all(&bytes(1, 100_000)).unwrap();
    append(&second).write_all(&bytes(2, 100_000)).unwrap();
    let mut log = append(cluster.mount());
    cluster.mount_daemon(&second).unwrap().kill().unwrap();
    cluster.one("metad").unwrap().kill().unwrap();
    let begun = Instant::now();
    cluster.up().unwrap();
    cluster.mount_again(&second).unwrap();
    log.write_all(&bytes(3, 1_000)).unwrap();
    let took = begun.elapsed();
    assert!(took < SOON, "{took:?}");
    append(&second).write_all(&bytes(4, 1_000)).unwrap();
    assert_eq!(fs::metadata(cluster.mount().join("log")).unwrap().len(), 202_000);
    assert!(eviction(&cluster, &second).unwrap().contains("died"));
}
