//! `GroupStats`: counters of a group of shards.

use super::StatsReply;

crate::message! {
    /// Counters of the group that is asked, whatever shard the call names: it may have none.
    GroupStats = 0x021d -> StatsReply {
    }
}
