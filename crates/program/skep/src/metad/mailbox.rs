//! What other threads tell the one that owns the shards.

use crate::membership::{Member, Report};
use skep_disk::log::LogError;
use skep_meta::{JobFailure, JobReply};
use skep_net::Waker;
use skep_types::{Capacity, LogSeq, Millis};
use skep_wire::mgmt::{FencesReply, MapReply, ShardAt};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Free bytes of the state directory below which changes are refused: log segments, checkpoints
/// and merges need room, and running out of it in the middle ends the daemon.
const LOW_SPACE: u64 = 512 << 20;

/// Letters since the last look. The newest of each kind counts, results are all kept.
#[derive(Default)]
pub struct Letters {
    /// Outcomes of tasks (bounded by the tasks that the rules have under way).
    pub results: Vec<(u64, Result<JobReply, JobFailure>)>,
    /// The newest map.
    pub map: Option<MapReply>,
    /// The newest fences.
    pub fences: Option<FencesReply>,
    /// The log is durable up to here, or failed.
    pub durable: Option<Result<LogSeq, LogError>>,
    /// A checkpoint ended.
    pub checkpointed: bool,
    /// The state directory is (no longer) nearly full.
    pub low_space: Option<bool>,
    /// The newest heartbeat that mgmtd accepted was sent then.
    pub vouched: Option<Millis>,
}

/// See the module.
pub struct Mailbox {
    letters: Mutex<Letters>,
    waker: Waker,
    state_dir: PathBuf,
    /// As last told.
    low_space: AtomicBool,
    /// What the log holds on stable storage.
    index: AtomicU64,
    /// Shards that mgmtd is to hear of.
    formatted: Mutex<Vec<ShardAt>>,
}

impl Mailbox {
    /// Wakes this loop; watches the space of this directory.
    pub fn new(waker: Waker, state_dir: PathBuf) -> Self {
        Self {
            letters: Mutex::default(),
            waker,
            state_dir,
            low_space: AtomicBool::new(false),
            index: AtomicU64::new(0),
            formatted: Mutex::default(),
        }
    }

    /// For the heartbeats; true when mgmtd is to hear it at once.
    pub fn tell(&self, index: LogSeq, formatted: Vec<ShardAt>) -> bool {
        self.index.store(index.0, Relaxed);
        let mut known = self.formatted.lock().unwrap_or_else(PoisonError::into_inner);
        let is_news = formatted.iter().any(|at| !known.contains(at));
        *known = formatted;
        is_news
    }

    /// Takes everything.
    pub fn take(&self) -> Letters {
        std::mem::take(&mut *self.letters())
    }

    fn letters(&self) -> MutexGuard<'_, Letters> {
        self.letters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, write: impl FnOnce(&mut Letters)) {
        write(&mut self.letters());
        self.waker.wake();
    }

    /// A task ended.
    pub fn result(&self, task: u64, result: Result<JobReply, JobFailure>) {
        self.put(|letters| letters.results.push((task, result)));
    }

    /// The log's durable index moved, or the log failed.
    pub fn durable(&self, durable: &Result<LogSeq, LogError>) {
        self.put(|letters| letters.durable = Some(durable.clone()));
    }

    /// A checkpoint ended.
    pub fn checkpointed(&self) {
        self.put(|letters| letters.checkpointed = true);
    }
}

impl Member for Mailbox {
    fn report(&self) -> Report {
        let index = LogSeq(self.index.load(Relaxed));
        let formatted = self.formatted.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Ok(fs) = rustix::fs::statvfs(&self.state_dir) else {
            return Report { index, formatted, ..Report::default() };
        };
        let free = fs.f_bavail * fs.f_frsize;
        // Only news wakes the owner.
        let low = free < LOW_SPACE.min(fs.f_blocks * fs.f_frsize / 4);
        if self.low_space.swap(low, Relaxed) != low {
            self.put(|letters| letters.low_space = Some(low));
        }
        let capacity = Capacity {
            bytes: fs.f_blocks * fs.f_frsize,
            bytes_free: free,
            inodes: fs.f_files,
            inodes_free: fs.f_favail,
        };
        Report { targets: Vec::new(), capacity, index, formatted }
    }

    fn map(&self, map: MapReply) {
        self.put(|letters| letters.map = Some(map));
    }

    fn fences(&self, fences: FencesReply) {
        self.put(|letters| letters.fences = Some(fences));
    }

    fn vouched(&self, sent: Millis) {
        self.put(|letters| letters.vouched = Some(sent));
    }
}
