//! Rules of a client: sessions, slots, retries, striping, and one file per operation.
//!
//! The core is `no_std` and has no thread, no clock and no executor. Operations are `async`
//! methods of a [`Lane`] over a [`Port`]; the compiler writes the state machines. See
//! `docs/design/client.md`.
#![no_std]
extern crate alloc;

pub mod limits;
mod port;
pub mod state;
#[cfg(test)]
mod testing;

pub use limits::{HOUSEKEEPING_SOON_MS, INTERRUPT_AFTER_MS, Limits};
pub use port::{Answer, Call, Cell, MGMTD, Outcome, Port};
pub use state::Shared;
