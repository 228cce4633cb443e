//! `CopyChunk`: copies between chunk files of one storage daemon, without the network.

use super::{Owner, WriteChunkReply};
use skep_types::{ChunkId, TargetId, record};

crate::message! {
    /// Copies between chunk files of one storage daemon, without the network. EXDEV when it does not serve both.
    /// Bytes that the source does not have (holes, beyond its end) become zeros in the copy.
    CopyChunk = 0x030c -> CopyChunkReply {
        /// Target of the copy.
        pub target: TargetId,
        /// Chunk file of the copy.
        pub chunk: ChunkId,
        /// Offset in it.
        pub offset: u64,
        /// Target of the source.
        pub from_target: TargetId,
        /// Chunk file of the source.
        pub from_chunk: ChunkId,
        /// Offset in it.
        pub from_offset: u64,
        /// Bytes.
        pub len: u64,
        /// To whom the space is accounted.
        pub owner: Owner,
        /// As in `WriteChunk`, of the copy.
        pub floor: u64,
        /// The same of the source: what is lost is not copied as a hole.
        pub from_floor: u64,
    }
}

record! {
    /// Answer to a copy.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct CopyChunkReply {
        /// Bytes copied, at least 1; fewer than asked: go on from there.
        pub copied: u64,
        /// As after a write.
        pub written: WriteChunkReply,
    }
}
