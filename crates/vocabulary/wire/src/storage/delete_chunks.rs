//! `DeleteChunks`: deletes chunk files (servers and administrators only).

use super::ShardTerm;
use crate::Empty;
use skep_types::{ChunkId, TargetId};

crate::message! {
    /// Deletes chunk files (servers and administrators only).
    DeleteChunks = 0x0308 -> Empty {
        /// The target.
        pub target: TargetId,
        /// In whose name, of a metadata server; nobody else has a term to speak in.
        pub by: Option<ShardTerm>,
        /// The chunk files; missing ones are fine.
        pub chunks: alloc::vec::Vec<ChunkId>,
    }
}
