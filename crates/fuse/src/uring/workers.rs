//! The workers of one ring thread: made when needed, used again, the last one first.

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
    waiting: RefCell<VecDeque<Rc<Waiter<R::Worker>>>>,
}

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
        }
    }

    /// A worker, as soon as there is one; requests that wait are served in the order in which they came. `None`:
    /// there is none at all.
    pub(super) async fn take(&self) -> Option<Rc<Worker<R::Worker>>> {
        if self.waiting.borrow().is_empty() {
            if let Some(worker) = self.idle.borrow_mut().pop() {
                return Some(worker);
            }
            if let Some(worker) = self.make() {
                return Some(worker);
            }
            if self.made.get() == 0 {
                return None;
            }
        }
        let waiter =
            Rc::new(Waiter { given: RefCell::default(), waker: RefCell::new(Waker::noop().clone()) });
        self.waiting.borrow_mut().push_back(Rc::clone(&waiter));
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

    /// A worker is free again.
    pub(super) fn put(&self, worker: Rc<Worker<R::Worker>>) {
        let Some(waiter) = self.waiting.borrow_mut().pop_front() else {
            self.idle.borrow_mut().push(worker);
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
                let first = workers.take().await.unwrap();
                assert_eq!(first.slot, 10);
                workers.put(first);
                let first = workers.take().await.unwrap();
                let second = workers.take().await.unwrap();
                assert_eq!((first.slot, second.slot), (10, 11));
                workers.put(first);
                workers.put(second);
                assert_eq!(workers.take().await.unwrap().slot, 11);
            })
            .unwrap();
        let held = workers.idle.borrow_mut().pop().unwrap();
        reactor
            .scope(|scope| {
                for request in 0..4 {
                    let (workers, served) = (&workers, &served);
                    scope.spawn(async move {
                        let worker = workers.take().await.unwrap();
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
        assert!(reactor.block_on(none.take()).unwrap().is_none());
        let limited = Workers::new(Few(Cell::new(9)), 0, 1);
        let _one = reactor.block_on(limited.take()).unwrap();
        assert!(limited.make().is_none());
    }
}
