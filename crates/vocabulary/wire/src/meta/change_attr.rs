//! `ChangeAttr`: changes attributes of an inode (chmod, chown, truncate, utimensat).

use super::AttrReply;
use skep_types::{Ino, SetAttr};

crate::message! {
    /// Changes attributes of an inode (chmod, chown, truncate, utimensat).
    ChangeAttr = 0x0203 -> AttrReply {
        /// The inode.
        pub ino: Ino,
        /// What changes. A size trims the chunk files before it is acknowledged.
        pub set: SetAttr,
    }
}
