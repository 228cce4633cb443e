//! `GetXattr`: reads an extended attribute.

use super::DataReply;
use skep_types::Ino;
use skep_types::codec::Bytes;

crate::message! {
    /// Reads an extended attribute.
    GetXattr = 0x0214 -> DataReply {
        /// The inode.
        pub ino: Ino,
        /// Attribute name with its namespace.
        pub name: Bytes,
    }
}
