//! Circles of owners that wait for one another: over the files of a shard, found before a lock is waited for; over those of
//! several shards of a group, found as soon as it is.
//!
//! Who holds nothing cannot be in a circle, and only such owners wait for their turn alone: so the
//! edges are the locks held, from a waiting owner to whoever holds what it waits for.

use super::table::{Key, Table, Wish};
use crate::limit::DEADLOCK_STEPS_MAX;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use skep_wire::meta::{LockOwner, LockSpace};

impl Table {
    /// Would `wish`, were it to wait, wait for its own owner in the end?
    pub(super) fn is_circle(&self, key: Key, wish: &Wish) -> bool {
        let mut steps = 0;
        let mut seen = BTreeSet::new();
        let mut ahead: Vec<LockOwner> = Vec::new();
        self.blockers(key, wish, &mut ahead);
        while let Some(owner) = ahead.pop() {
            if owner == wish.by {
                return true;
            }
            if !seen.insert(owner) {
                continue;
            }
            self.blockers_of(owner, &mut ahead);
            steps += 1;
            if steps > DEADLOCK_STEPS_MAX || ahead.len() > DEADLOCK_STEPS_MAX {
                return false;
            }
        }
        false
    }

    /// Those that hold what `owner` waits for.
    pub fn blockers_of(&self, owner: LockOwner, ahead: &mut Vec<LockOwner>) {
        for place in self.waiting.get(&(LockSpace::Range, owner)).into_iter().flatten() {
            if let Some(wish) = self.files.get(&place.key).and_then(|file| file.queue.get(&place.number)) {
                self.blockers(place.key, wish, ahead);
            }
        }
    }

    fn blockers(&self, key: Key, wish: &Wish, ahead: &mut Vec<LockOwner>) {
        if let Some(file) = self.files.get(&key) {
            ahead.extend(file.held.conflicts(wish.by, wish.kind, wish.range).map(|(owner, _)| owner));
        }
    }
}

/// Does a chain of owners, each waiting for the next on some shard, lead from `owner` back to it?
pub fn is_circle_over<'a>(tables: impl Iterator<Item = &'a Table>, owner: LockOwner) -> bool {
    let tables: Vec<&Table> = tables.filter(|table| table.waits() > 0).collect();
    // A circle over two shards has a waiting owner on each.
    if tables.len() < 2 {
        return false;
    }
    let (mut seen, mut looks) = (BTreeSet::new(), 0);
    let mut ahead = alloc::vec![owner];
    while let Some(next) = ahead.pop() {
        looks += tables.len();
        if looks > DEADLOCK_STEPS_MAX || ahead.len() > DEADLOCK_STEPS_MAX {
            return false;
        }
        if seen.insert(next) {
            tables.iter().for_each(|table| table.blockers_of(next, &mut ahead));
        } else if next == owner {
            return true;
        }
    }
    false
}
