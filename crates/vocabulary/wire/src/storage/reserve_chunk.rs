//! `ReserveChunk`: reserves space (fallocate, keep size).

use super::{ChunkReply, Owner};
use skep_types::{ChunkId, TargetId};

crate::message! {
    /// Reserves space (fallocate, keep size).
    ReserveChunk = 0x0305 -> ChunkReply {
        /// The target.
        pub target: TargetId,
        /// The chunk file.
        pub chunk: ChunkId,
        /// First byte.
        pub offset: u64,
        /// Bytes; the length of the chunk file stays.
        pub len: u64,
        /// To whom the space is accounted.
        pub owner: Owner,
    }
}
