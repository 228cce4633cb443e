//! `Heartbeat`: a daemon is alive (servers only).

use super::{HeartbeatReply, TargetReport};
use alloc::vec::Vec;
use skep_types::{Capacity, Incarnation, MapVersion, NodeId};

crate::message! {
    /// A daemon is alive (servers only).
    Heartbeat = 0x0103 -> HeartbeatReply {
        /// The daemon.
        pub node: NodeId,
        /// Its life.
        pub incarnation: Incarnation,
        /// State of its targets.
        pub targets: Vec<TargetReport>,
        /// Space of its state directory.
        pub capacity: Capacity,
        /// Newest map that it acts upon; 0 = none yet.
        pub map: MapVersion,
        /// It signs off.
        pub leaving: bool,
    }
}
