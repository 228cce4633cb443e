//! What the kernel's page cache may hold of a file, and as of when. The rules stand in `docs/design/data-path.md`.

use alloc::boxed::Box;
use alloc::vec::Vec;

/// Size of a page of the kernel.
const PAGE: u64 = 4096;

/// First byte of the first page that has any of these bytes, and the end of the last one.
fn pages_of(from: u64, end: u64) -> (u64, u64) {
    (from / PAGE * PAGE, end.checked_next_multiple_of(PAGE).unwrap_or(u64::MAX))
}

/// No range of bytes.
const NONE: (u64, u64) = (u64::MAX, 0);

/// What stands where a write has landed.
#[derive(Debug, Clone)]
enum Content {
    Bytes(Vec<u8>),
    Zeros,
}

/// A write past the page cache that is under way.
#[derive(Debug)]
struct Write {
    number: u64,
    offset: u64,
    end: u64,
    /// What pages get that are filled before it has landed. `None`: fills wait for it.
    content: Option<Content>,
}

/// Bytes that are being read for pages.
#[derive(Debug)]
struct Fill {
    number: u64,
    offset: u64,
    end: u64,
    /// Writes that landed since it began, which it may have read too early to see: first byte, end, and what is there.
    landed: Vec<(u64, u64, Content)>,
}

/// See the module. Nothing is held of a file that is not known.
#[derive(Debug)]
pub struct Pages {
    /// First byte, and end, of what fills and cached writes have touched since everything was dropped.
    held: (u64, u64),
    /// Drops under way: what they drop may still be there.
    dropping: u32,
    /// The kernel takes the file for no longer than this: the largest size that it was told, as long as nobody has looked.
    most: u64,
    /// Looks under way, by their number, each with the largest size that it was told since. (Boxed: there are seldom any.)
    #[allow(clippy::box_collection)]
    looks: Option<Box<Vec<(u64, u64)>>>,
    /// The mount's count of drops when one of this file ended last.
    dropped_at: u64,
    /// All pages are as of this change counter of the file, or later; 0 = not known.
    as_of: u64,
    /// Moves when change counters lose their meaning.
    era: u32,
    /// The file ended here when its last page was filled: what that page has beyond is zeros that nobody
    /// wrote. `u64::MAX`: there is no such page.
    right_to: u64,
    /// The same of last pages that are on their way out, behind the number of the drop that takes them.
    leaving: Vec<(u64, u64)>,
    /// Largest size that the kernel believes, or may.
    told: u64,
    /// Pages from here on have bytes of an append that landed elsewhere. `u64::MAX`: none.
    misplaced: u64,
    writes: Vec<Write>,
    fills: Vec<Fill>,
    numbers: u64,
}

impl Default for Pages {
    fn default() -> Self {
        Self {
            held: NONE,
            dropping: 0,
            most: 0,
            looks: None,
            dropped_at: 0,
            as_of: 0,
            era: 0,
            right_to: u64::MAX,
            leaving: Vec::new(),
            told: 0,
            misplaced: u64::MAX,
            writes: Vec::new(),
            fills: Vec::new(),
            numbers: 0,
        }
    }
}

/// A drop that was begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageDrop {
    /// First byte.
    pub from: u64,
    /// Number of bytes; 0 = to the end.
    pub len: u64,
    number: u64,
    change: u64,
    era: u32,
}

/// What a fill that has read its bytes is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Filled {
    /// Hand out so many bytes.
    Done(usize),
    /// Read again: the kernel was told of a longer file meanwhile.
    Again,
}

impl Pages {
    /// May the kernel hold any?
    pub fn may_be_held(&self) -> bool {
        self.held().is_some() || self.dropping > 0
    }

    fn held(&self) -> Option<(u64, u64)> {
        (self.held.0 <= self.held.1).then_some(self.held)
    }

    fn holds(&self, from: u64, end: u64) -> bool {
        let (from, end) = pages_of(from, end);
        self.dropping > 0 || self.held().is_some_and(|held| from <= held.1 && held.0 < end)
    }

    /// Was a drop under way since the mount had counted so many? It moves the kernel's version of the attributes, so that
    /// the kernel does not take over the size that it is answered.
    pub fn is_disbelieved(&self, drops: u64) -> bool {
        self.dropping > 0 || self.dropped_at > drops
    }

    /// A notice other than a drop has moved that version: the mount's count of drops then.
    pub fn is_outdated(&mut self, count: u64) {
        self.dropped_at = count;
    }

    /// Are some on their way out?
    pub fn are_dropped(&self) -> bool {
        self.dropping > 0
    }

    /// May a program be shown them as the content of change counter `change`?
    pub fn are_as_of(&mut self, change: u64) -> bool {
        if !self.may_be_held() {
            self.as_of = change;
        }
        change != 0 && self.as_of == change
    }

    /// This mount's own change moved the counter to `change`: it is in the pages, too.
    pub fn changed_by_own(&mut self, change: u64) {
        if self.as_of + 1 == change {
            self.as_of = change;
        }
    }

    /// Change counters known so far mean nothing any more.
    pub fn forget_change(&mut self) {
        self.as_of = 0;
        self.era += 1;
    }

    /// All of them are to be dropped; what is filled from now on is as of `change`, or later.
    pub fn drop_all(&mut self, change: u64) -> PageDrop {
        self.held = NONE;
        self.begin(0, 0, change, true)
    }

    /// Those that have a byte of this range are to be dropped (`len` 0: to the end).
    pub fn drop_range(&mut self, from: u64, len: u64) -> PageDrop {
        let (start, end) = pages_of(from, if len == 0 { u64::MAX } else { from + len });
        let last = start <= self.right_to && self.right_to < end;
        self.held = match self.held() {
            Some(held) if start <= held.0 && held.1 <= end => NONE,
            Some(held) if start <= held.0 => (held.0.max(end), held.1),
            Some(held) if held.1 <= end => (held.0, held.1.min(start)),
            held => held.unwrap_or(NONE),
        };
        self.begin(from, len, 0, last)
    }

    /// The kernel put an append into its pages from here on, and it landed elsewhere.
    pub fn misplaced(&mut self, from: u64) {
        self.misplaced = self.misplaced.min(from);
    }

    /// An append that the kernel put into its pages was answered: what is dropped if it landed elsewhere.
    pub fn drop_misplaced(&mut self, offset: u64, end: u64) -> Option<PageDrop> {
        self.cached_write(offset, end);
        let from = core::mem::replace(&mut self.misplaced, u64::MAX);
        (from != u64::MAX).then(|| self.drop_range(from / PAGE * PAGE, 0))
    }

    /// `last`: the last page is among them.
    fn begin(&mut self, from: u64, len: u64, change: u64, last: bool) -> PageDrop {
        self.dropping += 1;
        self.numbers += 1;
        let number = self.numbers;
        if last && self.right_to != u64::MAX {
            self.leaving.push((number, core::mem::replace(&mut self.right_to, u64::MAX)));
        }
        PageDrop { from, len, number, change, era: self.era }
    }

    /// Up to where the kernel may be told that the file reaches.
    fn limit(&self) -> u64 {
        self.leaving.iter().fold(self.right_to, |least, (_, right_to)| least.min(*right_to))
    }

    /// The kernel has dropped them, or (not `done`) nobody knows: the mount's drop number `count`.
    pub fn dropped(&mut self, drop: PageDrop, done: bool, count: u64) {
        self.dropping = self.dropping.saturating_sub(1);
        self.dropped_at = count;
        if !done {
            // Whatever it is, it is still there.
            self.held = (0, u64::MAX);
            self.right_to = self.limit().min(drop.from);
            self.leaving.retain(|(number, _)| *number != drop.number);
            self.as_of = 0;
            return;
        }
        // What an earlier drop was to take is gone as well: else two lanes would wait for each other's for ever.
        let (start, end) = pages_of(drop.from, if drop.len == 0 { u64::MAX } else { drop.from + drop.len });
        self.leaving.retain(|(number, right_to)| {
            *number != drop.number && (*number > drop.number || !(start..end).contains(right_to))
        });
        if drop.era == self.era {
            self.as_of = self.as_of.max(drop.change);
        }
    }

    fn hold(&mut self, offset: u64, end: u64) {
        self.held = (self.held.0.min(offset), self.held.1.max(end));
    }

    /// Pages are to be filled from `offset` to `end`: the fill's number.
    pub fn fill_begins(&mut self, offset: u64, end: u64) -> u64 {
        self.hold(offset, end);
        self.numbers += 1;
        self.fills.push(Fill { number: self.numbers, offset, end, landed: Vec::new() });
        self.numbers
    }

    /// A fill that will not end.
    pub fn fill_given_up(&mut self, number: u64) {
        self.fills.retain(|fill| fill.number != number);
    }

    /// Must a fill wait for a write that is under way?
    pub fn fill_waits(&self, offset: u64, end: u64) -> bool {
        self.writes.iter().any(|write| write.content.is_none() && write.offset < end && offset < write.end)
    }

    /// `n` bytes were read for a fill. Writes that are under way, or landed meanwhile, are put over them: the kernel may
    /// write the whole page back after they have. `looked`: the file's size was just asked for.
    pub fn fill_ends(&mut self, number: u64, n: usize, out: &mut [u8], looked: bool) -> Filled {
        let Some(at) = self.fills.iter().position(|fill| fill.number == number) else {
            return Filled::Done(n);
        };
        let offset = self.fills[at].offset;
        if n < out.len() && offset + (n as u64) < self.told && !looked {
            // What is read from now on has them.
            self.fills[at].landed.clear();
            return Filled::Again;
        }
        let fill = self.fills.swap_remove(at);
        let mut end = offset + n as u64;
        let landed = fill.landed.iter().map(|(from, to, content)| (*from, *to, content));
        let under_way =
            self.writes.iter().filter_map(|write| Some((write.offset, write.end, write.content.as_ref()?)));
        for (start, stop, content) in landed.chain(under_way) {
            // Zeros make no file longer. A write that begins beyond the end leaves a gap, of which more is known when it
            // has landed.
            let room = if matches!(content, Content::Zeros) { end } else { offset + out.len() as u64 };
            let (from, to) = (start.max(offset), stop.min(room));
            if from < to && from <= end {
                let (at, len) = ((from - offset) as usize, (to - from) as usize);
                match content {
                    Content::Bytes(data) => {
                        out[at..at + len].copy_from_slice(&data[(from - start) as usize..][..len]);
                    }
                    Content::Zeros => out[at..at + len].fill(0),
                }
                end = end.max(to);
            }
        }
        let n = (end - offset) as usize;
        if n < out.len() {
            self.right_to = self.right_to.min(end);
        }
        Filled::Done(n)
    }

    /// The kernel is to be told that the file has this size. A drop comes before when a page would show zeros
    /// that nobody wrote.
    pub fn tell(&mut self, size: u64) -> Option<PageDrop> {
        if self.may_be_held() && size < self.told {
            // The kernel cuts what it holds there, and fills the rest of the page with zeros.
            self.right_to = self.right_to.min(size);
        }
        if !self.may_be_held() {
            self.told = size;
        }
        self.tell_at_least(size)
    }

    /// As [`Pages::tell`], of an answer after which the kernel believes in this size, or a larger one that it knew.
    pub fn tell_at_least(&mut self, size: u64) -> Option<PageDrop> {
        if self.may_be_held() {
            let right_to = self.limit();
            if size > right_to {
                let from = right_to / PAGE * PAGE;
                return Some(self.drop_range(from, 0));
            }
        }
        self.told = self.told.max(size);
        self.most = self.most.max(size);
        self.looks
            .iter_mut()
            .flat_map(|looks| looks.iter_mut())
            .for_each(|(_, since)| *since = size.max(*since));
        None
    }

    /// The kernel asks, and is to be answered this size, while a fill may wait for that: no page may be dropped before. `known`: what it
    /// takes the file for. What it may be told: it takes it for longer only as far as no page shows zeros in front of that.
    pub fn settles(&mut self, size: u64, known: u64) -> u64 {
        let limit = if self.may_be_held() { self.limit() } else { u64::MAX };
        let size = if size <= known { size } else { size.min(limit).max(known) };
        if size < self.told {
            self.right_to = self.right_to.min(size);
        }
        size
    }

    /// A fill has found that the file ends at `end`: does the kernel perhaps take it for longer? It would show zeros behind that.
    /// Then it is looked at: the look's number.
    pub fn look_begins(&mut self, end: u64) -> Option<u64> {
        if self.most <= end {
            return None;
        }
        self.numbers += 1;
        self.looks.get_or_insert_default().push((self.numbers, end));
        Some(self.numbers)
    }

    /// The kernel took it for no longer than that, or nobody knows. (An answer that is applied later was asked for before, or is
    /// told since.)
    pub fn look_ends(&mut self, number: u64, done: bool) {
        let Some(looks) = &mut self.looks else { return };
        let Some(at) = looks.iter().position(|(look, _)| *look == number) else { return };
        let (_, since) = looks.swap_remove(at);
        if looks.is_empty() {
            self.looks = None;
        }
        if done {
            self.most = since;
        }
    }

    /// May the kernel be told of this size at once?
    pub fn may_tell(&mut self, size: u64) -> bool {
        let may = !self.may_be_held() || size <= self.limit();
        if may {
            self.tell(size);
        }
        may
    }

    /// This mount made the file longer by itself: what was behind its end is zeros indeed.
    pub fn lengthened(&mut self, size: u64) {
        if self.right_to != u64::MAX {
            self.right_to = self.right_to.max(size);
        }
    }

    /// The kernel wrote into its pages, and sends the bytes on.
    pub fn cached_write(&mut self, offset: u64, end: u64) {
        self.hold(offset, end);
        self.own_write(offset, end);
    }

    fn own_write(&mut self, offset: u64, end: u64) {
        if offset <= self.right_to && self.right_to != u64::MAX {
            self.right_to = self.right_to.max(end);
        }
    }

    /// Must a write wait for one of the same bytes that is under way? Of two at once nobody knows which one a target does
    /// last, so pages could not be given the right one of them. Where no page has any of these bytes, fills wait for both.
    /// `known`: its bytes will be noted, whatever is held.
    pub fn write_waits(&self, offset: u64, end: u64, known: bool) -> bool {
        let mut beside =
            self.writes.iter().filter(|write| write.offset < end && offset < write.end).peekable();
        // Streams ask no further.
        beside.peek().is_some()
            && (known || self.holds(offset, end) || beside.any(|write| write.content.is_some()))
    }

    /// A write past the page cache begins: its number, and the pages that go before its bytes do. The kernel
    /// dropped them before it sent the write, but a mapping may have filled them again with what was before.
    pub fn write_begins(&mut self, offset: u64, data: &[u8]) -> (u64, Option<PageDrop>) {
        let end = offset + data.len() as u64;
        let held = self.holds(offset, end);
        let number = self.note(offset, end, held.then(|| Content::Bytes(data.to_vec())));
        (number, held.then(|| self.drop_range(offset, end - offset)))
    }

    /// As [`Pages::write_begins`], of a range that becomes zeros: a length is enough to know its bytes.
    pub fn zeros_begin(&mut self, offset: u64, end: u64) -> (u64, Option<PageDrop>) {
        let held = self.holds(offset, end);
        let number = self.note(offset, end, Some(Content::Zeros));
        (number, held.then(|| self.drop_range(offset, end - offset)))
    }

    /// As [`Pages::write_begins`], of bytes that are not known here. Fills wait for it, so it begins (its number) only when
    /// no page has any of them: a drop waits for fills. Else what is to be dropped first.
    pub fn copy_begins(&mut self, offset: u64, end: u64) -> Result<u64, PageDrop> {
        match self.holds(offset, end) {
            true => Err(self.drop_range(offset, end - offset)),
            false => Ok(self.note(offset, end, None)),
        }
    }

    fn note(&mut self, offset: u64, end: u64, content: Option<Content>) -> u64 {
        self.numbers += 1;
        self.writes.push(Write { number: self.numbers, offset, end, content });
        self.numbers
    }

    fn noted(&mut self, number: u64) -> Option<Write> {
        let at = self.writes.iter().position(|write| write.number == number)?;
        Some(self.writes.remove(at))
    }

    /// So many bytes of it have landed.
    pub fn write_ends(&mut self, number: u64, written: usize) {
        let Some(Write { offset, content, .. }) = self.noted(number).filter(|_| written > 0) else { return };
        let end = offset + written as u64;
        self.own_write(offset, end);
        if let Some(Content::Bytes(mut data)) = content {
            data.truncate(written);
            self.landed(offset, end, &Content::Bytes(data));
        }
    }

    /// The zeros are there, or (not `done`) some of them.
    pub fn zeros_end(&mut self, number: u64, done: bool) {
        if let Some(Write { offset, end, .. }) = self.noted(number).filter(|_| done) {
            self.landed(offset, end, &Content::Zeros);
        }
    }

    fn landed(&mut self, offset: u64, end: u64, content: &Content) {
        for fill in self.fills.iter_mut().filter(|fill| fill.offset < end && offset < fill.end) {
            fill.landed.push((offset, end, content.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(pages: &mut Pages, offset: u64, content: &[u8], room: usize) -> (Filled, Vec<u8>) {
        let mut out = alloc::vec![0; room];
        out[..content.len()].copy_from_slice(content);
        let number = pages.fill_begins(offset, offset + room as u64);
        let filled = pages.fill_ends(number, content.len(), &mut out, false);
        (filled, out)
    }

    /// Goal: a fill that finds the end where the kernel may take the file for longer has it looked at, until it is known that it
    /// does not; what it is told meanwhile counts. It is not told more than pages show, nor less than it knows where that is right.
    #[test]
    fn ends_are_looked_at() {
        let mut pages = Pages::default();
        assert_eq!((pages.tell(9_000), pages.look_begins(9_000)), (None, None));
        let number = pages.fill_begins(4_096, 8_192);
        pages.tell(5_000);
        let look = pages.look_begins(5_000).unwrap();
        pages.look_ends(look, false);
        let look = pages.look_begins(5_000).unwrap();
        pages.look_ends(look, true);
        assert_eq!(pages.look_begins(5_000), None);
        assert_eq!(pages.look_begins(4_500), Some(look + 1), "it takes it for longer than that");
        pages.tell_at_least(4_800);
        pages.look_ends(look + 1, true);
        assert_eq!((pages.look_begins(4_800), pages.look_begins(4_700).is_some()), (None, true));
        pages.fill_given_up(number);
        assert_eq!(pages.settles(6_000, 9_000), 6_000, "that makes it shorter");
        assert_eq!((pages.settles(9_000, 4_000), pages.settles(9_000, 7_000)), (5_000, 7_000));
    }

    /// Goal: the kernel is never told of a size beyond what its last page was filled with; that page goes first, and
    /// only where there is one.
    #[test]
    fn a_longer_file_drops_its_last_page() {
        let mut pages = Pages::default();
        assert_eq!(pages.tell(5_000), None, "nothing is held");
        assert_eq!(fill(&mut pages, 4_096, &[1; 904], 4_096).0, Filled::Done(904));
        assert_eq!(pages.tell(5_000), None);
        let drop = pages.tell(5_001).unwrap();
        assert_eq!((drop.from, drop.len), (4_096, 0));
        pages.dropped(drop, true, 1);
        assert_eq!(pages.tell(5_001), None);
        // Cut and grown again: the kernel's page has zeros behind the cut.
        fill(&mut pages, 4_096, &[1; 905], 4_096);
        assert_eq!(pages.tell(4_100), None);
        assert_eq!(pages.tell(4_101).map(|drop| drop.from), Some(4_096));
    }

    /// Goal: a write in the middle says nothing about the end: it costs no drop, then or later.
    #[test]
    fn a_write_in_the_middle_moves_no_end() {
        let mut pages = Pages::default();
        fill(&mut pages, 0, &[1; 4_096], 4_096);
        assert_eq!(pages.tell(65_000), None);
        assert_eq!(pages.tell_at_least(96), None);
        assert_eq!(pages.tell_at_least(65_000), None);
        assert_eq!(pages.tell(65_000), None);
        assert_eq!(pages.tell(96), None);
        assert!(pages.tell(65_000).is_some(), "cut, and longer again");
    }

    /// Goal: a size is told to nobody before the page that it would make lie is gone, whoever drops it.
    #[test]
    fn a_page_on_its_way_out_still_lies() {
        let mut pages = Pages::default();
        fill(&mut pages, 0, b"short", 4_096);
        let first = pages.tell(9).unwrap();
        assert!(!pages.may_tell(9), "not gone yet");
        let second = pages.tell(9).unwrap();
        pages.dropped(second, true, 1);
        assert_eq!(
            pages.tell(9),
            None,
            "gone, whatever becomes of the first drop: two lanes do not wait in turn"
        );
        pages.dropped(first, true, 1);
        assert_eq!(pages.tell(9), None);
    }

    /// Goal: a fill that read before the kernel was told of a longer file reads again.
    #[test]
    fn a_fill_overtaken_by_a_size_reads_again() {
        let mut pages = Pages::default();
        let number = pages.fill_begins(0, 4_096);
        assert_eq!(pages.tell(14), None, "no page is known to be short");
        let mut out = [0; 4_096];
        assert_eq!(pages.fill_ends(number, 7, &mut out, false), Filled::Again);
        assert_eq!(pages.fill_ends(number, 14, &mut out, false), Filled::Done(14));
    }

    /// Goal: pages count as current only when every one of them is known to be, whoever opens or locks meanwhile.
    #[test]
    fn pages_are_current_when_the_old_ones_are_gone() {
        let mut pages = Pages::default();
        assert!(pages.are_as_of(4), "none is held");
        fill(&mut pages, 0, b"old", 4_096);
        assert!(!pages.are_as_of(5));
        let drop = pages.drop_all(5);
        assert!(!pages.are_as_of(5), "on their way out, but still there");
        let second = pages.drop_all(5);
        pages.dropped(drop, true, 1);
        fill(&mut pages, 0, b"new", 4_096);
        assert!(pages.are_as_of(5));
        pages.dropped(second, true, 1);
        pages.changed_by_own(6);
        assert!(pages.are_as_of(6) && !pages.are_as_of(7));
        // A drop that was begun before the counters lost their meaning proves nothing afterwards.
        let drop = pages.drop_all(7);
        pages.forget_change();
        fill(&mut pages, 0, b"new", 4_096);
        pages.dropped(drop, true, 1);
        assert!(!pages.are_as_of(7));
        let failed = pages.drop_all(8);
        pages.dropped(failed, false, 1);
        assert!(pages.may_be_held() && !pages.are_as_of(8));
    }

    /// Goal: a page that is filled while a write is under way has the written bytes; without pages the fill waits for
    /// the write, and the write copies nothing.
    #[test]
    fn fills_and_writes_do_not_miss_each_other() {
        let mut pages = Pages::default();
        let (number, drop) = pages.write_begins(2_000, b"abcd");
        assert_eq!((drop, pages.fill_waits(0, 4_096), pages.fill_waits(4_096, 8_192)), (None, true, false));
        pages.write_ends(number, 4);
        assert!(!pages.fill_waits(0, 4_096));
        fill(&mut pages, 0, &[1; 4_096], 4_096);
        let (number, drop) = pages.write_begins(2_000, b"abcd");
        let drop = drop.unwrap();
        assert_eq!((drop.from, drop.len, pages.fill_waits(0, 4_096)), (2_000, 4, false));
        let (filled, out) = fill(&mut pages, 0, &[1; 4_096], 4_096);
        assert_eq!((filled, &out[1_999..2_005]), (Filled::Done(4_096), &b"\x01abcd\x01"[..]));
        // At the end, and beyond it with a gap.
        let (last, _) = pages.write_begins(5_000, b"xy");
        assert_eq!(fill(&mut pages, 4_096, &[1; 904], 4_096).0, Filled::Done(906));
        pages.write_ends(last, 2);
        pages.write_ends(number, 4);
        let (gap, _) = pages.write_begins(5_100, b"z");
        assert_eq!(fill(&mut pages, 4_096, &[1; 906], 4_096).0, Filled::Done(906));
        pages.write_ends(gap, 1);
        assert!(pages.tell(5_101).is_some(), "the page lacks what was written behind the gap");
    }

    /// Goal: a fill that read before a write landed, and ends after it, has the written bytes: nothing drops its page
    /// any more. What it reads anew has them already.
    #[test]
    fn a_fill_has_the_bytes_of_a_write_that_landed_meanwhile() {
        let mut pages = Pages::default();
        let mut out = [1; 4_096];
        let filling = pages.fill_begins(0, 4_096);
        let (number, drop) = pages.write_begins(2_000, b"abcd");
        assert!(drop.is_some(), "its page may be there");
        pages.write_ends(number, 4);
        assert_eq!(pages.fill_ends(filling, 4_096, &mut out, false), Filled::Done(4_096));
        assert_eq!(out[1_999..2_005], *b"\x01abcd\x01");
        assert!(pages.fills.is_empty());
        // Beyond the end that it read; of a write that failed half-way only what landed.
        let filling = pages.fill_begins(4_096, 8_192);
        let (number, _) = pages.write_begins(5_000, b"xyz");
        pages.write_ends(number, 2);
        assert_eq!(pages.fill_ends(filling, 904, &mut out, false), Filled::Done(906));
        assert_eq!(out[904..906], *b"xy");
        let mut pages = Pages::default();
        let filling = pages.fill_begins(8_192, 12_288);
        let (number, _) = pages.write_begins(8_192, b"old");
        pages.write_ends(number, 3);
        assert_eq!(pages.tell(9_000), None);
        let mut out = [2; 4_096];
        assert_eq!(pages.fill_ends(filling, 100, &mut out, false), Filled::Again);
        assert_eq!(pages.fill_ends(filling, 808, &mut out, true), Filled::Done(808));
        assert_eq!(out[..3], [2; 3], "read after it had landed");
        let filling = pages.fill_begins(0, 1);
        pages.fill_given_up(filling);
        assert!(pages.fills.is_empty());
    }

    /// Goal: a page that is filled while its bytes become zeros has zeros, however long the range is, and is not made longer
    /// by them.
    #[test]
    fn a_fill_has_the_zeros_of_a_hole_made_meanwhile() {
        let mut pages = Pages::default();
        let mut out = [1; 4_096];
        let filling = pages.fill_begins(0, 4_096);
        let (number, drop) = pages.zeros_begin(4_000, 1 << 60);
        assert_eq!(drop.map(|drop| drop.from), Some(4_000));
        assert!(!pages.fill_waits(0, 4_096));
        let (filled, other) = fill(&mut pages, 0, &[1; 4_050], 4_096);
        assert_eq!(
            (filled, &other[3_999..4_051]),
            (Filled::Done(4_050), &[[1].as_slice(), &[0; 51]].concat()[..])
        );
        pages.zeros_end(number, true);
        assert_eq!(pages.fill_ends(filling, 4_096, &mut out, false), Filled::Done(4_096));
        assert_eq!((out[3_999], &out[4_000..]), (1, &[0; 96][..]));
        assert!(pages.writes.is_empty());
    }

    /// Goal: a copy begins when no page has any of its bytes, and fills wait for it then.
    #[test]
    fn a_copy_waits_for_pages_and_fills_for_the_copy() {
        let mut pages = Pages::default();
        fill(&mut pages, 0, &[1; 4_096], 4_096);
        let drop = pages.copy_begins(4_000, 9_000).unwrap_err();
        assert!(!pages.fill_waits(0, 4_096), "the drop may wait for it");
        let again = pages.copy_begins(4_000, 9_000).unwrap_err();
        pages.dropped(drop, true, 1);
        fill(&mut pages, 8_192, &[1; 4_096], 4_096);
        pages.dropped(again, true, 2);
        let drop = pages.copy_begins(4_000, 9_000).unwrap_err();
        pages.dropped(drop, true, 3);
        let number = pages.copy_begins(4_000, 9_000).unwrap();
        assert_eq!((pages.fill_waits(0, 4_096), pages.fill_waits(12_288, 16_384)), (true, false));
        pages.write_ends(number, 5_000);
        assert!(!pages.fill_waits(0, 4_096));
    }

    /// Goal: of two changes of the same bytes at once one waits for the other, unless fills wait for both.
    #[test]
    fn changes_of_the_same_bytes_wait() {
        let mut pages = Pages::default();
        let (stream, _) = pages.write_begins(0, b"abcd");
        assert_eq!((pages.write_waits(2, 9, false), pages.write_waits(2, 9, true)), (false, true));
        let filling = pages.fill_begins(0, 4_096);
        assert_eq!((pages.write_waits(2, 9, false), pages.write_waits(4, 9, false)), (true, false));
        pages.write_ends(stream, 4);
        assert!(!pages.write_waits(2, 9, false));
        pages.fill_given_up(filling);
        let (noted, drop) = pages.write_begins(0, b"abcd");
        pages.dropped(drop.unwrap(), true, 1);
        assert!(!pages.may_be_held());
        assert!(pages.write_waits(3, 9, false), "a page that is filled now has its bytes");
        pages.write_ends(noted, 4);
        assert!(!pages.write_waits(3, 9, true));
    }
}
