//! The deletion queue: chunk files that nothing refers to any more.

use skep_types::{ChunkId, LogIndex, TargetId, record};

record! {
    /// Chunk files to delete, once the log record that queued them is durable.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Deletion {
        /// The log record that queued them.
        pub index: LogIndex,
        /// Where each of them is.
        pub chunks: alloc::vec::Vec<(TargetId, ChunkId)>,
    }
}
