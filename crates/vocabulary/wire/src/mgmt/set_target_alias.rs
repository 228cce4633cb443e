//! `SetTargetAlias`: an administrator gives a target another alias.

use crate::Empty;
use alloc::string::String;
use skep_types::TargetId;

crate::message! {
    /// An administrator gives a target another alias.
    SetTargetAlias = 0x0112 -> Empty {
        /// The target.
        pub target: TargetId,
        /// Its new alias.
        pub alias: String,
    }
}
