//! SEEK_DATA and SEEK_HOLE: the targets say where their chunk files have data.
//!
//! Every byte of the file belongs to one stripe, and offsets in a chunk file rise with those in the file.
//! So the first data (or hole) of the file is the lowest of the stripes' first ones, and each stripe is
//! asked once, however large the file is.

use super::read::Seen;
use super::seal::{Place, Stuck};
use crate::job::{Job, To};
use crate::lane::Lane;
use crate::limits::STALE_ROUNDS_MAX;
use crate::port::{Cell, Port};
use crate::state::{Handle, Shared, copies};
use alloc::sync::Arc;
use alloc::vec::Vec;
use skep_types::{Encode, Errno, Extent, Ino, Layout};
use skep_wire::storage::{MapChunk, MapChunkReply};
use skep_wire::{Message, Refusal, Status};

/// Runs asked for at once: neighbouring ones are one to the seeker.
const RUNS: u32 = 64;

/// What is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seek {
    /// The next byte that may be other than zero.
    Data,
    /// The next byte that is known to be zero without being stored; the end of the file is one.
    Hole,
}

/// One stripe's search.
struct Search {
    stripe: usize,
    /// From here on it is unknown.
    at: u64,
    /// Where the first find is, in the chunk file; `u64::MAX` = nowhere.
    found: Option<u64>,
}

impl<P: Port, C: Cell<Shared>> Lane<P, C> {
    /// The first data or hole from `offset` on. ENXIO beyond the end, and when no data follows.
    pub async fn seek(&self, handle: Handle, offset: u64, what: Seek) -> Result<u64, Errno> {
        let (file, _going) = self.through_file(handle)?;
        self.errno(self.find_in_file(file.ino, offset, what).await)
    }

    async fn find_in_file(&self, ino: Ino, offset: u64, what: Seek) -> Result<u64, Refusal> {
        // What is written meanwhile is with its targets, or it would be taken for a hole.
        let _stopped = self.stop_gathering(ino);
        self.tell_content_first(ino).await?;
        for _ in 0..STALE_ROUNDS_MAX {
            let (size, layout) = self.file_now(ino).await?;
            if offset >= size {
                return Err(Errno::ENXIO.into());
            }
            let found = match layout.is_inline() {
                true => self.find_inline(ino, offset, what).await.map_err(Stuck::from),
                false => self.find_in_layout(&layout, offset, what).await,
            };
            match found {
                Ok(found) if found < size => return Ok(found),
                Ok(_) if what == Seek::Hole => return Ok(size),
                Ok(_) => return Err(Errno::ENXIO.into()),
                Err(stuck) => match stuck.refusal.status {
                    Status::STALE_GENERATION => drop(self.fetch_layout(ino).await?),
                    Status::LOST_CHUNK => self.settle_loss(ino, offset, u64::MAX).await?,
                    _ => self.go_on_elsewhere(ino, &layout, stuck).await?,
                },
            }
            if self.port.cancelled() {
                return Err(Errno::EINTR.into());
            }
        }
        Err(super::unsettled(ino))
    }

    /// Size and layout of an open file. They are asked for, unless a lease or a hold says them: others may have cut it.
    pub(crate) async fn file_now(&self, ino: Ino) -> Result<(u64, Arc<Layout>), Refusal> {
        let (mut seen, mut fetched) = (None, false);
        for _ in 0..STALE_ROUNDS_MAX {
            // What the targets said counts, whatever is in doubt again by now.
            let asked = match seen {
                Some(asked) => asked,
                None => Seen::of(&self.fresh_attr(ino).await?),
            };
            seen = Some(asked);
            let known = self.shared.with(|s| {
                let inode = s.inodes.get(ino)?;
                let layout = inode.layout.clone().filter(|_| !inode.layout_old)?;
                Some((inode.size().max(asked.size), inode.cuts, layout))
            });
            match known {
                Some((_, cuts, _)) if cuts > asked.cuts => {
                    // It was cut while the layout was asked for.
                    seen = None;
                    continue;
                }
                // Others made it longer than the layout that is known here.
                Some((size, _, layout)) if fetched || layout.is_inline() || layout.covered() >= size => {
                    return Ok((size, layout));
                }
                _ => drop(self.fetch_layout(ino).await?),
            }
            fetched = true;
        }
        Err(super::unsettled(ino))
    }

    /// Content in the metadata is data; what a truncate put behind it is a hole.
    async fn find_inline(&self, ino: Ino, offset: u64, what: Seek) -> Result<u64, Refusal> {
        let kept = self.shared.with(|s| Some(s.inodes.get(ino)?.inline.as_ref()?.data.len() as u64));
        let len = match kept {
            Some(len) => len,
            None => match self.fetch_layout(ino).await?.inline {
                Some(data) => data.0.len() as u64,
                None => return Err(Status::STALE_GENERATION.into()),
            },
        };
        Ok(match what {
            Seek::Data if offset < len => offset,
            Seek::Data => u64::MAX,
            Seek::Hole => offset.max(len),
        })
    }

    async fn find_in_layout(&self, layout: &Layout, offset: u64, what: Seek) -> Result<u64, Stuck> {
        let mut best = match what {
            Seek::Data => u64::MAX,
            // What no extent covers was never written.
            Seek::Hole => offset.max(layout.covered()),
        };
        // Up to here an earlier extent has some of the bytes: what a later one does not have is not known to be a hole.
        let mut shared = 0;
        for extent in &layout.extents {
            // In order of their starts: what follows has nothing in front of that.
            if extent.start > best {
                break;
            }
            let from = offset.max(extent.start);
            let from = if what == Seek::Hole { from.max(shared) } else { from };
            shared = shared.max(if extent.is_closed() { extent.end } else { 0 });
            if from < extent.end {
                let found = self.find_in_extent(extent, from, what).await?;
                best = if found < extent.end { best.min(found) } else { best };
            }
        }
        Ok(best)
    }

    async fn find_in_extent(&self, extent: &Extent, from: u64, what: Seek) -> Result<u64, Stuck> {
        let mut searches: Vec<Search> = (0..extent.stripes.len())
            .map(|stripe| Search { stripe, at: extent.local_from(stripe, from), found: None })
            .collect();
        loop {
            let open: Vec<usize> = searches
                .iter()
                .enumerate()
                .filter(|(_, search)| search.found.is_none())
                .map(|(at, _)| at)
                .collect();
            if open.is_empty() {
                let places = searches.iter().map(|search| place(extent, search));
                return Ok(places.min().unwrap_or(u64::MAX));
            }
            let mut jobs: Vec<Job<'_>> = open
                .iter()
                .map(|at| {
                    let Search { stripe, at: offset, .. } = searches[*at];
                    let (target, chunk) = (copies::to_read(&extent.stripes[stripe]), extent.chunk(stripe));
                    let message = MapChunk { target, chunk, offset, max: RUNS };
                    Job::new(To::Target(target), MapChunk::KIND, message.to_bytes(), false)
                })
                .collect();
            self.run(&mut jobs).await;
            for (at, job) in open.iter().zip(&mut jobs) {
                let reply: MapChunkReply = job.take()?.read()?;
                let stripe = searches[*at].stripe;
                if reply.size < extent.floor(stripe) {
                    return Err(super::lost::short().into());
                }
                // The layout is from before the seal: a newer one says where the bytes behind it are.
                if let Some(limit) = reply.sealed.filter(|limit| *limit < extent.cut(stripe)) {
                    let (target, chunk) = (copies::to_read(&extent.stripes[stripe]), extent.chunk(stripe));
                    let place = Place { target, chunk, offset: limit, len: 1 };
                    return Err(place.stuck(Refusal::new(Status::STALE_LAYOUT)));
                }
                searches[*at].look(&reply, what);
            }
            if self.port.cancelled() {
                return Err(Errno::EINTR.into());
            }
        }
    }
}

/// Where in the file a find is; behind a cut it is nowhere.
fn place(extent: &Extent, search: &Search) -> u64 {
    match search.found {
        Some(local) if local < extent.cut(search.stripe) => extent.place(search.stripe, local),
        _ => u64::MAX,
    }
}

impl Search {
    /// Takes in an answer, which knows everything from `at` to its `until`.
    fn look(&mut self, reply: &MapChunkReply, what: Seek) {
        let before = self.at;
        for run in reply.runs.iter().filter(|run| run.end > before) {
            match what {
                Seek::Data => {
                    self.found = Some(run.start.max(before));
                    return;
                }
                Seek::Hole if run.start > self.at => break,
                Seek::Hole => self.at = self.at.max(run.end),
            }
        }
        let more = reply.until != u64::MAX && reply.until > before;
        match what {
            Seek::Hole if self.at < reply.until || !more => self.found = Some(self.at),
            // Data up to where the answer ends: it may go on.
            Seek::Hole => {}
            Seek::Data if more => self.at = reply.until,
            Seek::Data => self.found = Some(u64::MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{block_on, create, mounted, write};
    use skep_types::SetAttr;

    /// Goal: data and holes of a file over three extents and three targets are those that were written,
    /// for every start; the end is a hole; beyond it ENXIO; the number of requests does not grow with
    /// the file.
    #[test]
    fn every_start_finds_what_was_written() {
        const BLOCK: u64 = 4096;
        let (cluster, lane) = mounted();
        let file = create(&lane, b"sparse");
        let blocks: Vec<bool> = (0..64).map(|n: u64| n % 7 < 2 || (30..40).contains(&n)).collect();
        let size = 64 * BLOCK + 100;
        for (n, _) in blocks.iter().enumerate().filter(|(_, data)| **data) {
            write(&lane, &file, n as u64 * BLOCK, &[1; BLOCK as usize]);
        }
        block_on(lane.setattr(file.attr.ino, SetAttr { size: Some(size), ..SetAttr::default() })).unwrap();
        for start in (0..size).step_by(1000).chain([size - 1]) {
            let is = |n: u64| blocks.get(n as usize).copied().unwrap_or(false);
            let first = |data: bool| {
                (start / BLOCK..=size / BLOCK).find(|n| is(*n) == data).map(|n| start.max(n * BLOCK))
            };
            let found = block_on(lane.seek(file.handle, start, Seek::Data));
            assert_eq!(found.ok(), first(true), "data from {start}");
            let found = block_on(lane.seek(file.handle, start, Seek::Hole));
            assert_eq!(found.ok(), Some(first(false).unwrap_or(size)), "hole from {start}");
        }
        assert_eq!(block_on(lane.seek(file.handle, size, Seek::Hole)), Err(Errno::ENXIO));
        let before = cluster.borrow().count(MapChunk::KIND);
        block_on(lane.seek(file.handle, 62 * BLOCK, Seek::Data)).unwrap_or(0);
        assert!(cluster.borrow().count(MapChunk::KIND) - before <= 6);
    }

    /// Goal: content in the metadata is data, what a truncate adds is a hole.
    #[test]
    fn inline_content_is_data() {
        let (_cluster, lane) = mounted();
        let file = create(&lane, b"small");
        write(&lane, &file, 0, b"content");
        assert_eq!(block_on(lane.seek(file.handle, 3, Seek::Data)), Ok(3));
        assert_eq!(block_on(lane.seek(file.handle, 3, Seek::Hole)), Ok(7));
        assert_eq!(block_on(lane.seek(file.handle, 7, Seek::Data)), Err(Errno::ENXIO));
    }
}
