//! Narrow seeds: some targets have room for little, so that files must go on elsewhere. One target has room for all.

use skep_storage::{MemoryChunks, allocated_end, room_needed};
use skep_types::{Capacity, ChunkId, Errno};
use skep_wire::storage::{ReserveChunk, StorageRequest};
use skep_wire::{Refusal, Status};

/// Bytes that fit into a narrow target.
const ROOMS: [u64; 5] = [0, 16 << 10, 64 << 10, 200 << 10, 600 << 10];
/// Every target of a seed that is not narrow.
const WIDE: Capacity =
    Capacity { bytes: 1 << 40, bytes_free: 1 << 39, inodes: 1 << 30, inodes_free: 1 << 29 };

/// Looks random (splitmix64): the seed's own numbers stay what they are.
fn mixed(seed: u64, number: u64) -> u64 {
    let mut z = seed.wrapping_add(number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Bytes that fit into the `number`th of `count` targets; `None`: any number.
pub fn room(seed: u64, number: u64, count: u64) -> Option<u64> {
    let is_narrow = !mixed(seed, 1).is_multiple_of(3);
    let wide = mixed(seed, 2) % count;
    let draw = mixed(seed, 3 + number) % (ROOMS.len() as u64 + 1);
    ROOMS.get(draw as usize).copied().filter(|_| is_narrow && number != wide)
}

/// Space of a target as its daemon tells it.
pub fn capacity(chunks: &MemoryChunks, room: Option<u64>) -> Capacity {
    match room {
        None => WIDE,
        Some(room) => Capacity { bytes: room, bytes_free: room.saturating_sub(chunks.used()), ..WIDE },
    }
}

/// As a daemon does at its reserve: what has its space already may be written, nothing else. Holes have theirs here,
/// written data or reservations behind them, as on a file system without sparse files: a daemon on another one refuses to
/// fill them when it is full (`docs/design/seal.md`), and the oracle knows no refused writes.
pub fn require_room(
    chunks: &MemoryChunks,
    room: Option<u64>,
    request: &StorageRequest,
    payload: usize,
) -> Result<(), Refusal> {
    let Some(room) = room else { return Ok(()) };
    let free = room.saturating_sub(chunks.used());
    let fits = match request {
        StorageRequest::WriteChunk(m) => free > 0 || has(chunks, m.chunk, m.offset + payload as u64),
        StorageRequest::CopyChunk(m) => free > 0 || has(chunks, m.chunk, m.offset + m.len),
        StorageRequest::ReserveChunk(m) => reserves(chunks, m, free),
        _ => true,
    };
    let text = "simulated target without room";
    if fits { Ok(()) } else { Err(Refusal::with(Status::errno(Errno::ENOSPC), text)) }
}

fn has(chunks: &MemoryChunks, chunk: ChunkId, end: u64) -> bool {
    allocated_end(chunks, chunk).is_ok_and(|allocated| end <= allocated)
}

fn reserves(chunks: &MemoryChunks, m: &ReserveChunk, free: u64) -> bool {
    has(chunks, m.chunk, m.offset + m.len) || room_needed(chunks, m, free).is_ok_and(|needed| needed <= free)
}
