//! Calls from other threads.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::event::EventfdFlags;

/// What another thread wants done on the reactor's.
pub(crate) type Job = Box<dyn FnOnce() + Send>;

/// What the reactor's thread shares with others.
pub(crate) struct Shared {
    /// Tells reactors apart.
    pub(crate) id: u64,
    event: OwnedFd,
    /// The event was written and not yet read.
    called: AtomicBool,
    inbox: Mutex<Inbox>,
}

#[derive(Default)]
struct Inbox {
    jobs: Vec<Job>,
    woken: Vec<u32>,
    closed: bool,
}

static NEXT: AtomicU64 = AtomicU64::new(1);

impl Shared {
    pub(crate) fn new() -> io::Result<Arc<Shared>> {
        let event = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Arc::new(Shared {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            event,
            called: AtomicBool::new(false),
            inbox: Mutex::default(),
        }))
    }

    pub(crate) fn event(&self) -> &OwnedFd {
        &self.event
    }

    fn change(&self, change: impl FnOnce(&mut Inbox)) -> bool {
        {
            let mut inbox = self.inbox.lock().unwrap_or_else(PoisonError::into_inner);
            if inbox.closed {
                return false;
            }
            change(&mut inbox);
        }
        if !self.called.swap(true, Ordering::AcqRel) {
            // The only failure is a full counter, which is readable as well.
            let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
        }
        true
    }

    /// A task was woken on another thread.
    pub(crate) fn wake(&self, task: u32) {
        self.change(|inbox| inbox.woken.push(task));
    }

    /// Takes what has come.
    pub(crate) fn take(&self) -> (Vec<Job>, Vec<u32>) {
        let _ = rustix::io::read(&self.event, &mut [0u8; 8]);
        // Before the look: what comes after it calls again.
        self.called.store(false, Ordering::Release);
        let mut inbox = self.inbox.lock().unwrap_or_else(PoisonError::into_inner);
        (std::mem::take(&mut inbox.jobs), std::mem::take(&mut inbox.woken))
    }

    /// Nothing is taken any more; what waits is dropped.
    pub(crate) fn close(&self) {
        let rest = {
            let mut inbox = self.inbox.lock().unwrap_or_else(PoisonError::into_inner);
            inbox.closed = true;
            std::mem::take(&mut inbox.jobs)
        };
        drop(rest);
    }
}

/// A way to a reactor from any thread.
#[derive(Clone)]
pub struct Remote {
    pub(crate) shared: Arc<Shared>,
}

impl Remote {
    /// Has `job` run on the reactor's thread, between two of its tasks' steps. `false`: the reactor has gone, and
    /// the job was dropped. A job that was taken is also dropped, without having run, when the reactor goes before
    /// its turn.
    pub fn post(&self, job: Box<dyn FnOnce() + Send>) -> bool {
        let mut job = Some(job);
        self.shared.change(|inbox| inbox.jobs.extend(job.take()))
    }
}
