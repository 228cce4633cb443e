//! copy_file_range: on the servers where one daemon has both ends, otherwise through this mount.

use super::allocate::changed;
use super::seal::may_move;
use super::strays::everywhere;
use super::write::{StripeWrite, View, WriteHow};
use crate::job::{Job, To};
use crate::lane::Lane;
use crate::limits::{COPY_JOBS_MAX, COPY_MAX, COPY_WINDOW, ROUND_MAX, STALE_ROUNDS_MAX};
use crate::port::{Cell, Port};
use crate::state::{FileHandle, Handle, Shared, Stray, copies};
use alloc::vec::Vec;
use skep_types::limits::{FILE_SIZE_MAX, INLINE_DEFAULT, TRANSFER_MAX};
use skep_types::{ChunkId, Encode, Errno, Generation, Ino, Layout, Piece, Stripe, TargetId};
use skep_wire::meta::OpenMode;
use skep_wire::storage::{
    ChunkReply, CopyChunk, CopyChunkReply, Owner, PunchChunk, ReadChunk, ReadChunkReply, WriteChunkReply,
};
use skep_wire::{Message, Refusal, Status};

/// A run of bytes within one chunk file of the source and one of the copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Segment {
    from: (Stripe, ChunkId),
    from_offset: u64,
    to: (Stripe, ChunkId),
    to_offset: u64,
    len: u64,
    /// Where its first byte is in the copy.
    file_offset: u64,
    /// How short the two chunk files can be.
    floors: (u64, u64),
}

/// What is copied where.
#[derive(Debug, Clone, Copy)]
struct Window {
    from: Ino,
    from_offset: u64,
    to: Ino,
    to_offset: u64,
    len: u64,
}

impl<P: Port, C: Cell<Shared>> Lane<P, C> {
    /// Copies up to `len` bytes from one open file to another, or within one. Gives how many; fewer than
    /// asked is no error, 0 is the end of the source.
    pub async fn copy(&self, from: (Handle, u64), to: (Handle, u64), len: u64) -> Result<u64, Errno> {
        let _going = self.through([Some(from.0), Some(to.0)]);
        let (source, target) =
            self.shared.with(|s| Ok::<_, Errno>((*s.handles.file(from.0)?, *s.handles.file(to.0)?)))?;
        if source.mode == OpenMode::Write || !target.mode.writes() {
            return Err(Errno::EBADF);
        }
        let (from_offset, to_offset) = (from.1, to.1);
        let overlap = from_offset.max(to_offset) < from_offset.min(to_offset).saturating_add(len);
        if source.ino == target.ino && overlap {
            return Err(Errno::EINVAL);
        }
        if len > 0 && to_offset >= FILE_SIZE_MAX {
            return Err(Errno::EFBIG);
        }
        let len = len.min(COPY_MAX).min(FILE_SIZE_MAX - to_offset.min(FILE_SIZE_MAX));
        let mut copied = 0;
        while copied < len {
            let window = Window {
                from: source.ino,
                from_offset: from_offset.saturating_add(copied),
                to: target.ino,
                to_offset: to_offset + copied,
                len: (len - copied).min(COPY_WINDOW),
            };
            match self.copy_past_pages(&target, window).await {
                Ok(0) => break,
                Ok(n) => copied += n,
                Err(refusal) => {
                    // Some of it may have landed. The kernel drops its pages of what succeeds only.
                    self.drop_changed(target.ino, window.to_offset, window.len).await;
                    if copied == 0 {
                        return self.errno(Err(refusal));
                    }
                    break;
                }
            }
        }
        if target.sync
            && copied > 0
            && let Err(errno) = self.fsync(to.0).await
        {
            self.drop_changed(target.ino, to_offset, copied).await;
            return Err(errno);
        }
        // What is copied is. Pages that are not gone by then go with the next answer that tells of the size.
        let _ = self.before_grown(target.ino, to_offset + copied, None).await;
        Ok(copied)
    }

    /// Copies a window of which the kernel's pages know nothing. What daemons copy passes nobody here, so pages cannot
    /// be given its bytes: they wait. Where they are filled again and again, it is read and written, and they need not.
    async fn copy_past_pages(&self, target: &FileHandle, window: Window) -> Result<u64, Refusal> {
        let range = (window.to_offset, window.to_offset + window.len);
        let Some(number) = self.note_copy(window.to, range).await? else {
            return self.copy_small(target, window, true).await;
        };
        let result = self.copy_window(target, window).await;
        let copied = *result.as_ref().unwrap_or(&0);
        self.shared.with(|s| s.inodes.entry(window.to).pages.write_ends(number, copied as usize));
        result
    }

    async fn copy_window(&self, target: &FileHandle, window: Window) -> Result<u64, Refusal> {
        self.shared.with(|s| s.inodes.entry(window.to).change_begins());
        let copied = self.copy_counted(target, window).await;
        self.shared.with(|s| s.inodes.entry(window.to).change_ends());
        copied
    }

    async fn copy_counted(&self, target: &FileHandle, mut window: Window) -> Result<u64, Refusal> {
        // Servers copy what targets have, up to the end that is known here.
        let _stopped = [window.from, window.to].map(|ino| self.stop_gathering(ino));
        self.tell_content_first(window.from).await?;
        self.tell_content_first(window.to).await?;
        for _ in 0..STALE_ROUNDS_MAX {
            let (size, source) = self.file_now(window.from).await?;
            window.len = window.len.min(size.saturating_sub(window.from_offset));
            if window.len == 0 {
                return Ok(0);
            }
            let view = self.shared.with(|s| s.write_view(window.to));
            let Some(layout) = view.layout.clone() else {
                self.fetch_layout(window.to).await?;
                continue;
            };
            let end = window.to_offset + window.len;
            if self.waits_for_hold(window.to, &view, end).await? {
                continue;
            }
            let small = layout.is_inline() && end <= u64::from(INLINE_DEFAULT);
            if source.is_inline() || small {
                return self.copy_small(target, window, false).await;
            }
            if layout.covered() < end {
                self.grow_like(window.to, end, Some(window.from)).await?;
                continue;
            }
            match self.copy_stripes(&source, &layout, &window, view.owner).await {
                Ok(()) => {}
                Err(refusal) if refusal.status == Status::STALE_GENERATION => {
                    self.fetch_layout(window.from).await?;
                    self.fetch_layout(window.to).await?;
                    continue;
                }
                // A target is full, or a layout is old: what is read and written finds another place.
                Err(refusal) if may_move(&refusal) => return self.copy_small(target, window, false).await,
                Err(refusal) if refusal.status == Status::LOST_CHUNK => {
                    // What is lost is to be told, whatever is found out of the source.
                    self.settle_written(window.to, window.to_offset, end).await?;
                    self.settle_loss(window.from, window.from_offset, window.from_offset + window.len)
                        .await?;
                    continue;
                }
                Err(refusal) => return Err(refusal),
            }
            if self.copied(window.to, &view, end, layout.generation).await? {
                return Ok(window.len);
            }
            // The file was cut meanwhile: once more, as a write would do.
            self.wait_until(|s| s.inodes.entry(window.to).truncating == 0).await?;
        }
        Err(super::unsettled(window.to))
    }

    /// Marks a window that ends at `end`. A hole at its end shows in no chunk file: the shard is told where the file
    /// ends before the copy is answered. `false`: the file was cut meanwhile.
    async fn copied(&self, ino: Ino, view: &View, end: u64, generation: Generation) -> Result<bool, Refusal> {
        let mtime = self.port.wall();
        let marked = self.shared.with(|s| {
            if s.overlapped(ino, view, end, mtime, generation, false) {
                return None;
            }
            let inode = s.inodes.get(ino)?;
            let mark = inode.mark.filter(|mark| mark.size >= end)?;
            let told = inode.attr.as_ref().is_some_and(|attr| attr.size >= end);
            let telling = inode.telling().filter(|telling| telling.point.0 == mark.generation);
            Some((mark, inode.cuts, told, telling))
        });
        let Some((mark, cuts, told, telling)) = marked else { return Ok(false) };
        if told {
            return Ok(true);
        }
        match self.commit_once(ino, &mark, cuts, telling, None).await {
            Err(refusal) if refusal.status == Status::CUT_SINCE => {
                self.shared.with(|s| s.inodes.entry(ino).held_is_void());
                Ok(false)
            }
            Err(refusal) if refusal.status == Status::STALE_SIZE => {
                self.learn_end(ino).await?;
                Ok(false)
            }
            result => result.map(|()| true),
        }
    }

    /// A few bytes, of or to the metadata, or to a target that is full: read and written. `past_pages`: nobody has
    /// noted it as such a write.
    async fn copy_small(
        &self,
        target: &FileHandle,
        window: Window,
        past_pages: bool,
    ) -> Result<u64, Refusal> {
        let mut buffer = alloc::vec![0; window.len.min(ROUND_MAX as u64) as usize];
        let n = self.read_part(window.from, window.from_offset, &mut buffer, None).await?;
        if n == 0 {
            return Ok(0);
        }
        let written = match past_pages {
            true => {
                self.write_past_pages(target, window.to_offset, &buffer[..n], WriteHow::default()).await?
            }
            false => self.write_at(target, window.to_offset, &buffer[..n], false, false).await?,
        };
        Ok(written as u64)
    }

    /// Copies a window, wholly or not at all as far as the size tells.
    async fn copy_stripes(
        &self,
        source: &Layout,
        layout: &Layout,
        window: &Window,
        owner: Owner,
    ) -> Result<(), Refusal> {
        let (segments, holes) = plan(source, layout, window);
        let (near, mut far) = self.shared.with(|s| {
            let node = |target| s.map.target(target).map(|entry| entry.node);
            let is_near =
                |segment: &Segment| segment.between().is_some_and(|(from, to)| node(from) == node(to));
            segments.into_iter().partition::<Vec<Segment>, _>(is_near)
        });
        let result = async {
            self.copy_near(window.to, layout, near, &mut far, owner).await?;
            self.copy_far(window.to, layout, far, owner).await?;
            self.punch_pieces(window.to, layout, &holes).await
        };
        let result: Result<(), Refusal> = result.await;
        if result.is_err() {
            let pieces = layout.pieces(window.to_offset, window.len);
            let strays = pieces.iter().flat_map(everywhere).collect();
            self.forget_strays(window.to, strays).await;
        }
        result
    }

    /// By the daemons themselves. Segments that one refuses for not having both ends go to `far`.
    async fn copy_near(
        &self,
        ino: Ino,
        layout: &Layout,
        near: Vec<Segment>,
        far: &mut Vec<Segment>,
        owner: Owner,
    ) -> Result<(), Refusal> {
        let mut open = joined(&near);
        while !open.is_empty() {
            let some = open.drain(..open.len().min(COPY_JOBS_MAX));
            let batch: Vec<(Segment, (TargetId, TargetId))> =
                some.filter_map(|segment| Some((segment, segment.between()?))).collect();
            let mut jobs: Vec<Job<'_>> = batch
                .iter()
                .map(|(segment, (from_target, target))| {
                    let (from_target, target) = (*from_target, *target);
                    let message = CopyChunk {
                        target,
                        chunk: segment.to.1,
                        offset: segment.to_offset,
                        from_target,
                        from_chunk: segment.from.1,
                        from_offset: segment.from_offset,
                        len: segment.len,
                        owner,
                        floor: segment.floors.1,
                        from_floor: segment.floors.0,
                    };
                    Job::new(To::Target(target), CopyChunk::KIND, message.to_bytes(), false)
                })
                .collect();
            self.run(&mut jobs).await;
            for ((segment, (_, target)), job) in batch.into_iter().zip(&mut jobs) {
                match job.take().and_then(|reply| reply.read::<CopyChunkReply>()) {
                    Ok(CopyChunkReply { copied, written }) => {
                        let WriteChunkReply { size, blocks, life, .. } = written;
                        let answer = changed(&ChunkReply { size, blocks, life }, layout);
                        self.shared.with(|s| s.wrote_chunk(ino, target, segment.to.1, answer));
                        open.extend(segment.after(copied.max(1)));
                    }
                    Err(refusal) if is_elsewhere(&refusal) => {
                        let end = segment.from_offset + segment.len;
                        let same =
                            near.iter().filter(|part| (part.from, part.to) == (segment.from, segment.to));
                        // A part may have been copied to its middle before the refusal.
                        far.extend(same.filter_map(|part| part.within(segment.from_offset, end)));
                    }
                    Err(refusal) => return Err(refusal),
                }
            }
            if self.port.cancelled() && !open.is_empty() {
                return Err(Errno::EINTR.into());
            }
        }
        Ok(())
    }

    /// Through this mount, several requests at once.
    async fn copy_far(
        &self,
        ino: Ino,
        layout: &Layout,
        far: Vec<Segment>,
        owner: Owner,
    ) -> Result<(), Refusal> {
        let mut open: Vec<Segment> = far.iter().flat_map(Segment::transfers).collect();
        let mut buffer = alloc::vec![0; if open.is_empty() { 0 } else { ROUND_MAX }];
        while !open.is_empty() {
            let (mut count, mut room) = (0, ROUND_MAX as u64);
            while count < open.len() && open[count].len <= room {
                room -= open[count].len;
                count += 1;
            }
            let batch: Vec<Segment> = open.drain(..count).collect();
            let mut holes = Vec::new();
            let used = self.read_segments(&batch, &mut buffer).await?;
            for (offset, data) in runs(&batch, &buffer[..used], &mut holes) {
                let write = StripeWrite::new(layout, offset, data, owner);
                if let Err(failed) = self.try_stripes(ino, &write).await {
                    // Of a window that fails nothing stays: see `copy_stripes`.
                    return Err(failed.stuck.refusal);
                }
            }
            self.punch_pieces(ino, layout, &holes).await?;
            if self.port.cancelled() && !open.is_empty() {
                return Err(Errno::EINTR.into());
            }
        }
        Ok(())
    }

    /// Reads all segments at once, one behind the other. Gives the bytes; what was short is zeros.
    async fn read_segments(&self, batch: &[Segment], buffer: &mut [u8]) -> Result<usize, Refusal> {
        let mut jobs: Vec<Job<'_>> = Vec::with_capacity(batch.len());
        let mut rest = buffer;
        for segment in batch {
            let (part, later) = rest.split_at_mut(segment.len as usize);
            rest = later;
            part.fill(0);
            let (target, chunk) = (copies::to_read(&segment.from.0), segment.from.1);
            let message = ReadChunk { target, chunk, offset: segment.from_offset, len: segment.len as u32 };
            let mut job = Job::new(To::Target(target), ReadChunk::KIND, message.to_bytes(), false);
            job.into = part;
            jobs.push(job);
        }
        self.run(&mut jobs).await;
        for (segment, job) in batch.iter().zip(&mut jobs) {
            if job.take()?.read::<ReadChunkReply>()?.size < segment.floors.0 {
                return Err(super::lost::short());
            }
        }
        Ok(batch.iter().map(|segment| segment.len as usize).sum())
    }

    /// Makes holes of ranges of chunk files.
    async fn punch_pieces(&self, ino: Ino, layout: &Layout, pieces: &[Piece]) -> Result<(), Refusal> {
        for batch in pieces.chunks(COPY_JOBS_MAX) {
            let strays: Vec<Stray> = batch.iter().flat_map(everywhere).collect();
            let mut jobs: Vec<Job<'_>> = strays
                .iter()
                .map(|stray| {
                    let Stray { target, chunk, local_offset: offset, len, .. } = *stray;
                    let message = PunchChunk { target, chunk, offset, len, unchanged: None };
                    Job::new(To::Target(target), PunchChunk::KIND, message.to_bytes(), false)
                })
                .collect();
            self.run(&mut jobs).await;
            for (stray, job) in strays.iter().zip(&mut jobs) {
                let reply: ChunkReply = job.take()?.read()?;
                let answer = changed(&reply, layout);
                self.shared.with(|s| s.wrote_chunk(ino, stray.target, stray.chunk, answer));
            }
        }
        Ok(())
    }
}

/// The daemon has not both ends, or cannot copy.
fn is_elsewhere(refusal: &Refusal) -> bool {
    matches!(refusal.status.as_errno(), Some(Errno::EXDEV | Errno::EOPNOTSUPP | Errno::ENOSYS))
}

impl Segment {
    /// What is left of it after so many bytes.
    fn after(self, done: u64) -> Option<Self> {
        let len = self.len.checked_sub(done).filter(|len| *len > 0)?;
        Some(Self {
            from_offset: self.from_offset + done,
            to_offset: self.to_offset + done,
            file_offset: self.file_offset + done,
            len,
            ..self
        })
    }

    /// What of it lies between two offsets of the source's chunk file.
    fn within(&self, start: u64, end: u64) -> Option<Self> {
        let rest = self.after(start.saturating_sub(self.from_offset))?;
        let len = end.checked_sub(rest.from_offset).filter(|len| *len > 0)?;
        Some(Self { len: len.min(rest.len), ..rest })
    }

    /// Cut into parts that one request may carry.
    fn transfers(&self) -> Vec<Self> {
        let mut parts = Vec::new();
        let mut rest = Some(*self);
        while let Some(segment) = rest {
            let len = segment.len.min(TRANSFER_MAX as u64);
            parts.push(Self { len, ..segment });
            rest = segment.after(len);
        }
        parts
    }

    /// The two targets, where a daemon may do it by itself.
    fn between(&self) -> Option<(TargetId, TargetId)> {
        copies::to_copy(&self.from.0, &self.to.0)
    }

    fn piece(&self) -> Piece {
        Piece {
            file_offset: self.file_offset,
            len: self.len,
            chunk: self.to.1,
            stripe: self.to.0,
            local_offset: self.to_offset,
        }
    }
}

/// What is to be written of a batch that was read: (offset in the file, bytes), neighbours as one.
/// Zeros become holes.
fn runs<'a>(batch: &[Segment], data: &'a [u8], holes: &mut Vec<Piece>) -> Vec<(u64, &'a [u8])> {
    let mut runs: Vec<(u64, usize, usize)> = Vec::new();
    let mut at = 0;
    for segment in batch {
        let end = at + segment.len as usize;
        if data[at..end].iter().all(|byte| *byte == 0) {
            holes.push(segment.piece());
        } else {
            match runs.last_mut() {
                Some((offset, start, stop))
                    if *stop == at && *offset + (at - *start) as u64 == segment.file_offset =>
                {
                    *stop = end;
                }
                _ => runs.push((segment.file_offset, at, end)),
            }
        }
        at = end;
    }
    runs.into_iter().map(|(offset, start, stop)| (offset, &data[start..stop])).collect()
}

/// Segments that follow one another in both chunk files as one, whatever lies between them in the file.
fn joined(segments: &[Segment]) -> Vec<Segment> {
    let mut joined: Vec<Segment> = Vec::new();
    for segment in segments {
        let follows = |last: &&mut Segment| {
            (last.from, last.to) == (segment.from, segment.to)
                && last.from_offset + last.len == segment.from_offset
                && last.to_offset + last.len == segment.to_offset
        };
        match joined.iter_mut().find(follows) {
            Some(last) => last.len += segment.len,
            None => joined.push(*segment),
        }
    }
    joined
}

/// Cuts a window into segments, and the pieces of the copy that no extent of the source covers.
fn plan(source: &Layout, layout: &Layout, window: &Window) -> (Vec<Segment>, Vec<Piece>) {
    let from = source.pieces(window.from_offset, window.len);
    let covered: u64 = from.iter().map(|piece| piece.len).sum();
    let holes = layout.pieces(window.to_offset + covered, window.len - covered);
    let mut segments: Vec<Segment> = Vec::new();
    let mut to = layout.pieces(window.to_offset, covered).into_iter();
    let mut place = to.next();
    for piece in from {
        let mut done = 0;
        while done < piece.len
            && let Some(at) = place
        {
            let len = at.len.min(piece.len - done);
            let segment = Segment {
                from: (piece.stripe, piece.chunk),
                from_offset: piece.local_offset + done,
                to: (at.stripe, at.chunk),
                to_offset: at.local_offset,
                len,
                file_offset: at.file_offset,
                floors: (source.floor(&piece.chunk), layout.synced_floor(&at.chunk)),
            };
            done += len;
            place = match at.len == len {
                true => to.next(),
                false => Some(Piece {
                    file_offset: at.file_offset + len,
                    local_offset: at.local_offset + len,
                    len: at.len - len,
                    ..at
                }),
            };
            segments.push(segment);
        }
    }
    (segments, holes)
}

#[cfg(test)]
mod tests;
