//! Rules of a storage target: which requests it serves, how a chunk file is laid out in pieces,
//! and what a disk's answer means.
//!
//! A chunk file is a stripe of one extent of a file. It is kept as ordinary files of at most
//! 1 TiB each (*pieces*). All I/O goes through the small [`ChunkStore`] trait: the daemon puts a
//! directory under it, the simulator [`MemoryChunks`]. See `docs/design/storage.md`.
#![no_std]
extern crate alloc;

mod admission;
mod changes;
mod copy;
mod execute;
mod map;
mod memory;
mod name;
mod promised;
mod room;
mod seal;
mod standing;
mod store;
mod terms;
mod until;

pub use admission::{Admission, Config, FENCED_MAX, Sender, TOMBSTONES_MAX};
pub use changes::{Changes, counter_of};
pub use copy::{COPY_MAX, COPY_RUNS_MAX, CopyFault, copy_chunk};
pub use execute::{Done, Limits, execute, read_chunk, stat, write_chunk};
pub use map::RUNS_MAX;
pub use memory::{ChunkFaults, MemoryChunks};
pub use name::{ChunkName, PieceName};
pub use promised::{
    PROMISE_BYTES, PROMISE_MS, PROMISE_SPARE, PROMISE_TOLD, PROMISED_CLIENTS_MAX, PROMISED_PART, Promised,
    Sizes, blocks_of, draws_on,
};
pub use room::{RESERVE_STEP, allocated_end, is_allocated, reserve_steps, room_needed};
pub use seal::{SealName, Seals, seal_chunk};
pub use standing::{Heard, Mount, Standing, Word};
pub use store::{ChunkStore, DiskError, PieceStat};
pub use terms::{KeptTerms, Terms, Turn, makes_room, speaker};
pub use until::is_by;
