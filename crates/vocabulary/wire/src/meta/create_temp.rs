//! `CreateTemp`: makes an open regular file that has no name (O_TMPFILE).

use super::{OpenMode, OpenReply};
use skep_types::{Ino, Mode};

crate::message! {
    /// Makes an open regular file that has no name (O_TMPFILE); `Link` can give it one.
    CreateTemp = 0x021f -> OpenReply {
        /// The directory that it is made in: group, default ACL and layout wish come from it.
        pub parent: Ino,
        /// Permission bits as the program asked.
        pub mode: Mode,
        /// Bits to take off them, unless the directory has a default ACL.
        pub umask: Mode,
        /// Owner.
        pub uid: u32,
        /// Group, unless the directory is setgid.
        pub gid: u32,
        /// What it is opened for.
        pub open: OpenMode,
        /// As in `Open`.
        pub open_seq: u64,
    }
}
