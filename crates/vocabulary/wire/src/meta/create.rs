//! `Create`: makes a regular file, or opens the one that is there.

use super::{OpenMode, OpenReply};
use skep_types::{Ino, Mode, Name, Policy};

crate::message! {
    /// Makes a regular file, or opens the one that is there.
    Create = 0x0204 -> OpenReply {
        /// The directory.
        pub parent: Ino,
        /// The name.
        pub name: Name,
        /// Permission bits as the program asked.
        pub mode: Mode,
        /// Bits to take off them, unless the directory has a default ACL.
        pub umask: Mode,
        /// Owner.
        pub uid: u32,
        /// Group, unless the directory is setgid.
        pub gid: u32,
        /// An existing file is EEXIST (O_EXCL).
        pub exclusive: bool,
        /// An existing file is cut to 0 (O_TRUNC).
        pub truncate: bool,
        /// Open it too. `None` = mknod of a regular file.
        pub open: Option<OpenMode>,
        /// As in `Open`.
        pub open_seq: u64,
        /// Layout wish for this file; `None` = the directory's.
        pub policy: Option<Policy>,
    }
}
