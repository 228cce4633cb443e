//! Fake targets.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use skep_types::{ChunkId, Encode, Errno, TargetId, Timestamp};
use skep_wire::storage::{
    ChunkReply, ChunkStat, Clock, CopyChunk, CopyChunkReply, MapChunk, MapChunkReply, ReadChunkReply, Run,
    StatChunks, StatChunksReply, StorageRequest, SyncChunks, SyncChunksReply, WriteChunk, WriteChunkReply,
};
use skep_wire::{Refusal, Status};

/// When the life of every target began: 2026-11-21T12:00:00Z.
const LIFE_SINCE: Timestamp = Timestamp { secs: 1_795_262_400, nanos: 0 };

pub struct Targets {
    pub chunks: BTreeMap<(TargetId, ChunkId), Vec<u8>>,
    pub dead: BTreeSet<ChunkId>,
    pub life: u64,
    pub synced: usize,
    /// A daemon copies between its chunk files.
    pub copies: bool,
    /// Bytes that fit; absent: any number.
    pub capacity: BTreeMap<TargetId, usize>,
    /// Sealed chunk files.
    pub limits: BTreeMap<(TargetId, ChunkId), u64>,
    /// Counts all changes.
    pub changes: u64,
    /// Counts all cuts.
    pub cuts: u64,
    /// Who wishes to bring more is promised room for so much.
    pub promises: Option<u64>,
    /// What their clocks show; `None`: they are of a release that tells nobody.
    pub clock: Option<Clock>,
    /// They have refused so often what came too late.
    pub late: usize,
}

impl Default for Targets {
    fn default() -> Self {
        Self {
            chunks: BTreeMap::new(),
            dead: BTreeSet::new(),
            life: 1,
            synced: 0,
            copies: true,
            capacity: BTreeMap::new(),
            limits: BTreeMap::new(),
            changes: 0,
            cuts: 0,
            promises: None,
            clock: Some(Clock { run: 1, ms: 0 }),
            late: 0,
        }
    }
}

impl Targets {
    /// Deletes chunk files for ever.
    pub fn delete(&mut self, chunk: ChunkId) {
        self.dead.insert(chunk);
        self.chunks.retain(|(_, other), _| *other != chunk);
    }

    /// Cuts a chunk file.
    pub fn trim(&mut self, target: TargetId, chunk: ChunkId, size: u64) {
        self.cuts += 1;
        if let Some(data) = self.chunks.get_mut(&(target, chunk)) {
            data.truncate(size as usize);
        }
    }

    /// Seals a chunk file where it ends.
    pub fn seal(&mut self, target: TargetId, chunk: ChunkId) -> u64 {
        let len = self.len(target, chunk);
        *self.limits.entry((target, chunk)).and_modify(|limit| *limit = len.min(*limit)).or_insert(len)
    }

    fn open(&self, target: TargetId, chunk: ChunkId, end: u64) -> Result<(), Refusal> {
        match self.limits.get(&(target, chunk)) {
            Some(limit) if end > *limit => Err(Refusal::new(Status::STALE_LAYOUT)),
            _ => Ok(()),
        }
    }

    /// Is there room for a chunk file that ends at `end`?
    fn fits(&self, target: TargetId, chunk: ChunkId, end: u64) -> Result<(), Refusal> {
        self.open(target, chunk, end)?;
        let more = end.saturating_sub(self.len(target, chunk)) as usize;
        let of_target = self.chunks.iter().filter(|((on, _), _)| *on == target);
        let used: usize = of_target.map(|(_, data)| data.len()).sum();
        match self.capacity.get(&target) {
            Some(most) if more > 0 && used + more > *most => Err(Errno::ENOSPC.into()),
            _ => Ok(()),
        }
    }

    fn whole(&self, target: TargetId, chunk: ChunkId, floor: u64) -> Result<(), Refusal> {
        if self.len(target, chunk) < floor { Err(Refusal::new(Status::LOST_CHUNK)) } else { Ok(()) }
    }

    fn sync(&mut self, m: &SyncChunks) -> Result<Vec<u8>, Refusal> {
        if m.life != self.life {
            return Err(Refusal::new(Status::LOST_WRITES));
        }
        self.synced += m.chunks.len();
        let sizes = m.chunks.iter().map(|chunk| self.len(m.target, *chunk)).collect();
        Ok(SyncChunksReply { sizes }.to_bytes())
    }

    fn stats(&self, m: &StatChunks) -> StatChunksReply {
        let stat = |chunk: &ChunkId| ChunkStat {
            size: self.len(m.target, *chunk),
            changes: Some(self.changes),
            cuts: Some(self.cuts),
            ..ChunkStat::default()
        };
        StatChunksReply { chunks: m.chunks.iter().map(stat).collect(), life_since: Some(LIFE_SINCE) }
    }

    fn len(&self, target: TargetId, chunk: ChunkId) -> u64 {
        self.chunks.get(&(target, chunk)).map_or(0, |data| data.len() as u64)
    }

    /// Blocks of 512 bytes that are not all zeros; at most two runs in an answer.
    fn map(&self, m: &MapChunk) -> MapChunkReply {
        let empty = Vec::new();
        let data = self.chunks.get(&(m.target, m.chunk)).unwrap_or(&empty);
        let (mut runs, mut until) = (Vec::<Run>::new(), u64::MAX);
        for (number, block) in data.chunks(512).enumerate() {
            let (start, end) = (number as u64 * 512, number as u64 * 512 + block.len() as u64);
            if end <= m.offset || block.iter().all(|byte| *byte == 0) {
                continue;
            }
            let full = runs.len() == 2;
            match runs.last_mut() {
                Some(run) if run.end == start => run.end = end,
                _ if full => {
                    until = start;
                    break;
                }
                _ => runs.push(Run { start: start.max(m.offset), end }),
            }
        }
        let sealed = self.limits.get(&(m.target, m.chunk)).copied();
        MapChunkReply { runs, until, size: data.len() as u64, sealed }
    }

    fn copy(&mut self, m: &CopyChunk) -> CopyChunkReply {
        self.changes += 1;
        // In small parts, as a daemon that bounds its answers does.
        let copied = m.len.min(5_000);
        let mut data = alloc::vec![0; copied as usize];
        if let Some(from) = self.chunks.get(&(m.from_target, m.from_chunk)) {
            let start = (m.from_offset as usize).min(from.len());
            let n = (from.len() - start).min(data.len());
            data[..n].copy_from_slice(&from[start..start + n]);
        }
        let to = self.chunks.entry((m.target, m.chunk)).or_default();
        let (start, end) = (m.offset as usize, m.offset as usize + data.len());
        to.resize(to.len().max(end), 0);
        to[start..end].copy_from_slice(&data);
        let size = to.len() as u64;
        let written = WriteChunkReply {
            size,
            blocks: size.div_ceil(512),
            life: self.life,
            cuts: None,
            room: None,
            clock: None,
        };
        CopyChunkReply { copied, written }
    }

    fn write(&mut self, m: &WriteChunk, payload: &[u8]) -> Result<WriteChunkReply, Refusal> {
        if let (Some(now), Some(until)) = (self.clock, m.until)
            && (now.run != until.run || now.ms > until.ms)
        {
            self.late += 1;
            return Err(Refusal { clock: Some(Box::new(now)), ..Refusal::new(Status::TOO_LATE) });
        }
        self.whole(m.target, m.chunk, m.floor)?;
        if m.uncut.is_some_and(|seen| seen != self.cuts) {
            return Err(Refusal::new(Status::CUT_SINCE));
        }
        self.fits(m.target, m.chunk, m.offset + payload.len() as u64)?;
        self.changes += 1;
        let data = self.chunks.entry((m.target, m.chunk)).or_default();
        let (start, end) = (m.offset as usize, m.offset as usize + payload.len());
        data.resize(data.len().max(end), 0);
        data[start..end].copy_from_slice(payload);
        let size = data.len() as u64;
        Ok(WriteChunkReply {
            size,
            blocks: size.div_ceil(512),
            life: self.life,
            cuts: Some(self.cuts),
            room: self.promises.filter(|_| m.later == Some(true)),
            clock: self.clock.filter(|_| m.later == Some(true)),
        })
    }

    pub fn request(
        &mut self,
        request: &StorageRequest,
        payload: &[u8],
        into: &mut [u8],
    ) -> Result<(Vec<u8>, usize), Refusal> {
        let alive = |chunk: &ChunkId| match self.dead.contains(chunk) {
            true => Err(Refusal::new(Status::STALE_GENERATION)),
            false => Ok(()),
        };
        match request {
            StorageRequest::ReadChunk(m) => {
                alive(&m.chunk)?;
                self.open(m.target, m.chunk, m.offset + u64::from(m.len))?;
                let data = self.chunks.get(&(m.target, m.chunk)).map_or(&[][..], Vec::as_slice);
                let start = (m.offset as usize).min(data.len());
                let n = (data.len() - start).min(m.len as usize);
                into[..n].copy_from_slice(&data[start..start + n]);
                Ok((ReadChunkReply { size: data.len() as u64 }.to_bytes(), n))
            }
            StorageRequest::WriteChunk(m) => {
                alive(&m.chunk)?;
                self.write(m, payload).map(|reply| (reply.to_bytes(), 0))
            }
            StorageRequest::PunchChunk(m) => {
                alive(&m.chunk)?;
                self.open(m.target, m.chunk, m.offset + m.len)?;
                if m.unchanged.is_some_and(|seen| seen != self.changes) {
                    return Err(Errno::EAGAIN.into());
                }
                self.changes += 1;
                let data = self.chunks.entry((m.target, m.chunk)).or_default();
                let end = ((m.offset + m.len) as usize).min(data.len());
                let start = (m.offset as usize).min(end);
                data[start..end].fill(0);
                Ok((ChunkReply { size: data.len() as u64, blocks: 0, life: self.life }.to_bytes(), 0))
            }
            StorageRequest::ReserveChunk(m) => {
                alive(&m.chunk)?;
                self.fits(m.target, m.chunk, m.offset + m.len)?;
                Ok((
                    ChunkReply { size: self.len(m.target, m.chunk), blocks: 8, life: self.life }.to_bytes(),
                    0,
                ))
            }
            StorageRequest::SyncChunks(m) => self.sync(m).map(|body| (body, 0)),
            StorageRequest::StatChunks(m) => Ok((self.stats(m).to_bytes(), 0)),
            StorageRequest::MapChunk(m) => {
                alive(&m.chunk)?;
                Ok((self.map(m).to_bytes(), 0))
            }
            StorageRequest::CopyChunk(m) => {
                alive(&m.chunk)?;
                alive(&m.from_chunk)?;
                if !self.copies {
                    return Err(Errno::EXDEV.into());
                }
                self.open(m.from_target, m.from_chunk, m.from_offset + m.len)?;
                self.fits(m.target, m.chunk, m.offset + m.len)?;
                self.whole(m.from_target, m.from_chunk, m.from_floor)?;
                self.whole(m.target, m.chunk, m.floor)?;
                Ok((self.copy(m).to_bytes(), 0))
            }
            _ => Err(Refusal::new(Status::ROLE)),
        }
    }
}
