//! The grace period: after a restart nobody knows yet what is open.
//!
//! It ends, so that one silent mount does not keep all others waiting for locks. What a mount has open that still has its
//! session then, and has not reported, stays: nobody's files are purged until it has reported or its session has ended.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use skep_types::{ClientId, Millis, ShardId};

/// Sessions that have not reported to a shard.
#[derive(Debug, Default)]
pub struct Grace {
    /// Service has begun: who lives is known, and so who is to report.
    begun: bool,
    waiting: BTreeMap<ShardId, BTreeSet<ClientId>>,
    /// Those that had not when it ended.
    late: BTreeMap<ShardId, BTreeSet<ClientId>>,
    deadline: Option<Millis>,
}

impl Grace {
    /// Begins for `shards`: every session in `living` is to report to each.
    pub fn begin(&mut self, shards: Vec<ShardId>, living: &BTreeSet<ClientId>, deadline: Millis) {
        self.begun = true;
        self.late.clear();
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

    /// Is what is open known, of every session?
    pub fn knows_opens(&self, shard: ShardId) -> bool {
        self.begun && !self.holds(shard) && !self.late.contains_key(&shard)
    }

    /// Has `client` not reported yet to a shard that is in it?
    pub fn awaits(&self, shard: ShardId, client: ClientId) -> bool {
        self.waiting.get(&shard).is_some_and(|waiting| waiting.contains(&client))
    }

    /// Has `client` told `shard` all that it has? So has whoever came since the start: it had nothing.
    pub fn has_reported(&self, shard: ShardId, client: ClientId) -> bool {
        self.begun && !self.is_late(shard, client) && !self.awaits(shard, client)
    }

    /// Has `client` not reported to `shard`, though the period is over?
    pub fn is_late(&self, shard: ShardId, client: ClientId) -> bool {
        self.late.get(&shard).is_some_and(|late| late.contains(&client))
    }

    /// When it ends at the latest.
    pub fn deadline(&self) -> Option<Millis> {
        self.deadline
    }

    /// `client` has reported everything to `shard`; true when that was the last one.
    pub fn reported(&mut self, shard: ShardId, client: ClientId) -> bool {
        let waited = take(&mut self.waiting, shard, client);
        if self.waiting.is_empty() {
            self.deadline = None;
        }
        waited || take(&mut self.late, shard, client)
    }

    /// `client` will not report; the shards of which it was the last one.
    pub fn gone(&mut self, client: ClientId) -> Vec<ShardId> {
        let shards: BTreeSet<ShardId> = self.waiting.keys().chain(self.late.keys()).copied().collect();
        shards.into_iter().filter(|shard| self.reported(*shard, client)).collect()
    }

    /// Those that had not reported when it ended.
    pub fn late(&self) -> BTreeSet<ClientId> {
        self.late.values().flatten().copied().collect()
    }

    /// Time is up: is it over by this?
    pub fn expire(&mut self, now: Millis) -> bool {
        if self.deadline.is_none_or(|deadline| now < deadline) {
            return false;
        }
        self.deadline = None;
        self.late = core::mem::take(&mut self.waiting);
        true
    }
}

/// Takes `client` from the list of `shard`; true when that was the last one.
fn take(lists: &mut BTreeMap<ShardId, BTreeSet<ClientId>>, shard: ShardId, client: ClientId) -> bool {
    let Some(list) = lists.get_mut(&shard) else { return false };
    list.remove(&client);
    let empty = list.is_empty();
    if empty {
        lists.remove(&shard);
    }
    empty
}
