//! `SealChunk`: a chunk file becomes no longer than it is.

use super::ShardTerm;
use skep_types::{ChunkId, TargetId, record};

crate::message! {
    /// A chunk file becomes no longer than it is, durably: whoever would read or write behind that gets STALE_LAYOUT
    /// (servers only). Answered when no change is in work any more that was let through before.
    SealChunk = 0x030d -> SealChunkReply {
        /// The target.
        pub target: TargetId,
        /// In whose name.
        pub by: ShardTerm,
        /// The chunk file; it need not exist.
        pub chunk: ChunkId,
        /// It is sealed no further in front than this: so much it held once.
        pub floor: u64,
    }
}

record! {
    /// Answer to a seal.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct SealChunkReply {
        /// First offset in the chunk file that is refused from now on.
        pub limit: u64,
    }
}
