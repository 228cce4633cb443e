//! Errands: jobs for other servers, repeated until they succeed, with growing pauses.

use super::job::{Job, Task};
use super::message::Output;
use crate::limit::{RETRY_FIRST_MS, RETRY_LAST_MS};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use skep_types::{Ino, Millis, ShardId, TargetId, Term};
use skep_wire::meta::TxnId;
use skep_wire::storage::ShardTerm;

/// What a job is part of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// A batch of the deletion queue.
    Deletion(ShardId, TargetId),
    /// A truncate.
    Trim(Ino),
    /// The seal of one stripe.
    Seal(Ino, usize),
    /// The recovery of a size.
    Recovery(Ino),
    /// A participant is asked for its vote.
    Prepare(TxnId, ShardId),
    /// It is told of a commit.
    Commit(TxnId, ShardId),
    /// It is told that nothing comes of it: once, for it asks.
    Abort(TxnId),
    /// This shard asks the coordinator.
    Ask(ShardId, TxnId),
    /// Rows of a shard that comes here are asked for.
    Arrival(ShardId),
    /// Who has a shard now is asked how far it is.
    Departure(ShardId),
}

impl Owner {
    /// Is it for a storage target, and not for another shard?
    pub fn asks_a_target(&self) -> bool {
        matches!(self, Self::Deletion(..) | Self::Trim(_) | Self::Seal(..) | Self::Recovery(_))
    }

    /// The shard that sent it.
    pub fn shard(&self) -> ShardId {
        match self {
            Self::Deletion(shard, _)
            | Self::Ask(shard, _)
            | Self::Arrival(shard)
            | Self::Departure(shard) => *shard,
            Self::Prepare(txid, _) | Self::Commit(txid, _) | Self::Abort(txid) => txid.shard,
            Self::Trim(ino) | Self::Seal(ino, _) | Self::Recovery(ino) => ino.shard(),
        }
    }
}

#[derive(Debug)]
struct Errand {
    owner: Owner,
    /// All errands of a shard end with its term.
    term: Term,
    job: Job,
    failures: u32,
    retry_at: Option<Millis>,
}

/// All errands of a group.
#[derive(Debug, Default)]
pub struct Errands {
    next: u64,
    all: BTreeMap<u64, Errand>,
    by_shard: BTreeSet<(ShardId, u64)>,
    due: BTreeSet<(Millis, u64)>,
}

impl Errands {
    /// Sends a job out, in this term of its shard.
    pub fn send(&mut self, owner: Owner, term: Term, job: Job, out: &mut Output) -> u64 {
        let id = self.keep(owner, term, job.clone());
        out.tasks.push(Task { id, by: ShardTerm { shard: owner.shard(), term }, job });
        id
    }

    /// A job that this server carries out itself; see `Host::loop_calls`.
    pub fn keep(&mut self, owner: Owner, term: Term, job: Job) -> u64 {
        self.next += 1;
        self.by_shard.insert((owner.shard(), self.next));
        self.all.insert(self.next, Errand { owner, term, job, failures: 0, retry_at: None });
        self.next
    }

    /// It succeeded: what it was part of, and what it was.
    pub fn done(&mut self, id: u64) -> Option<(Owner, Job)> {
        let errand = self.all.remove(&id)?;
        self.by_shard.remove(&(errand.owner.shard(), id));
        if let Some(at) = errand.retry_at {
            self.due.remove(&(at, id));
        }
        Some((errand.owner, errand.job))
    }

    /// What it is, while it is out.
    pub fn job(&self, id: u64) -> Option<&Job> {
        self.all.get(&id).map(|errand| &errand.job)
    }

    /// Nobody wants its result any more.
    pub fn drop(&mut self, id: u64) {
        self.done(id);
    }

    /// It was refused for ever: it is not sent again, and ends with its shard's term. What it is part of.
    pub fn park(&mut self, id: u64) -> Option<Owner> {
        let errand = self.all.get_mut(&id)?;
        if let Some(at) = errand.retry_at.take() {
            self.due.remove(&(at, id));
        }
        Some(errand.owner)
    }

    /// A shard sends no more: whatever comes of its jobs concerns nobody.
    pub fn drop_of(&mut self, shard: ShardId) {
        self.drop_all(shard, |_| true);
    }

    /// Whatever comes of what it sent concerns nobody any more.
    pub fn drop_owned(&mut self, by: Owner) {
        self.drop_all(by.shard(), |owner| owner == by);
    }

    fn drop_all(&mut self, of: ShardId, what: impl Fn(Owner) -> bool) {
        let ids = self.by_shard.range((of, 0)..=(of, u64::MAX)).map(|(_, id)| *id);
        let is_meant = |id: &u64| self.all.get(id).is_some_and(|errand| what(errand.owner));
        let ids: Vec<u64> = ids.filter(is_meant).collect();
        ids.into_iter().for_each(|id| self.drop(id));
    }

    /// It failed: it will be repeated. What it is part of, and how often it has failed.
    pub fn failed(&mut self, now: Millis, id: u64) -> Option<(Owner, u32)> {
        let errand = self.all.get_mut(&id)?;
        if errand.retry_at.is_some() {
            return None;
        }
        let pause = RETRY_FIRST_MS.saturating_shl(errand.failures).min(RETRY_LAST_MS);
        errand.failures += 1;
        let at = now.plus(pause);
        errand.retry_at = Some(at);
        self.due.insert((at, id));
        Some((errand.owner, errand.failures))
    }

    /// Errands whose pause is over, so many at most; the others stay due.
    pub fn due(&mut self, now: Millis, most: usize) -> Vec<Task> {
        let mut ready = Vec::new();
        while let Some((at, id)) = self.due.first().copied() {
            if at > now || ready.len() >= most {
                break;
            }
            self.due.pop_first();
            if let Some(errand) = self.all.get_mut(&id) {
                errand.retry_at = None;
                let by = ShardTerm { shard: errand.owner.shard(), term: errand.term };
                ready.push(Task { id, by, job: errand.job.clone() });
            }
        }
        ready
    }

    /// When the next pause ends.
    pub fn deadline(&self) -> Option<Millis> {
        self.due.first().map(|(at, _)| *at)
    }

    /// How many are out or waiting.
    pub fn len(&self) -> usize {
        self.all.len()
    }
}

trait SaturatingShl {
    fn saturating_shl(self, by: u32) -> Self;
}

impl SaturatingShl for u64 {
    fn saturating_shl(self, by: u32) -> Self {
        if by >= self.leading_zeros() { Self::MAX } else { self << by }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a failing errand comes back again and again, with pauses that grow to the limit.
    #[test]
    fn pauses_grow_and_end_at_the_limit() {
        let mut errands = Errands::default();
        let mut out = Output::default();
        let id = errands.send(
            Owner::Trim(Ino(1)),
            Term(1),
            Job::Stat { target: TargetId(1), chunks: alloc::vec![] },
            &mut out,
        );
        let mut now = Millis(0);
        let mut last = 0;
        for round in 1..100 {
            assert_eq!(errands.failed(now, id), Some((Owner::Trim(Ino(1)), round)));
            assert_eq!(errands.failed(now, id), None, "one failure counts once");
            let at = errands.deadline().unwrap();
            assert!(errands.due(Millis(at.0 - 1), 9).is_empty());
            assert_eq!(errands.due(at, 9).len(), 1);
            assert!(at.since(now) >= last && at.since(now) <= RETRY_LAST_MS);
            (last, now) = (at.since(now), at);
        }
        assert_eq!(last, RETRY_LAST_MS);
        assert!(errands.done(id).is_some() && errands.len() == 0);
    }

    /// Goal: of many errands that are due so many go out at a time, and the others stay due; those of one shard end with its term.
    #[test]
    fn due_errands_go_in_parts() {
        let mut errands = Errands::default();
        let job = || Job::Stat { target: TargetId(1), chunks: alloc::vec![] };
        for serial in 0..10 {
            let owner = Owner::Trim(Ino::new(ShardId(serial % 2), u64::from(serial) + 1));
            let id = errands.keep(owner, Term(1), job());
            errands.failed(Millis(0), id);
        }
        let now = Millis(RETRY_FIRST_MS);
        assert_eq!((errands.due(now, 4).len(), errands.deadline()), (4, Some(now)));
        errands.drop_of(ShardId(1));
        assert_eq!(errands.len(), 5);
        assert_eq!((errands.due(now, 9).len(), errands.due(now, 9).len()), (3, 0));
    }
}
