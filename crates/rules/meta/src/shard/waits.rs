//! Requests and answers that wait for something. Bounded in number and time.

use super::txns::Begun;
use crate::group::{Host, Request};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::ops::RangeInclusive;
use skep_types::{ClientId, Ino, LogIndex, Millis};
use skep_wire::Refusal;
use skep_wire::meta::{MetaRequest, ShardStamp, TxnId};

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
    /// Others to confirm that they use something no longer.
    Recall(u64),
    /// The end of what an earlier term has lent.
    Hold,
    /// Who holds this file to tell what became of it.
    Holder(Ino),
    /// The same, of who only looks: a word of the holder that was begun behind this question; `u64::MAX`: behind the next.
    Look(Ino, u64),
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
    Again(Again),
}

/// A request that is run once more.
#[derive(Debug)]
pub struct Again {
    /// The request.
    pub request: Request,
    /// So often it has waited for rows from the disk.
    pub waited: u8,
    /// When all its waits together have lasted too long; `None`: it has not waited.
    pub until: Option<Millis>,
    /// The transaction that it was before, so that it stays as old.
    pub begun: Option<Begun>,
    /// Who holds this file has told of it since the request came: it may look, though the hold goes on.
    pub may_look: Option<Ino>,
}

impl Again {
    /// One that is carried out, and goes on waiting.
    pub fn behind<S>(host: &Host<S>, request: Request) -> Self {
        Self { waited: host.waited, may_look: host.may_look, ..request.into() }
    }
}

impl From<Request> for Again {
    fn from(request: Request) -> Self {
        Self { request, waited: 0, until: None, begun: None, may_look: None }
    }
}

/// All waits of those who only look at this file.
fn looks(ino: Ino) -> RangeInclusive<(For, u64)> {
    (For::Look(ino, 0), 0)..=(For::Look(ino, u64::MAX), u64::MAX)
}

/// Does a client tell by it what it has open, or has no longer? Those of one client are carried out in the order in which
/// they came.
pub(super) fn is_told(request: &Request) -> bool {
    matches!(request.message, MetaRequest::Close(_) | MetaRequest::Reclaim(_))
}

#[derive(Debug)]
struct Wait {
    what: For,
    deadline: Millis,
    parked: Parked,
}

impl Wait {
    /// The read that it waits for.
    fn read(&self) -> Option<u64> {
        match self.what {
            For::Rows(read) => Some(read),
            _ => None,
        }
    }
}

impl Parked {
    /// Where the answer goes.
    pub fn to(&self) -> u64 {
        match self {
            Self::Answer { to, .. } => *to,
            Self::Again(Again { request, .. }) => request.reply_to,
        }
    }

    /// Who tells by it what it has open.
    fn told_by(&self) -> Option<ClientId> {
        match self {
            Self::Again(Again { request, .. }) => is_told(request).then_some(request.peer.client),
            Self::Answer { .. } => None,
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
    /// Reads that were waited for by what is gone.
    given_up: Vec<u64>,
    /// Those by which a client tells what it has open.
    told: BTreeSet<(ClientId, u64)>,
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

    /// Parks until then at most; gives the parked thing back when there is no room.
    pub fn park(&mut self, deadline: Millis, what: For, parked: Parked) -> Option<Parked> {
        if self.is_full() {
            return Some(parked);
        }
        let id = self.next;
        self.next += 1;
        self.by_what.insert((what, id));
        self.by_deadline.insert((deadline, id));
        self.by_address.insert(parked.to(), id);
        self.told.extend(parked.told_by().map(|client| (client, id)));
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
                wait.parked.told_by().map(|client| self.told.remove(&(client, id)));
                taken.push(match wait.parked {
                    Parked::Again(again) => Parked::Again(Again { until: Some(wait.deadline), ..again }),
                    parked => parked,
                });
            }
        }
        taken
    }

    /// As [`Waits::take`], of what is not taken up again.
    fn give_up(&mut self, ids: Vec<u64>) -> Vec<Parked> {
        let waits = ids.iter().filter_map(|id| self.all.get(id));
        let reads: Vec<u64> = waits.filter_map(Wait::read).collect();
        let taken = self.take(ids);
        // What a client tells stands behind what it told before, and waits for the same read.
        let unawaited = reads.into_iter().filter(|read| !self.is_awaited(For::Rows(*read)));
        self.given_up.extend(unawaited.collect::<Vec<u64>>());
        taken
    }

    /// Does anything wait for exactly this?
    pub fn is_awaited(&self, what: For) -> bool {
        self.by_what.range((what, 0)..=(what, u64::MAX)).next().is_some()
    }

    /// Files whose holders are waited for.
    pub fn holders(&self) -> BTreeSet<Ino> {
        let all = (For::Holder(Ino(0)), 0)..=(For::Look(Ino(u64::MAX), u64::MAX), u64::MAX);
        let inos = self.by_what.range(all).filter_map(|(what, _)| match what {
            For::Holder(ino) | For::Look(ino, _) => Some(*ino),
            _ => None,
        });
        inos.collect()
    }

    /// Does anybody wait for a word of who holds this file, who only looks?
    pub fn is_looked_at(&self, ino: Ino) -> bool {
        self.by_what.range(looks(ino)).next().is_some()
    }

    /// All who do.
    pub fn looks_over(&mut self, ino: Ino) -> Vec<Parked> {
        let ids = self.by_what.range(looks(ino)).map(|(_, id)| *id).collect();
        self.take(ids)
    }

    /// Reads that nobody waits for any more.
    pub fn take_given_up(&mut self) -> Vec<u64> {
        core::mem::take(&mut self.given_up)
    }

    /// What is waited for by the newest message in which this client tells what it has open.
    pub fn told_by(&self, client: ClientId) -> Option<For> {
        let newest = self.told.range((client, 0)..=(client, u64::MAX)).next_back();
        newest.and_then(|(_, id)| self.all.get(id)).map(|wait| wait.what)
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
    pub fn abandon(&mut self, to: u64) {
        let id = self.by_address.get(&to).copied();
        self.give_up(id.into_iter().collect());
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

    /// The next that has waited too long. Before it goes what its client has told behind it, the newest first: that would be
    /// carried out too early, and is told again in its order.
    pub fn take_expired(&mut self, now: Millis) -> Option<Parked> {
        let (_, late) = self.by_deadline.first().copied().filter(|(at, _)| *at <= now)?;
        let client = self.all.get(&late).and_then(|wait| wait.parked.told_by());
        let behind =
            client.and_then(|client| self.told.range((client, late)..=(client, u64::MAX)).next_back());
        let id = behind.map_or(late, |(_, id)| *id);
        self.give_up([id].into()).pop()
    }

    /// Nothing waits any more: where the answers go.
    pub fn take_addresses(&mut self) -> Vec<u64> {
        let waits = core::mem::replace(self, Self::new(self.most));
        self.given_up = waits.given_up;
        self.given_up.extend(waits.all.values().filter_map(Wait::read));
        waits.all.into_values().map(|wait| wait.parked.to()).collect()
    }

    /// The next deadline.
    pub fn deadline(&self) -> Option<Millis> {
        self.by_deadline.first().map(|(at, _)| *at)
    }
}
