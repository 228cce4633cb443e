//! `StatChunks`: lengths of chunk files.

use super::StatChunksReply;
use skep_types::{ChunkId, TargetId};

crate::message! {
    /// Lengths of chunk files.
    StatChunks = 0x0307 -> StatChunksReply {
        /// The target.
        pub target: TargetId,
        /// The chunk files.
        pub chunks: alloc::vec::Vec<ChunkId>,
    }
}
