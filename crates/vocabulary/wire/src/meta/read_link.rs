//! `ReadLink`: reads the target of a symbolic link.

use super::DataReply;
use skep_types::Ino;

crate::message! {
    /// Reads the target of a symbolic link.
    ReadLink = 0x0207 -> DataReply {
        /// The symbolic link.
        pub ino: Ino,
    }
}
