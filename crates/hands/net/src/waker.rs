//! Interrupts a waiting server from another thread.

use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Wakes the server's loop: [`crate::Service::wake`] is called soon after. Clones wake the same loop.
#[derive(Debug, Clone)]
pub struct Waker(Arc<OwnedFd>);

impl Waker {
    /// A new event counter of the kernel.
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self(Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)))
    }

    /// Wakes the loop. Several calls before it runs are one.
    pub fn wake(&self) {
        // The only possible error is a full counter, and then the loop is awake anyway.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// Takes all wakes so far.
    pub(crate) fn clear(&self) {
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.0, &mut count);
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Ends a server from any thread.
#[derive(Debug, Clone)]
pub struct StopHandle {
    pub(crate) waker: Waker,
    stopped: Arc<AtomicBool>,
}

impl StopHandle {
    pub(crate) fn new(waker: Waker) -> Self {
        Self { waker, stopped: Arc::default() }
    }

    /// Asks the server to end; it closes its connections and returns from `run`.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        self.waker.wake();
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }
}
