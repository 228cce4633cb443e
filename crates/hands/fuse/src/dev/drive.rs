//! Driving one future on the worker's own thread.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Drives futures to their end on the thread it was made on.
pub(crate) struct Driver {
    waker: Waker,
}

impl Driver {
    pub(crate) fn new() -> Self {
        Driver { waker: Waker::from(Arc::new(Unpark(thread::current()))) }
    }

    /// With the blocking implementors meant for this transport the first poll is the last one; a future that does
    /// pend is waited for. It has many kilobytes, and is not moved once it is made.
    pub(crate) fn drive<T>(&self, mut future: Pin<&mut impl Future<Output = T>>) -> T {
        let mut context = Context::from_waker(&self.waker);
        loop {
            match future.as_mut().poll(&mut context) {
                Poll::Ready(value) => return value,
                Poll::Pending => thread::park(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::pin;
    use std::task::Poll;

    use super::Driver;

    /// Goal: a ready future costs one poll, and one woken by another thread still ends.
    #[test]
    fn ready_and_pending() {
        let driver = Driver::new();
        assert_eq!(driver.drive(pin!(async { 5 })), 5);
        let mut polls = 0;
        let value = driver.drive(pin!(poll_fn(|cx| {
            polls += 1;
            if polls > 1 {
                return Poll::Ready(polls);
            }
            let waker = cx.waker().clone();
            std::thread::spawn(move || waker.wake());
            Poll::Pending
        })));
        assert!(value >= 2);
    }
}
