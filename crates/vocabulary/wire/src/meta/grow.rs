//! `Grow`: allots chunks: to an inline file (intent, to be confirmed by `Switch`; at once when it is empty), or further extents. Answered when durable.

use super::GrowReply;
use skep_types::Ino;

crate::message! {
    /// Allots chunks: to an inline file (intent, to be confirmed by `Switch`; at once when it is empty), or further extents. Answered when durable.
    Grow = 0x0212 -> GrowReply {
        /// The file.
        pub ino: Ino,
        /// The layout must reach this offset at least.
        pub end: u64,
        /// Put new extents on the targets of this file, so that a copy needs no network. A wish, no more.
        pub like: Option<Ino>,
    }
}
