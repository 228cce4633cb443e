//! Drops pages of the kernel. It must not be told by a thread that answers requests, for it waits for fills of these
//! pages, which may be in that thread's hands: threads of their own do it, as many as are needed at once.

use skep_fuse::Notifier;
use std::collections::VecDeque;
use std::future::Future;
use std::future::poll_fn;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

/// Threads that drop pages. Each may wait for a server that fills a page.
const THREADS_MAX: usize = 16;

/// What the kernel is to be told of an inode.
#[derive(Clone, Copy)]
pub enum Notice {
    /// Pages are to go: those that have a byte of `from` and `len` behind it (0: to the end).
    Drop { from: u64, len: u64 },
    /// The file is at least this long.
    Size(u64),
}

struct Wish {
    ino: u64,
    notice: Notice,
    dropped: Arc<Dropped>,
}

#[derive(Default)]
struct State {
    wishes: VecDeque<Wish>,
    threads: usize,
    /// Threads that wait for wishes.
    idle: usize,
    ended: bool,
}

/// See the module.
pub struct Pages {
    notifier: Notifier,
    state: Mutex<State>,
    wake: Condvar,
}

/// What became of a notice: `true` when pages are gone, or a size is believed; `false` when nobody will tell it.
#[derive(Default)]
pub struct Dropped {
    state: Mutex<(Option<bool>, Option<Waker>)>,
    wake: Condvar,
}

impl Pages {
    /// For a mount.
    pub fn new(notifier: Notifier) -> Arc<Self> {
        Arc::new(Self { notifier, state: Mutex::default(), wake: Condvar::new() })
    }

    /// Has the kernel told of `ino`.
    pub fn tell(self: &Arc<Self>, ino: u64, notice: Notice) -> Arc<Dropped> {
        let dropped = Arc::new(Dropped::default());
        let mut state = self.lock();
        if state.ended {
            dropped.set(true);
            return dropped;
        }
        state.wishes.push_back(Wish { ino, notice, dropped: dropped.clone() });
        if state.idle < state.wishes.len() && state.threads < THREADS_MAX {
            let pages = self.clone();
            match std::thread::Builder::new().name("pages".to_owned()).spawn(move || pages.run()) {
                Ok(_) => state.threads += 1,
                // With none, nobody would ever do it; the program gets an error instead of a hang.
                Err(e) if state.threads == 0 => {
                    state.wishes.drain(..).for_each(|wish| wish.dropped.set(false));
                    warning!(
                        "no thread that drops pages: {e}; programs that need it get EIO until there is one"
                    );
                }
                Err(_) => {}
            }
        }
        drop(state);
        self.wake.notify_one();
        dropped
    }

    fn run(&self) {
        let mut state = self.lock();
        loop {
            state.idle += 1;
            let waited = self.wake.wait_while(state, |state| state.wishes.is_empty() && !state.ended);
            state = waited.unwrap_or_else(PoisonError::into_inner);
            state.idle -= 1;
            let Some(wish) = state.wishes.pop_front() else { return };
            drop(state);
            let bytes = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
            // It fails only when the mount has ended.
            let _ = match wish.notice {
                Notice::Drop { from, len } => self.notifier.inval_inode(wish.ino, bytes(from), bytes(len)),
                Notice::Size(size) => self.notifier.lengthen_inode(wish.ino, size),
            };
            wish.dropped.set(true);
            state = self.lock();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The mount has ended: its pages went with it.
    pub fn end(&self) {
        let mut state = self.lock();
        state.ended = true;
        state.wishes.drain(..).for_each(|wish| wish.dropped.set(true));
        drop(state);
        self.wake.notify_all();
    }
}

impl Dropped {
    fn lock(&self) -> MutexGuard<'_, (Option<bool>, Option<Waker>)> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, gone: bool) {
        let waker = {
            let mut state = self.lock();
            state.0 = Some(gone);
            state.1.take()
        };
        self.wake.notify_all();
        waker.into_iter().for_each(Waker::wake);
    }

    /// Waits for that, no longer than this.
    pub fn wait(&self, limit: Duration) -> Option<bool> {
        let waited = self.wake.wait_timeout_while(self.lock(), limit, |state| state.0.is_none());
        waited.unwrap_or_else(PoisonError::into_inner).0.0
    }

    /// The same for a task: `limit` is over when that future is.
    pub async fn wait_before(&self, limit: impl Future<Output = ()>) -> Option<bool> {
        let mut limit = std::pin::pin!(limit);
        poll_fn(|cx| {
            let mut state = self.lock();
            if state.0.is_some() {
                return Poll::Ready(state.0);
            }
            state.1 = Some(cx.waker().clone());
            drop(state);
            limit.as_mut().poll(cx).map(|()| None)
        })
        .await
    }
}
