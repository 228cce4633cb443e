//! Reads from the disk that requests wait for, of all shards of a group.

use crate::limit::{Limits, ROWS_AWAITED_MAX};
use alloc::collections::BTreeMap;
use skep_types::ShardId;

/// See the module.
#[derive(Debug, Default)]
pub struct Reads {
    next: u64,
    /// Whose request waits, and for how many rows and ranges.
    under_way: BTreeMap<u64, (ShardId, usize)>,
    awaited: usize,
}

impl Reads {
    /// May one more request wait?
    pub fn has_room(&self, limits: &Limits) -> bool {
        self.under_way.len() < limits.reads && self.awaited < ROWS_AWAITED_MAX
    }

    /// A request of this shard waits for so many rows and ranges. The number of the read.
    pub fn begin(&mut self, shard: ShardId, awaited: usize) -> u64 {
        self.next += 1;
        self.awaited += awaited;
        self.under_way.insert(self.next, (shard, awaited));
        self.next
    }

    /// They are in memory, or nobody waits for them any more: of which shard, and how many.
    pub fn ended(&mut self, read: u64) -> Option<(ShardId, usize)> {
        let ended = self.under_way.remove(&read);
        self.awaited -= ended.map_or(0, |(_, awaited)| awaited);
        ended
    }
}
