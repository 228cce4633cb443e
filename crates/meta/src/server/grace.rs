//! The grace period: after a restart nobody knows yet what is open.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use skep_types::{ClientId, Millis, ShardId};

/// Sessions that have not reported to a shard.
#[derive(Debug, Default)]
pub struct Grace {
    waiting: BTreeMap<ShardId, BTreeSet<ClientId>>,
    deadline: Option<Millis>,
}

impl Grace {
    /// Begins for `shards`: every session in `living` is to report to each.
    pub fn begin(&mut self, shards: Vec<ShardId>, living: &BTreeSet<ClientId>, deadline: Millis) {
        if living.is_empty() || shards.is_empty() {
            return;
        }
        self.waiting = shards.into_iter().map(|shard| (shard, living.clone())).collect();
        self.deadline = Some(deadline);
    }

    /// Is the shard in it?
    pub fn holds(&self, shard: ShardId) -> bool {
        self.waiting.contains_key(&shard)
    }

    /// Has `client` not reported yet to a shard that is in it?
    pub fn awaits(&self, shard: ShardId, client: ClientId) -> bool {
        self.waiting.get(&shard).is_some_and(|waiting| waiting.contains(&client))
    }

    /// When it ends at the latest.
    pub fn deadline(&self) -> Option<Millis> {
        self.deadline
    }

    /// `client` has reported everything to `shard`; true when that was the last one.
    pub fn reported(&mut self, shard: ShardId, client: ClientId) -> bool {
        let Some(waiting) = self.waiting.get_mut(&shard) else { return false };
        waiting.remove(&client);
        let over = waiting.is_empty();
        if over {
            self.waiting.remove(&shard);
            self.rest();
        }
        over
    }

    /// `client` will not report; the shards whose period ends by this.
    pub fn gone(&mut self, client: ClientId) -> Vec<ShardId> {
        let shards: Vec<ShardId> = self.waiting.keys().copied().collect();
        shards.into_iter().filter(|shard| self.reported(*shard, client)).collect()
    }

    /// Time is up; the shards whose period ends by this.
    pub fn expire(&mut self, now: Millis) -> Vec<ShardId> {
        if self.deadline.is_none_or(|deadline| now < deadline) {
            return Vec::new();
        }
        self.deadline = None;
        core::mem::take(&mut self.waiting).into_keys().collect()
    }

    fn rest(&mut self) {
        if self.waiting.is_empty() {
            self.deadline = None;
        }
    }
}
