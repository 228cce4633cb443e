//! Fake targets.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use skep_types::{ChunkId, Encode, TargetId};
use skep_wire::storage::{
    ChunkReply, ChunkStat, ReadChunkReply, StatChunksReply, StorageRequest, WriteChunkReply,
};
use skep_wire::{Empty, Refusal, Status};

/// All targets.
pub struct Targets {
    pub chunks: BTreeMap<(TargetId, ChunkId), Vec<u8>>,
    pub dead: BTreeSet<ChunkId>,
    pub life: u64,
    pub synced: usize,
}

impl Default for Targets {
    fn default() -> Self {
        Self { chunks: BTreeMap::new(), dead: BTreeSet::new(), life: 1, synced: 0 }
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
        if let Some(data) = self.chunks.get_mut(&(target, chunk)) {
            data.truncate(size as usize);
        }
    }

    fn len(&self, target: TargetId, chunk: ChunkId) -> u64 {
        self.chunks.get(&(target, chunk)).map_or(0, |data| data.len() as u64)
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
                let empty = Vec::new();
                let data = self.chunks.get(&(m.target, m.chunk)).unwrap_or(&empty);
                let start = (m.offset as usize).min(data.len());
                let n = (data.len() - start).min(m.len as usize);
                into[..n].copy_from_slice(&data[start..start + n]);
                Ok((ReadChunkReply { size: data.len() as u64 }.to_bytes(), n))
            }
            StorageRequest::WriteChunk(m) => {
                alive(&m.chunk)?;
                let data = self.chunks.entry((m.target, m.chunk)).or_default();
                let (start, end) = (m.offset as usize, m.offset as usize + payload.len());
                data.resize(data.len().max(end), 0);
                data[start..end].copy_from_slice(payload);
                let size = data.len() as u64;
                Ok((WriteChunkReply { size, blocks: size.div_ceil(512), life: self.life }.to_bytes(), 0))
            }
            StorageRequest::PunchChunk(m) => {
                alive(&m.chunk)?;
                let data = self.chunks.entry((m.target, m.chunk)).or_default();
                let end = ((m.offset + m.len) as usize).min(data.len());
                let start = (m.offset as usize).min(end);
                data[start..end].fill(0);
                Ok((ChunkReply { size: data.len() as u64, blocks: 0, life: self.life }.to_bytes(), 0))
            }
            StorageRequest::ReserveChunk(m) => {
                alive(&m.chunk)?;
                Ok((
                    ChunkReply { size: self.len(m.target, m.chunk), blocks: 8, life: self.life }.to_bytes(),
                    0,
                ))
            }
            StorageRequest::SyncChunks(m) => {
                if m.life != self.life {
                    return Err(Refusal::new(Status::LOST_WRITES));
                }
                self.synced += m.chunks.len();
                Ok((Empty {}.to_bytes(), 0))
            }
            StorageRequest::StatChunks(m) => {
                let stat =
                    |chunk: &ChunkId| ChunkStat { size: self.len(m.target, *chunk), ..ChunkStat::default() };
                Ok((StatChunksReply { chunks: m.chunks.iter().map(stat).collect() }.to_bytes(), 0))
            }
            _ => Err(Refusal::new(Status::ROLE)),
        }
    }
}
