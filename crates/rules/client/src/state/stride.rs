//! How a handle reads records at a constant distance, and what it will read next: see `docs/design/data-path.md`, section 4a.

use crate::limits::{
    AHEAD_FOR_MS, STRIDE_FIRST, STRIDE_GAP, STRIDE_LEAST, STRIDE_MAX, STRIDE_QUICK_MS, STRIDE_RUN,
    STRIDE_RUN_MAX, STRIDE_SIGHT, STRIDE_SLOW_MS,
};
use alloc::vec::Vec;
use core::ops::Range;
use skep_types::Millis;

/// What a handle has read lately, and how far guesses of it were right.
#[derive(Debug)]
pub struct Stride {
    /// The last read, and when it came.
    last: Option<(u64, Millis)>,
    /// How far behind the one before it began; backward, if that is below 0.
    distance: i64,
    /// The longest of the run.
    len: usize,
    /// Reads at that distance so far, with the first of them.
    run: u32,
    /// So many are asked for before a guess.
    needs: u32,
    /// Records of the next guess, with the one that is asked for.
    count: usize,
}

/// Records that are read together, by the places of their bytes: in order, without those that touch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Guess {
    pub spans: Vec<Range<u64>>,
    /// How many records that are, besides the one that is asked for.
    pub ahead: u32,
    /// Where that one begins, and how far behind it the next one does.
    pub from: u64,
    pub distance: i64,
}

impl Guess {
    pub fn bytes(&self) -> usize {
        self.spans.iter().map(len_of).sum()
    }
}

/// What of the records to come may be read together with the one that is asked for.
pub struct Choice<F, G> {
    /// So many besides it, ...
    pub records: usize,
    /// ... of so many bytes together with it.
    pub bytes: usize,
    /// Not what is here.
    pub is_here: F,
    /// Only what is on the targets that it needs itself.
    pub is_on: G,
}

/// Where in bytes that are of these spans, one after the other, those of a range are.
pub fn place_in(spans: &[Range<u64>], offset: u64, end: u64) -> Option<usize> {
    let number = spans.partition_point(|span| span.end <= offset);
    let span = spans.get(number).filter(|span| span.start <= offset && end <= span.end)?;
    let before: usize = spans.iter().take(number).map(len_of).sum();
    Some(before + (offset - span.start) as usize)
}

fn len_of(span: &Range<u64>) -> usize {
    (span.end - span.start) as usize
}

impl Default for Stride {
    fn default() -> Self {
        Self { last: None, distance: 0, len: 0, run: 0, needs: STRIDE_RUN, count: STRIDE_FIRST }
    }
}

impl Stride {
    /// A read of `len` bytes at `offset` begins.
    pub fn reads(&mut self, offset: u64, len: usize, now: Millis) {
        let last = self.last.replace((offset, now)).filter(|(_, at)| now.since(*at) < AHEAD_FOR_MS);
        let Some((last, _)) = last else {
            (self.run, self.distance, self.len) = (1, 0, len);
            return;
        };
        let distance = i64::try_from(i128::from(offset) - i128::from(last)).unwrap_or(0);
        let goes_on = distance == self.distance && self.is_like(len);
        (self.run, self.len) = match goes_on {
            true => (self.run.saturating_add(1), self.len.max(len)),
            false => (2, len),
        };
        self.distance = distance;
    }

    /// Is a record of this length one of them?
    fn is_like(&self, len: usize) -> bool {
        len <= 2 * self.len && self.len <= 2 * len
    }

    /// Does it read at a constant distance? Who reads in order is none of those.
    pub fn is_regular(&self) -> bool {
        let is_in_order = u64::try_from(self.distance).is_ok_and(|distance| distance == self.len as u64);
        self.run >= self.needs && self.distance != 0 && !is_in_order
    }

    /// Records of the next guess, with the one that is asked for.
    pub fn count(&self) -> usize {
        self.count
    }

    /// The records to come behind the one at `offset`, as far as is looked, of a file that ends at `size`.
    pub fn to_come(&self, offset: u64, size: u64) -> impl Iterator<Item = Range<u64>> + '_ {
        let next = move |from: &u64| from.checked_add_signed(self.distance);
        core::iter::successors(Some(offset), next)
            .skip(1)
            .take(STRIDE_SIGHT)
            .map(move |from| from..from.saturating_add(self.len as u64).min(size))
            .take_while(|record| !record.is_empty())
    }

    /// What is to be read together with `len` bytes at `offset`, where it reads now, of a file that ends at `size`.
    pub fn guess<F, G>(&self, (offset, len): (u64, usize), size: u64, choice: &Choice<F, G>) -> Option<Guess>
    where
        F: Fn(&Range<u64>) -> bool,
        G: Fn(&Range<u64>) -> bool,
    {
        // No more of it than is asked for: the rest may be on other targets.
        let first = offset..offset.saturating_add(len as u64).min(size);
        if !self.is_regular() || first.is_empty() || len_of(&first) > choice.bytes {
            return None;
        }
        let (mut bytes, mut ahead) = (len_of(&first), 0);
        let mut spans = alloc::vec![first];
        for record in self.to_come(offset, size) {
            if ahead >= choice.records.min(self.count.saturating_sub(1)) {
                break;
            }
            if (choice.is_here)(&record) || !(choice.is_on)(&record) {
                continue;
            }
            let last = spans.last_mut().filter(|span| is_near(span, &record));
            let joined = last.as_ref().map(|span| span.start.min(record.start)..span.end.max(record.end));
            let (last, joined) = match joined {
                // What lies between has to be there as well.
                Some(joined) if (choice.is_on)(&joined) => (last, joined),
                _ => (None, record),
            };
            let added = len_of(&joined) - last.as_ref().map_or(0, |span| len_of(span));
            if bytes + added > choice.bytes {
                break;
            }
            match last {
                Some(span) => *span = joined,
                None => spans.push(joined),
            }
            (bytes, ahead) = (bytes + added, ahead + 1);
        }
        if self.distance < 0 {
            spans.reverse();
        }
        (ahead > 0).then_some(Guess { spans, ahead: ahead as u32, from: offset, distance: self.distance })
    }

    /// What came of guesses: of so many records that nobody had asked for so many were used. `grows`: more of them at once take
    /// no longer than who asks for one may be kept waiting.
    pub fn was_right(&mut self, used: u32, ahead: u32, grows: bool) {
        match () {
            () if used >= ahead => {
                self.needs = STRIDE_RUN;
                if grows {
                    self.count = (2 * self.count).min(STRIDE_MAX);
                }
            }
            () if 2 * used < ahead => {
                (self.run, self.count) = (0, self.count.min(STRIDE_FIRST));
                self.needs = (2 * self.needs).min(STRIDE_RUN_MAX);
            }
            () => self.count = self.count.min(STRIDE_FIRST),
        }
    }

    /// Who asked for one record waited for so long. `true`: he may for more at once.
    pub fn took(&mut self, ms: u64) -> bool {
        if ms > STRIDE_SLOW_MS {
            self.count = (self.count / 2).max(STRIDE_LEAST);
        }
        ms <= STRIDE_QUICK_MS
    }

    /// Something is wrong with what would be read: not soon again.
    pub fn fails(&mut self) {
        (self.run, self.needs) = (0, STRIDE_RUN_MAX);
        self.count = self.count.min(STRIDE_FIRST);
    }
}

/// Does one request for both cost less than one for each?
fn is_near(span: &Range<u64>, record: &Range<u64>) -> bool {
    record.start <= span.end.saturating_add(STRIDE_GAP) && span.start <= record.end.saturating_add(STRIDE_GAP)
}

#[cfg(test)]
mod tests;
