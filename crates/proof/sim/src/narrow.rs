//! Narrow seeds: some targets have room for little, so that files must go on elsewhere. One target has room for all.

use skep_storage::{
    MemoryChunks, PROMISE_MS, Promised, Sizes, allocated_end, blocks_of, draws_on, room_needed,
};
use skep_types::{Capacity, ChunkId, ClientId, Errno, Millis};
use skep_wire::storage::{ReserveChunk, StorageRequest};
use skep_wire::{Refusal, Status};

/// Bytes that fit into a narrow target.
const ROOMS: [u64; 5] = [0, 16 << 10, 64 << 10, 200 << 10, 600 << 10];
/// What narrow ones promise: those with little room nothing, the next when it is all but empty, to one client.
const SIZES: Sizes = Sizes { bytes: 20 << 10, told: 12 << 10, spare: 16 << 10, ms: PROMISE_MS };
/// What one promises that a few files fill: so little that they do while somebody counts on it.
const SMALL: u64 = 64 << 10;
const SMALL_SIZES: Sizes = Sizes { bytes: 8 << 10, told: 4 << 10, spare: 0, ms: PROMISE_MS };
/// Every target of a seed that is not narrow.
const WIDE: Capacity =
    Capacity { bytes: 1 << 40, bytes_free: 1 << 39, inodes: 1 << 30, inodes_free: 1 << 29 };

/// Looks random (splitmix64): the seed's own numbers stay what they are.
pub fn mixed(seed: u64, number: u64) -> u64 {
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

/// What it promises to a client.
pub fn sizes(room: Option<u64>) -> Sizes {
    match room {
        None => Sizes::default(),
        Some(room) if room <= SMALL => SMALL_SIZES,
        Some(_) => SIZES,
    }
}

/// As a daemon does at its reserve: what has its space already may be written, nothing else. Holes have theirs here,
/// written data or reservations behind them, as on a file system without sparse files: a daemon on another one refuses to
/// fill them when it is full (`docs/design/seal.md`), and the oracle knows no refused writes.
/// And as it does with what is promised. A promise holds here also when holes have taken its room.
pub fn require_room(
    chunks: &MemoryChunks,
    room: Option<u64>,
    (promised, client, now): (&mut Promised, ClientId, Millis),
    request: &StorageRequest,
    payload: usize,
) -> Result<(), Refusal> {
    let Some(room) = room else { return Ok(()) };
    let free = room.saturating_sub(chunks.used());
    let total = promised.total(now);
    let mut takes = |client, offset, len| match total {
        0 => free > 0,
        _ => promised.take(client, now, blocks_of(offset, len), free).is_some(),
    };
    let fits = match request {
        StorageRequest::WriteChunk(m) => {
            let len = payload as u64;
            has(chunks, m.chunk, m.offset + len) || takes(draws_on(m, client), m.offset, len)
        }
        StorageRequest::CopyChunk(m) => {
            has(chunks, m.chunk, m.offset + m.len) || takes(ClientId(0), m.offset, m.len)
        }
        StorageRequest::ReserveChunk(m) => reserves(chunks, m, free.saturating_sub(total)),
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

#[cfg(test)]
mod tests {
    use super::*;
    use skep_storage::{ChunkStore, PieceName};
    use skep_types::{Generation, Ino, TargetId};
    use skep_wire::storage::{Owner, WriteChunk};

    fn put(chunks: &MemoryChunks, promised: &mut Promised, client: u64, at: u64, later: bool) -> bool {
        let chunk = ChunkId { ino: Ino(7), generation: Generation(1), extent: 0, stripe: 0 };
        let (target, owner) = (TargetId(101), Owner::default());
        let (sync, uncut, later, until) = (false, None, later.then_some(true), None);
        let m = WriteChunk { target, chunk, offset: at, owner, floor: 0, sync, uncut, later, until };
        let who = (promised, ClientId(client), Millis(5));
        let fits = require_room(chunks, Some(200 << 10), who, &m.into(), 4_096).is_ok();
        fits && chunks.write(&PieceName::first(chunk), at, &[1; 4_096]).is_ok()
    }

    /// Goal: a narrow target ends for others at what it has promised, and for whose it is behind that, with what
    /// it said it would bring.
    #[test]
    fn narrow_targets_keep_promises() {
        let (chunks, mut promised) = (MemoryChunks::default(), Promised::new(sizes(Some(200 << 10))));
        assert_eq!(promised.promise(ClientId(1), Millis(5), 200 << 10), Some(12 << 10));
        let mut places = (0..).map(|place| place * 4_096);
        let mut puts = |client, later| {
            places.by_ref().take_while(|at| put(&chunks, &mut promised, client, *at, later)).count()
        };
        assert_eq!([puts(2, true), puts(1, false), puts(1, true), puts(2, true)], [45, 0, 5, 0]);
        assert!(put(&chunks, &mut promised, 2, 0, false), "what is there may be changed");
    }
}
