//! write: inline while the file is small, to all its chunks at once afterwards.

use super::append::Reserved;
use super::seal::{Place, Stuck, may_move};
use super::strays::on;
use crate::job::{Job, To};
use crate::lane::Lane;
use crate::limits::{GATHER_WRITE_MAX, PAGES_PATIENCE_MS, ROOM_KEPT_MS, ROUND_MAX, STALE_ROUNDS_MAX};
use crate::port::{Cell, Port};
use crate::state::{Answered, Begun, FileHandle, Handle, Heard, Shared, Stray, copies};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::pin::pin;
use skep_types::codec::Bytes;
use skep_types::limits::{FILE_SIZE_MAX, INLINE_DEFAULT, TRANSFER_MAX};
use skep_types::{
    Attr, ClientId, Encode, Errno, Generation, Ino, Kind, Layout, Millis, Mode, Piece, SetAttr, TargetId,
    Timestamp,
};
use skep_wire::meta::{AttrReply, WriteInline};
use skep_wire::storage::{Clock, Owner, WriteChunk, WriteChunkReply};
use skep_wire::{Message, Refusal, Status};

/// The suid and sgid bits.
const SETID: u32 = 0o6000;
/// The set-group-id bit.
const SGID: Mode = 0o2000;
/// The group may run it.
const GROUP_RUNS: Mode = 0o010;

/// How one write is done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WriteHow {
    /// An ordinary user writes: suid and sgid are cleared.
    pub kill_suidgid: bool,
    /// Durable when answered, whatever the handle says (RWF_SYNC, RWF_DSYNC).
    pub sync: bool,
    /// At the end of the file, wherever that is when the bytes arrive (O_APPEND).
    pub append: bool,
    /// Pages of a mapping are written back.
    pub from_pages: bool,
    /// The program wants no caches (O_DIRECT).
    pub direct: bool,
}

/// Bytes on their way to chunks.
pub(crate) struct StripeWrite<'a> {
    pub layout: &'a Layout,
    pub offset: u64,
    pub data: &'a [u8],
    pub owner: Owner,
    pub sync: bool,
    /// An append: where it may write, and for how long.
    pub place: Option<&'a Reserved>,
    /// Room is wished for what comes later.
    pub later: bool,
    /// What had waited here: it goes only while the mount holds the file, in this session.
    pub waited: Option<(ClientId, Heard)>,
}

impl<'a> StripeWrite<'a> {
    pub fn new(layout: &'a Layout, offset: u64, data: &'a [u8], owner: Owner) -> Self {
        Self { layout, offset, data, owner, sync: false, place: None, later: false, waited: None }
    }
}

/// What a write must know of its file.
pub(crate) struct View {
    pub layout: Option<Arc<Layout>>,
    pub owner: Owner,
    pub truncations: u32,
    pub begun: Begun,
    /// Content that is kept is to be in its chunks first.
    pub moves: bool,
    /// What is kept is told first: what is written could be taken for older than a time that a program gave.
    pub tells: bool,
    /// Another lane tells that, or brings content to chunks: it is looked at again behind it.
    pub waits: bool,
    /// It is held, and has chunks: small writes to it may wait for one another.
    pub gathers: bool,
    /// Where it ends, as far as is known.
    pub size: u64,
}

/// How a round went.
pub(crate) enum Round {
    Written(usize),
    /// What was known of the file has changed: look again.
    Again,
    /// A part of it has got another place: look again, all else stays.
    Moved,
    /// An append: its place may have gone with a truncate. Has a part of it landed?
    Cut {
        landed: bool,
    },
}

impl Round {
    /// Bytes that are written.
    pub fn landed(&self) -> usize {
        if let Self::Written(n) = self { *n } else { 0 }
    }
}

/// A write of which not all has landed.
pub(crate) struct Failed {
    /// The first reason, and where.
    pub stuck: Stuck,
    /// Bytes from the start without a gap.
    written: usize,
    /// What landed behind that, or may have.
    stray: Vec<Stray>,
    lost: Option<Refusal>,
    fenced: Option<Refusal>,
    /// What had waited here: some of it came later than it counts.
    late: Option<Refusal>,
    /// Some of it because its place may have gone with a truncate.
    cut: bool,
    /// All that failed did so for want of another place.
    may_move: bool,
}

impl<P: Port, C: Cell<Shared>> Lane<P, C> {
    /// Writes `data` at `offset`. Gives the number of bytes written.
    pub async fn write(
        &self,
        handle: Handle,
        offset: u64,
        data: &[u8],
        how: WriteHow,
    ) -> Result<usize, Errno> {
        let (file, _going) = self.through_file(handle)?;
        if !file.mode.writes() {
            return Err(Errno::EBADF);
        }
        if data.is_empty() {
            return Ok(0);
        }
        let sync = file.sync || how.sync;
        let result = match how.append {
            true => self.append(&file, offset, data, WriteHow { sync, ..how }).await,
            false if file.cached || how.from_pages => {
                self.write_at(&file, offset, data, how.kill_suidgid, sync).await
            }
            false => self.write_past_pages(&file, offset, data, WriteHow { sync, ..how }).await,
        };
        let written = self.errno(result)?;
        if !how.from_pages {
            self.before_written(&file, offset, written, how.append).await?;
        }
        if sync {
            let result = async {
                self.commit(file.ino).await?;
                self.sync_shard(file.ino.shard()).await
            };
            self.told(result.await, || self.take_loss(handle))?;
        }
        Ok(written)
    }

    /// As [`Lane::write_at`], past the kernel's pages.
    pub(crate) async fn write_past_pages(
        &self,
        file: &FileHandle,
        offset: u64,
        data: &[u8],
        how: WriteHow,
    ) -> Result<usize, Refusal> {
        let write = pin!(async {
            let stays = !how.sync && !how.direct && self.gather(file.ino, offset, data).await?;
            if stays {
                Ok(data.len())
            } else {
                let written = self.write_at(file, offset, data, how.kill_suidgid, how.sync).await?;
                if written == data.len() && !how.sync && !how.direct {
                    self.small_write_went(file.ino, Some(offset), data.len());
                }
                Ok(written)
            }
        });
        self.past_pages(file.ino, (offset, data), write, |written| *written).await
    }

    /// Before the kernel is told of a write, after which it believes that the file ends there at least.
    async fn before_written(
        &self,
        file: &FileHandle,
        offset: u64,
        written: usize,
        append: bool,
    ) -> Result<(), Errno> {
        let end = offset + written as u64;
        if !file.cached {
            return self.before_grown(file.ino, end, None).await;
        }
        // A page of this very write may be locked until it is answered: such a one has nothing that is old.
        if append {
            let drop = self.shared.with(|s| s.inodes.entry(file.ino).pages.drop_misplaced(offset, end));
            if let Some(drop) = drop {
                self.drop_begun(file.ino, drop, Some(PAGES_PATIENCE_MS)).await;
            }
        } else {
            self.shared.with(|s| s.inodes.entry(file.ino).pages.cached_write(offset, end));
        }
        let _ = self.before_grown(file.ino, end, Some(PAGES_PATIENCE_MS)).await;
        Ok(())
    }

    pub(crate) async fn write_at(
        &self,
        file: &FileHandle,
        offset: u64,
        data: &[u8],
        kill: bool,
        sync: bool,
    ) -> Result<usize, Refusal> {
        if offset >= FILE_SIZE_MAX {
            return Err(Errno::EFBIG.into());
        }
        let room = usize::try_from(FILE_SIZE_MAX - offset).unwrap_or(usize::MAX);
        let data = &data[..data.len().min(room)];
        let mut written = 0;
        for part in data.chunks(ROUND_MAX) {
            let at = offset + written as u64;
            match self.write_part(file, at, part, kill, sync).await {
                Ok(n) => written += n,
                Err(refusal) if written == 0 => return Err(refusal),
                Err(_) => break,
            }
            if written as u64 + offset < at + part.len() as u64 {
                break;
            }
        }
        Ok(written)
    }

    async fn write_part(
        &self,
        file: &FileHandle,
        offset: u64,
        data: &[u8],
        kill: bool,
        sync: bool,
    ) -> Result<usize, Refusal> {
        // An append that stayed from now on would count as before this, and be put over it.
        let _writing = self.begin_writing(file.ino);
        for _ in 0..STALE_ROUNDS_MAX {
            // What was written before comes before it.
            self.put_gathered(file.ino).await?;
            let view = self.shared.with(|s| s.write_view(file.ino));
            let Some(layout) = view.layout.clone() else {
                self.fetch_layout(file.ino).await?;
                continue;
            };
            let end = offset + data.len() as u64;
            if self.waits_for_hold(file.ino, &view, end).await? {
                continue;
            }
            let round = if layout.is_inline() && end <= u64::from(INLINE_DEFAULT) {
                self.write_inline(file.ino, offset, data, kill).await?
            } else if layout.covered() < end {
                self.grow(file.ino, end).await?;
                Round::Again
            } else {
                let later = view.gathers && data.len() <= GATHER_WRITE_MAX;
                let write =
                    StripeWrite { sync, later, ..StripeWrite::new(&layout, offset, data, view.owner) };
                match self.write_chunks(file.ino, &write, &view, kill).await {
                    Err(refusal) if refusal.status == Status::LOST_CHUNK => {
                        self.settle_written(file.ino, offset, end).await?;
                        Round::Again
                    }
                    round => round?,
                }
            };
            if let Round::Written(n) = round {
                return Ok(n);
            }
            if self.port.cancelled() {
                return Err(Errno::EINTR.into());
            }
        }
        Err(super::unsettled(file.ino))
    }

    async fn write_inline(&self, ino: Ino, offset: u64, data: &[u8], kill: bool) -> Result<Round, Refusal> {
        if self.keep_content(ino, offset, data).await? {
            return Ok(Round::Written(data.len()));
        }
        self.tell_first(ino).await?;
        let message = WriteInline {
            append: false,
            ino,
            offset,
            data: Bytes(data.to_vec()),
            kill_suidgid: kill,
            within: None,
        };
        match self.change(ino, &message).await {
            Ok(AttrReply { attr, live }) => {
                self.shared.with(|s| {
                    s.inodes.patch_inline(ino, attr.change, offset, data);
                    if let Some(inode) = s.inodes.get_mut(ino) {
                        inode.live = live.is_some();
                    }
                    s.inodes.merge_own(attr);
                });
                Ok(Round::Written(data.len()))
            }
            Err(refusal) if refusal.status == Status::MUST_GROW => {
                self.grow(ino, offset + data.len() as u64).await?;
                Ok(Round::Again)
            }
            Err(refusal) if refusal.status == Status::STALE_GENERATION => {
                self.fetch_layout(ino).await?;
                Ok(Round::Again)
            }
            Err(refusal) => Err(refusal),
        }
    }

    pub(crate) async fn write_chunks(
        &self,
        ino: Ino,
        write: &StripeWrite<'_>,
        view: &View,
        kill: bool,
    ) -> Result<Round, Refusal> {
        self.shared.with(|s| s.inodes.entry(ino).change_begins());
        let round = self.write_counted(ino, write, view, kill).await;
        self.shared.with(|s| s.inodes.entry(ino).change_ends());
        round
    }

    async fn write_counted(
        &self,
        ino: Ino,
        write: &StripeWrite<'_>,
        view: &View,
        kill: bool,
    ) -> Result<Round, Refusal> {
        if kill {
            // Before the first byte lands: nobody may run changed content with the owner's rights.
            self.kill_suidgid(ino).await?;
        }
        let written = match self.land(ino, write).await? {
            Round::Written(written) => written,
            round => return Ok(round),
        };
        let (end, mtime) = (write.offset + written as u64, self.port.wall());
        let overlapped =
            self.shared.with(|s| s.overlapped(ino, view, end, mtime, write.layout.generation, kill));
        if overlapped {
            // A truncate of this mount was under way: its trim may have cut what was just written, or
            // not. Written again after it, however long that takes, the result is that of one order.
            self.wait_until(|s| s.inodes.entry(ino).truncating == 0).await?;
            return Ok(Round::Again);
        }
        Ok(Round::Written(written))
    }

    /// Brings it to its chunk files; nothing of it is marked.
    pub(crate) async fn land(&self, ino: Ino, write: &StripeWrite<'_>) -> Result<Round, Refusal> {
        let mut result = self.try_stripes(ino, write).await;
        if let Err(failed) = &mut result
            && failed.may_move
        {
            match self.go_on_elsewhere(ino, write.layout, failed.stuck.clone()).await {
                // All of it is written again: what has landed stays where it is.
                Ok(()) if !self.port.cancelled() => return Ok(Round::Moved),
                Ok(()) => failed.stuck = Errno::EINTR.into(),
                Err(refusal) => failed.stuck = refusal.into(),
            }
        }
        match result {
            Ok(written) => Ok(Round::Written(written)),
            // It may be others' as well by now: nothing there is touched.
            Err(Failed { cut: true, fenced: None, written, stray, .. }) => {
                Ok(Round::Cut { landed: written > 0 || !stray.is_empty() })
            }
            Err(failed) => match self.settle_failed(ino, failed).await {
                Ok(written) => Ok(Round::Written(written)),
                Err(refusal) if refusal.status == Status::STALE_GENERATION => {
                    self.fetch_layout(ino).await?;
                    Ok(Round::Again)
                }
                Err(refusal) => Err(refusal),
            },
        }
    }

    /// An ordinary user changes content by something that is no write: suid and sgid go.
    pub async fn drop_suidgid(&self, handle: Handle) -> Result<(), Errno> {
        let (file, _going) = self.through_file(handle)?;
        self.errno(self.kill_suidgid(file.ino).await)
    }

    /// Who changes a file's content without being in its group loses it the set-group-id bit, as on Linux since 6.2,
    /// also where the group may not run it. (Where it may, the change itself clears the bit.) Nothing is sent unless
    /// there is such a bit. `known`: attributes that an answer just brought; gives those after it.
    pub async fn drop_foreign_sgid(
        &self,
        ino: Ino,
        known: Option<&Attr>,
        is_member: impl FnOnce(u32) -> bool,
    ) -> Result<Option<Attr>, Errno> {
        let bits = |attr: &Attr| {
            let bit = attr.kind == Kind::File && attr.mode & (SGID | GROUP_RUNS) == SGID;
            bit.then_some((attr.mode, attr.gid))
        };
        let found = match known {
            Some(attr) => bits(attr),
            None => self.shared.with(|s| s.inodes.get(ino).and_then(|inode| bits(inode.attr.as_ref()?))),
        };
        let Some((mode, group)) = found else { return Ok(None) };
        if is_member(group) {
            return Ok(None);
        }
        let set = SetAttr { mode: Some(mode & !SETID), ..SetAttr::default() };
        self.errno(self.change_attr(ino, set).await).map(Some)
    }

    /// Clears suid and sgid on the shard, if they are set.
    async fn kill_suidgid(&self, ino: Ino) -> Result<(), Refusal> {
        let attr = self.shared.with(|s| s.inodes.get(ino).and_then(|inode| inode.attr.clone()));
        if attr.is_none_or(|attr| attr.mode & SETID != 0) {
            let set = SetAttr { kill_suidgid: true, ..SetAttr::default() };
            self.change_attr(ino, set).await?;
        }
        Ok(())
    }

    /// Writes to all chunks that the range touches, at once.
    pub(crate) async fn try_stripes(&self, ino: Ino, write: &StripeWrite<'_>) -> Result<usize, Failed> {
        let pieces = transfers(write.layout, write.offset, write.data.len());
        let mut sent: Vec<(&Piece, TargetId)> = Vec::with_capacity(pieces.len());
        for piece in &pieces {
            sent.extend(copies::to_change(&piece.stripe).iter().map(|target| (piece, *target)));
        }
        let untils = self.shared.with(|s| s.put_counts_until(write, &sent));
        let each =
            sent.iter().zip(untils).map(|((piece, target), until)| piece_job(write, piece, *target, until));
        let mut jobs: Vec<Job<'_>> = each.collect();
        let asked = self.port.boot();
        self.run(&mut jobs).await;
        // None of the answers was read later.
        let read = self.port.boot();
        // Bytes in front of the first piece that some target of it has not.
        let mut written = pieces.iter().map(|piece| piece.len as usize).sum();
        let mut failed: Option<Stuck> = None;
        let mut movable = true;
        let mut stray: Vec<Stray> = Vec::new();
        let (mut lost, mut fenced): (Option<Refusal>, Option<Refusal>) = (None, None);
        let (mut cut, mut late) = (false, None);
        for ((piece, target), job) in sent.into_iter().zip(&mut jobs) {
            let unsure = job.unsure;
            match job.take().and_then(|reply| reply.read::<WriteChunkReply>()) {
                Ok(reply) => {
                    self.shared.with(|s| s.landed(ino, write, (piece, target), &reply, (asked, read)));
                    if failed.is_some() {
                        stray.push(on(piece, target));
                    }
                }
                Err(refusal) => {
                    if unsure {
                        stray.push(on(piece, target));
                    }
                    match refusal.status {
                        Status::LOST_CHUNK => lost = Some(refusal.clone()),
                        Status::FENCED => fenced = Some(refusal.clone()),
                        Status::CUT_SINCE => cut = true,
                        Status::TOO_LATE => {
                            let clock = refusal.clock.as_deref().copied();
                            self.shared.with(|s| s.gathering.found_late(target, clock, read));
                            late = Some(refusal.clone());
                        }
                        _ => {}
                    }
                    movable &= may_move(&refusal);
                    if failed.is_none() {
                        written = (piece.file_offset - write.offset) as usize;
                        failed = Some(Place::of(piece, target).stuck(refusal));
                    }
                }
            }
        }
        match failed {
            None => Ok(written),
            Some(stuck) => Err(Failed { stuck, written, stray, lost, fenced, late, cut, may_move: movable }),
        }
    }

    /// What a write that failed comes to: the bytes written from the start without a gap; an error when the first byte is
    /// not written.
    pub(crate) async fn settle_failed(&self, ino: Ino, failed: Failed) -> Result<usize, Refusal> {
        let Failed { stuck: Stuck { refusal, .. }, written, stray, lost, fenced, late, .. } = failed;
        if let Some(fenced) = fenced {
            // Its place is not this mount's any more: nothing there is to be touched, and no part of a record is one.
            let nothing = written == 0 && stray.is_empty();
            return Err(if nothing { fenced } else { Errno::EIO.into() });
        }
        if let Some(late) = late {
            // The file may be others' by now: nothing there is to be touched. What has landed did so before that, and the rest goes
            // again if it is not.
            return if written > 0 { Ok(written) } else { Err(late) };
        }
        if refusal.status == Status::STALE_GENERATION {
            return Err(refusal);
        }
        self.forget_strays(ino, stray).await;
        match lost {
            // By an old layout perhaps: then all of it is written again. Part of an append would be a torn record.
            Some(lost) => Err(lost),
            None if written == 0 => Err(refusal),
            None => Ok(written),
        }
    }
}

/// The pieces of a range, none longer than one request may carry.
pub(crate) fn transfers(layout: &Layout, offset: u64, len: usize) -> Vec<Piece> {
    let mut transfers = Vec::new();
    for mut piece in layout.pieces(offset, len as u64) {
        while piece.len > TRANSFER_MAX as u64 {
            transfers.push(Piece { len: TRANSFER_MAX as u64, ..piece });
            piece.file_offset += TRANSFER_MAX as u64;
            piece.local_offset += TRANSFER_MAX as u64;
            piece.len -= TRANSFER_MAX as u64;
        }
        transfers.push(piece);
    }
    transfers
}

fn piece_job<'a>(write: &StripeWrite<'a>, piece: &Piece, target: TargetId, until: Option<Clock>) -> Job<'a> {
    let message = WriteChunk {
        target,
        chunk: piece.chunk,
        offset: piece.local_offset,
        owner: write.owner,
        floor: write.layout.synced_floor(&piece.chunk),
        sync: write.sync,
        uncut: write.place.and_then(|place| place.uncut.get(&(piece.chunk, target)).copied()),
        later: write.later.then_some(true),
        until,
    };
    let start = (piece.file_offset - write.offset) as usize;
    let mut job = Job::new(To::Target(target), WriteChunk::KIND, message.to_bytes(), false);
    let (session, heard) = write.waited.unzip();
    job.bound = write.place.map(|place| place.session).or(session);
    job.waited = heard.map(|heard| (piece.chunk.ino, heard));
    job.payload = &write.data[start..start + piece.len as usize];
    job
}

impl Shared {
    /// A piece is with a target, as that says: it was asked, and its answer read, then at the latest.
    fn landed(
        &mut self,
        ino: Ino,
        write: &StripeWrite<'_>,
        (piece, target): (&Piece, TargetId),
        reply: &WriteChunkReply,
        (asked, read): (Millis, Millis),
    ) {
        let end = piece.local_offset + piece.len;
        let answer = Answered {
            life: reply.life,
            blocks: reply.blocks,
            size: reply.size,
            point: (write.layout.generation, write.layout.trims),
            synced: write.sync.then_some(end.min(reply.size)),
            cuts: reply.cuts,
        };
        self.wrote_chunk(ino, target, piece.chunk, answer);
        if write.later {
            self.gathering.promised(target, reply, asked.plus(ROOM_KEPT_MS), read);
        }
    }

    /// Until when what had waited here counts at each of its targets: while this mount is believed to hold the file. What is sent
    /// again by the same try says the same: if that is over by then, it is refused, and goes round.
    fn put_counts_until(&self, write: &StripeWrite<'_>, sent: &[(&Piece, TargetId)]) -> Vec<Option<Clock>> {
        let waited = write.waited.filter(|_| !self.limits.canary_puts_unheard);
        let end = waited.map(|(_, heard)| self.leases.until(heard.shard));
        sent.iter().map(|(_, target)| Some(self.gathering.counts_until(*target, end?))).collect()
    }

    /// A write that ends at `end` was answered: it is marked, unless a truncate of this mount overlapped it.
    pub(crate) fn overlapped(
        &mut self,
        ino: Ino,
        view: &View,
        end: u64,
        mtime: Timestamp,
        generation: Generation,
        kill: bool,
    ) -> bool {
        let inode = self.inodes.entry(ino);
        if inode.truncating > 0 || inode.truncations != view.truncations {
            return true;
        }
        if inode.wrote_to(end, mtime, generation, kill, view.begun) {
            self.loses(ino);
        }
        false
    }

    pub(crate) fn write_view(&mut self, ino: Ino) -> View {
        let inode = self.inodes.entry(ino);
        let attr = inode.attr.clone().map(|attr| inode.with_mark(attr));
        View {
            // Floors that are too low would let a write hide that something in front of it is lost.
            layout: inode.layout.clone().filter(|_| !inode.layout_old),
            owner: attr
                .map(|attr| Owner { uid: attr.uid, gid: attr.gid, project: attr.project })
                .unwrap_or_default(),
            truncations: inode.truncations,
            begun: inode.begin(),
            moves: inode.has_content_to_move(),
            tells: inode.may_have_told_a_time(),
            waits: inode.is_to_wait_for(),
            gathers: self.limits.gathers && inode.hold.is_some(),
            size: inode.size(),
        }
    }
}
