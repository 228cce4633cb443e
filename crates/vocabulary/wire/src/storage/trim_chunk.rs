//! `TrimChunk`: cuts a chunk file (truncate). Answered when durable.

use super::{ChunkReply, ShardTerm};
use skep_types::{ChunkId, TargetId};

crate::message! {
    /// Cuts a chunk file (truncate). Answered when durable.
    TrimChunk = 0x0303 -> ChunkReply {
        /// The target.
        pub target: TargetId,
        /// In whose name, of a metadata server; nobody else has a term to speak in.
        pub by: Option<ShardTerm>,
        /// The chunk file.
        pub chunk: ChunkId,
        /// New length of the chunk file; longer ones are cut, shorter ones stay.
        pub size: u64,
    } tags {
        /// `true`: the file did not become shorter, so what is reserved behind its end stays.
        1 => pub keeps_reserved: Option<bool>,
    }
}
