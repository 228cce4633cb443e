//! Chunk files of which something is lost: found by their floors, made sure of, told to the shard, given up on demand.
//!
//! A floor that is known here may be old: another mount may have cut the file since. So whoever finds a chunk file too
//! short looks once more, between two answers of the shard: was the file not cut between them, something is lost.

use crate::job::{Job, To};
use crate::lane::{Lane, refuse};
use crate::limits::LOST_ROUNDS_MAX;
use crate::port::{Cell, Port};
use crate::state::{Shared, Unsynced, copies};
use alloc::format;
use alloc::vec::Vec;
use core::fmt;
use skep_types::{ChunkId, Encode, Errno, Ino, Layout, Stripe, TargetId, Timestamp};
use skep_wire::meta::{FoundChunk, LayoutReply, OpenReply, ReadInline, Repair};
use skep_wire::storage::{SyncChunks, SyncChunksReply};
use skep_wire::{Message, Refusal, Status};

/// A chunk file of which something is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LostChunk {
    pub chunk: ChunkId,
    /// Where it is, or should be.
    pub target: TargetId,
    /// Its length; 0 when it is missing.
    pub size: u64,
    /// The length that it had at least.
    pub floor: u64,
    /// When the life of the target began: what was written before and not synced may be lost.
    pub life_since: Option<Timestamp>,
}

/// What is left, and what became of the rest.
impl fmt::Display for LostChunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.size {
            0 => f.write_str("missing or empty")?,
            size => write!(f, "{size} bytes long")?,
        }
        if self.floor > skep_types::WRITTEN {
            return write!(f, ", at least {} bytes were synced: put it back from a backup", self.floor);
        }
        f.write_str(", written and never synced: ")?;
        match self.life_since {
            Some(since) => {
                write!(f, "the power cut from which its target came back at {since}, or one before it")?
            }
            None => f.write_str("a power cut of its server")?,
        }
        f.write_str(", or somebody, took it")
    }
}

/// The chunk file is shorter than the layout says that it can be.
pub(crate) fn short() -> Refusal {
    Refusal::new(Status::LOST_CHUNK)
}

impl<P: Port, C: Cell<Shared>> Lane<P, C> {
    /// An operation on `offset` to `end` came upon a chunk file that is too short. Ok: by a layout that was old, and
    /// is not any more; EIO: something is lost.
    pub(crate) async fn settle_loss(&self, ino: Ino, offset: u64, end: u64) -> Result<(), Refusal> {
        self.find_loss(ino, offset, end).await?.map_or(Ok(()), Err)
    }

    /// As [`Lane::settle_loss`], but what is lost is told apart from a look that failed.
    pub(crate) async fn find_loss(
        &self,
        ino: Ino,
        offset: u64,
        end: u64,
    ) -> Result<Option<Refusal>, Refusal> {
        let Some((lost, _)) = self.lost_chunks(ino, offset, end).await? else { return Ok(None) };
        let Some(one) = lost.first().copied() else { return Ok(None) };
        let LostChunk { chunk, target, .. } = one;
        let text = format!(
            "inode {}: chunk file {ino}.{}.{}.{} of target {target} is {one}; see `skep entry info`, give it up with \
             `skep entry repair PATH --zero`",
            ino.0, chunk.generation, chunk.extent, chunk.stripe,
        );
        let now = self.port.now();
        let news = self.shared.with(|s| s.losses.met(chunk, now));
        if news {
            self.port.log(format_args!("{text}"));
        }
        Ok(Some(refuse(Errno::EIO, text)))
    }

    /// As [`Lane::settle_loss`] for a write. What this mount wrote there before, and has not told, is lost as well: the
    /// shard is told of it first, and the next fsync of every handle fails. So it does when nobody could be asked: the next
    /// write would make the chunk file anew, and then nothing tells any more.
    pub(crate) async fn settle_written(&self, ino: Ino, offset: u64, end: u64) -> Result<(), Refusal> {
        let found = async {
            self.commit(ino).await?;
            self.find_loss(ino, offset, end).await
        };
        let found: Result<Option<Refusal>, Refusal> = found.await;
        let (Ok(Some(refusal)) | Err(refusal)) = found else { return Ok(()) };
        self.shared.with(|s| {
            if s.inodes.get(ino).is_some_and(|inode| !inode.unsynced.is_empty()) {
                s.loses(ino);
            }
        });
        Err(refusal)
    }

    /// The chunk files between two offsets of which something is lost, with a layout that was right while they were
    /// looked at. `None`: the file has no chunk files.
    pub(crate) async fn lost_chunks(
        &self,
        ino: Ino,
        offset: u64,
        end: u64,
    ) -> Result<Option<(Vec<LostChunk>, Layout)>, Refusal> {
        for _ in 0..LOST_ROUNDS_MAX {
            let layout = self.fetch_layout(ino).await?.layout;
            if layout.is_inline() {
                return Ok(None);
            }
            let lost = self.too_short(&layout, offset, end).await?;
            if lost.is_empty() {
                return Ok(Some((lost, layout)));
            }
            let short = lost.iter().map(LostChunk::found).collect();
            let message = ReadInline { ino, short, trims: layout.trims };
            let after: OpenReply = self.ask(ino.shard(), &message).await?;
            if (after.layout.generation, after.layout.trims) == (layout.generation, layout.trims) {
                return Ok(Some((lost, layout)));
            }
            if self.port.cancelled() {
                return Err(Errno::EINTR.into());
            }
        }
        Err(super::unsettled(ino))
    }

    async fn too_short(&self, layout: &Layout, offset: u64, end: u64) -> Result<Vec<LostChunk>, Refusal> {
        let mut asked: Vec<(ChunkId, Stripe)> = Vec::new();
        for extent in &layout.extents {
            for (stripe, holders) in extent.stripes.iter().enumerate() {
                let touched = extent.local_size(stripe, offset) < extent.local_size(stripe, end);
                if touched && extent.floor(stripe) > 0 {
                    asked.push((extent.chunk(stripe), *holders));
                }
            }
        }
        let found = self.stat_chunks(&asked).await?;
        let lost = found.into_iter().filter_map(|(chunk, stat, life_since)| {
            LostChunk::if_short(layout, chunk, stat.size, life_since)
        });
        Ok(lost.collect())
    }

    /// Everything of the file that is lost, by the newest map: its server may still serve a target that was removed.
    pub async fn lost(&self, ino: Ino) -> Result<Vec<LostChunk>, Errno> {
        self.refresh_map().await;
        let found = self.errno(self.lost_chunks(ino, 0, u64::MAX).await)?;
        let lost = found.map_or_else(Vec::new, |(lost, _)| lost);
        let put_back = self
            .shared
            .with(|s| s.losses.looked_at(ino, |chunk| lost.iter().any(|lost| lost.chunk == *chunk)));
        if put_back {
            self.port.work_waits();
        }
        Ok(lost)
    }

    /// Gives up what is lost of the file: it reads as zeros from now on. Says what that was.
    pub async fn repair(&self, ino: Ino) -> Result<Vec<LostChunk>, Errno> {
        self.refresh_map().await;
        self.errno(self.give_up(ino).await)
    }

    async fn give_up(&self, ino: Ino) -> Result<Vec<LostChunk>, Refusal> {
        for _ in 0..LOST_ROUNDS_MAX {
            let Some((lost, layout)) = self.lost_chunks(ino, 0, u64::MAX).await? else {
                return Ok(Vec::new());
            };
            if lost.is_empty() {
                return Ok(lost);
            }
            let found = lost.iter().map(LostChunk::found).collect();
            let message = Repair { ino, generation: layout.generation, trims: layout.trims, found };
            match self.change(ino, &message).await {
                Ok(LayoutReply { attr, layout }) => {
                    let change = attr.change;
                    self.shared.with(|s| {
                        s.inodes.merge(attr);
                        s.inodes.set_layout(ino, change, layout);
                        s.losses.given_up(ino);
                    });
                    return Ok(lost);
                }
                Err(refusal) if matches!(refusal.status, Status::CUT_SINCE | Status::STALE_GENERATION) => {}
                Err(refusal) => return Err(refusal),
            }
        }
        Err(super::unsettled(ino))
    }

    /// The file was cut since its chunk files were looked at: once more, for what was synced. What cannot be told is
    /// left out: it is not guarded, and nothing else.
    pub(crate) async fn measure_again(&self, ino: Ino, synced: &[Unsynced]) {
        if self.fetch_layout(ino).await.is_err() {
            return;
        }
        let point = self.shared.with(|s| s.inodes.get(ino).map(crate::state::Inode::looks_at));
        for sent in synced {
            let Some(point) = point else { return };
            let message = SyncChunks { target: sent.target, chunks: sent.chunks.clone(), life: sent.life };
            let job = Job::new(To::Target(sent.target), SyncChunks::KIND, message.to_bytes(), false);
            if let Ok(reply) = self.once(job).await.and_then(|reply| reply.read::<SyncChunksReply>()) {
                self.shared.with(|s| s.inodes.entry(ino).hold_all(&sent.chunks, point, &reply.sizes));
            }
        }
    }
}

impl LostChunk {
    /// A chunk file of which there are `size` bytes, if that is less than it has had. It is named by the target that is read.
    pub fn if_short(
        layout: &Layout,
        chunk: ChunkId,
        size: u64,
        life_since: Option<Timestamp>,
    ) -> Option<Self> {
        let (floor, target) = (layout.floor(&chunk), copies::to_read(layout.stripe(&chunk)?));
        (size < floor).then_some(Self { chunk, target, size, floor, life_since })
    }

    /// As the shard is told of it.
    pub fn found(&self) -> FoundChunk {
        FoundChunk { chunk: self.chunk, size: self.size, floor: self.floor }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use crate::limits::LOST_FOR_MS;
    use crate::port::Cell;
    use crate::testing::{
        BOTH, Cluster, FakeLane, Fault, READ, block_on, create, mount, mounted, read, write,
    };
    use crate::{Opened, Seek, WriteHow};
    use alloc::rc::Rc;
    use alloc::vec;
    use core::cell::RefCell;
    use core::pin::pin;
    use core::task::{Context, Waker};
    use skep_types::{ChunkId, Errno, LogIndex, LogPlace, Millis, SetAttr, TargetId, Term};
    use skep_wire::Message;
    use skep_wire::meta::{Commit, ReadInline};
    use skep_wire::storage::{StatChunks, SyncChunks};

    pub(in crate::op) const SIZE: usize = 90_000;

    pub(in crate::op) fn chunk_files(cluster: &RefCell<Cluster>) -> vec::Vec<(TargetId, ChunkId)> {
        cluster.borrow().targets.chunks.keys().copied().collect()
    }

    /// A file in chunks of three extents, fsynced or only closed, and an open handle of another mount.
    pub(in crate::op) fn stored(synced: bool) -> (Rc<RefCell<Cluster>>, FakeLane, Opened) {
        let (cluster, lane) = mounted();
        let file = create(&lane, b"a");
        write(&lane, &file, 0, &[7; SIZE]);
        match synced {
            true => block_on(lane.fsync(file.handle)).unwrap(),
            false => block_on(lane.flush(file.handle, 1)).unwrap(),
        }
        let other = mount(&cluster);
        let opened = block_on(other.open(file.attr.ino, BOTH)).unwrap();
        (cluster, other, opened)
    }

    pub(in crate::op) fn try_read(lane: &FakeLane, file: &Opened) -> Result<usize, Errno> {
        block_on(lane.read(file.handle, 0, &mut vec![0; SIZE]))
    }

    /// Goal: a chunk file that is gone, cut short, or an older copy, is EIO for reads, seeks, copies and writes,
    /// synced or only committed; and never zeros.
    #[test]
    fn what_is_lost_is_no_hole() {
        for (synced, left) in
            [(true, None), (true, Some(10)), (true, Some(0)), (false, None), (false, Some(0))]
        {
            let (cluster, lane, file) = stored(synced);
            assert_eq!(read(&lane, &file, 0, SIZE), vec![7; SIZE]);
            let whole = cluster.borrow().targets.chunks.clone();
            for key in chunk_files(&cluster) {
                let mut all = whole.clone();
                match left {
                    None => drop(all.remove(&key)),
                    Some(len) => all.get_mut(&key).unwrap().truncate(len),
                }
                cluster.borrow_mut().targets.chunks = all;
                assert_eq!(try_read(&lane, &file), Err(Errno::EIO), "{key:?} {left:?}");
                assert_eq!(
                    block_on(lane.seek(file.handle, 0, Seek::Data)).err(),
                    Some(Errno::EIO).filter(|_| key.1.extent == 0)
                );
                let copy = create(&lane, b"copy");
                let copied = block_on(lane.copy((file.handle, 0), (copy.handle, 0), SIZE as u64));
                assert_eq!(copied, Err(Errno::EIO));
                let again = block_on(lane.write(file.handle, 0, &[8; SIZE], WriteHow::default()));
                assert_eq!(again.err(), Some(Errno::EIO).filter(|_| synced), "no part of it either");
                cluster.borrow_mut().targets.chunks = whole.clone();
            }
            assert!(cluster.borrow().shard.told_lost > 0);
            assert_eq!(read(&lane, &file, 0, SIZE), vec![7; SIZE], "put back");
        }
    }

    /// Goal: a chunk file that vanishes between a write and its sync fails the fsync of every handle, once, and the shard
    /// hears of it; one that was cut by another mount since does not.
    #[test]
    fn a_sync_that_finds_nothing_fails() {
        for cut in [false, true] {
            let (cluster, lane) = mounted();
            let file = create(&lane, b"a");
            write(&lane, &file, 0, &[7; SIZE]);
            let second = block_on(lane.open(file.attr.ino, BOTH)).unwrap();
            let key = chunk_files(&cluster)[0];
            cluster.borrow_mut().targets.chunks.remove(&key);
            if cut {
                let empty = SetAttr { size: Some(0), ..SetAttr::default() };
                block_on(mount(&cluster).setattr(file.attr.ino, empty)).unwrap();
            }
            let expected = if cut { Ok(()) } else { Err(Errno::EIO) };
            assert_eq!(block_on(lane.fsync(file.handle)), expected, "cut: {cut}");
            assert_eq!(block_on(lane.fsync(second.handle)), expected, "cut: {cut}");
            assert_eq!(block_on(lane.fsync(file.handle)), Ok(()), "told once");
            assert_eq!(cluster.borrow().shard.told_lost > 0, !cut);
        }
    }

    /// Goal: a sync that finds nothing lost, after all, does not speak for one that found something meanwhile.
    #[test]
    fn each_finding_is_looked_at() {
        let (cluster, lane) = mounted();
        let file = create(&lane, b"a");
        let second = block_on(lane.open(file.attr.ino, BOTH)).unwrap();
        write(&lane, &file, 0, &[7; SIZE]);
        let key = chunk_files(&cluster)[0];
        let context = &mut Context::from_waker(Waker::noop());
        let remove = || cluster.borrow_mut().targets.chunks.remove(&key).unwrap();
        let counts = |kind| cluster.borrow().count(kind);
        let whole = remove();
        cluster.borrow_mut().fail(StatChunks::KIND, &[Fault::LateAnswer]);
        let mut one = pin!(lane.fsync(file.handle));
        while counts(SyncChunks::KIND) == 0 {
            assert!(one.as_mut().poll(context).is_pending());
        }
        cluster.borrow_mut().targets.chunks.insert(key, whole);
        while counts(StatChunks::KIND) == 0 {
            assert!(one.as_mut().poll(context).is_pending());
        }
        write(&lane, &file, 0, &[8; SIZE]);
        remove();
        let (mut other, before) = (pin!(lane.fsync(second.handle)), counts(SyncChunks::KIND));
        while counts(SyncChunks::KIND) == before {
            assert!(other.as_mut().poll(context).is_pending());
        }
        assert_eq!(block_on(one), Ok(()), "it looked when all was there");
        assert_eq!(block_on(other), Err(Errno::EIO));
        assert_eq!(block_on(lane.fsync(file.handle)), Err(Errno::EIO), "and by every other handle, once");
        assert_eq!(block_on(lane.fsync(file.handle)), Ok(()));
    }

    /// Goal: the loss of what was never synced names the power cut; of what was synced, the length.
    #[test]
    fn a_loss_says_what_became_of_it() {
        for (synced, told) in [(true, "bytes were synced"), (false, "came back at 2026-11-21T12:00:00Z")] {
            let (cluster, lane, file) = stored(synced);
            let (target, chunk) = chunk_files(&cluster)[0];
            cluster.borrow_mut().targets.chunks.remove(&(target, chunk));
            assert_eq!(try_read(&lane, &file), Err(Errno::EIO));
            let lost = block_on(lane.lost(file.attr.ino)).unwrap();
            assert_eq!((lost.len(), lost[0].chunk), (1, chunk));
            assert!(alloc::format!("{}", lost[0]).contains(told), "{}", lost[0]);
        }
    }

    /// Goal: what was given up reads as zeros, the rest as before, and the file can be written again.
    #[test]
    fn what_is_given_up_is_zeros() {
        let (cluster, lane, file) = stored(true);
        let key = chunk_files(&cluster)[0];
        cluster.borrow_mut().targets.chunks.get_mut(&key).unwrap().truncate(100);
        let lost = block_on(lane.repair(file.attr.ino)).unwrap();
        assert_eq!((lost.len(), lost[0].chunk, lost[0].target, lost[0].size), (1, key.1, key.0, 100));
        let found = read(&lane, &file, 0, SIZE);
        assert!(found.contains(&0) && found[..100] == [7; 100] && found[SIZE - 1] == 7);
        assert_eq!(block_on(lane.repair(file.attr.ino)).unwrap(), []);
        write(&lane, &file, 0, &[8; SIZE]);
        assert_eq!(read(&lane, &file, 0, SIZE), vec![8; SIZE]);
    }

    /// Goal: what was put back is not called lost for ever.
    #[test]
    fn losses_are_forgotten() {
        let (cluster, lane, file) = stored(true);
        let key = chunk_files(&cluster)[0];
        let whole = cluster.borrow_mut().targets.chunks.remove(&key).unwrap();
        let mut bytes = vec![0; SIZE];
        assert_eq!(block_on(lane.read(file.handle, 0, &mut bytes)), Err(Errno::EIO));
        cluster.borrow_mut().targets.chunks.insert(key, whole);
        let lost = |ms| lane.shared().with(|s| (s.losses.forget(Millis(ms)), s.losses.len()).1);
        let now = cluster.borrow().now;
        assert_eq!((lost(now), lost(now + LOST_FOR_MS)), (1, 0));
    }

    /// Goal: holes stay holes: stripes that nobody wrote, a file made longer, punched ranges, what a truncate cut off.
    #[test]
    fn holes_are_zeros() {
        let (cluster, lane) = mounted();
        let file = create(&lane, b"a");
        write(&lane, &file, 80_000, &[7; 10]);
        block_on(lane.fsync(file.handle)).unwrap();
        let longer = SetAttr { size: Some(SIZE as u64), ..SetAttr::default() };
        block_on(lane.setattr(file.attr.ino, longer)).unwrap();
        block_on(lane.fallocate(file.handle, crate::Allocate::Punch, 10_000, 30_000)).unwrap();
        block_on(lane.fsync(file.handle)).unwrap();
        let other = mount(&cluster);
        let opened = block_on(other.open(file.attr.ino, READ)).unwrap();
        let mut expected = vec![0; SIZE];
        expected[80_000..80_010].fill(7);
        assert_eq!(read(&other, &opened, 0, SIZE), expected);
        // The layout that the other mount knows has floors above this.
        for size in [80_005, 30_000, SIZE as u64] {
            block_on(lane.setattr(file.attr.ino, SetAttr { size: Some(size), ..SetAttr::default() }))
                .unwrap();
        }
        expected.fill(0);
        assert_eq!(read(&other, &opened, 0, SIZE), expected);
        assert_eq!(block_on(other.lost(file.attr.ino)).unwrap(), []);
        assert_eq!(cluster.borrow().shard.told_lost, 0);
    }

    /// Goal: a truncate by another mount between sync and commit: the fsync measures again, and is right then.
    #[test]
    fn a_truncate_between_sync_and_commit() {
        let (cluster, lane, file) = stored(true);
        write(&lane, &file, 0, &[9; SIZE]);
        let shard_cut = |cluster: &RefCell<Cluster>| {
            let mut cluster = cluster.borrow_mut();
            let layout = &mut cluster.shard.files.get_mut(&file.attr.ino).unwrap().layout;
            layout.cut_floors(0);
            layout.trims.1.0 += 1;
        };
        shard_cut(&cluster);
        block_on(lane.fsync(file.handle)).unwrap();
        let layout = cluster.borrow().shard.files[&file.attr.ino].layout.clone();
        for ((_, chunk), data) in &cluster.borrow().targets.chunks {
            assert_eq!(layout.floor(chunk), data.len() as u64);
        }
        let commits = cluster.borrow().count(Commit::KIND);
        block_on(lane.fsync(file.handle)).unwrap();
        assert_eq!(cluster.borrow().count(Commit::KIND), commits, "nothing new");
    }

    /// Goal: an append whose later pieces are refused for floors of an old layout lands whole, in its place; one to a
    /// chunk file of which something is lost is EIO and never a part of its record.
    #[test]
    fn appends_are_whole_or_nothing() {
        for stale in [true, false] {
            for key in chunk_files(&stored(true).0) {
                let (cluster, lane, file) = stored(true);
                block_on(lane.seek(file.handle, 0, Seek::Data)).unwrap();
                {
                    let mut cluster = cluster.borrow_mut();
                    cluster.targets.chunks.get_mut(&key).unwrap().truncate(2);
                    if stale {
                        let layout = &mut cluster.shard.files.get_mut(&file.attr.ino).unwrap().layout;
                        layout.lower_floor(&key.1, 2);
                        layout.trims.1.0 += 1;
                    }
                }
                let record = [9; 70_000];
                let how = WriteHow { append: true, ..WriteHow::default() };
                match block_on(lane.write(file.handle, 0, &record, how)) {
                    Ok(len) => assert_eq!(len, record.len(), "{key:?} stale {stale}"),
                    Err(errno) => assert_eq!((errno, stale), (Errno::EIO, false), "{key:?}"),
                }
            }
        }
    }

    /// Goal: a shard that lost a cut in a power cut is told floors again, by the layout that it has.
    #[test]
    fn a_cut_that_was_lost_does_not_end_the_guard() {
        let (cluster, lane, file) = stored(true);
        let trims = |to: LogPlace| {
            let mut cluster = cluster.borrow_mut();
            let layout = &mut cluster.shard.files.get_mut(&file.attr.ino).unwrap().layout;
            core::mem::replace(&mut layout.trims, to)
        };
        let before = trims((Term(1), LogIndex(77)));
        block_on(lane.lost(file.attr.ino)).unwrap();
        write(&lane, &file, 0, &[9; SIZE]);
        write(&lane, &file, SIZE as u64, &[9; 5_000]);
        trims(before);
        block_on(lane.fsync(file.handle)).unwrap();
        let layout = cluster.borrow().shard.files[&file.attr.ino].layout.clone();
        for ((_, chunk), data) in &cluster.borrow().targets.chunks {
            assert_eq!(layout.floor(chunk), data.len() as u64);
        }
    }

    /// Goal: a handle that was open before others wrote and synced sees that something of it is lost, reads and writes
    /// alike, once it knows of the change; so does everybody afterwards.
    #[test]
    fn old_handles_see_what_is_lost() {
        for writes in [false, true] {
            let (cluster, lane) = mounted();
            let other = mount(&cluster);
            let file = create(&lane, b"a");
            for at in [0, SIZE - 10] {
                write(&lane, &file, at as u64, &[7; 10]);
            }
            block_on(lane.fsync(file.handle)).unwrap();
            let before = block_on(other.open(file.attr.ino, BOTH)).unwrap();
            let known = cluster.borrow().shard.files[&file.attr.ino].layout.clone();
            write(&lane, &file, 0, &[7; SIZE]);
            block_on(lane.fsync(file.handle)).unwrap();
            let whole = chunk_files(&cluster).len();
            cluster.borrow_mut().targets.chunks.retain(|(_, chunk), _| known.floor(chunk) > 0);
            assert!(chunk_files(&cluster).len() < whole, "some were holes when it was opened");
            block_on(other.getattr(file.attr.ino)).unwrap();
            match writes {
                false => assert_eq!(try_read(&other, &before), Err(Errno::EIO)),
                true => {
                    let result = block_on(other.write(before.handle, 0, &[8; SIZE], WriteHow::default()));
                    assert_eq!(result, Err(Errno::EIO));
                }
            }
            let third = mount(&cluster);
            let opened = block_on(third.open(file.attr.ino, READ)).unwrap();
            assert_eq!(try_read(&third, &opened), Err(Errno::EIO), "writes: {writes}");
        }
    }

    /// Goal: what a file that is closed without fsync holds is guarded as soon as it is synced in the background, also when
    /// nothing of it was news to the shard before.
    #[test]
    fn closed_files_are_guarded() {
        let (cluster, lane, file) = stored(true);
        write(&lane, &file, SIZE as u64, &[9; 10_000]);
        block_on(lane.flush(file.handle, 0)).unwrap();
        block_on(lane.release(file.handle));
        cluster.borrow_mut().now += crate::limits::SYNC_CLOSED_MS;
        block_on(lane.sync_closed());
        let layout = cluster.borrow().shard.files[&file.attr.ino].layout.clone();
        for ((_, chunk), data) in &cluster.borrow().targets.chunks {
            assert_eq!(layout.floor(chunk), data.len() as u64, "{chunk:?}");
        }
    }

    /// Goal: an intact file is read without a question more than before floors were.
    #[test]
    fn whole_files_cost_nothing() {
        let (cluster, lane, file) = stored(true);
        read(&lane, &file, 0, SIZE);
        assert_eq!(cluster.borrow().count(ReadInline::KIND), 0);
    }
}
