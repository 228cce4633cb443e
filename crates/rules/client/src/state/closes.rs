//! Closes that shards have not been told of yet. They are sent in batches by housekeeping.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use skep_types::{Ino, ShardId};
use skep_wire::meta::Closed;

/// Closes waiting, by shard.
#[derive(Debug, Default)]
pub struct Closes {
    waiting: BTreeMap<ShardId, BTreeMap<Ino, u64>>,
    /// Numbers of opens of what may have been made, of which this mount was not told.
    untold: BTreeMap<ShardId, BTreeSet<u64>>,
    count: usize,
    /// Those that are being told.
    pub on_their_way: usize,
}

impl Closes {
    /// `ino` is no longer open in this mount.
    pub fn add(&mut self, ino: Ino, open_seq: u64) {
        if self.waiting.entry(ino.shard()).or_default().insert(ino, open_seq).is_none() {
            self.count += 1;
        }
    }

    /// The number of the close of `ino` that waits.
    pub fn waits(&self, ino: Ino) -> Option<u64> {
        self.waiting.get(&ino.shard())?.get(&ino).copied()
    }

    /// What a create made on this shard, if it did, is not open in this mount.
    pub fn add_untold(&mut self, shard: ShardId, open_seq: u64) {
        self.count += usize::from(self.untold.entry(shard).or_default().insert(open_seq));
    }

    /// `ino` is being opened again: its close need not be told (the open has a higher number, so one
    /// that is told all the same is ignored).
    pub fn cancel(&mut self, ino: Ino) {
        if let Some(shard) = self.waiting.get_mut(&ino.shard())
            && shard.remove(&ino).is_some()
        {
            self.count -= 1;
        }
    }

    /// Takes up to `max` closes of the first shard that has any.
    pub fn take(&mut self, max: usize) -> Option<(ShardId, Vec<Closed>)> {
        if let Some(mut first) = self.untold.first_entry() {
            let (shard, numbers) = (*first.key(), first.get_mut());
            let taken = core::iter::from_fn(|| numbers.pop_first()).take(max.max(1));
            let batch: Vec<Closed> = taken.map(|number| Closed::untold(shard, number)).collect();
            if numbers.is_empty() {
                first.remove();
            }
            self.count -= batch.len();
            return Some((shard, batch));
        }
        loop {
            let mut first = self.waiting.first_entry()?;
            let (shard, waiting) = (*first.key(), first.get_mut());
            let mut batch = Vec::new();
            while batch.len() < max
                && let Some((ino, open_seq)) = waiting.pop_first()
            {
                batch.push(Closed { ino, open_seq });
            }
            if waiting.is_empty() {
                first.remove();
            }
            self.count -= batch.len();
            if !batch.is_empty() {
                return Some((shard, batch));
            }
        }
    }

    /// They could not be told: wait again, unless a newer close of the inode waits by now. One inode
    /// may be in the batch more than once.
    pub fn put_back(&mut self, batch: Vec<Closed>) {
        for closed in batch {
            if closed.is_untold() {
                self.add_untold(closed.ino.shard(), closed.open_seq);
                continue;
            }
            let waiting = self.waiting.entry(closed.ino.shard()).or_default();
            match waiting.get_mut(&closed.ino) {
                Some(open_seq) => *open_seq = closed.open_seq.max(*open_seq),
                None => {
                    waiting.insert(closed.ino, closed.open_seq);
                    self.count += 1;
                }
            }
        }
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Nothing waits.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    /// Goal: closes are batched by shard, cancelled by a new open, and kept when they could not be told.
    #[test]
    fn closes_are_batched_cancelled_and_kept() {
        let (a, b, c) = (Ino::new(ShardId(0), 5), Ino::new(ShardId(0), 6), Ino::new(ShardId(2), 7));
        let mut closes = Closes::default();
        closes.add(a, 1);
        closes.add(b, 2);
        closes.add(c, 3);
        closes.cancel(a);
        assert_eq!(closes.len(), 2);
        let (shard, batch) = closes.take(10).unwrap();
        assert_eq!((shard, batch.len(), closes.len()), (ShardId(0), 1, 1));
        closes.add(b, 9);
        closes.put_back(batch);
        let (_, batch) = closes.take(10).unwrap();
        assert_eq!(batch, [Closed { ino: b, open_seq: 9 }]);
        assert_eq!(closes.take(10).unwrap().0, ShardId(2));
        assert!(closes.take(10).is_none() && closes.is_empty());
    }

    /// Goal: opens of which nobody was told are told by their numbers, and kept when they could not be told.
    #[test]
    fn untold_opens_are_kept() {
        let mut closes = Closes::default();
        closes.add(Ino::new(ShardId(1), 5), 3);
        [4, 2, 4].into_iter().for_each(|number| closes.add_untold(ShardId(1), number));
        assert_eq!(closes.len(), 3);
        let (shard, batch) = closes.take(10).unwrap();
        assert_eq!((shard, batch.clone()), (ShardId(1), [2, 4].map(|n| Closed::untold(shard, n)).to_vec()));
        closes.put_back(batch.clone());
        assert_eq!((closes.len(), closes.take(10)), (3, Some((shard, batch))));
        assert_eq!(closes.take(10).unwrap().1[0].open_seq, 3);
        assert!(closes.is_empty());
    }

    /// Goal: of two closes of one inode that could not be told the newer one is kept, or the shard
    /// would hold the inode open for ever (seed 930 of the simulator).
    #[test]
    fn the_newest_of_two_lost_closes_is_kept() {
        let (ino, mut closes) = (Ino::new(ShardId(0), 5), Closes::default());
        closes.put_back(vec![Closed { ino, open_seq: 85 }, Closed { ino, open_seq: 90 }]);
        assert_eq!((closes.len(), closes.take(9).unwrap().1), (1, vec![Closed { ino, open_seq: 90 }]));
        closes.put_back(vec![Closed { ino, open_seq: 90 }, Closed { ino, open_seq: 85 }]);
        assert_eq!(closes.take(9).unwrap().1[0].open_seq, 90);
    }
}
