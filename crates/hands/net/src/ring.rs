//! Links of a thread that runs a [`skep_ring::Reactor`]: the same frames as [`crate::Link`], many requests
//! at once on one thread.
//!
//! - [`SharedLink`]: one connection that all tasks of the thread ask over. Requests are pipelined, answers
//!   come in any order; for services that answer out of one thread (mgmtd, metad).
//! - [`DirectLink`]: one task at a time, payloads straight from and into its buffers; for services that
//!   serve a connection's requests one after another (storaged).
//! - [`dial`]: connects and shakes hands on a short-lived thread, for both.

mod dial;
mod direct;
mod pipelined;

pub use dial::dial;
pub use direct::DirectLink;
pub use pipelined::{Pending, Reply, SharedLink};
