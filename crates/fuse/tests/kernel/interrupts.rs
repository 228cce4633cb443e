//! Requests that wait, and callers that no longer do.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use skep_fuse::{DevOptions, unmount};

use crate::served::Served;
use crate::watched::Watched;

/// Nothing here takes so long unless it hangs.
const DEADLINE: Duration = Duration::from_secs(20);

fn reader(path: &Path) -> Child {
    Command::new("cat")
        .arg(path.join("blocked"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("cat, of coreutils")
}

/// Goal: a program killed while it waits in a read dies, because the interrupt reaches the worker that waits.
#[test]
fn killed_reader() {
    let (watched, _seen, entered) = Watched::new(Duration::ZERO);
    let served = Served::new(watched, DevOptions::default());
    for _ in 0..20 {
        let mut child = reader(served.path());
        entered.recv_timeout(DEADLINE).expect("the read arrived");
        child.kill().unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(9));
    }
}

/// Goal: requests that wait do not keep others from being served; workers are added as they are needed.
#[test]
fn waiting_requests_do_not_starve_others() {
    let (watched, seen, entered) = Watched::new(Duration::ZERO);
    let served = Served::new(watched, DevOptions::default());
    let mut children: Vec<Child> = (0..8).map(|_| reader(served.path())).collect();
    for _ in &children {
        entered.recv_timeout(DEADLINE).expect("all reads wait at once");
    }
    fs::metadata(served.path().join("pattern")).unwrap();
    assert!(seen.workers.load(SeqCst) >= 9);
    for child in &mut children {
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

/// Goal: workers that a burst needed end when it is over, down to the number kept.
#[test]
fn surplus_workers_end() {
    let (watched, seen, entered) = Watched::new(Duration::ZERO);
    let quiet = Duration::from_millis(50);
    let served = Served::new(watched, DevOptions { idle_workers: 2, quiet, ..DevOptions::default() });
    let mut children: Vec<Child> = (0..6).map(|_| reader(served.path())).collect();
    for _ in &children {
        entered.recv_timeout(DEADLINE).expect("all reads wait at once");
    }
    for child in &mut children {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    assert!(seen.workers.load(SeqCst) >= 7);
    let start = Instant::now();
    let alive = || seen.workers.load(SeqCst) - seen.workers_gone.load(SeqCst);
    while alive() > 3 {
        assert!(start.elapsed() < DEADLINE, "{} workers are left", alive());
        fs::metadata(served.path()).unwrap();
    }
    for _ in 0..100 {
        fs::metadata(served.path().join("pattern")).unwrap();
    }
    assert!(alive() >= 1);
}

fn forced_end(workers: usize) {
    let (watched, seen, entered) = Watched::new(Duration::ZERO);
    let served = Served::new(watched, DevOptions { workers, ..DevOptions::default() });
    let mut child = reader(served.path());
    entered.recv_timeout(DEADLINE).expect("the read arrived");
    unmount(served.path(), true, true).unwrap();
    assert!(!child.wait().unwrap().success(), "its read failed");
    served.ended();
    assert_eq!(seen.destroyed.load(SeqCst), 1);
}

/// Goal: `umount -f` ends the mount although a request waits, also when every allowed worker is busy with one.
#[test]
fn forced_unmount_ends_waiting_requests() {
    forced_end(64);
    forced_end(1);
}
