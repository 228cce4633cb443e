//! `StatChunks`: lengths of chunk files.

use super::{ShardTerm, StatChunksReply};
use skep_types::{ChunkId, TargetId};

crate::message! {
    /// Lengths of chunk files.
    StatChunks = 0x0307 -> StatChunksReply {
        /// The target.
        pub target: TargetId,
        /// In whose name, of a metadata server; nobody else has a term to speak in.
        pub by: Option<ShardTerm>,
        /// The chunk files.
        pub chunks: alloc::vec::Vec<ChunkId>,
    }
}
