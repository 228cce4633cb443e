//! Time, and what the courier brings back: to the shard that it concerns.

use super::Group;
use super::errands::Owner;
use super::job::{Job, JobFailure, JobReply, Task};
use crate::limit::DEALT_FAILURES_MAX;
use crate::shard::Shard;
use crate::store::{Store, StoreError};
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;
use skep_types::{ClientId, Millis, ShardId};
use skep_wire::Refusal;

/// After so many failures in a row a line goes to the log.
const NOTED_FAILURES: u32 = 5;

impl<S: Store> Group<S> {
    /// When [`super::Input::Tick`] is due; `None` = only after some other input.
    pub fn next_deadline(&self) -> Option<Millis> {
        let host = &self.host;
        let calls = host.loop_calls.len() + host.loop_answers.len();
        let is_told = self.ended.is_empty() && self.beginning.is_empty() && host.leases.is_swept();
        if !(self.is_idle() && calls == 0 && is_told && self.reading.is_empty()) {
            return Some(Millis(0));
        }
        let of_shards = self.deadlines.first().map(|(at, _)| *at);
        let sweep = self.travels.deadline(!host.low_space).filter(|_| !host.holds_chores);
        [of_shards, host.errands.deadline(), host.events.deadline(), host.leases.deadline(), sweep]
            .into_iter()
            .flatten()
            .min()
    }

    /// Clients that had not reported what they hold when the grace period ended, and have not since.
    pub fn late_clients(&self) -> BTreeSet<ClientId> {
        self.shards.values().flat_map(Shard::late_clients).collect()
    }

    pub(super) fn tick(&mut self) -> Result<(), StoreError> {
        self.end_sessions()?;
        for task in self.host.errands.due(self.host.now, self.host.config.limits.errands_due) {
            match task.job {
                Job::Shard { shard, message } if self.host.leads(shard) => {
                    self.host.loop_calls.push_back((task.id, shard, message));
                }
                job => self.host.out.tasks.push(Task { job, ..task }),
            }
        }
        self.host.events.expire(self.host.now);
        self.end_leases();
        self.sweep()?;
        let has_read = self.read_on()?;
        self.beginning.extend(has_read);
        self.begin_some()?;
        let due = self.deadlines.range(..=(self.host.now, ShardId(u16::MAX)));
        let mut due: Vec<ShardId> = due.map(|(_, shard)| *shard).collect();
        // Each in turn first: what one step may do at most is done for those that come first.
        due.sort_unstable_by_key(|shard| (*shard <= self.ticked, *shard));
        self.ticked = due.first().copied().unwrap_or(self.ticked);
        let is_over = |id: &ShardId| self.shards.get(id).is_some_and(|shard| shard.must_renew(self.host.now));
        let renewed: Vec<ShardId> = due.iter().copied().filter(is_over).collect();
        if !renewed.is_empty() {
            self.renew_terms(&renewed)?;
        }
        let mut over = false;
        for shard in due {
            over |= self.deliver(shard, Shard::tick)?.unwrap_or(false);
        }
        if over {
            let late: Vec<_> = self.late_clients().iter().map(|client| format!("client {client}")).collect();
            self.host.out.note(format!(
                "grace period over; {} files are open; {} did not report, others may get what they held",
                self.host.opens.all(),
                late.join(", ")
            ));
        }
        Ok(())
    }

    pub(super) fn courier(
        &mut self,
        task: u64,
        result: Result<JobReply, JobFailure>,
    ) -> Result<(), StoreError> {
        let reply = match result {
            Ok(reply) => reply,
            Err(failure) => return self.errand_failed(task, &failure),
        };
        if let JobReply::Deposed { term, why } = reply {
            let Some(owner) = self.host.errands.park(task) else { return Ok(()) };
            return self
                .deliver(owner.shard(), |shard, host| {
                    shard.deposed(host, term, &why);
                    Ok(())
                })
                .map(drop);
        }
        let Some((owner, job)) = self.host.errands.done(task) else { return Ok(()) };
        match (owner, reply) {
            (Owner::Arrival(id), JobReply::Rows(part)) => self.rows_came(id, part),
            (Owner::Departure(id), JobReply::History(holds)) => self.may_leave(id, holds),
            (owner, reply) => self
                .deliver(owner.shard(), |shard, host| shard.errand_done(host, task, owner, job, reply))
                .map(drop),
        }
    }

    fn errand_failed(&mut self, task: u64, failure: &JobFailure) -> Result<(), StoreError> {
        let host = &mut self.host;
        let Some((owner, failures)) = host.errands.failed(host.now, task) else { return Ok(()) };
        if failures == NOTED_FAILURES {
            host.out.note(format!("{owner:?} does not succeed: {}; it is repeated until it does", failure.0));
        }
        match owner {
            Owner::Deletion(shard, target) => self.deliver(shard, |shard, _| {
                shard.deletion_failed(target, failures);
                Ok(())
            }),
            Owner::Seal(ino, _) => {
                self.deliver(ino.shard(), |shard, host| shard.seal_failed(host, ino, task, failures))
            }
            Owner::Prepare(txid, by) if failures >= DEALT_FAILURES_MAX => {
                self.deliver(txid.shard, |shard, host| shard.prepare_failed(host, txid, by))
            }
            Owner::Abort(_) => {
                host.errands.drop(task);
                return Ok(());
            }
            Owner::Trim(_)
            | Owner::Recovery(_)
            | Owner::Prepare(..)
            | Owner::Commit(..)
            | Owner::Ask(..)
            | Owner::Arrival(_)
            | Owner::Departure(_) => {
                return Ok(());
            }
        }
        .map(drop)
    }

    /// A shard of this group answered another one.
    pub(super) fn loop_answered(
        &mut self,
        errand: u64,
        result: Result<Vec<u8>, Refusal>,
    ) -> Result<(), StoreError> {
        let Some(Job::Shard { message, .. }) = self.host.errands.job(errand) else { return Ok(()) };
        let result = match result {
            Ok(body) => message.reply(&body).map_err(|e| JobFailure(e.to_string())),
            Err(refusal) => Err(JobFailure(refusal.to_string())),
        };
        self.courier(errand, result)
    }
}
