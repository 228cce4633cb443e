//! Files and directories of which this mount lost something that it had acknowledged. Each handle that was open tells of it
//! once, at its next fsync; a loss that nobody was told of by then is told to who opens next. (As Linux does with errors of
//! writing back.)

use crate::limits::UNTOLD_MAX;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use skep_types::Ino;

#[derive(Debug, Clone, Copy)]
struct Loss {
    /// Which loss of the mount.
    number: u64,
    /// By one handle at least.
    told: bool,
}

/// The newest loss of each.
#[derive(Debug, Default)]
pub struct Untold {
    losses: BTreeMap<Ino, Loss>,
    newest: u64,
}

impl Untold {
    /// Something of `ino` was lost.
    pub(crate) fn lost(&mut self, ino: Ino) {
        self.newest += 1;
        self.losses.insert(ino, Loss { number: self.newest, told: false });
    }

    /// What a new handle of `ino` need not tell of: losses up to this one.
    pub(crate) fn before_open(&self, ino: Ino) -> u64 {
        match self.losses.get(&ino) {
            Some(loss) if !loss.told => loss.number - 1,
            _ => self.newest,
        }
    }

    /// The newest of the mount.
    pub(crate) fn newest(&self) -> u64 {
        self.newest
    }

    /// Has a handle that told of losses up to `told` something to tell?
    pub(crate) fn owes(&self, ino: Ino, told: u64) -> bool {
        self.losses.get(&ino).is_some_and(|loss| loss.number > told)
    }

    /// It tells now, if it has to. Gives what it has told of.
    pub(crate) fn tell(&mut self, ino: Ino, told: u64) -> u64 {
        match self.losses.get_mut(&ino).filter(|loss| loss.number > told) {
            Some(loss) => {
                loss.told = true;
                loss.number
            }
            None => told,
        }
    }

    /// Too many are known.
    pub(crate) fn is_full(&self) -> bool {
        self.losses.len() > UNTOLD_MAX
    }

    /// Makes room: what was told, and what is oldest, goes, unless it is open.
    pub(crate) fn make_room(&mut self, open: &BTreeSet<Ino>) {
        let closed = self.losses.iter().filter(|(ino, _)| !open.contains(ino));
        let mut order: Vec<_> = closed.map(|(ino, loss)| (!loss.told, loss.number, *ino)).collect();
        order.sort_unstable();
        let told = order.iter().filter(|(untold, ..)| !untold).count();
        let many = told.max(self.losses.len().saturating_sub(UNTOLD_MAX / 2));
        for (.., ino) in order.iter().take(many) {
            self.losses.remove(ino);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: who had it open tells once; who opens it later tells only what nobody has told.
    #[test]
    fn each_loss_is_told() {
        let (mut untold, ino, other) = (Untold::default(), Ino(9), Ino(8));
        let (early, late) = (untold.before_open(ino), untold.before_open(ino));
        untold.lost(ino);
        untold.lost(other);
        let after = untold.before_open(ino);
        assert!(untold.owes(ino, early) && untold.owes(ino, after));
        let early = untold.tell(ino, early);
        assert!(!untold.owes(ino, early) && untold.owes(ino, late) && untold.owes(ino, after));
        let opened = untold.before_open(ino);
        assert!(!untold.owes(ino, opened), "it was told");
        assert!(untold.owes(other, untold.before_open(other)));
        untold.lost(ino);
        assert!(
            untold.owes(ino, early) && untold.owes(ino, opened) && untold.owes(ino, untold.before_open(ino))
        );
    }

    /// Goal: memory is bounded; what is open is not forgotten, nor is what was not told while there is room.
    #[test]
    fn memory_is_bounded() {
        let (mut untold, open) = (Untold::default(), BTreeSet::from([Ino(1)]));
        let handle = untold.before_open(Ino(1));
        untold.lost(Ino(1));
        untold.lost(Ino(2));
        for ino in 3..=UNTOLD_MAX as u64 + 1 {
            untold.lost(Ino(ino));
            untold.tell(Ino(ino), 0);
        }
        assert!(untold.is_full());
        untold.make_room(&open);
        assert!(untold.owes(Ino(1), handle) && untold.owes(Ino(2), untold.before_open(Ino(2))));
        assert_eq!(untold.losses.len(), 2);
        for ino in 10..10 + UNTOLD_MAX as u64 {
            untold.lost(Ino(ino));
        }
        untold.make_room(&open);
        assert!(untold.losses.len() <= UNTOLD_MAX && untold.owes(Ino(1), handle));
        let newest = Ino(9 + UNTOLD_MAX as u64);
        assert!(
            untold.owes(newest, untold.before_open(newest)) && !untold.owes(Ino(2), 0),
            "the oldest goes"
        );
    }
}
