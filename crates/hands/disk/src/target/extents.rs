//! Where a chunk file has data, and where it has its space.

use rustix::fs::{SeekFrom, fstat, seek};
use rustix::io::{Errno, Result};
use rustix::ioctl::{Opcode, Updater, ioctl, opcode};
use std::os::fd::AsFd;

/// Extents that one call asks for.
const EXTENTS: usize = 64;

/// `FS_IOC_FIEMAP`, `_IOWR('f', 11, struct fiemap)`: the array behind the head does not count.
const FIEMAP: Opcode = opcode::read_write::<Head>(b'f', 11);

/// `FIEMAP_EXTENT_LAST`: there is none behind it.
const LAST: u32 = 0x1;
/// `FIEMAP_EXTENT_UNWRITTEN`: reserved, and never written.
const UNWRITTEN: u32 = 0x800;
/// `FIEMAP_EXTENT_SHARED`: another file has the same blocks, so that a write needs new ones.
const SHARED: u32 = 0x2000;

/// `struct fiemap`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Head {
    start: u64,
    length: u64,
    flags: u32,
    mapped: u32,
    count: u32,
    reserved: u32,
}

/// `struct fiemap_extent`.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
struct Extent {
    logical: u64,
    physical: u64,
    length: u64,
    reserved: [u64; 2],
    flags: u32,
    more_reserved: [u32; 3],
}

#[repr(C)]
struct Query {
    head: Head,
    extents: [Extent; EXTENTS],
}

/// The next run of data at or after `from`, within the length. A file system that knows nothing of holes: all is data.
pub(super) fn next_data(file: &impl AsFd, from: u64) -> Result<Option<(u64, u64)>> {
    // Moves the position of a descriptor that others use at the same time: nobody reads or writes there.
    let edges = || {
        let start = seek(file, SeekFrom::Data(from))?;
        let end = seek(file, SeekFrom::Hole(start))?;
        Ok((start, end))
    };
    match edges() {
        Ok((start, end)) => Ok((start < end).then_some((start, end))),
        // Nothing from here on; in the second step: cut off meanwhile.
        Err(Errno::NXIO) => Ok(None),
        Err(Errno::INVAL | Errno::OPNOTSUPP | Errno::SPIPE) => {
            let size = fstat(file)?.st_size as u64;
            Ok((from < size).then_some((from, size)))
        }
        Err(e) => Err(e),
    }
}

/// The next run at or after `from` that has its space, reserved or written: see `ChunkStore::next_allocated`. A file
/// system that does not list extents (tmpfs) shows what is reserved as holes: there it is data only.
pub(super) fn next_allocated(file: &impl AsFd, from: u64) -> Result<Option<(u64, u64)>> {
    let size = fstat(file)?.st_size as u64;
    match next_run(|at| list(file, at), size, from) {
        Err(Errno::OPNOTSUPP | Errno::NOTTY | Errno::INVAL) => next_data(file, from),
        // Behind what the file system can hold.
        Err(Errno::FBIG) => Ok(None),
        found => found,
    }
}

/// Extents that reach behind `from`, in order, and whether there may be more.
#[allow(unsafe_code)] // rustix has no wrapper for this ioctl
fn list(file: &impl AsFd, from: u64) -> Result<(Vec<Extent>, bool)> {
    let head = Head { start: from, length: u64::MAX - from, count: EXTENTS as u32, ..Head::default() };
    let mut query = Query { head, extents: [Extent::default(); EXTENTS] };
    // SAFETY: the opcode is FS_IOC_FIEMAP, which reads `struct fiemap` through the pointer and writes it, and behind it
    // as many `struct fiemap_extent` as its count says: those of `Query`, which has both in this order (`repr(C)`).
    let request = unsafe { Updater::<FIEMAP, Query>::new(&mut query) };
    // SAFETY: as above; the descriptor is borrowed for the duration of the call.
    unsafe { ioctl(file, request)? };
    let found = &query.extents[..(query.head.mapped as usize).min(EXTENTS)];
    let more = found.len() == EXTENTS && found.last().is_some_and(|extent| extent.flags & LAST == 0);
    Ok((found.to_vec(), more))
}

#[derive(Clone, Copy)]
struct Run {
    start: u64,
    end: u64,
    /// Its last extent is one that was written.
    in_data: bool,
}

impl Run {
    /// Data ends with the file, not with the block.
    fn within(self, size: u64) -> Option<(u64, u64)> {
        let end = if self.in_data { self.end.min(size) } else { self.end };
        (self.start < end).then_some((self.start, end))
    }
}

/// The first run, as far as one list shows it.
fn next_run(
    mut list: impl FnMut(u64) -> Result<(Vec<Extent>, bool)>,
    size: u64,
    from: u64,
) -> Result<Option<(u64, u64)>> {
    let mut run: Option<Run> = None;
    let mut at = from;
    loop {
        let (extents, more) = list(at)?;
        let before = at;
        for extent in &extents {
            let counts = extent.flags & SHARED == 0;
            if let Some(known) = run
                && (!counts || known.end < extent.logical)
            {
                if let Some(found) = known.within(size) {
                    return Ok(Some(found));
                }
                run = None;
            }
            at = extent.logical.saturating_add(extent.length);
            if counts {
                let start = run.map_or(extent.logical.max(from), |run| run.start);
                run = Some(Run { start, end: at, in_data: extent.flags & UNWRITTEN == 0 });
            }
        }
        // Where the file ends in the last block of a list, what follows decides whether the block counts.
        let is_open = run.is_none_or(|run| run.in_data && size < run.end);
        if !more || at <= before || !is_open {
            return Ok(run.and_then(|run| run.within(size)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const K: u64 = 1 << 10;

    /// A file of `size` with these extents (start, end, flags), listed so many at a time.
    fn runs(size: u64, extents: &[(u64, u64, u32)], at_a_time: usize) -> Vec<(u64, u64)> {
        let listed = |from: u64| {
            let behind = extents.iter().filter(|(_, end, _)| *end > from);
            let made = behind.map(|(start, end, flags)| Extent {
                logical: *start,
                length: end - start,
                flags: *flags,
                ..Extent::default()
            });
            let all: Vec<Extent> = made.collect();
            let more = all.len() > at_a_time;
            Ok((all.into_iter().take(at_a_time).collect(), more))
        };
        let (mut at, mut found) = (0, Vec::<(u64, u64)>::new());
        while let Some((start, end)) = next_run(listed, size, at).unwrap() {
            match found.last_mut() {
                Some(last) if last.1 == start => last.1 = end,
                _ => found.push((start, end)),
            }
            at = end;
        }
        found
    }

    /// Goal: data and what is reserved are one run wherever a list of extents ends; the last block of a file counts as
    /// far as the file goes, unless something is reserved behind it; shared blocks do not count.
    #[test]
    fn runs_of_extents() {
        for at_a_time in 1..5 {
            let runs = |size, extents: &[_]| runs(size, extents, at_a_time);
            assert_eq!(runs(0, &[]), []);
            assert_eq!(runs(100, &[(0, 4 * K, 0)]), [(0, 100)]);
            assert_eq!(runs(100, &[(0, 4 * K, 0), (4 * K, 8 * K, UNWRITTEN)]), [(0, 8 * K)]);
            assert_eq!(runs(0, &[(4 * K, 8 * K, UNWRITTEN)]), [(4 * K, 8 * K)]);
            let apart = [(0, 4 * K, 0), (8 * K, 12 * K, UNWRITTEN), (12 * K, 16 * K, UNWRITTEN)];
            assert_eq!(runs(100, &apart), [(0, 100), (8 * K, 16 * K)]);
            let shared = [(0, 4 * K, 0), (4 * K, 8 * K, SHARED), (8 * K, 12 * K, 0)];
            assert_eq!(runs(12 * K, &shared), [(0, 4 * K), (8 * K, 12 * K)]);
            assert_eq!(runs(8 * K, &[(0, 8 * K, SHARED)]), []);
        }
        assert_eq!((size_of::<Head>(), size_of::<Extent>()), (32, 56));
    }
}
