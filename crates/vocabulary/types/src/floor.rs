//! Floors: how short a chunk file of an extent can be without something being lost.
//!
//! The floor of a chunk file that was never written is 0: it may be missing, and reads as a hole. Once a write to it
//! was committed it is 1: a chunk file that is missing or empty is lost. Once it was synced it is the length that is
//! durable (`docs/design/storage.md`, "What is lost says so").

use crate::codec::{Buffer, Decode, DecodeError, Encode, Reader};
use crate::{ChunkId, Extent, Layout, LogPlace, record};
use alloc::vec::Vec;

/// Floor of a chunk file that was written and is not known to be synced.
pub const WRITTEN: u64 = 1;

/// The floors of an extent's stripes, in as few bytes as they allow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Floors {
    /// As a file without holes that ends at this offset has them; 0 = nothing was ever written.
    Even(u64),
    /// The same for every stripe.
    Same(u64),
    /// One for each stripe.
    Each(Vec<u64>),
}

record! {
    /// Floors of one extent of a layout.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct ExtentFloors {
        /// Number of the extent.
        pub extent: u16,
        /// What is told of its stripes; 0 = nothing.
        pub floors: Floors,
    }
}

record! {
    /// What chunk files of a layout hold, as they were found since the layout was cut last.
    #[derive(Debug, Clone, Default, PartialEq, Eq)]
    pub struct Held {
        /// [`Layout::trims`] that was known before the chunk files were looked at.
        pub trims: LogPlace,
        /// Extents of which something is told.
        pub extents: Vec<ExtentFloors>,
        /// The message tells nothing else: size and times of the file stay.
        pub alone: bool,
    }
}

impl Default for Floors {
    fn default() -> Self {
        Self::Even(0)
    }
}

impl Encode for Floors {
    fn encode(&self, out: &mut Buffer) {
        match self {
            Self::Even(0) => out.push(0),
            Self::Even(end) => {
                out.push(1);
                end.encode(out);
            }
            Self::Same(floor) => {
                out.push(2);
                floor.encode(out);
            }
            Self::Each(floors) => {
                out.push(3);
                floors.encode(out);
            }
        }
    }
}

impl Decode for Floors {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match u8::decode(r)? {
            0 => Self::Even(0),
            1 => Self::Even(u64::decode(r)?),
            2 => Self::Same(u64::decode(r)?),
            3 => Self::Each(Vec::decode(r)?),
            _ => return Err(DecodeError::Invalid("floors")),
        })
    }
}

impl Extent {
    /// The shortest that `stripe`'s chunk file can be without something being lost.
    pub fn floor(&self, stripe: usize) -> u64 {
        self.floor_in(&self.floors, stripe)
    }

    /// The floor of `stripe` that `floors` say for this extent.
    pub fn floor_in(&self, floors: &Floors, stripe: usize) -> u64 {
        match floors {
            Floors::Even(end) => self.local_size(stripe, *end),
            Floors::Same(floor) => *floor,
            Floors::Each(floors) => floors.get(stripe).copied().unwrap_or(0),
        }
    }

    /// Floors for this extent, in the shortest form.
    pub fn floors_of(&self, each: Vec<u64>) -> Floors {
        let end = each.iter().enumerate().map(|(stripe, floor)| self.file_size(stripe, *floor)).max();
        let end = end.unwrap_or(0);
        if each.iter().enumerate().all(|(stripe, floor)| self.local_size(stripe, end) == *floor) {
            return Floors::Even(end);
        }
        match each.first() {
            Some(first) if each.iter().all(|floor| floor == first) => Floors::Same(*first),
            _ => Floors::Each(each),
        }
    }

    /// Sets the floor of every stripe to what `floor` says of it and of its present one. `true`: one has moved.
    fn set_floors(&mut self, floor: impl Fn(&Self, usize, u64) -> u64) -> bool {
        let old: Vec<u64> = (0..self.stripes.len()).map(|stripe| self.floor(stripe)).collect();
        let new: Vec<u64> =
            old.iter().enumerate().map(|(stripe, known)| floor(self, stripe, *known)).collect();
        let moved = old != new;
        if moved {
            self.floors = self.floors_of(new);
        }
        moved
    }
}

impl Layout {
    /// The floor of a chunk file; 0 when it is none of this layout.
    pub fn floor(&self, chunk: &ChunkId) -> u64 {
        self.extent_of(chunk).map_or(0, |extent| extent.floor(usize::from(chunk.stripe)))
    }

    /// The floor of a chunk file that was synced; 0 when it was not. What was never synced may be written anew: who
    /// wrote it was told by fsync that it is gone.
    pub fn synced_floor(&self, chunk: &ChunkId) -> u64 {
        Some(self.floor(chunk)).filter(|floor| *floor > WRITTEN).unwrap_or(0)
    }

    /// Chunk files hold at least this much. `true`: something of it is news.
    pub fn raise_floors(&mut self, held: &[ExtentFloors]) -> bool {
        let mut moved = false;
        for ExtentFloors { extent, floors } in held {
            if let Some(extent) = self.extents.iter_mut().find(|known| known.number == *extent) {
                // What the other side takes for its length, by a layout in which it was open, is nobody's.
                moved |= extent.set_floors(|extent, stripe, known| {
                    known.max(extent.floor_in(floors, stripe).min(extent.cut(stripe)))
                });
            }
        }
        moved
    }

    /// What is missing of a chunk file is given up: it is not asked for more than `size` bytes. `true`: it was.
    pub fn lower_floor(&mut self, chunk: &ChunkId, size: u64) -> bool {
        let wanted = usize::from(chunk.stripe);
        match self.extents.iter_mut().find(|extent| extent.number == chunk.extent) {
            Some(extent) if extent.generation == chunk.generation => {
                extent.set_floors(|_, stripe, known| if stripe == wanted { known.min(size) } else { known })
            }
            _ => false,
        }
    }

    /// Everything up to `size` was written and synced.
    pub fn raise_floors_to(&mut self, size: u64) {
        for extent in &mut self.extents {
            extent.set_floors(|extent, stripe, known| known.max(extent.local_size(stripe, size)));
        }
    }

    /// The file is about to be cut to `size`: chunk files may become as short as that leaves them.
    pub fn cut_floors(&mut self, size: u64) {
        for extent in &mut self.extents {
            extent.set_floors(|extent, stripe, known| known.min(extent.local_size(stripe, size)));
        }
    }

    /// What `found` tells of chunk files of this layout, extent by extent, in the shortest form.
    pub fn held(&self, found: impl Iterator<Item = (ChunkId, u64)>) -> Vec<ExtentFloors> {
        let mut each: alloc::collections::BTreeMap<u16, Vec<u64>> = alloc::collections::BTreeMap::new();
        for (chunk, floor) in found {
            let Some(extent) = self.extent_of(&chunk) else { continue };
            let (width, stripe) = (extent.stripes.len(), usize::from(chunk.stripe));
            let floors = each.entry(chunk.extent).or_insert_with(|| alloc::vec![0; width]);
            floors[stripe] = floors[stripe].max(floor);
        }
        let short = |(number, each): (u16, Vec<u64>)| {
            let floors = self.extent(number)?.floors_of(each);
            Some(ExtentFloors { extent: number, floors })
        };
        each.into_iter().filter_map(short).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::CHUNK_MIN;
    use crate::{Code, Generation, Ino, Stripe, TargetId};
    use alloc::vec;

    const CHUNK: u64 = CHUNK_MIN as u64;

    fn layout(width: u32) -> Layout {
        let extent = Extent {
            number: 0,
            cuts: vec![],
            start: 0,
            end: u64::MAX,
            origin: Ino(9),
            generation: Generation(1),
            code: Code::Copies,
            chunk_size: CHUNK_MIN,
            stripes: (1..=width).map(TargetId).map(Stripe::on).collect(),
            floors: Floors::default(),
        };
        Layout { generation: Generation(1), trims: Default::default(), extents: vec![extent] }
    }

    fn chunk(stripe: u16) -> ChunkId {
        ChunkId { ino: Ino(9), generation: Generation(1), extent: 0, stripe }
    }

    fn floors(layout: &Layout) -> Vec<u64> {
        let width = layout.extents[0].stripes.len();
        (0..width).map(|stripe| layout.extents[0].floor(stripe)).collect()
    }

    /// Goal: floors rise to the maximum of what is told, stripe by stripe, and a truncate lowers them to what it leaves.
    #[test]
    fn floors_rise_and_are_cut() {
        let mut layout = layout(3);
        assert_eq!(floors(&layout), [0, 0, 0]);
        let told = layout.held([(chunk(1), WRITTEN), (chunk(2), 700)].into_iter());
        assert!(layout.raise_floors(&told));
        assert!(!layout.raise_floors(&told), "no news");
        assert_eq!(floors(&layout), [0, 1, 700]);
        let lower = layout.held([(chunk(2), 500)].into_iter());
        assert!(!layout.raise_floors(&lower));
        layout.raise_floors_to(3 * CHUNK + 9);
        assert_eq!(floors(&layout), [CHUNK + 9, CHUNK, CHUNK]);
        layout.cut_floors(2 * CHUNK + 4);
        assert_eq!(floors(&layout), [CHUNK, CHUNK, 4]);
        layout.cut_floors(10);
        assert_eq!(floors(&layout), [10, 0, 0], "what holds nothing any more may be missing");
    }

    /// Goal: lowering on purpose reaches the stripes named, to what was found there, and no other.
    #[test]
    fn floors_are_given_up() {
        let mut layout = layout(3);
        layout.raise_floors_to(3 * CHUNK);
        assert!(layout.lower_floor(&chunk(0), 0) && layout.lower_floor(&chunk(2), 500));
        assert!(!layout.lower_floor(&chunk(2), 600));
        assert_eq!(floors(&layout), [0, CHUNK, 500]);
    }

    /// Goal: a wide file that was written from its start costs the row nine bytes for all its stripes, a file that was
    /// never written one; every form reads back.
    #[test]
    fn floors_are_short() {
        let mut layout = layout(64);
        let len = |layout: &Layout| layout.extents[0].floors.to_bytes().len();
        assert_eq!(len(&layout), 1);
        let told = layout.held((0..64).map(|stripe| (chunk(stripe), WRITTEN)));
        assert_eq!((told[0].floors.clone(), told[0].to_bytes().len()), (Floors::Same(WRITTEN), 15));
        layout.raise_floors(&told);
        assert_eq!(len(&layout), 9);
        let size = 100 * CHUNK + 17;
        let synced = (0..64).map(|stripe| (chunk(stripe), layout.extents[0].local_size(stripe.into(), size)));
        let told = layout.held(synced);
        layout.raise_floors(&told);
        assert_eq!((layout.extents[0].floors.clone(), len(&layout)), (Floors::Even(size), 9));
        let told = layout.held([(chunk(5), 1 << 40)].into_iter());
        layout.raise_floors(&told);
        assert_eq!(len(&layout), 1 + 4 + 64 * 8);
        for floors in [Floors::Even(0), Floors::Even(7), Floors::Same(1), layout.extents[0].floors.clone()] {
            assert_eq!(Floors::from_bytes(&floors.to_bytes()).unwrap(), floors);
        }
        assert!(Floors::from_bytes(&[9]).is_err());
    }
}
