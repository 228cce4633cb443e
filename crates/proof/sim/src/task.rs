//! The executor: a future per lane, polled when something came for it.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

/// A lane's program.
pub struct Task {
    future: Pin<Box<dyn Future<Output = ()>>>,
    /// It has ended.
    pub done: bool,
}

impl Task {
    /// Not started.
    pub fn new(future: impl Future<Output = ()> + 'static) -> Self {
        Self { future: Box::pin(future), done: false }
    }

    /// Lets it go on as far as it can.
    pub fn poll(&mut self) {
        if !self.done {
            let mut context = Context::from_waker(Waker::noop());
            self.done = matches!(self.future.as_mut().poll(&mut context), Poll::Ready(()));
        }
    }
}
