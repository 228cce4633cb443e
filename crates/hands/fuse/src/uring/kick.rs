//! Fetching requests that are stuck in the kernel's queue (see [`super::queue`]): only an answered request fetches
//! them, so one is made. A thread of this process, on the queue's CPU, asks for the attributes of the mount's root;
//! the request is known by that thread's number and answered without the file system.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use rustix::fs::{AtFlags, CWD, StatxFlags};
use rustix::thread::CpuSet;

use super::later::{Later, later};
use crate::abi::header::InHeader;
use crate::abi::{ROOT, opcode};

/// Makes requests, each on a thread of its own: one may be queued behind what the next one fetches.
pub(super) struct Kicker {
    target: PathBuf,
    callers: Arc<Callers>,
}

/// Numbers of the threads at it.
#[derive(Default)]
struct Callers {
    count: AtomicUsize,
    threads: Mutex<HashSet<u32>>,
}

impl Callers {
    fn change(&self, change: impl FnOnce(&mut HashSet<u32>)) {
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut threads);
        self.count.store(threads.len(), Ordering::Release);
    }
}

impl Kicker {
    pub(super) fn new(target: &Path) -> Self {
        Kicker { target: target.to_owned(), callers: Arc::default() }
    }

    /// Whether this is one of the kicker's own requests.
    pub(super) fn is_kick(&self, header: &InHeader) -> bool {
        header.opcode == opcode::GETATTR
            && header.nodeid == ROOT
            && self.callers.count.load(Ordering::Acquire) > 0
            && self.callers.threads.lock().unwrap_or_else(PoisonError::into_inner).contains(&header.pid)
    }

    /// Has a request made on the CPU; the result comes when it was answered, or cannot be made.
    pub(super) fn kick(&self, cpu: usize) -> Later<()> {
        let (done, result) = later();
        let (target, callers) = (self.target.clone(), Arc::clone(&self.callers));
        // The thread belongs to nobody: its request may hang on the way to the mount point, in somebody else's
        // file system, and must not hold up the end of this one.
        let work = move || {
            call(&target, cpu, &callers);
            done.bring(());
        };
        // Without a thread there is no kick; the next parked request is another chance.
        let _ = thread::Builder::new().name("skep-fuse-kick".into()).spawn(work);
        result
    }
}

fn call(target: &Path, cpu: usize, callers: &Callers) {
    let mut cpus = CpuSet::new();
    if cpu < CpuSet::MAX_CPU {
        cpus.set(cpu);
    }
    // Where it may not run there is nothing it can do.
    if rustix::thread::sched_setaffinity(None, &cpus).is_err() {
        return;
    }
    let number = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
    callers.change(|threads| {
        threads.insert(number);
    });
    let flags = AtFlags::STATX_FORCE_SYNC | AtFlags::NO_AUTOMOUNT;
    let _ = rustix::fs::statx(CWD, target, flags, StatxFlags::BASIC_STATS);
    callers.change(|threads| {
        threads.remove(&number);
    });
}
