//! `SyncChunks`: makes chunk files durable.

use crate::Empty;
use skep_types::{ChunkId, TargetId};

crate::message! {
    /// Makes chunk files durable.
    SyncChunks = 0x0306 -> Empty {
        /// The target.
        pub target: TargetId,
        /// The chunk files.
        pub chunks: alloc::vec::Vec<ChunkId>,
        /// Life of the target at the first unsynced write (from its answer); LOST_WRITES when it changed since.
        pub life: u64,
    }
}
