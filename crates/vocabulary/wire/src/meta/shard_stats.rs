//! `ShardStats`: counters of the metadata server.

use super::StatsReply;

crate::message! {
    /// Counters of the metadata server.
    ShardStats = 0x021d -> StatsReply {
    }
}
