//! fsync and fsyncdir.

use crate::job::{Job, To};
use crate::lane::Lane;
use crate::limits::HELD_ROUNDS_MAX;
use crate::port::{Cell, Port};
use crate::state::{Handle, Shared, Unsynced};
use alloc::vec::Vec;
use skep_types::{Encode, Errno, Ino, ShardId, Term};
use skep_wire::meta::Sync;
use skep_wire::storage::{SyncChunks, SyncChunksReply};
use skep_wire::{Message, Refusal, Status};

impl<P: Port, C: Cell<Shared>> Lane<P, C> {
    /// Everything written to the file, and every change that this mount made on its shard, is on
    /// stable storage; or EIO, once for each handle, when something was lost since.
    pub async fn fsync(&self, handle: Handle) -> Result<(), Errno> {
        let ino = self.shared.with(|s| s.handles.file(handle).map(|file| file.ino))?;
        let result = async {
            self.sync_and_commit(ino).await?;
            self.sync_shard(ino.shard()).await
        };
        let result = result.await;
        let lost = self.take_loss(handle)?;
        self.errno(result)?;
        if lost {
            return Err(Errno::EIO);
        }
        self.shared.with(|s| {
            if let Some(inode) = s.inodes.get_mut(ino) {
                inode.touched.clear();
            }
        });
        Ok(())
    }

    /// Was something of the file lost that this handle has not reported? It has, from now on.
    pub(crate) fn take_loss(&self, handle: Handle) -> Result<bool, Errno> {
        self.shared.with(|s| {
            let file = s.handles.file(handle)?;
            let losses = s.inodes.get(file.ino).map_or(file.losses, |inode| inode.losses);
            Ok(core::mem::replace(&mut file.losses, losses) != losses)
        })
    }

    /// Every change that this mount made on the directory's shard is on stable storage; or EIO, once
    /// for each handle, when some were lost since.
    pub async fn fsyncdir(&self, handle: Handle) -> Result<(), Errno> {
        let ino = self.shared.with(|s| s.handles.dir(handle).map(|dir| dir.ino))?;
        let result = self.sync_shard(ino.shard()).await;
        let lost = self.shared.with(|s| {
            let losses = s.stamps.losses(ino.shard());
            let dir = s.handles.dir(handle)?;
            let lost = dir.losses != losses;
            dir.losses = losses;
            Ok::<bool, Errno>(lost)
        })?;
        self.errno(result)?;
        if lost { Err(Errno::EIO) } else { Ok(()) }
    }

    /// Makes the chunks written through this mount durable, and tells the shard of them, how long they are for sure
    /// included. A truncate in between has them measured again.
    pub(crate) async fn sync_and_commit(&self, ino: Ino) -> Result<(), Refusal> {
        let synced = self.sync_chunks(ino).await?;
        for _ in 0..HELD_ROUNDS_MAX {
            self.commit(ino).await?;
            let dropped =
                |inode: &mut crate::state::Inode| core::mem::replace(&mut inode.held_dropped, false);
            if !self.shared.with(|s| s.inodes.get_mut(ino).is_some_and(dropped)) {
                break;
            }
            self.measure_again(ino, &synced).await;
        }
        Ok(())
    }

    /// Makes the chunks written through this mount durable, and says which. A loss is recorded for every handle.
    pub(crate) async fn sync_chunks(&self, ino: Ino) -> Result<Vec<Unsynced>, Refusal> {
        // Before any is looked at.
        let point = self.shared.with(|s| s.inodes.get(ino).map(crate::state::Inode::looks_at));
        let unsynced = self.shared.with(|s| s.inodes.get(ino).map(|inode| inode.unsynced.clone()));
        let unsynced: Vec<Unsynced> = unsynced.unwrap_or_default();
        if unsynced.is_empty() {
            return Ok(unsynced);
        }
        let mut jobs: Vec<Job<'_>> = unsynced
            .iter()
            .map(|u| {
                let message = SyncChunks { target: u.target, chunks: u.chunks.clone(), life: u.life };
                Job::new(To::Target(u.target), SyncChunks::KIND, message.to_bytes(), false)
            })
            .collect();
        self.run(&mut jobs).await;
        let mut failed = None;
        for (sent, job) in unsynced.iter().zip(&mut jobs) {
            match job.take().and_then(|reply| reply.read::<SyncChunksReply>()) {
                Ok(reply) => self.shared.with(|s| {
                    s.chunks_synced(ino, sent);
                    if let (Some(point), Some(inode)) = (point, s.inodes.get_mut(ino)) {
                        inode.hold_all(&sent.chunks, point, &reply.sizes);
                    }
                }),
                // Chunks of a generation that is gone need no sync.
                Err(refusal) if refusal.status == Status::STALE_GENERATION => {
                    self.shared.with(|s| s.chunks_synced(ino, sent));
                }
                Err(refusal) if refusal.status == Status::LOST_WRITES => {
                    self.port.log(format_args!(
                        "inode {ino}: writes to target {} were lost before they were synced ({refusal}); \
                         fsync fails",
                        sent.target
                    ));
                    self.shared.with(|s| s.chunks_lost(ino, sent));
                }
                Err(refusal) => failed = failed.or(Some(refusal)),
            }
        }
        match failed {
            Some(refusal) => Err(refusal),
            None => Ok(unsynced),
        }
    }

    /// Every change of this mount on `shard` that is acknowledged becomes durable. A loss is recorded.
    pub(crate) async fn sync_shard(&self, shard: ShardId) -> Result<(), Refusal> {
        for (term, index) in self.shared.with(|s| s.stamps.open(shard)) {
            match self.ask(shard, &Sync { term, index }).await {
                Ok(_) => self.shared.with(|s| s.stamps.synced(shard, term, index)),
                Err(refusal) if refusal.status == Status::LOST_HISTORY => self.history_lost(shard, term),
                Err(refusal) => return Err(refusal),
            }
        }
        Ok(())
    }

    pub(crate) fn history_lost(&self, shard: ShardId, term: Term) {
        self.port.log(format_args!(
            "shard {shard} lost acknowledged changes of term {term} that were not synced (a power cut); \
             the next fsync of what was changed fails"
        ));
        self.shared.with(|s| s.lost_history(shard, term));
    }
}

impl Shared {
    /// They are durable, unless written again meanwhile.
    pub(crate) fn chunks_synced(&mut self, ino: Ino, sent: &Unsynced) {
        if let Some(inode) = self.inodes.get_mut(ino) {
            inode.unsynced.retain(|u| u.target != sent.target || u.serial != sent.serial);
        }
    }

    /// They are gone: every handle of the file is told by its next fsync.
    pub(crate) fn chunks_lost(&mut self, ino: Ino, sent: &Unsynced) {
        if let Some(inode) = self.inodes.get_mut(ino) {
            inode.losses += 1;
            inode.unsynced.retain(|u| u.target != sent.target || u.life != sent.life);
        }
    }
}
