//! What was read ahead for programs that read files in order, or at a constant distance, in small pieces: see
//! `docs/design/data-path.md`, sections 4 and 4a.

mod piece;
mod strided;

use super::Handle;
use super::stride::{Guess, Stride};
use crate::limits::{
    AHEAD_ASK_MAX_MS, AHEAD_ASK_MS, AHEAD_FIRST, AHEAD_FOR_MS, AHEAD_KEPT_MS, AHEAD_MAX, AHEAD_RUN,
};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;
use piece::Piece;
use skep_types::{Ino, Millis};

/// Nothing of a file has changed as long as this is the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AsOf {
    /// Since when without a break a lease covers it: nobody else has it open for writing.
    pub cover: u64,
    /// Opens for writing by this mount so far, of which none is left.
    pub opened_to_write: u16,
    /// Its truncates that have ended; none is under way.
    pub truncations: u32,
    /// Where it ends.
    pub size: u64,
}

/// A name and its directory.
pub type Place = (Ino, Arc<[u8]>);

/// Bytes that nobody had asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Fetched {
    /// In order: that were read ahead,
    pub in_order: u64,
    /// and that were used.
    pub in_order_used: u64,
    /// At a constant distance, with what lies between records.
    pub strided: u64,
    pub strided_used: u64,
}

/// How one handle reads.
#[derive(Debug, Default)]
struct Reading {
    /// Where it goes on if it reads in order.
    next: u64,
    /// When it last read.
    at: Millis,
    /// Reads in order so far, without a pause.
    run: u32,
    /// How much was wanted last; 0: nothing, or it was of no use.
    window: usize,
    /// So much is being read ahead. One at a time: of those who read beside, all may miss it.
    fetching: usize,
    /// Nothing is read ahead here: it was tried, and something is wrong.
    barred: Range<u64>,
    /// In order: one. At a constant distance: one for each time that targets were asked.
    pieces: Vec<Piece>,
    stride: Stride,
    /// Bytes of records ahead that were used.
    strided_used: u64,
    /// Who reads it does not ask for what is known of it before then, ...
    asks_at: Millis,
    /// ... having waited for so long; 0: not asked yet.
    asked_for_ms: u64,
    /// A name of it, with its directory.
    name: Option<Place>,
}

impl Reading {
    /// A read of `len` bytes at `offset` begins.
    fn begins(&mut self, offset: u64, len: usize, now: Millis) {
        match offset == self.next && now.since(self.at) < AHEAD_FOR_MS {
            true => self.run = self.run.saturating_add(1),
            false => self.is_of_no_use(),
        }
        (self.next, self.at) = (offset.saturating_add(len as u64), now);
        self.stride.reads(offset, len, now);
    }

    /// What was read ahead is not used: begin anew, and small.
    fn is_of_no_use(&mut self) {
        (self.run, self.window) = (0, 0);
    }

    /// Is it to be read ahead at `offset`?
    fn is_in_order(&self, offset: u64) -> bool {
        self.run >= AHEAD_RUN && self.fetching == 0 && !self.barred.contains(&offset)
    }

    /// How much then. Who comes out of what was read last goes on with twice as much.
    fn next_window(&self, offset: u64, len: usize) -> usize {
        let comes_out = self.pieces.iter().any(|piece| piece.is_left(offset));
        let window = if comes_out { 2 * self.window } else { 0 };
        window.max(AHEAD_FIRST).max(4 * len).min(AHEAD_MAX)
    }
}

/// What is to be done for a read.
#[derive(Debug)]
pub enum Ahead {
    /// It was read ahead: from this place of these bytes on.
    Here(Arc<Vec<u8>>, usize),
    /// Read so many bytes at once: more than are asked for. To be ended with [`Aheads::put`] or [`Aheads::give_up`].
    Wanted(usize),
    /// Read these at once, of which one begins with what is asked for, or has it. To be ended with [`Aheads::put_strided`],
    /// [`Aheads::is_fetched`], or [`Aheads::strays`].
    Strided(Guess),
    /// Nothing but what is asked for.
    No,
}

/// What was read ahead through all handles.
#[derive(Debug, Default)]
pub struct Aheads {
    most: usize,
    of: BTreeMap<Handle, Reading>,
    /// Those with bytes, by when each piece came.
    by_age: BTreeSet<(Millis, Handle)>,
    /// Memory of those, and of what is being read.
    bytes: usize,
    /// Too little is known of what these read to read it ahead: housekeeping asks.
    asking: BTreeSet<Handle>,
    pub fetched: Fetched,
    /// See [`crate::Limits`].
    pub canary_keeps_records: bool,
    /// To be freed by whoever has done something here, when he holds no lock any more.
    dropped: Vec<Arc<Vec<u8>>>,
}

impl Aheads {
    /// At most so many bytes.
    pub fn new(most: usize) -> Self {
        Self { most, ..Self::default() }
    }

    /// A program reads `len` bytes at `offset`. `as_of`: what is known of the file now, if it can be read ahead.
    pub fn reads(
        &mut self,
        handle: Handle,
        offset: u64,
        len: usize,
        as_of: Option<AsOf>,
        now: Millis,
    ) -> Ahead {
        let reading = self.of.entry(handle).or_insert_with(|| Reading { at: now, ..Reading::default() });
        reading.begins(offset, len, now);
        let is_kept = self.canary_keeps_records && reading.pieces.iter().any(Piece::is_strided);
        let is_good = |piece: &Piece| match as_of {
            _ if is_kept => piece.is_young(now),
            Some(as_of) => piece.is_good(as_of, now),
            None => false,
        };
        if !reading.pieces.iter().all(is_good) {
            reading.is_of_no_use();
            self.forget_pieces(handle, |piece| !is_good(piece));
        }
        let size = as_of.map_or(if is_kept { u64::MAX } else { 0 }, |as_of| as_of.size);
        let Some(reading) = self.of.get_mut(&handle) else { return Ahead::No };
        let end = reading.next.min(size);
        for piece in &mut reading.pieces {
            let Some(at) = piece.place(offset, end) else { continue };
            let given = piece.gives(offset, end);
            if piece.is_strided() {
                reading.strided_used += given;
                self.fetched.strided_used += given;
            } else {
                self.fetched.in_order_used += given;
            }
            return Ahead::Here(piece.bytes.clone(), at);
        }
        if as_of.is_none() {
            return Ahead::No;
        }
        if !reading.is_in_order(offset) {
            return Ahead::No;
        }
        let left = usize::try_from(size.saturating_sub(offset)).unwrap_or(usize::MAX);
        let window = reading.next_window(offset, len);
        reading.window = window;
        let window = window.min(left);
        if window <= len || !self.makes_room(window, now) {
            return Ahead::No;
        }
        self.bytes += window;
        self.of.entry(handle).or_default().fetching = window;
        Ahead::Wanted(window)
    }

    /// Too little is known of the file to read it ahead, and a question may say more. `true`: it is to be asked by housekeeping,
    /// which has nothing else to ask yet. Not often: it may help never.
    pub fn asks(&mut self, handle: Handle, now: Millis) -> bool {
        let Some(reading) = self.of.get_mut(&handle) else { return false };
        if (reading.run < AHEAD_RUN && !reading.stride.is_regular()) || now < reading.asks_at {
            return false;
        }
        reading.asked_for_ms = (2 * reading.asked_for_ms).clamp(AHEAD_ASK_MS, AHEAD_ASK_MAX_MS);
        reading.asks_at = now.plus(reading.asked_for_ms);
        let is_first = self.asking.is_empty();
        self.asking.insert(handle);
        is_first
    }

    /// One that asks.
    pub fn next_asking(&mut self) -> Option<Handle> {
        self.asking.pop_first()
    }

    /// The name by which the file is asked for: `told`, if the kernel was told one lately, else as before.
    pub fn name_of(&mut self, handle: Handle, told: Option<Place>) -> Option<Place> {
        let reading = self.of.get_mut(&handle)?;
        if told.is_some() {
            reading.name = told;
        }
        reading.name.clone()
    }

    /// These were read at `from`, after the file was known as of `as_of`, and so many of them were asked for, at `since`. `true`:
    /// they are the first that are kept.
    pub fn put(
        &mut self,
        handle: Handle,
        (from, asked): (u64, usize),
        bytes: Arc<Vec<u8>>,
        as_of: AsOf,
        (since, now): (Millis, Millis),
    ) -> bool {
        self.fetched.in_order += bytes.len().saturating_sub(asked) as u64;
        self.forget_pieces(handle, |_| true);
        self.keep(handle, Piece::in_order((from, asked), bytes, as_of, (since, now)))
    }

    fn keep(&mut self, handle: Handle, piece: Piece) -> bool {
        let is_first = self.by_age.is_empty();
        self.is_fetched(handle);
        let Some(reading) = self.of.get_mut(&handle) else {
            // It was closed meanwhile.
            self.dropped.push(piece.bytes);
            return false;
        };
        self.bytes += piece.bytes.capacity();
        self.by_age.insert((piece.came, handle));
        reading.pieces.push(piece);
        is_first
    }

    /// Nothing comes of the `len` bytes at `from` that were wanted: they are not tried again.
    pub fn give_up(&mut self, handle: Handle, from: u64, len: usize) {
        self.is_fetched(handle);
        if let Some(reading) = self.of.get_mut(&handle) {
            reading.is_of_no_use();
            reading.barred = from..from.saturating_add(len as u64);
        }
    }

    /// What was wanted is not being read any more.
    pub fn is_fetched(&mut self, handle: Handle) {
        let fetched = self.of.get_mut(&handle).map(|reading| core::mem::take(&mut reading.fetching));
        self.bytes -= fetched.unwrap_or(0);
    }

    /// The oldest go until there is room for so many bytes. `false`: the rest is too young to have been used.
    fn makes_room(&mut self, wanted: usize, now: Millis) -> bool {
        while self.bytes + wanted > self.most {
            match self.by_age.first().copied() {
                Some((came, oldest)) if now.since(came) >= AHEAD_KEPT_MS => self.forget_unused(oldest, came),
                _ => return false,
            }
        }
        true
    }

    /// Of what is so old nothing is used any more. Says when something is to be forgotten next.
    pub fn forget_old(&mut self, now: Millis) -> Option<u64> {
        while let Some((came, handle)) = self.by_age.first().copied() {
            let age = now.since(came);
            if age < AHEAD_FOR_MS {
                return Some(AHEAD_FOR_MS - age);
            }
            self.forget_unused(handle, came);
        }
        None
    }

    /// The handle is gone.
    pub fn forget(&mut self, handle: Handle) {
        self.forget_pieces(handle, |_| true);
        self.is_fetched(handle);
        self.asking.remove(&handle);
        self.of.remove(&handle);
    }

    /// What is used no longer, to be freed where nobody waits for that.
    pub fn take_dropped(&mut self) -> Vec<Arc<Vec<u8>>> {
        core::mem::take(&mut self.dropped)
    }

    /// Nothing is kept.
    pub fn is_empty(&self) -> bool {
        self.by_age.is_empty()
    }

    /// What came then.
    fn forget_unused(&mut self, handle: Handle, came: Millis) {
        self.forget_pieces(handle, |piece| piece.came == came);
        if let Some(reading) = self.of.get_mut(&handle) {
            reading.is_of_no_use();
        }
    }

    /// These go: what became of them together says how the handle is guessed for from now on.
    fn forget_pieces(&mut self, handle: Handle, go: impl Fn(&Piece) -> bool) {
        let Some(reading) = self.of.get_mut(&handle) else { return };
        let (mut ahead, mut used, mut grows) = (0, 0, true);
        for piece in reading.pieces.extract_if(.., |piece| go(piece)) {
            (ahead, used) = (ahead + piece.ahead, used + piece.used);
            grows &= piece.grows;
            self.by_age.remove(&(piece.came, handle));
            self.bytes -= piece.bytes.capacity();
            self.dropped.push(piece.bytes);
        }
        // Others of it may have come in the same moment.
        self.by_age.extend(reading.pieces.iter().map(|piece| (piece.came, handle)));
        if ahead > 0 {
            reading.stride.was_right(used, ahead, grows);
        }
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_strided;
