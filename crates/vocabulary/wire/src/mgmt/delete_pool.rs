//! `DeletePool`: an administrator deletes a pool that has no targets any more.

use crate::Empty;
use skep_types::PoolId;

crate::message! {
    /// An administrator deletes a pool that has no targets any more.
    DeletePool = 0x010e -> Empty {
        /// The pool; not the default one.
        pub pool: PoolId,
    }
}
