//! A file that several lanes change at once: what may be in it afterwards, and what who reads it meanwhile may see.

use crate::hub::LaneId;
use skep_types::Ino;
use skep_types::limits::CHUNK_MIN;
use std::collections::BTreeSet;
use std::ops::Range;

/// Changes between two looks, at most: their orders are gone through.
pub const CHANGES: usize = 4;

/// A change of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deed {
    /// At an offset, so many bytes.
    Write(usize, usize),
    /// To a size, by truncate: shorter or longer.
    Cut(usize),
    /// To a size at least, by space that is asked for.
    Grow(usize),
    /// Zeros at an offset, which make the file longer.
    Zero(usize, usize),
    /// Zeros at an offset, within the file.
    Punch(usize, usize),
}

/// A change that was begun.
#[derive(Debug, Clone, Copy)]
struct Change {
    deed: Deed,
    /// Its bytes are told from others' by it.
    tag: u8,
    begun: u64,
    done: Option<u64>,
}

#[derive(Debug, Default)]
pub struct Contest {
    pub ino: Ino,
    /// Something happened whose effect is unknown, so another file takes its place.
    pub spoilt: bool,
    /// Power cuts that there had been when it was made.
    pub cuts: usize,
    /// Looks so far.
    pub looks: u32,
    /// Who comes before this time waits for it: several begin at once.
    pub gate: u64,
    /// Lanes in the middle of something.
    pub busy: BTreeSet<LaneId>,
    base: Vec<u8>,
    changes: Vec<Change>,
    events: u64,
}

/// The byte that a change leaves at a place; never zero.
pub fn letter(tag: u8, at: usize) -> u8 {
    1 + ((usize::from(tag) * 31 + at / 512) % 255) as u8
}

impl Change {
    /// Where it leaves something.
    fn covers(&self) -> Range<usize> {
        match self.deed {
            Deed::Write(at, len) | Deed::Zero(at, len) | Deed::Punch(at, len) => at..at + len,
            Deed::Cut(size) => size..usize::MAX,
            Deed::Grow(_) => 0..0,
        }
    }

    fn leaves(&self, at: usize) -> u8 {
        if matches!(self.deed, Deed::Write(..)) { letter(self.tag, at) } else { 0 }
    }

    fn size_after(&self, size: usize) -> usize {
        match self.deed {
            Deed::Write(at, len) | Deed::Zero(at, len) => size.max(at + len),
            Deed::Cut(size) => size,
            Deed::Grow(end) => size.max(end),
            Deed::Punch(..) => size,
        }
    }

    fn lands_in_parts(&self) -> bool {
        let border = CHUNK_MIN as usize;
        matches!(self.deed, Deed::Write(at, len) if at / border < (at + len - 1) / border)
    }

    fn is_before(&self, other: &Self) -> bool {
        self.done.is_some_and(|done| done < other.begun)
    }
}

impl Contest {
    /// An empty file.
    pub fn new(ino: Ino, cuts: usize) -> Self {
        Self { ino, cuts, ..Self::default() }
    }

    /// No more changes before somebody has looked.
    pub fn is_full(&self) -> bool {
        self.changes.len() >= CHANGES
    }

    /// A client is no more: what its lanes were doing is done, or not.
    pub fn client_gone(&mut self, life: u32) {
        let lanes = self.busy.len();
        self.busy.retain(|lane| lane.life != life);
        self.spoilt |= self.busy.len() < lanes;
    }

    /// How long the file may be, for who draws places in it.
    pub fn size_max(&self) -> usize {
        self.changes.iter().fold(self.base.len(), |size, change| size.max(change.size_after(size)))
    }

    /// The next moment; all are apart.
    pub fn moment(&mut self) -> u64 {
        self.events += 1;
        self.events
    }

    /// A change begins: its number and its tag.
    pub fn begins(&mut self, deed: Deed) -> (usize, u8) {
        let begun = self.moment();
        let tag = begun as u8;
        self.changes.push(Change { deed, tag, begun, done: None });
        (self.changes.len() - 1, tag)
    }

    /// It was answered, and the mount has told the shard of it. `true`: another one was under way beside it.
    pub fn ends(&mut self, number: usize) -> bool {
        let done = self.moment();
        let Some(change) = self.changes.get_mut(number) else { return false };
        change.done = Some(done);
        let this = *change;
        let beside = |other: &Change| !other.is_before(&this) && !this.is_before(other);
        self.changes.iter().enumerate().any(|(n, other)| n != number && beside(other))
    }

    /// All changes were answered, and this is there now: there must be an order of them that leaves it. It is what the
    /// next changes begin with.
    pub fn looked(&mut self, seen: Vec<u8>) -> Result<(), String> {
        let mut order = Vec::new();
        let fits = self.fits(&mut order, &seen);
        let changes = core::mem::take(&mut self.changes);
        if fits {
            self.looks += 1;
            self.base = seen;
            return Ok(());
        }
        Err(format!("{} bytes, which no order of {changes:?} on {} leaves", seen.len(), self.base.len()))
    }

    /// Is there an order that begins with `order`?
    fn fits(&self, order: &mut Vec<Change>, seen: &[u8]) -> bool {
        if order.len() == self.changes.len() {
            let size = order.iter().fold(self.base.len(), |size, change| change.size_after(size));
            return (size == seen.len() || self.is_torn_at(seen.len())) && self.leaves(order, seen);
        }
        for next in &self.changes {
            let taken = |begun| order.iter().any(|change| change.begun == begun);
            let must_wait = self.changes.iter().any(|other| other.is_before(next) && !taken(other.begun));
            if taken(next.begun) || must_wait {
                continue;
            }
            order.push(*next);
            if self.fits(order, seen) {
                return true;
            }
            order.pop();
        }
        false
    }

    /// May a write beside a truncate have left the file this long?
    fn is_torn_at(&self, size: usize) -> bool {
        let tears = |cut: &Change, write: &Change| {
            let beside = !cut.is_before(write) && !write.is_before(cut);
            beside
                && matches!(cut.deed, Deed::Cut(_))
                && write.lands_in_parts()
                && write.covers().contains(&size)
        };
        let at_border = size.is_multiple_of(CHUNK_MIN as usize);
        at_border && self.changes.iter().any(|write| self.changes.iter().any(|cut| tears(cut, write)))
    }

    /// Does this order leave these bytes? A truncate is one moment, but that a write over a border of chunks may be cut in
    /// some of them (promises tell of it); of writes that overlap one may win here and the other one there.
    fn leaves(&self, order: &[Change], seen: &[u8]) -> bool {
        self.stretches(seen.len()).all(|stretch| {
            let covers = |change: &&Change| change.covers().contains(&stretch.start);
            let cuts = |change: &Change| matches!(change.deed, Deed::Cut(_)) && covers(&change);
            let cut = order.iter().rposition(cuts);
            let is_torn = |change: &Change| {
                let beside = |cut: &Change| !change.is_before(cut) && !cut.is_before(change);
                change.lands_in_parts() && cut.is_some_and(|cut| beside(&order[cut]))
            };
            let behind = |place| cut.is_none_or(|cut| place > cut);
            let left = order.iter().enumerate().filter(|(place, change)| behind(*place) || is_torn(change));
            let left: Vec<&Change> = left.map(|(_, change)| change).filter(covers).collect();
            let last = |one: &&&Change| !left.iter().any(|other| one.is_before(other));
            let last: Vec<&&Change> = left.iter().filter(last).collect();
            let none = last.iter().all(|change| is_torn(change));
            let nothing = |at| if cut.is_some() { 0 } else { self.base_at(at) };
            stretch.clone().all(|at| {
                let is_left = last.iter().any(|change| change.leaves(at) == seen[at]);
                is_left || (none && nothing(at) == seen[at])
            })
        })
    }

    /// Somebody who began at `since` has read this while changes were under way: each byte is what one of them left, or
    /// what was there; zeros only where somebody else made the file longer, or where a write over a border of chunks has not
    /// landed (promises tell of it). It ends where it did at some moment.
    pub fn glanced(&self, since: u64, seen: &[u8]) -> Result<(), String> {
        let was_done = |change: &Change| change.done.is_some_and(|done| done < since);
        let is_cut = self.changes.iter().any(|change| matches!(change.deed, Deed::Cut(_)));
        let done = self.changes.iter().filter(|change| was_done(change));
        let least =
            if is_cut { 0 } else { done.fold(self.base.len(), |size, change| change.size_after(size)) };
        let size = seen.len();
        if !(least..=self.size_max()).contains(&size) || !self.may_end_at(size) {
            return Err(format!("{size} bytes, after {:?} on {}", self.changes, self.base.len()));
        }
        self.shows(since, 0, seen)
    }

    /// Is it where the file ended at some moment, as far as that is known?
    fn may_end_at(&self, size: usize) -> bool {
        let in_parts = size.is_multiple_of(CHUNK_MIN as usize);
        let lands = |change: &Change| in_parts && change.lands_in_parts() && change.covers().contains(&size);
        let ends = |change: &Change| change.size_after(0) == size || lands(change);
        size == self.base.len() || self.changes.iter().any(ends)
    }

    /// As [`Contest::glanced`], of bytes from `from` on, wherever the file ends.
    pub fn shows(&self, since: u64, from: usize, seen: &[u8]) -> Result<(), String> {
        let was_done = |change: &Change| change.done.is_some_and(|done| done < since);
        let end = from + seen.len();
        let begun = |stretch: Range<usize>| stretch.start.max(from)..stretch.end;
        for stretch in self.stretches(end).map(begun).filter(|stretch| !stretch.is_empty()) {
            let at = stretch.start;
            let (covering, others): (Vec<&Change>, Vec<&Change>) =
                self.changes.iter().partition(|change| change.covers().contains(&at));
            let superseded =
                |one: &Change| covering.iter().any(|other| was_done(other) && one.is_before(other));
            let allowed: Vec<&&Change> = covering.iter().filter(|change| !superseded(change)).collect();
            let lengthened = others.iter().any(|change| change.size_after(0) > at)
                || covering.iter().any(|change| change.lands_in_parts());
            let within = at < self.base.len() || lengthened;
            let untouched = within && !covering.iter().any(|change| was_done(change));
            let right = |at: usize| {
                let found = seen[at - from];
                let left =
                    allowed.iter().any(|change| change.leaves(at) == found && self.is_within(change, at));
                left || (untouched && self.base_at(at) == found)
            };
            if let Some(at) = stretch.clone().find(|at| !right(*at)) {
                return Err(format!(
                    "byte {at} of {end} is {}, which nothing left of {:?} on {}",
                    seen[at - from],
                    self.changes,
                    self.base.len()
                ));
            }
        }
        Ok(())
    }

    /// Is something there once this was done? Behind a cut nothing is, unless another change makes the file longer.
    fn is_within(&self, change: &Change, at: usize) -> bool {
        let lengthens = |other: &&Change| {
            other.begun != change.begun && !other.is_before(change) && other.size_after(0) > at
        };
        !matches!(change.deed, Deed::Cut(_)) || self.changes.iter().any(|other| lengthens(&other))
    }

    fn base_at(&self, at: usize) -> u8 {
        self.base.get(at).copied().unwrap_or(0)
    }

    /// The file in parts over which the same changes go.
    fn stretches(&self, len: usize) -> impl Iterator<Item = Range<usize>> + use<> {
        let ends = self.changes.iter().flat_map(|change| {
            let covers = change.covers();
            [covers.start, covers.end, change.size_after(0)]
        });
        let mut points: BTreeSet<usize> = ends.filter(|at| *at < len).collect();
        points.extend([0, len, self.base.len().min(len)]);
        let points: Vec<usize> = points.into_iter().collect();
        let pairs: Vec<Range<usize>> = points.windows(2).map(|pair| pair[0]..pair[1]).collect();
        pairs.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(tag: u8, range: Range<usize>) -> Vec<u8> {
        range.map(|at| letter(tag, at)).collect()
    }

    /// A file of 1,000 bytes.
    fn written() -> (Contest, Vec<u8>) {
        let mut contest = Contest::new(Ino(7), 0);
        let (number, tag) = contest.begins(Deed::Write(0, 1_000));
        contest.ends(number);
        contest.looked(bytes(tag, 0..1_000)).unwrap();
        (contest, bytes(tag, 0..1_000))
    }

    /// Goal: of two writes at once either may win, here the one and there the other; of two in a row the second has won.
    #[test]
    fn the_last_write_wins() {
        let (mut contest, base) = written();
        let (one, first) = contest.begins(Deed::Write(0, 100));
        let (two, second) = contest.begins(Deed::Write(50, 100));
        assert!(contest.ends(one) && contest.ends(two));
        let mixed = [bytes(first, 0..70), bytes(second, 70..90), bytes(first, 90..100)].concat();
        contest.looked([mixed.clone(), bytes(second, 100..150), base[150..].to_vec()].concat()).unwrap();

        let (mut contest, base) = written();
        let (one, first) = contest.begins(Deed::Write(0, 100));
        contest.ends(one);
        let (two, second) = contest.begins(Deed::Write(50, 100));
        assert!(!contest.ends(two));
        let late = [bytes(first, 0..100), bytes(second, 100..150), base[150..].to_vec()].concat();
        assert!(contest.looked(late).is_err());
    }

    /// Goal: a truncate takes what was written before it and nothing that came after; no size comes from nowhere.
    #[test]
    fn cuts_are_moments() {
        let outcomes = |seen: fn(u8, &[u8]) -> Vec<u8>| {
            let (mut contest, base) = written();
            let (one, tag) = contest.begins(Deed::Write(900, 200));
            let (two, _) = contest.begins(Deed::Cut(500));
            contest.ends(one);
            contest.ends(two);
            contest.looked(seen(tag, &base))
        };
        outcomes(|_, base| base[..500].to_vec()).unwrap();
        outcomes(|tag, base| [base[..500].to_vec(), vec![0; 400], bytes(tag, 900..1_100)].concat()).unwrap();
        let halved =
            |tag, base: &[u8]| [base[..500].to_vec(), vec![0; 500], bytes(tag, 1_000..1_100)].concat();
        assert!(outcomes(halved).is_err());
        assert!(outcomes(|tag, base| [base[..900].to_vec(), bytes(tag, 900..1_100)].concat()).is_err());
        assert!(outcomes(|_, base| base.to_vec()).is_err());
    }

    /// Goal: a write over a border of chunks may be cut in some of them by a truncate beside it, and by no other.
    #[test]
    fn a_cut_may_tear_a_long_write() {
        const LEN: usize = 2 * CHUNK_MIN as usize;
        let torn = |beside: bool| {
            let (mut contest, _) = written();
            let (one, tag) = contest.begins(Deed::Write(0, LEN));
            if !beside {
                contest.ends(one);
            }
            let (two, _) = contest.begins(Deed::Cut(500));
            contest.ends(two);
            if beside {
                contest.ends(one);
            }
            let (three, _) = contest.begins(Deed::Grow(LEN));
            contest.ends(three);
            let zeros = vec![0; LEN / 2 - 500];
            contest.looked([bytes(tag, 0..500), zeros, bytes(tag, LEN / 2..LEN)].concat())
        };
        torn(true).unwrap();
        torn(false).unwrap_err();
        let shorter = |size: usize| {
            let (mut contest, _) = written();
            let (one, tag) = contest.begins(Deed::Write(0, LEN));
            let (two, _) = contest.begins(Deed::Cut(500));
            contest.ends(one);
            contest.ends(two);
            contest.looked(bytes(tag, 0..size))
        };
        shorter(LEN / 2).unwrap();
        shorter(LEN / 2 - 1).unwrap_err();
    }

    /// Goal: behind a cut nothing is seen, unless somebody makes the file longer again; before it is done what was there is.
    #[test]
    fn nothing_is_behind_a_cut() {
        let (mut contest, base) = written();
        let (one, _) = contest.begins(Deed::Cut(500));
        let since = contest.moment();
        for seen in [&base[..], &base[..500]] {
            contest.glanced(since, seen).unwrap();
        }
        let zeros = [&base[..500], &[0; 500]].concat();
        assert!(contest.glanced(since, &zeros).is_err() && contest.glanced(since, &base[..700]).is_err());
        assert!(contest.shows(since, 600, &zeros[600..]).is_err());
        contest.shows(since, 600, &base[600..900]).unwrap();
        contest.ends(one);
        let (_, tag) = contest.begins(Deed::Write(900, 10));
        let since = contest.moment();
        contest.shows(since, 600, &[0; 300]).unwrap();
        assert!(contest.shows(since, 600, &base[600..900]).is_err());
        contest.glanced(since, &[&zeros[..900], &bytes(tag, 900..910)].concat()).unwrap();
    }

    /// Goal: zeros are seen where somebody made the file longer, or where somebody asked for them, never where only
    /// bytes were written; nor what was there before a change that had been answered.
    #[test]
    fn zeros_come_from_somebody() {
        let (mut contest, base) = written();
        let (one, tag) = contest.begins(Deed::Write(1_000, 500));
        let since = contest.moment();
        let grown = |tail: Vec<u8>| [base.clone(), tail].concat();
        contest.glanced(since, &base).unwrap();
        contest.glanced(since, &grown(bytes(tag, 1_000..1_500))).unwrap();
        assert!(contest.glanced(since, &grown(vec![0; 500])).is_err());
        let (two, last) = contest.begins(Deed::Write(1_600, 10));
        let last = bytes(last, 1_600..1_610);
        contest.glanced(since, &grown(vec![0; 500])).unwrap();
        assert!(contest.glanced(since, &grown(vec![0; 601])).is_err());
        contest.ends(one);
        let since = contest.moment();
        assert!(contest.glanced(since, &grown(vec![0; 500])).is_err());
        assert!(contest.glanced(since, &base).is_err(), "it is longer by now");
        contest.ends(two);
        let (three, _) = contest.begins(Deed::Punch(0, 10));
        contest.ends(three);
        let since = contest.moment();
        assert!(contest.glanced(since, &base).is_err());
        let now = [vec![0; 10], base[10..].to_vec(), bytes(tag, 1_000..1_500), vec![0; 100], last].concat();
        contest.glanced(since, &now).unwrap();
        let (four, _) = contest.begins(Deed::Grow(2_000));
        contest.ends(four);
        assert!(contest.is_full());
        let all = [grown(bytes(tag, 1_000..1_500)), vec![0; 100], bytes(3, 0..0)].concat();
        assert!(contest.looked(all).is_err(), "it is shorter");
    }
}
