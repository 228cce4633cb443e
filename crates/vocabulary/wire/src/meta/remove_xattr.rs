//! `RemoveXattr`: removes an extended attribute.

use crate::Empty;
use skep_types::Ino;
use skep_types::codec::Bytes;

crate::message! {
    /// Removes an extended attribute.
    RemoveXattr = 0x0217 -> Empty {
        /// The inode.
        pub ino: Ino,
        /// Attribute name with its namespace.
        pub name: Bytes,
    }
}
