//! `MakeNode`: makes a directory or a special file.

use super::EntryReply;
use skep_types::{Ino, Kind, Mode, Name};

crate::message! {
    /// Makes a directory or a special file.
    MakeNode = 0x0205 -> EntryReply {
        /// The directory.
        pub parent: Ino,
        /// The name.
        pub name: Name,
        /// Directory, fifo, socket or device.
        pub kind: Kind,
        /// Permission bits as the program asked.
        pub mode: Mode,
        /// Bits to take off them, unless the directory has a default ACL.
        pub umask: Mode,
        /// Owner.
        pub uid: u32,
        /// Group, unless the directory is setgid.
        pub gid: u32,
        /// Device number.
        pub rdev: u32,
    }
}
