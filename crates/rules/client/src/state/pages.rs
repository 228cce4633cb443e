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
    /// What had to be dropped before it is gone.
    is_sent: bool,
    /// The session has ended in which it was sent: it may have been done long ago, or come to nothing. Fills wait for it.
    is_doubtful: bool,
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
    /// Read again, behind a write of which nobody knows any more what it has done.
    Later,
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
        let waits = |write: &Write| write.content.is_none() || write.is_doubtful;
        self.writes.iter().any(|write| waits(write) && write.offset < end && offset < write.end)
    }

    /// `n` bytes were read for a fill. Writes that are under way, or landed meanwhile, are put over them: the kernel may
    /// write the whole page back after they have. `looked`: the file's size was just asked for.
    pub fn fill_ends(&mut self, number: u64, n: usize, out: &mut [u8], looked: bool) -> Filled {
        let Some(at) = self.fills.iter().position(|fill| fill.number == number) else {
            return Filled::Done(n);
        };
        let Fill { offset, end: wanted, .. } = self.fills[at];
        if self.fill_waits(offset, wanted) {
            self.fills[at].landed.clear();
            return Filled::Later;
        }
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
        let number = self.note(offset, end, held.then(|| Content::Bytes(data.to_vec())), !held);
        (number, held.then(|| self.drop_range(offset, end - offset)))
    }

    /// As [`Pages::write_begins`], of a range that becomes zeros: a length is enough to know its bytes.
    pub fn zeros_begin(&mut self, offset: u64, end: u64) -> (u64, Option<PageDrop>) {
        let held = self.holds(offset, end);
        let number = self.note(offset, end, Some(Content::Zeros), !held);
        (number, held.then(|| self.drop_range(offset, end - offset)))
    }

    /// As [`Pages::write_begins`], of bytes that are not known here. Fills wait for it, so it begins (its number) only when
    /// no page has any of them: a drop waits for fills. Else what is to be dropped first.
    pub fn copy_begins(&mut self, offset: u64, end: u64) -> Result<u64, PageDrop> {
        match self.holds(offset, end) {
            true => Err(self.drop_range(offset, end - offset)),
            false => Ok(self.note(offset, end, None, true)),
        }
    }

    fn note(&mut self, offset: u64, end: u64, content: Option<Content>, is_sent: bool) -> u64 {
        self.numbers += 1;
        let number = self.numbers;
        self.writes.push(Write { number, offset, end, content, is_sent, is_doubtful: false });
        number
    }

    /// The pages that were to go before this write are gone: its bytes go now.
    pub fn write_goes(&mut self, number: u64) {
        self.writes.iter_mut().filter(|write| write.number == number).for_each(|write| write.is_sent = true);
    }

    fn noted(&mut self, number: u64) -> Option<Write> {
        let at = self.writes.iter().position(|write| write.number == number)?;
        Some(self.writes.remove(at))
    }

    /// A session has ended. What was on its way may have come to nothing since, or have been done before others changed the same bytes:
    /// no page gets it from now on, and none is filled without it, for a program could store into that one, and the kernel write all
    /// of it back behind this write. (What waits for a drop, and so for fills, was not sent: that has only one session.)
    pub fn doubt_writes(&mut self) {
        self.writes.iter_mut().filter(|write| write.is_sent).for_each(|write| write.is_doubtful = true);
    }

    /// So many bytes of it have landed. `true`: a page that was filled while it could still be known what it does has its bytes, and
    /// others may have changed them since: none stays.
    pub fn write_ends(&mut self, number: u64, written: usize) -> bool {
        let Some(Write { offset, content, is_doubtful, .. }) = self.noted(number) else { return false };
        let end = offset + written as u64;
        if written > 0 {
            self.own_write(offset, end);
        }
        match content {
            Some(_) if is_doubtful => return true,
            Some(Content::Bytes(mut data)) if written > 0 => {
                data.truncate(written);
                self.landed(offset, end, &Content::Bytes(data));
            }
            _ => {}
        }
        false
    }

    /// The zeros are there, or (not `done`) some of them. `true`: as [`Pages::write_ends`].
    pub fn zeros_end(&mut self, number: u64, done: bool) -> bool {
        let Some(Write { offset, end, is_doubtful, .. }) = self.noted(number) else { return false };
        if done && !is_doubtful {
            self.landed(offset, end, &Content::Zeros);
        }
        is_doubtful
    }

    fn landed(&mut self, offset: u64, end: u64, content: &Content) {
        for fill in self.fills.iter_mut().filter(|fill| fill.offset < end && offset < fill.end) {
            fill.landed.push((offset, end, content.clone()));
        }
    }
}

#[cfg(test)]
mod tests;
