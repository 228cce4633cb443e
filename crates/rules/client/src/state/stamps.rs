//! Acknowledged changes that are not known to be on stable storage, per shard.
//!
//! A log is durable from its start to some index, so the newest index of each term is what is asked for. A
//! newer term says nothing about the older one's tail (a power cut may have taken it and reused the
//! indexes), so an older term's entries leave by an answer to `Sync` only. Which inodes they change is kept, for who is
//! to be told when they are lost.

use crate::limits::TERMS_MAX;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::ops::RangeInclusive;
use skep_types::{Ino, LogIndex, ShardId, Term};
use skep_wire::meta::ShardStamp;

/// A change of an inode, and the thread that asked for it (0: nobody's).
type Changed = (Term, LogIndex, Ino, u32);

#[derive(Debug, Default)]
struct Shard {
    open: Vec<(Term, LogIndex)>,
    durable: (Term, LogIndex),
    ends: Term,
    /// What is changed there.
    changed: BTreeSet<Changed>,
}

/// Stamps of all shards.
#[derive(Debug, Default)]
pub struct Stamps {
    shards: BTreeMap<ShardId, Shard>,
}

impl Stamps {
    /// An answer of `shard` showed `stamp`.
    pub fn seen(&mut self, shard: ShardId, stamp: &ShardStamp) {
        if let Some(shard) = self.shards.get_mut(&shard) {
            shard.seen(stamp);
        }
    }

    /// `shard` gives ends to append to in this term: everybody has told how far he had appended.
    pub fn gives_ends(&mut self, shard: ShardId, term: Term) {
        let shard = self.shards.entry(shard).or_default();
        shard.ends = shard.ends.max(term);
    }

    /// The newest term in which `shard` gave ends; 0: none is known.
    pub fn ends(&self, shard: ShardId) -> Term {
        self.shards.get(&shard).map_or(Term(0), |shard| shard.ends)
    }

    /// A change of these inodes by `caller` was acknowledged with `stamp`: said once more of an inode that had no number when
    /// it was asked for. Too many terms in doubt: gives those that count as lost.
    pub fn acknowledged(
        &mut self,
        shard: ShardId,
        stamp: &ShardStamp,
        of: impl IntoIterator<Item = Ino>,
        caller: u32,
    ) -> Option<Term> {
        let shard = self.shards.entry(shard).or_default();
        shard.seen(stamp);
        let durable = if shard.durable.0 == stamp.term { shard.durable.1 } else { stamp.durable };
        if stamp.index <= durable {
            return None;
        }
        shard.changed.extend(of.into_iter().map(|ino| (stamp.term, stamp.index, ino, caller)));
        match shard.open.iter_mut().find(|open| open.0 == stamp.term) {
            Some(open) => open.1 = open.1.max(stamp.index),
            None => shard.open.push((stamp.term, stamp.index)),
        }
        (shard.open.len() > TERMS_MAX).then(|| shard.open.remove(0).0)
    }

    /// Its changes count no more: a fault on purpose, when not all of them were waited for.
    pub fn forget(&mut self, ino: Ino) {
        if let Some(shard) = self.shards.get_mut(&ino.shard()) {
            shard.changed.retain(|changed| changed.2 != ino);
        }
    }

    /// How many inodes with changes not known to be durable are kept of `shard`.
    pub fn changed(&self, shard: ShardId) -> usize {
        self.shards.get(&shard).map_or(0, |shard| shard.changed.len())
    }

    /// What is to be synced before `shard`'s changes are safe.
    pub fn open(&self, shard: ShardId) -> Vec<(Term, LogIndex)> {
        self.shards.get(&shard).map(|shard| shard.open.clone()).unwrap_or_default()
    }

    /// Shards with changes that are not known to be durable.
    pub fn unsettled(&self) -> Vec<ShardId> {
        self.shards.iter().filter(|(_, shard)| !shard.open.is_empty()).map(|(id, _)| *id).collect()
    }

    /// Shards with changes of a term that has ended: they should be asked about soon.
    pub fn in_doubt(&self) -> Vec<(ShardId, Term, LogIndex)> {
        let mut doubts = Vec::new();
        for (id, shard) in &self.shards {
            let newest = shard.durable.0.max(shard.open.last().map_or(Term(0), |open| open.0));
            let ended = shard.open.iter().filter(|open| open.0 < newest);
            doubts.extend(ended.map(|(term, index)| (*id, *term, *index)));
        }
        doubts
    }

    /// The shard confirmed that everything up to (term, index) is durable.
    pub fn synced(&mut self, shard: ShardId, term: Term, index: LogIndex) {
        if let Some(shard) = self.shards.get_mut(&shard) {
            shard.settled(term, index);
            shard.durable = shard.durable.max((term, index));
        }
    }

    /// The shard lost its changes of `term`, but for those that are known to be safe. Gives what they changed,
    /// and who, in their order.
    pub fn lost(&mut self, shard: ShardId, term: Term) -> Vec<(Ino, u32)> {
        let shard = self.shards.entry(shard).or_default();
        shard.open.retain(|open| open.0 != term);
        if shard.durable.0 == term {
            shard.settled(term, shard.durable.1);
        }
        let lost = shard.changed.extract_if(up_to(term, LogIndex(u64::MAX)), |_| true);
        lost.map(|(_, _, ino, caller)| (ino, caller)).collect()
    }
}

impl Shard {
    fn seen(&mut self, stamp: &ShardStamp) {
        self.durable = self.durable.max((stamp.term, stamp.durable));
        self.settled(stamp.term, stamp.durable);
    }

    fn settled(&mut self, term: Term, index: LogIndex) {
        self.open.retain(|open| open.0 != term || open.1 > index);
        while let Some(settled) = self.changed.range(up_to(term, index)).next().copied() {
            self.changed.remove(&settled);
        }
    }
}

/// Changes of `term` up to `index`.
fn up_to(term: Term, index: LogIndex) -> RangeInclusive<Changed> {
    (term, LogIndex(0), Ino(0), 0)..=(term, index, Ino(u64::MAX), u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn stamp(term: u64, index: u64, durable: u64) -> ShardStamp {
        ShardStamp::new(Term(term), LogIndex(index), LogIndex(durable))
    }

    /// Goal: a change stays open until its own term says that it is durable, or Sync does.
    #[test]
    fn a_newer_term_proves_nothing() {
        let (shard, mut stamps) = (ShardId(1), Stamps::default());
        stamps.acknowledged(shard, &stamp(1, 10, 8), [], 7);
        stamps.seen(shard, &stamp(1, 10, 9));
        assert_eq!(stamps.open(shard), [(Term(1), LogIndex(10))]);
        stamps.seen(shard, &stamp(2, 30, 30));
        assert_eq!(stamps.open(shard), [(Term(1), LogIndex(10))]);
        assert_eq!(stamps.in_doubt(), [(shard, Term(1), LogIndex(10))]);
        stamps.synced(shard, Term(1), LogIndex(10));
        assert!(stamps.open(shard).is_empty() && stamps.in_doubt().is_empty());
        stamps.acknowledged(shard, &stamp(2, 31, 30), [], 7);
        stamps.seen(shard, &stamp(2, 31, 31));
        assert!(stamps.open(shard).is_empty());
    }

    /// Goal: the number of terms in doubt is bounded, and dropping one counts as a loss.
    #[test]
    fn terms_are_bounded() {
        let (shard, mut stamps) = (ShardId(1), Stamps::default());
        for term in 1..=TERMS_MAX as u64 {
            assert_eq!(stamps.acknowledged(shard, &stamp(term, 10, 1), [], 7), None);
        }
        assert_eq!(stamps.acknowledged(shard, &stamp(99, 10, 1), [], 7), Some(Term(1)));
    }

    /// Goal: what a lost change was of is known, whatever came in newer terms (seed 39 of the simulator: an fsync answered
    /// success); what is durable is not lost.
    #[test]
    fn what_was_changed_is_known() {
        let (shard, mut stamps) = (ShardId(1), Stamps::default());
        let [a, b, c] = [1, 2, 3].map(|serial| Ino::new(shard, serial));
        stamps.acknowledged(shard, &stamp(1, 10, 8), [a], 7);
        stamps.acknowledged(shard, &stamp(1, 11, 8), [a, b], 7);
        stamps.acknowledged(shard, &stamp(1, 11, 8), [c], 9);
        stamps.seen(shard, &stamp(1, 12, 10));
        assert_eq!(stamps.changed(shard), 3);
        stamps.acknowledged(shard, &stamp(2, 15, 12), [a], 7);
        stamps.seen(shard, &stamp(2, 15, 15));
        assert_eq!(stamps.lost(shard, Term(1)), [(a, 7), (b, 7), (c, 9)]);
        assert!(stamps.lost(shard, Term(1)).is_empty() && stamps.lost(shard, Term(2)).is_empty());
        stamps.acknowledged(shard, &stamp(3, 20, 15), [b], 7);
        stamps.synced(shard, Term(3), LogIndex(20));
        assert_eq!(stamps.changed(shard), 0);
        // A new inode of it is said behind that: known to be durable, or the shard is asked once more.
        stamps.acknowledged(shard, &stamp(3, 20, 15), [c], 7);
        assert_eq!((stamps.open(shard), stamps.changed(shard)), (vec![], 0));
        stamps.seen(shard, &stamp(4, 21, 21));
        stamps.acknowledged(shard, &stamp(3, 20, 15), [c], 7);
        assert_eq!((stamps.open(shard), stamps.changed(shard)), (vec![(Term(3), LogIndex(20))], 1));
    }
}
