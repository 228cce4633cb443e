//! Drops pages and names of the kernel. It must not be told by a thread that answers requests, for it waits for fills of these
//! pages, or for the lock of a directory, which may be in that thread's hands: threads of their own do it, as many as are
//! needed at once, and no more than one for each inode. So a file whose fills hang keeps one thread, however many programs wait
//! for it.

use skep_client::Dropped;
use skep_fuse::{Notifier, Sizes};
use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::future::poll_fn;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

/// Inodes that are told of at the same moment. Each may wait for a server that fills a page.
const THREADS_MAX: usize = 128;
/// What a file is like is known to the kernel so soon, or it is looked at anew.
const SETTLED_WITHIN: Duration = Duration::from_secs(1);
/// Threads that stay when there is nothing to do.
const IDLE_MAX: usize = 4;

/// What the kernel is to be told of an inode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// Pages are to go: those that have a byte of `from` and `len` behind it (0: to the end).
    Drop { from: u64, len: u64 },
    /// The file is at least this long.
    Size(u64),
    /// The kernel is to take over what it is answered; told by [`Pages::settling`] only.
    Settle,
    /// A name in the directory is to go.
    Name(Box<[u8]>),
}

impl Notice {
    /// Is `other` done when this is?
    fn covers(&self, other: &Self) -> bool {
        let end = |from: u64, len: u64| if len == 0 { u64::MAX } else { from.saturating_add(len) };
        match (self, other) {
            (Self::Drop { from, len }, Self::Drop { from: first, len: most }) => {
                from <= first && end(*first, *most) <= end(*from, *len)
            }
            (Self::Size(size), Self::Size(other)) => other <= size,
            (Self::Settle, Self::Settle) => true,
            (Self::Name(name), Self::Name(other)) => name == other,
            _ => false,
        }
    }

    /// What became of it when the mount ended: pages and sizes went with it, but the kernel goes on using names.
    fn at_the_end(&self) -> Dropped {
        if matches!(self, Self::Name(_)) { Dropped::Failed } else { Dropped::Done }
    }
}

/// A notice that nobody has begun to tell.
struct Wish {
    notice: Notice,
    told: Arc<Told>,
}

#[derive(Default)]
struct State {
    /// Of each inode, in order; an inode that a thread is at has an entry, perhaps without wishes.
    wishes: HashMap<u64, VecDeque<Wish>>,
    /// Inodes with wishes that no thread is at.
    ready: VecDeque<u64>,
    threads: usize,
    /// Threads that wait for wishes.
    idle: usize,
    ended: bool,
}

impl State {
    /// Nobody will tell what is wished for.
    fn give_up(&mut self, became: impl Fn(&Notice) -> Dropped) {
        self.ready.clear();
        let wishes = self.wishes.drain().flat_map(|(_, wishes)| wishes);
        wishes.for_each(|wish| wish.told.set(became(&wish.notice)));
    }
}

/// Tells the kernel of an inode, and says what became of it.
type Tell = dyn Fn(u64, &Notice) -> Dropped + Send + Sync;

pub struct Pages {
    tell: Box<Tell>,
    state: Mutex<State>,
    wake: Condvar,
}

/// What became of a notice: pages are gone, or a size is believed; a name is gone, or was not there; or nobody will tell it.
#[derive(Default)]
pub struct Told {
    state: Mutex<(Option<Dropped>, Vec<Waker>)>,
    wake: Condvar,
}

impl Pages {
    /// For a mount.
    pub fn new(notifier: Notifier) -> Arc<Self> {
        let bytes = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        Self::telling(move |ino, notice| {
            let told = match notice {
                // Pages of an inode that the kernel does not know are gone as well.
                Notice::Drop { from, len } => {
                    notifier.inval_inode(ino, bytes(*from), bytes(*len)).map(|_| skep_fuse::Dropped::Done)
                }
                Notice::Size(size) => notifier.lengthen_inode(ino, *size).map(|()| skep_fuse::Dropped::Done),
                Notice::Name(name) => notifier.inval_entry(ino, name),
                Notice::Settle => return Dropped::Failed,
            };
            match told {
                Ok(skep_fuse::Dropped::Done) => Dropped::Done,
                Ok(skep_fuse::Dropped::Unknown) => Dropped::Unknown,
                // The mount has ended.
                Err(_) => notice.at_the_end(),
            }
        })
    }

    /// Has the kernel take over what it is answered of files. Apart from the others: who waits for that keeps a page that these may
    /// wait for.
    pub fn settling(sizes: Arc<Sizes>) -> Arc<Self> {
        Self::telling(move |ino, _| match sizes.settle(ino, Instant::now() + SETTLED_WITHIN) {
            Ok(Some(_)) => Dropped::Done,
            Ok(None) => Dropped::Failed,
            // It takes over what it is told when it gets to know it.
            Err(skep_fuse::Errno::ESTALE) => Dropped::Done,
            Err(e) => {
                warning!("the kernel cannot be asked what it knows of inode {ino}: {e}");
                Dropped::Failed
            }
        })
    }

    /// With these hands.
    pub fn telling(tell: impl Fn(u64, &Notice) -> Dropped + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self { tell: Box::new(tell), state: Mutex::default(), wake: Condvar::new() })
    }

    /// Has the kernel told of `ino`, behind what it is told of it already.
    pub fn tell(self: &Arc<Self>, ino: u64, notice: Notice) -> Arc<Told> {
        let mut state = self.lock();
        if state.ended {
            return Told::known(notice.at_the_end());
        }
        let is_new = !state.wishes.contains_key(&ino);
        let wishes = state.wishes.entry(ino).or_default();
        if let Some(wish) = wishes.iter().find(|wish| wish.notice.covers(&notice)) {
            return wish.told.clone();
        }
        let told = Arc::new(Told::default());
        wishes.push_back(Wish { notice, told: told.clone() });
        if is_new {
            state.ready.push_back(ino);
            self.see_to_threads(&mut state);
        }
        drop(state);
        self.wake.notify_one();
        told
    }

    fn see_to_threads(self: &Arc<Self>, state: &mut State) {
        if state.idle >= state.ready.len() || state.threads >= THREADS_MAX {
            return;
        }
        let pages = self.clone();
        match std::thread::Builder::new().name("pages".to_owned()).spawn(move || pages.run()) {
            Ok(_) => state.threads += 1,
            // With none, nobody would ever do it; the program gets an error instead of a hang.
            Err(e) if state.threads == 0 => {
                state.give_up(|_| Dropped::Failed);
                warning!("no thread that drops pages: {e}; programs that need it get EIO until there is one");
            }
            Err(_) => {}
        }
    }

    fn run(&self) {
        let mut state = self.lock();
        loop {
            if state.ready.is_empty() && state.idle >= IDLE_MAX {
                state.threads -= 1;
                return;
            }
            state.idle += 1;
            let waited = self.wake.wait_while(state, |state| state.ready.is_empty() && !state.ended);
            state = waited.unwrap_or_else(PoisonError::into_inner);
            state.idle -= 1;
            let Some(ino) = state.ready.pop_front() else { return };
            let Some(wish) = state.wishes.get_mut(&ino).and_then(VecDeque::pop_front) else { continue };
            drop(state);
            wish.told.set((self.tell)(ino, &wish.notice));
            state = self.lock();
            match state.wishes.get(&ino).map(VecDeque::is_empty) {
                // Behind the others.
                Some(false) => state.ready.push_back(ino),
                Some(true) => drop(state.wishes.remove(&ino)),
                None => {}
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The mount has ended: its pages went with it.
    pub fn end(&self) {
        let mut state = self.lock();
        state.ended = true;
        state.give_up(Notice::at_the_end);
        drop(state);
        self.wake.notify_all();
    }
}

impl Told {
    fn known(became: Dropped) -> Arc<Self> {
        Arc::new(Self { state: Mutex::new((Some(became), Vec::new())), wake: Condvar::new() })
    }

    fn lock(&self) -> MutexGuard<'_, (Option<Dropped>, Vec<Waker>)> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, became: Dropped) {
        let wakers = {
            let mut state = self.lock();
            state.0 = Some(became);
            std::mem::take(&mut state.1)
        };
        self.wake.notify_all();
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Waits for that, no longer than this.
    pub fn wait(&self, limit: Duration) -> Option<Dropped> {
        let waited = self.wake.wait_timeout_while(self.lock(), limit, |state| state.0.is_none());
        waited.unwrap_or_else(PoisonError::into_inner).0.0
    }

    /// The same for a task: `limit` is over when that future is.
    pub async fn wait_before(&self, limit: impl Future<Output = ()>) -> Option<Dropped> {
        let mut limit = std::pin::pin!(limit);
        poll_fn(|cx| {
            let mut state = self.lock();
            if state.0.is_some() {
                return Poll::Ready(state.0);
            }
            if !state.1.iter().any(|waker| waker.will_wake(cx.waker())) {
                state.1.push(cx.waker().clone());
            }
            drop(state);
            limit.as_mut().poll(cx).map(|()| None)
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Sender, channel};

    const ALL: Notice = Notice::Drop { from: 0, len: 0 };
    const SOON: Duration = Duration::from_secs(20);

    type Seen = Arc<Mutex<Vec<(u64, Notice)>>>;

    /// Pages of which those of inode 1 stay until something is sent, and what was told.
    fn hanging() -> (Arc<Pages>, Sender<()>, Seen) {
        let (sender, gate) = channel();
        let gate = Mutex::new(gate);
        let told = Arc::new(Mutex::new(Vec::new()));
        let seen = told.clone();
        let pages = Pages::telling(move |ino, notice| {
            if ino == 1 {
                let _ = gate.lock().unwrap().recv();
            }
            seen.lock().unwrap().push((ino, notice.clone()));
            Dropped::Done
        });
        (pages, sender, told)
    }

    /// Goal: a file whose pages do not go keeps no other file waiting, however many programs open it.
    #[test]
    fn one_file_that_hangs_keeps_no_other_waiting() {
        let (pages, gate, told) = hanging();
        let waiting: Vec<_> = (0..200).map(|_| pages.tell(1, ALL)).collect();
        for ino in 2..40 {
            assert_eq!(pages.tell(ino, ALL).wait(SOON), Some(Dropped::Done));
        }
        assert!(waiting.iter().all(|dropped| dropped.wait(Duration::ZERO).is_none()));
        assert!(pages.lock().wishes[&1].len() <= 1, "those that nobody has begun are one");
        gate.send(()).unwrap();
        gate.send(()).unwrap();
        assert!(waiting.iter().all(|dropped| dropped.wait(SOON) == Some(Dropped::Done)));
        assert!(told.lock().unwrap().iter().filter(|(ino, _)| *ino == 1).count() <= 2);
    }

    /// Goal: a file is told in order, and only what is told later counts as told.
    #[test]
    fn notices_of_a_file_are_in_order() {
        let (pages, gate, told) = hanging();
        let some = |from, len| Notice::Drop { from, len };
        let first = pages.tell(1, some(0, 10));
        // It was begun: what is filled from here on it may not see.
        while pages.lock().wishes[&1].iter().any(|wish| wish.notice == some(0, 10)) {
            std::thread::yield_now();
        }
        let all = [some(5, 2), Notice::Size(7), Notice::Size(9), some(4, 8), some(5, 7), Notice::Size(8)];
        let rest = all.map(|notice| pages.tell(1, notice));
        for _ in 0..5 {
            gate.send(()).unwrap();
        }
        assert!(rest.iter().chain([&first]).all(|dropped| dropped.wait(SOON) == Some(Dropped::Done)));
        let told: Vec<_> = told.lock().unwrap().iter().map(|(_, notice)| notice.clone()).collect();
        assert_eq!(told, [some(0, 10), some(5, 2), Notice::Size(7), Notice::Size(9), some(4, 8)]);
        pages.end();
        let name = Notice::Name(b"f".as_slice().into());
        assert_eq!(pages.tell(1, name).wait(Duration::ZERO), Some(Dropped::Failed), "it goes on being used");
        assert_eq!(pages.tell(1, ALL).wait(Duration::ZERO), Some(Dropped::Done));
    }
}
