//! Pages that are dropped while a file is open: a record was appended elsewhere than the kernel believed, or
//! another mount wrote under a lock that was taken now. The kernel must not be told from a thread that answers
//! requests, for it waits for reads that may be in that thread's hands.

use skep_fuse::Notifier;
use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

#[derive(Default)]
struct Wanted {
    /// First byte whose page goes, by inode.
    from: BTreeMap<u64, u64>,
    /// Inodes whose pages are being dropped, and by how many threads.
    at: BTreeMap<u64, u32>,
    started: bool,
    ended: bool,
}

impl Wanted {
    fn begin(&mut self, ino: u64) {
        *self.at.entry(ino).or_default() += 1;
    }

    fn end(&mut self, ino: u64) {
        if let Some(count) = self.at.get_mut(&ino) {
            *count -= 1;
            if *count == 0 {
                self.at.remove(&ino);
            }
        }
    }
}

/// See the module.
pub struct Pages {
    notifier: Notifier,
    wanted: Mutex<Wanted>,
    wake: Condvar,
}

impl Pages {
    /// For a mount.
    pub fn new(notifier: Notifier) -> Arc<Self> {
        Arc::new(Self { notifier, wanted: Mutex::default(), wake: Condvar::new() })
    }

    /// The pages of `ino` from the byte on that `take` gives, if it does, are to go. Whoever asks after this
    /// whether they are gone is told that they are not: `take` runs under the lock.
    pub fn drop_from(self: &Arc<Self>, ino: u64, take: impl FnOnce() -> Option<u64>) {
        let start = {
            let mut wanted = self.lock();
            let Some(from) = take() else { return };
            let known = wanted.from.entry(ino).or_insert(from);
            *known = from.min(*known);
            !std::mem::replace(&mut wanted.started, true)
        };
        self.wake.notify_all();
        if start {
            let pages = self.clone();
            let thread = std::thread::Builder::new().name("pages".to_owned());
            if let Err(e) = thread.spawn(move || pages.run()) {
                // Nobody waits for what nobody does; the next one tries again.
                let mut wanted = self.lock();
                wanted.started = false;
                wanted.from.clear();
                drop(wanted);
                warning!(
                    "no thread that drops pages: {e}; a reader may see them until it opens the file again"
                );
            }
        }
    }

    fn run(&self) {
        loop {
            let wanted = self.lock();
            let waited = self.wake.wait_while(wanted, |wanted| wanted.from.is_empty() && !wanted.ended);
            let mut wanted = waited.unwrap_or_else(PoisonError::into_inner);
            let Some((ino, from)) = wanted.from.pop_first() else { return };
            wanted.begin(ino);
            drop(wanted);
            self.drop_begun(ino, from);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Wanted> {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As [`Pages::drop_from`], at once: for threads that answer no requests.
    pub fn drop_now(&self, ino: u64, take: impl FnOnce() -> Option<u64>) {
        let from = {
            let mut wanted = self.lock();
            let Some(from) = take() else { return };
            wanted.begin(ino);
            from
        };
        self.drop_begun(ino, from);
    }

    fn drop_begun(&self, ino: u64, from: u64) {
        let offset = i64::try_from(from).unwrap_or(i64::MAX);
        // It fails only when the mount has ended.
        let _ = self.notifier.inval_inode(ino, offset, 0);
        self.lock().end(ino);
    }

    /// Are the pages of `ino` that were to go gone?
    pub fn are_gone(&self, ino: u64) -> bool {
        let wanted = self.lock();
        wanted.ended || (!wanted.from.contains_key(&ino) && !wanted.at.contains_key(&ino))
    }

    /// The mount has ended.
    pub fn end(&self) {
        self.lock().ended = true;
        self.wake.notify_all();
    }
}
