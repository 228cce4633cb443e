//! Requests and answers that wait for something. Bounded in number and time.

use crate::group::Request;
use crate::limit::WAIT_DEADLINE_MS;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use skep_types::{Ino, LogIndex, Millis};
use skep_wire::Refusal;
use skep_wire::meta::{ShardStamp, TxnId};

/// What is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum For {
    /// A log record on stable storage.
    Durable(LogIndex),
    /// A truncate that all targets confirmed.
    Trim(Ino, u64),
    /// The end of a seal.
    Seal(Ino, u64),
    /// The outcome of a transaction over shards.
    Txn(TxnId),
    /// Rows from the disk.
    Rows(u64),
}

/// What waits.
#[derive(Debug)]
pub enum Parked {
    /// A finished answer.
    Answer {
        /// Where it goes.
        to: u64,
        /// Its stamp.
        stamp: ShardStamp,
        /// The answer.
        result: Result<Vec<u8>, Refusal>,
    },
    /// A request that is run (or looked up in its lane) when the wait is over.
    Again(Request),
    /// One that waits for rows from the disk.
    Read(Again),
}

/// A request that is run once more.
#[derive(Debug)]
pub struct Again {
    /// The request.
    pub request: Request,
    /// So often it has waited for rows from the disk.
    pub waited: u8,
}

impl From<Request> for Again {
    fn from(request: Request) -> Self {
        Self { request, waited: 0 }
    }
}

#[derive(Debug)]
struct Wait {
    what: For,
    deadline: Millis,
    parked: Parked,
}

impl Parked {
    /// Where the answer goes.
    fn to(&self) -> u64 {
        match self {
            Self::Answer { to, .. } => *to,
            Self::Again(request) | Self::Read(Again { request, .. }) => request.reply_to,
        }
    }
}

/// All waits of a shard.
#[derive(Debug, Default)]
pub struct Waits {
    most: usize,
    next: u64,
    all: BTreeMap<u64, Wait>,
    by_what: BTreeSet<(For, u64)>,
    by_deadline: BTreeSet<(Millis, u64)>,
    by_address: BTreeMap<u64, u64>,
}

impl Waits {
    /// So many at once.
    pub fn new(most: usize) -> Self {
        Self { most, ..Self::default() }
    }

    /// Is there room for one more?
    pub fn is_full(&self) -> bool {
        self.all.len() >= self.most
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Parks; gives the parked thing back when there is no room.
    pub fn park(&mut self, now: Millis, what: For, parked: Parked) -> Option<Parked> {
        if self.is_full() {
            return Some(parked);
        }
        let id = self.next;
        self.next += 1;
        let deadline = now.plus(WAIT_DEADLINE_MS);
        self.by_what.insert((what, id));
        self.by_deadline.insert((deadline, id));
        self.by_address.insert(parked.to(), id);
        self.all.insert(id, Wait { what, deadline, parked });
        None
    }

    fn take(&mut self, ids: Vec<u64>) -> Vec<Parked> {
        let mut taken = Vec::with_capacity(ids.len());
        for id in ids {
            if let Some(wait) = self.all.remove(&id) {
                self.by_what.remove(&(wait.what, id));
                self.by_deadline.remove(&(wait.deadline, id));
                self.by_address.remove(&wait.parked.to());
                taken.push(wait.parked);
            }
        }
        taken
    }

    /// Everything that waits for log records up to `durable`.
    pub fn durable(&mut self, durable: LogIndex) -> Vec<Parked> {
        let range = (For::Durable(LogIndex(0)), 0)..=(For::Durable(durable), u64::MAX);
        let ids = self.by_what.range(range).map(|(_, id)| *id).collect();
        self.take(ids)
    }

    /// Everything that waits for exactly this.
    pub fn over(&mut self, what: For) -> Vec<Parked> {
        let ids = self.by_what.range((what, 0)..=(what, u64::MAX)).map(|(_, id)| *id).collect();
        self.take(ids)
    }

    /// Nobody waits for the answer any more; a request that was to be run again is not.
    pub fn abandon(&mut self, to: u64) -> bool {
        let id = self.by_address.get(&to).copied();
        !self.take(id.into_iter().collect()).is_empty()
    }

    /// What waits for `what` waits for `then` from now on, until the same deadline.
    pub fn instead(&mut self, what: For, then: For) {
        let ids: Vec<u64> = self.by_what.range((what, 0)..=(what, u64::MAX)).map(|(_, id)| *id).collect();
        for id in ids {
            self.by_what.remove(&(what, id));
            self.by_what.insert((then, id));
            if let Some(wait) = self.all.get_mut(&id) {
                wait.what = then;
            }
        }
    }

    /// Everything that has waited too long.
    pub fn expired(&mut self, now: Millis) -> Vec<Parked> {
        let ids = self.by_deadline.range(..=(now, u64::MAX)).map(|(_, id)| *id).collect();
        self.take(ids)
    }

    /// Nothing waits any more: where the answers go.
    pub fn take_addresses(&mut self) -> Vec<u64> {
        let waits = core::mem::replace(self, Self::new(self.most));
        waits.all.into_values().map(|wait| wait.parked.to()).collect()
    }

    /// The next deadline.
    pub fn deadline(&self) -> Option<Millis> {
        self.by_deadline.first().map(|(at, _)| *at)
    }
}
