//! How much free space a reservation takes, and what a target that is full takes all the same.

use crate::execute::{Done, check_range, pieces, stat};
use crate::map::RUNS_MAX;
use crate::name::PieceName;
use crate::store::{ChunkStore, DiskError};
use skep_types::ChunkId;
use skep_types::limits::PIECE_SIZE;
use skep_wire::storage::ReserveChunk;

/// Bytes of a long reservation that are taken before the free space is looked at again: others may take of it at the
/// same time, also daemons that know nothing of one another.
pub const RESERVE_STEP: u64 = 64 << 20;

/// A reservation in steps.
pub fn reserve_steps(m: &ReserveChunk) -> impl Iterator<Item = ReserveChunk> + '_ {
    let count = m.len.div_ceil(RESERVE_STEP).max(1);
    (0..count).map(|number| {
        let at = number * RESERVE_STEP;
        ReserveChunk { offset: m.offset + at, len: (m.len - at).min(RESERVE_STEP), ..m.clone() }
    })
}

/// Bytes of the range that have no space yet: what `fallocate` may take from the file system. Never too little; too much
/// where the file system does not tell what is reserved, and beyond the first 4,096 runs.
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
            let next = store.next_allocated(&piece, at)?;
            let Some((first, after)) = next.filter(|(first, _)| *first < end) else { break };
            needed -= after.min(end) - first;
            at = after;
            runs += 1;
        }
    }
    Ok(needed)
}

/// Does the range have its space already, so that a write to it takes none?
pub fn is_allocated(store: &impl ChunkStore, chunk: ChunkId, offset: u64, len: u64) -> Result<bool, Done> {
    check_range(offset, len)?;
    for (piece, from, len) in pieces(chunk, offset, len) {
        let (mut at, end) = (from, from + len);
        while at < end {
            match store.next_allocated(&piece, at)? {
                Some((first, after)) if first == at => at = after,
                _ => return Ok(false),
            }
        }
    }
    Ok(true)
}

/// Where a chunk file ends, counting what is reserved behind its last byte.
pub fn allocated_end(store: &impl ChunkStore, chunk: ChunkId) -> Result<u64, DiskError> {
    let mut end = 0;
    for number in core::iter::once(0).chain(store.further_pieces(&chunk)?) {
        let piece = PieceName { chunk, piece: number };
        let Some(found) = store.stat(&piece)? else { continue };
        let mut last = found.size;
        while let Some((_, after)) = store.next_allocated(&piece, last)? {
            last = after;
        }
        // Local file systems reserve ahead of writers, by themselves.
        end = end.max(u64::from(number) * PIECE_SIZE + last.min(PIECE_SIZE));
    }
    Ok(end)
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

    /// Goal: what is reserved takes no space again, may be written on a full target, and makes the chunk file end behind
    /// it; holes before, between and behind do not.
    #[test]
    fn reserved_space_is_there() {
        let store = MemoryChunks::default();
        let chunk = ChunkId { ino: Ino(7), generation: Generation(1), extent: 0, stripe: 0 };
        let first = PieceName::first(chunk);
        let fits = |offset, len| is_allocated(&store, chunk, offset, len).unwrap();
        let end = || allocated_end(&store, chunk).unwrap();
        assert_eq!((fits(0, 1), end()), (false, 0));
        store.write(&first, 0, &[1; 100]).unwrap();
        assert_eq!((fits(0, 100), fits(0, 101), end()), (true, false, 100));
        store.reserve(&first, 8_192, 16_384).unwrap();
        assert_eq!(end(), 24_576);
        assert_eq!((fits(8_192, 16_384), fits(8_191, 2), fits(24_575, 2)), (true, false, false));
        assert_eq!((needed(&store, 0, 24_576, 8_092), needed(&store, 8_192, 16_384, 0)), (8_092, 0));
        assert_eq!(store.used(), 5 * 4_096);
        store.write(&first, 12_288, &[2; 10]).unwrap();
        assert!(fits(8_192, 16_384), "what is written in the middle of a reservation leaves the rest");
        assert_eq!((store.used(), end()), (5 * 4_096, 24_576), "and takes nothing");
        store.reserve(&PieceName { chunk, piece: 1 }, 0, 4_096).unwrap();
        assert!(!fits(24_576, PIECE_SIZE - 24_576 + 4_096) && fits(PIECE_SIZE, 4_096));
        assert_eq!(end(), PIECE_SIZE + 4_096);
        store.punch(&first, 16_384, 4_096).unwrap();
        assert_eq!((fits(8_192, 4_106), fits(8_192, 12_288), fits(20_480, 4_096)), (true, false, true));
    }

    /// Goal: a long reservation is made in steps that follow one another without gap, the shortest in one.
    #[test]
    fn long_reservations_go_in_steps() {
        let chunk = ChunkId { ino: Ino(7), generation: Generation(1), extent: 0, stripe: 0 };
        let (target, owner) = (TargetId(101), skep_wire::storage::Owner::default());
        for (offset, len, count) in [(5, 0, 1), (7, 1, 1), (9, RESERVE_STEP, 1), (9, 3 * RESERVE_STEP + 1, 4)]
        {
            let m = ReserveChunk { target, chunk, offset, len, owner };
            let steps: alloc::vec::Vec<_> = reserve_steps(&m).collect();
            assert_eq!(steps.len(), count);
            let end = steps.iter().fold(offset, |at, step| {
                assert!(
                    step.offset == at
                        && step.len <= RESERVE_STEP
                        && (step.chunk, step.target) == (chunk, target)
                );
                at + step.len
            });
            assert_eq!(end, offset + len);
        }
    }
}
