//! Serving `/dev/fuse`: blocking worker threads.

mod aside;
mod crew;
mod drive;
mod parking;

use std::time::Duration;

pub(crate) use crew::serve;
pub(crate) use drive::Driver;
pub(crate) use parking::{DevParking, after_dispatch};

/// Limit of worker threads unless configured: so many requests may wait for servers at one time.
pub const DEFAULT_WORKERS: usize = 64;
/// Idle worker threads kept unless configured.
pub const DEFAULT_IDLE_WORKERS: usize = 4;
/// Time without a shortage after which surplus idle workers end, unless configured.
pub const DEFAULT_QUIET: Duration = Duration::from_secs(10);
/// Workers beyond that limit, for the time when all others are at work while the kernel waits in a notification: they serve
/// what it may wait for. One serves as many such requests as come, one after the other; more are for those that take long.
pub const RESERVE_WORKERS: usize = 4;
/// Parked requests on one connection: each is a little memory in the kernel and here.
const PARKED_LIMIT: usize = 1 << 16;

/// How the device is served.
#[derive(Clone, Copy, Debug)]
pub struct DevOptions {
    /// Limit of worker threads, at least 1. They start when a request finds none idle. While all of them wait,
    /// interrupts are not read either (but by the [`RESERVE_WORKERS`]), so what a file system waits for needs a deadline.
    pub workers: usize,
    /// Idle threads kept, at least 1.
    pub idle_workers: usize,
    /// More idle threads than that end after so long without a shortage: making a worker is not free for the file
    /// system (connections), and loads come in bursts.
    pub quiet: Duration,
}

impl Default for DevOptions {
    fn default() -> Self {
        DevOptions { workers: DEFAULT_WORKERS, idle_workers: DEFAULT_IDLE_WORKERS, quiet: DEFAULT_QUIET }
    }
}
