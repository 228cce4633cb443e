//! The lock of each directory: shared by who looks a name up for the first time or lists, alone for who changes names, in
//! order of coming.

use crate::hub::LaneId;
use skep_types::Ino;
use std::collections::{BTreeMap, VecDeque};

/// Somebody who has the lock of a directory, or waits for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticket(u64);

#[derive(Debug)]
struct Wish {
    ticket: u64,
    alone: bool,
    lane: LaneId,
}

#[derive(Debug, Default)]
struct Lock {
    held: Vec<Wish>,
    waiting: VecDeque<Wish>,
}

impl Lock {
    /// Lets in whoever may come in now, and says who that is.
    fn let_in(&mut self) -> Vec<LaneId> {
        let mut lanes = Vec::new();
        while let Some(first) = self.waiting.front() {
            let free = self.held.is_empty() || (!first.alone && self.held.iter().all(|held| !held.alone));
            if !free {
                break;
            }
            lanes.push(first.lane);
            self.held.extend(self.waiting.pop_front());
        }
        lanes
    }
}

#[derive(Debug, Default)]
pub struct Locks {
    all: BTreeMap<Ino, Lock>,
    last: u64,
}

impl Locks {
    /// A thread comes for the lock of a directory.
    pub fn come(&mut self, dir: Ino, alone: bool, lane: LaneId) -> Ticket {
        self.last += 1;
        let lock = self.all.entry(dir).or_default();
        lock.waiting.push_back(Wish { ticket: self.last, alone, lane });
        lock.let_in();
        Ticket(self.last)
    }

    /// Has it got the lock?
    pub fn has(&self, dir: Ino, ticket: Ticket) -> bool {
        self.all.get(&dir).is_some_and(|lock| lock.held.iter().any(|held| held.ticket == ticket.0))
    }

    /// It has done, or waits no longer: who has the lock now that did not have it before.
    pub fn leave(&mut self, dir: Ino, ticket: Ticket) -> Vec<LaneId> {
        let Some(lock) = self.all.get_mut(&dir) else { return Vec::new() };
        lock.held.retain(|held| held.ticket != ticket.0);
        lock.waiting.retain(|wish| wish.ticket != ticket.0);
        let lanes = lock.let_in();
        if lock.held.is_empty() {
            self.all.remove(&dir);
        }
        lanes
    }

    /// All threads but those of one lane are gone.
    pub fn keep(&mut self, survivor: LaneId) {
        for lock in self.all.values_mut() {
            lock.held.retain(|held| held.lane == survivor);
            lock.waiting.retain(|wish| wish.lane == survivor);
            lock.let_in();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: who looks shares the lock, who changes has it alone, and nobody overtakes who waits (K6).
    #[test]
    fn locks_come_in_order() {
        let (mut locks, dir) = (Locks::default(), Ino(9));
        let lane = |lane| LaneId { life: 1, lane };
        let [one, two] = [0, 1].map(|n| locks.come(dir, false, lane(n)));
        let alone = locks.come(dir, true, lane(2));
        let behind = locks.come(dir, false, lane(3));
        assert!(locks.has(dir, one) && locks.has(dir, two), "shared");
        assert!(!locks.has(dir, alone) && !locks.has(dir, behind), "a shared one does not overtake");
        assert!(locks.leave(dir, one).is_empty());
        assert_eq!(locks.leave(dir, two), [lane(2)]);
        assert!(locks.has(dir, alone) && !locks.has(dir, behind));
        assert!(locks.has(Ino(8), one) == locks.has(dir, one), "of another directory nobody has any");
        assert_eq!(locks.leave(dir, alone), [lane(3)]);
        let alone = locks.come(dir, true, lane(4));
        let last = locks.come(dir, false, lane(5));
        assert_eq!(locks.leave(dir, alone), [lane(5)], "who waits no longer is in nobody's way");
        locks.keep(lane(5));
        assert!(locks.has(dir, last) && !locks.has(dir, behind), "the threads of a killed program are gone");
    }
}
