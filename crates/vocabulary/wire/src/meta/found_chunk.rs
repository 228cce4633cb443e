//! A chunk file as it was found.

use skep_types::{ChunkId, record};

record! {
    /// A chunk file as it was found on its target.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct FoundChunk {
        /// Which.
        pub chunk: ChunkId,
        /// Its length; 0 when it is missing.
        pub size: u64,
        /// Its floor in the layout that was known then.
        pub floor: u64,
    }
}
