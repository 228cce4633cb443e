//! Where a chunk file has data and where holes.

use crate::execute::stat;
use crate::name::PieceName;
use crate::store::{ChunkStore, DiskError};
use alloc::vec::Vec;
use skep_types::limits::PIECE_SIZE;
use skep_types::{ChunkId, piece_of};
use skep_wire::storage::{MapChunk, MapChunkReply, Run};

/// Runs of data that one answer holds at most (64 KiB of body).
pub const RUNS_MAX: u32 = 4_096;

/// Answers a `MapChunk`. Data is never called a hole; a hole may be called data, where the local file system
/// does not know better. What a seal has put elsewhere is not known here, but that there is one.
pub(crate) fn map(store: &impl ChunkStore, m: &MapChunk) -> Result<MapChunkReply, DiskError> {
    let found = runs_of(store, m)?;
    // Looked at last: what is written elsewhere before the question is behind a seal that is there by now.
    Ok(MapChunkReply { sealed: store.limit(&m.chunk), ..found })
}

fn runs_of(store: &impl ChunkStore, m: &MapChunk) -> Result<MapChunkReply, DiskError> {
    let max = m.max.clamp(1, RUNS_MAX) as usize;
    let size = stat(store, m.chunk)?.size;
    let mut runs: Vec<Run> = Vec::new();
    if m.offset >= size {
        return Ok(MapChunkReply { runs, until: u64::MAX, size, sealed: None });
    }
    let (first, _) = piece_of(m.offset);
    let further = store.further_pieces(&m.chunk)?;
    for number in core::iter::once(0).chain(further).filter(|number| *number >= first) {
        let base = u64::from(number) * PIECE_SIZE;
        let mut at = m.offset.saturating_sub(base);
        while let Some((start, end)) = store.next_data(&piece(m.chunk, number), at)? {
            let run = Run { start: base + start, end: base + end };
            let full = runs.len() == max;
            match runs.last_mut() {
                // Over the border of two pieces it is one run.
                Some(last) if last.end == run.start => last.end = run.end,
                Some(last) if full => {
                    let until = last.end;
                    return Ok(MapChunkReply { runs, until, size, sealed: None });
                }
                _ => runs.push(run),
            }
            at = end;
        }
    }
    Ok(MapChunkReply { runs, until: u64::MAX, size, sealed: None })
}

fn piece(chunk: ChunkId, piece: u32) -> PieceName {
    PieceName { chunk, piece }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::execute::{Done, Limits, execute, write_chunk};
    use crate::memory::MemoryChunks;
    use crate::seal::seal_chunk;
    use alloc::vec;
    use skep_types::limits::FILE_SIZE_MAX;
    use skep_types::{Decode, Generation, Ino, TargetId};
    use skep_wire::storage::{Owner, PunchChunk, SealChunk, ShardTerm, WriteChunk};

    const TARGET: TargetId = TargetId(101);
    const CHUNK: ChunkId = ChunkId { ino: Ino(7), generation: Generation(1), extent: 0, stripe: 0 };

    fn write(store: &MemoryChunks, offset: u64, len: usize) {
        let m = WriteChunk {
            target: TARGET,
            chunk: CHUNK,
            offset,
            owner: Owner::default(),
            floor: 0,
            sync: false,
            uncut: None,
            later: None,
            until: None,
        };
        write_chunk(store, &m, &vec![1; len]).unwrap();
    }

    fn map(store: &MemoryChunks, offset: u64, max: u32) -> MapChunkReply {
        let m = MapChunk { target: TARGET, chunk: CHUNK, offset, max };
        match execute(store, Limits::default(), &m.into()) {
            Done::Body(body) => MapChunkReply::from_bytes(&body).unwrap(),
            other => panic!("{other:?}"),
        }
    }

    fn run(start: u64, end: u64) -> Run {
        Run { start, end }
    }

    /// Goal: runs are cut to the question, end at the end, and follow holes as they are made.
    #[test]
    fn runs_of_data() {
        let store = MemoryChunks::default();
        let none = MapChunkReply { runs: vec![], until: u64::MAX, size: 0, sealed: None };
        assert_eq!(map(&store, 0, 10), none);
        write(&store, 8_192, 5_000);
        let reply = map(&store, 0, 10);
        assert_eq!((reply.runs, reply.until, reply.size), (vec![run(8_192, 13_192)], u64::MAX, 13_192));
        assert_eq!(map(&store, 9_000, 10).runs, vec![run(9_000, 13_192)]);
        assert_eq!(map(&store, 13_192, 10).runs, vec![]);
        assert_eq!(map(&store, u64::MAX, 10).runs, vec![]);
        let punch = PunchChunk { target: TARGET, chunk: CHUNK, offset: 8_192, len: 4_096, unchanged: None };
        assert!(matches!(execute(&store, Limits::default(), &punch.into()), Done::Body(_)));
        assert_eq!(map(&store, 0, 10).runs, vec![run(12_288, 13_192)]);
    }

    /// Goal: whoever asks by a layout from before a seal is told of it, whatever is found.
    #[test]
    fn seals_are_told() {
        let store = MemoryChunks::default();
        write(&store, 4_096, 4_096);
        assert_eq!(map(&store, 0, 10).sealed, None);
        seal_chunk(&store, &SealChunk { target: TARGET, by: ShardTerm::default(), chunk: CHUNK, floor: 0 })
            .unwrap();
        write(&store, 0, 1);
        for offset in [0, 5_000, 8_192, 1 << 40] {
            assert_eq!(map(&store, offset, 1).sealed, Some(8_192), "{offset}");
        }
    }

    /// Goal: the border of two pieces is not seen, missing pieces are holes, the highest offset works.
    #[test]
    fn runs_over_pieces() {
        let store = MemoryChunks::default();
        write(&store, PIECE_SIZE - 4_096, 8_192);
        write(&store, 3 * PIECE_SIZE, 1);
        write(&store, FILE_SIZE_MAX - 1, 1);
        let across = run(PIECE_SIZE - 4_096, PIECE_SIZE + 4_096);
        let last = (FILE_SIZE_MAX - 1) / 4_096 * 4_096;
        let far = [run(3 * PIECE_SIZE, 3 * PIECE_SIZE + 1), run(last, FILE_SIZE_MAX)];
        assert_eq!(map(&store, 0, 10).runs, [across, far[0], far[1]]);
        assert_eq!(map(&store, PIECE_SIZE + 1, 1).runs, [run(PIECE_SIZE + 1, PIECE_SIZE + 4_096)]);
        assert_eq!(map(&store, 2 * PIECE_SIZE, 10).runs, far);
    }

    /// Goal: an answer is bounded, and asking on from where it ends gives the rest without gap or repetition.
    #[test]
    fn answers_are_bounded() {
        let store = MemoryChunks::default();
        let all: Vec<Run> = (0..RUNS_MAX as u64 + 100).map(|i| run(i * 8_192, i * 8_192 + 4_096)).collect();
        all.iter().for_each(|run| write(&store, run.start, 4_096));
        for max in [1, 7, 1_000, RUNS_MAX, u32::MAX] {
            let (mut at, mut seen) = (0, Vec::new());
            while at != u64::MAX {
                let reply = map(&store, at, max);
                assert!(reply.runs.len() as u32 <= max.min(RUNS_MAX));
                seen.extend(reply.runs);
                at = reply.until;
            }
            assert_eq!(seen, all, "at most {max}");
        }
    }
}
