//! What a ring thread knows of one of its queues.
//!
//! The kernel gives a request to a free entry, or queues it when all are in use; a queued one goes out when an entry
//! is *answered*, never when one is registered. So requests that were queued while all entries were in use wait
//! for ever if all of those are then parked, however many entries are registered in their place. [`Queue`] watches
//! for that, and [`super::kick`] ends it.

use std::cell::Cell;

#[derive(Clone, Copy, Default)]
struct Counts {
    /// Entries registered.
    total: usize,
    /// Those with a request.
    in_use: usize,
}

/// The state of one queue.
pub(super) struct Queue {
    /// Its number, which is that of its CPU.
    pub(super) id: u16,
    now: Cell<Counts>,
    /// As the kernel knew it when it was last entered, with what it has handed out since.
    newer: Cell<Counts>,
    /// The same for the time before that: what came in a turn was handed out before, or while, the kernel was
    /// entered, so perhaps before it knew of what that told it.
    older: Cell<Counts>,
    turn: Cell<u64>,
    parked: Cell<usize>,
    /// At some time all entries were in use: requests may be queued in the kernel.
    starved: Cell<bool>,
    /// Requests that have come so far.
    arrivals: Cell<u64>,
    /// `arrivals` when a kick was last asked for.
    kicked: Cell<u64>,
    /// Somebody looks after it while all its entries are in use.
    watched: Cell<bool>,
    /// `arrivals`, and the turn, when one was last answered.
    kick_answered: Cell<(u64, u64)>,
}

impl Queue {
    pub(super) fn new(id: u16) -> Self {
        Queue {
            id,
            now: Cell::default(),
            newer: Cell::default(),
            older: Cell::default(),
            turn: Cell::new(0),
            parked: Cell::new(0),
            starved: Cell::new(false),
            arrivals: Cell::new(0),
            kicked: Cell::new(0),
            watched: Cell::new(false),
            kick_answered: Cell::new((0, 0)),
        }
    }

    /// Changes the counts; the kernel learns of it when it is entered next.
    fn change(&self, turn: u64, change: impl FnOnce(&mut Counts)) {
        let mut now = self.now.get();
        let before = self.turn.replace(turn);
        if before != turn {
            // After a turn without any change the kernel knows everything.
            self.older.set(if before + 1 == turn { self.newer.get() } else { now });
            self.newer.set(now);
        }
        change(&mut now);
        self.now.set(now);
    }

    /// An entry is about to be registered.
    pub(super) fn entry_added(&self, turn: u64) {
        self.change(turn, |counts| counts.total += 1);
    }

    pub(super) fn entry_ended(&self, turn: u64) {
        self.change(turn, |counts| counts.total -= 1);
    }

    /// A request has come.
    pub(super) fn begun(&self, turn: u64) {
        self.change(turn, |counts| counts.in_use += 1);
        self.arrivals.set(self.arrivals.get() + 1);
        for view in [&self.newer, &self.older] {
            view.set(Counts { in_use: view.get().in_use + 1, ..view.get() });
        }
        if self.older.get().in_use >= self.older.get().total {
            self.starved.set(true);
        }
    }

    /// It is about to be answered.
    pub(super) fn answered(&self, turn: u64) {
        self.change(turn, |counts| counts.in_use -= 1);
    }

    pub(super) fn parked(&self) -> usize {
        self.parked.get()
    }

    pub(super) fn park(&self) {
        self.parked.set(self.parked.get() + 1);
    }

    pub(super) fn unpark(&self) {
        self.parked.set(self.parked.get() - 1);
    }

    /// Entries that serve requests, or could.
    pub(super) fn usable(&self) -> usize {
        self.now.get().total.saturating_sub(self.parked.get())
    }

    /// All entries have a request: the kernel queues the next one.
    pub(super) fn is_full(&self) -> bool {
        self.now.get().in_use >= self.now.get().total
    }

    /// As many requests are in work as the queue has places.
    pub(super) fn is_busy(&self, depth: usize) -> bool {
        self.now.get().in_use.saturating_sub(self.parked.get()) >= depth
    }

    /// Begins, or ends, to be looked after; gives whether it was before.
    pub(super) fn watch(&self, watched: bool) -> bool {
        self.watched.replace(watched)
    }

    /// As [`Queue::needs_kick`], when what is in work may wait for what is queued.
    pub(super) fn needs_kick_when_busy(&self) -> bool {
        self.starved.get() && self.kicked.replace(self.arrivals.get()) != self.arrivals.get()
    }

    /// Requests may be queued in the kernel, and nothing that is in work will fetch them.
    pub(super) fn is_stuck(&self) -> bool {
        self.starved.get() && self.now.get().in_use <= self.parked.get()
    }

    /// Whether a kick is to be made now; then one counts as asked for. A further one is of use only after other
    /// requests have come: as long as none do, an entry is free for the kick, and it will be answered.
    pub(super) fn needs_kick(&self) -> bool {
        self.is_stuck() && self.needs_kick_when_busy()
    }

    /// A kick is about to be answered.
    pub(super) fn kick_answered(&self, turn: u64) {
        self.kick_answered.set((self.arrivals.get(), turn));
    }

    /// Some time later: if the kernel has taken the answer, and nothing came with that, nothing was queued.
    pub(super) fn after_kick(&self, turn: u64) {
        let (arrivals, answered) = self.kick_answered.get();
        if arrivals == self.arrivals.get() && turn > answered {
            self.starved.set(false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Queue;

    /// Goal: a queue whose entries were all handed out at once, and then all parked, is stuck, although others were
    /// registered in the same turn; one with a request in work is not.
    #[test]
    fn stuck() {
        let queue = Queue::new(0);
        for _ in 0..4 {
            queue.entry_added(1);
        }
        for _ in 0..4 {
            queue.begun(2);
            queue.park();
            queue.entry_added(2);
        }
        assert!(queue.is_stuck());
        assert_eq!(queue.usable(), 4);
        queue.begun(3);
        assert!(!queue.is_stuck(), "its answer will fetch the next one");
        queue.answered(3);
        assert!(queue.is_stuck());
        assert!(queue.needs_kick());
        assert!(!queue.needs_kick(), "one is on its way");
        queue.begun(4);
        queue.park();
        assert!(queue.needs_kick(), "what came may have been in its way");
        queue.begun(5);
        queue.kick_answered(5);
        queue.answered(5);
        queue.after_kick(5);
        assert!(queue.is_stuck(), "the answer is not out yet");
        queue.after_kick(6);
        assert!(!queue.is_stuck(), "nothing was left");
        queue.unpark();
        queue.answered(6);
        assert_eq!(queue.usable(), 4);
    }

    /// Goal: entries that were registered by the very call that brought the requests do not hide that there was none
    /// free before it.
    #[test]
    fn registered_too_late() {
        let queue = Queue::new(0);
        for _ in 0..4 {
            queue.entry_added(1);
        }
        queue.begun(5);
        queue.park();
        queue.entry_added(5);
        for _ in 0..3 {
            queue.begun(6);
            queue.park();
            queue.entry_added(6);
        }
        assert!(queue.is_stuck());
    }

    /// Goal: a queue that always had a free entry is never stuck.
    #[test]
    fn never_starved() {
        let queue = Queue::new(0);
        for _ in 0..4 {
            queue.entry_added(1);
        }
        for turn in 3..100 {
            queue.begun(turn);
            queue.park();
            queue.entry_added(turn);
            assert!(!queue.is_stuck());
        }
    }
}
