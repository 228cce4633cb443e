//! O_APPEND: the shard says where the file ends, for all mounts.

use super::write::{Round, StripeWrite, WriteHow};
use crate::lane::Lane;
use crate::limits::{GATHER_WRITE_MAX, STALE_ROUNDS_MAX};
use crate::port::{Cell, Port};
use crate::state::{FileHandle, Inode, Shared, Uncut, copies};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::cmp::Ordering;
use skep_types::codec::Bytes;
use skep_types::limits::{FILE_SIZE_MAX, INLINE_DEFAULT};
use skep_types::{Attr, ChunkId, ClientId, Errno, Generation, Ino, LogPlace, TargetId, Term};
use skep_wire::meta::{AttrReply, ReserveEnd, ReserveEndReply, WriteInline};
use skep_wire::{Refusal, Status};

/// A range at the end that no other append is given, until the file is truncated.
pub(crate) struct Reserved {
    offset: u64,
    generation: Generation,
    /// Of the layout when it was given.
    trims: LogPlace,
    /// To this session, with which it ends.
    pub session: ClientId,
    /// What targets had counted of cuts before it was given, or when it was good still: they refuse to write there when one
    /// has come since, however late the write is.
    pub uncut: Uncut,
}

/// Where a file ends, as far as it is known.
#[derive(Debug, Clone, Copy, Default)]
struct End {
    at: u64,
    /// As of this count of its cuts; 0 = of none.
    cuts: u64,
}

impl End {
    /// What is known by both: of two from before and behind a cut the one behind it.
    fn and(self, other: Self) -> Self {
        match self.cuts.cmp(&other.cuts) {
            Ordering::Less => other,
            Ordering::Equal => Self { at: self.at.max(other.at), ..self },
            Ordering::Greater => self,
        }
    }
}

impl<P: Port, C: Cell<Shared>> Lane<P, C> {
    /// Writes `data` as one record at the end of the file. Nobody else is given a byte of its place.
    /// `offset`: where the kernel believes the end to be.
    pub(crate) async fn append(
        &self,
        file: &FileHandle,
        offset: u64,
        data: &[u8],
        how: WriteHow,
    ) -> Result<usize, Refusal> {
        let may_stay = !how.sync && !how.direct && !file.cached;
        if may_stay && self.gather_append(file.ino, data).await? {
            return Ok(data.len());
        }
        for _ in 0..STALE_ROUNDS_MAX {
            let view = self.shared.with(|s| s.write_view(file.ino));
            let Some(layout) = view.layout.clone() else {
                self.fetch_layout(file.ino).await?;
                continue;
            };
            let end = view.size + data.len() as u64;
            let round = if layout.is_inline() {
                if self.shared.with(|s| s.inodes.get(file.ino).is_some_and(|inode| inode.hold.is_some())) {
                    self.tell_first(file.ino).await?;
                    continue;
                }
                self.append_inline(file, offset, data, how.kill_suidgid).await?
            } else if self.waits_for_hold(file.ino, &view, end).await? {
                continue;
            } else {
                // A record beside a truncate of this mount could stand twice: at its old place, and at a new one.
                self.wait_until(|s| s.inodes.entry(file.ino).append_enters()).await?;
                let round = self.append_behind_all(file, offset, data, how).await;
                self.shared.with(|s| {
                    s.inodes.entry(file.ino).append_leaves();
                    s.waits.call();
                });
                round?
            };
            if let Round::Written(n) = round {
                if may_stay && !layout.is_inline() {
                    self.small_write_went(file.ino, None, n);
                }
                return Ok(n);
            }
            if self.port.cancelled() {
                return Err(Errno::EINTR.into());
            }
        }
        Err(super::unsettled(file.ino))
    }

    /// From now on nothing more of the file stays here. What does goes first: it is in front.
    async fn append_behind_all(
        &self,
        file: &FileHandle,
        offset: u64,
        data: &[u8],
        how: WriteHow,
    ) -> Result<Round, Refusal> {
        Box::pin(self.put_gathered(file.ino)).await?;
        let round = self.append_to_chunks(file, offset, data, how).await;
        // One that is tried again is at another place, for its first one is gone with a truncate, or a session.
        let is_whole = match &round {
            Ok(Round::Written(n)) => *n == data.len(),
            Ok(_) => true,
            Err(_) => false,
        };
        if !is_whole {
            self.shared.with(|s| s.inodes.append_failed(file.ino));
        }
        round
    }

    async fn append_to_chunks(
        &self,
        file: &FileHandle,
        offset: u64,
        data: &[u8],
        how: WriteHow,
    ) -> Result<Round, Refusal> {
        let Some(place) = self.reserve_end(file.ino, data.len() as u64).await? else {
            self.fetch_layout(file.ino).await?;
            return Ok(Round::Again);
        };
        let at = place.offset;
        let known = self.shared.with(|s| {
            s.placed(file, offset, at);
            let layout = s.inodes.get(file.ino).and_then(|inode| inode.layout.as_ref());
            layout.is_some_and(|layout| layout.generation == place.generation)
        });
        let write = Box::pin(self.append_at(file.ino, place, known, data, how));
        let round = match file.cached {
            true => write.await,
            false => self.past_pages(file.ino, (at, data), write, Round::landed).await,
        };
        self.shared.with(|s| s.inodes.entry(file.ino).append_ends());
        match round {
            // The place went with the session, before anything was written there.
            Err(refusal) if refusal.status == Status::FENCED => Ok(Round::Again),
            round => round,
        }
    }

    async fn append_inline(
        &self,
        file: &FileHandle,
        offset: u64,
        data: &[u8],
        kill: bool,
    ) -> Result<Round, Refusal> {
        let ino = file.ino;
        let known = self.shared.with(|s| s.inodes.get(ino).map_or(0, |inode| inode.size()));
        if known + data.len() as u64 > u64::from(INLINE_DEFAULT) {
            self.grow(ino, known + data.len() as u64).await?;
            return Ok(Round::Again);
        }
        let data = Bytes(data.to_vec());
        let message = WriteInline { ino, offset: 0, append: true, data, kill_suidgid: kill, within: None };
        match self.change(ino, &message).await {
            Ok(AttrReply { attr, live }) => {
                let data = &message.data.0;
                self.shared.with(|s| {
                    let place = attr.size.saturating_sub(data.len() as u64);
                    s.placed(file, offset, place);
                    s.inodes.patch_inline(ino, attr.change, place, data);
                    if let Some(inode) = s.inodes.get_mut(ino) {
                        inode.live = live.is_some();
                    }
                    s.inodes.merge_own(attr);
                });
                Ok(Round::Written(message.data.0.len()))
            }
            Err(refusal) if refusal.status == Status::MUST_GROW => {
                // Others may have appended as well: what the file has now, and this.
                let size = self.fetch_layout(ino).await?.attr.size;
                self.grow(ino, size.saturating_add(message.data.0.len() as u64)).await?;
                Ok(Round::Again)
            }
            Err(refusal) if refusal.status == Status::STALE_GENERATION => {
                self.fetch_layout(ino).await?;
                Ok(Round::Again)
            }
            Err(refusal) => Err(refusal),
        }
    }

    /// Writes a record at the place that was reserved for it.
    async fn append_at(
        &self,
        ino: Ino,
        place: Reserved,
        known: bool,
        data: &[u8],
        how: WriteHow,
    ) -> Result<Round, Refusal> {
        if !known {
            self.fetch_layout(ino).await?;
        }
        let end = place.offset.checked_add(data.len() as u64).filter(|end| *end <= FILE_SIZE_MAX);
        let end = end.ok_or(Refusal::from(Errno::EFBIG))?;
        self.append_chunks(ino, (place, end), data, how).await
    }

    /// A range at the end for this mount alone. `None`: the file is no longer in chunks. It counts as an
    /// append under way, which the caller ends.
    async fn reserve_end(&self, ino: Ino, len: u64) -> Result<Option<Reserved>, Refusal> {
        let (mut looked, mut seen, mut looker) = (Term(0), End::default(), None);
        for _ in 0..STALE_ROUNDS_MAX {
            // What others write the shard asks for by itself; of what this mount wrote, and a cut may have come behind, it
            // knows nothing.
            let look = self.shared.with(|s| {
                let gives_ends = s.stamps.ends(ino.shard()) > Term(0);
                let inode = s.inodes.get(ino);
                inode.is_some_and(|inode| inode.mark_is_doubtful() || inode.end_is_open() && gives_ends)
            });
            if look && looked == Term(0) {
                (looked, seen, looker) = self.look_for_end(ino).await?;
            }
            // What the targets said counts, whatever another lane has learned meanwhile.
            let (known, uncut) = self.shared.with(|s| {
                // A cut may be known whose answer was never taken in, for the targets that were asked first were silent.
                let as_of = |inode: &Inode| inode.attr.as_ref().map_or(0, |attr| attr.cuts.min(inode.cuts));
                let known =
                    |inode: &Inode| (End { at: inode.size(), cuts: as_of(inode) }, inode.newest_uncut());
                s.inodes.get(ino).map(known).unwrap_or_default()
            });
            let End { at: at_least, cuts } = known.and(seen);
            let number = self.next_reservation();
            let message = ReserveEnd { ino, len, number, at_least, looked, cuts: Some(cuts) };
            let mut job = self.asking(ino.shard(), &message);
            // Others may have written since, while the session ended and began again.
            job.bound = looker;
            let reply = self.settle(job).await;
            let place = reply.and_then(|reply| {
                let ReserveEndReply { offset, generation, trims } = reply.read()?;
                let end = offset.map(|offset| offset.saturating_add(len));
                let counts = self.shared.with(|s| {
                    s.stamps.gives_ends(ino.shard(), reply.stamp.term);
                    s.reserved(ino, reply.stamp.term, end)
                });
                Ok((offset, (generation, trims), counts, reply.client))
            });
            match place {
                // Given by a life that has ended: the next one was not told, and may give it again.
                Ok((_, _, false, _)) => (looked, seen, looker) = (Term(0), End::default(), None),
                Ok((None, ..)) => (looked, seen, looker) = self.look_for_end(ino).await?,
                Err(refusal) if refusal.status == Status::FENCED && looker.is_some() => {
                    (looked, seen, looker) = (Term(0), End::default(), None);
                }
                Ok((Some(offset), (generation, trims), true, session)) => {
                    return Ok(Some(Reserved { offset, generation, trims, session, uncut }));
                }
                Err(refusal) if matches!(refusal.status, Status::MUST_GROW | Status::STALE_GENERATION) => {
                    return Ok(None);
                }
                Err(refusal) => return Err(refusal),
            }
        }
        Err(super::unsettled(ino))
    }

    /// Where the file ends, with the term of the shard in which the targets were asked, at a time when everybody had told
    /// it how far he had appended, and the session in which that counts.
    async fn look_for_end(&self, ino: Ino) -> Result<(Term, End, Option<ClientId>), Refusal> {
        let (term, looker) = self.shared.with(|s| (s.stamps.ends(ino.shard()), s.client()));
        let Attr { size, cuts, .. } = self.fresh_attr(ino).await?;
        Ok((term, End { at: size, cuts }, Some(looker)))
    }

    /// Notes what targets count of cuts, and asks the shard then. `false`: the file was truncated since the place was given, or
    /// is being truncated. Otherwise a truncate that comes from now on is one that the targets count.
    async fn still_reserved(
        &self,
        ino: Ino,
        place: &mut Reserved,
        chunks: &[(ChunkId, TargetId)],
    ) -> Result<bool, Refusal> {
        for (file, stat, _) in self.stat_targets(chunks).await? {
            place.uncut.insert(file, stat.cuts.ok_or(Status::MALFORMED)?);
        }
        // One of them is of a generation that is gone.
        let all = chunks.iter().all(|file| place.uncut.contains_key(file));
        let layout = self.fetch_layout(ino).await?.layout;
        Ok(all && (layout.trims, layout.generation) == (place.trims, place.generation))
    }

    /// Writes to the reserved place. Growing the layout keeps it; a truncate does not: then another
    /// place is asked for. A layout that is not known any more says nothing about the place: were another one asked
    /// for, zeros would stay in this one.
    async fn append_chunks(
        &self,
        ino: Ino,
        (mut place, end): (Reserved, u64),
        data: &[u8],
        how: WriteHow,
    ) -> Result<Round, Refusal> {
        let mut may_have_landed = false;
        for _ in 0..STALE_ROUNDS_MAX {
            let view = self.shared.with(|s| s.write_view(ino));
            let Some(layout) = view.layout.clone() else {
                self.fetch_layout(ino).await?;
                continue;
            };
            if layout.generation != place.generation {
                return Ok(Round::Again);
            }
            if layout.covered() < end {
                self.grow(ino, end).await?;
                continue;
            }
            let pieces = layout.pieces(place.offset, data.len() as u64);
            let written = pieces.iter().flat_map(|piece| {
                copies::to_change(&piece.stripe).iter().map(|target| (piece.chunk, *target))
            });
            let uncounted: Vec<_> = written.filter(|file| !place.uncut.contains_key(file)).collect();
            if !uncounted.is_empty() {
                if !self.still_reserved(ino, &mut place, &uncounted).await? {
                    return Ok(Round::Again);
                }
                continue;
            }
            let (offset, owner) = (place.offset, view.owner);
            let to_end = StripeWrite::new(&layout, offset, data, owner);
            let later = view.gathers && data.len() <= GATHER_WRITE_MAX;
            let write = StripeWrite { sync: how.sync, place: Some(&place), later, ..to_end };
            match self.write_chunks(ino, &write, &view, how.kill_suidgid).await {
                // Perhaps by another file's truncate, or a restart of the target: then the place is good still.
                Ok(Round::Cut { landed }) => {
                    place.uncut.clear();
                    may_have_landed |= landed;
                    continue;
                }
                // The place stays.
                Err(refusal) if refusal.status == Status::LOST_CHUNK => {
                    self.settle_written(ino, place.offset, end).await?;
                }
                Ok(Round::Moved) => {}
                // Part of a record is none.
                Err(refusal) if may_have_landed && refusal.status == Status::FENCED => {
                    return Err(Errno::EIO.into());
                }
                round => return round,
            }
            may_have_landed = true;
        }
        Err(super::unsettled(ino))
    }
}

impl Shared {
    /// A range that ends at `end` was given in a term of the shard. `false`: that life has ended, and the range
    /// with it.
    fn reserved(&mut self, ino: Ino, term: Term, end: Option<u64>) -> bool {
        if self.shards.opened(ino.shard(), term) {
            return false;
        }
        if let Some(end) = end {
            self.inodes.entry(ino).append_begins(end);
        }
        true
    }

    /// A record lands at `place`; the kernel believes at `offset`, and has put its bytes into its pages there when
    /// it writes through them.
    fn placed(&mut self, file: &FileHandle, offset: u64, place: u64) {
        if file.cached && place != offset {
            self.inodes.entry(file.ino).pages.misplaced(offset.min(place));
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{Fault, block_on, create, mount, mounted, read};
    use crate::{Lane, OpenHow, WriteHow};
    use alloc::vec::Vec;
    use core::future::Future;
    use core::pin::pin;
    use core::task::{Context, Waker};
    use skep_types::Term;
    use skep_wire::Message;
    use skep_wire::meta::ReserveEnd;

    const APPEND: WriteHow =
        WriteHow { kill_suidgid: false, sync: false, append: true, from_pages: false, direct: false };

    /// Goal: records of two mounts follow one another without gap or loss, from the first inline byte to
    /// the third extent, whatever the kernels take for the end, and though answers are lost.
    #[test]
    fn records_of_two_mounts() {
        let (cluster, first) = mounted();
        let second = mount(&cluster);
        let file = create(&first, b"log");
        let other = block_on(second.open(file.attr.ino, OpenHow { ..crate::testing::BOTH })).unwrap();
        cluster.borrow_mut().shard.live = true;
        let mut expected = Vec::new();
        for number in 0..60u32 {
            let record = alloc::vec![number as u8 + 1; 700 + number as usize * 50];
            let (lane, handle) =
                if number % 3 == 0 { (&second, other.handle) } else { (&first, file.handle) };
            if number % 5 == 0 {
                cluster.borrow_mut().fail(ReserveEnd::KIND, &[Fault::LoseAnswer]);
            }
            assert_eq!(block_on(lane.write(handle, 3, &record, APPEND)), Ok(record.len()));
            expected.extend_from_slice(&record);
        }
        block_on(first.getattr(file.attr.ino)).unwrap();
        assert!(read(&first, &file, 0, expected.len() + 10) == expected);
    }

    /// Goal: where a cut may have come behind what this mount wrote, an append looks where that ends, though nobody else writes:
    /// the shard knows nothing of it (seed 3256 of the simulator: it landed on what had been written).
    #[test]
    fn an_end_in_doubt_is_looked_for() {
        let (cluster, lane) = mounted();
        let file = create(&lane, b"log");
        crate::testing::write(&lane, &file, 0, &[1; 20_000]);
        lane.shared.borrow_mut().lost_history(file.attr.ino.shard(), Term(1));
        assert_eq!(block_on(lane.write(file.handle, 0, &[2; 5_000], APPEND)), Ok(5_000));
        assert!(read(&lane, &file, 0, 30_000) == [[1; 20_000].as_slice(), &[2; 5_000]].concat());
        assert_eq!(cluster.borrow().count(ReserveEnd::KIND), 1);
    }

    /// Goal: the answer to a change of owner tells the kernel the size with what is not committed, though its end is in doubt:
    /// the kernel would drop what a program stored into a mapping behind it.
    #[test]
    fn a_change_tells_a_size_in_doubt() {
        let (_, lane) = mounted();
        let file = create(&lane, b"f");
        crate::testing::write(&lane, &file, 0, &[1; 20_000]);
        lane.shared.borrow_mut().lost_history(file.attr.ino.shard(), Term(1));
        let set = skep_types::SetAttr { uid: Some(7), ..Default::default() };
        assert_eq!(block_on(lane.setattr(file.attr.ino, set)).map(|attr| attr.size), Ok(20_000));
    }

    /// Goal: a range of an append under way is told to a server that forgot it; one that is written is not: a
    /// file that another mount has cut since would get its old end back.
    #[test]
    fn ends_under_way_are_reclaimed() {
        let (cluster, lane) = mounted();
        let other = Lane::new(lane.shared.clone(), |_| lane.port.clone()).unwrap();
        let file = create(&lane, b"log");
        let restart = || {
            cluster.borrow_mut().shard.reserved.clear();
            cluster.borrow_mut().restarts();
            block_on(other.getattr(file.attr.ino)).unwrap();
            block_on(other.getattr(file.attr.ino)).unwrap();
            cluster.borrow().shard.reserved.get(&file.attr.ino).copied()
        };
        block_on(lane.write(file.handle, 0, &[1; 20_000], APPEND)).unwrap();
        assert_eq!(restart(), Some(0));
        let mut append = pin!(lane.write(file.handle, 0, &[2; 5_000], APPEND));
        let mut context = Context::from_waker(Waker::noop());
        while cluster.borrow().count(ReserveEnd::KIND) < 2 {
            assert!(append.as_mut().poll(&mut context).is_pending());
        }
        assert_eq!(restart(), Some(25_000));
        assert_eq!(block_on(append), Ok(5_000));
        assert_eq!(restart(), Some(0));
    }

    /// Goal: a record is written to the place that it was given, though the layout is forgotten meanwhile (attributes
    /// from before the file was grown do that when they come late): another place would leave zeros in the first one.
    #[test]
    fn a_forgotten_layout_leaves_no_hole() {
        let (cluster, lane) = mounted();
        let file = create(&lane, b"log");
        block_on(lane.write(file.handle, 0, &[1; 20_000], APPEND)).unwrap();
        let asked = cluster.borrow().count(ReserveEnd::KIND);
        // The layout goes after it was looked at, and before the place is known.
        cluster.borrow_mut().fail(ReserveEnd::KIND, &[Fault::LoseAnswer]);
        let mut append = pin!(lane.write(file.handle, 0, &[2; 5_000], APPEND));
        let mut context = Context::from_waker(Waker::noop());
        while cluster.borrow().count(ReserveEnd::KIND) == asked {
            assert!(append.as_mut().poll(&mut context).is_pending());
        }
        lane.shared.borrow_mut().inodes.get_mut(file.attr.ino).unwrap().layout = None;
        assert_eq!(block_on(append), Ok(5_000));
        assert_eq!(
            cluster.borrow().count(ReserveEnd::KIND),
            asked + 2,
            "asked again for the lost answer only"
        );
        assert_eq!(read(&lane, &file, 20_000, 10_000), [2; 5_000]);
    }

    /// Goal: a range that a life gave which has ended is not used: the next one may give it again.
    #[test]
    fn a_range_of_an_ended_life_is_not_used() {
        let (cluster, lane) = mounted();
        let file = create(&lane, b"log");
        block_on(lane.write(file.handle, 0, &[1; 20_000], APPEND)).unwrap();
        let shard = file.attr.ino.shard();
        assert!(lane.shared.borrow_mut().shards.heard(shard, Term(2)));
        assert!(lane.shared.borrow_mut().shards.begin_reclaim(shard));
        assert_eq!(lane.shared.borrow_mut().shards.tells(shard), Some(Term(2)));
        let mut append = pin!(lane.write(file.handle, 0, &[2; 5_000], APPEND));
        let mut context = Context::from_waker(Waker::noop());
        let asked = cluster.borrow().count(ReserveEnd::KIND);
        while cluster.borrow().count(ReserveEnd::KIND) == asked {
            assert!(append.as_mut().poll(&mut context).is_pending());
        }
        cluster.borrow_mut().restarts();
        assert_eq!(block_on(append), Ok(5_000));
        assert_eq!(cluster.borrow().count(ReserveEnd::KIND), asked + 2);
    }
}
