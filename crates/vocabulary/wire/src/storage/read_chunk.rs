//! `ReadChunk`: reads from a chunk file; the payload is the bytes.

use super::ReadChunkReply;
use skep_types::{ChunkId, TargetId};

crate::message! {
    /// Reads from a chunk file; the payload is the bytes.
    ReadChunk = 0x0301 -> ReadChunkReply {
        /// The target.
        pub target: TargetId,
        /// The chunk file.
        pub chunk: ChunkId,
        /// Offset in the chunk file.
        pub offset: u64,
        /// Bytes wanted; the payload of the answer is shorter only at the end of the chunk file.
        pub len: u32,
    }
}
