//! Instruments: every daemon, and a bench agent, measures what it stands on when an administrator asks.
//!
//! [`Instruments`] answers `Measure`, `Discard` and `Fabricate`; [`client`] asks. What can be asked is in
//! [`question`]. Rules and reasons: `docs/design/instruments.md`.

pub mod client;
pub mod facts;
mod gate;
mod jobs;
mod leases;
mod listen;
mod log;
mod network;
mod processor;
pub mod question;
mod service;
mod storage;

pub use network::Times;
pub use service::{BenchTarget, Host, Instruments, LogPlace, is_instrument};
pub use storage::clear_leftovers;
