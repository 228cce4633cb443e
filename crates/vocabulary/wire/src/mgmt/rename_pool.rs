//! `RenamePool`: an administrator gives a pool another alias.

use crate::Empty;
use alloc::string::String;
use skep_types::PoolId;

crate::message! {
    /// An administrator gives a pool another alias.
    RenamePool = 0x010d -> Empty {
        /// The pool.
        pub pool: PoolId,
        /// Its new alias.
        pub alias: String,
    }
}
