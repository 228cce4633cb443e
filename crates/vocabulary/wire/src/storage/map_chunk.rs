//! `MapChunk`: where a chunk file has data and where holes.

use alloc::vec::Vec;
use skep_types::{ChunkId, TargetId, record};

crate::message! {
    /// Where a chunk file has data and where holes.
    MapChunk = 0x030b -> MapChunkReply {
        /// The target.
        pub target: TargetId,
        /// The chunk file.
        pub chunk: ChunkId,
        /// From this offset in the chunk file.
        pub offset: u64,
        /// Runs wanted at most (at most 4,096 are given).
        pub max: u32,
    }
}

record! {
    /// A run of data.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Run {
        /// First byte in the chunk file.
        pub start: u64,
        /// First byte after it.
        pub end: u64,
    }
}

record! {
    /// Data of a chunk file.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct MapChunkReply {
        /// Runs of data in ascending order, the first cut to the offset asked for.
        pub runs: Vec<Run>,
        /// Known up to here: beyond it ask again. `u64::MAX` = the whole chunk file is known.
        pub until: u64,
        /// Length of the chunk file.
        pub size: u64,
    } tags {
        /// It is sealed: from this offset on the file's bytes are elsewhere, and what is no data here is no hole.
        1 => pub sealed: Option<u64>,
    }
}
