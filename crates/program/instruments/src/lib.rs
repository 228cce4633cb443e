//! Instruments: every daemon, and a bench agent, measures what it stands on when an administrator asks.
//!
//! [`Instruments`] answers `Measure`, `Discard` and `Fabricate`; [`client`] asks. What can be asked is in
//! [`question`]. Rules and reasons: `docs/design/instruments.md`.

#[macro_use]
extern crate skep_base;

pub mod client;
pub mod described;
pub mod facts;
mod filesystem;
mod gate;
mod jobs;
mod leases;
mod listen;
mod log;
mod network;
pub mod processes;
mod processor;
pub mod question;
mod service;
mod storage;
pub mod target;

pub use network::Times;
pub use service::{BenchTarget, Host, Instruments, LogPlace, is_instrument};
pub use storage::clear_leftovers;
