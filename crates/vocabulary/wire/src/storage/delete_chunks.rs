//! `DeleteChunks`: deletes chunk files (servers and administrators only).

use crate::Empty;
use skep_types::{ChunkId, TargetId};

crate::message! {
    /// Deletes chunk files (servers and administrators only).
    DeleteChunks = 0x0308 -> Empty {
        /// The target.
        pub target: TargetId,
        /// The chunk files; missing ones are fine.
        pub chunks: alloc::vec::Vec<ChunkId>,
    }
}
