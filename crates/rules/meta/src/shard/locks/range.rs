//! The locks that are held in one space of one file: ranges of bytes by owner. A lock on the whole
//! file is the range of all bytes.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use skep_wire::meta::{HeldLock, LockKind, LockOwner};

/// A range of bytes, both ends inclusive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Range {
    /// First byte.
    pub start: u64,
    /// Last byte; `u64::MAX` = to the end, wherever that will be.
    pub last: u64,
}

impl Range {
    /// Every byte.
    pub const ALL: Self = Self { start: 0, last: u64::MAX };

    /// Do the two have a byte in common?
    pub fn overlaps(self, other: Self) -> bool {
        self.start <= other.last && other.start <= self.last
    }

    /// Is every byte of `other` one of its own?
    pub fn contains(self, other: Self) -> bool {
        self.start <= other.start && other.last <= self.last
    }

    /// Do they follow one another without a gap (`self` first)?
    fn touches(self, next: Self) -> bool {
        self.last.checked_add(1) == Some(next.start)
    }
}

/// A range that an owner holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    /// Which bytes.
    pub range: Range,
    /// What for.
    pub kind: LockKind,
    /// The process that took it.
    pub pid: u32,
}

/// What a change did.
#[derive(Debug, PartialEq, Eq)]
pub struct Changed {
    /// Others may be able to do what they could not do before.
    pub frees: bool,
    /// Processes of the ranges that are no more as they were.
    pub before: Vec<u32>,
    /// Processes of those that took their place.
    pub after: Vec<u32>,
}

/// Whether two locks of different owners exclude one another.
pub fn excludes(a: LockKind, b: LockKind) -> bool {
    a == LockKind::Write || b == LockKind::Write
}

/// All locks of one space. Those of one owner are in order, do not overlap, and are merged.
#[derive(Debug, Clone, Default)]
pub struct Ranges {
    owners: BTreeMap<LockOwner, Vec<Held>>,
    count: usize,
}

impl Ranges {
    /// Nothing is held.
    pub fn is_empty(&self) -> bool {
        self.owners.is_empty()
    }

    /// How many ranges are held by all owners together.
    pub fn len(&self) -> usize {
        self.count
    }

    /// What an owner holds.
    pub fn of(&self, owner: LockOwner) -> &[Held] {
        self.owners.get(&owner).map_or(&[], Vec::as_slice)
    }

    /// The owners of one client.
    pub fn owners_of(&self, client: skep_types::ClientId) -> impl Iterator<Item = LockOwner> + '_ {
        let all = LockOwner { client, owner: 0 }..=LockOwner { client, owner: u64::MAX };
        self.owners.range(all).map(|(owner, _)| *owner)
    }

    /// All owners.
    pub fn owners(&self) -> impl Iterator<Item = LockOwner> + '_ {
        self.owners.keys().copied()
    }

    /// For each other owner in the way of a wish: the first of its locks that is.
    pub fn conflicts(
        &self,
        by: LockOwner,
        kind: LockKind,
        range: Range,
    ) -> impl Iterator<Item = (LockOwner, Held)> + '_ {
        let others = self.owners.iter().filter(move |(owner, _)| **owner != by);
        others.filter_map(move |(owner, held)| {
            let first = held.partition_point(|held| held.range.last < range.start);
            let near = held.get(first..)?.iter().take_while(|held| held.range.start <= range.last);
            near.into_iter().find(|held| excludes(held.kind, kind)).map(|held| (*owner, *held))
        })
    }

    /// Is anything in the way?
    pub fn is_blocked(&self, by: LockOwner, kind: LockKind, range: Range) -> bool {
        self.conflicts(by, kind, range).next().is_some()
    }

    /// The conflicting lock that begins first.
    pub fn first_conflict(&self, by: LockOwner, kind: LockKind, range: Range) -> Option<HeldLock> {
        let first = self.conflicts(by, kind, range).min_by_key(|(_, held)| held.range.start)?;
        let (by, Held { range, kind, pid }) = first;
        Some(HeldLock { by, pid, kind, start: range.start, last: range.last })
    }

    /// The owner holds `range` as `kind` from now on (`None`: not at all).
    pub fn set(&mut self, by: LockOwner, pid: u32, kind: Option<LockKind>, range: Range) -> Changed {
        let held = self.owners.entry(by).or_default();
        let from = held.partition_point(|held| held.range.last < range.start);
        let until = held.partition_point(|held| held.range.start <= range.last);
        let weaker =
            |held: &Held| kind.is_none_or(|kind| kind == LockKind::Read && held.kind == LockKind::Write);
        let frees = held[from..until].iter().any(weaker);
        // The ends of what is overwritten, where they stand out of the range.
        let mut pieces: Vec<Held> = Vec::with_capacity(3);
        if let Some(first) = held[from..until].first().filter(|first| first.range.start < range.start) {
            pieces.push(Held { range: Range { start: first.range.start, last: range.start - 1 }, ..*first });
        }
        pieces.extend(kind.map(|kind| Held { range, kind, pid }));
        if let Some(tail) = held[from..until].last().filter(|tail| tail.range.last > range.last) {
            pieces.push(Held { range: Range { start: range.last + 1, last: tail.range.last }, ..*tail });
        }
        // With its neighbours, which may become one with it.
        let (low, high) = (from.saturating_sub(1), (until + 1).min(held.len()));
        let behind = held.len() - high;
        let pids = |held: &[Held]| held.iter().map(|held| held.pid).collect::<Vec<u32>>();
        let before = pids(&held[low..high]);
        let count = pieces.len();
        held.splice(from..until, pieces);
        merge(held, low, from + count + 1);
        let after = pids(&held[low..held.len() - behind]);
        self.count = self.count + after.len() - before.len();
        if held.is_empty() {
            self.owners.remove(&by);
        }
        Changed { frees, before, after }
    }

    /// Everything of an owner goes: what it was.
    pub fn drop_owner(&mut self, by: LockOwner) -> Vec<Held> {
        let held = self.owners.remove(&by).unwrap_or_default();
        self.count -= held.len();
        held
    }
}

/// Joins neighbours of one kind among `held[from..until]`.
fn merge(held: &mut Vec<Held>, from: usize, until: usize) {
    let mut at = from;
    let mut until = until.min(held.len());
    while at + 1 < until {
        let (this, next) = (held[at], held[at + 1]);
        if this.kind == next.kind && this.range.touches(next.range) {
            held[at].range.last = next.range.last;
            held.remove(at + 1);
            until -= 1;
        } else {
            at += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use skep_types::ClientId;

    const BYTES: u64 = 24;
    const OWNERS: u64 = 4;

    fn owner(n: u64) -> LockOwner {
        LockOwner { client: ClientId(n / 2), owner: n % 2 }
    }

    struct Dice(u64);

    impl Dice {
        fn roll(&mut self, below: u64) -> u64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) % below
        }
    }

    /// The last byte of the model stands for everything behind it.
    fn range(start: u64, last: u64) -> Range {
        Range { start, last: if last == BYTES - 1 { u64::MAX } else { last } }
    }

    /// Goal: thousands of random sets and unlocks agree byte by byte with a table of bytes; what is
    /// held is in order, apart, and merged.
    #[test]
    fn agrees_with_a_table_of_bytes() {
        for seed in 0..60 {
            let mut dice = Dice(seed);
            let mut ranges = Ranges::default();
            let mut model = vec![vec![None; BYTES as usize]; OWNERS as usize];
            for _ in 0..300 {
                let (n, start) = (dice.roll(OWNERS), dice.roll(BYTES));
                let last = start + dice.roll(BYTES - start);
                let kind = [None, Some(LockKind::Read), Some(LockKind::Write)][dice.roll(3) as usize];
                let bytes = start as usize..=last as usize;
                if let Some(kind) = kind {
                    let taken = |other: u64, byte: usize| {
                        other != n && model[other as usize][byte].is_some_and(|held| excludes(held, kind))
                    };
                    let blocked = (0..OWNERS).any(|other| bytes.clone().any(|byte| taken(other, byte)));
                    assert_eq!(ranges.is_blocked(owner(n), kind, range(start, last)), blocked, "seed {seed}");
                    let first = (0..BYTES).find(|byte| {
                        bytes.contains(&(*byte as usize))
                            && (0..OWNERS).any(|other| taken(other, *byte as usize))
                    });
                    let found = ranges.first_conflict(owner(n), kind, range(start, last));
                    assert_eq!(found.is_some(), first.is_some());
                    if let (Some(found), Some(first)) = (found, first) {
                        assert!(found.start <= first && first <= found.last);
                    }
                    if blocked {
                        continue;
                    }
                }
                let weaker = |held: &Option<LockKind>| match (held, kind) {
                    (None, _) => false,
                    (Some(_), None) => true,
                    (Some(held), Some(kind)) => *held == LockKind::Write && kind == LockKind::Read,
                };
                let frees = model[n as usize][bytes.clone()].iter().any(weaker);
                assert_eq!(ranges.set(owner(n), 1, kind, range(start, last)).frees, frees);
                model[n as usize][bytes].fill(kind);
                let lens = (0..OWNERS).map(|n| ranges.of(owner(n)).len());
                assert_eq!(lens.sum::<usize>(), ranges.len());
                for n in 0..OWNERS {
                    compare(ranges.of(owner(n)), &model[n as usize], seed);
                }
            }
        }
    }

    fn compare(held: &[Held], model: &[Option<LockKind>], seed: u64) {
        for (byte, expected) in model.iter().enumerate() {
            let at = Range { start: byte as u64, last: byte as u64 };
            let mut found = held.iter().filter(|held| held.range.overlaps(at));
            assert_eq!(found.next().map(|held| held.kind), *expected, "seed {seed}, byte {byte}");
            assert!(found.next().is_none());
        }
        for pair in held.windows(2) {
            assert!(pair[0].range.last < pair[1].range.start);
            assert!(!(pair[0].kind == pair[1].kind && pair[0].range.touches(pair[1].range)), "not merged");
        }
    }
}
