//! The workers of one ring thread: made when needed, used again, the last one first; and one for what a notification may
//! wait for while all others are at work, perhaps waiting for that notification.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

use crate::RingThread;

/// A worker with its place in the table of interrupts.
pub(super) struct Worker<F> {
    pub(super) fs: F,
    pub(super) slot: usize,
}

/// A request without a worker.
struct Waiter<F> {
    given: RefCell<Option<Rc<Worker<F>>>>,
    waker: RefCell<Waker>,
}

/// All workers of a thread.
pub(super) struct Workers<R: RingThread> {
    ring: R,
    /// Slots of this thread.
    first_slot: usize,
    limit: usize,
    made: Cell<usize>,
    idle: RefCell<Vec<Rc<Worker<R::Worker>>>>,
    waiting: Line<R::Worker>,
    /// The reserve, while it is idle.
    reserve: RefCell<Option<Rc<Worker<R::Worker>>>>,
    reserve_made: Cell<bool>,
    /// Requests that the reserve may serve.
    awaited: Line<R::Worker>,
}

type Line<F> = RefCell<VecDeque<Rc<Waiter<F>>>>;

impl<R: RingThread> Workers<R> {
    /// None at first; at most `limit`.
    pub(super) fn new(ring: R, first_slot: usize, limit: usize) -> Self {
        Workers {
            ring,
            first_slot,
            limit,
            made: Cell::new(0),
            idle: RefCell::default(),
            waiting: RefCell::default(),
            reserve: RefCell::default(),
            reserve_made: Cell::new(false),
            awaited: RefCell::default(),
        }
    }

    /// A worker, as soon as there is one; requests that wait are served in the order in which they came, those that a
    /// notification may wait for (`awaited`) before others. `None`: there is none at all.
    pub(super) async fn take(&self, awaited: bool) -> Option<Rc<Worker<R::Worker>>> {
        let line = if awaited { &self.awaited } else { &self.waiting };
        if line.borrow().is_empty() {
            if let Some(worker) = self.idle.borrow_mut().pop() {
                return Some(worker);
            }
            if let Some(worker) = self.make() {
                return Some(worker);
            }
            if awaited && let Some(worker) = self.take_reserve() {
                return Some(worker);
            }
            if self.made.get() == 0 {
                return None;
            }
        }
        let waiter =
            Rc::new(Waiter { given: RefCell::default(), waker: RefCell::new(Waker::noop().clone()) });
        line.borrow_mut().push_back(Rc::clone(&waiter));
        let given = poll_fn(|cx| match waiter.given.take() {
            Some(worker) => Poll::Ready(worker),
            None => {
                waiter.waker.replace(cx.waker().clone());
                Poll::Pending
            }
        });
        Some(given.await)
    }

    fn make(&self) -> Option<Rc<Worker<R::Worker>>> {
        let made = self.made.get();
        if made >= self.limit {
            return None;
        }
        let fs = self.ring.worker()?;
        self.made.set(made + 1);
        Some(Rc::new(Worker { fs, slot: self.first_slot + made }))
    }

    fn take_reserve(&self) -> Option<Rc<Worker<R::Worker>>> {
        if !self.reserve_made.replace(true) {
            let made = self.ring.reserve().map(|fs| Rc::new(Worker { fs, slot: self.reserve_slot() }));
            // Another time there may be one.
            self.reserve_made.set(made.is_some());
            return made;
        }
        self.reserve.take()
    }

    fn reserve_slot(&self) -> usize {
        self.first_slot + self.limit
    }

    /// A worker is free again.
    pub(super) fn put(&self, worker: Rc<Worker<R::Worker>>) {
        let reserve = worker.slot == self.reserve_slot();
        let mut next = self.awaited.borrow_mut().pop_front();
        if next.is_none() && !reserve {
            next = self.waiting.borrow_mut().pop_front();
        }
        let Some(waiter) = next else {
            match reserve {
                true => drop(self.reserve.replace(Some(worker))),
                false => self.idle.borrow_mut().push(worker),
            }
            return;
        };
        waiter.given.replace(Some(worker));
        waiter.waker.borrow().wake_by_ref();
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use skep_ring::Reactor;

    use super::Workers;
    use crate::{Filesystem, RingThread};

    struct Nothing;
    impl Filesystem for Nothing {}

    /// Has a few workers to give.
    struct Few(Cell<usize>);
    impl RingThread for Few {
        type Worker = Nothing;
        fn worker(&self) -> Option<Nothing> {
            let left = self.0.get().checked_sub(1)?;
            self.0.set(left);
            Some(Nothing)
        }
    }

    /// Goal: workers are made only when none is idle, the last one is used first, and requests without one are
    /// served in order.
    #[test]
    fn few_workers() {
        let reactor = Reactor::new(8).unwrap();
        let workers = Workers::new(Few(Cell::new(2)), 10, 5);
        let served = RefCell::new(Vec::new());
        reactor
            .block_on(async {
                let first = workers.take(false).await.unwrap();
                assert_eq!(first.slot, 10);
                workers.put(first);
                let first = workers.take(false).await.unwrap();
                let second = workers.take(false).await.unwrap();
                assert_eq!((first.slot, second.slot), (10, 11));
                workers.put(first);
                workers.put(second);
                assert_eq!(workers.take(false).await.unwrap().slot, 11);
            })
            .unwrap();
        let held = workers.idle.borrow_mut().pop().unwrap();
        reactor
            .scope(|scope| {
                for request in 0..4 {
                    let (workers, served) = (&workers, &served);
                    scope.spawn(async move {
                        let worker = workers.take(false).await.unwrap();
                        served.borrow_mut().push(request);
                        workers.put(worker);
                    });
                }
                reactor.run(|| true).unwrap();
                assert!(served.borrow().is_empty(), "nobody has a worker");
                workers.put(held);
                reactor.run(|| reactor.tasks() == 0)
            })
            .unwrap();
        assert_eq!(*served.borrow(), [0, 1, 2, 3]);
        let none = Workers::new(Few(Cell::new(0)), 0, 5);
        assert!(reactor.block_on(none.take(false)).unwrap().is_none());
        let limited = Workers::new(Few(Cell::new(9)), 0, 1);
        let _one = reactor.block_on(limited.take(false)).unwrap();
        assert!(limited.make().is_none());
    }

    /// Goal: what a notification may wait for has a worker when all others are at work and requests stand in line, and
    /// nothing else gets it.
    #[test]
    fn the_reserve() {
        let reactor = Reactor::new(8).unwrap();
        let workers = Workers::new(Few(Cell::new(9)), 10, 2);
        let served = RefCell::new(Vec::new());
        let held = reactor.block_on(async { [workers.take(false).await, workers.take(true).await] }).unwrap();
        assert_eq!(
            held.each_ref().map(|worker| worker.as_ref().map(|worker| worker.slot)),
            [Some(10), Some(11)]
        );
        reactor
            .scope(|scope| {
                for (request, awaited) in [(0, false), (1, true), (2, false), (3, true)] {
                    let (workers, served) = (&workers, &served);
                    scope.spawn(async move {
                        let worker = workers.take(awaited).await.unwrap();
                        served.borrow_mut().push((request, worker.slot));
                        workers.put(worker);
                    });
                }
                reactor.step().unwrap();
                assert_eq!(*served.borrow(), [(1, 12), (3, 12)]);
                held.into_iter().flatten().for_each(|worker| workers.put(worker));
                reactor.run(|| reactor.tasks() == 0)
            })
            .unwrap();
        assert_eq!(served.borrow()[2..].iter().map(|(request, _)| *request).collect::<Vec<_>>(), [0, 2]);
        assert_eq!(workers.made.get(), 2);
    }
}
