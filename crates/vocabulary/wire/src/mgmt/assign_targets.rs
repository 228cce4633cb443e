//! `AssignTargets`: an administrator moves targets to a pool.

use crate::Empty;
use alloc::vec::Vec;
use skep_types::{PoolId, TargetId};

crate::message! {
    /// An administrator moves targets to a pool. Files stay where they are; new ones follow the pools.
    AssignTargets = 0x010f -> Empty {
        /// The pool; 0 = none: nothing new is put on the targets any more.
        pub pool: PoolId,
        /// All of them or none.
        pub targets: Vec<TargetId>,
    }
}
