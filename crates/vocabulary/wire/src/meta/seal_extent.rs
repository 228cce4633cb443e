//! `SealExtent`: a file goes on elsewhere, for a target is full.

use crate::Empty;
use skep_types::{ChunkId, Generation, Ino, TargetId};

crate::message! {
    /// A target is full, or refuses the sender's layout: the shard closes the extent, or waits for that if it is
    /// being closed already. When it is answered there is a newer layout, or there was one before. ENOSPC when no other
    /// target takes what follows.
    SealExtent = 0x0229 -> Empty {
        /// The file.
        pub ino: Ino,
        /// Generation of the sender's layout.
        pub generation: Generation,
        /// The chunk file that could not be changed.
        pub chunk: ChunkId,
        /// End in it of what was asked for. A layout that closes it in front of that is newer.
        pub end: u64,
        /// Bytes that its target has no room for; another one needs as many.
        pub room: u64,
        /// Its target, if it has no room (else: it said STALE_LAYOUT).
        pub full: Option<TargetId>,
    }
}
