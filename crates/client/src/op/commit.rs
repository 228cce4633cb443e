//! Commit: tells the shard how far and when chunks were written.

use crate::lane::Lane;
use crate::port::{Cell, Port};
use crate::state::{Inode, Mark, Shared};
use alloc::sync::Arc;
use alloc::vec::Vec;
use skep_types::{ChunkId, Ino, Layout, TargetId};
use skep_wire::meta::{AttrReply, Commit};
use skep_wire::{Refusal, Status};

impl<P: Port, C: Cell<Shared>> Lane<P, C> {
    /// Commits what is marked, if anything is.
    pub(crate) async fn commit(&self, ino: Ino) -> Result<(), Refusal> {
        let shared = |inode: &Inode| inode.live && inode.mark.is_some();
        if self.shared.with(|s| s.inodes.get(ino).is_some_and(shared)) {
            // Another writer may have cut the file since: the chunk files tell. Without an answer the
            // commit fails as well.
            self.fresh_attr(ino).await?;
        }
        let marked = self.shared.with(|s| {
            let inode = s.inodes.get(ino)?;
            Some((inode.mark?, inode.layout.clone()))
        });
        let Some((mark, layout)) = marked else { return Ok(()) };
        let blocks = match layout {
            Some(layout) if layout.generation == mark.generation => self.blocks(ino, &layout).await,
            _ => None,
        };
        let Mark { size, mtime, generation, kill_suidgid, serial } = mark;
        let message = Commit { ino, generation, size, mtime, blocks, kill_suidgid };
        let result = self.change_ino(ino, &message).await;
        let stale = matches!(&result, Err(refusal) if refusal.status == Status::STALE_GENERATION);
        self.shared.with(|s| {
            let committed = result.is_ok() || stale;
            if let Some(inode) = s.inodes.get_mut(ino)
                && committed
                && inode.mark.is_some_and(|mark| mark.serial == serial)
            {
                inode.mark = None;
            }
            if let Ok(AttrReply { attr, .. }) = &result {
                s.inodes.merge_own(attr.clone());
            }
        });
        match result {
            Ok(_) => Ok(()),
            // The file was truncated meanwhile: what was written before is gone, and its size with it.
            Err(_) if stale => Ok(()),
            Err(refusal) => Err(refusal),
        }
    }

    /// 512-byte blocks of all chunk files: those that this mount has not written are asked for.
    async fn blocks(&self, ino: Ino, layout: &Arc<Layout>) -> Option<u64> {
        let missing: Vec<(ChunkId, TargetId)> = self.shared.with(|s| {
            let known = s.inodes.get(ino).map(|inode| &inode.blocks);
            let unknown = |chunk: &ChunkId| known.is_none_or(|known| !known.contains_key(chunk));
            layout.chunks().filter(|(chunk, _)| unknown(chunk)).collect()
        });
        let stats = if missing.is_empty() { Vec::new() } else { self.stat_chunks(&missing).await.ok()? };
        self.shared.with(|s| {
            let inode = s.inodes.get_mut(ino)?;
            for (chunk, stat) in stats {
                inode.blocks.entry(chunk).or_insert(stat.blocks);
            }
            Some(layout.chunks().filter_map(|(chunk, _)| inode.blocks.get(&chunk)).sum())
        })
    }
}
