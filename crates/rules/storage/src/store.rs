//! What the rules need of a disk.

use crate::changes::Changes;
use crate::name::PieceName;
use crate::until::is_by;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use skep_types::{ChunkId, Timestamp};
use skep_wire::storage::Clock;

/// The disk refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DiskError {
    /// Full: the writer gets ENOSPC (or EDQUOT's local equal); the target stays good.
    NoSpace,
    /// The local file system cannot hold a file that large.
    TooLarge,
    /// The local file system cannot do this at all (fallocate on some): the target stays good.
    Unsupported,
    /// This process or machine is short of descriptors or memory at the moment: worth asking again.
    Busy,
    /// The disk failed: the target is bad from now on. The text says what and where.
    Failed(String),
}

impl fmt::Display for DiskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSpace => f.write_str("no space left on the target"),
            Self::TooLarge => f.write_str("the target's file system cannot hold a file that large"),
            Self::Unsupported => f.write_str("the target's file system cannot do that"),
            Self::Busy => {
                f.write_str("the storage daemon is short of descriptors or memory; raise its limits")
            }
            Self::Failed(text) => f.write_str(text),
        }
    }
}

impl core::error::Error for DiskError {}

/// What is known of one piece.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PieceStat {
    /// Length.
    pub size: u64,
    /// 512-byte blocks in use.
    pub blocks: u64,
    /// Last change, nanoseconds since 1970.
    pub mtime_ns: i64,
}

/// Files of one target. Calls for different pieces may run at the same time; two writes to one
/// piece are ordered by the store (each is seen wholly before or wholly after the other).
pub trait ChunkStore {
    /// Reads; shorter than `into` only at the end of the piece. A missing piece reads as empty.
    fn read(&self, piece: &PieceName, offset: u64, into: &mut [u8]) -> Result<usize, DiskError>;

    /// Writes all of `data`, making the piece if it is missing.
    fn write(&self, piece: &PieceName, offset: u64, data: &[u8]) -> Result<(), DiskError>;

    /// Sets the length of a piece that exists; a missing one stays missing.
    fn truncate(&self, piece: &PieceName, size: u64) -> Result<(), DiskError>;

    /// Makes a hole; the length stays. A missing piece stays missing.
    fn punch(&self, piece: &PieceName, offset: u64, len: u64) -> Result<(), DiskError>;

    /// Reserves space; the length stays. Makes the piece if it is missing.
    fn reserve(&self, piece: &PieceName, offset: u64, len: u64) -> Result<(), DiskError>;

    /// The next run of data at or after `from` (first byte, first byte after it), not before `from` and within the
    /// length; `None` = holes only, or no such piece. Without knowledge of holes everything is data.
    fn next_data(&self, piece: &PieceName, from: u64) -> Result<Option<(u64, u64)>, DiskError>;

    /// The next run of bytes at or after `from` that have their space already, so that writing them takes none: data,
    /// and what is reserved and not yet written, also behind the end. Data ends with the length of the piece, whatever
    /// its last block has behind it. A run may be told in several parts. `None` = none, or no such piece. A file system
    /// that does not tell what is reserved tells of data only.
    fn next_allocated(&self, piece: &PieceName, from: u64) -> Result<Option<(u64, u64)>, DiskError> {
        self.next_data(piece, from)
    }

    /// Copies bytes between pieces by the file system itself (making the piece if it is missing): how many. 0 = it
    /// cannot, or something failed: whoever then reads and writes learns what, and at which end.
    fn copy(&self, copy: (&PieceName, u64), from: &Self, source: (&PieceName, u64), len: u64) -> u64 {
        let _ = (copy, from, source, len);
        0
    }

    /// What is known of a piece; `None` when it is missing.
    fn stat(&self, piece: &PieceName) -> Result<Option<PieceStat>, DiskError>;

    /// Did somebody remove the name of a piece that is open here? Then it is missing from now on.
    fn has_lost_its_name(&self, _piece: &PieceName) -> Result<bool, DiskError> {
        Ok(false)
    }

    /// Removes a piece; a missing one is fine.
    fn remove(&self, piece: &PieceName) -> Result<(), DiskError>;

    /// Makes pieces durable: content, length, and that they exist (or no longer exist).
    fn sync(&self, pieces: &[PieceName]) -> Result<(), DiskError>;

    /// Numbers of the pieces of a chunk file from 1 on, in order. Piece 0 is not asked for: a
    /// chunk file below 1 TiB must not cost a listing.
    fn further_pieces(&self, chunk: &ChunkId) -> Result<Vec<u32>, DiskError>;

    /// Chunk files after `after`, in order, at most `max`.
    fn list(&self, after: Option<ChunkId>, max: usize) -> Result<Vec<ChunkId>, DiskError>;

    /// From which offset on the chunk file takes nothing; `None`: it is not sealed.
    fn limit(&self, chunk: &ChunkId) -> Option<u64>;

    /// Seals a chunk file (that need not exist) at `limit`, which is not above the one known. Durable when it returns.
    fn seal(&self, chunk: &ChunkId, limit: u64) -> Result<(), DiskError>;

    /// Forgets the seals of deleted chunk files, durably; most have none.
    fn unseal(&self, chunks: &[ChunkId]) -> Result<(), DiskError>;

    /// Counts changes of chunk files; the rules count.
    fn changes(&self) -> &Changes;

    /// Changes whenever unsynced writes may have been lost.
    fn life(&self) -> u64;

    /// What the clock of this run of the daemon shows. It goes on while the machine sleeps.
    fn clock(&self) -> Clock;

    /// Does a write still count that does until then?
    fn counts(&self, until: &Clock) -> bool {
        is_by(&self.clock(), until)
    }

    /// When that life began, if it is known.
    fn life_since(&self) -> Option<Timestamp> {
        None
    }
}
