//! Strays that housekeeping is to punch.

use crate::limits::{STRAYS_BATCH, STRAYS_MAX};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use skep_types::{ChunkId, Ino, TargetId};

/// Part of a write that failed, on one target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stray {
    /// Where it landed, or may have.
    pub target: TargetId,
    /// In which chunk file.
    pub chunk: ChunkId,
    /// At which offset of that.
    pub local_offset: u64,
    pub file_offset: u64,
    /// Bytes.
    pub len: u64,
}

/// Parts of writes that failed, beyond the ends of their files; the oldest first.
#[derive(Debug, Default)]
pub struct Strays {
    list: VecDeque<(Ino, Stray)>,
}

impl Strays {
    /// One more, unless it is there already: a program may try the same write again and again. `false`: there are too many.
    pub fn keep(&mut self, ino: Ino, stray: Stray) -> bool {
        if self.list.contains(&(ino, stray)) {
            return true;
        }
        let room = self.list.len() < STRAYS_MAX;
        if room {
            self.list.push_back((ino, stray));
        }
        room
    }

    /// Some of them, to be punched or kept again.
    pub fn take(&mut self) -> Vec<(Ino, Stray)> {
        self.list.drain(..self.list.len().min(STRAYS_BATCH)).collect()
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// None waits.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// None counts any more.
    pub fn clear(&mut self) {
        self.list.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use skep_types::Generation;

    /// Goal: a program that tries for ever fills no memory, and one round of housekeeping is bounded.
    #[test]
    fn memory_is_bounded() {
        let chunk = ChunkId { ino: Ino(9), generation: Generation(1), extent: 0, stripe: 0 };
        let stray = |at: usize| Stray {
            file_offset: at as u64,
            target: TargetId(1),
            chunk,
            local_offset: at as u64,
            len: 1,
        };
        let mut strays = Strays::default();
        for at in 0..STRAYS_MAX {
            assert!(strays.keep(Ino(9), stray(at)) && strays.keep(Ino(9), stray(at)));
        }
        assert_eq!(strays.len(), STRAYS_MAX);
        assert!(!strays.keep(Ino(9), stray(STRAYS_MAX)));
        assert_eq!(strays.take().len(), STRAYS_BATCH);
        assert!(strays.keep(Ino(9), stray(STRAYS_MAX)));
    }
}
