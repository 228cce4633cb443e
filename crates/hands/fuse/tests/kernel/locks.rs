//! Hundreds that wait for one lock.

use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Barrier};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::thread::CpuSet;
use skep_fuse::{Ending, PARKED_PER_QUEUE, Transport, unmount};

use crate::locking::{Locking, Watch};
use crate::served::{Served, options};

const DEADLINE: Duration = Duration::from_secs(120);

fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < DEADLINE, "{what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// A CPU that these tests may use.
fn some_cpu() -> CpuSet {
    let allowed = rustix::thread::sched_getaffinity(None).unwrap();
    let cpu = (0..CpuSet::MAX_CPU).find(|cpu| allowed.is_set(*cpu)).unwrap();
    let mut one = CpuSet::new();
    one.set(cpu);
    one
}

/// Programs that want the lock: they ask all at once, on one CPU, so through one queue. Each says whether it had it.
fn contenders(path: &Path, count: usize, done: &Arc<AtomicUsize>) -> Vec<JoinHandle<bool>> {
    let start = Arc::new(Barrier::new(count));
    let make = |_| {
        let (path, start, done) = (path.to_owned(), Arc::clone(&start), Arc::clone(done));
        let work = move || {
            let file = File::open(path).unwrap();
            rustix::thread::sched_setaffinity(None, &some_cpu()).unwrap();
            start.wait();
            let had = flock(&file, FlockOperation::LockExclusive).is_ok();
            if had {
                flock(&file, FlockOperation::Unlock).unwrap();
            }
            done.fetch_add(1, SeqCst);
            had
        };
        thread::Builder::new().stack_size(128 << 10).spawn(work).unwrap()
    };
    (0..count).map(make).collect()
}

fn served(transport: Transport, depth: usize) -> (Served, Arc<Watch>) {
    let mut options = options(transport);
    options.uring.depth = depth;
    options.dev.workers = 4;
    let locking = Locking::default();
    let watch = Arc::clone(&locking.0);
    (Served::new(locking, options), watch)
}

fn six_hundred(transport: Transport, depth: usize) {
    const WAITERS: usize = 600;
    let (served, watch) = served(transport, depth);
    let path = served.path().join("file");
    let file = File::open(&path).unwrap();
    flock(&file, FlockOperation::LockExclusive).unwrap();
    let done = Arc::new(AtomicUsize::new(0));
    let threads = contenders(&path, WAITERS, &done);
    wait_until("all of them wait", || watch.waiting() == WAITERS);
    assert_eq!(done.load(SeqCst), 0);
    assert!(fs::metadata(&path).unwrap().is_file(), "others are served");
    flock(&file, FlockOperation::Unlock).unwrap();
    wait_until("all of them had the lock", || done.load(SeqCst) == WAITERS);
    assert!(threads.into_iter().all(|thread| thread.join().unwrap()));
    drop(file);
    unmount(served.path(), false, false).unwrap();
    assert_eq!(served.ended().0, Ending::Unmounted);
}

on_both! {
    /// Goal: 600 that wait for one lock use up neither workers nor entries: everybody waits, others are served, the
    /// unlocker gets through, and then each in turn. Few entries, so that the burst also fills the kernel's queue.
    fn many_waiters(transport) {
        six_hundred(transport, 32);
        six_hundred(transport, 4);
        six_hundred(transport, 1);
    }

    /// Goal: a forced unmount ends those that wait.
    fn forced_unmount(transport) {
        const WAITERS: usize = 100;
        let (served, watch) = served(transport, 4);
        let path = served.path().join("file");
        let file = File::open(&path).unwrap();
        flock(&file, FlockOperation::LockExclusive).unwrap();
        let done = Arc::new(AtomicUsize::new(0));
        let threads = contenders(&path, WAITERS, &done);
        wait_until("all of them wait", || watch.waiting() == WAITERS);
        unmount(served.path(), true, true).unwrap();
        assert!(threads.into_iter().all(|thread| !thread.join().unwrap()));
        served.ended();
        assert!(watch.interrupted.load(SeqCst) >= WAITERS, "the mount was told");
        assert_eq!(watch.waiting(), 0);
    }

    /// Goal: programs that are killed while they wait die, and those that go on waiting get the lock.
    fn killed_waiters(transport) {
        let (served, watch) = served(transport, 4);
        let path = served.path().join("file");
        let file = File::open(&path).unwrap();
        flock(&file, FlockOperation::LockExclusive).unwrap();
        let program = |_| Command::new("flock").arg(&path).arg("true").spawn().expect("flock, of util-linux");
        let mut programs: Vec<Child> = (0..20).map(program).collect();
        wait_until("all of them wait", || watch.waiting() == 20);
        for child in &mut programs[..10] {
            child.kill().unwrap();
            assert_eq!(child.wait().unwrap().signal(), Some(9));
        }
        assert_eq!(watch.waiting(), 10);
        drop(file);
        for child in &mut programs[10..] {
            assert!(child.wait().unwrap().success());
        }
    }
}

/// Goal: beyond the limit of a queue, waiting is refused with ENOLCK; nothing else is.
#[test]
fn limit_of_a_queue() {
    const TOO_MANY: usize = PARKED_PER_QUEUE + 50;
    let (served, watch) = served(Transport::Uring, 8);
    let path = served.path().join("file");
    let file = File::open(&path).unwrap();
    flock(&file, FlockOperation::LockExclusive).unwrap();
    let done = Arc::new(AtomicUsize::new(0));
    let threads = contenders(&path, TOO_MANY, &done);
    wait_until("the rest is refused", || done.load(SeqCst) == 50);
    assert_eq!((watch.waiting(), watch.refused.load(SeqCst)), (PARKED_PER_QUEUE, 50));
    assert!(fs::metadata(&path).unwrap().is_file(), "others are served");
    drop(file);
    let had = threads.into_iter().map(|thread| thread.join().unwrap()).filter(|had| *had).count();
    assert_eq!(had, PARKED_PER_QUEUE);
}
