//! Connecting: rare, and the handshake's code blocks, so a thread does it and goes.

use crate::error::Cause;
use crate::{Endpoint, Keyring, Link, NetError};
use skep_wire::Hello;
use std::future::poll_fn;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Waker};
use std::time::Instant;

/// Stack of the thread; the handshake's messages are small.
const STACK: usize = 256 << 10;

/// Where the thread puts what it has.
#[derive(Default)]
struct Exchange {
    result: Option<Result<Link, NetError>>,
    waiting: Option<Waker>,
}

/// As [`Link::connect`], while the other tasks of the reactor go on. When the future is dropped, a
/// connection that is made all the same is closed.
pub async fn dial(
    endpoints: Vec<Endpoint>,
    keyring: Keyring,
    hello: Hello,
    deadline: Instant,
) -> Result<Link, NetError> {
    let exchange = Arc::new(Mutex::new(Exchange::default()));
    let theirs = exchange.clone();
    let thread = std::thread::Builder::new().name("dial".to_owned()).stack_size(STACK);
    let spawned = thread.spawn(move || {
        let result = Link::connect(&endpoints, &keyring, &hello, deadline);
        let mut exchange = theirs.lock().unwrap_or_else(PoisonError::into_inner);
        exchange.result = Some(result);
        if let Some(waker) = exchange.waiting.take() {
            waker.wake();
        }
    });
    if let Err(e) = spawned {
        let text = format!("no thread to connect with ({e}); raise the limit of processes (TasksMax)");
        return Err(NetError::new("this process", Cause::Unreachable(io::Error::other(text))));
    }
    poll_fn(|cx| {
        let mut exchange = exchange.lock().unwrap_or_else(PoisonError::into_inner);
        match exchange.result.take() {
            Some(result) => Poll::Ready(result),
            None => {
                exchange.waiting = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    })
    .await
}
