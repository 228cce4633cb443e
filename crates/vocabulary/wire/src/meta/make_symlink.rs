//! `MakeSymlink`: makes a symbolic link.

use super::EntryReply;
use skep_types::codec::Bytes;
use skep_types::{Ino, Name};

crate::message! {
    /// Makes a symbolic link.
    MakeSymlink = 0x0206 -> EntryReply {
        /// The directory.
        pub parent: Ino,
        /// The name.
        pub name: Name,
        /// What it points to.
        pub target: Bytes,
        /// Owner.
        pub uid: u32,
        /// Group, unless the directory is setgid.
        pub gid: u32,
    }
}
