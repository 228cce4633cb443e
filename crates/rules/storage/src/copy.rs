//! Copies between chunk files of one daemon.

use crate::execute::{Done, check_range, nameless, refused, require_floor, stat, sync as sync_pieces};
use crate::name::PieceName;
use crate::seal::require_open;
use crate::store::{ChunkStore, DiskError};
use alloc::vec::Vec;
use skep_types::limits::PIECE_SIZE;
use skep_types::{Errno, piece_of};
use skep_wire::storage::{ChunkStat, CopyChunk, CopyChunkReply, WriteChunkReply};

/// Bytes of data that one request copies at most: a connection serves nothing else meanwhile.
pub const COPY_MAX: u64 = 32 << 20;
/// Runs of data and holes that one request goes over at most.
pub const COPY_RUNS_MAX: u32 = 4_096;

/// A copy that came to nothing, and at which end: a disk's failure is that target's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CopyFault {
    /// Reading.
    Source(Done),
    /// Writing, or the request as a whole.
    Copy(Done),
}

/// What a local file system cannot do (holes) the mount does with reads and writes, as between daemons.
fn fault(e: DiskError) -> Done {
    match e {
        DiskError::Unsupported => {
            refused(Errno::EXDEV, "the target's file system makes no holes: copy by reading and writing")
        }
        e => e.into(),
    }
}

fn at_source(e: DiskError) -> CopyFault {
    CopyFault::Source(fault(e))
}

fn at_copy(e: DiskError) -> CopyFault {
    CopyFault::Copy(fault(e))
}

/// Copies from a chunk file of `from` to one of `store` (which may be the same), what it can by the local file
/// system itself, the rest through `buffer`. Holes become holes, over existing data as well.
pub fn copy_chunk<S: ChunkStore>(
    store: &S,
    from: &S,
    m: &CopyChunk,
    sync: bool,
    buffer: &mut [u8],
) -> Result<CopyChunkReply, CopyFault> {
    check(m, buffer).map_err(CopyFault::Copy)?;
    require_open(from, m.from_chunk, m.from_offset, m.len).map_err(CopyFault::Source)?;
    require_open(store, m.chunk, m.offset, m.len).map_err(CopyFault::Copy)?;
    require_floor(from, m.from_chunk, m.from_floor).map_err(CopyFault::Source)?;
    require_floor(store, m.chunk, m.floor).map_err(CopyFault::Copy)?;
    // Holes alone leave nothing behind by which that could be seen afterwards.
    if store.has_lost_its_name(&PieceName::first(m.chunk)).map_err(at_copy)? {
        return Err(CopyFault::Copy(nameless()));
    }
    // Taken first: a disk that fails during the copy must not hide behind its next life.
    let life = store.life();
    store.changes().changing(&m.chunk);
    let mut work = Copying { store, from, m, buffer, at: 0, data_left: COPY_MAX, touched: Vec::new() };
    for _ in 0..COPY_RUNS_MAX {
        if work.at == m.len || work.data_left == 0 {
            break;
        }
        match work.run() {
            Ok(()) => {}
            // Full, for example: what was copied counts, the next request meets the same again.
            Err(CopyFault::Source(Done::Refused(_)) | CopyFault::Copy(Done::Refused(_))) if work.at > 0 => {
                break;
            }
            Err(e) => return Err(e),
        }
    }
    let (copied, touched, has_data) = (work.at, work.touched, work.data_left < COPY_MAX);
    let ChunkStat { size, blocks, .. } = extend(store, m, copied, has_data).map_err(CopyFault::Copy)?;
    if sync {
        sync_pieces(store, life, &touched).map_err(CopyFault::Copy)?;
    }
    Ok(CopyChunkReply {
        copied,
        written: WriteChunkReply { size, blocks, life, cuts: None, room: None, clock: None },
    })
}

fn check(m: &CopyChunk, buffer: &[u8]) -> Result<(), Done> {
    check_range(m.offset, m.len)?;
    check_range(m.from_offset, m.len)?;
    if m.len == 0 || buffer.is_empty() {
        return Err(refused(Errno::EINVAL, "a copy of nothing"));
    }
    let same = (m.target, m.chunk) == (m.from_target, m.from_chunk);
    if same && m.offset.abs_diff(m.from_offset) < m.len {
        return Err(refused(Errno::EINVAL, "source and copy overlap"));
    }
    Ok(())
}

/// A hole at the end of the copy must not leave the chunk file short: others take the file's size from it.
fn extend(store: &impl ChunkStore, m: &CopyChunk, copied: u64, has_data: bool) -> Result<ChunkStat, Done> {
    let now = stat(store, m.chunk).map_err(fault)?;
    if has_data && now.size == 0 {
        return Err(nameless());
    }
    let end = m.offset + copied;
    if copied == 0 || now.size >= end {
        return Ok(now);
    }
    // A write, not a truncate: that could cut off what somebody writes at the same time.
    let (piece, inside) = piece_of(end - 1);
    store.write(&PieceName { chunk: m.chunk, piece }, inside, &[0]).map_err(fault)?;
    stat(store, m.chunk).map_err(fault)
}

struct Copying<'a, S> {
    store: &'a S,
    from: &'a S,
    m: &'a CopyChunk,
    buffer: &'a mut [u8],
    /// Bytes done.
    at: u64,
    data_left: u64,
    /// Pieces of the copy that were changed.
    touched: Vec<PieceName>,
}

impl<S: ChunkStore> Copying<'_, S> {
    /// Goes over one run of data, or one hole.
    fn run(&mut self) -> Result<(), CopyFault> {
        let m = self.m;
        let (number, source_at) = piece_of(m.from_offset + self.at);
        let source = PieceName { chunk: m.from_chunk, piece: number };
        let (number, copy_at) = piece_of(m.offset + self.at);
        let copy = PieceName { chunk: m.chunk, piece: number };
        let run = (m.len - self.at).min(PIECE_SIZE - source_at).min(PIECE_SIZE - copy_at);
        if self.touched.last() != Some(&copy) {
            self.touched.push(copy);
        }
        let data = self.from.next_data(&source, source_at).map_err(at_source)?;
        let done = match data {
            Some((start, end)) if start <= source_at => {
                let run = run.min(end - source_at).min(self.data_left);
                let done = self.data((&source, source_at), (&copy, copy_at), run)?;
                self.data_left -= done;
                // It has been cut off since: nothing is there any more.
                if done == 0 { self.hole(&copy, copy_at, run)? } else { done }
            }
            Some((start, _)) => self.hole(&copy, copy_at, run.min(start - source_at))?,
            None => self.hole(&copy, copy_at, run)?,
        };
        self.at += done;
        Ok(())
    }

    fn hole(&mut self, copy: &PieceName, at: u64, len: u64) -> Result<u64, CopyFault> {
        self.store.punch(copy, at, len).map_err(at_copy)?;
        Ok(len)
    }

    /// Copies some of `len` bytes; 0 when the source has none of them.
    fn data(
        &mut self,
        (source, source_at): (&PieceName, u64),
        (copy, copy_at): (&PieceName, u64),
        len: u64,
    ) -> Result<u64, CopyFault> {
        let done = self.store.copy((copy, copy_at), self.from, (source, source_at), len);
        if done > 0 {
            return Ok(done);
        }
        let len = len.min(self.buffer.len() as u64) as usize;
        let got = self.from.read(source, source_at, &mut self.buffer[..len]).map_err(at_source)?;
        if got > 0 {
            self.store.write(copy, copy_at, &self.buffer[..got]).map_err(at_copy)?;
        }
        Ok(got as u64)
    }
}

#[cfg(test)]
mod tests;
