//! Circles of owners that wait for one another, over all files of the server.
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
            for place in self.waiting.get(&(LockSpace::Range, owner)).into_iter().flatten() {
                if let Some(wish) = self.files.get(&place.key).and_then(|file| file.queue.get(&place.number))
                {
                    self.blockers(place.key, wish, &mut ahead);
                }
            }
            steps += 1;
            if steps > DEADLOCK_STEPS_MAX || ahead.len() > DEADLOCK_STEPS_MAX {
                return false;
            }
        }
        false
    }

    fn blockers(&self, key: Key, wish: &Wish, ahead: &mut Vec<LockOwner>) {
        if let Some(file) = self.files.get(&key) {
            ahead.extend(file.held.conflicts(wish.by, wish.kind, wish.range).map(|(owner, _)| owner));
        }
    }
}
