//! `ReadInline`: reads content that is inline, or learns the layout when it no longer is.

use super::{FoundChunk, OpenReply};
use skep_types::{Ino, LogPlace};

crate::message! {
    /// Reads content that is inline, or learns the layout when it no longer is.
    ReadInline = 0x0210 -> OpenReply {
        /// The file.
        pub ino: Ino,
        /// Chunk files that were found shorter than the floors in a layout with these `trims`: lost, unless the file
        /// was cut since. The shard counts them.
        pub short: alloc::vec::Vec<FoundChunk>,
        /// See `short`.
        pub trims: LogPlace,
    }
}
