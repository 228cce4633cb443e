//! Rules of a client: sessions, slots, retries, striping, and one file per operation.
//!
//! The core is `no_std` and has no thread, no clock and no executor. Operations are `async`
//! methods of a [`Lane`] over a [`Port`]; the compiler writes the state machines. See
//! `docs/design/client.md`.
#![no_std]
extern crate alloc;

mod housekeeping;
mod job;
mod lane;
pub mod limits;
mod op;
mod port;
mod reclaim;
mod retry;
mod session;
pub mod state;
#[cfg(test)]
mod testing;

pub use lane::Lane;
pub use limits::{HOUSEKEEPING_MAX_MS, HOUSEKEEPING_SOON_MS, Limits};
pub use op::{
    Allocate, CreateHow, Listed, LostChunk, NewNode, OpenHow, Opened, RenameHow, Seek, Shown, Sink, Valid,
    Waiting, WriteHow, XattrHow,
};
pub use port::{Answer, Call, Cell, Dropped, MGMTD, Outcome, Port};
pub use state::{AttrsBy, LeaseCounts, Shared};
