//! `SyncChunks`: makes chunk files durable.

use skep_types::{ChunkId, TargetId, record};

crate::message! {
    /// Makes chunk files durable.
    SyncChunks = 0x0306 -> SyncChunksReply {
        /// The target.
        pub target: TargetId,
        /// The chunk files.
        pub chunks: alloc::vec::Vec<ChunkId>,
        /// Life of the target at the first unsynced write (from its answer); LOST_WRITES when it changed since.
        pub life: u64,
    }
}

record! {
    /// Answer to a sync.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct SyncChunksReply {
        /// The length of each chunk file, in the order asked, that is on stable storage now; 0 when there is none.
        pub sizes: alloc::vec::Vec<u64>,
    }
}
