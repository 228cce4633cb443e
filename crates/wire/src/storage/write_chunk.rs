//! `WriteChunk`: writes the payload to a chunk file.

use super::{Owner, WriteChunkReply};
use skep_types::{ChunkId, TargetId};

crate::message! {
    /// Writes the payload to a chunk file.
    WriteChunk = 0x0302 -> WriteChunkReply {
        /// The target.
        pub target: TargetId,
        /// The chunk file.
        pub chunk: ChunkId,
        /// Offset in the chunk file.
        pub offset: u64,
        /// To whom the space is accounted.
        pub owner: Owner,
        /// Answer when durable (O_SYNC, O_DSYNC).
        pub sync: bool,
        /// To a file that a mount made while it measures the network: the payload is dropped, nothing is written.
        pub netbench: bool,
    }
}
