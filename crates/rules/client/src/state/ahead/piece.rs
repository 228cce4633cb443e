//! Bytes of a file that were read ahead.

use super::AsOf;
use crate::limits::AHEAD_FOR_MS;
use crate::state::stride::{Guess, place_in};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;
use skep_types::Millis;

#[derive(Debug, Clone)]
pub(super) struct Piece {
    /// Where they are in the file: one after the other in `bytes`.
    spans: Vec<Range<u64>>,
    pub bytes: Arc<Vec<u8>>,
    pub as_of: AsOf,
    /// They were asked for no sooner, ...
    asked: Millis,
    /// ... and came then.
    pub came: Millis,
    /// How far behind it the next record begins; 0: they are in order.
    distance: i64,
    /// Where the record began that was asked for, and the number of the last one behind it that was given out.
    from: u64,
    last: u64,
    /// So many records are there that nobody had asked for, ...
    pub ahead: u32,
    /// ... of which so many were given out.
    pub used: u32,
    /// How far its bytes were given out, in the direction of the records.
    mark: u64,
    /// More of them at once would not have taken too long.
    pub grows: bool,
}

impl Piece {
    /// Of who reads in order from `from` on, and has `asked` bytes of it.
    pub fn in_order(
        (from, asked): (u64, usize),
        bytes: Arc<Vec<u8>>,
        as_of: AsOf,
        (since, came): (Millis, Millis),
    ) -> Self {
        let spans = alloc::vec![from..from + bytes.len() as u64];
        let (mark, asked) = (from + asked as u64, since);
        let (ahead, used, last, distance, grows) = (0, 0, 0, 0, false);
        Self { spans, bytes, as_of, asked, came, distance, from, last, ahead, used, mark, grows }
    }

    pub fn strided(
        (guess, asked): (Guess, usize),
        bytes: Arc<Vec<u8>>,
        as_of: AsOf,
        (since, came): (Millis, Millis),
        grows: bool,
    ) -> Self {
        let Guess { spans, ahead, from, distance } = guess;
        let mark = if distance < 0 { from } else { from + asked as u64 };
        Self { spans, bytes, as_of, asked: since, came, distance, from, last: 0, ahead, used: 0, mark, grows }
    }

    pub fn is_strided(&self) -> bool {
        self.ahead > 0
    }

    /// May it be given out, as far as that is known?
    pub fn is_good(&self, as_of: AsOf, now: Millis) -> bool {
        self.as_of == as_of && self.is_young(now)
    }

    pub fn is_young(&self, now: Millis) -> bool {
        now.since(self.asked) < AHEAD_FOR_MS
    }

    /// Where in it these are, as far as the file has them.
    pub fn place(&self, offset: u64, end: u64) -> Option<usize> {
        place_in(&self.spans, offset, end)
    }

    /// Does who reads there come out of it?
    pub fn is_left(&self, offset: u64) -> bool {
        self.spans.iter().any(|span| span.start < offset && offset <= span.end)
    }

    /// These are given out. How many of them for the first time: what is behind them in the direction of the records counts as not
    /// used.
    pub fn gives(&mut self, offset: u64, end: u64) -> u64 {
        let (way, far) = (offset.abs_diff(self.from), self.distance.unsigned_abs());
        let is_backward = self.distance < 0;
        if far > 0 && is_backward == (offset < self.from) {
            let number = if is_backward { way.div_ceil(far) } else { way / far };
            if number > self.last {
                // Of what lies between records some may be that others have.
                (self.last, self.used) = (number, (self.used + 1).min(self.ahead));
            }
        }
        if is_backward {
            let new = end.min(self.mark).saturating_sub(offset);
            self.mark = self.mark.min(offset);
            new
        } else {
            let new = end.saturating_sub(offset.max(self.mark));
            self.mark = self.mark.max(end);
            new
        }
    }
}
