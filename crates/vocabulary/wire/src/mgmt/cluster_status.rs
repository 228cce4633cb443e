//! `ClusterStatus`: nodes, targets, shards and sessions with their states.

use super::StatusReply;

crate::message! {
    /// Nodes, targets, shards and sessions with their states.
    ClusterStatus = 0x010b -> StatusReply {
    }
}
