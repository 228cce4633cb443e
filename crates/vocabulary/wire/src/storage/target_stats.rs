//! `TargetStats`: state, space and counters of all targets of the daemon.

use super::TargetStatsReply;

crate::message! {
    /// State, space and counters of all targets of the daemon.
    TargetStats = 0x0309 -> TargetStatsReply {
    }
}
