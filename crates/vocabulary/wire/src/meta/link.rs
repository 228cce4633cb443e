//! `Link`: makes a hard link.

use super::EntryReply;
use skep_types::{Ino, Name};

crate::message! {
    /// Makes a hard link.
    Link = 0x0208 -> EntryReply {
        /// The inode that gets one name more.
        pub ino: Ino,
        /// The directory.
        pub parent: Ino,
        /// The new name.
        pub name: Name,
    }
}
