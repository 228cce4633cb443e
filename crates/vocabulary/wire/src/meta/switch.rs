//! `Switch`: makes the chunks authoritative after the inline content was copied to them.

use super::LayoutReply;
use skep_types::{Generation, Ino};

crate::message! {
    /// Makes the chunks authoritative after the inline content was copied to them.
    Switch = 0x0213 -> LayoutReply {
        /// The file.
        pub ino: Ino,
        /// The generation that `Grow` allotted.
        pub generation: Generation,
        /// The inline content that was copied; refused with STALE_GENERATION when it changed since.
        pub inline_version: u64,
        /// Bytes of it that are in chunk files on stable storage.
        pub copied: u64,
    }
}
