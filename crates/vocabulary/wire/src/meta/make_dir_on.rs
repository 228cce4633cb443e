//! `MakeDirOn`: makes a directory whose inode lives on another shard (administrators only).

use super::EntryReply;
use skep_types::{Ino, Mode, Name, ShardId};

crate::message! {
    /// Makes a directory whose inode lives on another shard (administrators only).
    MakeDirOn = 0x021c -> EntryReply {
        /// The directory.
        pub parent: Ino,
        /// The name.
        pub name: Name,
        /// Permission bits.
        pub mode: Mode,
        /// Bits to take off them, unless the parent has a default ACL.
        pub umask: Mode,
        /// Owner.
        pub uid: u32,
        /// Group.
        pub gid: u32,
        /// Where the new directory and all below it shall live.
        pub on: ShardId,
    }
}
