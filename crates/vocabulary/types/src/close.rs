//! Closing an extent where its chunk files end, and what comes behind it (`docs/design/seal.md`).

use crate::limits::EXTENTS_MAX;
use crate::{Extent, Floors, Layout, Stripe};
use alloc::vec::Vec;

impl Extent {
    /// Does it own no more than it did when it was closed?
    pub fn is_closed(&self) -> bool {
        !self.cuts.is_empty()
    }

    /// The lowest byte between its start and its end that it does not own; `None`: it owns all.
    pub fn lowest_gap(&self) -> Option<u64> {
        let closed = (0..self.stripes.len()).filter(|stripe| self.cut(*stripe) != u64::MAX);
        let gap = closed.map(|stripe| self.place(stripe, self.cut(stripe)).max(self.start)).min()?;
        (gap < self.end).then_some(gap)
    }

    /// Sets the cuts and, when no stripe is open, the end to the last byte that it owns.
    fn cut_at(&mut self, cuts: Vec<u64>) {
        let floors: Vec<u64> = (0..self.stripes.len()).map(|stripe| self.floor(stripe)).collect();
        self.cuts = cuts;
        let last = |stripe| self.file_size(stripe, self.cut(stripe));
        let last = (0..self.stripes.len()).map(last).max().unwrap_or(0).max(self.start);
        self.end = self.end.min(last);
        // What they say depends on the cuts.
        self.floors = Floors::Each(Vec::new());
        self.floors = self.floors_of(floors);
    }
}

impl Layout {
    /// Extent `number` is closed: `limits` says of each stripe where its targets have sealed the chunk file, if they have.
    /// What it does not own any more goes to a new extent of `stripes`. `true`: something has changed.
    ///
    /// Nothing does when the layout would not be one, and a stripe of which something is lost stays open: what is
    /// missing must not be taken for the successor's hole.
    pub fn close(&mut self, number: u16, limits: &[Option<u64>], stripes: &[Stripe]) -> bool {
        let mut closed = self.clone();
        if closed.close_at(number, limits, stripes).is_none() || !closed.is_covered() {
            return false;
        }
        let changed = closed != *self;
        *self = closed;
        changed
    }

    fn close_at(&mut self, number: u16, limits: &[Option<u64>], stripes: &[Stripe]) -> Option<()> {
        let at = self.extents.iter().position(|extent| extent.number == number)?;
        let extent = &mut self.extents[at];
        if limits.len() != extent.stripes.len() {
            return None;
        }
        let cut = |(stripe, limit): (usize, &Option<u64>)| match limit {
            Some(limit) if *limit >= extent.floor(stripe) => extent.cut(stripe).min(*limit),
            _ => extent.cut(stripe),
        };
        let cuts: Vec<u64> = limits.iter().enumerate().map(cut).collect();
        if cuts.iter().all(|cut| *cut == u64::MAX) {
            return None;
        }
        let end = extent.end;
        // Of the old range: its new end may be in front of the gap.
        let gap = Extent { cuts: cuts.clone(), ..extent.clone() }.lowest_gap();
        extent.cut_at(cuts);
        let Some(start) = gap else { return Some(()) };
        if self.extents.iter().skip(at + 1).any(|other| other.start <= start && start < other.end) {
            // An earlier successor has all from there on.
            return Some(());
        }
        if stripes.is_empty() || self.extents.len() >= EXTENTS_MAX {
            return None;
        }
        let behind =
            self.extents.iter().skip(at + 1).filter(|other| other.start > start && other.start < other.end);
        let end = behind.map(|other| other.start).fold(end, u64::min);
        let successor = Extent {
            number: self.next_number(),
            start,
            end,
            stripes: stripes.to_vec(),
            floors: Floors::default(),
            cuts: Vec::new(),
            ..self.extents[at].clone()
        };
        self.extents.push(successor);
        self.extents.sort_by_key(|extent| (extent.start, extent.number));
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::CHUNK_MIN;
    use crate::{ChunkId, Code, Generation, Ino, TargetId, WRITTEN};
    use alloc::collections::BTreeMap;
    use alloc::vec;

    const CHUNK: u64 = CHUNK_MIN as u64;

    fn extent(number: u16, start: u64, end: u64, targets: &[u32]) -> Extent {
        Extent {
            number,
            start,
            end,
            origin: Ino(9),
            generation: Generation(1),
            code: Code::Copies,
            chunk_size: CHUNK_MIN,
            stripes: stripes(targets),
            floors: Floors::default(),
            cuts: vec![],
        }
    }

    fn layout() -> Layout {
        let extents = vec![extent(0, 0, 3 * CHUNK, &[1]), extent(1, 3 * CHUNK, u64::MAX, &[1, 2, 3])];
        Layout { generation: Generation(1), trims: Default::default(), extents }
    }

    fn stripes(targets: &[u32]) -> Vec<Stripe> {
        targets.iter().copied().map(TargetId).map(Stripe::on).collect()
    }

    fn owners(layout: &Layout, offset: u64, len: u64) -> Vec<(u64, u64, u16, u16)> {
        let pieces = layout.pieces(offset, len);
        pieces.iter().map(|p| (p.file_offset, p.len, p.chunk.extent, p.chunk.stripe)).collect()
    }

    /// Goal: one stripe: the successor begins where the chunk file ended, in the middle of a chunk, and keeps the
    /// places of bytes within chunks.
    #[test]
    fn one_stripe_goes_on_elsewhere() {
        let mut layout = layout();
        assert!(layout.close(0, &[Some(CHUNK + 10)], &stripes(&[2])));
        assert!(layout.is_valid());
        assert_eq!(
            layout.extents.iter().map(|e| (e.number, e.start, e.end)).collect::<Vec<_>>(),
            [(0, 0, CHUNK + 10), (2, CHUNK + 10, 3 * CHUNK), (1, 3 * CHUNK, u64::MAX)]
        );
        let piece = layout.pieces(CHUNK + 20, 5)[0];
        assert_eq!((piece.stripe, piece.chunk.extent, piece.local_offset), (Stripe::on(TargetId(2)), 2, 20));
        assert_eq!(layout.extents[1].file_size(0, 25), CHUNK + 25);
        assert_eq!(layout.extents[1].local_size(0, CHUNK + 25), 25);
        assert_eq!(layout.extents[1].local_size(0, CHUNK + 10), 0);
    }

    /// Goal: a full stripe in the middle of a row goes on elsewhere from where it ended, though others of its row are
    /// longer; they keep what they have.
    #[test]
    fn a_full_stripe_leaves_no_hole() {
        let mut layout = layout();
        let whole = CHUNK;
        assert!(layout.close(1, &[Some(whole), Some(100), Some(whole)], &stripes(&[4, 5])));
        assert!(layout.is_valid());
        let start = 3 * CHUNK;
        assert_eq!(
            owners(&layout, start, 4 * CHUNK),
            [
                (start, CHUNK, 1, 0),
                (start + CHUNK, 100, 1, 1),
                (start + CHUNK + 100, CHUNK - 100, 2, 0),
                (start + 2 * CHUNK, CHUNK, 1, 2),
                (start + 3 * CHUNK, CHUNK, 2, 0),
            ]
        );
    }

    /// Goal: an extent that nobody wrote to stays in the list, empty; its number is not given again.
    #[test]
    fn an_empty_extent_stays() {
        let mut layout = layout();
        assert!(layout.close(1, &[Some(0), Some(0), Some(0)], &stripes(&[4])));
        assert!(layout.is_valid());
        assert_eq!((layout.extents[1].start, layout.extents[1].end), (3 * CHUNK, 3 * CHUNK));
        assert_eq!(layout.chunks().count(), 1 + 3 + 1);
        assert_eq!(owners(&layout, 3 * CHUNK, 1), [(3 * CHUNK, 1, 2, 0)]);
        assert_eq!(layout.next_number(), 3);
    }

    /// Goal: a stripe whose target did not confirm, or of which something is lost, keeps its bytes; none confirmed:
    /// nothing changes. What is closed at the same place again does not grow a second successor.
    #[test]
    fn what_is_not_sealed_stays_open() {
        let mut layout = layout();
        assert!(!layout.close(1, &[None, None, None], &stripes(&[4])));
        let chunk = ChunkId { ino: Ino(9), generation: Generation(1), extent: 1, stripe: 2 };
        let held = layout.held([(chunk, 500)].into_iter());
        layout.raise_floors(&held);
        assert!(layout.close(1, &[Some(0), None, Some(499)], &stripes(&[4])));
        let start = 3 * CHUNK;
        assert_eq!(layout.extents[1].cuts, [0, u64::MAX, u64::MAX]);
        assert_eq!(layout.extents[1].end, u64::MAX);
        assert_eq!(layout.extents[1].floor(2), 500);
        let owners = owners(&layout, start, 3 * CHUNK);
        assert_eq!(owners.iter().map(|owner| owner.2).collect::<Vec<_>>(), [2, 1, 1]);
        assert!(!layout.close(1, &[Some(0), None, None], &stripes(&[4])));
        assert!(layout.close(1, &[Some(0), Some(7), None], &stripes(&[4])));
        assert_eq!(layout.extents.len(), 3, "the successor has it all");
        assert!(layout.is_valid());
    }

    /// Goal: after any sequence of writes, cuts of the file and seals, every byte has one owner, no byte that is stored
    /// ever gets another, and what the chunk files' lengths say of the file's end is what was written.
    #[test]
    fn no_byte_moves() {
        for seed in 1..400u64 {
            let mut draw = seed;
            let mut next = |below: u64| {
                draw ^= draw << 13;
                draw ^= draw >> 7;
                draw ^= draw << 17;
                draw % below
            };
            let mut layout = layout();
            let mut lens: BTreeMap<ChunkId, u64> = BTreeMap::new();
            let mut stored: BTreeMap<u64, (ChunkId, u64)> = BTreeMap::new();
            for _ in 0..40 {
                match next(4) {
                    0 => {
                        let number = layout.extents[next(layout.extents.len() as u64) as usize].number;
                        let extent = layout.extent(number).unwrap().clone();
                        let limit = |stripe| {
                            (next(5) > 0).then(|| lens.get(&extent.chunk(stripe)).copied().unwrap_or(0))
                        };
                        let limits: Vec<_> = (0..extent.stripes.len()).map(limit).collect();
                        let new: Vec<u32> = (0..=next(3) as u32).map(|n| 10 + n).collect();
                        layout.close(number, &limits, &stripes(&new));
                    }
                    1 => {
                        let size = next(9 * CHUNK);
                        for extent in &layout.extents {
                            for stripe in 0..extent.stripes.len() {
                                let local = extent.local_size(stripe, size);
                                lens.entry(extent.chunk(stripe)).and_modify(|len| *len = local.min(*len));
                            }
                        }
                        stored.retain(|offset, _| *offset < size);
                        layout.cut_floors(size);
                    }
                    _ => {
                        let (offset, len) = (next(9 * CHUNK), next(2 * CHUNK) + 1);
                        let pieces = layout.pieces(offset, len);
                        let mut at = offset;
                        for piece in &pieces {
                            assert_eq!(piece.file_offset, at);
                            at += piece.len;
                            let end = piece.local_offset + piece.len;
                            lens.entry(piece.chunk).and_modify(|len| *len = end.max(*len)).or_insert(end);
                            stored.insert(piece.file_offset, (piece.chunk, piece.local_offset));
                            stored.insert(at - 1, (piece.chunk, end - 1));
                            let held = layout.held([(piece.chunk, WRITTEN)].into_iter());
                            layout.raise_floors(&held);
                        }
                        assert_eq!(at, offset + len);
                    }
                }
                assert!(layout.is_valid(), "seed {seed}: {layout:?}");
                for (offset, place) in &stored {
                    let piece = layout.pieces(*offset, 1)[0];
                    assert_eq!((piece.chunk, piece.local_offset), *place, "seed {seed}, byte {offset}");
                    let extent = layout.extent_of(&piece.chunk).unwrap();
                    assert_eq!(extent.place(piece.chunk.stripe.into(), piece.local_offset), *offset);
                }
                let end = |(chunk, len): (&ChunkId, &u64)| {
                    layout.extent_of(chunk).unwrap().file_size(chunk.stripe.into(), *len)
                };
                let found = lens.iter().map(end).max().unwrap_or(0);
                assert!(found >= stored.keys().last().map_or(0, |last| last + 1), "seed {seed}");
                for (chunk, len) in &lens {
                    assert!(layout.floor(chunk) <= *len, "seed {seed}: {chunk:?} {len}");
                }
            }
        }
    }
}
