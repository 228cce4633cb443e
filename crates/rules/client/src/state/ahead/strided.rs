//! The next records of who reads at a constant distance.

use super::{Ahead, Aheads, AsOf, Piece};
use crate::limits::{AHEAD_MAX, STRIDE_KEPT_MAX, STRIDE_ROUNDS};
use crate::state::stride::{Choice, Guess};
use crate::state::{Handle, copies};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;
use skep_types::{Layout, Millis, TargetId};

impl Aheads {
    /// `len` bytes are read at `offset` of a file that ends at `size`, and are not here: what is to be read with them.
    pub fn guesses(
        &mut self,
        handle: Handle,
        (offset, len): (u64, usize),
        (size, layout): (u64, &Layout),
        now: Millis,
    ) -> Ahead {
        let Some(reading) = self.of.get(&handle) else { return Ahead::No };
        if reading.fetching > 0 || !reading.stride.is_regular() {
            return Ahead::No;
        }
        // What came of the guesses that are behind it says what is guessed now.
        let to_come: Vec<Range<u64>> = reading.stride.to_come(offset, size).collect();
        self.forget_pieces(handle, |piece| !to_come.iter().any(|record| is_in(piece, record)));
        let Some(reading) = self.of.get(&handle) else { return Ahead::No };
        let kept: usize = reading.pieces.iter().map(|piece| piece.bytes.len()).sum();
        let waits: u32 = reading.pieces.iter().map(|piece| piece.ahead - piece.used).sum();
        let own = targets_of(layout, offset..offset.saturating_add(len as u64).min(size));
        let Some(own) = own else { return Ahead::No };
        let choice = Choice {
            records: (STRIDE_ROUNDS * reading.stride.count()).saturating_sub(waits as usize),
            bytes: AHEAD_MAX.min(STRIDE_KEPT_MAX.saturating_sub(kept)),
            is_here: |record: &Range<u64>| reading.pieces.iter().any(|piece| is_in(piece, record)),
            is_on: |record: &Range<u64>| is_on(layout, record.clone(), &own),
        };
        let Some(guess) = reading.stride.guess((offset, len), size, &choice) else { return Ahead::No };
        if guess.bytes() <= len || !self.makes_room(guess.bytes(), now) {
            return Ahead::No;
        }
        self.bytes += guess.bytes();
        self.of.entry(handle).or_default().fetching = guess.bytes();
        Ahead::Strided(guess)
    }

    /// As [`Aheads::put`].
    pub fn put_strided(
        &mut self,
        handle: Handle,
        (guess, asked): (Guess, usize),
        bytes: Arc<Vec<u8>>,
        as_of: AsOf,
        (since, now): (Millis, Millis),
    ) -> bool {
        self.fetched.strided += bytes.len().saturating_sub(asked) as u64;
        let grows = self.of.get_mut(&handle).is_some_and(|reading| reading.stride.took(now.since(since)));
        self.keep(handle, Piece::strided((guess, asked), bytes, as_of, (since, now), grows))
    }

    /// There is trouble with what was guessed.
    pub fn strays(&mut self, handle: Handle) {
        self.is_fetched(handle);
        if let Some(reading) = self.of.get_mut(&handle) {
            reading.stride.fails();
        }
    }

    /// Something is being read ahead through a handle.
    pub fn is_reading(&self, handle: Handle) -> bool {
        self.of.get(&handle).is_some_and(|reading| reading.fetching > 0)
    }

    /// Bytes of records ahead that were used through a handle.
    pub fn strided_used(&self, handle: Handle) -> u64 {
        self.of.get(&handle).map_or(0, |reading| reading.strided_used)
    }
}

fn is_in(piece: &Piece, record: &Range<u64>) -> bool {
    piece.place(record.start, record.end).is_some()
}

/// Who is asked for these bytes. `None`: nobody has a part of them.
fn targets_of(layout: &Layout, range: Range<u64>) -> Option<Vec<TargetId>> {
    layout.touched(range).map(|stripe| stripe.map(copies::to_read)).collect()
}

/// Is nobody else asked for these?
fn is_on(layout: &Layout, range: Range<u64>, targets: &[TargetId]) -> bool {
    let is_there = |stripe| targets.contains(&copies::to_read(stripe));
    layout.touched(range).all(|stripe| stripe.is_some_and(is_there))
}
