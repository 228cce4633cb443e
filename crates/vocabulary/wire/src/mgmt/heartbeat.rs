//! `Heartbeat`: a daemon is alive (servers only).

use super::{HeartbeatReply, RegistryAge, ShardAt, TargetReport};
use alloc::vec::Vec;
use skep_types::{Capacity, Incarnation, LogSeq, MapVersion, NodeId};

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
        /// What its log holds on stable storage; 0 = it keeps none.
        pub index: LogSeq,
        /// Shards that it formatted or fetched, on stable storage, and that its map still calls new or moving.
        pub formatted: Vec<ShardAt>,
        /// The newest registry that it knows.
        pub registry: RegistryAge,
        /// It signs off.
        pub leaving: bool,
    } tags {
        /// As in `RegisterNode`: a registry that was put back from an older copy does not know it.
        1 => pub mark: Option<u64>,
    }
}
