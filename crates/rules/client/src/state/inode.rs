//! What a mount knows of files that are open, or were: bounded to 1 KiB for each (inline content,
//! which has its own limit, apart).

use super::believed::Believed;
use super::pages::Pages;
use super::{Answered, Point};
use super::{Hold, HoldWish, Mark, Run};
use crate::limits::UNCUT_MAX;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use skep_types::{Attr, ChunkId, Layout, TargetId, Timestamp, WRITTEN};
use skep_wire::meta::OpenMode;

/// What targets count of cuts, of each chunk file on each target.
pub type Uncut = BTreeMap<(ChunkId, TargetId), u64>;

/// Writes to one target that may be lost by a power cut.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unsynced {
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

#[derive(Debug, Default)]
pub struct Inode {
    /// Handles that only read.
    pub readers: u32,
    /// Handles that may write.
    pub writers: u32,
    /// Handles that might write, so far. (Nobody opens 65,536 within the second for which something is read ahead.)
    pub opened_to_write: u16,
    /// Opens in flight.
    pub opening: u32,
    /// What the shard was last told that it is open for.
    pub mode: Option<OpenMode>,
    /// The shard says that it may stay open when no program needs it any more.
    pub keeps: bool,
    /// What the last open was told is known by a lease that has covered it without a break, if that is still of this number;
    /// 0 = none.
    pub known_since: u64,
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
    /// It is new, and held by this mount.
    pub hold: Option<Box<Hold>>,
    /// What was written to it and waits for more.
    pub run: Option<Box<Run>>,
    /// How it is written, if it is not held, and whether it is asked for.
    pub wish: Option<Box<HoldWish>>,
    /// Unsynced writes, one for each target.
    pub unsynced: Vec<Unsynced>,
    /// 512-byte blocks of the chunk files written.
    pub blocks: BTreeMap<ChunkId, u64>,
    /// What targets counted of cuts of its chunk files: an append is refused when one has come since its place was given.
    pub uncut: Uncut,
    /// What chunk files hold that the shard is to be told: 1 = something, else so many bytes durably.
    pub held: BTreeMap<ChunkId, u64>,
    /// The layout that was known before those were looked at.
    pub held_at: Point,
    /// Counts how often a sync found less than that: something is lost, or the file was cut since.
    pub too_short: u32,
    /// What was found up to there was looked at.
    pub too_short_settled: u32,
    /// Counts how often what was to be told was not, for the file was cut since.
    pub held_voided: u32,
    /// Counts writes.
    pub serial: u64,
    /// Appends under way that were given a range.
    pub appending: u16,
    /// End of the furthest of those ranges; 0 = none. (What is written is found by asking the targets.)
    pub reserved: u64,
    /// Change counter as of which it has no `security.capability`; 0 = unknown.
    pub no_capability: u64,
    /// Writes, copies and reservations of this mount in its chunk files, from before they are sent until they are marked.
    pub changing: u16,
    /// Writes that look where they go, or go: no append stays beside them.
    pub writing: u16,
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
    /// What the kernel takes for its time and size.
    pub believed: Believed,
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
    /// The kernel has forgotten it; it is kept for its unsynced chunks, or for the pages that the kernel holds.
    pub forgotten: bool,
    /// Somebody else has changed the file since the layout came: floors in it may be too low.
    pub layout_old: bool,
}

impl Inode {
    /// Handles and opens in flight.
    pub fn uses(&self) -> u32 {
        self.readers + self.writers + self.opening
    }

    /// This mount changes its content or its size now: what is counted here is needed, open or not.
    pub fn is_changing(&self) -> bool {
        self.changing > 0 || self.appends > 0 || self.cutting > 0 || self.truncating > 0
    }

    /// This mount might write to it, does, or has written what its shard does not know.
    pub fn is_written(&self) -> bool {
        self.writers > 0 || self.is_changing() || self.mark.is_some()
    }

    /// Nothing uncommitted, nothing untold, nothing unsynced.
    pub fn is_clean(&self) -> bool {
        self.mark.is_none() && !self.has_news() && !self.wants_sync()
    }

    /// Something is to be made durable, or to be looked at because a sync found less than was written.
    pub fn wants_sync(&self) -> bool {
        !self.unsynced.is_empty() || self.is_short()
    }

    /// A sync found chunk files too short, and nobody has looked yet what that means.
    pub fn is_short(&self) -> bool {
        self.too_short_settled < self.too_short
    }

    /// Size as this mount knows it.
    pub fn size(&self) -> u64 {
        let committed = self.attr.as_ref().map_or(0, |attr| attr.size).max(self.live_size);
        let written = self.mark.map_or(committed, |mark| committed.max(mark.size));
        self.held_content().map_or(written, |content| written.max(content.len() as u64))
    }

    /// What the shard said does not count any more, though it may be true: the next answer is believed whatever
    /// its counter. What programs wrote and were told of is kept.
    pub fn disbelieve(&mut self) {
        if let Some(attr) = &mut self.attr {
            attr.change = 0;
        }
        self.pages.forget_change();
        self.no_capability = 0;
        (self.keeps, self.known_since) = (false, 0);
    }

    /// A write to `chunk` on `target` was answered. `true`: the target lost what was written before, which is said at once,
    /// whoever syncs next.
    #[must_use]
    pub fn wrote_chunk(&mut self, target: TargetId, chunk: ChunkId, answer: Answered) -> bool {
        let Answered { life, blocks, size, point, synced, cuts } = answer;
        if let Some(cuts) = cuts {
            self.uncut.insert((chunk, target), cuts);
        }
        self.serial += 1;
        self.blocks.insert(chunk, blocks);
        self.hold(chunk, point, synced.unwrap_or(size.min(WRITTEN)));
        if synced.is_some() {
            return false;
        }
        let serial = self.serial;
        let (mut is_new_life, mut lost) = (false, Vec::new());
        match self.unsynced.iter_mut().find(|unsynced| unsynced.target == target) {
            Some(unsynced) => {
                unsynced.serial = serial;
                if unsynced.life != life {
                    unsynced.life = life;
                    is_new_life = true;
                    lost.extend(unsynced.chunks.iter().copied().filter(|older| *older != chunk));
                }
                if !unsynced.chunks.contains(&chunk) {
                    unsynced.chunks.push(chunk);
                }
            }
            None => self.unsynced.push(Unsynced { target, life, chunks: alloc::vec![chunk], serial }),
        }
        self.written_no_more(&lost);
        is_new_life
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
    pub fn newest_uncut(&self) -> Uncut {
        self.uncut.iter().rev().take(UNCUT_MAX).map(|(file, cuts)| (*file, *cuts)).collect()
    }

    /// What else is known of them may go.
    pub fn forget_older_uncut(&mut self) {
        while self.uncut.len() > UNCUT_MAX {
            self.uncut.pop_first();
        }
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
        self.appending = self.appending.saturating_add(1);
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
        debug_assert!(
            self.truncating > 0,
            "what looks in between would take it for over, and be forgotten by it"
        );
        self.mark = None;
        self.live_size = 0;
        self.reserved = 0;
        self.truncations += 1;
        // Its chunk files may be shorter than it says.
        self.layout = self.layout.take().filter(|layout| layout.is_inline());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::Shared;
    use skep_types::Generation;
    use skep_types::Ino;

    /// Goal: a target that began a new life between two writes is noticed without any fsync.
    #[test]
    fn a_new_life_between_writes_is_a_loss() {
        let mut inode = Inode::default();
        let chunk = ChunkId { ino: Ino(9), generation: Generation(1), extent: 0, stripe: 0 };
        let answer =
            |life| Answered { life, blocks: 8, size: 9, point: Point::default(), synced: None, cuts: None };
        assert!(!inode.wrote_chunk(TargetId(1), chunk, answer(7)));
        assert!(!inode.wrote_chunk(TargetId(1), chunk, answer(7)));
        assert_eq!((inode.unsynced.len(), inode.unsynced[0].chunks.len()), (1, 1));
        assert!(inode.wrote_chunk(TargetId(1), chunk, answer(8)));
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
            shared.wrote_chunk(Ino(9), TargetId(1), chunk(stripe), answer(life, synced));
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
}
