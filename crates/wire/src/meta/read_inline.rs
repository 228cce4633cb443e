//! `ReadInline`: reads content that is inline, or learns the layout when it no longer is.

use super::OpenReply;
use skep_types::Ino;

crate::message! {
    /// Reads content that is inline, or learns the layout when it no longer is.
    ReadInline = 0x0210 -> OpenReply {
        /// The file.
        pub ino: Ino,
    }
}
