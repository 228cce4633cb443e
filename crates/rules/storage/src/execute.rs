//! Carries out an admitted request on a [`ChunkStore`].

use crate::map::map;
use crate::name::PieceName;
use crate::seal::{require_open, seal_chunk};
use crate::store::{ChunkStore, DiskError, PieceStat};
use crate::until::require_in_time;
use alloc::format;
use alloc::vec::Vec;
use skep_types::limits::{FILE_SIZE_MAX, PAYLOAD_MAX, PIECE_SIZE};
use skep_types::{ChunkId, Encode, Errno, piece_of};
use skep_wire::storage::{
    ChunkReply, ChunkStat, ListChunksReply, PunchChunk, ReadChunk, ReadChunkReply, StatChunksReply,
    StorageRequest, SyncChunksReply, TrimChunk, WriteChunk, WriteChunkReply,
};
use skep_wire::{Empty, Refusal, Status};

/// Bounds of one request.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Chunk files that one sync, stat or delete may name.
    pub chunks_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { chunks_max: 4_096 }
    }
}

/// What came of a request: either a refusal for the sender or a disk's failure, which the hands
/// must act upon as well.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Done {
    /// The reply's body.
    Body(Vec<u8>),
    /// Refused; the target stays as it is.
    Refused(Refusal),
    /// The disk failed: the target is bad.
    DiskFailed(DiskError),
}

impl From<DiskError> for Done {
    fn from(e: DiskError) -> Self {
        match e {
            DiskError::NoSpace => Self::Refused(Errno::ENOSPC.into()),
            DiskError::TooLarge => Self::Refused(Errno::EFBIG.into()),
            DiskError::Unsupported => Self::Refused(Errno::EOPNOTSUPP.into()),
            DiskError::Busy => Self::Refused(Refusal::with(
                Status::BUSY,
                "the storage daemon is short of descriptors or memory",
            )),
            DiskError::Failed(_) => Self::DiskFailed(e),
        }
    }
}

/// Runs every request but reads and writes, whose payloads the hands hold, and copies, which have two ends: see
/// [`read_chunk`], [`write_chunk`] and [`crate::copy_chunk`].
pub fn execute(store: &impl ChunkStore, limits: Limits, request: &StorageRequest) -> Done {
    run(store, limits, request).unwrap_or_else(|done| done)
}

fn run(store: &impl ChunkStore, limits: Limits, request: &StorageRequest) -> Result<Done, Done> {
    let bounded = |chunks: &[ChunkId]| {
        let text = "too many chunk files in one request";
        if chunks.len() > limits.chunks_max { Err(refused(Errno::E2BIG, text)) } else { Ok(()) }
    };
    let body = match request {
        StorageRequest::TrimChunk(m) => trim(store, m)?.to_bytes(),
        StorageRequest::PunchChunk(m) => {
            check_range(m.offset, m.len)?;
            require_open(store, m.chunk, m.offset, m.len)?;
            require_unchanged(store, m)?;
            let life = store.life();
            store.changes().changing(&m.chunk);
            punch(store, m.chunk, m.offset, m.offset + m.len)?;
            chunk_reply(store, m.chunk, life)?.to_bytes()
        }
        StorageRequest::ReserveChunk(m) => {
            check_range(m.offset, m.len)?;
            require_open(store, m.chunk, m.offset, m.len)?;
            let life = store.life();
            store.changes().changing(&m.chunk);
            for (piece, offset, len) in pieces(m.chunk, m.offset, m.len) {
                store.reserve(&piece, offset, len)?;
            }
            chunk_reply(store, m.chunk, life)?.to_bytes()
        }
        StorageRequest::SyncChunks(m) => {
            bounded(&m.chunks)?;
            check_life(store, m.life)?;
            // Before the sync: what it does not cover is not durable.
            let sizes: Result<Vec<u64>, DiskError> =
                m.chunks.iter().map(|chunk| Ok(stat(store, *chunk)?.size)).collect();
            let sizes = sizes?;
            sync(store, m.life, &all_pieces(store, &m.chunks)?)?;
            SyncChunksReply { sizes }.to_bytes()
        }
        StorageRequest::StatChunks(m) => {
            bounded(&m.chunks)?;
            let chunks: Result<Vec<_>, DiskError> =
                m.chunks.iter().map(|chunk| stat_counted(store, *chunk)).collect();
            StatChunksReply { chunks: chunks?, life_since: store.life_since() }.to_bytes()
        }
        StorageRequest::DeleteChunks(m) => {
            bounded(&m.chunks)?;
            let life = store.life();
            m.chunks.iter().for_each(|chunk| store.changes().changing(chunk));
            let all = all_pieces(store, &m.chunks)?;
            // Last piece first: a crash in between leaves a chunk file that is found again.
            for piece in all.iter().rev() {
                store.remove(piece)?;
            }
            sync(store, life, &all)?;
            store.unseal(&m.chunks)?;
            Empty {}.to_bytes()
        }
        StorageRequest::ListChunks(m) => {
            let max = (m.max as usize).clamp(1, limits.chunks_max);
            let chunks = store.list(m.after, max)?;
            ListChunksReply { end: chunks.len() < max, chunks }.to_bytes()
        }
        StorageRequest::MapChunk(m) => map(store, m)?.to_bytes(),
        StorageRequest::SealChunk(m) => seal_chunk(store, m)?.to_bytes(),
        StorageRequest::ReadChunk(_)
        | StorageRequest::WriteChunk(_)
        | StorageRequest::TargetStats(_)
        | StorageRequest::CopyChunk(_) => {
            return Err(refused(Errno::EINVAL, "not a request of this kind"));
        }
    };
    Ok(Done::Body(body))
}

/// Reads into `payload` (at least `m.len` long): the reply and how many bytes of it to send.
/// Holes read as zeros; the answer is shorter than asked only at the end of the chunk file.
pub fn read_chunk(
    store: &impl ChunkStore,
    m: &ReadChunk,
    payload: &mut [u8],
) -> Result<(ReadChunkReply, usize), Done> {
    let len = u64::from(m.len);
    if m.len as usize > PAYLOAD_MAX.min(payload.len()) {
        return Err(refused(Errno::EINVAL, "read is longer than the limit"));
    }
    check_range(m.offset, len)?;
    require_open(store, m.chunk, m.offset, len)?;
    let mut done = 0usize;
    let mut size = None;
    for (piece, offset, want) in pieces(m.chunk, m.offset, len) {
        let part = &mut payload[done..done + want as usize];
        let got = store.read(&piece, offset, part)?;
        if got < part.len() {
            // The end, or a hole between pieces: the size of the whole decides.
            let size = *size.get_or_insert(stat(store, m.chunk)?.size);
            let at = m.offset + (done + got) as u64;
            let zeros = size.saturating_sub(at).min((part.len() - got) as u64) as usize;
            part[got..got + zeros].fill(0);
            done += got + zeros;
            if got + zeros < part.len() {
                break;
            }
        } else {
            done += got;
        }
    }
    let size = match size {
        Some(size) => size,
        None => stat(store, m.chunk)?.size,
    };
    Ok((ReadChunkReply { size }, done))
}

/// Writes `payload`.
pub fn write_chunk(store: &impl ChunkStore, m: &WriteChunk, payload: &[u8]) -> Result<WriteChunkReply, Done> {
    if payload.len() > PAYLOAD_MAX {
        return Err(refused(Errno::EINVAL, "write is longer than the limit"));
    }
    check_range(m.offset, payload.len() as u64)?;
    // Taken first: a disk that fails during the write must not hide behind its next life.
    let life = store.life();
    require_open(store, m.chunk, m.offset, payload.len() as u64)?;
    require_floor(store, m.chunk, m.floor)?;
    let cuts = store.changes().cuts_of(&m.chunk);
    if m.uncut.is_some_and(|seen| seen != cuts) {
        let text = "the chunk file may have been cut since the place of the append was given";
        return Err(Done::Refused(Refusal::with(Status::CUT_SINCE, text)));
    }
    require_in_time(store, m.until)?;
    store.changes().changing(&m.chunk);
    let mut rest = payload;
    let mut written = Vec::new();
    for (piece, offset, len) in pieces(m.chunk, m.offset, payload.len() as u64) {
        let (part, after) = rest.split_at(len as usize);
        store.write(&piece, offset, part)?;
        rest = after;
        written.push(piece);
    }
    if m.sync {
        sync(store, life, &written)?;
    }
    let ChunkStat { size, blocks, .. } = stat(store, m.chunk)?;
    if size == 0 && !payload.is_empty() {
        return Err(nameless());
    }
    let clock = (m.later == Some(true)).then(|| store.clock());
    Ok(WriteChunkReply { size, blocks, life, cuts: Some(cuts), room: None, clock })
}

/// The chunk file is missing, though something was written to it: removed, or cut to nothing, at the same moment. The
/// mount finds out which, and writes again if it may.
pub(crate) fn nameless() -> Done {
    let text = "the chunk file has lost its name, and what was written to it";
    Done::Refused(Refusal::with(Status::LOST_CHUNK, text))
}

/// Refuses to take back what a failed write left where somebody may have written since.
fn require_unchanged(store: &impl ChunkStore, m: &PunchChunk) -> Result<(), Done> {
    match m.unchanged {
        Some(seen) if seen != store.changes().of(&m.chunk) => {
            Err(refused(Errno::EAGAIN, "the chunk file was changed since it was looked at"))
        }
        _ => Ok(()),
    }
}

/// Refuses to go on with a chunk file of which something is lost.
pub(crate) fn require_floor(store: &impl ChunkStore, chunk: ChunkId, floor: u64) -> Result<(), Done> {
    if floor == 0 {
        return Ok(());
    }
    let size = stat(store, chunk)?.size;
    if size >= floor {
        return Ok(());
    }
    let text = format!("the chunk file holds {size} bytes, at least {floor} were written and committed");
    Err(Done::Refused(Refusal::with(Status::LOST_CHUNK, text)))
}

/// Syncs what was written in life `life`. The kernel tells a failed write-back once, perhaps to somebody else's sync of
/// the same chunk file that runs at the same moment: whether that one failed is seen by the life only, afterwards.
pub(crate) fn sync(store: &impl ChunkStore, life: u64, pieces: &[PieceName]) -> Result<(), Done> {
    store.sync(pieces)?;
    check_life(store, life)
}

fn check_life(store: &impl ChunkStore, life: u64) -> Result<(), Done> {
    if life == store.life() {
        return Ok(());
    }
    let text = "the target's file system was mounted anew or its disk failed: unsynced writes may be lost";
    Err(Done::Refused(Refusal::with(Status::LOST_WRITES, text)))
}

fn trim(store: &impl ChunkStore, message: &TrimChunk) -> Result<ChunkReply, Done> {
    let TrimChunk { chunk, size, .. } = *message;
    let keeps_reserved = message.keeps_reserved == Some(true);
    let life = store.life();
    store.changes().changing(&chunk);
    store.changes().cutting(&chunk);
    let (last, inside) = piece_of(size);
    let mut touched = Vec::new();
    end_at(store, chunk, life, size)?;
    // From the end: a crash in between leaves a shorter file, never one with a gap of old data.
    for number in store.further_pieces(&chunk)?.into_iter().rev() {
        let piece = PieceName { chunk, piece: number };
        if number > last {
            store.remove(&piece)?;
            touched.push(piece);
        } else if number == last {
            cut(store, &piece, inside, keeps_reserved, &mut touched)?;
        }
    }
    if last == 0 {
        cut(store, &PieceName::first(chunk), inside, keeps_reserved, &mut touched)?;
    }
    sync(store, life, &touched)?;
    Ok(chunk_reply(store, chunk, life)?)
}

/// A chunk file that reaches beyond `size` shall end there and not before, also where a hole is cut off that no piece
/// stands for: floors tell its length by that. Durable before the pieces behind it go.
fn end_at(store: &impl ChunkStore, chunk: ChunkId, life: u64, size: u64) -> Result<(), Done> {
    let (last, inside) = piece_of(size);
    let further = store.further_pieces(&chunk)?;
    if size == 0 || further.iter().all(|number| *number <= last) {
        return Ok(());
    }
    let piece = PieceName { chunk, piece: last };
    let found = store.stat(&piece)?.map(|stat| stat.size);
    if found.is_none_or(|found| found < inside) {
        match store.reserve(&piece, 0, 0) {
            Err(DiskError::NoSpace) => {
                make_room(store, chunk, life, last)?;
                store.reserve(&piece, 0, 0)?;
            }
            made => made?,
        }
        store.truncate(&piece, inside)?;
        sync(store, life, &[piece])?;
    }
    Ok(())
}

/// The disk is full, and a truncate is what makes room: all behind piece `last` goes but the name of the first one,
/// by which the chunk file is still long enough.
fn make_room(store: &impl ChunkStore, chunk: ChunkId, life: u64, last: u32) -> Result<(), Done> {
    let mut behind = store.further_pieces(&chunk)?.into_iter().filter(|number| *number > last);
    let Some(first) = behind.next().map(|piece| PieceName { chunk, piece }) else { return Ok(()) };
    for piece in behind.collect::<Vec<u32>>().into_iter().rev() {
        store.remove(&PieceName { chunk, piece })?;
    }
    store.truncate(&first, 0)?;
    sync(store, life, &[first])
}

/// Makes a hole. Only pieces that exist are touched: a range may span millions that do not.
fn punch(store: &impl ChunkStore, chunk: ChunkId, offset: u64, end: u64) -> Result<(), DiskError> {
    for number in core::iter::once(0).chain(store.further_pieces(&chunk)?) {
        let first = u64::from(number) * PIECE_SIZE;
        let (from, to) = (offset.max(first), end.min(first + PIECE_SIZE));
        if from < to {
            store.punch(&PieceName { chunk, piece: number }, from - first, to - from)?;
        }
    }
    Ok(())
}

/// Shortens a piece that is longer. Also one that ends there, unless what is reserved behind it stays: that frees it. Not a
/// shorter one: to its own length it could lose what somebody else writes behind it at the same moment.
fn cut(
    store: &impl ChunkStore,
    piece: &PieceName,
    size: u64,
    keeps_reserved: bool,
    touched: &mut Vec<PieceName>,
) -> Result<(), DiskError> {
    if let Some(stat) = store.stat(piece)? {
        if stat.size > size || stat.size == size && !keeps_reserved {
            store.truncate(piece, size)?;
        }
        // Also when it is short already: an earlier try may have ended before its sync.
        touched.push(*piece);
    }
    Ok(())
}

/// Length, space and time of a chunk file, over all of its pieces.
pub fn stat(store: &impl ChunkStore, chunk: ChunkId) -> Result<ChunkStat, DiskError> {
    let mut total = ChunkStat::default();
    let mut add = |number: u32, PieceStat { size, blocks, mtime_ns }: PieceStat| {
        total.size = total.size.max(u64::from(number) * PIECE_SIZE + size);
        total.blocks += blocks;
        total.mtime_ns = total.mtime_ns.max(mtime_ns);
    };
    if let Some(first) = store.stat(&PieceName::first(chunk))? {
        add(0, first);
    }
    for number in store.further_pieces(&chunk)? {
        if let Some(stat) = store.stat(&PieceName { chunk, piece: number })? {
            add(number, stat);
        }
    }
    Ok(total)
}

/// As [`stat`], with the counts of its changes from before.
fn stat_counted(store: &impl ChunkStore, chunk: ChunkId) -> Result<ChunkStat, DiskError> {
    let counts = store.changes();
    let (changes, cuts) = (Some(counts.of(&chunk)), Some(counts.cuts_of(&chunk)));
    Ok(ChunkStat { changes, cuts, ..stat(store, chunk)? })
}

/// `life` as it was before the change.
fn chunk_reply(store: &impl ChunkStore, chunk: ChunkId, life: u64) -> Result<ChunkReply, DiskError> {
    let ChunkStat { size, blocks, .. } = stat(store, chunk)?;
    Ok(ChunkReply { size, blocks, life })
}

/// Every piece of the chunk files, first pieces first.
fn all_pieces(store: &impl ChunkStore, chunks: &[ChunkId]) -> Result<Vec<PieceName>, DiskError> {
    let mut all = Vec::new();
    for chunk in chunks {
        all.push(PieceName::first(*chunk));
        all.extend(store.further_pieces(chunk)?.into_iter().map(|piece| PieceName { chunk: *chunk, piece }));
    }
    Ok(all)
}

/// (piece, offset in it, bytes) of a range of a chunk file.
pub(crate) fn pieces(chunk: ChunkId, offset: u64, len: u64) -> impl Iterator<Item = (PieceName, u64, u64)> {
    let end = offset + len;
    let mut at = offset;
    core::iter::from_fn(move || {
        let (piece, inside) = piece_of(at);
        let run = (PIECE_SIZE - inside).min(end - at);
        at += run;
        (run > 0).then_some((PieceName { chunk, piece }, inside, run))
    })
}

pub(crate) fn check_range(offset: u64, len: u64) -> Result<(), Done> {
    match offset.checked_add(len) {
        Some(end) if end <= FILE_SIZE_MAX => Ok(()),
        _ => Err(refused(Errno::EFBIG, "beyond the highest offset of a file")),
    }
}

pub(crate) fn refused(errno: Errno, text: &str) -> Done {
    Done::Refused(Refusal::with(Status::errno(errno), text))
}

#[cfg(test)]
mod tests;
