//! Acknowledged changes that are not known to be on stable storage, per shard.
//!
//! Only the newest index of each term is kept: a log is durable from its start to some index. A
//! newer term says nothing about the older one's tail (a power cut may have taken it and reused the
//! indexes), so an older term's entry leaves by an answer to `Sync` only.

use crate::limits::TERMS_MAX;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use skep_types::{LogIndex, ShardId, Term};
use skep_wire::meta::ShardStamp;

#[derive(Debug, Default)]
struct Shard {
    open: Vec<(Term, LogIndex)>,
    durable: (Term, LogIndex),
    ends: Term,
    losses: u32,
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

    /// A change was acknowledged with `stamp`. Too many terms in doubt: gives those that count as lost.
    pub fn acknowledged(&mut self, shard: ShardId, stamp: &ShardStamp) -> Option<Term> {
        let shard = self.shards.entry(shard).or_default();
        shard.seen(stamp);
        if stamp.index <= stamp.durable {
            return None;
        }
        match shard.open.iter_mut().find(|open| open.0 == stamp.term) {
            Some(open) => open.1 = open.1.max(stamp.index),
            None => shard.open.push((stamp.term, stamp.index)),
        }
        (shard.open.len() > TERMS_MAX).then(|| shard.open.remove(0).0)
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
            shard.open.retain(|open| open.0 != term || open.1 > index);
            shard.durable = shard.durable.max((term, index));
        }
    }

    /// The shard lost its changes of `term`. Gives the index up to which they are known to be safe.
    pub fn lost(&mut self, shard: ShardId, term: Term) -> LogIndex {
        let shard = self.shards.entry(shard).or_default();
        shard.open.retain(|open| open.0 != term);
        shard.losses += 1;
        if shard.durable.0 == term { shard.durable.1 } else { LogIndex(0) }
    }

    /// How often `shard` lost acknowledged changes.
    pub fn losses(&self, shard: ShardId) -> u32 {
        self.shards.get(&shard).map_or(0, |shard| shard.losses)
    }
}

impl Shard {
    fn seen(&mut self, stamp: &ShardStamp) {
        self.durable = self.durable.max((stamp.term, stamp.durable));
        self.open.retain(|open| open.0 != stamp.term || open.1 > stamp.durable);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp(term: u64, index: u64, durable: u64) -> ShardStamp {
        ShardStamp { term: Term(term), index: LogIndex(index), durable: LogIndex(durable) }
    }

    /// Goal: a change stays open until its own term says that it is durable, or Sync does.
    #[test]
    fn a_newer_term_proves_nothing() {
        let (shard, mut stamps) = (ShardId(1), Stamps::default());
        stamps.acknowledged(shard, &stamp(1, 10, 8));
        stamps.seen(shard, &stamp(1, 10, 9));
        assert_eq!(stamps.open(shard), [(Term(1), LogIndex(10))]);
        stamps.seen(shard, &stamp(2, 30, 30));
        assert_eq!(stamps.open(shard), [(Term(1), LogIndex(10))]);
        assert_eq!(stamps.in_doubt(), [(shard, Term(1), LogIndex(10))]);
        stamps.synced(shard, Term(1), LogIndex(10));
        assert!(stamps.open(shard).is_empty() && stamps.in_doubt().is_empty());
        stamps.acknowledged(shard, &stamp(2, 31, 30));
        stamps.seen(shard, &stamp(2, 31, 31));
        assert!(stamps.open(shard).is_empty());
    }

    /// Goal: the number of terms in doubt is bounded, and dropping one counts as a loss.
    #[test]
    fn terms_are_bounded() {
        let (shard, mut stamps) = (ShardId(1), Stamps::default());
        for term in 1..=TERMS_MAX as u64 {
            assert_eq!(stamps.acknowledged(shard, &stamp(term, 10, 1)), None);
        }
        assert_eq!(stamps.acknowledged(shard, &stamp(99, 10, 1)), Some(Term(1)));
    }
}
