//! What is known of one directory.

use super::Key;
use crate::limits::HOLES_MAX;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::mem::size_of;
use core::ops::Bound::{Excluded, Unbounded};
use skep_types::{Attr, Ino, Kind, LogIndex};

/// Of a directory without names; about as much again is the allocator's.
pub const DIR_BYTES: usize = size_of::<Dir>() + 64;
/// Attributes of an entry.
pub const COVERED_BYTES: usize = size_of::<super::Covered>() + 24;
/// A name, without its bytes.
pub const NAME_BYTES: usize = size_of::<Fact>() + size_of::<Key>() + 40;

/// What a name leads to; `None`: it is not there.
type What = Option<(Ino, Kind)>;

#[derive(Debug)]
pub struct Fact {
    index: LogIndex,
    what: What,
    /// Since the hand came by last.
    used: bool,
}

/// A line of a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    pub cookie: u64,
    pub name: Key,
    pub ino: Ino,
    pub kind: Kind,
}

/// A part of a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    pub lines: Vec<Line>,
    /// Nothing follows.
    pub end: bool,
    pub parent: Ino,
}

impl Part {
    fn bytes(&self) -> usize {
        let names: usize = self.lines.iter().map(|line| line.name.len()).sum();
        size_of::<Self>() + self.lines.len() * (size_of::<Line>() + 16) + names
    }
}

/// How far a directory was known when it was asked for its listing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Before {
    life: u64,
    losses: u64,
}

/// A directory, as far as it is known.
#[derive(Debug)]
pub struct Dir {
    /// Tells it from others of the same number.
    pub life: u64,
    /// Its place among those used.
    pub used: u64,
    pub attr: Option<(LogIndex, Attr)>,
    names: BTreeMap<Key, Fact>,
    /// All names are known, but for the holes.
    pub complete: bool,
    holes: BTreeMap<Key, LogIndex>,
    /// Of names that are not here: what is older says nothing.
    gone: LogIndex,
    /// This mount changed it as of then, or later: the same of its attributes.
    changed: LogIndex,
    /// Moves with each name that is not known any more, whatever the reason.
    losses: u64,
    /// It is being listed from its start, and this far nothing was missed.
    listing: Option<u64>,
    pub parts: BTreeMap<u64, Arc<Part>>,
    parts_bytes: usize,
    /// Parts that are to be freed.
    spent: BTreeMap<u64, Arc<Part>>,
    pub bytes: usize,
    hand: Option<Key>,
    /// The inode whose name went for want of room.
    pub lost: Option<Ino>,
}

impl Dir {
    /// Nothing is known of it. What is older than `floor` says nothing.
    pub fn new(life: u64, floor: LogIndex) -> Self {
        Self {
            life,
            used: life,
            attr: None,
            names: BTreeMap::new(),
            complete: false,
            holes: BTreeMap::new(),
            gone: floor,
            changed: floor,
            losses: 0,
            listing: None,
            parts: BTreeMap::new(),
            parts_bytes: 0,
            spent: BTreeMap::new(),
            bytes: DIR_BYTES,
            hand: None,
            lost: None,
        }
    }

    /// It has these attributes, as of `index`.
    pub fn put_attr(&mut self, attr: &Attr, index: LogIndex) {
        let known = self.attr.as_ref().map_or(self.changed, |(known, _)| self.changed.max(*known));
        if index >= known {
            self.attr = Some((index, attr.clone()));
        }
    }

    /// What a name leads to, if that is known.
    pub fn find(&mut self, name: &[u8]) -> Option<What> {
        if let Some(fact) = self.names.get_mut(name) {
            fact.used = true;
            return Some(fact.what);
        }
        (self.complete && !self.holes.contains_key(name)).then_some(None)
    }

    /// A name leads to this, as of `index`. Gives the inode that lost its name.
    pub fn put(&mut self, name: &[u8], what: What, index: LogIndex) -> Option<Ino> {
        if let Some(known) = self.names.get_mut(name) {
            if known.index > index {
                return None;
            }
            let before = core::mem::replace(known, Fact { index, what, used: true }).what;
            return before.filter(|_| before != what).map(|(ino, _)| ino);
        }
        let gone = self.holes.get(name).copied().unwrap_or(self.gone);
        if index < gone {
            if self.complete {
                self.open_hole(name, gone);
            }
            return None;
        }
        self.close_hole(name);
        self.bytes += NAME_BYTES + name.len();
        self.names.insert(name.into(), Fact { index, what, used: true });
        None
    }

    /// What a question that is asked now starts from.
    pub fn before(&self) -> Before {
        Before { life: self.life, losses: self.losses }
    }

    /// Is what was told as of `index` all there was, and has nothing of it gone since the question? Names may have come since
    /// that are not known any more, or were in an answer that is being taken over and went before its last line.
    fn is_whole(&self, asked: Before, index: LogIndex) -> bool {
        let before = if asked.life == self.life { asked.losses } else { 0 };
        self.losses == before && index >= self.gone && index >= self.changed
    }

    /// A part of the listing was told as of `index`; its names are known by now. One from which something may be missing is
    /// no part of it.
    pub fn listed(&mut self, asked: Before, index: LogIndex, after: u64, part: Part) {
        if !self.is_whole(asked, index) {
            return;
        }
        if after == 0 {
            self.listing = Some(0);
        }
        if self.listing == Some(after) {
            self.listing = part.lines.last().map(|line| line.cookie);
            if part.end {
                self.complete = true;
                self.listing = None;
            }
        }
        if !self.complete && self.listing.is_none() {
            return;
        }
        let before = self.parts.get(&after).map_or(0, |before| before.bytes());
        let bytes = part.bytes();
        self.parts.insert(after, Arc::new(part));
        self.parts_bytes = self.parts_bytes + bytes - before;
        self.bytes = self.bytes + bytes - before;
    }

    /// What a name leads to is not known any more, and what is older than `index` says nothing. Gives the inode that lost its
    /// name.
    pub fn forget(&mut self, name: &[u8], index: LogIndex, keeps_complete: bool) -> Option<Ino> {
        self.attr = None;
        self.forget_parts();
        self.listing = None;
        self.losses += 1;
        self.changed = self.changed.max(index);
        let known = self.names.remove(name);
        self.bytes -= known.as_ref().map_or(0, |_| NAME_BYTES + name.len());
        let before = known.as_ref().map_or(LogIndex(0), |fact| fact.index);
        let index = index.max(before);
        if self.complete && !keeps_complete {
            self.open_hole(name, index);
        } else {
            self.gone = self.gone.max(index);
        }
        known.and_then(|fact| fact.what).map(|(ino, _)| ino)
    }

    /// This mount changed its attributes, as of `index`.
    pub fn is_another(&mut self, index: LogIndex) {
        self.changed = self.changed.max(index);
    }

    pub fn forget_parts(&mut self) {
        self.bytes -= core::mem::take(&mut self.parts_bytes);
        self.spent.append(&mut self.parts);
    }

    fn open_hole(&mut self, name: &[u8], index: LogIndex) {
        let known = self.holes.get(name).copied();
        if known.is_none() {
            if self.holes.len() >= HOLES_MAX {
                self.gone = self.gone.max(index);
                return self.is_incomplete();
            }
            self.bytes += NAME_BYTES + name.len();
        }
        self.losses += 1;
        self.holes.insert(name.into(), index.max(known.unwrap_or_default()));
    }

    fn close_hole(&mut self, name: &[u8]) {
        if self.holes.remove(name).is_some() {
            self.bytes -= NAME_BYTES + name.len();
        }
    }

    fn is_incomplete(&mut self) {
        self.complete = false;
        self.listing = None;
        self.losses += 1;
        self.forget_parts();
        while let Some((name, index)) = self.holes.pop_first() {
            self.bytes -= NAME_BYTES + name.len();
            self.gone = self.gone.max(index);
        }
    }

    /// A directory that takes more than a quarter of all room is never complete.
    pub fn is_bounded(&mut self, most: usize) {
        if (self.complete || self.listing.is_some()) && self.bytes > most / 4 {
            self.is_incomplete();
        }
    }

    /// Lets something go; `false`: nothing is left. `is_last`: it was used last of all, so what was not used in it goes first.
    pub fn shrink(&mut self, is_last: bool) -> bool {
        if !self.parts.is_empty() {
            self.forget_parts();
            return true;
        }
        let next = match self.hand.take() {
            Some(hand) => self.names.range_mut::<[u8], _>((Excluded(&hand[..]), Unbounded)).next(),
            None => self.names.iter_mut().next(),
        };
        let Some((name, fact)) = next else { return !self.names.is_empty() };
        let name = name.clone();
        if core::mem::take(&mut fact.used) && is_last {
            self.hand = Some(name);
            return true;
        }
        let Some(Fact { index, what, .. }) = self.names.remove(&name) else { return true };
        self.bytes -= NAME_BYTES + name.len();
        self.gone = self.gone.max(index);
        self.losses += 1;
        // That one is not there is known all the same.
        if what.is_some() {
            self.is_incomplete();
        }
        self.lost = what.map(|(ino, _)| ino);
        self.hand = Some(name);
        true
    }

    #[cfg(test)]
    pub fn counted(&self) -> usize {
        let names = self.names.keys().chain(self.holes.keys()).map(|name| NAME_BYTES + name.len());
        DIR_BYTES + names.sum::<usize>() + self.parts.values().map(|part| part.bytes()).sum::<usize>()
    }

    /// It ends.
    pub fn end(self) -> Gone {
        Gone { life: self.life, names: self.names, parts: self.parts, lines: Vec::new() }
    }

    /// Parts that are to be freed.
    pub fn take_spent(&mut self) -> Option<Gone> {
        let parts = core::mem::take(&mut self.spent);
        (!parts.is_empty()).then(|| Gone { life: 0, names: BTreeMap::new(), parts, lines: Vec::new() })
    }
}

/// Lines of a part that are freed at once.
const LINES_FREED: usize = 8;

/// What is left of one to be freed.
#[derive(Debug)]
pub struct Gone {
    pub life: u64,
    names: BTreeMap<Key, Fact>,
    parts: BTreeMap<u64, Arc<Part>>,
    lines: Vec<Line>,
}

impl Gone {
    /// Frees a little. `None`: nothing is left; else an inode that had a name.
    pub fn next(&mut self) -> Option<Option<Ino>> {
        if !self.lines.is_empty() {
            self.lines.truncate(self.lines.len().saturating_sub(LINES_FREED));
            return Some(None);
        }
        if let Some((_, part)) = self.parts.pop_first() {
            // Who answers from it just now frees it.
            self.lines = Arc::try_unwrap(part).map(|part| part.lines).unwrap_or_default();
            return Some(None);
        }
        self.names.pop_first().map(|(_, fact)| fact.what.map(|(ino, _)| ino))
    }
}
