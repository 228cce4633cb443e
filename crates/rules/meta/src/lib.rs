//! Rules of a metadata shard: namespace, command log entries, sessions, opens.
//!
//! A [`Group`] owns the shards of one metadata thread. It has no clock, thread, socket or file:
//! the hands give it inputs and carry out its [`Output`]. See `docs/design/shard.md`.
#![no_std]
extern crate alloc;

mod acl;
mod change;
pub mod check;
mod choose;
mod command;
mod config;
mod ctx;
mod fail;
pub mod formats;
mod group;
mod key;
pub mod limit;
mod near;
mod op;
mod row;
mod shard;
pub mod spread;
/// Rows as the shard sees them (they live in a crate of their own, which the hands share).
pub mod store {
    pub use skep_rows::{Batch, Key, MemoryStore, Store, StoreError, Txn, Visit, Wanted};
}
mod tree;

pub use command::{Action, COMMAND_LEVEL_MAX, Caller, Choices, Command, Internal};
pub use config::{Config, HashFn};
pub use group::{
    Class, Group, Input, Job, JobFailure, JobReply, LeaseCounts, Line, Output, PeerIdentity, Read, Reply,
    Request, ShardMessage, Task,
};
pub use op::changes;
pub use row::{
    Inode, LinkRef,
    growth::Growth,
    header::{Header, Terms},
    inode::MAY_BE_HELD,
};
pub use spread::Chooser;

#[cfg(test)]
mod testing;
