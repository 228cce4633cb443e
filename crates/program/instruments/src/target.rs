//! One target as the daemon serves it: directory, state, counters.

mod room;

use crate::BenchTarget;
use room::{Room, Taken};
use skep_disk::target::{Speaking, TargetDir};
use skep_storage::{
    COPY_MAX, ChunkStore, CopyFault, DiskError, Done, Heard, Limits, RESERVE_STEP, Sizes, Word, blocks_of,
    copy_chunk, counter_of, draws_on, execute, is_allocated, read_chunk, reserve_steps, room_needed,
    write_chunk,
};
use skep_types::{Capacity, ChunkId, ClientId, ClusterId, Consistency, Decode, Encode, Errno, TargetId};
use skep_wire::mgmt::{TargetEntry, TargetReport};
use skep_wire::storage::{
    ChunkReply, CopyChunk, ReadChunk, ReserveChunk, ShardTerm, StorageRequest, TargetStat, WriteChunk,
    WriteChunkReply,
};
use skep_wire::{Refusal, Status};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

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
    /// A writer was refused since the space was last told.
    refused: AtomicBool,
    /// Targets on one file system have one.
    room: Arc<Room>,
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
            refused: AtomicBool::new(false),
            room: Arc::new(Room::new(Sizes::default(), Instant::now())),
            sealing: (0..SEALING).map(|_| RwLock::new(())).collect(),
            counters: Counters::default(),
        }
    }

    /// It promises room in these sizes, as one that has run since then. To be called before [`Target::share_room`].
    pub fn set_promises(&mut self, sizes: Sizes, since: Instant) {
        self.room = Arc::new(Room::new(sizes, since));
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
        let capacity = self.room.told(self.capacity());
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

    /// None where it cannot be asked for.
    fn capacity(&self) -> Capacity {
        self.look().unwrap_or_default()
    }

    /// Asks the file system what is free.
    fn look(&self) -> Result<Capacity, Refusal> {
        let ended = self.room.ended();
        let found = self.directory.capacity();
        self.found(ended, found)
    }

    /// A disk that does not say what is free has failed, or this process is at a limit: neither is the same as full.
    fn found(&self, ended: u64, found: Result<Capacity, DiskError>) -> Result<Capacity, Refusal> {
        let capacity = found.map_err(|e| self.refusal(e.into()))?;
        self.room.looked(ended, capacity.bytes_free);
        Ok(capacity)
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
            promised: Some(self.room.promised()),
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

    /// `client`: whose session it comes from; 0: from none.
    pub fn write(&self, m: &WriteChunk, payload: &[u8], client: ClientId) -> Result<Vec<u8>, Refusal> {
        let _work = self.enter();
        // Whoever writes behind one that counts until a moment only comes behind it, however long that takes from here on.
        let (_alone, _beside) = match m.until {
            Some(_) => (Some(self.alone(&m.chunk)), None),
            None => (None, Some(self.changing(&m.chunk))),
        };
        let client = draws_on(m, client);
        let taken = self.take_room(client, m.chunk, m.offset, payload.len() as u64)?;
        let reply = write_chunk(&self.directory, m, payload).map_err(|done| {
            let refusal = self.refusal(done);
            if refusal.status == Status::TOO_LATE && client != ClientId(0) {
                // It is brought again, so there is to be room for it then.
                self.promise(client);
            }
            refusal
        })?;
        taken.used();
        self.wrote(payload.len() as u64);
        let room = if client == ClientId(0) { None } else { self.promise(client) };
        Ok(WriteChunkReply { room, ..reply }.to_bytes())
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
        let taken = self.take_room(ClientId(0), m.chunk, m.offset, m.len.min(COPY_MAX))?;
        let done = copy_chunk(&self.directory, &from.directory, m, sync, buffer);
        let reply = done.map_err(|fault| match fault {
            CopyFault::Source(done) => from.refusal(done),
            CopyFault::Copy(done) => self.refusal(done),
        })?;
        taken.used();
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
        if self.room.is_due() {
            self.capacity();
        }
    }

    /// Refuses what would go into the reserve, or into what is promised; only the `client`'s own may be drawn on.
    fn take_room(
        &self,
        client: ClientId,
        chunk: ChunkId,
        offset: u64,
        len: u64,
    ) -> Result<Taken<'_>, Refusal> {
        let bytes = blocks_of(offset, len);
        let taken = self.room.begin(bytes);
        match self.room.promised_at_most() {
            0 if !self.is_full()? || self.overwrites(chunk, offset, len)? => return Ok(taken),
            0 => return Err(self.at_its_reserve()),
            promised if self.room.holds(promised) => return Ok(taken),
            _ => drop(taken),
        }
        let is_full = self.look()?.bytes_free == 0;
        if !is_full && let Some(taken) = self.room.take(ClientId(0), bytes) {
            return Ok(taken);
        }
        if self.overwrites(chunk, offset, len)? {
            return Ok(self.room.begin(0));
        }
        if is_full {
            return Err(self.at_its_reserve());
        }
        self.room.take(client, bytes).ok_or_else(|| {
            let text = format!(
                "what target {} has above its reserve is promised to mounts, for small writes that they keep",
                self.id
            );
            Refusal::with(Status::errno(Errno::ENOSPC), text)
        })
    }

    fn at_its_reserve(&self) -> Refusal {
        let text = format!("target {} has reached its reserve", self.id);
        Refusal::with(Status::errno(Errno::ENOSPC), text)
    }

    /// How much the client may bring later, for a while.
    fn promise(&self, client: ClientId) -> Option<u64> {
        let promise = || self.room.promise(client);
        promise().or_else(|| {
            // Space may have been freed since the last look, and what is in work is counted twice until the next.
            let has_looked = self.room.looks_again() && self.look().is_ok();
            if has_looked { promise() } else { None }
        })
    }

    /// Has it reached its reserve? It may have since the last look, by what was begun, and space may have been freed.
    fn is_full(&self) -> Result<bool, Refusal> {
        if !self.room.is_full() && self.room.holds(0) {
            return Ok(false);
        }
        self.look()?;
        Ok(self.room.is_full())
    }

    /// Has all of it its space already, written or reserved? Then a program may write it when nothing new fits.
    fn overwrites(&self, chunk: ChunkId, offset: u64, len: u64) -> Result<bool, Refusal> {
        is_allocated(&self.directory, chunk, offset, len).map_err(|done| self.refusal(done))
    }

    /// Those of the targets that are on one file system find room one at a time, and promise it together.
    pub fn share_room(targets: &mut [Self]) {
        let mut rooms: BTreeMap<u64, Arc<Room>> = BTreeMap::new();
        for target in targets {
            let room = rooms.entry(target.filesystem).or_insert_with(|| target.room.clone());
            target.room = room.clone();
        }
    }

    /// Reserves space, which is taken from what is free above the reserve. What was taken stays when a later step finds
    /// no room, as local file systems have it.
    pub fn reserve(&self, m: &ReserveChunk) -> Result<Vec<u8>, Refusal> {
        let _alone = self.room.reserving();
        let life = self.directory.life();
        if m.len > RESERVE_STEP {
            // What cannot fit takes nothing.
            self.find_room(m)?;
        }
        let mut body = Vec::new();
        for step in reserve_steps(m) {
            let _taken = self.room.begin(self.find_room(&step)?);
            body = self.run(&step.into())?;
        }
        self.capacity();
        let reply = ChunkReply::from_bytes(&body).map_err(|_| Refusal::from(Status::MALFORMED))?;
        // That of the first step: what it took must not hide behind a later life.
        Ok(ChunkReply { life, ..reply }.to_bytes())
    }

    /// Bytes that it takes.
    fn find_room(&self, m: &ReserveChunk) -> Result<u64, Refusal> {
        let free = self.room.unpromised(self.look()?.bytes_free);
        let needed = room_needed(&self.directory, m, free).map_err(|done| self.refusal(done))?;
        if needed <= free {
            return Ok(needed);
        }
        let text = format!(
            "target {} has {free} bytes above its reserve that are promised to nobody, {needed} are asked for",
            self.id
        );
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
