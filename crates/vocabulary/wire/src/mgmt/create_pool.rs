//! `CreatePool`: an administrator makes a storage pool.

use super::{CapacityLimits, CreatePoolReply};
use alloc::string::String;
use alloc::vec::Vec;
use skep_types::TargetId;

crate::message! {
    /// An administrator makes a storage pool.
    CreatePool = 0x010c -> CreatePoolReply {
        /// Its alias, unique among pools, nodes and targets.
        pub alias: String,
        /// Targets to move there at once; all of them or none.
        pub targets: Vec<TargetId>,
        /// When its targets count as low on space.
        pub limits: CapacityLimits,
    }
}
