//! Requests that wait, and callers that no longer do.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use skep_fuse::{FuseOptions, Transport, unmount};

use crate::served::{Served, options};
use crate::watched::Watched;

/// Nothing here takes so long unless it hangs.
const DEADLINE: Duration = Duration::from_secs(120);

fn reader(path: &Path) -> Child {
    Command::new("cat")
        .arg(path.join("blocked"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("cat, of coreutils")
}

on_both! {
    /// Goal: a program killed while it waits in a read dies, because the interrupt reaches the worker that waits.
    fn killed_reader(transport) {
        let (watched, _seen, entered) = Watched::new(Duration::ZERO);
        let served = Served::new(watched, options(transport));
        for _ in 0..20 {
            let mut child = reader(served.path());
            entered.recv_timeout(DEADLINE).expect("the read arrived");
            child.kill().unwrap();
            assert_eq!(child.wait().unwrap().signal(), Some(9));
        }
    }
}

on_both! {
    /// Goal: requests that wait do not keep others from being served; workers are added as they are needed.
    fn waiting_requests_do_not_starve_others(transport) {
        let (watched, seen, entered) = Watched::new(Duration::ZERO);
        let served = Served::new(watched, options(transport));
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
}

/// Goal: workers that a burst needed end when it is over, down to the number kept.
#[test]
fn surplus_workers_end() {
    let (watched, seen, entered) = Watched::new(Duration::ZERO);
    let quiet = Duration::from_millis(50);
    let mut options = options(Transport::Dev);
    (options.dev.idle_workers, options.dev.quiet) = (2, quiet);
    let served = Served::new(watched, options);
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

fn forced_end(options: FuseOptions) {
    let (watched, seen, entered) = Watched::new(Duration::ZERO);
    let served = Served::new(watched, options);
    let mut child = reader(served.path());
    entered.recv_timeout(DEADLINE).expect("the read arrived");
    unmount(served.path(), true, true).unwrap();
    assert!(!child.wait().unwrap().success(), "its read failed");
    served.ended();
    assert_eq!(seen.destroyed.load(SeqCst), 1);
}

on_both! {
    /// Goal: `umount -f` ends the mount although a request waits, also when everything that could serve is busy.
    fn forced_unmount_ends_waiting_requests(transport) {
        forced_end(options(transport));
        let mut options = options(transport);
        options.dev.workers = 1;
        options.uring.depth = 1;
        forced_end(options);
    }
}
