//! The row store: the state machine's rows on disk, under [`skep_rows::Store`].
//!
//! Applied batches gather in memory (the *overlay*). From time to time the overlay is frozen and
//! a thread writes it to fjall as one sorted run, together with rows that say how far it is
//! applied, of the log and of each shard: a *checkpoint*. fjall makes a run visible and durable by
//! one atomic switch, so all of them always agree; what came later is replayed from the log. A
//! checkpoint waits until the log is durable up to there, or a power cut could leave rows whose
//! commands never happened.
//!
//! Reads look into the overlay, the frozen overlay, the run just written, the row cache, fjall. Threads of their own read
//! from fjall what requests can wait for.

mod cache;
mod checkpoint;
mod engine;
mod key_hash;
mod overlay;
mod readers;
mod store;
mod warmth;

pub use checkpoint::{CheckpointNotify, LogBarrier};
pub use readers::{BeforeRead, ReadNotify};
pub use store::RowStore;

/// Longest key of a row.
pub const KEY_MAX: usize = 4096;
/// Longest value of a row.
pub const VALUE_MAX: usize = 4 << 20;
/// Keys that start with these bytes are the store's own.
pub const RESERVED: [u8; 2] = [0xff, 0xff];
/// Default size of the overlay at which a checkpoint starts. At twice this it is crowded and the owner
/// takes no more changes; so not much more than six times this is in memory (new, frozen, on the way to
/// the cache), and usually less than three times.
pub const OVERLAY_DEFAULT: usize = 64 << 20;
/// Default size of the row cache.
pub const CACHE_DEFAULT: usize = 256 << 20;
/// Default size of fjall's own cache of blocks. Small: the row cache is in front of it.
pub const BLOCK_CACHE_DEFAULT: u64 = 64 << 20;

/// How to open a row store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowOptions {
    /// Bytes of the overlay at which a checkpoint starts.
    pub overlay_bytes: usize,
    /// Bytes of the row cache.
    pub cache_bytes: usize,
    /// Bytes of fjall's block cache.
    pub block_cache_bytes: u64,
}

impl Default for RowOptions {
    fn default() -> Self {
        Self {
            overlay_bytes: OVERLAY_DEFAULT,
            cache_bytes: CACHE_DEFAULT,
            block_cache_bytes: BLOCK_CACHE_DEFAULT,
        }
    }
}

#[cfg(test)]
mod tests;
