//! getattr and setattr (chmod, chown, truncate, utimensat).

use super::known::AtHand;
use crate::job::{Job, To};
use crate::lane::Lane;
use crate::limits::{OWN_WAIT_MAX_MS, OWN_WAIT_MIN_MS};
use crate::port::{Cell, Port};
use crate::state::{Handle, Inode, Shared, copies};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::future::poll_fn;
use skep_types::limits::FILE_SIZE_MAX;
use skep_types::{Attr, ChunkId, Encode, Errno, Ino, Layout, SetAttr, Stripe, TargetId, Timestamp};
use skep_wire::meta::{AttrReply, ChangeAttr, GetAttr};
use skep_wire::storage::{ChunkStat, StatChunks, StatChunksReply};
use skep_wire::{Message, Refusal, Status};

impl<P: Port, C: Cell<Shared>> Lane<P, C> {
    /// Attributes of an inode.
    pub async fn getattr(&self, ino: Ino) -> Result<Attr, Errno> {
        let asked = self.asked();
        let attr = self.errno(self.fresh_attr(ino).await)?;
        self.answered(&attr, asked).await?;
        Ok(attr)
    }

    /// Attributes of an open file, with every change of this mount: what the kernel needs of a size while it reads at the end
    /// that it knows, or seeks. Asks the shard unless a lease says that nobody else has changed it.
    pub async fn getattr_open(&self, handle: Handle) -> Result<Attr, Errno> {
        let (asked, boot) = (self.asked(), self.port.boot());
        let (ino, reads_pages, known) = self.shared.with(|s| {
            let file = s.handles.any_file(handle).ok_or(Errno::EBADF)?;
            let (ino, reads_pages) = (file.ino, file.cached && s.limits.checks);
            let is_sure = !s.may_have_grown(ino, u64::MAX, boot);
            let inode = s.inodes.get(ino).filter(|inode| is_sure && !inode.end_is_open());
            let known = inode.and_then(|inode| Some(inode.with_mark(inode.attr.clone()?)));
            Ok::<_, Errno>((ino, reads_pages, known))
        })?;
        let (attr, elsewhere) = match known {
            Some(attr) => (attr, false),
            None => self.errno(self.attr_and_others(ino).await)?,
        };
        if reads_pages {
            self.before_read(&attr, elsewhere).await?;
        }
        self.answered(&attr, asked).await?;
        Ok(attr)
    }

    pub(crate) async fn fresh_attr(&self, ino: Ino) -> Result<Attr, Refusal> {
        self.attr_and_others(ino).await.map(|(attr, _)| attr)
    }

    /// Attributes, and whether others may be writing to the file, by that very answer: of two answers to several who ask the older
    /// one may be taken in last.
    async fn attr_and_others(&self, ino: Ino) -> Result<(Attr, bool), Refusal> {
        let (boot, now) = (self.port.boot(), self.port.now());
        // One look at what is known: most questions need no more.
        let names = match self.shared.with(|s| s.attr_at_hand(ino, boot, now)) {
            AtHand::Attr(attr) => return Ok((attr, false)),
            AtHand::Nothing(names) => names,
            AtHand::Untold => {
                self.tell_untold(ino).await;
                let (boot, now) = (self.port.boot(), self.port.now());
                match self.shared.with(|s| (s.attr_at_hand(ino, boot, now), s.holds.names())) {
                    (AtHand::Attr(attr), _) => return Ok((attr, false)),
                    (_, names) => names,
                }
            }
        };
        if let Some(attr) = self.attr_by_name(ino).await? {
            let boot = self.port.boot();
            // What it said of others is not at hand; a lease knows of none.
            let known = self.shared.with(|s| s.covering(ino, boot).map(|(_, known)| known.change));
            let change = attr.change;
            return Ok((attr, known != Some(change)));
        }
        match self.ask_attr(ino).await {
            Ok(AttrReply { attr, live }) => {
                let elsewhere = live.is_some();
                let shown = self.shown(attr, live).await;
                self.shared.with(|s| s.inodes.get_mut(ino).map(|inode| inode.held_as_of(names)));
                shown.map(|attr| (attr, elsewhere))
            }
            Err(refusal) if is_gone(refusal.status) => {
                let ghost = self.shared.with(|s| {
                    s.ghosts.gone(ino);
                    s.ghosts.get(ino).cloned()
                });
                ghost.map(|attr| (attr, true)).ok_or(refusal)
            }
            Err(refusal) => Err(refusal),
        }
    }

    /// The same of a file whose name the kernel does not ask for, by that name: the answer is covered, and the next look need not
    /// ask. `None`: it leads elsewhere by now, or nowhere.
    async fn attr_by_name(&self, ino: Ino) -> Result<Option<Attr>, Refusal> {
        let told = self.shared.with(|s| s.name_told_of(ino, self.port.boot()));
        let Some((dir, name)) = told else { return Ok(None) };
        match Box::pin(self.find(dir, &name)).await {
            Ok(attr) => Ok((attr.ino == ino).then_some(attr)),
            Err(refusal) if refusal.status.as_errno() == Some(Errno::ENOENT) => Ok(None),
            Err(refusal) if is_gone(refusal.status) => Ok(None),
            Err(refusal) => Err(refusal),
        }
    }

    /// What the shard says of an inode.
    pub(crate) async fn ask_attr(&self, ino: Ino) -> Result<AttrReply, Refusal> {
        let (reply, told) = self.settle_told(self.asking(ino.shard(), &GetAttr { ino })).await;
        let reply: AttrReply = reply?.read()?;
        self.learn_attr(&reply.attr, told.as_deref());
        Ok(reply)
    }

    /// Attributes as this mount's programs shall see them: with its own uncommitted writes, and with
    /// the size that the chunk files give when other mounts are writing.
    pub(crate) async fn shown(&self, attr: Attr, live: Option<Layout>) -> Result<Attr, Refusal> {
        let now = self.shared.with(|s| s.disbeliefs);
        self.shown_as_of(attr, live, now).await
    }

    /// As [`Lane::shown`], of attributes that were told when [`Shared::disbeliefs`] was `told`. The server that told them may
    /// have ended since, and the next one does not know them: nothing but this answer is made of them then.
    pub(crate) async fn shown_as_of(
        &self,
        mut attr: Attr,
        live: Option<Layout>,
        told: u64,
    ) -> Result<Attr, Refusal> {
        let ino = attr.ino;
        // Others write to it: what is known of its end by now is newer.
        let as_told = attr.flags & Attr::AS_TOLD != 0;
        attr.flags &= !Attr::AS_TOLD;
        let doubt = self.shared.with(|s| {
            let is_believed = s.disbeliefs == told;
            let inode = s.inodes.get_mut(ino).filter(|_| is_believed)?;
            inode.learn_cuts(attr.cuts);
            inode.doubt()
        });
        let cuts = attr.cuts;
        let live_size = match &live {
            Some(layout) => Box::pin(self.live_size(layout)).await?,
            None => 0,
        };
        let now = self.port.now();
        let (attr, doubt) = self.shared.with(|s| {
            let mut attr = if s.disbeliefs == told {
                s.acls.seen(ino, attr.change, now);
                if let Some(inode) = s.inodes.get_mut(ino).filter(|_| !as_told) {
                    inode.live = live.is_some();
                    // A cut that is known by now may have come after the targets were asked.
                    inode.live_size = if inode.cuts == attr.cuts { live_size } else { 0 };
                    if let (Some(doubt), Some(_)) = (doubt, &live) {
                        inode.settle(doubt, live_size);
                    }
                }
                s.inodes.merge(attr)
            } else {
                s.inodes.get(ino).map_or(attr.clone(), |inode| inode.newest_with_mark(attr))
            };
            if live_size > attr.size {
                // As of that count: it may have been cut while they were asked.
                (attr.size, attr.cuts) = (live_size, attr.cuts.min(cuts));
            }
            (attr, s.inodes.get_mut(ino).and_then(Inode::doubt))
        });
        if doubt.is_none() {
            return Ok(attr);
        }
        Box::pin(self.settle_mark(ino)).await?;
        Ok(self.shared.with(|s| match s.inodes.get(ino) {
            Some(inode) => inode.newest_with_mark(attr),
            None => attr,
        }))
    }

    /// Where the file ends at least, by its chunk files.
    pub(crate) async fn live_size(&self, layout: &Layout) -> Result<u64, Refusal> {
        let stripes: Vec<(ChunkId, Stripe)> = layout.stripes().map(|(chunk, on)| (chunk, *on)).collect();
        let stats = self.stat_chunks(&stripes).await?;
        let ends = stats.iter().map(|(chunk, stat, _)| {
            let extent = layout.extent_of(chunk);
            extent.map_or(0, |extent| extent.file_size(usize::from(chunk.stripe), stat.size))
        });
        Ok(ends.max().unwrap_or(0).min(FILE_SIZE_MAX))
    }

    /// Lengths of chunk files, one answer for each stripe, with the moment when the life of its target began: of several the
    /// newest.
    pub(crate) async fn stat_chunks(
        &self,
        stripes: &[(ChunkId, Stripe)],
    ) -> Result<Vec<(ChunkId, ChunkStat, Option<Timestamp>)>, Refusal> {
        let mut asked: Vec<(ChunkId, TargetId)> = Vec::with_capacity(stripes.len());
        for (chunk, stripe) in stripes {
            asked.extend(copies::to_change(stripe).iter().map(|target| (*chunk, *target)));
        }
        let mut found: BTreeMap<ChunkId, (ChunkStat, Option<Timestamp>)> = BTreeMap::new();
        for ((chunk, _), stat, since) in self.stat_targets(&asked).await? {
            let together = |(one, newest)| (copies::together(one, stat), since.max(newest));
            let known = found.get(&chunk).copied();
            found.insert(chunk, known.map_or((stat, since), together));
        }
        Ok(found.into_iter().map(|(chunk, (stat, since))| (chunk, stat, since)).collect())
    }

    /// Lengths of chunk files as each target has them, one request to each target, all together.
    pub(crate) async fn stat_targets(
        &self,
        chunks: &[(ChunkId, TargetId)],
    ) -> Result<Vec<((ChunkId, TargetId), ChunkStat, Option<Timestamp>)>, Refusal> {
        let mut by_target: BTreeMap<TargetId, Vec<ChunkId>> = BTreeMap::new();
        for (chunk, target) in chunks {
            by_target.entry(*target).or_default().push(*chunk);
        }
        let messages: Vec<StatChunks> =
            by_target.into_iter().map(|(target, chunks)| StatChunks { target, by: None, chunks }).collect();
        let mut jobs: Vec<Job<'_>> = messages
            .iter()
            .map(|m| Job::new(To::Target(m.target), StatChunks::KIND, m.to_bytes(), false))
            .collect();
        self.run(&mut jobs).await;
        let mut stats = Vec::new();
        for (message, job) in messages.iter().zip(&mut jobs) {
            match job.take().and_then(|reply| reply.read::<StatChunksReply>()) {
                Ok(StatChunksReply { chunks, life_since }) => {
                    let found = message.chunks.iter().copied().zip(chunks);
                    stats.extend(found.map(|(chunk, stat)| ((chunk, message.target), stat, life_since)));
                }
                // Truncated or deleted meanwhile: that generation ends nowhere.
                Err(refusal) if refusal.status == Status::STALE_GENERATION => {}
                Err(refusal) => return Err(refusal),
            }
        }
        Ok(stats)
    }

    /// One chunk file as its target has it, asked once: for what housekeeping does at its own pace.
    pub(crate) async fn look_once(&self, target: TargetId, chunk: ChunkId) -> Result<ChunkStat, Refusal> {
        let look = StatChunks { target, by: None, chunks: alloc::vec![chunk] };
        let job = Job::new(To::Target(target), StatChunks::KIND, look.to_bytes(), false);
        let found: StatChunksReply = self.once(job).await?.read()?;
        found.chunks.first().copied().ok_or_else(|| Status::MALFORMED.into())
    }

    /// Changes attributes.
    pub async fn setattr(&self, ino: Ino, set: SetAttr) -> Result<Attr, Errno> {
        let resizes = set.size.is_some();
        let attr = self.errno(self.change_attr(ino, set).await)?;
        match resizes {
            true => self.resized(&attr).await,
            false => self.before_told(&attr).await?,
        }
        Ok(attr)
    }

    /// As [`Lane::setattr`], through an open file.
    pub async fn setattr_open(&self, handle: Handle, ino: Ino, set: SetAttr) -> Result<Attr, Errno> {
        let (_file, _going) = self.through_file(handle)?;
        self.setattr(ino, set).await
    }

    pub(crate) async fn change_attr(&self, ino: Ino, set: SetAttr) -> Result<Attr, Refusal> {
        if set.size.is_some_and(|size| size > FILE_SIZE_MAX) {
            return Err(Errno::EFBIG.into());
        }
        if let Some(kept) = self.keep_attr(ino, &set).await? {
            return Ok(kept);
        }
        self.tell_first(ino).await?;
        let cuts = set.size.is_some() && !set.grow_only;
        if cuts {
            self.announce_truncate(ino).await?;
        }
        if cuts || set.mtime.is_some() || set.mode.is_some() {
            // The shard must know how long the file is to cut it, and an own later commit must not
            // replace a time that is set now, nor clear suid and sgid that are set now.
            let told = self.commit(ino).await;
            if cuts && told.is_err() {
                self.shared.with(|s| s.truncate_is_given_up(ino));
            }
            told?;
        }
        if !cuts {
            return match self.change_attr_once(ino, &set).await {
                Err(refusal) if is_gone(refusal.status) => {
                    let now = self.port.wall();
                    let ghost = self.shared.with(|s| {
                        s.ghosts.gone(ino);
                        s.ghosts.set(ino, &set, now)
                    });
                    ghost.ok_or(refusal)
                }
                result => result,
            };
        }
        self.shared.with(|s| s.inodes.entry(ino).truncating += 1);
        let result = self.resize(ino, &set).await;
        self.shared.with(|s| s.truncation_ends(ino, result.is_ok()));
        result
    }

    /// A truncate of this mount is about to be sent, not beside an append of this mount: none begins from now on, and those
    /// that had begun have ended. Each call needs [`Shared::truncation_ends`] or [`Shared::truncate_is_given_up`], unless it
    /// fails.
    pub(crate) async fn announce_truncate(&self, ino: Ino) -> Result<(), Refusal> {
        self.shared.with(|s| s.inodes.entry(ino).cutting += 1);
        let waited = self.wait_until(|s| s.inodes.entry(ino).appends == 0).await;
        if waited.is_err() {
            self.shared.with(|s| s.truncate_is_given_up(ino));
        }
        waited
    }

    /// Waits for other operations of this mount; EINTR when the program gives up.
    pub(crate) async fn wait_until(&self, mut holds: impl FnMut(&mut Shared) -> bool) -> Result<(), Refusal> {
        let mut pause = OWN_WAIT_MIN_MS;
        loop {
            // In one look with the first one: nothing that ends in between is missed.
            let number = self.shared.with(|s| if holds(s) { None } else { Some(s.waits.begin()) });
            let Some(number) = number else { return Ok(()) };
            if !self.port.cancelled() {
                let called = poll_fn(|context| self.shared.with(|s| s.waits.poll(number, context)));
                self.port.pause_before(pause, called).await;
            }
            self.shared.with(|s| s.waits.end(number));
            if self.port.cancelled() {
                return Err(Errno::EINTR.into());
            }
            pause = (2 * pause).min(OWN_WAIT_MAX_MS);
        }
    }

    async fn resize(&self, ino: Ino, set: &SetAttr) -> Result<Attr, Refusal> {
        match self.change_attr_once(ino, set).await {
            Err(refusal) if refusal.status == Status::MUST_GROW => {
                self.grow(ino, set.size.unwrap_or(0)).await?;
                self.change_attr_once(ino, set).await
            }
            result => result,
        }
    }

    async fn change_attr_once(&self, ino: Ino, set: &SetAttr) -> Result<Attr, Refusal> {
        let message = ChangeAttr { ino, set: set.clone() };
        let known = self.known_change(ino);
        let AttrReply { attr, live } = self.change(ino, &message).await?;
        let (own, doubtful) = self.shared.with(|s| {
            s.acls.forget(ino);
            if set.size.is_some() && !set.grow_only {
                s.inodes.set_inline(ino, None);
                if let Some(inode) = s.inodes.get_mut(ino) {
                    inode.truncated();
                }
            }
            if let Some(inode) = s.inodes.get_mut(ino) {
                inode.live = live.is_some();
                let is_own = moves(set) && known != 0 && known + 1 == attr.change;
                if set.size.is_some() && !inode.live && is_own {
                    inode.pages.lengthened(attr.size);
                }
            }
            let own = match moves(set) {
                true => s.inodes.merge_own(attr.clone()),
                false => s.inodes.merge(attr.clone()),
            };
            (own, s.inodes.get(ino).is_some_and(Inode::mark_is_doubtful))
        });
        // The kernel takes the answer's size for the file's: what others have not committed counts in it, and what this
        // mount has not, though a cut may have come behind it.
        if live.is_some() || doubtful { Box::pin(self.shown(attr, live)).await } else { Ok(own) }
    }
}

/// Does it move the change counter, whatever the file is like? If not, one that has moved may be another mount's change.
fn moves(set: &SetAttr) -> bool {
    let SetAttr { mode, uid, gid, size, atime, mtime, kill_suidgid: _, grow_only } = set;
    let is_owned = mode.is_some() || uid.is_some() || gid.is_some();
    is_owned || atime.is_some() || mtime.is_some() || size.is_some() && !grow_only
}

/// The shard knows no such inode.
pub(crate) fn is_gone(status: Status) -> bool {
    matches!(status.as_errno(), Some(Errno::ENOENT | Errno::ESTALE))
}

impl Shared {
    /// A truncate of this mount that was announced comes to nothing.
    pub(crate) fn truncate_is_given_up(&mut self, ino: Ino) {
        self.inodes.entry(ino).truncate_is_given_up();
        self.waits.call();
    }

    /// One was answered. After a failure its effect is unknown, so writes that overlapped it are done again all the same.
    pub(crate) fn truncation_ends(&mut self, ino: Ino, done: bool) {
        if let Some(inode) = self.inodes.get_mut(ino) {
            inode.cutting = inode.cutting.saturating_sub(1);
            inode.truncating = inode.truncating.saturating_sub(1);
            if !done {
                inode.truncations += 1;
            }
        }
        self.waits.call();
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{block_on, create, mount, mounted, read, write};
    use skep_types::{SetAttr, SetTime, Timestamp};

    /// Goal: the answer to a change of times or mode shows the size that other mounts have written and not
    /// committed: the kernel takes it for the file's.
    #[test]
    fn a_change_shows_what_others_write() {
        let (cluster, writer) = mounted();
        let other = mount(&cluster);
        let file = create(&writer, b"f");
        write(&writer, &file, 0, &[1; 90_000]);
        cluster.borrow_mut().shard.live = true;
        let given = SetTime::At(Timestamp { secs: 5, nanos: 0 });
        for set in [
            SetAttr { mtime: Some(given), ..SetAttr::default() },
            SetAttr { mode: Some(0o600), ..SetAttr::default() },
            SetAttr { size: Some(100), grow_only: true, ..SetAttr::default() },
        ] {
            assert_eq!(block_on(other.setattr(file.attr.ino, set)).unwrap().size, 90_000);
        }
    }

    /// Goal: what another mount was acknowledged is shown before anybody commits it, also behind a gap that its writer left:
    /// chunk files do not tell such a gap from a part of a write that is still on its way.
    #[test]
    fn what_is_written_behind_a_gap_is_shown() {
        let (cluster, writer) = mounted();
        let other = mount(&cluster);
        let file = create(&writer, b"f");
        write(&writer, &file, 0, &[1; 10_000]);
        write(&writer, &file, 900_000, b"far");
        cluster.borrow_mut().shard.live = true;
        let seen = block_on(other.open(file.attr.ino, crate::testing::READ)).unwrap();
        assert_eq!(block_on(other.getattr(file.attr.ino)).unwrap().size, 900_003);
        assert_eq!(read(&other, &seen, 899_998, 10), *b"\0\0far");
    }
}
