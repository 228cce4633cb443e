//! Files that shards take for open in this mount though no program has them open: who opens one again need not tell.

use alloc::collections::{BTreeMap, BTreeSet};
use skep_types::{Ino, Millis, ShardId};

/// Opens that are kept, and since when no program uses them.
#[derive(Debug, Default)]
pub struct Kept {
    since: BTreeMap<Ino, Millis>,
    by_age: BTreeSet<(Millis, Ino)>,
}

impl Kept {
    /// The last program has closed it.
    pub fn keep(&mut self, ino: Ino, now: Millis) {
        self.take(ino);
        self.since.insert(ino, now);
        self.by_age.insert((now, ino));
    }

    /// A program opens it again, or it is to be closed. `false`: it was not kept.
    pub fn take(&mut self, ino: Ino) -> bool {
        let since = self.since.remove(&ino);
        since.is_some_and(|since| self.by_age.remove(&(since, ino)))
    }

    pub fn has(&self, ino: Ino) -> bool {
        self.since.contains_key(&ino)
    }

    pub fn count(&self) -> usize {
        self.since.len()
    }

    /// The one that nobody has used for longest.
    pub fn oldest(&self) -> Option<(Millis, Ino)> {
        self.by_age.first().copied()
    }

    /// One of a shard.
    pub fn one_of(&self, shard: ShardId) -> Option<Ino> {
        let all = Ino::new(shard, 0)..=Ino::new(shard, Ino::SERIAL_MAX);
        self.since.range(all).next().map(|(ino, _)| *ino)
    }
}
