//! What was read ahead for programs that read files in order, in small pieces: see `docs/design/data-path.md`, section 4.

use super::Handle;
use crate::limits::{AHEAD_FIRST, AHEAD_FOR_MS, AHEAD_MAX, AHEAD_RUN, AHEAD_SPARE};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;
use skep_types::Millis;

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

/// Bytes of a file that were read ahead.
#[derive(Debug, Clone)]
struct Piece {
    from: u64,
    bytes: Arc<Vec<u8>>,
    as_of: AsOf,
    since: Millis,
}

/// How one handle reads.
#[derive(Debug, Default)]
struct Reading {
    /// Where it goes on if it reads in order.
    next: u64,
    /// Reads in order so far.
    run: u32,
    /// Bytes that were read ahead last.
    window: usize,
    piece: Option<Piece>,
}

/// What is to be done for a read.
#[derive(Debug)]
pub enum Ahead {
    /// It was read ahead: from this place of these bytes on.
    Here(Arc<Vec<u8>>, usize),
    /// Read so many bytes at once: more than are asked for.
    Wanted(usize),
    /// Nothing but what is asked for.
    No,
}

/// What was read ahead through all handles.
#[derive(Debug, Default)]
pub struct Aheads {
    of: BTreeMap<Handle, Reading>,
    /// Those with bytes, by when they were read.
    by_age: BTreeSet<(Millis, Handle)>,
    bytes: usize,
    /// Memory for the next ones.
    spare: Vec<Vec<u8>>,
}

impl Aheads {
    /// A program reads `len` bytes at `offset`. `as_of`: what is known of the file now, if it can be read ahead.
    pub fn reads(
        &mut self,
        handle: Handle,
        offset: u64,
        len: usize,
        as_of: Option<AsOf>,
        now: Millis,
    ) -> Ahead {
        let reading = self.of.entry(handle).or_default();
        reading.run = if offset == reading.next { reading.run.saturating_add(1) } else { 0 };
        reading.next = offset.saturating_add(len as u64);
        let Some(as_of) = as_of else {
            self.forget_piece(handle);
            return Ahead::No;
        };
        if let Some(piece) = &reading.piece {
            let is_as_it_was = piece.as_of == as_of && now.since(piece.since) < AHEAD_FOR_MS;
            let end = piece.from + piece.bytes.len() as u64;
            let is_here = piece.from <= offset && reading.next.min(as_of.size) <= end && offset < end;
            if is_as_it_was && is_here {
                return Ahead::Here(piece.bytes.clone(), (offset - piece.from) as usize);
            }
            if !is_as_it_was {
                reading.window = 0;
                self.forget_piece(handle);
                return Ahead::No;
            }
        }
        if reading.run < AHEAD_RUN {
            return Ahead::No;
        }
        let left = as_of.size.saturating_sub(offset);
        let window = (2 * reading.window).clamp(AHEAD_FIRST, AHEAD_MAX).max(4 * len).min(AHEAD_MAX);
        let window = usize::try_from(left).unwrap_or(usize::MAX).min(window);
        if window > len { Ahead::Wanted(window) } else { Ahead::No }
    }

    /// Memory to read `len` bytes into.
    pub fn take_memory(&mut self, len: usize) -> Vec<u8> {
        let mut memory = self.spare.pop().unwrap_or_default();
        memory.resize(len, 0);
        memory
    }

    /// These were read at `from`, as of `as_of` from before the read to after it. `most`: bytes of all handles; the oldest go.
    pub fn put(
        &mut self,
        handle: Handle,
        from: u64,
        bytes: Arc<Vec<u8>>,
        as_of: AsOf,
        now: Millis,
        most: usize,
    ) {
        self.forget_piece(handle);
        // It may have been closed meanwhile.
        let Some(reading) = self.of.get_mut(&handle) else { return };
        reading.window = bytes.len();
        self.bytes += bytes.len();
        self.by_age.insert((now, handle));
        reading.piece = Some(Piece { from, bytes, as_of, since: now });
        while self.bytes > most
            && let Some((_, oldest)) = self.by_age.first().copied()
        {
            self.forget_piece(oldest);
        }
    }

    /// Of what is so old nothing is used any more.
    pub fn forget_old(&mut self, now: Millis) {
        while let Some((since, handle)) = self.by_age.first().copied()
            && now.since(since) >= AHEAD_FOR_MS
        {
            self.forget_piece(handle);
        }
        if self.by_age.is_empty() {
            self.spare.clear();
        }
    }

    /// The handle is gone.
    pub fn forget(&mut self, handle: Handle) {
        self.forget_piece(handle);
        self.of.remove(&handle);
    }

    /// Nothing is kept.
    pub fn is_empty(&self) -> bool {
        self.by_age.is_empty()
    }

    fn forget_piece(&mut self, handle: Handle) {
        let Some(piece) = self.of.get_mut(&handle).and_then(|reading| reading.piece.take()) else { return };
        self.by_age.remove(&(piece.since, handle));
        self.bytes -= piece.bytes.len();
        // Somebody may be copying from it.
        if self.spare.len() < AHEAD_SPARE
            && let Ok(memory) = Arc::try_unwrap(piece.bytes)
        {
            self.spare.push(memory);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AS_OF: AsOf = AsOf { cover: 1, opened_to_write: 0, truncations: 0, size: 10 << 20 };
    const NOW: Millis = Millis(5_000);

    fn wanted(aheads: &mut Aheads, offset: u64, len: usize) -> Option<usize> {
        match aheads.reads(1, offset, len, Some(AS_OF), NOW) {
            Ahead::Wanted(window) => Some(window),
            _ => None,
        }
    }

    fn put(aheads: &mut Aheads, handle: Handle, from: u64, len: usize, now: Millis) {
        aheads.put(handle, from, Arc::new(alloc::vec![7; len]), AS_OF, now, 3 * AHEAD_FIRST);
    }

    fn is_here(aheads: &mut Aheads, handle: Handle, offset: u64, as_of: AsOf, now: Millis) -> bool {
        matches!(aheads.reads(handle, offset, 100, Some(as_of), now), Ahead::Here(..))
    }

    /// Goal: who reads in order gets more and more at once, up to the limit and the end of the file; who jumps, or reads
    /// large pieces, gets what was asked for.
    #[test]
    fn what_is_read_in_order_is_read_ahead() {
        let mut aheads = Aheads::default();
        assert_eq!(wanted(&mut aheads, 0, 100), None, "one read is no order");
        assert_eq!(wanted(&mut aheads, 100, 100), Some(AHEAD_FIRST));
        put(&mut aheads, 1, 100, AHEAD_FIRST, NOW);
        assert!(is_here(&mut aheads, 1, 200, AS_OF, NOW));
        assert_eq!(wanted(&mut aheads, 70_000, 100), None, "it is there");
        let behind = 100 + AHEAD_FIRST as u64;
        assert_eq!(wanted(&mut aheads, behind, 100), None, "a jump");
        assert_eq!(wanted(&mut aheads, behind + 100, 100), None);
        assert_eq!(wanted(&mut aheads, behind + 200, 100), Some(2 * AHEAD_FIRST));
        aheads.of.get_mut(&1).unwrap().window = AHEAD_MAX;
        assert_eq!(wanted(&mut aheads, behind + 300, 100), Some(AHEAD_MAX));
        assert_eq!(wanted(&mut aheads, behind + 400, AHEAD_MAX), None);
        let end = AS_OF.size - 150;
        for (offset, window) in [(end - 200, None), (end - 100, None), (end, Some(150)), (end + 100, None)] {
            assert_eq!(wanted(&mut aheads, offset, 100), window);
        }
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
            let mut aheads = Aheads::default();
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
        let mut aheads = Aheads::default();
        let as_of = AsOf { size: 1_000, ..AS_OF };
        aheads.reads(1, 0, 1, Some(as_of), NOW);
        aheads.put(1, 0, Arc::new(alloc::vec![7; 1_000]), as_of, NOW, AHEAD_MAX);
        assert!(is_here(&mut aheads, 1, 950, as_of, NOW), "the file ends there");
    }

    /// Goal: memory is bounded; the oldest goes first, and all of it when nobody reads any more.
    #[test]
    fn memory_is_bounded() {
        let mut aheads = Aheads::default();
        for handle in 1..10 {
            aheads.reads(handle, 0, 1, Some(AS_OF), NOW);
            put(&mut aheads, handle, 0, AHEAD_FIRST, NOW.plus(handle));
            assert!(aheads.bytes <= 3 * AHEAD_FIRST);
        }
        let kept: Vec<Handle> = aheads.by_age.iter().map(|(_, handle)| *handle).collect();
        assert_eq!((kept, aheads.spare.len()), (alloc::vec![7, 8, 9], AHEAD_SPARE));
        aheads.forget(8);
        aheads.put(8, 0, Arc::default(), AS_OF, NOW, 0);
        assert_eq!((aheads.bytes, aheads.of.len()), (2 * AHEAD_FIRST, 8));
        aheads.forget_old(NOW.plus(7 + AHEAD_FOR_MS));
        assert_eq!(aheads.bytes, AHEAD_FIRST);
        aheads.forget_old(NOW.plus(9 + AHEAD_FOR_MS));
        assert_eq!((aheads.bytes, aheads.spare.len(), aheads.is_empty()), (0, 0, true));
    }
}
