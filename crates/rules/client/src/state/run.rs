//! Bytes of a file that programs were answered for and that no target has, in pieces: who writes in order makes one, and of
//! several who write records in turn each begins behind a gap that the others fill.

use crate::limits::RUN_PIECES_MAX;
use alloc::vec::Vec;

/// Bytes without a gap.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Piece {
    offset: u64,
    bytes: Vec<u8>,
}

impl Piece {
    fn end(&self) -> u64 {
        self.offset + self.bytes.len() as u64
    }
}

/// In order of the file; none lies over another.
#[derive(Debug, Default)]
pub struct Pieces(Vec<Piece>);

impl Pieces {
    /// What comes behind the first `done` bytes, up to the next gap. `None`: nothing.
    pub fn behind(&self, mut done: usize) -> Option<(u64, &[u8])> {
        for piece in &self.0 {
            if let Some(rest) = piece.bytes.get(done..).filter(|rest| !rest.is_empty()) {
                return Some((piece.offset + done as u64, rest));
            }
            done -= piece.bytes.len();
        }
        None
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Bytes in all.
    pub fn len(&self) -> usize {
        self.0.iter().map(|piece| piece.bytes.len()).sum()
    }

    /// From the first byte to behind the last one.
    pub fn span(&self) -> Option<(u64, u64)> {
        Some((self.0.first()?.offset, self.0.last()?.end()))
    }

    pub fn has_gaps(&self) -> bool {
        self.0.windows(2).any(|pair| pair[0].end() < pair[1].offset)
    }

    /// Takes these bytes in, over what it has of the same place if that is within one piece. `room`: for so many in all. `false`:
    /// they lie over an end, or there are too many pieces.
    pub fn take(&mut self, offset: u64, data: &[u8], room: usize) -> bool {
        let end = offset + data.len() as u64;
        let behind = self.0.partition_point(|piece| piece.offset <= offset);
        if self.0.get(behind).is_some_and(|next| next.offset < end) {
            return false;
        }
        if let Some(piece) = behind.checked_sub(1).and_then(|before| self.0.get_mut(before)) {
            if end <= piece.end() {
                let at = (offset - piece.offset) as usize;
                piece.bytes[at..at + data.len()].copy_from_slice(data);
                return true;
            }
            if offset <= piece.end() {
                let is_next = offset == piece.end();
                if is_next {
                    piece.bytes.extend_from_slice(data);
                }
                return is_next;
            }
        }
        if self.0.len() == RUN_PIECES_MAX && !self.join() {
            return false;
        }
        // They may have been joined.
        let behind = self.0.partition_point(|piece| piece.offset <= offset);
        let room = if self.0.is_empty() { room } else { 0 };
        let mut bytes = Vec::with_capacity(room.max(data.len()));
        bytes.extend_from_slice(data);
        self.0.insert(behind, Piece { offset, bytes });
        true
    }

    /// Makes one of those between which no gap is left. `false`: there are none. (Not at each write: who writes from the end to the
    /// beginning would have all of it copied each time.)
    pub fn join(&mut self) -> bool {
        let before = self.0.len();
        self.0.dedup_by(|next, piece| {
            let is_next = piece.end() == next.offset;
            if is_next {
                piece.bytes.append(&mut next.bytes);
            }
            is_next
        });
        self.0.len() < before
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;

    /// Goal: whatever is taken in, in whatever order, is there as written last, in as many pieces as there are gaps once they are
    /// joined, and never in more than may be; what is refused has changed nothing.
    #[test]
    fn pieces_are_what_was_written() {
        let mut draw = 1_u64;
        let mut next = |below: u64| {
            draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (draw >> 33) % below
        };
        let (mut taken, mut refused) = (0, 0);
        for round in 0..2_000_u64 {
            let (mut pieces, mut model) = (Pieces::default(), BTreeMap::new());
            for number in 0..next(60) {
                let (offset, len) = (next(400), 1 + next(20));
                let data: Vec<u8> = (0..len).map(|byte| (round + number * 7 + byte) as u8).collect();
                if pieces.take(offset, &data, 100) {
                    model.extend((offset..).zip(data));
                    taken += 1;
                } else {
                    refused += 1;
                }
                if next(9) == 0 {
                    pieces.join();
                }
                let found =
                    pieces.0.iter().flat_map(|piece| (piece.offset..).zip(piece.bytes.iter().copied()));
                assert!(found.eq(model.iter().map(|(at, byte)| (*at, *byte))), "round {round}");
                assert!(pieces.count() <= RUN_PIECES_MAX && pieces.len() == model.len());
            }
            pieces.join();
            let gaps = model.keys().zip(model.keys().skip(1)).filter(|(at, next)| *at + 1 < **next).count();
            assert_eq!(
                (pieces.count(), pieces.has_gaps()),
                (gaps + usize::from(!model.is_empty()), gaps > 0)
            );
        }
        assert!(taken > 10_000 && refused > 1_000, "{taken} {refused}");
    }

    /// Goal: records that several write in turn end as one piece, in whatever order each few of them come.
    #[test]
    fn records_in_turn_make_one_piece() {
        const RECORD: u64 = 100;
        let mut pieces = Pieces::default();
        for few in 0..200 {
            for record in [1, 3, 0, 2] {
                assert!(pieces.take((4 * few + record) * RECORD, &[7; RECORD as usize], 0));
            }
        }
        assert!(!pieces.has_gaps());
        pieces.join();
        assert_eq!((pieces.count(), pieces.span()), (1, Some((0, 800 * RECORD))));
    }
}
