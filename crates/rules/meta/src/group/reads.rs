//! Reads from the disk that requests and recoveries wait for, of all shards of a group.

use crate::limit::{Limits, ROWS_AWAITED_MAX};
use alloc::collections::BTreeMap;
use skep_types::ShardId;

/// Of which shard, and how many rows and ranges.
type Awaited = (ShardId, usize);

/// See the module.
#[derive(Debug, Default)]
pub struct Reads {
    next: u64,
    /// Those that requests wait for.
    of_requests: BTreeMap<u64, Awaited>,
    awaited: usize,
    /// Those of files whose size is recovered. They have places of their own: where requests keep all of theirs taken,
    /// nobody else would ever get one. Here each waits for the disk only, so its turn comes.
    of_recoveries: BTreeMap<u64, Awaited>,
}

impl Reads {
    /// May one more request wait?
    pub fn has_room(&self, limits: &Limits) -> bool {
        self.of_requests.len() < limits.reads && self.awaited < ROWS_AWAITED_MAX
    }

    /// May one more recovery?
    pub fn has_room_for_recovery(&self, limits: &Limits) -> bool {
        self.of_recoveries.len() < limits.recovery_reads
    }

    /// A request of this shard waits for so many rows and ranges. The number of the read.
    pub fn begin(&mut self, shard: ShardId, awaited: usize) -> u64 {
        self.next += 1;
        self.awaited += awaited;
        self.of_requests.insert(self.next, (shard, awaited));
        self.next
    }

    /// As [`Reads::begin`], of a recovery.
    pub fn begin_recovery(&mut self, shard: ShardId, awaited: usize) -> u64 {
        self.next += 1;
        self.of_recoveries.insert(self.next, (shard, awaited));
        self.next
    }

    /// They are in memory, or nobody waits for them any more: of which shard, and how many.
    pub fn ended(&mut self, read: u64) -> Option<(ShardId, usize)> {
        let of_request = self.of_requests.remove(&read);
        self.awaited -= of_request.map_or(0, |(_, awaited)| awaited);
        of_request.or_else(|| self.of_recoveries.remove(&read))
    }
}
