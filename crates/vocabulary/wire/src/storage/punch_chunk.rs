//! `PunchChunk`: makes a hole in a chunk file.

use super::ChunkReply;
use skep_types::{ChunkId, TargetId};

crate::message! {
    /// Makes a hole in a chunk file.
    PunchChunk = 0x0304 -> ChunkReply {
        /// The target.
        pub target: TargetId,
        /// The chunk file.
        pub chunk: ChunkId,
        /// First byte.
        pub offset: u64,
        /// Bytes; the length of the chunk file stays.
        pub len: u64,
    } tags {
        /// Only if [`super::ChunkStat::changes`] is still this; else EAGAIN.
        1 => pub unchanged: Option<u64>,
    }
}
