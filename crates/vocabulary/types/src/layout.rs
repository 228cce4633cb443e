//! Where the bytes of a file are: extents, stripes, chunks, pieces.
//!
//! A layout is a list of extents that cover the file from 0. Chunks lie at multiples of the chunk size; within an
//! extent chunk `k` (0 is the one that holds its first byte) is on stripe `k % stripes`, at local offset
//! `k / stripes * chunk`. A stripe is one chunk file, which all of its targets hold; on a target it is cut into pieces of
//! at most 1 TiB. What may be assumed of a layout, and what not: `docs/design/layout.md`.
//!
//! An extent may be closed where its chunk files ended (`docs/design/seal.md`); its successor then has what it does not
//! own any more, and may overlap it. A byte belongs to the first extent of the list that owns it.

use crate::limits::{CHUNK_MAX, CHUNK_MIN, EXTENTS_MAX, PIECE_SIZE, TARGETS_MAX};
use crate::{Floors, Generation, Ino, LogPlace, PoolId, Stripe, TargetId};
use crate::{byte_enum, record};
use alloc::vec::Vec;
use core::ops::Range;

byte_enum! {
    /// How the bytes of a stripe stand on its targets. Of the whole extent, since what is reckoned for its stripes
    /// together (places, lengths, floors, cuts) follows from it. Numbers from 2 on are free for erasure codes.
    pub enum Code {
        /// Each target has all of them.
        Copies = 1,
    }
}

record! {
    /// A range of a file and the stripes that hold it.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Extent {
        /// Stands in the names of its chunk files; given once in a generation.
        pub number: u16,
        /// First byte of the file that it covers.
        pub start: u64,
        /// First byte after it; `u64::MAX` for the last extent of a complete layout.
        pub end: u64,
        /// Inode whose chunk files these are (a later clone shares another inode's).
        pub origin: Ino,
        /// Generation in the names of the chunk files.
        pub generation: Generation,
        /// What each target of a stripe has of it.
        pub code: Code,
        /// Bytes of one chunk: a power of two from 64 KiB on.
        pub chunk_size: u32,
        /// Its chunks go round these.
        pub stripes: Vec<Stripe>,
        /// How short its chunk files can be without something being lost.
        pub floors: Floors,
        /// Closed: for each stripe the offset in its chunk file from which on it owns nothing (`u64::MAX`: all is its
        /// own). Empty: it is open.
        pub cuts: Vec<u64>,
    } where can_be_reckoned
}

record! {
    /// All extents of a file.
    #[derive(Debug, Clone, Default, PartialEq, Eq)]
    pub struct Layout {
        /// Generation of the layout as a whole. 0 = inline, no extents.
        pub generation: Generation,
        /// Names the log record that last began or ended a truncate of the chunk files; never the same twice. Floors
        /// are raised only by who looked at the chunk files since.
        pub trims: LogPlace,
        /// In order of `start`, then of `number`; every byte up to the end has an owner.
        pub extents: Vec<Extent>,
    }
}

record! {
    /// What an administrator asks for new files of a directory, or for one file.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct Policy {
        /// Bytes of a chunk. 0 = the cluster's default.
        pub chunk_size: u32,
        /// Targets of a file. 0 = progressive (1, then 4, then all).
        pub targets: u32,
        /// Bytes kept in the metadata. `None` = the cluster's default, 0 = none.
        pub inline_limit: Option<u32>,
        /// Storage pool that the targets are taken from, and no other. 0 = the default pool.
        pub pool: PoolId,
    }
}

record! {
    /// Names the chunk file of one stripe of one extent; it has this name on each of the stripe's targets.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub struct ChunkId {
        /// Inode that the chunk file was made for.
        pub ino: Ino,
        /// Generation it was made in.
        pub generation: Generation,
        /// [`Extent::number`].
        pub extent: u16,
        /// Stripe number in the extent.
        pub stripe: u16,
    }
}

/// A contiguous run of a file within one chunk file: one request to a target of the stripe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// Offset in the file.
    pub file_offset: u64,
    /// Bytes.
    pub len: u64,
    /// Which chunk file.
    pub chunk: ChunkId,
    /// Who holds it. Which of them is asked is the client's to decide, in one place.
    pub stripe: Stripe,
    /// Offset in the chunk file.
    pub local_offset: u64,
}

impl Extent {
    /// Can places in it be reckoned at all? Others are not read, wherever they come from: there is nothing to divide by.
    fn can_be_reckoned(&self) -> bool {
        self.chunk_size > 0 && !self.stripes.is_empty()
    }

    /// Is it well formed by itself?
    pub fn is_valid(&self) -> bool {
        let closed = !self.cuts.is_empty();
        (self.start < self.end || closed && self.start == self.end)
            && self.chunk_size.is_power_of_two()
            && (CHUNK_MIN..=CHUNK_MAX).contains(&self.chunk_size)
            && (1..=TARGETS_MAX).contains(&self.stripes.len())
            && (!closed || self.cuts.len() == self.stripes.len())
            && !matches!(&self.floors, Floors::Each(each) if each.len() != self.stripes.len())
    }

    /// Name of the chunk file of `stripe`.
    pub fn chunk(&self, stripe: usize) -> ChunkId {
        ChunkId { ino: self.origin, generation: self.generation, extent: self.number, stripe: stripe as u16 }
    }

    /// Its stripes by the names of their chunk files.
    pub fn named(&self) -> impl Iterator<Item = (ChunkId, &Stripe)> + '_ {
        self.stripes.iter().enumerate().map(|(number, stripe)| (self.chunk(number), stripe))
    }

    /// Where its first chunk begins: at or before its first byte.
    fn base(&self) -> u64 {
        self.start & !(u64::from(self.chunk_size) - 1)
    }

    /// From which offset in `stripe`'s chunk file on it owns nothing.
    pub fn cut(&self, stripe: usize) -> u64 {
        self.cuts.get(stripe).copied().unwrap_or(u64::MAX)
    }

    /// (stripe, local offset, bytes to the end of the chunk) of a file offset inside the extent.
    pub fn locate(&self, offset: u64) -> (usize, u64, u64) {
        let chunk = u64::from(self.chunk_size);
        let within = offset - self.base();
        let (index, inside) = (within / chunk, within % chunk);
        let width = self.stripes.len() as u64;
        ((index % width) as usize, index / width * chunk + inside, chunk - inside)
    }

    /// Where in the file an offset of `stripe`'s chunk file is.
    pub fn place(&self, stripe: usize, local: u64) -> u64 {
        let chunk = u64::from(self.chunk_size);
        let index = (local / chunk).saturating_mul(self.stripes.len() as u64).saturating_add(stripe as u64);
        self.base().saturating_add(index.saturating_mul(chunk)).saturating_add(local % chunk)
    }

    /// How long `stripe`'s chunk file is when the file ends at `size`, without holes. (Of an extent that overlaps
    /// another: at most; what the other owns is counted in.)
    pub fn local_size(&self, stripe: usize, size: u64) -> u64 {
        let size = size.min(self.end);
        if size <= self.start { 0 } else { self.local_from(stripe, size).min(self.cut(stripe)) }
    }

    /// From which offset on `stripe`'s chunk file has bytes at or behind `offset` of the file, which lies in the extent or
    /// at its end.
    pub fn local_from(&self, stripe: usize, offset: u64) -> u64 {
        let chunk = u64::from(self.chunk_size);
        let (width, stripe_number) = (self.stripes.len() as u64, stripe as u64);
        let within = offset - self.base();
        let (full, rest) = (within / chunk, within % chunk);
        let rounds = full / width * chunk;
        match (full % width).cmp(&stripe_number) {
            core::cmp::Ordering::Greater => rounds + chunk,
            core::cmp::Ordering::Equal => rounds + rest,
            core::cmp::Ordering::Less => rounds,
        }
    }

    /// Where the file ends at least, when `stripe`'s chunk file is `local` bytes long.
    pub fn file_size(&self, stripe: usize, local: u64) -> u64 {
        if local == 0 { 0 } else { self.place(stripe, local - 1).saturating_add(1) }
    }
}

impl Layout {
    /// Data is in the metadata.
    pub fn is_inline(&self) -> bool {
        self.extents.is_empty()
    }

    /// First byte behind all extents.
    pub fn covered(&self) -> u64 {
        self.extents.iter().map(|extent| extent.end).max().unwrap_or(0)
    }

    /// The extent with this number.
    pub fn extent(&self, number: u16) -> Option<&Extent> {
        self.extents.iter().find(|extent| extent.number == number)
    }

    /// The extent that a chunk file belongs to, if it is one of this layout.
    pub fn extent_of(&self, chunk: &ChunkId) -> Option<&Extent> {
        self.extent(chunk.extent).filter(|extent| {
            (extent.origin, extent.generation) == (chunk.ino, chunk.generation)
                && usize::from(chunk.stripe) < extent.stripes.len()
        })
    }

    /// The number that the next extent gets.
    pub fn next_number(&self) -> u16 {
        self.extents.iter().map(|extent| extent.number.saturating_add(1)).max().unwrap_or(0)
    }

    /// Each extent is well formed, and every byte has an owner.
    pub fn is_valid(&self) -> bool {
        self.extents.iter().all(Extent::is_valid) && self.is_covered()
    }

    /// Every byte from 0 to the end has an owner.
    pub fn is_covered(&self) -> bool {
        let mut at = 0;
        let mut last = None;
        self.extents.len() <= EXTENTS_MAX
            && self.extents.iter().all(|extent| {
                let follows = extent.start <= at && last < Some((extent.start, extent.number));
                last = Some((extent.start, extent.number));
                at = at.max(extent.lowest_gap().unwrap_or(extent.end));
                let unique = self.extents.iter().filter(|other| other.number == extent.number).count() == 1;
                follows && unique
            })
            && at >= self.covered()
    }

    /// Who owns the byte at `at`: the extent, and the run from there on as (stripe, local offset, bytes). `Err`: nobody
    /// does, for so many bytes.
    fn owner(&self, at: u64) -> Result<(&Extent, usize, u64, u64), u64> {
        let mut unowned = u64::MAX - at;
        for extent in &self.extents {
            if at < extent.start {
                unowned = unowned.min(extent.start - at);
            } else if at < extent.end {
                let (stripe, local, room) = extent.locate(at);
                let own = extent.cut(stripe).saturating_sub(local).min(room).min(extent.end - at);
                if own > 0 {
                    // Who comes later in the list owns nothing of a run that is this extent's; whoever comes earlier
                    // owns nothing in the rest of this chunk.
                    return Ok((extent, stripe, local, own));
                }
                unowned = unowned.min(room).min(extent.end - at);
            }
        }
        Err(unowned)
    }

    /// Cuts a range of the file into runs, each within one chunk file. The part that no
    /// extent covers is left out.
    pub fn pieces(&self, offset: u64, len: u64) -> Vec<Piece> {
        let mut pieces: Vec<Piece> = Vec::new();
        let end = offset.saturating_add(len).min(self.covered());
        let mut at = offset;
        while at < end {
            let (extent, stripe, local_offset, room) = match self.owner(at) {
                Ok(found) => found,
                Err(unowned) => {
                    at = at.saturating_add(unowned.max(1));
                    continue;
                }
            };
            let len = room.min(end - at);
            let (chunk, holders) = (extent.chunk(stripe), extent.stripes[stripe]);
            match pieces.last_mut() {
                // One stripe: neighbouring chunks are neighbours in the chunk file too.
                Some(last)
                    if last.chunk == chunk
                        && last.local_offset + last.len == local_offset
                        && last.file_offset + last.len == at =>
                {
                    last.len += len
                }
                _ => pieces.push(Piece { file_offset: at, len, chunk, stripe: holders, local_offset }),
            }
            at += len;
        }
        pieces
    }

    /// The stripes that a range touches, one after the other, some again. `None`: nobody owns a part of it.
    pub fn touched(&self, range: Range<u64>) -> impl Iterator<Item = Option<&Stripe>> + '_ {
        let mut at = range.start;
        core::iter::from_fn(move || {
            if at >= range.end {
                return None;
            }
            Some(match self.owner(at) {
                Ok((extent, stripe, _, room)) => {
                    at = at.saturating_add(room);
                    extent.stripes.get(stripe)
                }
                Err(unowned) => {
                    at = at.saturating_add(unowned.max(1));
                    None
                }
            })
        })
    }

    /// Every stripe of the layout by the name of its chunk file.
    pub fn stripes(&self) -> impl Iterator<Item = (ChunkId, &Stripe)> + '_ {
        self.extents.iter().flat_map(Extent::named)
    }

    /// Every chunk file of the layout on each target that holds it.
    pub fn chunks(&self) -> impl Iterator<Item = (ChunkId, TargetId)> + '_ {
        self.stripes().flat_map(|(chunk, stripe)| stripe.targets().iter().map(move |target| (chunk, *target)))
    }

    /// Who holds a chunk file, if it is one of this layout.
    pub fn stripe(&self, chunk: &ChunkId) -> Option<&Stripe> {
        self.extent_of(chunk)?.stripes.get(usize::from(chunk.stripe))
    }
}

/// (piece number, offset in the piece) of an offset in a chunk file.
pub fn piece_of(local_offset: u64) -> (u32, u64) {
    ((local_offset / PIECE_SIZE) as u32, local_offset % PIECE_SIZE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::{Decode, DecodeError, Draw, Encode, Example};
    use alloc::vec;

    fn layout() -> Layout {
        let extent = |number, start, end, targets: Vec<u32>| Extent {
            number,
            start,
            end,
            origin: Ino(9),
            generation: Generation(1),
            code: Code::Copies,
            chunk_size: CHUNK_MIN,
            stripes: targets.into_iter().map(TargetId).map(Stripe::on).collect(),
            floors: Floors::default(),
            cuts: vec![],
        };
        let chunk = u64::from(CHUNK_MIN);
        Layout {
            generation: Generation(1),
            trims: Default::default(),
            extents: vec![extent(0, 0, 4 * chunk, vec![7]), extent(1, 4 * chunk, u64::MAX, vec![3, 4, 5])],
        }
    }

    /// Goal: extents that places could not be reckoned in are not read, alone or in a layout; whatever else one says, nothing
    /// that is reckoned from it panics.
    #[test]
    fn extents_without_stripes_or_chunks_are_not_read() {
        let sound = layout();
        assert_eq!(Layout::from_bytes(&sound.to_bytes()).as_ref(), Ok(&sound));
        let with = |change: &dyn Fn(&mut Extent)| {
            let mut layout = sound.clone();
            change(&mut layout.extents[1]);
            (Extent::from_bytes(&layout.extents[1].to_bytes()), Layout::from_bytes(&layout.to_bytes()))
        };
        let bad = DecodeError::Invalid("Extent");
        assert_eq!(with(&|extent| extent.chunk_size = 0), (Err(bad), Err(bad)));
        assert_eq!(with(&|extent| extent.stripes.clear()), (Err(bad), Err(bad)));
        let edges = [0, 1, u64::from(u32::MAX), 1 << 40, u64::MAX - 1, u64::MAX];
        for seed in 0..2_000 {
            let draw = Draw::mixed(seed);
            let mut extent = Extent::example(draw);
            (extent.start, extent.end) = (draw.of("from").one(&edges), draw.of("to").one(&edges));
            extent.chunk_size = draw.of("chunk").one(&[1, 3, CHUNK_MIN, 1 << 31, u32::MAX]);
            extent.number = draw.of("number").one(&[0, 7, u16::MAX]);
            let read = Extent::from_bytes(&extent.to_bytes()).unwrap();
            let mut layout = Layout { extents: vec![read.clone(), read], ..Layout::default() };
            let numbers = (layout.next_number(), layout.covered(), layout.is_valid(), layout.is_covered());
            for at in edges {
                let pieces = layout.pieces(at, 9);
                assert!(pieces.iter().all(|piece| piece.len <= 9), "{numbers:?}");
                layout.cut_floors(at);
                layout.raise_floors_to(at);
                for stripe in 0..layout.extents[0].stripes.len() {
                    let extent = &layout.extents[0];
                    let _ =
                        (extent.file_size(stripe, at), extent.local_size(stripe, at), extent.lowest_gap());
                }
            }
        }
    }

    /// Goal: pieces cover every byte of a range once, in order, also across extents.
    #[test]
    fn pieces_cover_the_range() {
        let layout = layout();
        assert!(layout.is_valid());
        let chunk = u64::from(CHUNK_MIN);
        for (offset, len) in [(0, 1), (10, 9 * chunk), (4 * chunk - 1, 2), (u64::MAX - 5, 5), (3, 0)] {
            let mut at = offset;
            for piece in layout.pieces(offset, len) {
                assert_eq!(piece.file_offset, at);
                at += piece.len;
            }
            assert_eq!(at, offset + len);
        }
        assert_eq!(layout.pieces(0, 4 * chunk).len(), 1, "one stripe: one request");
    }

    /// Goal: the stripes of a range are those of its pieces, in their order.
    #[test]
    fn a_range_touches_the_stripes_of_its_pieces() {
        let layout = layout();
        let chunk = u64::from(CHUNK_MIN);
        for (offset, len) in [(0, 1), (10, 9 * chunk), (4 * chunk - 1, 2), (5 * chunk, 1), (3, 0)] {
            let mut touched: Vec<Stripe> = layout.touched(offset..offset + len).flatten().copied().collect();
            touched.dedup();
            let mut of_pieces: Vec<Stripe> =
                layout.pieces(offset, len).iter().map(|piece| piece.stripe).collect();
            of_pieces.dedup();
            assert_eq!(touched, of_pieces, "{offset}, {len}");
        }
        let unowned = Layout { extents: layout.extents[1..].to_vec(), ..layout };
        assert_eq!(unowned.touched(0..4 * chunk).next(), Some(None));
        assert!(unowned.touched(0..5 * chunk).any(|stripe| stripe.is_some()));
    }

    /// Goal: local_size and file_size agree: the longest chunk file gives the size back.
    #[test]
    fn sizes_of_chunk_files_give_the_size_of_the_file() {
        let layout = layout();
        let chunk = u64::from(CHUNK_MIN);
        for size in [1, chunk, chunk + 1, 4 * chunk, 4 * chunk + 1, 7 * chunk, 11 * chunk + 5, 1 << 62] {
            let mut found = 0;
            for extent in &layout.extents {
                for stripe in 0..extent.stripes.len() {
                    found = found.max(extent.file_size(stripe, extent.local_size(stripe, size)));
                }
            }
            assert_eq!(found, size);
        }
    }
}
