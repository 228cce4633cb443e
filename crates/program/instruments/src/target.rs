//! One target as the daemon serves it: directory, state, counters.

use crate::BenchTarget;
use skep_disk::target::{Speaking, TargetDir};
use skep_storage::{
    COPY_MAX, ChunkStore, CopyFault, DiskError, Done, Heard, Limits, RESERVE_STEP, Word, copy_chunk,
    counter_of, execute, is_allocated, read_chunk, reserve_steps, room_needed, write_chunk,
};
use skep_types::{Capacity, ChunkId, ClusterId, Consistency, Decode, Encode, Errno, TargetId};
use skep_wire::mgmt::{TargetEntry, TargetReport};
use skep_wire::storage::{
    ChunkReply, CopyChunk, ReadChunk, ReserveChunk, ShardTerm, StorageRequest, TargetStat, WriteChunk,
};
use skep_wire::{Refusal, Status};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

/// Bytes that may be written before the free space is looked at again: the reserve must hold against
/// writers that are faster than heartbeats.
const LOOK_BYTES: u64 = 8 << 20;
/// Locks for seals and truncates: one that waits for a slow write holds up few others.
const SEALING: usize = 64;

/// Longest wait of a shard's message for those of its earlier term: shorter than the patience of who sent it.
const TERM_LIMIT: Duration = Duration::from_secs(5);

/// Counters since the start.
#[derive(Default)]
struct Counters {
    reads: AtomicU64,
    read_bytes: AtomicU64,
    writes: AtomicU64,
    written_bytes: AtomicU64,
    errors: AtomicU64,
    in_flight: AtomicU64,
    read_ns: AtomicU64,
    write_ns: AtomicU64,
    syncs: AtomicU64,
    sync_ns: AtomicU64,
}

/// A target that is served.
pub struct Target {
    pub id: TargetId,
    directory: TargetDir,
    /// Names its file system, among those of all machines.
    filesystem: u64,
    /// Mark of this start of it, as mgmtd confirmed it.
    mark: u64,
    /// The log says that it is bad.
    told_bad: AtomicBool,
    /// An administrator took it out of the cluster.
    removed: AtomicBool,
    /// The reserve is reached: only what is there may be written over.
    full: AtomicBool,
    /// A writer was refused since the space was last told.
    refused: AtomicBool,
    /// Written since the free space was looked at.
    unlooked: AtomicU64,
    /// Held while room is looked for and taken: two reservations must not find the same one. Targets on one file system
    /// have one.
    reserving: Arc<Mutex<()>>,
    /// Each for many chunk files. Shared by changes in work; a seal has it alone, so that nothing lands behind its limit
    /// afterwards, and so has whatever looks and then changes.
    sealing: Vec<RwLock<()>>,
    counters: Counters,
}

/// Counts a request while it is in work.
struct InFlight<'a>(&'a AtomicU64);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// What a request did, for the counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    Read,
    Write,
    Sync,
}

impl Work {
    /// The work of a request and the target that did it, if it is one that is timed.
    pub fn of(request: &StorageRequest) -> Option<(TargetId, Self)> {
        match request {
            StorageRequest::ReadChunk(m) => Some((m.target, Self::Read)),
            StorageRequest::WriteChunk(m) => Some((m.target, Self::Write)),
            StorageRequest::CopyChunk(m) => Some((m.target, Self::Write)),
            StorageRequest::SyncChunks(m) => Some((m.target, Self::Sync)),
            _ => None,
        }
    }
}

impl Target {
    /// A registered target; `mark` is that of its registration.
    pub fn new(id: TargetId, mark: u64, directory: TargetDir) -> Self {
        Self {
            id,
            mark,
            filesystem: super::filesystem::id(directory.path()),
            told_bad: AtomicBool::new(directory.is_bad()),
            directory,
            removed: AtomicBool::new(false),
            full: AtomicBool::new(false),
            refused: AtomicBool::new(false),
            unlooked: AtomicU64::new(0),
            reserving: Arc::default(),
            sealing: (0..SEALING).map(|_| RwLock::new(())).collect(),
            counters: Counters::default(),
        }
    }

    /// As instruments want to know it.
    pub fn bench(&self, cluster: ClusterId, reserve: u64) -> BenchTarget {
        BenchTarget { target: self.id, path: self.directory.path().to_owned(), cluster, reserve }
    }

    /// See [`TargetDir::limit_open_files`].
    pub fn limit_open_files(&self, most: usize) {
        self.directory.limit_open_files(most);
    }

    /// Was it taken out of the cluster? Then nothing of it is served.
    pub fn is_removed(&self) -> bool {
        self.removed.load(Relaxed)
    }

    /// Does the newest map have it? True when that is news.
    pub fn set_removed(&self, removed: bool) -> bool {
        self.removed.swap(removed, Relaxed) != removed
    }

    /// Good or bad, as far as this daemon can tell.
    pub fn consistency(&self) -> Consistency {
        if self.directory.is_bad() { Consistency::Bad } else { Consistency::Good }
    }

    /// The map says what mgmtd holds of it.
    pub fn hear(&self, entry: &TargetEntry) {
        let TargetEntry { consistency, failures, decisions, .. } = *entry;
        match self.directory.hear(Word { consistency, failures, decisions }) {
            Ok(Heard::Good) => {
                self.told_bad.store(false, Relaxed);
                info!("target {} is {} by decision of an administrator", self.id, consistency.as_str());
            }
            Ok(Heard::Bad) => {
                self.told_bad.store(true, Relaxed);
                info!("target {} is bad by decision of mgmtd", self.id);
            }
            // Its next heartbeat tells mgmtd.
            Ok(Heard::Unanswered | Heard::Nothing) => {}
            Err(e) => warning!("target {} stays as it is until its state can be kept: {e}", self.id),
        }
    }

    /// For the heartbeat; also looks whether the reserve is reached.
    pub fn report(&self) -> TargetReport {
        self.refused.store(false, Relaxed);
        // Asked first: it may find out that the disk has failed.
        let capacity = self.capacity();
        let standing = self.directory.standing();
        TargetReport {
            filesystem: self.filesystem,
            target: self.id,
            capacity,
            consistency: standing.consistency(),
            failures: standing.failures,
            mark: Some(self.mark),
        }
    }

    /// A request was refused. Is mgmtd to hear of it at once? (Once for all that are refused until then.)
    pub fn is_news(&self, refusal: &Refusal) -> bool {
        refusal.status == Status::errno(Errno::ENOSPC) && !self.refused.swap(true, Relaxed)
    }

    /// A request was done that took so long, all in all.
    pub fn spent(&self, work: Work, took: Duration) {
        let counters = &self.counters;
        let time = match work {
            Work::Read => &counters.read_ns,
            Work::Write => &counters.write_ns,
            Work::Sync => {
                counters.syncs.fetch_add(1, Relaxed);
                &counters.sync_ns
            }
        };
        time.fetch_add(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX), Relaxed);
    }

    fn capacity(&self) -> Capacity {
        match self.directory.capacity() {
            Ok(capacity) => {
                self.full.store(capacity.bytes_free == 0, Relaxed);
                capacity
            }
            Err(e) => {
                self.fail(&e);
                Capacity::default()
            }
        }
    }

    /// For administrators.
    pub fn stat(&self) -> TargetStat {
        let counters = &self.counters;
        TargetStat {
            target: self.id,
            path: self.directory.path().display().to_string(),
            consistency: self.consistency(),
            capacity: self.capacity(),
            reads: counters.reads.load(Relaxed),
            read_bytes: counters.read_bytes.load(Relaxed),
            writes: counters.writes.load(Relaxed),
            written_bytes: counters.written_bytes.load(Relaxed),
            errors: counters.errors.load(Relaxed),
            in_flight: counters.in_flight.load(Relaxed),
            read_ns: counters.read_ns.load(Relaxed),
            write_ns: counters.write_ns.load(Relaxed),
            syncs: counters.syncs.load(Relaxed),
            sync_ns: counters.sync_ns.load(Relaxed),
        }
    }

    /// The disk failed: nothing it holds is trusted until an administrator says so.
    fn fail(&self, e: &DiskError) {
        self.counters.errors.fetch_add(1, Relaxed);
        if !self.told_bad.swap(true, Relaxed) {
            error!("target {} is bad from now on: {e}", self.id);
        }
    }

    fn refusal(&self, done: Done) -> Refusal {
        match done {
            Done::Refused(refusal) => refusal,
            Done::DiskFailed(e) => {
                self.fail(&e);
                Refusal::with(Status::errno(Errno::EIO), format!("target {}: {e}", self.id))
            }
            // Only reads and writes come here, and they answer with values of their own.
            Done::Body(_) => Status::MALFORMED.into(),
        }
    }

    fn enter(&self) -> InFlight<'_> {
        self.counters.in_flight.fetch_add(1, Relaxed);
        InFlight(&self.counters.in_flight)
    }

    /// Reads into `room`; the reply's body and the bytes of `room` that go with it.
    pub fn read(&self, m: &ReadChunk, room: &mut [u8]) -> Result<(Vec<u8>, usize), Refusal> {
        let _work = self.enter();
        let (reply, len) = read_chunk(&self.directory, m, room).map_err(|done| self.refusal(done))?;
        self.counters.reads.fetch_add(1, Relaxed);
        self.counters.read_bytes.fetch_add(len as u64, Relaxed);
        Ok((reply.to_bytes(), len))
    }

    pub fn write(&self, m: &WriteChunk, payload: &[u8]) -> Result<Vec<u8>, Refusal> {
        let _work = self.enter();
        let _changing = self.changing(&m.chunk);
        self.require_room(m.chunk, m.offset, payload.len() as u64)?;
        let reply = write_chunk(&self.directory, m, payload).map_err(|done| self.refusal(done))?;
        self.wrote(payload.len() as u64);
        Ok(reply.to_bytes())
    }

    /// Copies from a target of the same daemon, this one perhaps; `buffer` is for what the kernel cannot copy.
    pub fn copy(
        &self,
        m: &CopyChunk,
        from: &Self,
        sync: bool,
        buffer: &mut [u8],
    ) -> Result<Vec<u8>, Refusal> {
        let _work = (self.enter(), from.enter());
        // Of the source nothing is changed, and two such locks could wait for one another.
        let _changing = self.changing(&m.chunk);
        self.require_room(m.chunk, m.offset, m.len.min(COPY_MAX))?;
        let done = copy_chunk(&self.directory, &from.directory, m, sync, buffer);
        let reply = done.map_err(|fault| match fault {
            CopyFault::Source(done) => from.refusal(done),
            CopyFault::Copy(done) => self.refusal(done),
        })?;
        self.wrote(reply.copied.min(COPY_MAX));
        Ok(reply.to_bytes())
    }

    fn sealing(&self, chunk: &ChunkId) -> &RwLock<()> {
        &self.sealing[counter_of(chunk) % SEALING]
    }

    fn changing(&self, chunk: &ChunkId) -> RwLockReadGuard<'_, ()> {
        self.sealing(chunk).read().unwrap_or_else(PoisonError::into_inner)
    }

    fn alone(&self, chunk: &ChunkId) -> RwLockWriteGuard<'_, ()> {
        self.sealing(chunk).write().unwrap_or_else(PoisonError::into_inner)
    }

    fn wrote(&self, bytes: u64) {
        self.counters.writes.fetch_add(1, Relaxed);
        self.counters.written_bytes.fetch_add(bytes, Relaxed);
        if self.unlooked.fetch_add(bytes, Relaxed) + bytes >= LOOK_BYTES {
            self.unlooked.store(0, Relaxed);
            self.capacity();
        }
    }

    /// Refuses what would go into the reserve.
    fn require_room(&self, chunk: ChunkId, offset: u64, len: u64) -> Result<(), Refusal> {
        if self.is_full() && !self.overwrites(chunk, offset, len)? {
            let text = format!("target {} has reached its reserve", self.id);
            return Err(Refusal::with(Status::errno(Errno::ENOSPC), text));
        }
        Ok(())
    }

    /// Has it reached its reserve, and does it still stand there? Space may have been freed since.
    fn is_full(&self) -> bool {
        self.full.load(Relaxed) && {
            self.capacity();
            self.full.load(Relaxed)
        }
    }

    /// Has all of it its space already, written or reserved? Then a program may write it when nothing new fits.
    fn overwrites(&self, chunk: ChunkId, offset: u64, len: u64) -> Result<bool, Refusal> {
        is_allocated(&self.directory, chunk, offset, len).map_err(|done| self.refusal(done))
    }

    /// Those of the targets that are on one file system find room one at a time.
    pub fn share_room(targets: &mut [Self]) {
        let mut locks: BTreeMap<u64, Arc<Mutex<()>>> = BTreeMap::new();
        for target in targets {
            let lock = locks.entry(target.filesystem).or_insert_with(|| target.reserving.clone());
            target.reserving = lock.clone();
        }
    }

    /// Reserves space, which is taken from what is free above the reserve. What was taken stays when a later step finds
    /// no room, as local file systems have it.
    pub fn reserve(&self, m: &ReserveChunk) -> Result<Vec<u8>, Refusal> {
        let alone = self.reserving.clone();
        let _alone = alone.lock().unwrap_or_else(PoisonError::into_inner);
        let life = self.directory.life();
        if m.len > RESERVE_STEP {
            // What cannot fit takes nothing.
            self.find_room(m)?;
        }
        let mut body = Vec::new();
        for step in reserve_steps(m) {
            self.find_room(&step)?;
            body = self.run(&step.into())?;
        }
        self.capacity();
        let reply = ChunkReply::from_bytes(&body).map_err(|_| Refusal::from(Status::MALFORMED))?;
        // That of the first step: what it took must not hide behind a later life.
        Ok(ChunkReply { life, ..reply }.to_bytes())
    }

    fn find_room(&self, m: &ReserveChunk) -> Result<(), Refusal> {
        let free = self.capacity().bytes_free;
        let needed = room_needed(&self.directory, m, free).map_err(|done| self.refusal(done))?;
        if needed <= free {
            return Ok(());
        }
        let text = format!("target {} has {free} bytes above its reserve, {needed} are asked for", self.id);
        Err(Refusal::with(Status::errno(Errno::ENOSPC), text))
    }

    /// Lets a message of a shard in, if no later term of the shard is known.
    pub fn speak(&self, by: ShardTerm, makes_room: bool) -> Result<Speaking<'_>, Refusal> {
        self.directory.speak(by, makes_room, TERM_LIMIT).map_err(|done| self.refusal(done))
    }

    /// Everything but reads, writes and reservations.
    pub fn run(&self, request: &StorageRequest) -> Result<Vec<u8>, Refusal> {
        let _work = self.enter();
        if let StorageRequest::TrimChunk(m) = request {
            // Behind the writes that have looked already whether it came: they are cut with the rest.
            let _alone = self.alone(&m.chunk);
            self.directory.changes().cutting(&m.chunk);
        }
        let _changing = match request {
            StorageRequest::PunchChunk(m) if m.unchanged.is_none() => Some(self.changing(&m.chunk)),
            StorageRequest::ReserveChunk(m) => Some(self.changing(&m.chunk)),
            _ => None,
        };
        let _alone = match request {
            StorageRequest::SealChunk(m) => Some(self.alone(&m.chunk)),
            // Nobody may write between the look and the change.
            StorageRequest::PunchChunk(m) if m.unchanged.is_some() => Some(self.alone(&m.chunk)),
            _ => None,
        };
        match execute(&self.directory, Limits::default(), request) {
            Done::Body(body) => Ok(body),
            done => Err(self.refusal(done)),
        }
    }
}

#[cfg(test)]
mod tests;
