//! What other threads tell the one that owns the shards.

use skep_base::membership::{Member, Report};
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
    /// Rows were read that requests wait for.
    pub read: bool,
    /// The state directory is (no longer) nearly full.
    pub low_space: Option<bool>,
    /// A heartbeat that was sent then, after a word of mgmtd was wanted, was accepted.
    pub vouched: Option<Millis>,
}

/// Since when a word of mgmtd is wanted: the oldest and the newest wish that none has met. mgmtd has a word with every
/// heartbeat, but it concerns all shards, and hardly ever does one of them wait for it: the others wake nobody.
#[derive(Default)]
struct Wishes(Mutex<Option<(Millis, Millis)>>);

impl Wishes {
    fn known(&self) -> MutexGuard<'_, Option<(Millis, Millis)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One more, as of `now`.
    fn add(&self, now: Millis) {
        let mut known = self.known();
        let oldest = known.map_or(now, |(oldest, _)| oldest);
        *known = Some((oldest, now));
    }

    /// mgmtd has answered what was sent then: does that meet a wish? A word counts for what was wished before it was asked for,
    /// not at the same moment (`Input::Vouched`). As long as there are younger wishes, all count as not met.
    fn are_met(&self, sent: Millis) -> bool {
        let mut known = self.known();
        let is_met = known.is_some_and(|(oldest, _)| oldest < sent);
        known.take_if(|(_, newest)| *newest < sent);
        is_met
    }
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
    wishes: Wishes,
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
            wishes: Wishes::default(),
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

    /// A shard may wait for a word of mgmtd, as of `now`: the next heartbeat that is accepted and was sent later is told.
    pub fn want_word(&self, now: Millis) {
        self.wishes.add(now);
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

    /// Rows were read.
    pub fn read(&self) {
        self.put(|letters| letters.read = true);
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
        if self.wishes.are_met(sent) {
            self.put(|letters| letters.vouched = Some(sent));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use skep_net::{EventLimits, EventServer, Keyring, Log};

    /// Goal: mgmtd's word of a heartbeat reaches the shards when one of them wants it, and was not asked for before that. It is
    /// wanted until it is there, also when one shard wants it after another; then nobody is woken by it any more.
    #[test]
    fn a_word_is_told_when_it_is_wanted() {
        let log = Log::new(|_| {});
        let server = EventServer::new(Vec::new(), Keyring::insecure(), EventLimits::default(), log).unwrap();
        let mailbox = Mailbox::new(server.waker(), PathBuf::from("/"));
        let told = |sent| {
            mailbox.vouched(Millis(sent));
            mailbox.take().vouched
        };
        assert_eq!(told(10), None);
        mailbox.want_word(Millis(20));
        assert_eq!([told(15), told(20)], [None, None], "what was asked for before tells nothing");
        assert_eq!([told(21), told(22)], [Some(Millis(21)), None]);
        mailbox.want_word(Millis(30));
        mailbox.want_word(Millis(40));
        assert_eq!([told(30), told(35)], [None, Some(Millis(35))], "the first shard has it");
        assert_eq!([told(40), told(41), told(42)], [Some(Millis(40)), Some(Millis(41)), None]);
    }
}
