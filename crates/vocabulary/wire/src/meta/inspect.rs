//! `Inspect`: everything an administrator wants to know of an inode.

use super::InspectReply;
use skep_types::Ino;

crate::message! {
    /// Everything an administrator wants to know of an inode.
    Inspect = 0x021b -> InspectReply {
        /// The inode.
        pub ino: Ino,
    }
}
