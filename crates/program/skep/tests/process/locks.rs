//! Locks between processes of two mounts.

use super::agent::Agent;
use super::{Running, plan, start};
use rustix::process::Signal;
use skep_rig::Plan;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

/// Long enough for an answer that should not come.
const MOMENT: Duration = Duration::from_millis(300);

struct Pair {
    cluster: Running,
    second: PathBuf,
    a: Agent,
    b: Agent,
}

/// Two processes with one file open, each on a mount of its own.
fn pair(plan: Plan) -> Pair {
    let cluster = start(plan);
    let second = cluster.second_mount("mnt1", &[]).unwrap();
    let (mut a, mut b) = (Agent::start(), Agent::start());
    assert_eq!(a.ask(&format!("open f {}/file", cluster.mount().display())), "ok");
    assert_eq!(b.ask(&format!("open f {}/file", second.display())), "ok");
    Pair { cluster, second, a, b }
}

/// Goal: record locks of processes on two mounts exclude each other byte by byte, are split, upgraded and
/// downgraded, are shown to the other side, and protect what is written under them.
#[test]
fn ranges() {
    let Pair { mut a, mut b, cluster: _cluster, .. } = pair(plan());
    assert_eq!(a.ask("setlk f w 10 10"), "ok");
    assert_eq!(b.ask("setlk f w 19 1"), "EAGAIN");
    assert_eq!(b.ask("setlk f r 0 0"), "EAGAIN");
    assert_eq!(b.ask("setlk f w 0 10"), "ok");
    assert_eq!(b.ask("setlk f w 20 0"), "ok");
    assert_eq!(b.ask("getlk f r 0 0"), "w 10 10 0", "the process is not of this mount");
    assert_eq!(a.ask("getlk f r 0 5"), "w 0 10 0");
    assert_eq!(a.ask("setlk f u 12 2"), "ok");
    assert_eq!(b.ask("setlk f r 12 2"), "ok");
    assert_eq!(b.ask("setlk f r 14 1"), "EAGAIN");
    assert_eq!(a.ask("setlk f r 14 6"), "ok", "a downgrade");
    assert_eq!(b.ask("setlk f r 14 1"), "ok");
    assert_eq!(a.ask("setlk f w 14 6"), "EAGAIN", "an upgrade against a reader");
    assert_eq!(a.ask("write f 0 before"), "ok");
    assert_eq!(a.ask("setlk f u 0 0"), "ok");
    assert_eq!(b.ask("setlk f w 0 0"), "ok");
    assert_eq!(b.ask("read f 0 6"), "before");
    assert_eq!(b.ask("close f"), "ok");
    assert_eq!(a.ask("setlk f w 0 0"), "ok", "closed: given up");
}

/// Goal: within one mount other processes are told the holder's process id, and a close of any descriptor
/// of the file, also one that only reads, takes the process's locks along, as POSIX wants it.
#[test]
fn one_mount() {
    let cluster = start(plan());
    let path = format!("{}/file", cluster.mount().display());
    let (mut a, mut b) = (Agent::start(), Agent::start());
    for agent in [&mut a, &mut b] {
        assert_eq!(agent.ask(&format!("open f {path}")), "ok");
    }
    assert_eq!(a.ask("setlk f w 5 5"), "ok");
    assert_eq!(b.ask("getlk f w 0 0"), format!("w 5 5 {}", a.pid()));
    assert_eq!(b.ask("setlk f r 9 1"), "EAGAIN");
    assert_eq!(a.ask(&format!("open again {path} ro")), "ok");
    assert_eq!(a.ask("close again"), "ok");
    assert_eq!(b.ask("setlk f r 9 1"), "ok");
}

/// Goal: a process that waits gets the lock as soon as it is free, whichever mount it waits on, and sees
/// what was written under it; a signal ends the wait and leaves nothing behind.
#[test]
fn waiting_and_signals() {
    let Pair { mut a, mut b, cluster: _cluster, .. } = pair(plan());
    assert_eq!(a.ask("setlk f w 0 0"), "ok");
    b.tell("setlkw f w 3 3");
    b.waits(MOMENT);
    assert_eq!(a.ask("write f 0 written"), "ok");
    let freed = Instant::now();
    assert_eq!(a.ask("setlk f u 0 0"), "ok");
    assert_eq!(b.answer(), "ok");
    assert!(freed.elapsed() < Duration::from_secs(50), "{:?}", freed.elapsed());
    assert_eq!(b.ask("read f 0 7"), "written");
    let began = Instant::now();
    assert_eq!(a.ask("alarmed 0.5 setlkw f r 5 1"), "ALARM");
    assert!(began.elapsed() < Duration::from_secs(50), "{:?}", began.elapsed());
    assert_eq!(b.ask("setlk f u 0 0"), "ok");
    assert_eq!(b.ask("setlk f w 5 1"), "ok", "the wish is gone");
    // And of the other kind.
    assert_eq!(b.ask("flock f w"), "ok");
    assert_eq!(a.ask("alarmed 0.5 flockw f r"), "ALARM");
    a.tell("flockw f w");
    a.waits(MOMENT);
    assert_eq!(b.ask("flock f u"), "ok");
    assert_eq!(a.answer(), "ok");
}

/// Goal: `flock` excludes, shares, converts, knows nothing of record locks, and goes with the last descriptor.
#[test]
fn whole_files() {
    let Pair { mut a, mut b, cluster, .. } = pair(plan());
    assert_eq!(a.ask("flock f r"), "ok");
    assert_eq!(b.ask("flock f r"), "ok");
    assert_eq!(a.ask("flock f w"), "EAGAIN");
    assert_eq!(b.ask("setlk f w 0 0"), "ok", "another space");
    assert_eq!(b.ask("flock f u"), "ok");
    a.until("flock f w", "ok");
    assert_eq!(b.ask("flock f r"), "EAGAIN");
    // Two descriptors of one process are two owners.
    assert_eq!(a.ask(&format!("open again {}/file", cluster.mount().display())), "ok");
    assert_eq!(a.ask("flock again r"), "EAGAIN");
    assert_eq!(a.ask("close again"), "ok");
    assert_eq!(b.ask("flock f r"), "EAGAIN");
    assert_eq!(a.ask("close f"), "ok");
    b.until("flock f r", "ok");
}

/// Goal: locks of open file descriptions exclude those of other descriptions, of the same process and of
/// other mounts, and go when the description is closed.
#[test]
fn open_file_descriptions() {
    let Pair { mut a, mut b, cluster, .. } = pair(plan());
    assert_eq!(a.ask(&format!("open g {}/file", cluster.mount().display())), "ok");
    assert_eq!(a.ask("ofd f w 0 10"), "ok");
    assert_eq!(a.ask("ofd g w 5 1"), "EAGAIN");
    assert_eq!(b.ask("ofd f r 5 1"), "EAGAIN");
    assert_eq!(b.ask("setlk f r 5 1"), "EAGAIN", "they share a space with those of processes");
    assert_eq!(a.ask("close g"), "ok");
    assert_eq!(b.ask("ofd f r 5 1"), "EAGAIN", "another description's close");
    b.tell("ofdw f w 5 1");
    b.waits(MOMENT);
    assert_eq!(a.ask("close f"), "ok");
    assert_eq!(b.answer(), "ok");
}

/// Goal: a circle of waits over two mounts is found, and who would close it is told.
#[test]
fn circles() {
    let Pair { mut a, mut b, cluster: _cluster, .. } = pair(plan());
    assert_eq!(a.ask("setlk f w 0 1"), "ok");
    assert_eq!(b.ask("setlk f w 1 1"), "ok");
    a.tell("setlkw f w 1 1");
    a.waits(MOMENT);
    assert_eq!(b.ask("setlkw f w 0 1"), "EDEADLK");
    assert_eq!(b.ask("setlk f u 1 1"), "ok");
    assert_eq!(a.answer(), "ok");
}

/// Goal: a killed process frees what it held, for a process that waits on the other mount.
#[test]
fn killed_holders() {
    let Pair { mut a, mut b, cluster: _cluster, .. } = pair(plan());
    assert_eq!(a.ask("setlk f w 0 0"), "ok");
    assert_eq!(a.ask("flock f w"), "ok");
    b.tell("setlkw f w 7 1");
    b.waits(MOMENT);
    a.kill();
    assert_eq!(b.answer(), "ok");
    b.until("flock f w", "ok");
}

/// Goal: killed in the middle of a wait, a process is gone at once, and so is its wish.
#[test]
fn killed_waiters() {
    let Pair { mut a, mut b, cluster: _cluster, .. } = pair(plan());
    assert_eq!(a.ask("setlk f w 0 0"), "ok");
    b.tell("setlkw f w 7 1");
    b.waits(MOMENT);
    let began = Instant::now();
    b.kill();
    assert!(began.elapsed() < Duration::from_secs(50), "{:?}", began.elapsed());
    assert_eq!(a.ask("setlk f u 0 0"), "ok");
    a.until("getlk f w 0 0", "free");
}

/// Goal: the locks of a mount that was killed are free when its session has ended.
#[test]
fn a_killed_mount_frees_its_locks() {
    let Pair { mut a, mut b, cluster, second } = pair(plan().with("SKEP_MGMTD_SESSION_TIMEOUT", "6s"));
    assert_eq!(b.ask("setlk f w 0 0"), "ok");
    a.tell("setlkw f w 7 1");
    a.waits(MOMENT);
    cluster.mount_daemon(&second).unwrap().kill().unwrap();
    assert_eq!(a.answer(), "ok");
}

/// Goal: a restarted metadata server knows every lock and every wish again, in the order of nobody's loss.
#[test]
fn a_restart_keeps_locks() {
    let Pair { mut a, mut b, cluster, .. } = pair(plan());
    assert_eq!(a.ask("setlk f w 0 10"), "ok");
    assert_eq!(a.ask("flock f r"), "ok");
    b.tell("setlkw f w 5 10");
    b.waits(MOMENT);
    for _ in 0..2 {
        cluster.one("metad").unwrap().kill().unwrap();
        cluster.up().unwrap();
        b.waits(MOMENT);
        assert_eq!(a.ask("setlk f w 100 1"), "ok", "locks are taken again, after the grace period");
    }
    assert_eq!(a.ask("setlk f u 0 10"), "ok");
    assert_eq!(b.answer(), "ok");
    assert_eq!(a.ask("setlk f r 5 1"), "EAGAIN");
    assert_eq!(b.ask("flock f w"), "EAGAIN");
    assert_eq!(a.ask("flock f u"), "ok");
    assert_eq!(b.ask("flock f w"), "ok");
}

/// Goal: 500 programs wait for one lock, on two mounts; the mounts serve others meanwhile, the unlocker gets
/// through, and each waiter gets its turn, alone.
#[test]
fn five_hundred_waiters() {
    const EACH: usize = 250;
    let Pair { mut a, cluster, second, .. } = pair(plan());
    assert_eq!(a.ask("flock f w"), "ok");
    let mounts = [cluster.mount().to_owned(), second];
    let mut crowds: Vec<Agent> = mounts
        .iter()
        .map(|mount| {
            let mut crowd = Agent::start();
            assert_eq!(crowd.ask(&format!("waiters {}/file {EACH}", mount.display())), "waiting");
            crowd
        })
        .collect();
    for crowd in &crowds {
        crowd.waits(Duration::from_secs(2));
    }
    for mount in &mounts {
        std::fs::write(mount.join("other"), b"served").unwrap();
        assert_eq!(std::fs::read(mount.join("other")).unwrap(), b"served");
    }
    let began = Instant::now();
    assert_eq!(a.ask("flock f u"), "ok");
    assert!(began.elapsed() < Duration::from_secs(50), "the unlock took {:?}", began.elapsed());
    for crowd in &mut crowds {
        assert_eq!(crowd.answer(), format!("{EACH} 1"));
    }
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
}

/// Goal: a mount that stands still while metad restarts, for longer than the grace period, loses its locks to others, and its
/// program is told: EIO from everything that it does with that descriptor, until it gives the lock up.
#[test]
fn a_lock_lost_by_standing_still_is_told() {
    let Pair { cluster, second, mut a, mut b } = pair(plan().with("SKEP_METAD_GRACE", "2s"));
    assert_eq!(b.ask("setlk f w 0 0"), "ok");
    assert_eq!(b.ask("write f 0 before"), "ok");
    assert_eq!(b.ask(&format!("open beside {}/file", second.display())), "ok");
    let still = cluster.mount_daemon(&second).unwrap();
    still.signal(Signal::STOP).unwrap();
    cluster.one("metad").unwrap().kill().unwrap();
    cluster.up().unwrap();
    a.until("setlk f w 0 0", "ok");
    assert_eq!(a.ask("write f 0 others"), "ok");
    still.signal(Signal::CONT).unwrap();
    assert_eq!(b.ask("write f 0 theirs"), "EIO", "the first one, and the others");
    assert_eq!(b.ask("write f 0 theirs"), "EIO");
    assert_eq!(a.ask("read f 0 6"), "others");
    assert_eq!(b.ask("read beside 0 6"), "others");
    assert_eq!(b.ask("setlk f u 0 0"), "EIO");
    assert_eq!(b.ask("setlk f w 0 0"), "EAGAIN");
    assert_eq!(a.ask("setlk f u 0 0"), "ok");
    assert_eq!(b.ask("setlk f w 0 0"), "ok");
    assert_eq!(b.ask("write f 0 theirs"), "ok");
    assert_eq!(b.ask("fsync f"), "ok");
    // Close-to-open: without a lock, what was open may keep its pages until somebody opens the file.
    assert!(["others", "theirs"].contains(&a.ask("read f 0 6").as_str()));
    assert_eq!(a.ask(&format!("open again {}/file", cluster.mount().display())), "ok");
    assert_eq!(a.ask("read f 0 6"), "theirs");
    assert_eq!(b.ask("write f 0 latest"), "ok");
    assert_eq!(b.ask("setlk f u 0 0"), "ok");
    assert_eq!(a.ask("setlk f w 0 0"), "ok");
    assert_eq!(a.ask("read f 0 6"), "latest");
}

/// Goal: processes of two mounts that take one lock in turn, thousands of times, never hold it two at a time, also
/// when they open, write and close another descriptor under it, and each reads what the last one wrote, through either.
#[test]
fn one_holder_at_a_time() {
    let cluster = start(plan());
    let second = cluster.second_mount("mnt1", &[]).unwrap();
    for kind in ["flock", "fcntl", "ofd"] {
        let mut command = Command::new("python3");
        command.args(["-c", include_str!("holders.py"), kind]).args([cluster.mount(), &second]).arg("350");
        let told = command.output().expect("python3 is missing: apt-get install python3");
        let (said, errors) = (String::from_utf8_lossy(&told.stdout), String::from_utf8_lossy(&told.stderr));
        assert!(told.status.success() && said.is_empty() && errors.is_empty(), "{kind}: {said}{errors}");
    }
}
