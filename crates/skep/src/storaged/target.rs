//! One target as the daemon serves it: directory, state, counters.

use crate::instruments::BenchTarget;
use skep_disk::target::TargetDir;
use skep_storage::{
    COPY_MAX, CopyFault, DiskError, Done, Heard, Limits, Word, copy_chunk, execute, read_chunk, room_needed,
    write_chunk,
};
use skep_types::{Capacity, ChunkId, ClusterId, Consistency, Encode, Errno, TargetId};
use skep_wire::mgmt::{TargetEntry, TargetReport};
use skep_wire::storage::{
    CopyChunk, ReadChunk, ReserveChunk, StatChunks, StorageRequest, TargetStat, WriteChunk,
};
use skep_wire::{Refusal, Status};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

/// Bytes that may be written before the free space is looked at again: the reserve must hold against
/// writers that are faster than heartbeats.
const LOOK_BYTES: u64 = 8 << 20;

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
    /// Its id.
    pub id: TargetId,
    directory: TargetDir,
    /// Names its file system, among those of all machines.
    filesystem: u64,
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
    /// Held while room is looked for and taken: two reservations must not find the same one.
    reserving: Mutex<()>,
    /// Shared by changes in work; a seal has it alone, so that nothing lands behind its limit afterwards.
    sealing: RwLock<()>,
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
    /// It read.
    Read,
    /// It wrote.
    Write,
    /// It synced.
    Sync,
}

impl Work {
    /// The work of a request and the target that did it, if it is one that is timed.
    pub fn of(request: &StorageRequest) -> Option<(TargetId, Self)> {
        match request {
            // They touch no disk.
            StorageRequest::ReadChunk(m) if m.netbench => None,
            StorageRequest::WriteChunk(m) if m.netbench => None,
            StorageRequest::ReadChunk(m) => Some((m.target, Self::Read)),
            StorageRequest::WriteChunk(m) => Some((m.target, Self::Write)),
            StorageRequest::CopyChunk(m) => Some((m.target, Self::Write)),
            StorageRequest::SyncChunks(m) => Some((m.target, Self::Sync)),
            _ => None,
        }
    }
}

impl Target {
    /// A registered target.
    pub fn new(id: TargetId, directory: TargetDir) -> Self {
        Self {
            id,
            filesystem: super::filesystem::id(directory.path()),
            told_bad: AtomicBool::new(directory.is_bad()),
            directory,
            removed: AtomicBool::new(false),
            full: AtomicBool::new(false),
            refused: AtomicBool::new(false),
            unlooked: AtomicU64::new(0),
            reserving: Mutex::new(()),
            sealing: RwLock::new(()),
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
        if m.netbench {
            return Ok((reply.to_bytes(), len));
        }
        self.counters.reads.fetch_add(1, Relaxed);
        self.counters.read_bytes.fetch_add(len as u64, Relaxed);
        Ok((reply.to_bytes(), len))
    }

    /// Writes.
    pub fn write(&self, m: &WriteChunk, payload: &[u8]) -> Result<Vec<u8>, Refusal> {
        let _work = self.enter();
        let _changing = self.changing();
        if !m.netbench {
            self.require_room(m.chunk, m.offset, payload.len() as u64)?;
        }
        let reply = write_chunk(&self.directory, m, payload).map_err(|done| self.refusal(done))?;
        if m.netbench {
            return Ok(reply.to_bytes());
        }
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
        let _changing = self.changing();
        self.require_room(m.chunk, m.offset, m.len.min(COPY_MAX))?;
        let done = copy_chunk(&self.directory, &from.directory, m, sync, buffer);
        let reply = done.map_err(|fault| match fault {
            CopyFault::Source(done) => from.refusal(done),
            CopyFault::Copy(done) => self.refusal(done),
        })?;
        self.wrote(reply.copied.min(COPY_MAX));
        Ok(reply.to_bytes())
    }

    fn changing(&self) -> RwLockReadGuard<'_, ()> {
        self.sealing.read().unwrap_or_else(PoisonError::into_inner)
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
        if self.is_full() && !self.overwrites(chunk, offset, len) {
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

    /// Is it wholly within what the chunk file has already? A program may go on changing its files
    /// when no new ones fit.
    fn overwrites(&self, chunk: ChunkId, offset: u64, len: u64) -> bool {
        let stat = StatChunks { target: self.id, chunks: vec![chunk] };
        match self.run(&stat.into()) {
            Ok(body) => {
                use skep_types::Decode;
                use skep_wire::storage::StatChunksReply;
                let size = StatChunksReply::from_bytes(&body)
                    .ok()
                    .and_then(|reply| reply.chunks.first().map(|c| c.size));
                offset.checked_add(len).zip(size).is_some_and(|(end, size)| end <= size)
            }
            Err(_) => false,
        }
    }

    /// Reserves space, which is taken from what is free above the reserve.
    pub fn reserve(&self, m: &ReserveChunk) -> Result<Vec<u8>, Refusal> {
        let _alone = self.reserving.lock().unwrap_or_else(PoisonError::into_inner);
        let free = self.capacity().bytes_free;
        let needed = room_needed(&self.directory, m, free).map_err(|done| self.refusal(done))?;
        if needed > free {
            let text =
                format!("target {} has {free} bytes above its reserve, {needed} are asked for", self.id);
            return Err(Refusal::with(Status::errno(Errno::ENOSPC), text));
        }
        let body = self.run(&m.clone().into())?;
        self.capacity();
        Ok(body)
    }

    /// Everything but reads, writes and reservations.
    pub fn run(&self, request: &StorageRequest) -> Result<Vec<u8>, Refusal> {
        let _work = self.enter();
        let _changing = match request {
            StorageRequest::PunchChunk(_) | StorageRequest::ReserveChunk(_) => Some(self.changing()),
            _ => None,
        };
        let _alone = match request {
            StorageRequest::SealChunk(_) => {
                Some(self.sealing.write().unwrap_or_else(PoisonError::into_inner))
            }
            _ => None,
        };
        match execute(&self.directory, Limits::default(), request) {
            Done::Body(body) => Ok(body),
            done => Err(self.refusal(done)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use skep_disk::target::TargetDir;
    use skep_storage::{ChunkStore, PieceName};
    use skep_types::{ChunkId, Generation, Ino, Uuid};
    use skep_wire::storage::Owner;

    fn chunk(ino: u64) -> ChunkId {
        ChunkId { ino: Ino(ino), generation: Generation(1), extent: 0, stripe: 0 }
    }

    fn write(target: &Target, ino: u64) -> Result<Vec<u8>, Refusal> {
        let (id, owner) = (TargetId(101), Owner::default());
        let m = WriteChunk {
            target: id,
            chunk: chunk(ino),
            offset: 0,
            owner,
            floor: 0,
            sync: false,
            netbench: false,
        };
        target.write(&m, b"x")
    }

    fn entry(consistency: Consistency, failures: u64, decisions: u64) -> TargetEntry {
        let sample = crate::admin::namespace::samples::status().targets[0].clone();
        TargetEntry { consistency, failures, decisions, ..sample }
    }

    fn good(failures: u64, decisions: u64) -> TargetEntry {
        entry(Consistency::Good, failures, decisions)
    }

    /// Goal: that somebody was refused for want of room is told at once, once for each report.
    #[test]
    fn a_refusal_is_told_once() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("target");
        std::fs::create_dir(&path).unwrap();
        let directory = TargetDir::open(&path, Uuid([1; 16]), Some(Uuid([2; 16])), 0).unwrap();
        let target = Target::new(TargetId(101), directory);
        let [full, other] = [Errno::ENOSPC, Errno::EIO].map(|errno| Refusal::new(Status::errno(errno)));
        for _ in 0..2 {
            assert_eq!([&other, &full, &full].map(|refusal| target.is_news(refusal)), [false, true, false]);
            target.report();
        }
    }

    /// Goal: a disk that fails gives EIO to the one who asked and marks the target, which stays bad until an
    /// administrator decides: not by a map that mgmtd made before it heard of the failure, nor by a restart of the
    /// daemon. No life comes back. Method: a directory in a chunk file's place fails every open, as a damaged local
    /// file system does.
    #[test]
    fn a_failing_disk_marks_the_target() {
        let scratch = tempfile::tempdir().unwrap();
        let (path, kept) = (scratch.path().join("target"), scratch.path().join("kept"));
        std::fs::create_dir(&path).unwrap();
        let start = |consistency| {
            let directory = TargetDir::open(&path, Uuid([1; 16]), Some(Uuid([2; 16])), 0).unwrap();
            directory.keep_standing(&kept, Word { consistency, failures: 0, decisions: 0 }).unwrap();
            Target::new(TargetId(101), directory)
        };
        let target = start(Consistency::Good);
        write(&target, 1).unwrap();
        let first = target.directory.life();
        std::fs::create_dir_all(path.join(PieceName::first(chunk(2)).path())).unwrap();
        let refusal = write(&target, 2).unwrap_err();
        assert_eq!(refusal.status.as_errno(), Some(Errno::EIO));
        assert!(refusal.detail.contains("check the disk"), "{refusal}");
        let report = target.report();
        assert_eq!((report.consistency, report.failures), (Consistency::Bad, 1));
        assert_ne!(target.directory.life(), first, "fsync must not vouch for earlier writes");
        target.hear(&good(0, 0));
        assert_eq!(target.consistency(), Consistency::Bad, "mgmtd had not heard of it");
        drop(target);
        let target = start(Consistency::Good);
        assert_eq!(target.report().consistency, Consistency::Bad, "restarted before a heartbeat");
        let failed = target.directory.life();
        assert_ne!(failed, first);
        target.hear(&entry(Consistency::Bad, 1, 0));
        target.hear(&good(1, 1));
        assert_eq!(target.consistency(), Consistency::Good);
        let repaired = target.directory.life();
        assert!(
            repaired != failed && repaired != first,
            "what was written before the repair is vouched for no more"
        );
        target.hear(&good(1, 1));
        assert_eq!(target.directory.life(), repaired, "nothing was decided anew");
        write(&target, 3).unwrap();
        drop(target);
        let directory = TargetDir::open(&path, Uuid([1; 16]), None, 0).unwrap();
        let word = Word { consistency: Consistency::Good, failures: 1, decisions: 1 };
        directory.keep_standing(&kept, word).unwrap();
        assert_eq!(directory.life(), repaired, "a restart on the same mount loses nothing");
    }

    /// Goal: reservations leave the reserve alone, however large they are; what is written already can be reserved
    /// again, and small ones fit.
    #[test]
    fn reservations_keep_to_the_reserve() {
        use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("target");
        std::fs::create_dir(&path).unwrap();
        mount("skep-test", &path, "tmpfs", MountFlags::empty(), Some(c"size=16m")).unwrap();
        let reserve = 4 << 20;
        let directory = TargetDir::open(&path, Uuid([1; 16]), Some(Uuid([2; 16])), reserve).unwrap();
        let target = Target::new(TargetId(101), directory);
        let ask = |ino, offset, len| {
            let (target_id, owner) = (TargetId(101), Owner::default());
            let m = ReserveChunk { target: target_id, chunk: chunk(ino), offset, len, owner };
            target.reserve(&m).map(|_| ()).map_err(|refusal| refusal.status.as_errno())
        };
        let left = || rustix::fs::statvfs(&path).map(|info| info.f_bavail * info.f_frsize).unwrap();
        write(&target, 1).unwrap();
        let outcome = (ask(2, 0, 15 << 20), left(), ask(1, 0, 1), ask(2, 0, 8 << 20));
        let after = (ask(3, 0, 8 << 20), ask(3, 0, u64::MAX / 4), left());
        drop(target);
        unmount(&path, UnmountFlags::DETACH).unwrap();
        let full = Err(Some(Errno::ENOSPC));
        assert_eq!((outcome.0, outcome.2, outcome.3), (full, Ok(()), Ok(())));
        assert!(outcome.1 > 15 << 20, "a refused one takes nothing");
        assert_eq!((after.0, after.1), (full, full));
        assert!(after.2 >= reserve, "{} bytes are left", after.2);
    }
}
