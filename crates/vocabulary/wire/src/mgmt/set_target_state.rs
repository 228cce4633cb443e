//! `SetTargetState`: an administrator sets the state of a target.

use crate::Empty;
use skep_types::{Consistency, TargetId};

crate::message! {
    /// An administrator sets the state of a target.
    SetTargetState = 0x010a -> Empty {
        /// The target.
        pub target: TargetId,
        /// Its new state.
        pub consistency: Consistency,
    }
}
