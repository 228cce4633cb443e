//! How much free space a reservation takes.

use crate::execute::{Done, check_range, pieces, stat};
use crate::map::RUNS_MAX;
use crate::store::ChunkStore;
use skep_wire::storage::ReserveChunk;

/// Bytes of the range that hold no data yet: what `fallocate` may take from the file system. Never too little; too much
/// where space is reserved and not written, which file systems show as holes, and beyond the first 4,096 runs.
/// `free`: when no more than this is asked for, nobody needs to look.
pub fn room_needed(store: &impl ChunkStore, m: &ReserveChunk, free: u64) -> Result<u64, Done> {
    check_range(m.offset, m.len)?;
    if m.len <= free {
        return Ok(m.len);
    }
    // A range of exabytes is not walked through when all that the chunk file has could not make up for it.
    let has = stat(store, m.chunk)?.blocks.saturating_mul(512);
    if m.len - free > has {
        return Ok(m.len);
    }
    let mut needed = m.len;
    let mut runs = 0;
    for (piece, from, len) in pieces(m.chunk, m.offset, m.len) {
        let (mut at, end) = (from, from + len);
        while at < end && runs < RUNS_MAX {
            let Some((first, after)) = store.next_data(&piece, at)?.filter(|(first, _)| *first < end) else {
                break;
            };
            needed -= after.min(end) - first;
            at = after;
            runs += 1;
        }
    }
    Ok(needed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::MemoryChunks;
    use crate::name::PieceName;
    use alloc::vec;
    use skep_types::limits::{FILE_SIZE_MAX, PIECE_SIZE};
    use skep_types::{ChunkId, Generation, Ino, TargetId};

    fn needed(store: &MemoryChunks, offset: u64, len: u64, free: u64) -> u64 {
        let chunk = ChunkId { ino: Ino(7), generation: Generation(1), extent: 0, stripe: 0 };
        let (target, owner) = (TargetId(101), skep_wire::storage::Owner::default());
        room_needed(store, &ReserveChunk { target, chunk, offset, len, owner }, free).unwrap()
    }

    /// Goal: what is written already takes no space again; holes do; the whole of an absurd range is asked for at once.
    #[test]
    fn holes_take_space() {
        let store = MemoryChunks::default();
        let chunk = ChunkId { ino: Ino(7), generation: Generation(1), extent: 0, stripe: 0 };
        let first = PieceName::first(chunk);
        store.write(&first, 0, &vec![1; 8_192]).unwrap();
        store.write(&first, 16_384, &vec![1; 4_096]).unwrap();
        store.write(&PieceName { chunk, piece: 1 }, 0, &vec![1; 4_096]).unwrap();
        store.write(&first, 1 << 20, &vec![1; 32_768]).unwrap();
        assert_eq!(needed(&store, 0, 8_192, 0), 0);
        assert_eq!(needed(&store, 0, 20_480, 0), 8_192);
        assert_eq!(needed(&store, 4_096, 8_192, 0), 4_096);
        assert_eq!(needed(&store, PIECE_SIZE - 4_096, 8_192, 0), 4_096);
        assert_eq!(needed(&store, 0, 8_192, 10_000), 8_192, "nobody needs to look");
        assert!(needed(&store, 0, FILE_SIZE_MAX, 1 << 40) > 1 << 40);
    }
}
