//! `Repair`: gives up what is missing of chunk files.

use super::{FoundChunk, LayoutReply};
use skep_types::{Generation, Ino, LogPlace};

crate::message! {
    /// Gives up what is missing of chunk files: it reads as zeros from now on. Answered when durable.
    Repair = 0x0228 -> LayoutReply {
        /// The file.
        pub ino: Ino,
        /// Layout generation of the chunk files.
        pub generation: Generation,
        /// `Layout::trims` when they were looked at; CUT_SINCE when that has moved, or a floor of one of them.
        pub trims: LogPlace,
        /// Chunk files that are missing or too short, as they were found.
        pub found: alloc::vec::Vec<FoundChunk>,
    }
}
