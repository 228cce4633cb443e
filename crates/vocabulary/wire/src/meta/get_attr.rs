//! `GetAttr`: reads the attributes of an inode.

use super::AttrReply;
use skep_types::Ino;

crate::message! {
    /// Reads the attributes of an inode.
    GetAttr = 0x0202 -> AttrReply {
        /// The inode.
        pub ino: Ino,
    }
}
