//! fallocate: reserve (with or without keeping the size) and punch.

use super::seal::{Place, Stuck};
use super::write::View;
use crate::job::{Job, To};
use crate::lane::Lane;
use crate::limits::STALE_ROUNDS_MAX;
use crate::port::{Cell, Port};
use crate::state::{Answered, Handle, Shared, copies};
use alloc::boxed::Box;
use alloc::vec::Vec;
use skep_types::codec::Bytes;
use skep_types::limits::{FILE_SIZE_MAX, INLINE_DEFAULT};
use skep_types::{ChunkId, Encode, Errno, Ino, Layout, SetAttr, Stripe, TargetId};
use skep_wire::meta::WriteInline;
use skep_wire::storage::{ChunkReply, PunchChunk, ReserveChunk};
use skep_wire::{Message, Refusal, Status};

/// Stretches that are asked for at once.
const STRETCHES_AT_ONCE: usize = 64;
/// Chunks that an extent may share its range with others for, for each to be looked at.
const SHARED_CHUNKS_MAX: u64 = 4_096;

/// What fallocate shall do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Allocate {
    /// Reserve space; the file grows to the end of the range (mode 0).
    Extend,
    /// Reserve space; the size stays (`FALLOC_FL_KEEP_SIZE`).
    KeepSize,
    /// Make a hole; the size stays (`FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE`).
    Punch,
    /// Zeros, with space reserved; the file grows to the end of the range (`FALLOC_FL_ZERO_RANGE`).
    Zero,
    /// Zeros, with space reserved; the size stays (`FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE`).
    ZeroKeepSize,
}

impl Allocate {
    fn extends(self) -> bool {
        matches!(self, Self::Extend | Self::Zero)
    }

    /// What is in the range becomes zeros.
    fn clears(self) -> bool {
        matches!(self, Self::Punch | Self::Zero | Self::ZeroKeepSize)
    }
}

/// The part of a range that one chunk file holds: one stretch of it, whatever the chunk size.
#[derive(Debug, Clone, Copy)]
struct Stretch {
    stripe: Stripe,
    chunk: ChunkId,
    offset: u64,
    len: u64,
}

impl<P: Port, C: Cell<Shared>> Lane<P, C> {
    /// Reserves or punches `len` bytes from `offset` on.
    pub async fn fallocate(
        &self,
        handle: Handle,
        what: Allocate,
        offset: u64,
        len: u64,
    ) -> Result<(), Errno> {
        let (file, _going) = self.through_file(handle)?;
        if !file.mode.writes() {
            return Err(Errno::EBADF);
        }
        if len == 0 {
            return Err(Errno::EINVAL);
        }
        let end = offset.checked_add(len).filter(|end| *end <= FILE_SIZE_MAX).ok_or(Errno::EFBIG)?;
        let result = async {
            self.tell_first(file.ino).await?;
            let allocated = Box::pin(self.allocate(file.ino, what, offset, end));
            match what.clears() {
                true => self.clear_past_pages(file.ino, (offset, end), allocated).await?,
                false => allocated.await?,
            }
            if what.extends() {
                // Space behind the end of a chunk file does not make it longer, and others may have made the file
                // longer than is known here: the shard decides.
                let set = SetAttr { size: Some(end), grow_only: true, ..SetAttr::default() };
                self.change_attr(file.ino, set).await?;
            }
            Ok(())
        };
        self.shared.with(|s| s.inodes.entry(file.ino).change_begins());
        let result: Result<(), Refusal> = result.await;
        self.shared.with(|s| s.inodes.entry(file.ino).change_ends());
        if result.is_err() && what.clears() {
            // Some of it may be zeros by now. The kernel drops its pages after a success only.
            self.drop_changed(file.ino, offset, len).await;
        }
        if result.as_ref().is_err_and(has_no_room) {
            // What was taken all the same is seen at once; if it cannot be told now, the next commit tells it.
            let _ = self.commit(file.ino).await;
        }
        self.errno(result)?;
        if file.sync
            && let Err(errno) = self.fsync(handle).await
        {
            if what.clears() {
                self.drop_changed(file.ino, offset, len).await;
            }
            return Err(errno);
        }
        match what.extends() {
            true => self.before_grown(file.ino, end, None).await,
            false => Ok(()),
        }
    }

    async fn allocate(&self, ino: Ino, what: Allocate, offset: u64, end: u64) -> Result<(), Refusal> {
        for _ in 0..STALE_ROUNDS_MAX {
            let view = self.shared.with(|s| s.write_view(ino));
            let Some(layout) = view.layout.clone() else {
                self.fetch_layout(ino).await?;
                continue;
            };
            let small = end <= u64::from(INLINE_DEFAULT);
            let result: Result<(), Stuck> = match what {
                // The space that a program reserves is that of targets, so the file leaves the metadata; zeros do not.
                _ if layout.is_inline() && what.clears() && (small || what == Allocate::Punch) => {
                    self.punch_inline(ino, offset, end).await.map_err(Stuck::from)
                }
                Allocate::Punch => self.on_stretches(ino, what, &layout, (offset, end), &view).await,
                _ if layout.covered() < end => {
                    self.grow(ino, end).await?;
                    continue;
                }
                Allocate::Extend | Allocate::KeepSize => {
                    self.on_stretches(ino, what, &layout, (offset, end), &view).await
                }
                Allocate::Zero | Allocate::ZeroKeepSize => {
                    let range = (offset, end);
                    let punched = self.on_stretches(ino, Allocate::Punch, &layout, range, &view).await;
                    match punched {
                        Ok(()) => {
                            let reserve = if what.extends() { Allocate::Extend } else { Allocate::KeepSize };
                            self.on_stretches(ino, reserve, &layout, range, &view).await
                        }
                        punched => punched,
                    }
                }
            };
            match result {
                Ok(()) => return Ok(()),
                Err(stuck) => match stuck.refusal.status {
                    Status::STALE_GENERATION | Status::MUST_GROW => {
                        // Perhaps a truncate of this mount cut what was just changed, or not: again, after it.
                        self.wait_until(|s| s.inodes.entry(ino).truncating == 0).await?;
                        self.fetch_layout(ino).await?;
                    }
                    _ => self.go_on_elsewhere(ino, &layout, stuck).await?,
                },
            }
            if self.port.cancelled() {
                return Err(Errno::EINTR.into());
            }
        }
        Err(super::unsettled(ino))
    }

    async fn punch_inline(&self, ino: Ino, offset: u64, end: u64) -> Result<(), Refusal> {
        // Behind the bytes kept in the metadata there are zeros only.
        let Some(content) = self.fetch_layout(ino).await?.inline else {
            return Err(Status::STALE_GENERATION.into());
        };
        let end = end.min(content.0.len() as u64);
        if end <= offset {
            return Ok(());
        }
        let zeros = alloc::vec![0; (end - offset) as usize];
        let message = WriteInline {
            append: false,
            ino,
            offset,
            data: Bytes(zeros),
            kill_suidgid: false,
            within: Some(true),
        };
        let attr = self.change(ino, &message).await?.attr;
        self.shared.with(|s| {
            if offset < attr.size {
                let zeros = &message.data.0[..(end.min(attr.size) - offset) as usize];
                s.inodes.patch_inline(ino, attr.change, offset, zeros);
                s.inodes.merge_own(attr);
            } else {
                // Another mount has cut the file, so that nothing was changed: this is news of that.
                s.inodes.merge(attr);
            }
        });
        Ok(())
    }

    async fn on_stretches(
        &self,
        ino: Ino,
        what: Allocate,
        layout: &Layout,
        range: (u64, u64),
        view: &View,
    ) -> Result<(), Stuck> {
        // To punch what others own does no harm: this chunk file has a hole there.
        let stretches = match what {
            Allocate::Punch => stretches(layout, range.0, range.1),
            _ => owned(layout, range.0, range.1),
        };
        for some in stretches.chunks(STRETCHES_AT_ONCE) {
            self.on_some(ino, what, layout, some, view).await?;
        }
        Ok(())
    }

    async fn on_some(
        &self,
        ino: Ino,
        what: Allocate,
        layout: &Layout,
        stretches: &[Stretch],
        view: &View,
    ) -> Result<(), Stuck> {
        let mut sent: Vec<(&Stretch, TargetId)> = Vec::with_capacity(stretches.len());
        for stretch in stretches {
            sent.extend(copies::to_change(&stretch.stripe).iter().map(|target| (stretch, *target)));
        }
        let mut jobs: Vec<Job<'_>> = sent
            .iter()
            .map(|(stretch, target)| {
                let (target, Stretch { chunk, offset, len, .. }) = (*target, **stretch);
                let to = To::Target(target);
                match what {
                    Allocate::Punch => {
                        let message = PunchChunk { target, chunk, offset, len, unchanged: None };
                        Job::new(to, PunchChunk::KIND, message.to_bytes(), false)
                    }
                    _ => {
                        let message = ReserveChunk { target, chunk, offset, len, owner: view.owner };
                        Job::new(to, ReserveChunk::KIND, message.to_bytes(), false)
                    }
                }
            })
            .collect();
        self.run(&mut jobs).await;
        let (mut changed_some, mut failed) = (false, None);
        for ((stretch, target), job) in sent.into_iter().zip(&mut jobs) {
            let Stretch { chunk, offset, len, .. } = *stretch;
            match job.take().and_then(|reply| reply.read::<ChunkReply>()) {
                Ok(reply) => {
                    changed_some = true;
                    // A hole is lost by a power cut as a write is: the next fsync covers it.
                    let answered = changed(&reply, layout);
                    self.shared.with(|s| s.wrote_chunk(ino, target, chunk, answered));
                }
                Err(refusal) => {
                    let place = Place { target, chunk, offset, len };
                    failed = failed.or_else(|| Some(place.stuck(refusal)));
                }
            }
        }
        if changed_some && failed.as_ref().is_none_or(|stuck| has_no_room(&stuck.refusal)) {
            // Time and blocks have moved, the size has not. Also where another target had no room: what these gave stays
            // the file's, and is to be seen.
            let now = self.port.wall();
            let overlapped = self.shared.with(|s| s.overlapped(ino, view, 0, now, layout.generation, false));
            if overlapped {
                failed.get_or_insert(Refusal::from(Status::STALE_GENERATION).into());
            }
        }
        failed.map_or(Ok(()), Err)
    }
}

fn has_no_room(refusal: &Refusal) -> bool {
    refusal.status == Status::errno(Errno::ENOSPC)
}

/// What a target said of a chunk file that may be there or not.
pub(crate) fn changed(reply: &ChunkReply, layout: &Layout) -> Answered {
    let ChunkReply { size, blocks, life } = *reply;
    Answered { life, blocks, size, point: (layout.generation, layout.trims), synced: None, cuts: None }
}

fn stretches(layout: &Layout, offset: u64, end: u64) -> Vec<Stretch> {
    let mut stretches = Vec::new();
    for extent in &layout.extents {
        for (stripe, holders) in extent.stripes.iter().enumerate() {
            let (from, to) = (extent.local_size(stripe, offset), extent.local_size(stripe, end));
            if from < to {
                stretches.push(Stretch {
                    stripe: *holders,
                    chunk: extent.chunk(stripe),
                    offset: from,
                    len: to - from,
                });
            }
        }
    }
    stretches
}

/// The same without what lies in the range of an extent and belongs to an earlier one, which was closed behind it: its
/// space is elsewhere, or was not to be had. Of very long ranges the whole, that the requests stay few.
fn owned(layout: &Layout, offset: u64, end: u64) -> Vec<Stretch> {
    let mut owned: Vec<Stretch> = Vec::new();
    for (number, extent) in layout.extents.iter().enumerate() {
        let (from, to) = (offset.max(extent.start), end.min(extent.end));
        if from >= to {
            continue;
        }
        let earlier = layout.extents[..number].iter().map(|earlier| earlier.end).max().unwrap_or(0);
        let shared = earlier.clamp(from, to);
        let shared =
            if (shared - from) / u64::from(extent.chunk_size) > SHARED_CHUNKS_MAX { from } else { shared };
        let first = owned.len();
        let mut add = |stripe, chunk, offset, len| {
            let known = owned[first..].iter_mut().rev().find(|stretch| stretch.chunk == chunk);
            match known.filter(|stretch| stretch.offset + stretch.len == offset) {
                Some(stretch) => stretch.len += len,
                None => owned.push(Stretch { stripe, chunk, offset, len }),
            }
        };
        for piece in layout.pieces(from, shared - from) {
            if piece.chunk.extent == extent.number {
                add(piece.stripe, piece.chunk, piece.local_offset, piece.len);
            }
        }
        for (stripe, holders) in extent.stripes.iter().enumerate() {
            let from = extent.local_from(stripe, shared).min(extent.cut(stripe));
            let to = extent.local_size(stripe, to);
            if from < to {
                add(*holders, extent.chunk(stripe), from, to - from);
            }
        }
    }
    owned
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{BOTH, block_on, create, lane_beside, mount, mounted, read, step, write};
    use alloc::collections::BTreeSet;
    use core::pin::pin;
    use skep_types::limits::CHUNK_MIN;
    use skep_types::{Code, Extent, Floors, Generation};
    use skep_wire::meta::ReadInline;

    const CHUNK: u64 = CHUNK_MIN as u64;

    /// Goal: a punched range of content in the metadata takes back no truncate of another mount that comes between the
    /// look at the file's end and the zeros; who punched is told of the truncate with the answer.
    #[test]
    fn a_punch_undoes_no_truncate() {
        for what in [Allocate::Punch, Allocate::ZeroKeepSize] {
            for (size, shown) in [(0, 0), (1_000, 1_000), (6_000, 6_000)] {
                let (cluster, lane) = mounted();
                let other = mount(&cluster);
                let file = create(&lane, b"f");
                write(&lane, &file, 0, &[7; 8_000]);
                let theirs = block_on(other.open(file.attr.ino, BOTH)).unwrap();
                let asked = cluster.borrow().count(ReadInline::KIND);
                let mut punch = pin!(lane.fallocate(file.handle, what, 2_000, 6_000));
                while cluster.borrow().count(ReadInline::KIND) == asked {
                    assert!(step(punch.as_mut()).is_pending());
                }
                let cut = SetAttr { size: Some(size), ..SetAttr::default() };
                block_on(other.setattr(file.attr.ino, cut)).unwrap();
                block_on(punch).unwrap();
                assert_eq!(cluster.borrow().shard.files[&file.attr.ino].attr.size, size, "{what:?}");
                let mut expected = alloc::vec![7; 8_000];
                expected[2_000..].fill(0);
                for (lane, file) in
                    [(&lane, &file), (&lane_beside(&cluster, &lane), &file), (&other, &theirs)]
                {
                    assert_eq!(block_on(lane.getattr(file.attr.ino)).unwrap().size, size);
                    assert_eq!(read(lane, file, 0, 9_000), expected[..shown], "{what:?}, {size}");
                }
                // Longer again: what was cut off does not come back from anybody's memory.
                let longer = SetAttr { size: Some(8_000), ..SetAttr::default() };
                block_on(lane.setattr(file.attr.ino, longer)).unwrap();
                expected[shown..].fill(0);
                assert_eq!(read(&lane, &file, 0, 9_000), expected);
            }
        }
    }

    /// Every chunk of a range, as (extent, stripe, local offset).
    fn chunks_of(stretches: &[Stretch]) -> BTreeSet<(u16, u16, u64)> {
        let of = |stretch: &Stretch| {
            let (chunk, from, to) = (stretch.chunk, stretch.offset, stretch.offset + stretch.len);
            (from / CHUNK..to.div_ceil(CHUNK)).map(move |at| (chunk.extent, chunk.stripe, at))
        };
        stretches.iter().flat_map(of).collect()
    }

    /// Goal: where a closed extent and its successor overlap, each byte is reserved once, where it lies; with as many
    /// targets as before and with fewer; without a successor in as few stretches as there are targets.
    #[test]
    fn every_byte_is_reserved_where_it_lies() {
        let of = |targets: &[u32]| Extent {
            number: 0,
            start: 0,
            end: u64::MAX,
            origin: Ino(9),
            generation: Generation(1),
            code: Code::Copies,
            chunk_size: CHUNK_MIN,
            stripes: targets.iter().map(|target| Stripe::on(TargetId(*target))).collect(),
            floors: Floors::default(),
            cuts: Vec::new(),
        };
        for next in [&[1, 2, 3][..], &[1, 3], &[4]] {
            let mut layout = Layout {
                generation: Generation(1),
                extents: alloc::vec![of(&[1, 2, 3])],
                ..Layout::default()
            };
            assert_eq!(owned(&layout, 5, 100 * CHUNK).len(), 3);
            let stripes: Vec<Stripe> = next.iter().map(|target| Stripe::on(TargetId(*target))).collect();
            assert!(layout.close(0, &[Some(10 * CHUNK), Some(100), Some(20 * CHUNK)], &stripes));
            for (from, to) in
                [(0, 90 * CHUNK), (7, 3 * CHUNK + 1), (40 * CHUNK + 9, 41 * CHUNK), (70 * CHUNK, 1 << 40)]
            {
                let whole = owned(&layout, from, to);
                let len: u64 = whole.iter().map(|stretch| stretch.len).sum();
                assert_eq!(len, to - from, "{next:?}: {from} to {to}");
                if to < 1 << 30 {
                    let pieces = layout.pieces(from, to - from);
                    let pieces = pieces.iter().map(|piece| {
                        let (stripe, chunk, offset) = (piece.stripe, piece.chunk, piece.local_offset);
                        Stretch { stripe, chunk, offset, len: piece.len }
                    });
                    assert_eq!(
                        chunks_of(&whole),
                        chunks_of(&pieces.collect::<Vec<_>>()),
                        "{next:?}: {from} to {to}"
                    );
                }
            }
        }
        let mut layout =
            Layout { generation: Generation(1), extents: alloc::vec![of(&[1, 2])], ..Layout::default() };
        assert!(layout.close(
            0,
            &[Some(0), Some(10 * SHARED_CHUNKS_MAX * CHUNK)],
            &[Stripe::on(TargetId(3))]
        ));
        assert_eq!(
            owned(&layout, 0, 10 * SHARED_CHUNKS_MAX * CHUNK).len(),
            2,
            "of very long ranges the whole"
        );
    }
}
