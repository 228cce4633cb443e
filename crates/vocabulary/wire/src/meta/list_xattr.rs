//! `ListXattr`: lists extended attributes: names, each followed by NUL.

use super::DataReply;
use skep_types::Ino;

crate::message! {
    /// Lists extended attributes: names, each followed by NUL.
    ListXattr = 0x0216 -> DataReply {
        /// The inode.
        pub ino: Ino,
    }
}
