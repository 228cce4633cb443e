//! Files and directories of which this mount lost something that it had acknowledged. Each handle that was open tells of it
//! once, at its next fsync. A loss that nobody was told of by then is told to who opens next (as Linux does with errors of
//! writing back), and to each who made a change that is gone, whoever was told before.

use crate::limits::{OWED_MAX, UNTOLD_MAX};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use skep_types::Ino;

#[derive(Debug, Default)]
struct Loss {
    /// The newest: which of the mount's.
    number: u64,
    /// By one handle at least.
    told: bool,
    /// Threads of programs that made what is gone, and were not told; each with its newest loss.
    owed: BTreeMap<u32, u64>,
}

/// What was lost of each.
#[derive(Debug, Default)]
pub struct Untold {
    losses: BTreeMap<Ino, Loss>,
    newest: u64,
    /// So many were left when room was made last.
    left: usize,
}

impl Untold {
    /// Something of `ino` was lost, that `caller` had changed (0: nobody knows).
    pub(crate) fn lost(&mut self, ino: Ino, caller: u32) {
        self.newest += 1;
        let loss = self.losses.entry(ino).or_default();
        (loss.number, loss.told) = (self.newest, false);
        if caller == 0 {
            return;
        }
        loss.owed.insert(caller, self.newest);
        // Most have ended: a thread that syncs does so soon.
        if loss.owed.len() > OWED_MAX
            && let Some((oldest, _)) = loss.owed.iter().min_by_key(|(_, number)| **number)
        {
            let oldest = *oldest;
            loss.owed.remove(&oldest);
        }
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

    /// Has a handle that told of losses up to `told` something to tell whoever asks?
    pub(crate) fn owes(&self, ino: Ino, told: u64) -> bool {
        self.losses.get(&ino).is_some_and(|loss| loss.number > told)
    }

    /// Tells `caller` through a handle that told of losses up to `told`, if there is one that either was not told of: `true`.
    pub(crate) fn tell(&mut self, ino: Ino, told: &mut u64, caller: u32) -> bool {
        let Some(loss) = self.losses.get_mut(&ino) else { return false };
        let is_owed = loss.owed.remove(&caller).is_some();
        if loss.number <= *told && !is_owed {
            return false;
        }
        loss.told = true;
        *told = loss.number.max(*told);
        true
    }

    /// Too many are known, and there may be some to forget.
    pub(crate) fn is_full(&self) -> bool {
        self.losses.len() > UNTOLD_MAX.max(2 * self.left)
    }

    /// Makes room: what was told, and half of what is oldest, goes, unless it is open.
    pub(crate) fn make_room(&mut self, open: &BTreeSet<Ino>) {
        let closed = self.losses.iter().filter(|(ino, _)| !open.contains(ino));
        let is_owed = |loss: &Loss| !loss.told || !loss.owed.is_empty();
        let mut order: Vec<_> = closed.map(|(ino, loss)| (is_owed(loss), loss.number, *ino)).collect();
        order.sort_unstable();
        let told = order.iter().filter(|(owed, ..)| !owed).count();
        let many = told.max(self.losses.len().saturating_sub(UNTOLD_MAX / 2));
        for (.., ino) in order.iter().take(many) {
            self.losses.remove(ino);
        }
        self.left = self.losses.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: u32 = 1;

    /// Goal: who had it open tells once; who opens it later tells only what nobody has told.
    #[test]
    fn each_loss_is_told() {
        let (mut untold, ino, other) = (Untold::default(), Ino(9), Ino(8));
        let (mut early, late) = (untold.before_open(ino), untold.before_open(ino));
        untold.lost(ino, 0);
        untold.lost(other, 0);
        let after = untold.before_open(ino);
        assert!(untold.owes(ino, early) && untold.owes(ino, after));
        assert!(untold.tell(ino, &mut early, ONE));
        assert!(!untold.owes(ino, early) && untold.owes(ino, late) && untold.owes(ino, after));
        let opened = untold.before_open(ino);
        assert!(!untold.owes(ino, opened), "it was told");
        assert!(untold.owes(other, untold.before_open(other)));
        untold.lost(ino, 0);
        let again = untold.before_open(ino);
        assert!(untold.owes(ino, early) && untold.owes(ino, opened) && untold.owes(ino, again));
    }

    /// Goal: of several programs that changed a directory each is told, also who opens it after another one was; who changed
    /// nothing that is gone only when nobody was.
    #[test]
    fn each_who_changed_it_is_told() {
        let (mut untold, ino) = (Untold::default(), Ino(9));
        for caller in [1, 2, 1, 3] {
            untold.lost(ino, caller);
        }
        let mut opens_and_syncs = |caller| {
            let mut handle = untold.before_open(ino);
            untold.tell(ino, &mut handle, caller)
        };
        assert_eq!(
            [1, 1, 4, 2, 2, 3, 3].map(&mut opens_and_syncs),
            [true, false, false, true, false, true, false]
        );
    }

    /// Goal: also through one descriptor that several programs share.
    #[test]
    fn a_shared_handle_tells_each() {
        let (mut untold, ino) = (Untold::default(), Ino(9));
        let mut handle = untold.before_open(ino);
        for caller in [1, 2] {
            untold.lost(ino, caller);
        }
        let mut syncs = |caller| untold.tell(ino, &mut handle, caller);
        assert_eq!([1, 3, 2, 2, 1].map(&mut syncs), [true, false, true, false, false]);
    }

    /// Goal: threads that never sync do not take the place of those that do.
    #[test]
    fn the_oldest_are_not_owed_for_ever() {
        let (mut untold, ino) = (Untold::default(), Ino(9));
        (1..=OWED_MAX as u32 + 1).for_each(|caller| untold.lost(ino, caller));
        let mut other = untold.before_open(ino);
        assert!(untold.tell(ino, &mut other, 1_000_000));
        let mut tell = |caller| untold.tell(ino, &mut untold.before_open(ino), caller);
        assert_eq!([1, 2, OWED_MAX as u32 + 1].map(&mut tell), [false, true, true]);
    }

    /// Goal: memory is bounded; what is open is not forgotten, nor is what was not told while there is room; and room is not
    /// looked for again and again where there is none.
    #[test]
    fn memory_is_bounded() {
        let (mut untold, open) = (Untold::default(), BTreeSet::from([Ino(1)]));
        let handle = untold.before_open(Ino(1));
        untold.lost(Ino(1), 0);
        untold.lost(Ino(2), 0);
        for ino in 3..=UNTOLD_MAX as u64 + 1 {
            untold.lost(Ino(ino), 0);
            untold.tell(Ino(ino), &mut 0, ONE);
        }
        assert!(untold.is_full());
        untold.make_room(&open);
        let is_owed = |untold: &Untold, ino| untold.owes(ino, untold.before_open(ino));
        assert!(untold.owes(Ino(1), handle) && is_owed(&untold, Ino(2)));
        assert_eq!(untold.losses.len(), 2);
        for ino in 10..10 + UNTOLD_MAX as u64 {
            untold.lost(Ino(ino), 0);
        }
        untold.make_room(&open);
        assert!(untold.losses.len() <= UNTOLD_MAX / 2 + 1 && untold.owes(Ino(1), handle));
        assert!(is_owed(&untold, Ino(9 + UNTOLD_MAX as u64)) && !untold.owes(Ino(2), 0), "the oldest goes");
        let all_open: BTreeSet<Ino> = (0..2 * UNTOLD_MAX as u64).map(Ino).collect();
        all_open.iter().for_each(|ino| untold.lost(*ino, 0));
        untold.make_room(&all_open);
        untold.lost(Ino(u64::MAX), 0);
        assert!(!untold.is_full());
    }
}
