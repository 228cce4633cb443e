//! All files that a mount knows of: those that are open, and some that were.

use super::inode::Inline;
use super::{HoldWish, Inode};
use crate::limits::{IDLE_INODES_MAX, INLINE_CACHE_MAX, SYNC_CLOSED_BATCH, SYNC_SMALLER_MAX};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;
use skep_types::{Attr, ChunkId, Ino, Layout, Millis, ShardId};

/// All inodes that a mount keeps.
#[derive(Debug, Default)]
pub struct Inodes {
    /// Boxed: one that goes leaves no hole in a node of the table, and one that comes moves no others.
    table: BTreeMap<Ino, Box<Inode>>,
    /// When the last use of each ended, with its number of opens and closes then: it may have been used since. The oldest first, but
    /// for those that could not go when they were due, which have come to the end again.
    idle: VecDeque<(Millis, Ino, u64)>,
    /// Idle ones beyond the limit, of which the kernel holds pages: these go first.
    paged: VecDeque<Ino>,
    /// Drops of the kernel's pages that have ended.
    pub drops: u64,
    /// Closed with unsynced chunks, and when; the oldest first.
    closed: VecDeque<(Millis, Ino)>,
    inline_bytes: usize,
    /// Appends to these came to nothing, or out short, in this session: what is missing may land late, where the next ones went.
    elsewhere: BTreeSet<Ino>,
}

impl Inodes {
    /// An inode, if it is known.
    pub fn get(&self, ino: Ino) -> Option<&Inode> {
        self.table.get(&ino).map(|inode| &**inode)
    }

    /// An inode to be changed, if it is known.
    pub fn get_mut(&mut self, ino: Ino) -> Option<&mut Inode> {
        self.table.get_mut(&ino).map(|inode| &mut **inode)
    }

    /// An inode, known from now on.
    pub fn entry(&mut self, ino: Ino) -> &mut Inode {
        self.table.entry(ino).or_default()
    }

    /// An append came to nothing, or out short.
    pub fn append_failed(&mut self, ino: Ino) {
        if self.elsewhere.len() < IDLE_INODES_MAX {
            self.elsewhere.insert(ino);
        }
    }

    /// May that be so of this one? (Of so many files nobody remembers it.)
    pub fn appends_elsewhere(&self, ino: Ino) -> bool {
        self.elsewhere.len() >= IDLE_INODES_MAX || self.elsewhere.contains(&ino)
    }

    /// All known inodes.
    pub fn iter(&self) -> impl Iterator<Item = (Ino, &Inode)> {
        self.table.iter().map(|(ino, inode)| (*ino, &**inode))
    }

    /// All known inodes of a shard, to be changed.
    pub fn of_shard_mut(&mut self, shard: ShardId) -> impl Iterator<Item = (Ino, &mut Inode)> {
        let range = Ino::new(shard, 0)..=Ino::new(shard, Ino::SERIAL_MAX);
        self.table.range_mut(range).map(|(ino, inode)| (*ino, &mut **inode))
    }

    /// A new session began: nothing that was known in the old one counts, but what programs wrote and what they
    /// must be told.
    pub fn disbelieve_all(&mut self) {
        self.elsewhere.clear();
        for inode in self.table.values_mut() {
            inode.wish = None;
            inode.disbelieve();
            (inode.layout, inode.inline) = (None, None);
            (inode.live, inode.live_size, inode.reserved) = (false, 0, 0);
            if inode.pages.may_be_held() {
                inode.pages.misplaced(0);
            }
            inode.pages.doubt_writes();
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

    /// As [`Inodes::merge`] for the answer to a change of this mount, which has moved the change counter: what is known stays
    /// good when nobody else changed the file in between.
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

    /// As [`Inodes::merge_own`] for the answer to what was told of a file that was held: nobody else can have changed it.
    pub fn merge_told(&mut self, attr: Attr, held_until: Option<Millis>) -> Attr {
        let (ino, change) = (attr.ino, attr.change);
        let (mut old, mut content) = (false, None);
        if let Some(inode) = self.table.get_mut(&ino) {
            old = inode.layout_old;
            match held_until {
                Some(good_until) => {
                    inode.knows_news();
                    inode.is_held_still(good_until);
                }
                None => content = inode.was_told(),
            }
            inode.pages.changed_by_own(change);
            if inode.no_capability != 0 {
                inode.no_capability = change;
            }
            if let Some(inline) = &mut inode.inline {
                inline.change = change;
            }
        }
        let attr = self.merge(attr);
        if let Some(data) = content {
            self.set_inline(ino, Some(Inline { data, change }));
        }
        if let Some(inode) = self.table.get_mut(&ino) {
            inode.layout_old = old;
        }
        attr
    }

    /// Nothing is held any more. Those of which something was not told.
    pub fn take_holds(&mut self) -> Vec<Ino> {
        self.table.values_mut().for_each(|inode| inode.wish = None);
        let held = self.table.iter_mut().filter(|(_, inode)| inode.hold.is_some());
        let mut lost = Vec::new();
        for (ino, inode) in held {
            if inode.has_changes() {
                lost.push(*ino);
            }
            inode.hold = None;
        }
        lost
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
        // Chunk files of an older generation are deleted whole: neither blocks nor a sync of them matter. Each truncate makes
        // a new one, and forgets the layout before.
        let is_kept = |chunk: &ChunkId| chunk.generation >= layout.generation;
        inode.uncut.retain(|(chunk, _), _| is_kept(chunk));
        inode.blocks.retain(|chunk, _| is_kept(chunk));
        for unsynced in &mut inode.unsynced {
            unsynced.chunks.retain(is_kept);
        }
        inode.unsynced.retain(|unsynced| !unsynced.chunks.is_empty());
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
        inode.wish.take_if(|wish| !wish.is_put_off(now));
        inode.wish.as_deref_mut().map(HoldWish::park);
        inode.mode = None;
        inode.live = false;
        inode.live_size = 0;
        inode.forgotten = false;
        inode.forget_older_uncut();
        if inode.is_clean() {
            inode.blocks.clear();
        }
        if inode.wants_sync() {
            self.closed.push_back((now, ino));
        }
        let used = inode.open_seq;
        self.idle.push_back((now, ino, used));
        while self.idle.len() > IDLE_INODES_MAX {
            let Some((_, oldest, used)) = self.idle.pop_front() else { break };
            let Some(inode) = self.unused_since(oldest, used) else { continue };
            if inode.pages.may_be_held() || inode.is_changing() {
                self.paged.push_back(oldest);
            } else if inode.is_clean() {
                self.remove(oldest);
            }
        }
    }

    /// It, if nobody uses it, nor has since its number of opens and closes was this.
    fn unused_since(&self, ino: Ino, used: u64) -> Option<&Inode> {
        self.get(ino).filter(|inode| inode.uses() == 0 && inode.open_seq == used)
    }

    /// One that nobody has had open for so long goes, unless the kernel may hold pages of it: those stay until others need the room.
    /// `false`: there is none.
    pub fn forget_unused(&mut self, now: Millis, idle_ms: u64) -> bool {
        let is_old = |(since, ..): &mut (Millis, Ino, u64)| now.since(*since) >= idle_ms;
        let Some((_, ino, used)) = self.idle.pop_front_if(is_old) else { return false };
        let Some(inode) = self.unused_since(ino, used) else { return true };
        if inode.pages.may_be_held() || inode.is_changing() || !inode.is_clean() {
            self.idle.push_back((now, ino, used));
        } else {
            self.remove(ino);
        }
        true
    }

    /// The kernel forgot `ino`, or nobody needs it. What is known of pages that the kernel may still hold is kept until
    /// housekeeping has dropped them: FORGET comes for names as well, while the inode lives on.
    pub fn forget(&mut self, ino: Ino) {
        let Some(inode) = self.table.get_mut(&ino).filter(|inode| inode.uses() == 0) else { return };
        inode.forgotten = true;
        if !inode.is_clean() {
            return;
        }
        if inode.pages.may_be_held() || inode.is_changing() {
            self.paged.push_back(ino);
            return;
        }
        self.remove(ino);
    }

    fn remove(&mut self, ino: Ino) {
        let inline = self.table.remove(&ino).and_then(|inode| inode.inline);
        self.inline_bytes -= inline.map_or(0, |inline| inline.data.len());
    }

    /// No program has it open, but it is kept open: it leaves half of the room for contents to those that are in use.
    pub fn leave_room(&mut self, ino: Ino) {
        if self.inline_bytes > INLINE_CACHE_MAX / 2 {
            self.set_inline(ino, None);
        }
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
            let waits = |inode: &Inode| inode.uses() == 0 && inode.wants_sync();
            if self.get(ino).is_some_and(waits) && !due.contains(&ino) {
                due.push(ino);
            }
        }
        due
    }

    /// They were tried. What is still not durable waits again, those that were asked for first behind the others; what the
    /// kernel has forgotten goes.
    pub fn tried(&mut self, inos: &[Ino], now: Millis) {
        let (first, others) = inos.split_at(inos.len().min(SYNC_CLOSED_BATCH >> SYNC_SMALLER_MAX));
        for ino in others.iter().chain(first) {
            let Some(inode) = self.table.get(ino).filter(|inode| inode.uses() == 0) else { continue };
            if inode.wants_sync() {
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
    use crate::limits::UNCUT_MAX;
    use crate::state::Answered;
    use crate::testing::attr;
    use skep_types::{Generation, TargetId, Timestamp};

    /// Goal: an older answer never replaces a newer one, and own uncommitted writes are always seen.
    #[test]
    fn newest_attributes_win() {
        let (mut inodes, ino) = (Inodes::default(), Ino(9));
        inodes.entry(ino);
        assert_eq!(inodes.merge(attr(9, 5, 100)).size, 100);
        assert_eq!(inodes.merge(attr(9, 4, 7)).size, 100, "change counter 4 is older than 5");
        let begun = inodes.entry(ino).begin();
        let _ = inodes.entry(ino).wrote_to(150, Timestamp { secs: 9, nanos: 0 }, Generation(1), false, begun);
        let seen = inodes.merge(attr(9, 6, 120));
        assert_eq!((seen.size, seen.mtime.secs), (150, 9));
        inodes.entry(ino).truncating = 1;
        inodes.entry(ino).truncated();
        assert_eq!(inodes.merge(attr(9, 7, 3)).size, 3);
    }

    /// Goal: what is counted of a truncate that goes by the path, without a handle, outlives a FORGET of the kernel, which comes
    /// for names as well: an append beside it would not know of it.
    #[test]
    fn what_is_changing_is_not_forgotten() {
        let (mut inodes, ino) = (Inodes::default(), Ino(9));
        inodes.entry(ino).cutting = 1;
        inodes.forget(ino);
        assert!(!inodes.entry(ino).append_enters());
        inodes.park(ino, Millis(0));
        for number in 0..IDLE_INODES_MAX as u64 {
            inodes.entry(Ino(100 + number));
            inodes.park(Ino(100 + number), Millis(0));
        }
        assert!(!inodes.entry(ino).append_enters());
        inodes.entry(ino).truncate_is_given_up();
        assert_eq!(inodes.next_paged(), Some(ino));
        inodes.forget(ino);
        assert!(inodes.get(ino).is_none());
    }

    /// Goal: what a truncate deletes is not to be synced, however many there were (xfstests 129: after 4,096 of an open file
    /// its fsync failed with E2BIG for ever).
    #[test]
    fn deleted_generations_are_not_synced() {
        let (mut inodes, ino) = (Inodes::default(), Ino(9));
        for generation in (1..100).map(Generation) {
            let layout = Layout { generation, ..Layout::default() };
            inodes.set_layout(ino, generation.0.into(), layout);
            let inode = inodes.entry(ino);
            let chunk = ChunkId { ino, generation, extent: 0, stripe: 0 };
            let point = (generation, Default::default());
            let answer = Answered { life: 1, blocks: 8, size: 9, point, synced: None, cuts: Some(1) };
            assert!(!inode.wrote_chunk(TargetId(1), chunk, answer));
            assert_eq!(
                (inode.unsynced[0].chunks.as_slice(), inode.blocks.len(), inode.uncut.len()),
                (&[chunk][..], 1, 1)
            );
            inode.layout = None;
        }
    }

    /// Goal: counts of cuts are kept of the chunk files at the end of the newest generation, and of no others.
    #[test]
    fn counts_of_cuts_are_bounded() {
        let (mut inodes, ino) = (Inodes::default(), Ino(9));
        let chunk =
            |generation, extent, stripe| ChunkId { ino, generation: Generation(generation), extent, stripe };
        for number in 0..2 * UNCUT_MAX as u16 {
            inodes.entry(ino).uncut.insert((chunk(1, number / 64, number % 64), TargetId(1)), 7);
        }
        inodes.park(ino, Millis(0));
        let kept = &inodes.entry(ino).uncut;
        assert_eq!((kept.len(), kept.contains_key(&(chunk(1, 3, 63), TargetId(1)))), (UNCUT_MAX, true));
        inodes.set_layout(ino, 1, Layout { generation: Generation(2), ..Layout::default() });
        assert!(inodes.entry(ino).uncut.is_empty());
    }

    /// Goal: who was not used for long goes, the others stay, and so does one whose pages the kernel may hold.
    #[test]
    fn what_is_not_used_goes() {
        const LONG: u64 = 1_000;
        let mut inodes = Inodes::default();
        for (number, at) in [(1, 0), (2, 10), (3, 0)] {
            inodes.entry(Ino(number));
            inodes.park(Ino(number), Millis(at));
        }
        inodes.entry(Ino(1)).pages.fill_begins(0, 9);
        assert!(!inodes.forget_unused(Millis(LONG - 1), LONG));
        let now = Millis(LONG);
        assert!(inodes.forget_unused(now, LONG) && !inodes.forget_unused(now, LONG));
        assert_eq!(inodes.len(), 3, "it may have pages");
        let now = now.plus(10);
        while inodes.forget_unused(now, LONG) {}
        assert!(inodes.get(Ino(1)).is_some() && inodes.len() == 1);
        // One that was used again in between is as old as its last use.
        inodes.entry(Ino(4));
        inodes.park(Ino(4), now);
        inodes.entry(Ino(4)).open_seq = 2;
        inodes.park(Ino(4), now.plus(1));
        while inodes.forget_unused(now.plus(LONG), LONG) {}
        assert!(inodes.get(Ino(4)).is_some());
        while inodes.forget_unused(now.plus(LONG + 1), LONG) {}
        assert!(inodes.get(Ino(4)).is_none());
    }

    /// Goal: nothing of which something is still to be done goes with the time: a write that was not told, chunks that are not synced,
    /// a truncate under way, an open under way. When that is over it does.
    #[test]
    fn what_is_not_done_stays() {
        type Change<'a> = &'a dyn Fn(&mut Inode);
        let chunk = ChunkId { ino: Ino(9), generation: Generation(1), extent: 0, stripe: 0 };
        let point = (Generation(1), Default::default());
        let answer = Answered { life: 1, blocks: 8, size: 9, point, synced: None, cuts: None };
        let written = |inode: &mut Inode| {
            let begun = inode.begin();
            let _ = inode.wrote_to(150, Timestamp { secs: 9, nanos: 0 }, Generation(1), false, begun);
        };
        let unsynced = move |inode: &mut Inode| {
            let _ = inode.wrote_chunk(TargetId(1), chunk, answer);
        };
        let cases: [(Change<'_>, Change<'_>); 4] = [
            (&written, &|inode| inode.mark = None),
            (&unsynced, &|inode| inode.unsynced.clear()),
            (&|inode| inode.cutting = 1, &|inode| inode.cutting = 0),
            (&|inode| inode.opening = 1, &|inode| inode.opening = 0),
        ];
        for (number, (begins, ends)) in cases.into_iter().enumerate() {
            let (mut inodes, ino) = (Inodes::default(), Ino(9));
            begins(inodes.entry(ino));
            inodes.park(ino, Millis(0));
            for now in 1..4 {
                inodes.forget_unused(Millis(now), 1);
                assert!(inodes.get(ino).is_some(), "case {number}");
            }
            ends(inodes.entry(ino));
            inodes.park(ino, Millis(5));
            while inodes.forget_unused(Millis(7), 1) {}
            assert!(inodes.get(ino).is_none(), "case {number}");
        }
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
        assert!(size <= 848, "an inode takes {size} bytes before its layout");
        // One that is kept open is parked no more, and goes as the oldest of those that were.
        let mut inodes = Inodes::default();
        inodes.entry(Ino(0));
        inodes.park(Ino(0), Millis(0));
        inodes.set_inline(Ino(0), Some(Inline { data: alloc::vec![1; 100], change: 1 }));
        for number in 1..=IDLE_INODES_MAX as u64 {
            inodes.entry(Ino(number));
            inodes.park(Ino(number), Millis(0));
        }
        assert_eq!((inodes.get(Ino(0)).is_none(), inodes.inline_bytes), (true, 0));
        let half = INLINE_CACHE_MAX / 2;
        for (number, len, stays) in [(1, half, true), (2, 1, false)] {
            inodes.set_inline(Ino(number), Some(Inline { data: alloc::vec![1; len], change: 1 }));
            inodes.leave_room(Ino(number));
            assert_eq!(inodes.get(Ino(number)).unwrap().inline.is_some(), stays);
        }
        let big = Inline { data: alloc::vec![1; INLINE_CACHE_MAX + 1], change: 1 };
        inodes.set_inline(Ino(1), Some(big));
        assert!(inodes.get(Ino(1)).unwrap().inline.is_none());
    }
}
