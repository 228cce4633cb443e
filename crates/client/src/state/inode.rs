//! What a mount knows of files that are open, or were: bounded to 1 KiB for each (inline content,
//! which has its own limit, apart).

use super::Mark;
use super::pages::Pages;
use super::{Answered, Point};
use crate::limits::{IDLE_INODES_MAX, INLINE_CACHE_MAX, TERMS_MAX, UNCUT_MAX};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;
use skep_types::{Attr, ChunkId, Ino, Layout, LogIndex, Millis, ShardId, TargetId, Term, Timestamp, WRITTEN};
use skep_wire::meta::OpenMode;

/// Writes to one target that may be lost by a power cut.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unsynced {
    /// The target.
    pub target: TargetId,
    /// Its life at the first of them.
    pub life: u64,
    /// The chunk files.
    pub chunks: Vec<ChunkId>,
    /// Moves with every write.
    pub serial: u64,
}

/// Content of a small file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inline {
    /// The bytes; the file may be longer (zeros).
    pub data: Vec<u8>,
    /// Change counter that they belong to.
    pub change: u64,
}

/// One inode.
#[derive(Debug, Default)]
pub struct Inode {
    /// Handles that only read.
    pub readers: u32,
    /// Handles that may write.
    pub writers: u32,
    /// Opens in flight.
    pub opening: u32,
    /// What the shard was last told that it is open for.
    pub mode: Option<OpenMode>,
    /// Number of the last open or close of it.
    pub open_seq: u64,
    /// Newest attributes from the shard (without what [`Inode::mark`] holds).
    pub attr: Option<Attr>,
    /// Where its chunks are; `None` = to be asked for.
    pub layout: Option<Arc<Layout>>,
    /// Its content, when inline and known.
    pub inline: Option<Inline>,
    /// Uncommitted writes.
    pub mark: Option<Mark>,
    /// Unsynced writes, one for each target.
    pub unsynced: Vec<Unsynced>,
    /// 512-byte blocks of the chunk files written.
    pub blocks: BTreeMap<ChunkId, u64>,
    /// What targets counted of cuts of its chunk files: an append is refused when one has come since its place was given.
    pub uncut: BTreeMap<ChunkId, u64>,
    /// What chunk files hold that the shard is to be told: 1 = something, else so many bytes durably.
    pub held: BTreeMap<ChunkId, u64>,
    /// The layout that was known before those were looked at.
    pub held_at: Point,
    /// A sync found less than that: something is lost, or the file was cut since. To be looked at.
    pub too_short: bool,
    /// Counts how often what was to be told was not, for the file was cut since.
    pub held_voided: u32,
    /// Counts writes.
    pub serial: u64,
    /// Appends under way that were given a range.
    pub appending: u32,
    /// End of the furthest of those ranges; 0 = none. (What is written is found by asking the targets.)
    pub reserved: u64,
    /// Change counter as of which it has no `security.capability`; 0 = unknown.
    pub no_capability: u64,
    /// Writes, copies and reservations of this mount in its chunk files, from before they are sent until they are marked.
    pub changing: u16,
    /// Appends to chunks that have begun: a truncate of this mount waits for them, or their record could stand at its old
    /// place and at a new one.
    pub appends: u16,
    /// Truncates of this mount that wait for such, or are in flight: no append begins.
    pub cutting: u16,
    /// Truncates of this mount in flight.
    pub truncating: u16,
    /// Truncates of this mount that have ended: a write that overlapped one is done again.
    pub truncations: u32,
    /// What the kernel's page cache may hold of it.
    pub pages: Pages,
    /// Other mounts had it open for writing when last asked.
    pub live: bool,
    /// Size that their chunk files gave then, if the file was not cut since.
    pub live_size: u64,
    /// Time of the newest write of this mount.
    pub wrote_last: Timestamp,
    /// Newest count of the file's cuts; 0 = unknown.
    pub cuts: u64,
    /// It was told since it was last forgotten.
    pub cuts_known: bool,
    /// Counts the times that it moved while it was known: other mounts' truncates, and own ones.
    pub foreign_cuts: u32,
    /// Moves with everything learned of cuts.
    pub cuts_seen: u32,
    /// Position of its newest change that may not be durable, in each term of the log that has one: a
    /// newer term says nothing about an older one's tail.
    pub touched: Vec<(Term, LogIndex)>,
    /// Counts losses: a handle that remembers another number fails its next fsync.
    pub losses: u32,
    /// The kernel has forgotten it; it is kept for its unsynced chunks, or for the pages that the kernel holds.
    pub forgotten: bool,
    /// Somebody else has changed the file since the layout came: floors in it may be too low.
    pub layout_old: bool,
}

/// All inodes that a mount keeps.
#[derive(Debug, Default)]
pub struct Inodes {
    table: BTreeMap<Ino, Inode>,
    idle: VecDeque<Ino>,
    /// Idle ones beyond the limit, of which the kernel holds pages: these go first.
    paged: VecDeque<Ino>,
    /// Drops of the kernel's pages that have ended.
    pub drops: u64,
    /// Closed with unsynced chunks, and when; the oldest first.
    closed: VecDeque<(Millis, Ino)>,
    inline_bytes: usize,
}

impl Inode {
    /// Handles and opens in flight.
    pub fn uses(&self) -> u32 {
        self.readers + self.writers + self.opening
    }

    /// Nothing uncommitted, nothing unsynced.
    pub fn is_clean(&self) -> bool {
        self.mark.is_none() && self.unsynced.is_empty()
    }

    /// Size as this mount knows it.
    pub fn size(&self) -> u64 {
        let committed = self.attr.as_ref().map_or(0, |attr| attr.size).max(self.live_size);
        self.mark.map_or(committed, |mark| committed.max(mark.size))
    }

    /// A change of it is at this position of the log.
    pub fn touch(&mut self, term: Term, index: LogIndex) {
        if let Some(touched) = self.touched.iter_mut().find(|touched| touched.0 == term) {
            touched.1 = touched.1.max(index);
        } else if self.touched.len() < TERMS_MAX {
            self.touched.push((term, index));
        } else {
            // One term in doubt is the rule, a few the exception; beyond that it counts as lost.
            self.losses += 1;
        }
    }

    /// Changes of `term` after `safe` are lost.
    pub fn lost(&mut self, term: Term, safe: LogIndex) {
        let before = self.touched.len();
        self.touched.retain(|touched| touched.0 != term || touched.1 <= safe);
        self.losses += u32::from(self.touched.len() != before);
    }

    /// Everything up to these positions is durable.
    pub fn settled(&mut self, durable: &[(Term, LogIndex)]) {
        let safe = |touched: &(Term, LogIndex)| {
            durable.iter().any(|durable| durable.0 == touched.0 && durable.1 >= touched.1)
        };
        self.touched.retain(|touched| !safe(touched));
    }

    /// What the shard said does not count any more, though it may be true: the next answer is believed whatever
    /// its counter. What programs wrote and were told of is kept.
    pub fn disbelieve(&mut self) {
        if let Some(attr) = &mut self.attr {
            attr.change = 0;
        }
        self.pages.forget_change();
        self.no_capability = 0;
    }

    /// A write to `chunk` on `target` was answered.
    pub fn wrote_chunk(&mut self, target: TargetId, chunk: ChunkId, answer: Answered) {
        let Answered { life, blocks, size, point, synced, cuts } = answer;
        if let Some(cuts) = cuts {
            self.uncut.insert(chunk, cuts);
        }
        self.serial += 1;
        self.blocks.insert(chunk, blocks);
        self.hold(chunk, point, synced.unwrap_or(size.min(WRITTEN)));
        if synced.is_some() {
            return;
        }
        let serial = self.serial;
        let mut lost = Vec::new();
        match self.unsynced.iter_mut().find(|unsynced| unsynced.target == target) {
            Some(unsynced) => {
                unsynced.serial = serial;
                if unsynced.life != life {
                    // The target lost what was written before; said at once, whoever syncs next.
                    unsynced.life = life;
                    self.losses += 1;
                    lost.extend(unsynced.chunks.iter().copied().filter(|older| *older != chunk));
                }
                if !unsynced.chunks.contains(&chunk) {
                    unsynced.chunks.push(chunk);
                }
            }
            None => self.unsynced.push(Unsynced { target, life, chunks: alloc::vec![chunk], serial }),
        }
        self.written_no_more(&lost);
    }

    /// Something is about to be changed in its chunk files.
    pub fn change_begins(&mut self) {
        self.changing = self.changing.saturating_add(1);
    }

    /// It is marked, or came to nothing.
    pub fn change_ends(&mut self) {
        self.changing = self.changing.saturating_sub(1);
    }

    /// What is known of cuts of the chunk files at the end.
    pub fn newest_uncut(&self) -> BTreeMap<ChunkId, u64> {
        self.uncut.iter().rev().take(UNCUT_MAX).map(|(chunk, cuts)| (*chunk, *cuts)).collect()
    }

    /// An append begins. `false`: not beside a truncate of this mount.
    pub fn append_enters(&mut self) -> bool {
        self.appends += u16::from(self.cutting == 0);
        self.cutting == 0
    }

    /// It has ended.
    pub fn append_leaves(&mut self) {
        self.appends = self.appends.saturating_sub(1);
    }

    /// A truncate that was announced comes to nothing.
    pub fn truncate_is_given_up(&mut self) {
        self.cutting = self.cutting.saturating_sub(1);
    }

    /// An append was given a range up to `end`.
    pub fn append_begins(&mut self, end: u64) {
        self.appending += 1;
        self.reserved = self.reserved.max(end);
    }

    /// It has written it, or given up.
    pub fn append_ends(&mut self) {
        self.appending = self.appending.saturating_sub(1);
        if self.appending == 0 {
            self.reserved = 0;
        }
    }

    /// A truncate of this mount was answered: what was marked before it has no meaning any more.
    pub fn truncated(&mut self) {
        self.mark = None;
        self.live_size = 0;
        self.reserved = 0;
        self.truncations += 1;
        // Its chunk files may be shorter than it says.
        self.layout = self.layout.take().filter(|layout| layout.is_inline());
    }
}

impl Inodes {
    /// An inode, if it is known.
    pub fn get(&self, ino: Ino) -> Option<&Inode> {
        self.table.get(&ino)
    }

    /// An inode to be changed, if it is known.
    pub fn get_mut(&mut self, ino: Ino) -> Option<&mut Inode> {
        self.table.get_mut(&ino)
    }

    /// An inode, known from now on.
    pub fn entry(&mut self, ino: Ino) -> &mut Inode {
        self.table.entry(ino).or_default()
    }

    /// All known inodes.
    pub fn iter(&self) -> impl Iterator<Item = (Ino, &Inode)> {
        self.table.iter().map(|(ino, inode)| (*ino, inode))
    }

    /// All known inodes of a shard, to be changed.
    pub fn of_shard_mut(&mut self, shard: ShardId) -> impl Iterator<Item = (Ino, &mut Inode)> {
        let range = Ino::new(shard, 0)..=Ino::new(shard, Ino::SERIAL_MAX);
        self.table.range_mut(range).map(|(ino, inode)| (*ino, inode))
    }

    /// A new session began: nothing that was known in the old one counts, but what programs wrote and what they
    /// must be told.
    pub fn disbelieve_all(&mut self) {
        for inode in self.table.values_mut() {
            inode.disbelieve();
            (inode.layout, inode.inline) = (None, None);
            (inode.live, inode.live_size, inode.reserved) = (false, 0, 0);
            if inode.pages.may_be_held() {
                inode.pages.misplaced(0);
            }
        }
        self.inline_bytes = 0;
    }

    /// Takes over attributes from the shard unless newer ones are known, and gives them as the
    /// programs of this mount shall see them. A layout or content that they contradict is dropped.
    pub fn merge(&mut self, attr: Attr) -> Attr {
        let Some(inode) = self.table.get_mut(&attr.ino) else { return attr };
        inode.learn_cuts(attr.cuts);
        if inode.attr.as_ref().is_none_or(|known| known.change <= attr.change) {
            inode.layout_old |= inode.attr.as_ref().is_some_and(|known| known.change < attr.change);
            // A growth moves the content to chunks, and no change counter.
            let moved = inode.layout.as_ref().is_some_and(|layout| layout.generation != attr.generation);
            if moved {
                inode.layout = None;
            }
            if let Some(stale) = inode.inline.take_if(|inline| moved || inline.change != attr.change) {
                self.inline_bytes -= stale.data.len();
            }
            inode.attr = Some(attr.clone());
        }
        inode.with_mark(inode.attr.clone().unwrap_or(attr))
    }

    /// As [`Inodes::merge`] for the answer to a change of this mount: what is known stays good when
    /// nobody else changed the file in between.
    pub fn merge_own(&mut self, attr: Attr) -> Attr {
        let mut old = false;
        if let Some(inode) = self.table.get_mut(&attr.ino) {
            let alone = inode.attr.as_ref().is_some_and(|known| known.change + 1 == attr.change);
            old = inode.layout_old || !alone;
            inode.pages.changed_by_own(attr.change);
            if inode.no_capability != 0 && inode.no_capability + 1 == attr.change {
                inode.no_capability = attr.change;
            }
            if let Some(inline) = &mut inode.inline
                && inline.change + 1 == attr.change
            {
                inline.change = attr.change;
            }
        }
        let ino = attr.ino;
        let attr = self.merge(attr);
        if let Some(inode) = self.table.get_mut(&ino) {
            inode.layout_old &= old;
        }
        attr
    }

    /// This mount wrote `data` at `offset` into inline content, which made change counter `change`.
    pub fn patch_inline(&mut self, ino: Ino, change: u64, offset: u64, data: &[u8]) {
        let Some(inline) = self.table.get_mut(&ino).and_then(|inode| inode.inline.as_mut()) else { return };
        let (start, end) = (offset as usize, offset as usize + data.len());
        if inline.change + 1 != change {
            return;
        }
        if end > inline.data.len() {
            self.inline_bytes += end - inline.data.len();
            inline.data.resize(end, 0);
        }
        inline.data[start..end].copy_from_slice(data);
    }

    /// Takes over a layout that came with attributes of change counter `change` (before they are
    /// merged), unless a newer one is known.
    pub fn set_layout(&mut self, ino: Ino, change: u64, layout: Layout) {
        let inode = self.table.entry(ino).or_default();
        let known_change = inode.attr.as_ref().map_or(0, |attr| attr.change);
        if known_change > change {
            return;
        }
        if known_change == change
            && let Some(known) = &inode.layout
            && (known.generation, known.extents.len()) > (layout.generation, layout.extents.len())
        {
            return;
        }
        if !layout.is_inline() {
            self.inline_bytes -= inode.inline.take().map_or(0, |inline| inline.data.len());
        }
        let generation = inode.layout.as_ref().map(|known| known.generation);
        if generation.is_some_and(|generation| generation != layout.generation) {
            // Chunk files of an older generation are deleted whole: neither blocks nor a sync of them matter.
            inode.blocks.retain(|chunk, _| chunk.generation == layout.generation);
            inode.uncut.retain(|chunk, _| chunk.generation == layout.generation);
            for unsynced in &mut inode.unsynced {
                unsynced.chunks.retain(|chunk| chunk.generation == layout.generation);
            }
            inode.unsynced.retain(|unsynced| !unsynced.chunks.is_empty());
        }
        inode.layout = Some(Arc::new(layout));
        inode.layout_old = false;
    }

    /// Keeps inline content, if the limit allows. Content that came late, behind news of a later change, is none to keep: it
    /// would be shown as that of the attributes known.
    pub fn set_inline(&mut self, ino: Ino, inline: Option<Inline>) {
        let inode = self.table.entry(ino).or_default();
        if let (Some(attr), Some(new)) = (&inode.attr, &inline)
            && attr.change > new.change
        {
            return;
        }
        if let (Some(old), Some(new)) = (&inode.inline, &inline)
            && old.change > new.change
        {
            return;
        }
        self.inline_bytes -= inode.inline.take().map_or(0, |old| old.data.len());
        if let Some(new) = inline
            && self.inline_bytes + new.data.len() <= INLINE_CACHE_MAX
        {
            self.inline_bytes += new.data.len();
            inode.inline = Some(new);
        }
    }

    /// The last use of `ino` has ended: keep what a later open or fsync needs, within the limit.
    pub fn park(&mut self, ino: Ino, now: Millis) {
        self.set_inline(ino, None);
        let Some(inode) = self.table.get_mut(&ino) else { return };
        if !inode.unsynced.is_empty() {
            // What the sync of these will find is true of the layout that goes here.
            inode.holds_at(inode.looks_at());
        }
        inode.layout = None;
        inode.mode = None;
        inode.live = false;
        inode.live_size = 0;
        inode.forgotten = false;
        if inode.is_clean() {
            inode.blocks.clear();
        }
        if !inode.unsynced.is_empty() {
            self.closed.push_back((now, ino));
        }
        self.idle.push_back(ino);
        while self.idle.len() > IDLE_INODES_MAX {
            let Some(oldest) = self.idle.pop_front() else { break };
            match self.table.get(&oldest) {
                Some(inode) if inode.uses() == 0 && inode.is_clean() && !inode.pages.may_be_held() => {
                    self.table.remove(&oldest);
                }
                Some(inode) if inode.uses() == 0 && inode.pages.may_be_held() => self.paged.push_back(oldest),
                _ => {}
            }
        }
    }

    /// The kernel forgot `ino`, or nobody needs it. What is known of pages that the kernel may still hold is kept until
    /// housekeeping has dropped them: FORGET comes for names as well, while the inode lives on.
    pub fn forget(&mut self, ino: Ino) {
        let Some(inode) = self.table.get_mut(&ino).filter(|inode| inode.uses() == 0) else { return };
        inode.forgotten = true;
        if !inode.is_clean() {
            return;
        }
        if inode.pages.may_be_held() {
            self.paged.push_back(ino);
            return;
        }
        self.set_inline(ino, None);
        self.table.remove(&ino);
    }

    /// An idle inode that is to be forgotten, and of which the kernel may hold pages.
    pub fn next_paged(&mut self) -> Option<Ino> {
        self.paged.pop_front()
    }

    /// Its pages could not be dropped: later.
    pub fn still_paged(&mut self, ino: Ino) {
        self.paged.push_back(ino);
    }

    /// Takes up to `max` closed inodes whose chunks are to be made durable: those closed before `before`, and
    /// the oldest of all when too many wait. Who is open again waits for its next close.
    pub fn take_closed(&mut self, before: Millis, max: usize) -> Vec<Ino> {
        let mut due = Vec::new();
        while due.len() < max
            && let Some((at, ino)) = self.closed.front().copied()
            && (at <= before || self.closed.len() > IDLE_INODES_MAX)
        {
            self.closed.pop_front();
            let waits = |inode: &Inode| inode.uses() == 0 && !inode.unsynced.is_empty();
            if self.table.get(&ino).is_some_and(waits) && !due.contains(&ino) {
                due.push(ino);
            }
        }
        due
    }

    /// They were tried. What is still not durable waits again; what the kernel has forgotten goes.
    pub fn tried(&mut self, inos: &[Ino], now: Millis) {
        for ino in inos {
            let Some(inode) = self.table.get(ino).filter(|inode| inode.uses() == 0) else { continue };
            if !inode.unsynced.is_empty() {
                self.closed.push_back((now, *ino));
            } else if inode.forgotten || self.table.len() > IDLE_INODES_MAX {
                self.forget(*ino);
            }
        }
    }

    /// How many are kept.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Contents of a shard's small files may be of changes that are lost.
    pub fn forget_inline(&mut self, shard: ShardId) {
        let mut bytes = 0;
        for (_, inode) in self.of_shard_mut(shard) {
            bytes += inode.inline.take().map_or(0, |inline| inline.data.len());
        }
        self.inline_bytes -= bytes;
    }

    /// None is kept.
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::Shared;
    use crate::testing::attr;
    use skep_types::Generation;

    /// Goal: an older answer never replaces a newer one, and own uncommitted writes are always seen.
    #[test]
    fn newest_attributes_win() {
        let (mut inodes, ino) = (Inodes::default(), Ino(9));
        inodes.entry(ino);
        assert_eq!(inodes.merge(attr(9, 5, 100)).size, 100);
        assert_eq!(inodes.merge(attr(9, 4, 7)).size, 100, "change counter 4 is older than 5");
        let begun = inodes.entry(ino).begin();
        inodes.entry(ino).wrote_to(150, Timestamp { secs: 9, nanos: 0 }, Generation(1), false, begun);
        let seen = inodes.merge(attr(9, 6, 120));
        assert_eq!((seen.size, seen.mtime.secs), (150, 9));
        inodes.entry(ino).truncated();
        assert_eq!(inodes.merge(attr(9, 7, 3)).size, 3);
    }

    /// Goal: a target that began a new life between two writes is noticed without any fsync.
    #[test]
    fn a_new_life_between_writes_is_a_loss() {
        let mut inode = Inode::default();
        let chunk = ChunkId { ino: Ino(9), generation: Generation(1), extent: 0, stripe: 0 };
        let answer =
            |life| Answered { life, blocks: 8, size: 9, point: Point::default(), synced: None, cuts: None };
        inode.wrote_chunk(TargetId(1), chunk, answer(7));
        inode.wrote_chunk(TargetId(1), chunk, answer(7));
        assert_eq!((inode.losses, inode.unsynced.len(), inode.unsynced[0].chunks.len()), (0, 1, 1));
        inode.wrote_chunk(TargetId(1), chunk, answer(8));
        assert_eq!(inode.losses, 1);
    }

    /// Goal: the shard is not told that a chunk file was written which is lost by now and of which its writer was told
    /// (seed 209 of the simulator: reads gave EIO for what had been read as a hole since the loss). What is written again,
    /// or was synced, is told.
    #[test]
    fn what_is_lost_was_not_written() {
        let chunk = |stripe| ChunkId { ino: Ino(9), generation: Generation(1), extent: 0, stripe };
        let answer = |life, synced| Answered {
            life,
            blocks: 8,
            size: 9,
            point: (Generation(1), Default::default()),
            synced,
            cuts: None,
        };
        let mut shared = Shared::new(crate::Limits::default());
        let written = |shared: &mut Shared, stripe, life, synced| {
            shared.inodes.entry(Ino(9)).wrote_chunk(TargetId(1), chunk(stripe), answer(life, synced));
        };
        let told = |shared: &mut Shared| -> Vec<(u16, u64)> {
            shared.inodes.entry(Ino(9)).held.iter().map(|(chunk, floor)| (chunk.stripe, *floor)).collect()
        };
        written(&mut shared, 0, 7, None);
        written(&mut shared, 1, 7, None);
        written(&mut shared, 2, 7, Some(9));
        assert_eq!(told(&mut shared), [(0, WRITTEN), (1, WRITTEN), (2, 9)]);
        written(&mut shared, 1, 8, None);
        assert_eq!(told(&mut shared), [(1, WRITTEN), (2, 9)]);
        let unsynced = shared.inodes.entry(Ino(9)).unsynced[0].clone();
        shared.chunks_lost(Ino(9), &unsynced);
        assert_eq!(told(&mut shared), [(2, 9)]);
    }

    /// Goal: a change in a newer term does not hide that one of an older term was lost (seed 39 of the
    /// simulator: fsync answered success).
    #[test]
    fn a_newer_change_hides_no_loss() {
        let mut inode = Inode::default();
        inode.touch(Term(1), LogIndex(61));
        inode.touch(Term(2), LogIndex(64));
        inode.lost(Term(1), LogIndex(60));
        assert_eq!((inode.losses, inode.touched.len()), (1, 1));
        inode.lost(Term(2), LogIndex(64));
        assert_eq!(inode.losses, 1, "what is durable is not lost");
    }

    /// Goal: memory is bounded: idle rows by their limit, inline content by bytes, none leaks a count.
    #[test]
    fn memory_is_bounded() {
        let mut inodes = Inodes::default();
        for number in 0..IDLE_INODES_MAX as u64 + 10 {
            inodes.entry(Ino(number));
            inodes.set_inline(Ino(number), Some(Inline { data: alloc::vec![1; 100], change: 1 }));
            inodes.park(Ino(number), Millis(0));
        }
        assert!(inodes.len() <= IDLE_INODES_MAX);
        assert_eq!(inodes.inline_bytes, 0);
        let size = core::mem::size_of::<Inode>() + core::mem::size_of::<Attr>();
        assert!(size <= 808, "an inode takes {size} bytes before its layout");
        let big = Inline { data: alloc::vec![1; INLINE_CACHE_MAX + 1], change: 1 };
        inodes.set_inline(Ino(1), Some(big));
        assert!(inodes.get(Ino(1)).unwrap().inline.is_none());
    }
}
