//! Commit: tells the shard how far and when chunks were written.

use crate::lane::Lane;
use crate::limits::STALE_ROUNDS_MAX;
use crate::port::{Cell, Port};
use crate::state::{Mark, Shared};
use alloc::sync::Arc;
use alloc::vec::Vec;
use skep_types::{ChunkId, Ino, Layout, TargetId};
use skep_wire::meta::{AttrReply, Commit};
use skep_wire::{Refusal, Status};

impl<P: Port, C: Cell<Shared>> Lane<P, C> {
    /// Commits what is marked, if anything is.
    pub(crate) async fn commit(&self, ino: Ino) -> Result<(), Refusal> {
        for _ in 0..STALE_ROUNDS_MAX {
            self.settle_mark(ino).await?;
            let marked = self.shared.with(|s| {
                let inode = s.inodes.get(ino)?;
                Some((inode.mark?, inode.cuts, inode.layout.clone()))
            });
            let Some((mark, cuts, layout)) = marked else { return Ok(()) };
            let blocks = match layout {
                Some(layout) if layout.generation == mark.generation => self.blocks(ino, &layout).await,
                _ => None,
            };
            match self.commit_once(ino, &mark, cuts, blocks).await {
                // Another mount has cut the file since: the targets tell what is left.
                Err(refusal) if refusal.status == Status::STALE_SIZE => {
                    self.fresh_attr(ino).await?;
                }
                result => return result,
            }
        }
        Err(super::unsettled(ino))
    }

    pub(crate) async fn commit_once(
        &self,
        ino: Ino,
        mark: &Mark,
        cuts: u64,
        blocks: Option<u64>,
    ) -> Result<(), Refusal> {
        let Mark { size, mtime, time_sets, generation, kill_suidgid, serial, .. } = *mark;
        let message = Commit { ino, generation, size, cuts, mtime, time_sets, blocks, kill_suidgid };
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

    /// Where the file was cut since something of the mark was written, the targets tell what is left of it.
    pub(crate) async fn settle_mark(&self, ino: Ino) -> Result<(), Refusal> {
        for _ in 0..STALE_ROUNDS_MAX {
            let doubt = self.shared.with(|s| {
                let inode = s.inodes.get_mut(ino)?;
                Some((inode.doubt()?, inode.layout.clone()))
            });
            match doubt {
                None => return Ok(()),
                Some((_, None)) => drop(self.fetch_layout(ino).await?),
                Some((doubt, Some(layout))) => {
                    let end = self.live_size(&layout).await?;
                    self.shared.with(|s| s.inodes.get_mut(ino).map(|inode| inode.settle(doubt, end)));
                }
            }
        }
        Err(super::unsettled(ino))
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
