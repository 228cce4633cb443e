//! Opens that missed: a name led to a file, and when the kernel opened that, another had taken its place.
//!
//! The kernel looks again, once. Where a file is replaced over and over that misses, too, and the program would get
//! ESTALE, which no local file system says here. So a lookup by a thread whose open has missed opens what it finds, and
//! that stays open until the thread's next open is answered: removed by then or not, it can be opened.

use skep_client::state::Handle;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A thread that has not opened anything for so long will not.
const WAIT: Duration = Duration::from_secs(1);
/// Threads at a time; one more gets what the kernel's second look finds.
const THREADS_MAX: usize = 256;

struct Miss {
    thread: u32,
    since: Instant,
    held: Option<Handle>,
}

/// Threads whose open has missed, and what is held open for them.
#[derive(Default)]
pub struct Misses {
    misses: Mutex<Vec<Miss>>,
    /// How many; nearly always none, and then nobody waits for the mutex.
    count: AtomicUsize,
}

impl Misses {
    /// An open or create of this thread came too late, or the look at permissions before it.
    pub fn missed(&self, thread: u32) {
        let mut misses = self.lock();
        let since = Instant::now();
        if let Some(miss) = misses.iter_mut().find(|miss| miss.thread == thread) {
            miss.since = since;
        } else if misses.len() < THREADS_MAX {
            misses.push(Miss { thread, since, held: None });
        }
        self.count.store(misses.len(), Ordering::Release);
    }

    /// A lookup of this thread begins: whether what it finds is to be held, and what is not held any longer.
    pub fn looks(&self, thread: u32) -> (bool, Vec<Handle>) {
        if self.count.load(Ordering::Acquire) == 0 {
            return (false, Vec::new());
        }
        let mut misses = self.lock();
        let mut over = self.drop_old(&mut misses);
        let own = misses.iter_mut().find(|miss| miss.thread == thread);
        let missed = own.is_some();
        over.extend(own.and_then(|miss| miss.held.take()));
        (missed, over)
    }

    /// Holds this file for the thread, whose last lookup found it; gives it back where that is not wanted any more.
    pub fn hold(&self, thread: u32, handle: Handle) -> Option<Handle> {
        match self.lock().iter_mut().find(|miss| miss.thread == thread) {
            Some(miss) => miss.held.replace(handle),
            None => Some(handle),
        }
    }

    /// An open of this thread was answered, well or with another error: what is not held any longer.
    pub fn answered(&self, thread: u32) -> Vec<Handle> {
        if self.count.load(Ordering::Acquire) == 0 {
            return Vec::new();
        }
        let mut misses = self.lock();
        if let Some(at) = misses.iter().position(|miss| miss.thread == thread) {
            // As old as can be.
            misses[at].since -= WAIT;
        }
        self.drop_old(&mut misses)
    }

    fn drop_old(&self, misses: &mut Vec<Miss>) -> Vec<Handle> {
        let over =
            misses.extract_if(.., |miss| miss.since.elapsed() >= WAIT).filter_map(|miss| miss.held).collect();
        self.count.store(misses.len(), Ordering::Release);
        over
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Miss>> {
        self.misses.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: only the lookups of a thread whose open missed hold what they find; the next lookup and the answered open of
    /// that thread give it back, and nobody else's do.
    #[test]
    fn held_until_the_open_is_answered() {
        let misses = Misses::default();
        assert_eq!(misses.looks(1), (false, vec![]));
        misses.missed(1);
        assert_eq!(misses.looks(2), (false, vec![]));
        assert_eq!(misses.looks(1), (true, vec![]));
        assert_eq!(misses.hold(1, 10), None);
        assert_eq!(misses.looks(1), (true, vec![10]));
        assert_eq!(misses.hold(1, 11), None);
        assert_eq!(misses.answered(2), Vec::<Handle>::new());
        assert_eq!(misses.answered(1), [11]);
        assert_eq!(misses.looks(1), (false, vec![]));
        assert_eq!(misses.hold(1, 12), Some(12));
    }

    /// Goal: what is held for a thread that never opens it is given back by whoever looks or opens later.
    #[test]
    fn nothing_is_held_for_ever() {
        let misses = Misses::default();
        misses.missed(1);
        misses.hold(1, 10);
        misses.lock()[0].since -= WAIT;
        assert_eq!(misses.looks(2), (false, vec![10]));
        assert_eq!(misses.count.load(Ordering::Relaxed), 0);
        for thread in 0..1_000 {
            misses.missed(thread);
        }
        assert_eq!(misses.lock().len(), THREADS_MAX);
    }
}
