//! Why an operation did not happen.

use crate::choose::Plan;
use crate::row::slot::Gate;
use crate::store::StoreError;
use alloc::boxed::Box;
use alloc::format;
use skep_types::{ClientId, DecodeError, Errno, Ino, LogIndex};
use skep_wire::meta::TxnId;
use skep_wire::{Refusal, Status};

/// What an operation needs before it can run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// Something that is under way on the shard.
    Gate(Gate),
    /// A log record on stable storage.
    Durable(LogIndex),
    /// The outcome of a transaction over shards.
    Txn(TxnId),
    /// The word of who holds a file.
    Holder {
        /// The file.
        ino: Ino,
        /// Who.
        client: ClientId,
    },
}

/// Why an operation did not happen. It had no effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fail {
    /// The requester is told.
    Refused(Refusal),
    /// It is to be run again later.
    Wait(Need),
    /// Other shards have a part in it: it is to be run again when they have voted.
    Transact(Box<Plan>),
    /// The server stops.
    Store(StoreError),
}

impl From<Refusal> for Fail {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<Errno> for Fail {
    fn from(errno: Errno) -> Self {
        Self::Refused(errno.into())
    }
}

impl From<Status> for Fail {
    fn from(status: Status) -> Self {
        Self::Refused(status.into())
    }
}

impl From<StoreError> for Fail {
    fn from(e: StoreError) -> Self {
        Self::Store(e)
    }
}

/// A row that cannot be read back.
pub fn corrupt(what: &str, e: DecodeError) -> StoreError {
    StoreError::Corrupt(format!("{what}: {e}; restore the metadata server from a replica or a backup"))
}
