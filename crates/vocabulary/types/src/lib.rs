//! Vocabulary of Skep: the nouns that every other crate speaks in, and the codec that turns
//! them into bytes for the wire, the command log and the row store.
//!
//! Nothing here decides anything. No clock, no file, no socket (`no_std`).
#![no_std]
#![warn(missing_docs)]
extern crate alloc;

pub mod codec;
pub mod cookie;

mod attr;
mod close;
mod errno;
mod example;
mod floor;
pub mod formats;
mod growing;
mod id;
mod layout;
pub mod limits;
pub mod log;
mod name;
mod state;
mod stripe;
mod time;

pub use attr::{Attr, Kind, Mode, SetAttr, SetTime};
pub use codec::{Decode, DecodeError, Encode, Reader};
pub use cookie::NamesKey;
pub use errno::Errno;
pub use floor::{ExtentFloors, Floors, Held, WRITTEN};
pub use id::{
    ClientId, ClusterId, FenceEpoch, Generation, Incarnation, Ino, LogIndex, LogPlace, LogSeq, MapVersion,
    NodeId, PoolId, ProjectId, Seq, ShardId, Slot, TargetId, Term, Uuid,
};
pub use layout::{ChunkId, Code, Extent, Layout, Piece, Policy, piece_of};
pub use name::{Name, NameError};
pub use state::{Capacity, CapacityClass, Consistency, Reachability, Role, ServiceKind};
pub use stripe::Stripe;
pub use time::{Millis, Timestamp};
