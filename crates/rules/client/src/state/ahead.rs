//! What was read ahead for programs that read files in order, in small pieces: see `docs/design/data-path.md`, section 4.

use super::Handle;
use crate::limits::{
    AHEAD_ASK_MAX_MS, AHEAD_ASK_MS, AHEAD_FIRST, AHEAD_FOR_MS, AHEAD_KEPT_MS, AHEAD_MAX, AHEAD_RUN,
};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;
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

/// Bytes of a file that were read ahead.
#[derive(Debug, Clone)]
struct Piece {
    from: u64,
    bytes: Arc<Vec<u8>>,
    as_of: AsOf,
    since: Millis,
}

impl Piece {
    fn end(&self) -> u64 {
        self.from + self.bytes.len() as u64
    }
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
    piece: Option<Piece>,
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
        let comes_out = self.piece.as_ref().is_some_and(|piece| piece.from < offset && offset <= piece.end());
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
    /// Nothing but what is asked for.
    No,
}

/// What was read ahead through all handles.
#[derive(Debug, Default)]
pub struct Aheads {
    most: usize,
    of: BTreeMap<Handle, Reading>,
    /// Those with bytes, by when they were read.
    by_age: BTreeSet<(Millis, Handle)>,
    /// Memory of those, and of what is being read.
    bytes: usize,
    /// Too little is known of what these read to read it ahead: housekeeping asks.
    asking: BTreeSet<Handle>,
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
        let Some(as_of) = as_of else {
            self.forget_piece(handle);
            return Ahead::No;
        };
        if let Some(piece) = &reading.piece {
            let is_as_it_was = piece.as_of == as_of && now.since(piece.since) < AHEAD_FOR_MS;
            let is_here = piece.from <= offset && reading.next.min(as_of.size) <= piece.end();
            if is_as_it_was && is_here && offset < piece.end() {
                return Ahead::Here(piece.bytes.clone(), (offset - piece.from) as usize);
            }
            if !is_as_it_was {
                reading.is_of_no_use();
                self.forget_piece(handle);
                return Ahead::No;
            }
        }
        if !reading.is_in_order(offset) {
            return Ahead::No;
        }
        let left = usize::try_from(as_of.size.saturating_sub(offset)).unwrap_or(usize::MAX);
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
        if reading.run < AHEAD_RUN || now < reading.asks_at {
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

    /// These were read at `from`, after the file was known as of `as_of`. `true`: they are the first that are kept.
    pub fn put(&mut self, handle: Handle, from: u64, bytes: Arc<Vec<u8>>, as_of: AsOf, now: Millis) -> bool {
        let is_first = self.by_age.is_empty();
        self.forget_piece(handle);
        self.is_fetched(handle);
        let Some(reading) = self.of.get_mut(&handle) else {
            // It was closed meanwhile.
            self.dropped.push(bytes);
            return false;
        };
        self.bytes += bytes.capacity();
        reading.piece = Some(Piece { from, bytes, as_of, since: now });
        self.by_age.insert((now, handle));
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
                Some((since, oldest)) if now.since(since) >= AHEAD_KEPT_MS => self.forget_unused(oldest),
                _ => return false,
            }
        }
        true
    }

    /// Of what is so old nothing is used any more. Says when something is to be forgotten next.
    pub fn forget_old(&mut self, now: Millis) -> Option<u64> {
        while let Some((since, handle)) = self.by_age.first().copied() {
            let age = now.since(since);
            if age < AHEAD_FOR_MS {
                return Some(AHEAD_FOR_MS - age);
            }
            self.forget_unused(handle);
        }
        None
    }

    /// The handle is gone.
    pub fn forget(&mut self, handle: Handle) {
        self.forget_piece(handle);
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

    fn forget_unused(&mut self, handle: Handle) {
        self.forget_piece(handle);
        if let Some(reading) = self.of.get_mut(&handle) {
            reading.is_of_no_use();
        }
    }

    fn forget_piece(&mut self, handle: Handle) {
        let Some(piece) = self.of.get_mut(&handle).and_then(|reading| reading.piece.take()) else { return };
        self.by_age.remove(&(piece.since, handle));
        self.bytes -= piece.bytes.capacity();
        self.dropped.push(piece.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::AHEAD_BYTES_MAX;

    const AS_OF: AsOf = AsOf { cover: 1, opened_to_write: 0, truncations: 0, size: 10 << 20 };
    const NOW: Millis = Millis(5_000);
    const FIRST: u64 = AHEAD_FIRST as u64;

    fn wanted(aheads: &mut Aheads, offset: u64, len: usize) -> Option<usize> {
        match aheads.reads(1, offset, len, Some(AS_OF), NOW) {
            Ahead::Wanted(window) => Some(window),
            _ => None,
        }
    }

    fn put(aheads: &mut Aheads, handle: Handle, from: u64, len: usize, now: Millis) {
        aheads.put(handle, from, Arc::new(alloc::vec![7; len]), AS_OF, now);
    }

    fn is_here(aheads: &mut Aheads, handle: Handle, offset: u64, as_of: AsOf, now: Millis) -> bool {
        matches!(aheads.reads(handle, offset, 100, Some(as_of), now), Ahead::Here(..))
    }

    /// Goal: who reads in order gets more and more at once, up to the limit and the end of the file; who jumps, or reads
    /// large pieces, gets what was asked for, and begins anew.
    #[test]
    fn what_is_read_in_order_is_read_ahead() {
        let mut aheads = Aheads::new(AHEAD_BYTES_MAX);
        assert_eq!(wanted(&mut aheads, 0, 100), None, "one read is no order");
        assert_eq!(wanted(&mut aheads, 100, 100), Some(AHEAD_FIRST));
        // A chunk ends there: what is wanted next depends on what was wanted, not on that.
        put(&mut aheads, 1, 100, 800, NOW);
        for at in (200..900).step_by(100) {
            assert!(is_here(&mut aheads, 1, at, AS_OF, NOW));
        }
        let mut from = 900;
        for window in [2 * AHEAD_FIRST, 4 * AHEAD_FIRST, AHEAD_MAX, AHEAD_MAX] {
            assert_eq!(wanted(&mut aheads, from, 100), Some(window));
            put(&mut aheads, 1, from, 200, NOW);
            assert!(is_here(&mut aheads, 1, from + 100, AS_OF, NOW));
            from += 200;
        }
        assert_eq!(wanted(&mut aheads, 5_000_000, 100), None, "a jump");
        assert_eq!(wanted(&mut aheads, 5_000_100, 100), None);
        assert_eq!(wanted(&mut aheads, 5_000_200, 100), Some(AHEAD_FIRST));
        put(&mut aheads, 1, 5_000_200, AHEAD_FIRST, NOW);
        assert_eq!(wanted(&mut aheads, 0, AHEAD_MAX), None);
        assert_eq!(wanted(&mut aheads, AHEAD_MAX as u64, AHEAD_MAX), None, "so much comes as fast alone");
        let end = AS_OF.size - 150;
        for (offset, window) in [(end - 200, None), (end - 100, None), (end, Some(150)), (end + 100, None)] {
            assert_eq!(wanted(&mut aheads, offset, 100), window);
        }
    }

    /// Goal: who makes pauses, reads so many files that none of it is kept for long, or finds something wrong there, does not
    /// have more and more read that nobody uses.
    #[test]
    fn what_is_of_no_use_is_not_read() {
        let mut aheads = Aheads::new(3 * AHEAD_FIRST);
        let mut reads = |handle, offset, now| aheads.reads(handle, offset, 100, Some(AS_OF), now);
        for n in 0..20 {
            let slow = reads(1, n * 100, NOW.plus(n * AHEAD_FOR_MS));
            assert!(matches!(slow, Ahead::No), "{slow:?}");
        }
        let mut fetched = 0;
        for n in 0..100 {
            for handle in 10..30 {
                let now = NOW.plus(n);
                if let Ahead::Wanted(window) = aheads.reads(handle, n * 100, 100, Some(AS_OF), now) {
                    fetched += 1;
                    put(&mut aheads, handle, n * 100, window, now);
                }
            }
        }
        assert_eq!(fetched, 3, "who finds no room reads alone");
        let mut aheads = Aheads::new(AHEAD_BYTES_MAX);
        wanted(&mut aheads, 0, 100);
        assert_eq!(wanted(&mut aheads, 100, 100), Some(AHEAD_FIRST));
        aheads.give_up(1, 100, AHEAD_FIRST);
        let tried: Vec<u64> =
            (2..1_500).map(|n| n * 100).filter(|at| wanted(&mut aheads, *at, 100).is_some()).collect();
        assert_eq!((tried, aheads.bytes), (alloc::vec![100 * (FIRST + 100).div_ceil(100)], AHEAD_FIRST));
    }

    /// Goal: those who read beside each other by one handle have one window read, not one each.
    #[test]
    fn one_window_is_read_at_a_time() {
        let mut aheads = Aheads::new(AHEAD_BYTES_MAX);
        let found: Vec<_> = (0..32).filter_map(|n| wanted(&mut aheads, n * 4_096, 4_096)).collect();
        assert_eq!((found, aheads.bytes), (alloc::vec![AHEAD_FIRST], AHEAD_FIRST));
        put(&mut aheads, 1, 4_096, AHEAD_FIRST, NOW);
        assert_eq!(aheads.bytes, AHEAD_FIRST);
    }

    /// Goal: what was read ahead is used while nothing of the file can have changed, and it is young; else it goes. At the
    /// end of the file less than asked for is all that there is.
    #[test]
    fn what_may_have_changed_is_read_again() {
        let changes = [
            AsOf { cover: 2, ..AS_OF },
            AsOf { opened_to_write: 1, ..AS_OF },
            AsOf { truncations: 1, ..AS_OF },
            AsOf { size: 1 << 20, ..AS_OF },
        ];
        for changed in changes {
            let mut aheads = Aheads::new(AHEAD_BYTES_MAX);
            aheads.reads(1, 0, 1, Some(AS_OF), NOW);
            put(&mut aheads, 1, 0, 1_000, NOW);
            assert!(is_here(&mut aheads, 1, 500, AS_OF, NOW) && is_here(&mut aheads, 1, 900, AS_OF, NOW));
            assert!(!is_here(&mut aheads, 1, 901, AS_OF, NOW), "the last byte is not there");
            assert!(!is_here(&mut aheads, 1, 500, changed, NOW) && aheads.is_empty());
            put(&mut aheads, 1, 0, 1_000, NOW);
            assert!(!is_here(&mut aheads, 1, 500, AS_OF, NOW.plus(AHEAD_FOR_MS)), "it is old");
            put(&mut aheads, 1, 0, 1_000, NOW);
            assert!(matches!(aheads.reads(1, 0, 100, None, NOW), Ahead::No) && aheads.is_empty());
        }
        let mut aheads = Aheads::new(AHEAD_BYTES_MAX);
        let as_of = AsOf { size: 1_000, ..AS_OF };
        aheads.reads(1, 0, 1, Some(as_of), NOW);
        aheads.put(1, 0, Arc::new(alloc::vec![7; 1_000]), as_of, NOW);
        assert!(is_here(&mut aheads, 1, 950, as_of, NOW), "the file ends there");
    }

    /// Goal: memory is bounded, with what is being read; the oldest goes first, and all of it when nobody reads any more.
    #[test]
    fn memory_is_bounded() {
        let mut aheads = Aheads::new(3 * AHEAD_FIRST);
        let wants = |aheads: &mut Aheads, handle, now| {
            aheads.reads(handle, 0, 1, Some(AS_OF), now);
            matches!(aheads.reads(handle, 1, 1, Some(AS_OF), now), Ahead::Wanted(_))
        };
        for handle in 1..10 {
            let now = NOW.plus(handle * AHEAD_KEPT_MS);
            assert!(wants(&mut aheads, handle, now));
            let is_first = aheads.put(handle, 0, Arc::new(alloc::vec![7; AHEAD_FIRST]), AS_OF, now);
            assert_eq!((is_first, aheads.bytes), (handle == 1, AHEAD_FIRST * 3.min(handle as usize)));
        }
        let kept: Vec<Handle> = aheads.by_age.iter().map(|(_, handle)| *handle).collect();
        assert_eq!((kept, aheads.take_dropped().len()), (alloc::vec![7, 8, 9], 6));
        aheads.forget(8);
        assert!(!aheads.put(8, 0, Arc::default(), AS_OF, NOW));
        assert_eq!((aheads.bytes, aheads.of.len()), (2 * AHEAD_FIRST, 8));
        assert_eq!(aheads.forget_old(NOW.plus(7 * AHEAD_KEPT_MS + AHEAD_FOR_MS)), Some(2 * AHEAD_KEPT_MS));
        assert_eq!(aheads.bytes, AHEAD_FIRST);
        assert_eq!(aheads.forget_old(NOW.plus(9 * AHEAD_KEPT_MS + AHEAD_FOR_MS)), None);
        assert_eq!((aheads.bytes, aheads.is_empty()), (0, true));
        // What is being read counts, and does not go.
        assert!((20..23).all(|handle| wants(&mut aheads, handle, NOW)) && !wants(&mut aheads, 23, NOW));
        aheads.give_up(21, 1, 1);
        aheads.forget(20);
        assert_eq!(aheads.bytes, AHEAD_FIRST);
    }
}
