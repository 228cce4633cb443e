//! Rules of the management service: which nodes, targets, shards and sessions there are, who is
//! alive, who is fenced. Never in the I/O path.
//!
//! [`State`] is what survives: it changes only by [`Command`]s, which the hands write to a synced
//! log before any answer leaves. [`Registry`] adds what may be forgotten (when somebody was last
//! heard) and turns requests and time into commands and answers. See `docs/design/cluster.md`.
#![no_std]
extern crate alloc;

mod age;
mod alias;
mod capacity;
mod command;
pub mod formats;
mod history;
pub mod limits;
mod node;
mod placement;
mod pool;
mod registry;
mod session;
mod state;
mod target;
mod view;
mod vouch;

pub use capacity::{Effective, effective};
pub use command::{
    Command, DECIDED_LEVEL, Decided, DropNode, DropPool, DropTarget, EndSession, MoveTargets, Node,
    PlaceShards, Placed, Pool, Removed, Restored, Session, SessionEnd, SetClass, SetConsistency, SetIndex,
    SetNode, SetOffline, SetPool, SetSession, SetShards, SetTarget, Started, Target,
};
pub use registry::{Answer, Config, Input, Output, Peer, Registry};
pub use state::{DEFAULT_POOL, Start, State};
