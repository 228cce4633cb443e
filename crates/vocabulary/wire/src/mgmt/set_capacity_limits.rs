//! `SetCapacityLimits`: an administrator says when the targets of a pool count as low on space.

use super::CapacityLimits;
use crate::Empty;
use skep_types::PoolId;

crate::message! {
    /// An administrator says when the targets of a pool count as low on space.
    SetCapacityLimits = 0x0110 -> Empty {
        /// The pool.
        pub pool: PoolId,
        /// All its limits.
        pub limits: CapacityLimits,
    }
}
