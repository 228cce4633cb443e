//! Requests that were read although no worker is to serve them yet.
//!
//! All workers may wait for a notification that drops pages, and it for a request behind others in the kernel's queue. So
//! workers of a reserve read on; of what they read they serve only what a notification may wait for, and put the rest
//! aside, to be served as places become free.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Requests that may lie aside: each is a program that waits.
const REQUESTS_MAX: usize = 1 << 14;
/// Bytes of them: writes past the pages may be large.
const BYTES_MAX: usize = 64 << 20;

/// See the module. With each request lies where it was read: the kernel takes its answer there only.
pub(super) struct Aside<W> {
    /// Requests that may be in work at once, but for those that a notification may wait for.
    places: usize,
    taken: AtomicUsize,
    /// Something lies aside.
    any: AtomicBool,
    queue: Mutex<Queue<W>>,
}

struct Queue<W> {
    requests: VecDeque<(W, Vec<u8>)>,
    bytes: usize,
    closed: bool,
}

impl<W: Clone> Aside<W> {
    pub(super) fn new(places: usize) -> Self {
        let queue = Mutex::new(Queue { requests: VecDeque::new(), bytes: 0, closed: false });
        Aside { places, taken: AtomicUsize::new(0), any: AtomicBool::new(false), queue }
    }

    fn lock(&self) -> MutexGuard<'_, Queue<W>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_place(&self) -> bool {
        self.taken.fetch_update(SeqCst, SeqCst, |taken| (taken < self.places).then_some(taken + 1)).is_ok()
    }

    /// Takes a place for a request. `false`: it lies aside instead, and [`Aside::next`] gives it to somebody; ask for that
    /// at once, for a place may have become free meanwhile. With no room aside it is served beyond the places.
    pub(super) fn admit(&self, read_at: &W, request: &[u8]) -> bool {
        if self.take_place() {
            return true;
        }
        let mut queue = self.lock();
        if queue.requests.len() >= REQUESTS_MAX || queue.bytes + request.len() > BYTES_MAX {
            self.taken.fetch_add(1, SeqCst);
            return true;
        }
        // Nobody waits for the answer of a connection that has ended.
        if !queue.closed {
            queue.bytes += request.len();
            queue.requests.push_back((read_at.clone(), request.to_owned()));
            self.any.store(true, SeqCst);
        }
        false
    }

    /// A request has left its place.
    pub(super) fn leave(&self) {
        self.taken.fetch_sub(1, SeqCst);
    }

    /// What lay aside for longest, with a place for it. Who leaves a place looks here after it, who puts something aside
    /// as well: one of the two sees the other.
    pub(super) fn next(&self) -> Option<(W, Vec<u8>)> {
        if !self.any.load(SeqCst) {
            return None;
        }
        let mut queue = self.lock();
        if queue.requests.is_empty() || !self.take_place() {
            return None;
        }
        let next = queue.requests.pop_front();
        queue.bytes -= next.as_ref().map_or(0, |(_, request)| request.len());
        self.any.store(!queue.requests.is_empty(), SeqCst);
        next
    }

    /// The connection has ended.
    pub(super) fn close(&self) {
        *self.lock() = Queue { requests: VecDeque::new(), bytes: 0, closed: true };
        self.any.store(false, SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::{Aside, BYTES_MAX};
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    /// Goal: no more requests than places are in work, the others come in order as places become free, and with no room
    /// aside a request is served all the same.
    #[test]
    fn places_and_order() {
        let aside = Aside::new(2);
        assert!(aside.admit(&(), b"1") && aside.admit(&(), b"2"));
        assert!(!aside.admit(&(), b"3") && !aside.admit(&(), b"4"));
        assert_eq!(aside.next(), None, "no place");
        aside.leave();
        assert_eq!(aside.next(), Some(((), b"3".to_vec())));
        assert_eq!(aside.next(), None);
        aside.leave();
        aside.leave();
        assert_eq!(aside.next(), Some(((), b"4".to_vec())));
        assert!(aside.admit(&(), b"5") && !aside.admit(&(), b"6"));
        assert!(aside.admit(&(), &vec![0; BYTES_MAX]), "beyond the room");
        aside.close();
        aside.leave();
        assert!(!aside.admit(&(), b"7"), "three are in work");
        aside.leave();
        assert_eq!(aside.next(), None, "nothing is kept after the end");
    }

    /// Goal: nothing stays aside while a place is free, whoever puts and leaves at the same moment.
    #[test]
    fn nothing_is_forgotten() {
        const EACH: usize = 20_000;
        const THREADS: usize = 4;
        let (aside, served) = (Aside::new(2), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    for _ in 0..EACH {
                        let mut has_place = aside.admit(&(), b"request");
                        loop {
                            if has_place {
                                served.fetch_add(1, SeqCst);
                                aside.leave();
                            }
                            has_place = aside.next().is_some();
                            if !has_place {
                                break;
                            }
                        }
                    }
                });
            }
        });
        assert_eq!(served.load(SeqCst), THREADS * EACH);
    }
}
