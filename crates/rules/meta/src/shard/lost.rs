//! Chunk files of which something is lost, as clients found them: for people.

use super::Shard;
use crate::group::Host;
use crate::limit::{LOST_CHUNKS_MAX, LOST_FOR_MS};
use crate::store::{Store, StoreError};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::ToString;
use skep_types::{ChunkId, ClientId, Ino, Millis};
use skep_wire::meta::{ReadInline, Repair};

/// What was found since the start, is not repaired or cut off, and was met within the last hour.
#[derive(Debug, Default)]
pub struct LostChunks {
    /// When they were met last.
    chunks: BTreeMap<ChunkId, Millis>,
    times: u64,
}

fn is_recent(now: Millis, met: Millis) -> bool {
    now.since(met) < LOST_FOR_MS
}

impl LostChunks {
    /// The file is repaired, cut, or gone.
    pub fn forget(&mut self, ino: Ino) {
        self.chunks.retain(|chunk, _| chunk.ino != ino);
    }

    fn recent(&self, now: Millis) -> impl Iterator<Item = &ChunkId> {
        self.chunks.iter().filter(move |(_, met)| is_recent(now, **met)).map(|(chunk, _)| chunk)
    }

    /// How many chunk files.
    pub fn len(&self, now: Millis) -> usize {
        self.recent(now).count()
    }

    /// A file that has one; 0 = none has.
    pub fn example(&self, now: Millis) -> u64 {
        self.recent(now).next().map_or(0, |chunk| chunk.ino.0)
    }

    /// A client met this one. Says whether that is news.
    fn met(&mut self, chunk: ChunkId, now: Millis) -> bool {
        if let Some(met) = self.chunks.get_mut(&chunk) {
            return !is_recent(now, core::mem::replace(met, now));
        }
        if self.chunks.len() >= LOST_CHUNKS_MAX {
            self.chunks.retain(|_, met| is_recent(now, *met));
        }
        let room = self.chunks.len() < LOST_CHUNKS_MAX;
        if room {
            self.chunks.insert(chunk, now);
        }
        room
    }

    /// How often programs got an error for it.
    pub fn times(&self) -> u64 {
        self.times
    }
}

impl Shard {
    /// A client found chunk files shorter than their floors. That is a loss if the file was not cut since it learned
    /// the floors. One that it found lost before, and long enough now, was put back.
    pub(super) fn note_lost<S: Store>(
        &mut self,
        host: &mut Host<S>,
        m: &ReadInline,
    ) -> Result<(), StoreError> {
        let Some(inode) = self.inode(host, m.ino)? else { return Ok(()) };
        let layout = &inode.layout;
        if layout.trims != m.trims || self.is_trimming(host, m.ino)? {
            return Ok(());
        }
        for found in m.short.iter().filter(|found| found.size >= layout.floor(&found.chunk)) {
            self.lost.chunks.remove(&found.chunk);
        }
        let layout = &inode.layout;
        let lost = m.short.iter().filter(|found| found.size < layout.floor(&found.chunk));
        let mut any = false;
        for found in lost {
            any = true;
            if !self.lost.met(found.chunk, host.now) {
                continue;
            }
            let (chunk, floor) = (found.chunk, layout.floor(&found.chunk));
            let stripe = layout.stripe(&chunk).map(ToString::to_string).unwrap_or_default();
            host.out.warn(format!(
                "inode {}: chunk file {}.{}.{}.{} of {stripe} has {} bytes, at least {floor} were there: \
                 something of it is lost and reads give EIO; put it back from a backup, or give it up with `skep \
                 entry repair PATH --zero`",
                m.ino.0, chunk.ino, chunk.generation, chunk.extent, chunk.stripe, found.size
            ));
        }
        self.lost.times += u64::from(any);
        Ok(())
    }

    /// What is lost of a file was given up: the one line that stays of it.
    pub(super) fn note_repair<S: Store>(&self, host: &mut Host<S>, m: &Repair, client: ClientId) {
        let who = match client {
            ClientId(0) => "an administrator's command".to_string(),
            client => format!("the mount of client {client}"),
        };
        host.out.warn(format!(
            "inode {}: what is lost of {} chunk files was given up by {who}: it reads as zeros",
            m.ino.0,
            m.found.len()
        ));
    }
}
