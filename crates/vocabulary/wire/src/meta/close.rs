//! `Close`: tells that the mount has no handle left on some inodes.

use super::Closed;
use crate::Empty;

crate::message! {
    /// Tells that the mount has no handle left on some inodes.
    Close = 0x020e -> Empty {
        /// What is no longer open in the whole mount.
        pub opens: alloc::vec::Vec<Closed>,
    }
}
