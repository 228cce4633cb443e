//! `RegisterTarget`: a storage daemon announces a target (servers only).

use super::RegisterTargetReply;
use alloc::string::String;
use skep_types::{Capacity, NodeId, TargetId, Uuid};

crate::message! {
    /// A storage daemon announces a target (servers only).
    RegisterTarget = 0x0102 -> RegisterTargetReply {
        /// The storage daemon.
        pub node: NodeId,
        /// From the identity file; chosen at random by the daemon that formats the directory.
        pub uuid: Uuid,
        /// From the identity file; 0 = none yet.
        pub target: TargetId,
        /// Wished alias; empty = one is made up.
        pub alias: String,
        /// Space.
        pub capacity: Capacity,
        /// As in `RegisterNode`, of the target's directory.
        pub mark: u64,
        /// As in `RegisterNode`, of the target's directory.
        pub confirmed: u64,
        /// An administrator says that this older copy is all there is.
        pub restored: bool,
    }
}
