//! What chunk files hold for sure, as this mount found it: to be told to the shard with the next commit.
//!
//! See `docs/design/lost.md`.

use super::Inode;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use skep_types::{ChunkId, ExtentFloors, Floors, Generation, Held, LogPlace, WRITTEN};

/// A layout as it was cut last: see [`skep_types::Layout::trims`]. Later ones are greater.
pub type Point = (Generation, LogPlace);

/// What a target said after a change of a chunk file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answered {
    /// Life of the target.
    pub life: u64,
    /// 512-byte blocks of the chunk file.
    pub blocks: u64,
    pub size: u64,
    /// The layout that was known when the change was sent.
    pub point: Point,
    /// The change is durable, and the chunk file up to here.
    pub synced: Option<u64>,
    /// What the target counts of cuts.
    pub cuts: Option<u64>,
}

/// A report to the shard.
#[derive(Debug, Clone)]
pub struct Telling {
    /// The message.
    pub held: Held,
    /// What it is made of.
    pub found: BTreeMap<ChunkId, u64>,
    /// The layout that it is true of.
    pub point: Point,
}

impl Inode {
    /// The layout that is known now.
    pub fn looks_at(&self) -> Point {
        let known =
            self.layout.as_ref().map_or_else(Point::default, |layout| (layout.generation, layout.trims));
        known.max(self.held_at)
    }

    /// A chunk file was found to hold so much after `point` was known: the shard is to be told, if it is news.
    pub fn hold(&mut self, chunk: ChunkId, point: Point, floor: u64) {
        let known = self.layout.as_ref().filter(|layout| (layout.generation, layout.trims) == point);
        if floor == 0 || chunk.generation != point.0 || point < self.held_at {
            return;
        }
        if known.is_some_and(|layout| layout.floor(&chunk) >= floor) {
            return;
        }
        self.holds_at(point);
        let held = self.held.entry(chunk).or_default();
        *held = floor.max(*held);
    }

    /// What is found from now on is true of this layout. What was found before the file was cut means nothing any more.
    pub fn holds_at(&mut self, point: Point) {
        if point > self.held_at {
            self.held.clear();
            self.held_at = point;
        }
    }

    /// What was written to these chunk files and not synced is lost, and whoever wrote is told so. If the shard does not
    /// know that they were written, it is not to hear of it now: it would miss them.
    pub fn written_no_more(&mut self, chunks: &[ChunkId]) {
        self.held.retain(|chunk, floor| *floor > WRITTEN || !chunks.contains(chunk));
    }

    /// As [`Inode::hold`] for what a sync found.
    pub fn hold_all(&mut self, chunks: &[ChunkId], point: Point, sizes: &[u64]) {
        for (chunk, size) in chunks.iter().zip(sizes) {
            let known = self.layout.as_ref().map_or(0, |layout| layout.floor(chunk));
            let known = known.max(self.held.get(chunk).copied().unwrap_or(0));
            // It was written: that nothing is there is looked into, whatever is remembered of it.
            self.too_short += u32::from(*size < known.max(WRITTEN));
            self.hold(*chunk, point, *size);
        }
    }

    /// What the shard is to be told with the next commit: nothing new perhaps, but of which layout that is true.
    pub fn telling(&self) -> Option<Telling> {
        let (found, point) = (self.held.clone(), self.held_at);
        if found.is_empty() {
            let layout = self.layout.as_ref().filter(|layout| !layout.is_inline())?;
            let held = Held { trims: layout.trims, extents: Vec::new(), alone: false };
            return Some(Telling { held, found, point: (layout.generation, layout.trims) });
        }
        let each = found.iter().map(|(chunk, floor)| (*chunk, *floor));
        let extents = match self.layout.as_ref().filter(|layout| layout.generation == point.0) {
            Some(layout) => layout.held(each),
            None => without_layout(each),
        };
        Some(Telling { held: Held { trims: point.1, extents, alone: false }, found, point })
    }

    /// The shard was told this.
    pub fn told(&mut self, telling: &Telling) {
        let Telling { held, found, point } = telling;
        if self.held_at == *point {
            self.held.retain(|chunk, floor| found.get(chunk).is_none_or(|told| told < floor));
        }
        if let Some(layout) = &mut self.layout
            && (layout.generation, layout.trims) == *point
        {
            Arc::make_mut(layout).raise_floors(&held.extents);
        }
    }

    /// The file was cut since: what was found before is forgotten.
    pub fn held_is_void(&mut self) {
        self.held.clear();
        // The shard may have lost the cut that was known here: what it says next counts, be it older.
        self.held_at = Point::default();
        self.held_voided = self.held_voided.wrapping_add(1);
        self.layout = None;
    }
}

/// Floors for a layout that is not known any more: the stripes say themselves where they belong.
fn without_layout(found: impl Iterator<Item = (ChunkId, u64)>) -> Vec<ExtentFloors> {
    let mut extents: BTreeMap<u16, Vec<u64>> = BTreeMap::new();
    for (chunk, floor) in found {
        let (each, stripe) = (extents.entry(chunk.extent).or_default(), usize::from(chunk.stripe));
        if each.len() <= stripe {
            each.resize(stripe + 1, 0);
        }
        each[stripe] = floor;
    }
    extents.into_iter().map(|(extent, each)| ExtentFloors { extent, floors: Floors::Each(each) }).collect()
}
