//! write: inline while the file is small, to all its chunks at once afterwards.

use crate::job::{Job, To};
use crate::lane::Lane;
use crate::limits::{ROUND_MAX, STALE_ROUNDS_MAX};
use crate::port::{Cell, Port};
use crate::state::{FileHandle, Handle, Shared};
use alloc::sync::Arc;
use alloc::vec::Vec;
use skep_types::codec::Bytes;
use skep_types::limits::{FILE_SIZE_MAX, INLINE_DEFAULT, TRANSFER_MAX};
use skep_types::{Encode, Errno, Ino, Layout, Piece, SetAttr};
use skep_wire::meta::{AttrReply, WriteInline};
use skep_wire::storage::{Owner, PunchChunk, WriteChunk, WriteChunkReply};
use skep_wire::{Message, Refusal, Status};

/// Pause before a write that overlapped a truncate looks again whether that has ended.
const TRUNCATE_WAIT_MS: u64 = 1;
/// The suid and sgid bits.
const SETID: u32 = 0o6000;

/// How one write is done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WriteHow {
    /// An ordinary user writes: suid and sgid are cleared.
    pub kill_suidgid: bool,
    /// Durable when answered, whatever the handle says (RWF_SYNC, RWF_DSYNC).
    pub sync: bool,
}

/// Bytes on their way to chunks.
pub(crate) struct StripeWrite<'a> {
    pub layout: &'a Layout,
    pub offset: u64,
    pub data: &'a [u8],
    pub owner: Owner,
    pub sync: bool,
}

/// What a write must know of its file.
struct View {
    layout: Option<Arc<Layout>>,
    owner: Owner,
    truncations: u32,
}

/// How a round went.
enum Round {
    Written(usize),
    /// What was known of the file has changed: look again.
    Again,
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
        let file = self.shared.with(|s| s.handles.file(handle).copied())?;
        if !file.mode.writes() {
            return Err(Errno::EBADF);
        }
        if data.is_empty() {
            return Ok(0);
        }
        if offset >= FILE_SIZE_MAX {
            return Err(Errno::EFBIG);
        }
        let room = usize::try_from(FILE_SIZE_MAX - offset).unwrap_or(usize::MAX);
        let data = &data[..data.len().min(room)];
        let sync = file.sync || how.sync;
        let mut written = 0;
        for part in data.chunks(ROUND_MAX) {
            let at = offset + written as u64;
            match self.write_part(&file, at, part, how.kill_suidgid, sync).await {
                Ok(n) => written += n,
                Err(refusal) if written == 0 => return self.errno(Err(refusal)),
                Err(_) => break,
            }
            if written as u64 + offset < at + part.len() as u64 {
                break;
            }
        }
        if sync {
            self.errno(self.commit(file.ino).await)?;
            self.errno(self.sync_shard(file.ino.shard()).await)?;
            if self.take_loss(handle)? {
                return Err(Errno::EIO);
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
        for _ in 0..STALE_ROUNDS_MAX {
            let view = self.shared.with(|s| s.write_view(file.ino));
            let Some(layout) = view.layout.clone() else {
                self.fetch_layout(file.ino).await?;
                continue;
            };
            let end = offset + data.len() as u64;
            let round = if layout.is_inline() && end <= u64::from(INLINE_DEFAULT) {
                self.write_inline(file.ino, offset, data, kill).await?
            } else if layout.covered() < end {
                self.grow(file.ino, end).await?;
                Round::Again
            } else {
                let write = StripeWrite { layout: &layout, offset, data, owner: view.owner, sync };
                self.write_chunks(file.ino, &write, &view, kill).await?
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
        let message =
            WriteInline { append: false, ino, offset, data: Bytes(data.to_vec()), kill_suidgid: kill };
        match self.change_ino(ino, &message).await {
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

    async fn write_chunks(
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
        let written = match self.write_stripes(ino, write).await {
            Ok(written) => written,
            Err(refusal) if refusal.status == Status::STALE_GENERATION => {
                self.fetch_layout(ino).await?;
                return Ok(Round::Again);
            }
            Err(refusal) => return Err(refusal),
        };
        let (end, mtime) = (write.offset + written as u64, self.port.wall());
        let overlapped = self.shared.with(|s| {
            let inode = s.inodes.entry(ino);
            if inode.truncating > 0 || inode.truncations != view.truncations {
                return true;
            }
            inode.wrote_to(end, mtime, write.layout.generation, kill);
            false
        });
        if overlapped {
            // A truncate of this mount was under way: its trim may have cut what was just written, or
            // not. Written again after it, the result is that of one order.
            self.port.pause(TRUNCATE_WAIT_MS).await;
            return Ok(Round::Again);
        }
        Ok(Round::Written(written))
    }

    /// An ordinary user changes content by something that is no write: suid and sgid go.
    pub async fn drop_suidgid(&self, handle: Handle) -> Result<(), Errno> {
        let ino = self.shared.with(|s| s.handles.file(handle).map(|file| file.ino))?;
        self.errno(self.kill_suidgid(ino).await)
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

    /// Writes to all chunks that the range touches, at once. Gives the bytes written from the start
    /// without a gap; an error when the first byte is not written.
    pub(crate) async fn write_stripes(&self, ino: Ino, write: &StripeWrite<'_>) -> Result<usize, Refusal> {
        let pieces = transfers(write.layout, write.offset, write.data.len());
        let mut jobs: Vec<Job<'_>> = Vec::with_capacity(pieces.len());
        for piece in &pieces {
            let message = WriteChunk {
                target: piece.target,
                chunk: piece.chunk,
                offset: piece.local_offset,
                owner: write.owner,
                sync: write.sync,
            };
            let start = (piece.file_offset - write.offset) as usize;
            let mut job = Job::new(To::Target(piece.target), WriteChunk::KIND, message.to_bytes(), false);
            job.payload = &write.data[start..start + piece.len as usize];
            jobs.push(job);
        }
        self.run(&mut jobs).await;
        let mut written = 0;
        let mut failed: Option<Refusal> = None;
        let mut stray: Vec<Piece> = Vec::new();
        for (piece, job) in pieces.iter().zip(&mut jobs) {
            match job.take().and_then(|reply| reply.read::<WriteChunkReply>()) {
                Ok(reply) => {
                    self.shared.with(|s| {
                        let inode = s.inodes.entry(ino);
                        inode.wrote_chunk(piece.target, piece.chunk, reply.life, reply.blocks, write.sync);
                    });
                    match failed {
                        None => written += piece.len as usize,
                        Some(_) => stray.push(*piece),
                    }
                }
                Err(refusal) => failed = failed.or(Some(refusal)),
            }
        }
        match failed {
            Some(refusal) if written == 0 || refusal.status == Status::STALE_GENERATION => Err(refusal),
            Some(_) => {
                self.punch_strays(ino, &stray).await;
                Ok(written)
            }
            None => Ok(written),
        }
    }

    /// What was written behind a failed piece must not show when the file grows later.
    async fn punch_strays(&self, ino: Ino, stray: &[Piece]) {
        let size = self.shared.with(|s| s.inodes.get(ino).map_or(0, |inode| inode.size()));
        for piece in stray {
            if piece.file_offset < size {
                continue;
            }
            let Piece { target, chunk, local_offset: offset, len, .. } = *piece;
            let message = PunchChunk { target, chunk, offset, len };
            let job = Job::new(To::Target(target), PunchChunk::KIND, message.to_bytes(), false);
            if let Err(refusal) = self.once(job).await {
                self.port.log(format_args!("inode {ino}: a part of a failed write stays: {refusal}"));
            }
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

impl Shared {
    fn write_view(&mut self, ino: Ino) -> View {
        let inode = self.inodes.entry(ino);
        let attr = inode.attr.as_ref();
        View {
            layout: inode.layout.clone(),
            owner: attr
                .map(|attr| Owner { uid: attr.uid, gid: attr.gid, project: attr.project })
                .unwrap_or_default(),
            truncations: inode.truncations,
        }
    }
}
