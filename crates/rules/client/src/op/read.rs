//! read: from the content kept at open, from what was read ahead, or from all chunks at once into the caller's buffer.

use super::seal::{Place, Stuck};
use super::write::transfers;
use crate::job::{Job, To};
use crate::lane::Lane;
use crate::limits::{AHEAD_SMALL, ROUND_MAX, STALE_ROUNDS_MAX, STRIDE_NEAR_MAX};
use crate::port::{Cell, Port};
use crate::state::{Ahead, AsOf, Handle, Inode, Shared, copies};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use skep_types::{Attr, ChunkId, Encode, Errno, Ino, Layout, Millis, Piece, TargetId, Uuid};
use skep_wire::meta::{OpenMode, OpenReply};
use skep_wire::storage::{ReadChunk, ReadChunkReply};
use skep_wire::{Message, Refusal, Status};

/// What a read knows of its file.
enum View {
    /// Done: so many bytes came from the content kept.
    Kept(usize),
    /// The same, from what this mount holds.
    Held(usize),
    /// Some of it waits to be with its targets.
    Waits,
    /// The shard must be asked.
    Unknown,
    /// The content is in the metadata, and not kept.
    Inline,
    Chunks {
        layout: Arc<Layout>,
        size: u64,
        live: bool,
        /// Others have changed the file since the layout came.
        old: bool,
        /// It was cut so often, by the count as of which that is its size at least.
        cuts: u64,
    },
}

/// Where a file ends at least, as its shard and its targets said.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seen {
    pub(super) size: u64,
    /// As of this count of its cuts.
    pub(super) cuts: u64,
}

impl Seen {
    pub(super) fn of(attr: &Attr) -> Self {
        Self { size: attr.size, cuts: attr.cuts }
    }
}

/// How a read was answered.
pub(super) enum Filled {
    Wholly,
    /// A chunk file ended before what was asked of it.
    WithHoles,
}

/// What zeros are where chunk files ended.
enum Hole {
    /// The file has them, up to there: it ends no later than that.
    Up(u64),
    /// It was cut: they may never have been there.
    Unknown(Seen),
}

/// What was seen as a read of a small piece began.
struct Look {
    ahead: Ahead,
    as_of: Option<AsOf>,
    /// Housekeeping has something to ask.
    asks: bool,
    /// To be freed where nobody waits.
    dropped: Vec<Arc<Vec<u8>>>,
}

/// How often targets are asked.
#[derive(Debug, Clone, Copy)]
enum Tries {
    /// As long as an operation may take.
    Many,
    Once,
}

impl<P: Port, C: Cell<Shared>> Lane<P, C> {
    /// Reads at `offset` into `out`; fewer bytes only at the end of the file.
    pub async fn read(&self, handle: Handle, offset: u64, out: &mut [u8]) -> Result<usize, Errno> {
        let (now, boot, len) = (self.port.now(), self.port.boot(), out.len());
        let is_small = self.leases && len <= AHEAD_SMALL;
        // One look at what is known: it costs as much as the rest.
        let (file, _going, (grows, mut look)) = self.through_file_with(handle, |s, file| {
            let grows = s.may_have_grown(file.ino, offset, boot);
            let look = is_small && !grows && file.mode != OpenMode::Write;
            (grows, look.then(|| s.looks_ahead((handle, file.ino), offset, len, now, boot)))
        })?;
        if file.mode == OpenMode::Write {
            return Err(Errno::EBADF);
        }
        let mut seen = None;
        if grows {
            // The kernel asks for nothing before it reads past its pages.
            seen = Some(Seen::of(&self.errno(Box::pin(self.fresh_attr(file.ino)).await)?));
            let (now, boot) = (self.port.now(), self.port.boot());
            let again = |s: &mut Shared| s.looks_ahead((handle, file.ino), offset, len, now, boot);
            look = is_small.then(|| self.shared.with(again));
        }
        if let Some(look) = look
            && let Some(n) = self.read_ahead(handle, file.ino, offset, out, look).await
        {
            return Ok(n);
        }
        self.read_all(file.ino, offset, out, seen).await
    }

    /// As [`Lane::read`], whatever else the program may want soon. `seen`: where it ends at least.
    pub(crate) async fn read_all(
        &self,
        ino: Ino,
        offset: u64,
        out: &mut [u8],
        seen: Option<Seen>,
    ) -> Result<usize, Errno> {
        let mut done = 0;
        for part in out.chunks_mut(ROUND_MAX) {
            let wanted = part.len();
            match self.read_part(ino, offset + done as u64, part, seen).await {
                Ok(n) => done += n,
                Err(refusal) if done == 0 => return self.errno(Err(refusal)),
                Err(_) => break,
            }
            if done % ROUND_MAX != 0 || wanted < ROUND_MAX {
                break;
            }
        }
        Ok(done)
    }

    /// From what was read ahead of a program that reads in order; or now, with what it will ask for next. `None`: it is to be
    /// read alone.
    async fn read_ahead(
        &self,
        handle: Handle,
        ino: Ino,
        offset: u64,
        out: &mut [u8],
        look: Look,
    ) -> Option<usize> {
        let Look { ahead, as_of, asks, dropped } = look;
        drop(dropped);
        if asks {
            self.port.work_waits();
        }
        let window = match ahead {
            Ahead::Here(bytes, at) => return Some(copy_from(&bytes[at..], out)),
            Ahead::Wanted(window) => window,
            Ahead::Strided(guess) => {
                let guess = (guess, as_of?);
                return Box::pin(self.read_strided((handle, ino), offset, out, guess)).await;
            }
            Ahead::No => return None,
        };
        let (as_of, since) = (as_of?, self.port.now());
        let fetched = Box::pin(self.fetch_ahead(ino, offset, out.len(), window)).await;
        let boot = self.port.boot();
        let bytes = match fetched {
            // By now another mount may have cut it: what counts as a hole may be none.
            Ok((_, Filled::WithHoles)) if !self.shared.with(|s| s.is_unchanged(ino, as_of, boot)) => {
                self.shared.with(|s| s.aheads.is_fetched(handle));
                return None;
            }
            Ok((bytes, _)) => bytes,
            Err(tried) => {
                self.shared.with(|s| match tried {
                    0 => s.aheads.is_fetched(handle),
                    _ => s.aheads.give_up(handle, offset, tried),
                });
                return None;
            }
        };
        let n = copy_from(&bytes, out);
        let now = self.port.now();
        let (first, _dropped) = self.shared.with(|s| {
            let first = s.aheads.put(handle, (offset, n), Arc::new(bytes), as_of, (since, now));
            (first, s.aheads.take_dropped())
        });
        if first {
            self.port.work_waits();
        }
        Some(n)
    }

    /// Up to `window` bytes, if that goes without any trouble: what nobody has asked for yet is asked for once, of chunk files
    /// that who reads `len` bytes needs as well, so that he waits for no other target. An error: so many were tried.
    async fn fetch_ahead(
        &self,
        ino: Ino,
        offset: u64,
        len: usize,
        window: usize,
    ) -> Result<(Vec<u8>, Filled), usize> {
        let layout = self.shared.with(|s| {
            let inode = s.inodes.get(ino).filter(|inode| !inode.layout_old)?;
            inode.layout.clone().filter(|layout| offset + window as u64 <= layout.covered())
        });
        let layout = layout.ok_or(window)?;
        let pieces = transfers(&layout, offset, window);
        let asked_end = offset + len as u64;
        let asked: Vec<ChunkId> = pieces
            .iter()
            .take_while(|piece| piece.file_offset < asked_end)
            .map(|piece| piece.chunk)
            .collect();
        let near = pieces.iter().take_while(|piece| asked.contains(&piece.chunk));
        let window = near.map(|piece| piece.len as usize).sum();
        if window <= len {
            return Err(0);
        }
        let mut bytes = alloc::vec![0; window];
        let filled = self.read_stripes(&layout, offset, &mut bytes, Tries::Once).await.map_err(|_| window)?;
        Ok((bytes, filled))
    }

    pub(crate) async fn read_part(
        &self,
        ino: Ino,
        offset: u64,
        out: &mut [u8],
        seen: Option<Seen>,
    ) -> Result<usize, Refusal> {
        // Where the targets said that it ends counts, whatever is in doubt again by now.
        let (mut seen, mut fetched) = (seen, false);
        let mut stopped = None;
        for _ in 0..STALE_ROUNDS_MAX {
            match self.shared.with(|s| s.read_view(ino, offset, out, seen)) {
                View::Kept(n) => return Ok(n),
                View::Held(n) => {
                    let now = self.port.boot();
                    let is_untold =
                        |s: &mut Shared| s.inodes.get(ino).is_some_and(|inode| inode.is_untold(now));
                    // By now others may have changed it. If it cannot be told, this is what is known.
                    if !self.shared.with(is_untold) || self.tell_first(ino).await.is_err() {
                        return Ok(n);
                    }
                }
                View::Waits => {
                    // Else it might never see all of it with its targets, beside one who goes on writing.
                    stopped.get_or_insert_with(|| self.stop_gathering(ino));
                    Box::pin(self.put_gathered(ino)).await?;
                }
                View::Unknown => {
                    self.fetch_layout(ino).await?;
                }
                View::Inline => {
                    let reply = self.fetch_layout(ino).await?;
                    if let Some(n) = inline_part(&reply, offset, out) {
                        return Ok(n);
                    }
                }
                View::Chunks { layout, size, live, old, cuts } => {
                    let end = offset.saturating_add(out.len() as u64);
                    if live && end > size && seen.is_none() {
                        seen = Some(Seen::of(&self.fresh_attr(ino).await?));
                        continue;
                    }
                    let further = seen.filter(|seen| seen.size > size);
                    let Seen { size, cuts } = further.unwrap_or(Seen { size, cuts });
                    if end.min(size) > layout.covered() && !fetched {
                        fetched = true;
                        self.fetch_layout(ino).await?;
                        continue;
                    }
                    let len = size.saturating_sub(offset).min(out.len() as u64) as usize;
                    match self.read_stripes(&layout, offset, &mut out[..len], Tries::Many).await {
                        // Something is missing, of which an old layout cannot say whether it was ever there.
                        Ok(Filled::WithHoles) if old => {
                            self.fetch_layout(ino).await?;
                        }
                        Ok(Filled::WithHoles) => match self.is_hole(ino, cuts, offset + len as u64).await? {
                            Hole::Up(to) => return Ok((to.max(offset) - offset) as usize),
                            Hole::Unknown(now) => (seen, fetched) = (Some(now), false),
                        },
                        Ok(Filled::Wholly) => return Ok(len),
                        Err(stuck) => match stuck.refusal.status {
                            Status::STALE_GENERATION => {
                                (seen, fetched) = (None, false);
                                self.fetch_layout(ino).await?;
                            }
                            Status::LOST_CHUNK => self.settle_loss(ino, offset, end).await?,
                            Status::STALE_LAYOUT => self.go_on_elsewhere(ino, &layout, stuck).await?,
                            _ => return Err(stuck.refusal),
                        },
                    }
                }
            }
            if self.port.cancelled() {
                return Err(Errno::EINTR.into());
            }
        }
        Err(super::unsettled(ino))
    }

    /// Chunk files ended before `end`; the file did not, as of so many cuts, before they were asked. Either nothing was ever written
    /// there, or another mount has cut it meanwhile, and zeros would be shown that never were in it. So it is asked how often it
    /// was cut by now, which costs nothing where that is known by a lease, or because it is held.
    ///
    /// A cut is in force at the shard before any target hears of it, and is counted before the file can grow again: with the same
    /// count no target had it cut to less than the size that is told now.
    async fn is_hole(&self, ino: Ino, cuts: u64, end: u64) -> Result<Hole, Refusal> {
        if self.shared.with(|s| s.limits.canary_reads_cuts_as_holes) {
            return Ok(Hole::Up(end));
        }
        let now = Seen::of(&Box::pin(self.fresh_attr(ino)).await?);
        Ok(if now.cuts > cuts { Hole::Unknown(now) } else { Hole::Up(end.min(now.size)) })
    }

    /// Fills `out` from all chunks that the range touches, at once. Holes are zeros.
    async fn read_stripes(
        &self,
        layout: &Layout,
        offset: u64,
        out: &mut [u8],
        tries: Tries,
    ) -> Result<Filled, Stuck> {
        let pieces = transfers(layout, offset, out.len());
        let mut lens = Vec::with_capacity(pieces.len());
        let mut failed = None;
        {
            let mut rest = &mut *out;
            let mut jobs: Vec<Job<'_>> = Vec::with_capacity(pieces.len());
            for piece in &pieces {
                let (part, later) = rest.split_at_mut(piece.len as usize);
                rest = later;
                jobs.push(reading(piece, part));
            }
            match tries {
                Tries::Many => self.run(&mut jobs).await,
                Tries::Once => self.once_each(&mut jobs).await,
            }
            for (piece, job) in pieces.iter().zip(&mut jobs) {
                let asked = copies::to_read(&piece.stripe);
                let answer = job.take().and_then(|reply| Ok((reply.read::<ReadChunkReply>()?, reply)));
                match answer {
                    Ok((found, _)) if found.size < layout.floor(&piece.chunk) => {
                        failed = failed.or_else(|| Some(super::lost::short().into()));
                    }
                    Ok((_, reply)) => lens.push(reply.payload_len),
                    Err(refusal) => failed = failed.or_else(|| Some(Place::of(piece, asked).stuck(refusal))),
                }
            }
        }
        if let Some(stuck) = failed {
            return Err(stuck);
        }
        let (mut at, mut filled) = (0, Filled::Wholly);
        for (piece, len) in pieces.iter().zip(lens) {
            let end = at + piece.len as usize;
            if at + len < end {
                out[at + len..end].fill(0);
                filled = Filled::WithHoles;
            }
            at = end;
        }
        if at < out.len() {
            // What no extent covers was never written.
            out[at..].fill(0);
            filled = Filled::WithHoles;
        }
        Ok(filled)
    }
}

pub(super) fn reading<'a>(piece: &Piece, into: &'a mut [u8]) -> Job<'a> {
    let Piece { stripe, chunk, local_offset: offset, len, .. } = *piece;
    let target = copies::to_read(&stripe);
    let message = ReadChunk { target, chunk, offset, len: len as u32 };
    let mut job = Job::new(To::Target(target), ReadChunk::KIND, message.to_bytes(), false);
    job.into = into;
    job
}

pub(super) fn copy_from(bytes: &[u8], out: &mut [u8]) -> usize {
    let n = bytes.len().min(out.len());
    out[..n].copy_from_slice(&bytes[..n]);
    n
}

/// A part of inline content; what is missing up to `size` is zeros.
fn copy_inline(data: &[u8], size: u64, offset: u64, out: &mut [u8]) -> usize {
    let len = size.saturating_sub(offset).min(out.len() as u64) as usize;
    let out = &mut out[..len];
    let start = usize::try_from(offset).unwrap_or(usize::MAX).min(data.len());
    let known = (data.len() - start).min(len);
    out[..known].copy_from_slice(&data[start..start + known]);
    out[known..].fill(0);
    len
}

fn inline_part(reply: &OpenReply, offset: u64, out: &mut [u8]) -> Option<usize> {
    let data = reply.inline.as_ref()?;
    Some(copy_inline(&data.0, reply.attr.size, offset, out))
}

impl Shared {
    /// A program reads a small piece.
    fn looks_ahead(
        &mut self,
        (handle, ino): (Handle, Ino),
        offset: u64,
        len: usize,
        now: Millis,
        boot: Millis,
    ) -> Look {
        let as_of = self.unchanged_since(ino, boot);
        let ahead = match (self.aheads.reads(handle, offset, len, as_of, now), as_of) {
            (Ahead::No, Some(as_of)) if !self.is_at_hand(ino, offset, len) => {
                let layout = self.inodes.get(ino).and_then(|inode| inode.layout.as_deref());
                let guesses = |layout| self.aheads.guesses(handle, (offset, len), (as_of.size, layout), now);
                layout.map_or(Ahead::No, guesses)
            }
            (ahead, _) => ahead,
        };
        self.spared.reads += u64::from(matches!(ahead, Ahead::Here(..)));
        let end = offset.saturating_add(len as u64);
        let asks = as_of.is_none() && self.wants_more(ino, end) && self.aheads.asks(handle, now);
        Look { ahead, as_of, asks, dropped: self.aheads.take_dropped() }
    }

    /// Is it long, and with targets of this machine only?
    fn is_at_hand(&self, ino: Ino, offset: u64, len: usize) -> bool {
        let Some(inode) = self.inodes.get(ino).filter(|_| len > STRIDE_NEAR_MAX) else { return false };
        let Some(layout) = inode.layout.as_deref() else { return false };
        let mut touched = layout.touched(offset..offset.saturating_add(len as u64)).flatten();
        touched.all(|stripe| self.is_near(copies::to_read(stripe)))
    }

    fn is_near(&self, target: TargetId) -> bool {
        let machine = self.mounting.machine;
        let node = self.map.target(target).and_then(|target| self.map.node(target.node));
        machine != Uuid::default() && node.is_some_and(|node| node.machine == machine)
    }

    /// Might it be read ahead behind `end` if more were known of it?
    pub(crate) fn wants_more(&self, ino: Ino, end: u64) -> bool {
        let in_chunks = |inode: &Inode| inode.layout.as_ref().is_some_and(|layout| !layout.is_inline());
        self.inodes.get(ino).is_some_and(|inode| {
            !inode.is_written() && inode.opening == 0 && in_chunks(inode) && inode.size() > end
        })
    }

    /// As long as this is the same nothing of the content in its chunk files changes, but what they lose. `None`: it may, or where
    /// they are is not known.
    pub(crate) fn unchanged_since(&mut self, ino: Ino, boot: Millis) -> Option<AsOf> {
        let covered = self.names.covered_end(ino, self.leases.era(ino.shard()));
        let is_believed = covered.is_some_and(|(dir, ..)| self.leases.believes(dir, boot).is_some());
        let inode = self.inodes.get(ino)?;
        let (cover, size) = match covered {
            _ if self.limits.canary_keeps_ahead => (0, inode.size()),
            Some((_, since, size)) if is_believed => (since.number, size),
            _ => return None,
        };
        let is_placed = !inode.layout_old || self.limits.canary_keeps_ahead;
        let in_chunks = inode.size() == size
            && is_placed
            && inode.layout.as_ref().is_some_and(|layout| !layout.is_inline());
        let (opened_to_write, truncations) = (inode.opened_to_write, inode.truncations);
        (in_chunks && !inode.is_written()).then_some(AsOf { cover, opened_to_write, truncations, size })
    }

    /// Has nothing of it changed since?
    pub(super) fn is_unchanged(&mut self, ino: Ino, as_of: AsOf, boot: Millis) -> bool {
        self.limits.canary_reads_cuts_as_holes || self.unchanged_since(ino, boot) == Some(as_of)
    }

    /// A read goes on behind the end that is known: may another mount have moved that? (One that begins before it is answered
    /// with what is there, whether shards can be asked or not; the next one asks.)
    pub(super) fn may_have_grown(&mut self, ino: Ino, offset: u64, boot: Millis) -> bool {
        // Who reads pages is shown what others have changed; what is small, and not covered, goes past them and is no older.
        let checks = self.limits.checks;
        let known = self.inodes.get(ino).filter(|inode| {
            let may_be_old = offset >= inode.size() || checks && inode.inline.is_some();
            may_be_old && (!inode.is_held(boot) || inode.end_is_open())
        });
        let Some(known) = known.filter(|_| !self.limits.canary_keeps_beliefs) else { return false };
        let change = known.attr.as_ref().map_or(0, |attr| attr.change);
        self.covering(ino, boot).is_none_or(|(_, attr)| attr.change != change)
    }

    fn read_view(&self, ino: Ino, offset: u64, out: &mut [u8], seen: Option<Seen>) -> View {
        let Some(inode) = self.inodes.get(ino) else { return View::Unknown };
        if inode.has_run() && !self.limits.canary_reads_unput {
            return View::Waits;
        }
        if let Some(content) = inode.held_content() {
            return View::Held(copy_inline(content, content.len() as u64, offset, out));
        }
        if let (Some(inline), Some(attr)) = (&inode.inline, &inode.attr)
            && seen.is_none_or(|seen| seen.size <= attr.size)
        {
            return View::Kept(copy_inline(&inline.data, attr.size, offset, out));
        }
        match &inode.layout {
            None => View::Unknown,
            Some(layout) if layout.is_inline() => View::Inline,
            Some(layout) => {
                let (size, live) = (inode.size(), inode.end_is_open());
                View::Chunks { layout: layout.clone(), size, live, old: inode.layout_old, cuts: inode.cuts }
            }
        }
    }
}

#[cfg(test)]
mod tests;
