//! Has a chunk file been changed, or cut, since it was looked at? Whoever takes back what a failed write left must know:
//! others may have written there while his request was on its way. And who appends: after a truncate his place is others'.

use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering::SeqCst};
use skep_types::ChunkId;

/// Counters. Chunk files share them: one that moves may have been moved by another chunk file, one that stands still was
/// not.
const COUNTERS: usize = 4_096;

/// Counts what happens to a target's chunk files while its daemon lives.
pub struct Changes {
    /// Another one in each life of the daemon, so that no count of an earlier one comes again.
    life: AtomicU64,
    all: [AtomicU64; COUNTERS],
    cuts: [AtomicU64; COUNTERS],
}

impl Changes {
    /// `life`: a number that was drawn.
    pub const fn new(life: u64) -> Self {
        Self {
            life: AtomicU64::new(life),
            all: [const { AtomicU64::new(0) }; COUNTERS],
            cuts: [const { AtomicU64::new(0) }; COUNTERS],
        }
    }

    /// The daemon begins another life.
    pub fn begin(&self, life: u64) {
        self.life.store(life, SeqCst);
    }

    /// Moves when `chunk` is changed.
    pub fn of(&self, chunk: &ChunkId) -> u64 {
        self.life.load(SeqCst).wrapping_add(self.all[counter_of(chunk)].load(SeqCst))
    }

    /// Moves when `chunk` is cut.
    pub fn cuts_of(&self, chunk: &ChunkId) -> u64 {
        self.life.load(SeqCst).wrapping_add(self.cuts[counter_of(chunk)].load(SeqCst))
    }

    /// `chunk` is about to be changed.
    pub fn changing(&self, chunk: &ChunkId) {
        self.all[counter_of(chunk)].fetch_add(1, SeqCst);
    }

    /// `chunk` is about to be cut.
    pub fn cutting(&self, chunk: &ChunkId) {
        self.cuts[counter_of(chunk)].fetch_add(1, SeqCst);
    }
}

/// Which of them counts for `chunk`.
pub fn counter_of(chunk: &ChunkId) -> usize {
    // Inodes are numbered in order, extents and stripes from 0: neighbours get counters of their own.
    let ChunkId { ino, extent, stripe, .. } = *chunk;
    let mixed = ino.0.wrapping_mul(0x9E37_79B9_7F4A_7C15)
        ^ (u64::from(extent) << 20)
        ^ u64::from(stripe).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    (mixed >> 32) as usize % COUNTERS
}

impl fmt::Debug for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Changes").field("life", &self.life).finish_non_exhaustive()
    }
}
