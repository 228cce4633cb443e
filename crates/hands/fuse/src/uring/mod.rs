//! Serving through `io_uring`: a queue for each CPU that the machine can have, and a thread for each CPU that this
//! process may use, pinned to it. The kernel hands a request to the queue of the CPU that the caller runs on, so
//! request, handling and answer stay on one CPU; several requests are in work on a thread at once, each a task of
//! its reactor.
//!
//! FORGET and INTERRUPT still come through `/dev/fuse`, where one more thread reads.

mod crew;
mod entry;
mod kick;
mod later;
mod plan;
mod queue;
mod reader;
mod thread;
mod workers;

pub(crate) use crew::{Fault, serve};
pub(crate) use plan::{Plan, plan};

/// Requests in work at once on each queue, unless configured.
pub const DEFAULT_DEPTH: usize = 32;
/// Ring threads, unless configured: with more CPUs than that a thread serves several queues.
pub const DEFAULT_THREADS: usize = 64;
/// Entries of all queues of a connection together (parked requests have theirs besides).
pub const ENTRIES_LIMIT: usize = 4096;
/// Requests parked at one time on one queue. Each keeps an entry, in whose place another one is registered.
pub const PARKED_PER_QUEUE: usize = 1024;

/// Entries that are added to one queue, besides those in place of parked requests, while all its own are in use and the kernel
/// waits in a notification.
pub const ADDED_PER_QUEUE: usize = 1024;
/// Workers of each thread that serve only what a notification may wait for.
pub const RESERVE_PER_THREAD: usize = 1;

/// How the rings are served.
#[derive(Clone, Copy, Debug)]
pub struct UringOptions {
    /// Requests in work at once on each queue, at least 1; less where all queues together would have more than
    /// [`ENTRIES_LIMIT`].
    pub depth: usize,
    /// Limit of ring threads, at least 1.
    pub threads: usize,
}

impl Default for UringOptions {
    fn default() -> Self {
        UringOptions { depth: DEFAULT_DEPTH, threads: DEFAULT_THREADS }
    }
}
