//! Requests that a storage target answers.

mod copy_chunk;
mod delete_chunks;
mod list_chunks;
mod map_chunk;
mod punch_chunk;
mod read_chunk;
mod reserve_chunk;
mod seal_chunk;
mod shape;
mod stat_chunks;
mod sync_chunks;
mod target_stats;
mod trim_chunk;
mod write_chunk;

pub use copy_chunk::{CopyChunk, CopyChunkReply};
pub use delete_chunks::DeleteChunks;
pub use list_chunks::ListChunks;
pub use map_chunk::{MapChunk, MapChunkReply, Run};
pub use punch_chunk::PunchChunk;
pub use read_chunk::ReadChunk;
pub use reserve_chunk::ReserveChunk;
pub use seal_chunk::{SealChunk, SealChunkReply};
pub use shape::{
    ChunkReply, ChunkStat, Clock, ListChunksReply, Owner, ReadChunkReply, ShardTerm, StatChunksReply,
    TargetStat, TargetStatsReply, WriteChunkReply,
};
pub use stat_chunks::StatChunks;
pub use sync_chunks::{SyncChunks, SyncChunksReply};
pub use target_stats::TargetStats;
pub use trim_chunk::TrimChunk;
pub use write_chunk::WriteChunk;

crate::family! {
    /// Everything a client, an administrator or a metadata server asks a storage daemon.
    StorageRequest { ReadChunk, WriteChunk, TrimChunk, PunchChunk, ReserveChunk, SyncChunks, StatChunks, DeleteChunks, TargetStats, ListChunks, MapChunk, CopyChunk, SealChunk }
}
