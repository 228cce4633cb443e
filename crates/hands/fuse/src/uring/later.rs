//! A value that comes later, from any thread.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

struct State<T> {
    value: Option<T>,
    waker: Option<Waker>,
}

/// Waits for the value.
pub(super) struct Later<T>(Arc<Mutex<State<T>>>);

pub(super) struct Bringer<T>(Arc<Mutex<State<T>>>);

/// The two ends.
pub(super) fn later<T>() -> (Bringer<T>, Later<T>) {
    let state = Arc::new(Mutex::new(State { value: None, waker: None }));
    (Bringer(Arc::clone(&state)), Later(state))
}

impl<T> Bringer<T> {
    pub(super) fn bring(self, value: T) {
        let waker = {
            let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            state.value = Some(value);
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl<T> Future for Later<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match state.value.take() {
            Some(value) => Poll::Ready(value),
            None => {
                state.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}
