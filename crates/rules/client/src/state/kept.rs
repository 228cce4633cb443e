//! Files that shards take for open in this mount though no program has them open: who opens one again need not tell.

use crate::limits::KEPT_LOOK_MS;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use skep_types::{Ino, Millis, ShardId};

/// Nobody waits for longer than for so many.
pub const LOOKS_AT_ONCE: usize = 64;

/// Opens that are kept, and since when no program uses them.
#[derive(Debug, Default)]
pub struct Kept {
    since: BTreeMap<Ino, Millis>,
    by_age: BTreeSet<(Millis, Ino)>,
    /// Some may be of no use any more: to be looked at soon.
    pub wants_look: bool,
    looked: Millis,
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

    /// Begins a look at all of them, if something has happened, or some time has passed since the last one.
    pub fn begins_look(&mut self, now: Millis) -> bool {
        let begins = core::mem::take(&mut self.wants_look) || now.since(self.looked) >= KEPT_LOOK_MS;
        if begins {
            self.looked = now;
        }
        begins
    }

    /// The next ones of such a look.
    pub fn some_from(&self, from: Ino) -> Vec<Ino> {
        self.since.range(from..).map(|(ino, _)| *ino).take(LOOKS_AT_ONCE).collect()
    }

    /// One of a shard.
    pub fn one_of(&self, shard: ShardId) -> Option<Ino> {
        let all = Ino::new(shard, 0)..=Ino::new(shard, Ino::SERIAL_MAX);
        self.since.range(all).next().map(|(ino, _)| *ino)
    }
}
