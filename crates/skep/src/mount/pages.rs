//! Pages that are dropped while a file is open: a record was appended elsewhere than the kernel believed, or
//! another mount wrote under a lock that was taken now. The kernel must not be told from a thread that answers
//! requests, for it waits for reads that may be in that thread's hands.

use skep_fuse::Notifier;
use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

#[derive(Default)]
struct Wanted {
    /// First byte whose page goes, by inode.
    from: BTreeMap<u64, u64>,
    /// The inode whose pages are being dropped.
    at: Option<u64>,
    started: bool,
    ended: bool,
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

    /// The pages of `ino` from byte `from` on are to go.
    pub fn drop_from(self: &Arc<Self>, ino: u64, from: u64) {
        let start = {
            let mut wanted = self.wanted.lock().unwrap_or_else(PoisonError::into_inner);
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
                let mut wanted = self.wanted.lock().unwrap_or_else(PoisonError::into_inner);
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
            let wanted = self.wanted.lock().unwrap_or_else(PoisonError::into_inner);
            let waited = self.wake.wait_while(wanted, |wanted| wanted.from.is_empty() && !wanted.ended);
            let mut wanted = waited.unwrap_or_else(PoisonError::into_inner);
            let Some((ino, from)) = wanted.from.pop_first() else { return };
            wanted.at = Some(ino);
            drop(wanted);
            self.drop_now(ino, from);
            self.wanted.lock().unwrap_or_else(PoisonError::into_inner).at = None;
        }
    }

    /// Drops them at once: for threads that answer no requests.
    pub fn drop_now(&self, ino: u64, from: u64) {
        let offset = i64::try_from(from).unwrap_or(i64::MAX);
        // It fails only when the mount has ended.
        let _ = self.notifier.inval_inode(ino, offset, 0);
    }

    /// Are the pages of `ino` that were to go gone?
    pub fn are_gone(&self, ino: u64) -> bool {
        let wanted = self.wanted.lock().unwrap_or_else(PoisonError::into_inner);
        wanted.ended || (!wanted.from.contains_key(&ino) && wanted.at != Some(ino))
    }

    /// The mount has ended.
    pub fn end(&self) {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner).ended = true;
        self.wake.notify_all();
    }
}
