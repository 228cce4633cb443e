//! `WriteChunk`: writes the payload to a chunk file.

use super::{Clock, Owner, WriteChunkReply};
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
        /// The chunk file is at least so long already, or it is lost (LOST_CHUNK): a write would hide that.
        pub floor: u64,
        /// Answer when durable (O_SYNC, O_DSYNC).
        pub sync: bool,
    } tags {
        /// Only if [`super::ChunkStat::cuts`] is still this; else CUT_SINCE. Of an append: after a truncate its place is
        /// others'.
        1 => pub uncut: Option<u64>,
        /// The client wishes to bring more later, and to be sure that there is room for it.
        2 => pub later: Option<bool>,
        /// It counts as long as the target's clock shows no more than this, in this run of the daemon; else TOO_LATE. Judged in
        /// front of the first byte.
        3 => pub until: Option<Clock>,
    }
}
