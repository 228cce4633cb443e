//! fsync and fsyncdir.

use crate::job::{Job, To};
use crate::lane::{Lane, refuse};
use crate::limits::{
    DETACH_SYNC_MS, HELD_ROUNDS_MAX, SYNC_CHUNKS_BATCH, SYNC_CLOSED_BATCH, SYNC_CLOSED_PATIENCE_MS,
    UNSYNCED_TOLD_MAX,
};
use crate::op::attr::is_gone;
use crate::port::{Cell, Port};
use crate::state::{FileHandle, Handle, Inode, Point, Shared, Unsynced};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use skep_types::limits::EXTENTS_MAX;
use skep_types::{Encode, Errno, Ino, ShardId, TargetId, Term};
use skep_wire::meta::Sync;
use skep_wire::storage::{SyncChunks, SyncChunksReply};
use skep_wire::{Message, Refusal, Status};

impl<P: Port, C: Cell<Shared>> Lane<P, C> {
    /// Everything written to the file, and every change that this mount made of it, is on stable storage; or EIO, once for
    /// each handle, when something was lost.
    pub async fn fsync(&self, handle: Handle) -> Result<(), Errno> {
        let (FileHandle { ino, .. }, _going) = self.through_file(handle)?;
        let result = async {
            // Nobody else waits for this mount to tell what is on stable storage.
            self.shared.with(|s| s.inodes.get_mut(ino).map(Inode::end_keeping));
            self.sync_and_commit(ino).await?;
            self.sync_shard(ino.shard()).await
        };
        self.told(result.await, || self.take_loss(handle))?;
        self.shared.with(|s| {
            if s.limits.canary_forgets_touched {
                s.stamps.forget(ino);
            }
        });
        Ok(())
    }

    /// Was something of the file lost since this handle was opened, that it has not reported?
    pub(crate) fn has_loss(&self, handle: Handle) -> bool {
        self.shared.with(|s| match s.handles.any_file(handle) {
            Some(file) => s.untold.owes(file.ino, file.losses.max(file.losses_before)),
            None => false,
        })
    }

    /// Was something of the file lost that this handle has not reported? It has, from now on.
    pub(crate) fn take_loss(&self, handle: Handle) -> Result<bool, Errno> {
        self.shared.with(|s| {
            let file = s.handles.file(handle)?;
            Ok(s.untold.tell(file.ino, &mut file.losses, self.port.caller()))
        })
    }

    /// Every change that this mount made of the directory and its names is on stable storage; or EIO, once for each handle,
    /// when some were lost.
    pub async fn fsyncdir(&self, handle: Handle) -> Result<(), Errno> {
        let ino = self.shared.with(|s| s.handles.dir(handle).map(|dir| dir.ino))?;
        let result = self.sync_shard(ino.shard()).await;
        let take_loss = || {
            self.shared.with(|s| {
                let dir = s.handles.dir(handle)?;
                Ok(s.untold.tell(ino, &mut dir.losses, self.port.caller()))
            })
        };
        self.told(result, take_loss)
    }

    /// What a program is told of a sync: EIO also when something was lost before. Who is killed, or gets another error, was
    /// told of no loss: the next is.
    pub(crate) fn told(
        &self,
        result: Result<(), Refusal>,
        take_loss: impl FnOnce() -> Result<bool, Errno>,
    ) -> Result<(), Errno> {
        let told = self.errno(result);
        if matches!(told, Err(errno) if errno != Errno::EIO) {
            return told;
        }
        if self.port.cancelled() {
            return Err(Errno::EINTR);
        }
        if take_loss()? { Err(Errno::EIO) } else { told }
    }

    /// Makes the chunks written through this mount durable, and tells the shard of them, how long they are for sure
    /// included.
    pub(crate) async fn sync_and_commit(&self, ino: Ino) -> Result<(), Refusal> {
        // What is written while this waits is none of its business; a commit would have to sync anew for it.
        let _stopped = self.stop_gathering(ino);
        if !self.shared.with(|s| s.limits.canary_tells_unput) {
            self.put_gathered(ino).await?;
        }
        let voided = self.voided(ino);
        let synced = self.sync_chunks(ino).await?;
        self.commit_synced(ino, &synced, voided).await?;
        self.settle_short(ino).await
    }

    /// Tells the shard of what is durable now. A truncate since it was found so has it measured again: more was voided
    /// than `voided` then.
    async fn commit_synced(&self, ino: Ino, synced: &[Unsynced], mut voided: u32) -> Result<(), Refusal> {
        for _ in 0..HELD_ROUNDS_MAX {
            self.commit(ino).await?;
            let before = core::mem::replace(&mut voided, self.voided(ino));
            if voided == before {
                break;
            }
            self.measure_again(ino, synced).await;
        }
        Ok(())
    }

    /// A sync found chunk files shorter than what was written to them: is something lost, every handle of the file is told
    /// by its next fsync.
    async fn settle_short(&self, ino: Ino) -> Result<(), Refusal> {
        let open = self
            .shared
            .with(|s| s.inodes.get(ino).filter(|inode| inode.is_short()).map(|inode| inode.too_short));
        let Some(so_far) = open else { return Ok(()) };
        let found = match self.find_loss(ino, 0, u64::MAX).await {
            // Nobody misses what was deleted; who has it open is told.
            Err(refusal) if is_gone(refusal.status) && !self.is_open(ino) => None,
            found => found?,
        };
        self.shared.with(|s| {
            // Of two syncs at the same time one records it; what is found meanwhile is not settled by this look.
            // It may have been forgotten meanwhile, and met anew.
            let is_news =
                |inode: &&mut Inode| (inode.too_short_settled + 1..=inode.too_short).contains(&so_far);
            let is_unknown = s.inodes.get(ino).is_none();
            let mut news = s.inodes.get_mut(ino).filter(is_news);
            news.iter_mut().for_each(|inode| inode.too_short_settled = so_far);
            if found.is_some() && (news.is_some() || is_unknown) {
                s.loses(ino);
            }
        });
        found.map_or(Ok(()), Err)
    }

    fn is_open(&self, ino: Ino) -> bool {
        self.shared.with(|s| s.inodes.get(ino).is_some_and(|inode| inode.uses() > 0))
    }

    /// As [`Lane::settle_short`], in the background: `left` is what looks may take. What could not be looked at waits for a
    /// while, and when somebody was silent, everything does.
    async fn settle_short_within(&self, ino: Ino, left: &mut u64) -> Result<(), Refusal> {
        let begun = self.port.now();
        if *left == 0 || !self.shared.with(|s| s.syncing.may_look(ino, begun)) {
            return Ok(());
        }
        self.port.wanted_for(Some(*left));
        let looked = self.settle_short(ino).await;
        self.port.wanted_for(None);
        let now = self.port.now();
        let took = now.since(begun);
        *left = left.saturating_sub(took);
        self.shared.with(|s| s.looked_at(ino, now, took));
        looked
    }

    fn voided(&self, ino: Ino) -> u32 {
        self.shared.with(|s| s.inodes.get(ino).map_or(0, |inode| inode.held_voided))
    }

    /// Makes the chunks written through this mount durable, and says which. A loss is recorded for every handle.
    pub(crate) async fn sync_chunks(&self, ino: Ino) -> Result<Vec<Unsynced>, Refusal> {
        let (mut synced, failed) = self.sync_files(&[ino], true).await;
        failed.map_or_else(|| Ok(synced.remove(&ino).unwrap_or_default()), Err)
    }

    /// Makes the chunks of files durable that were written through this mount: the one place that does, for fsync
    /// (`patient`: until the targets answer) and for files that were closed (tried once). A loss is recorded for
    /// every handle of its file. Says what was sent of each file, and the first other failure.
    async fn sync_files(
        &self,
        inos: &[Ino],
        patient: bool,
    ) -> (BTreeMap<Ino, Vec<Unsynced>>, Option<Refusal>) {
        let groups = self.shared.with(|s| s.unsynced_of(inos));
        let mut found = (BTreeMap::new(), None);
        if patient {
            let mut jobs: Vec<Job<'_>> = groups.iter().map(SyncGroup::job).collect();
            if !jobs.is_empty() {
                self.run(&mut jobs).await;
            }
            self.groups_answered(groups, jobs, &mut found);
            return found;
        }
        let now = self.port.now();
        for groups in self.shared.with(|s| s.in_turn(groups, now)) {
            let mut jobs: Vec<Job<'_>> = groups.iter().map(SyncGroup::job).collect();
            self.once_in_time(&mut jobs).await;
            self.groups_answered(groups, jobs, &mut found);
        }
        found
    }

    fn groups_answered(
        &self,
        groups: Vec<SyncGroup>,
        jobs: Vec<Job<'_>>,
        (all, failed): &mut (BTreeMap<Ino, Vec<Unsynced>>, Option<Refusal>),
    ) {
        for (group, mut job) in groups.into_iter().zip(jobs) {
            let result = job.take().and_then(|reply| reply.read::<SyncChunksReply>());
            let sizes = result.as_ref().map_or(&[][..], |reply| &reply.sizes);
            let mut sizes = sizes.iter().copied();
            for (ino, point, sent) in group.files {
                let held: Vec<u64> = sizes.by_ref().take(sent.chunks.len()).collect();
                let result = result.as_ref().map(|_| &held[..]);
                if let Err(refusal) = self.chunks_answered(ino, &sent, point, result) {
                    failed.get_or_insert(refusal);
                }
                all.entry(ino).or_default().push(sent);
            }
        }
    }

    /// A target answered for one file: with the lengths of its chunk files, which were looked at after `point` was known.
    fn chunks_answered(
        &self,
        ino: Ino,
        sent: &Unsynced,
        point: Point,
        result: Result<&[u64], &Refusal>,
    ) -> Result<(), Refusal> {
        match result {
            Ok(sizes) => self.shared.with(|s| {
                s.chunks_synced(ino, sent);
                if let Some(inode) = s.inodes.get_mut(ino) {
                    inode.hold_all(&sent.chunks, point, sizes);
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
            Err(refusal) => return Err(refusal.clone()),
        }
        Ok(())
    }

    /// Makes the chunks of files durable, and tells their shards. Err: the first failure; the others are done all the same.
    pub(crate) async fn sync_and_tell(&self, inos: &[Ino], patient: bool) -> Result<(), Refusal> {
        let mut unput = None;
        for ino in inos {
            unput = unput.or(self.put_gathered(*ino).await.err());
        }
        let voided: BTreeMap<Ino, u32> = inos.iter().map(|ino| (*ino, self.voided(*ino))).collect();
        let (synced, failed) = self.sync_files(inos, patient).await;
        let mut failed = unput.or(failed);
        let mut told = Vec::new();
        for ino in inos {
            let voided = voided.get(ino).copied().unwrap_or_default();
            // A change that is sent is waited for.
            let committed = match synced.get(ino) {
                Some(_) if self.port.cancelled() => Err(Errno::EINTR.into()),
                Some(synced) => self.commit_synced(*ino, synced, voided).await,
                None => Ok(()),
            };
            match committed {
                Ok(()) => told.push(*ino),
                Err(refusal) => failed = failed.or(Some(refusal)),
            }
        }
        self.shared.with(|s| told.sort_by_key(|ino| s.syncing.last_look(*ino)));
        let mut left = SYNC_CLOSED_PATIENCE_MS;
        for ino in told {
            let settled = match patient {
                true => self.settle_short(ino).await,
                false => self.settle_short_within(ino, &mut left).await,
            };
            failed = failed.or(settled.err());
        }
        failed.map_or(Ok(()), Err)
    }

    /// Before the session ends: whatever this mount wrote and changed becomes durable, as far as that takes no longer than
    /// [`DETACH_SYNC_MS`]. What is not is said.
    pub(crate) async fn sync_all(&self) {
        let started = self.port.now();
        let left = || DETACH_SYNC_MS.saturating_sub(self.port.now().since(started));
        let unsynced = || {
            self.shared.with(|s| {
                let open = s.inodes.iter().filter(|(_, inode)| inode.wants_sync() || inode.has_run());
                open.map(|(ino, _)| ino).collect::<Vec<Ino>>()
            })
        };
        let mut failed = None;
        self.port.wanted_for(Some(DETACH_SYNC_MS));
        for inos in unsynced().chunks(SYNC_CLOSED_BATCH) {
            let left = left();
            if left == 0 {
                failed = failed.or(Some(Errno::ETIMEDOUT.into()));
                break;
            }
            self.shared.with(|s| s.limits.retry_ms = left);
            failed = failed.or(self.sync_and_tell(inos, true).await.err());
        }
        for shard in self.shared.with(|s| s.stamps.unsettled()) {
            // 0 would be without a limit.
            self.shared.with(|s| s.limits.retry_ms = left().max(1));
            failed = failed.or(self.sync_shard(shard).await.err());
        }
        self.port.wanted_for(None);
        let open = unsynced();
        if let Some(mut why) = failed {
            if why.status == Status::errno(Errno::EINTR) {
                why = refuse(Errno::ETIMEDOUT, format!("no answer within {} s", DETACH_SYNC_MS / 1_000));
            }
            self.port.log(format_args!(
                "unmount: a power cut may take what was written last (files not synced: {}{}): {why}",
                open.len(),
                named(&open)
            ));
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

/// The first of these inodes, as a part of a sentence.
fn named(inos: &[Ino]) -> String {
    let first: Vec<String> = inos.iter().take(UNSYNCED_TOLD_MAX).map(Ino::to_string).collect();
    match inos.len() {
        0 => String::new(),
        n if n > first.len() => format!(", inodes {}, ...", first.join(", ")),
        _ => format!(", inodes {}", first.join(", ")),
    }
}

/// One request to one target, for chunks of some files.
pub(crate) struct SyncGroup {
    pub target: TargetId,
    life: u64,
    /// With what was known of each before it is looked at.
    files: Vec<(Ino, Point, Unsynced)>,
}

impl SyncGroup {
    /// How many files it is for.
    pub(crate) fn files(&self) -> usize {
        self.files.len()
    }

    /// No more than these; the others wait.
    pub(crate) fn keep(&mut self, files: usize) {
        self.files.truncate(files);
    }

    fn count(&self) -> usize {
        self.files.iter().map(|(_, _, unsynced)| unsynced.chunks.len()).sum()
    }

    fn job(&self) -> Job<'static> {
        let chunks = self.files.iter().flat_map(|(_, _, unsynced)| unsynced.chunks.iter().copied()).collect();
        let message = SyncChunks { target: self.target, chunks, life: self.life };
        Job::new(To::Target(self.target), SyncChunks::KIND, message.to_bytes(), false)
    }
}

// What one file has on one target fits into one request.
const _: () = assert!(EXTENTS_MAX <= SYNC_CHUNKS_BATCH);

impl Shared {
    /// What is to be synced of `inos`, in requests of a bounded length.
    pub(crate) fn unsynced_of(&self, inos: &[Ino]) -> Vec<SyncGroup> {
        let mut groups: Vec<SyncGroup> = Vec::new();
        for ino in inos {
            let Some(inode) = self.inodes.get(*ino) else { continue };
            for unsynced in &inode.unsynced {
                let Unsynced { target, life, ref chunks, .. } = *unsynced;
                let fits = |group: &&mut SyncGroup| {
                    (group.target, group.life) == (target, life)
                        && group.count() + chunks.len() <= SYNC_CHUNKS_BATCH
                };
                let files = match groups.iter_mut().find(fits) {
                    Some(group) => &mut group.files,
                    None => {
                        groups.push(SyncGroup { target, life, files: Vec::new() });
                        let last = groups.len() - 1;
                        &mut groups[last].files
                    }
                };
                files.push((*ino, inode.looks_at(), unsynced.clone()));
            }
        }
        groups
    }

    /// They are durable, unless written again meanwhile.
    pub(crate) fn chunks_synced(&mut self, ino: Ino, sent: &Unsynced) {
        if let Some(inode) = self.inodes.get_mut(ino) {
            inode.unsynced.retain(|u| u.target != sent.target || u.serial != sent.serial);
        }
    }

    /// They are gone: every handle of the file is told by its next fsync.
    pub(crate) fn chunks_lost(&mut self, ino: Ino, sent: &Unsynced) {
        if let Some(inode) = self.inodes.get_mut(ino) {
            let known = inode.unsynced.len();
            inode.unsynced.retain(|u| u.target != sent.target || u.life != sent.life);
            // Else another sync of the file, or a write, has found it before, and what is noted of them now may be newer.
            if inode.unsynced.len() < known {
                inode.written_no_more(&sent.chunks);
                self.loses(ino);
            }
        }
    }
}
