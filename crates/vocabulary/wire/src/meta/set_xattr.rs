//! `SetXattr`: sets an extended attribute.

use crate::Empty;
use skep_types::Ino;
use skep_types::codec::Bytes;

crate::message! {
    /// Sets an extended attribute.
    SetXattr = 0x0215 -> Empty {
        /// The inode.
        pub ino: Ino,
        /// Attribute name with its namespace.
        pub name: Bytes,
        /// The value.
        pub value: Bytes,
        /// An existing one is EEXIST.
        pub create: bool,
        /// A missing one is ENODATA.
        pub replace: bool,
        /// An access ACL set by a caller outside the group: clear sgid.
        pub kill_sgid: bool,
    }
}
