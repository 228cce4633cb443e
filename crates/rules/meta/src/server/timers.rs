//! Time: deadlines of waits, pauses of errands, the end of grace, forgotten growths; and what the
//! courier brings back.

use super::Server;
use super::errands::Owner;
use super::message::{Job, JobFailure, JobReply, Output, Task};
use crate::limit::{GROWTH_SWEEP_MS, WAIT_DEADLINE_MS};
use crate::store::{Store, StoreError};
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::vec::Vec;
use skep_types::{ClientId, Millis, Timestamp};

/// After so many failures in a row a line goes to the log.
const NOTED_FAILURES: u32 = 5;

impl<S: Store> Server<S> {
    /// When [`super::Input::Tick`] is due; `None` = only after some other input.
    pub fn next_deadline(&self) -> Option<Millis> {
        if self.has_more() {
            return Some(Millis(0));
        }
        let growth = if self.growths.is_empty() { None } else { self.next_sweep.or(Some(Millis(0))) };
        [
            self.waits.deadline(),
            self.errands.deadline(),
            self.grace.deadline(),
            self.deletions.deadline(),
            self.locks.deadline(),
            growth,
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Clients that had not reported what they hold when the grace period ended, and have not since.
    pub fn late_clients(&self) -> BTreeSet<ClientId> {
        self.grace.late()
    }

    pub(super) fn tick(&mut self, now: Millis, wall: Timestamp, out: &mut Output) -> Result<(), StoreError> {
        for parked in self.waits.expired(now) {
            self.give_up(parked, &format!("still waiting after {} s", WAIT_DEADLINE_MS / 1_000), out);
        }
        for (id, job) in self.errands.due(now) {
            match job {
                Job::Remote { shard, message } if self.shards.get(&shard).is_some_and(|s| s.leads) => {
                    self.loop_calls.push_back((id, shard, message));
                }
                job => out.tasks.push(Task { id, job }),
            }
        }
        self.locks.tick(now);
        self.tell_outcomes(out);
        if self.grace.expire(now) {
            let late: Vec<_> = self.late_clients().iter().map(|client| format!("client {client}")).collect();
            out.note(format!(
                "grace period over; {} files are open; {} did not report, others may get what they held",
                self.opens.len(),
                late.join(", ")
            ));
        }
        self.rescan_deletions(now, wall, out)?;
        if !self.growths.is_empty() && self.next_sweep.is_none_or(|at| now >= at) {
            self.next_sweep = Some(now.plus(GROWTH_SWEEP_MS));
            self.sweep_growths();
        }
        self.do_chores(now, wall, out)
    }

    pub(super) fn courier(
        &mut self,
        now: Millis,
        wall: Timestamp,
        task: u64,
        result: Result<JobReply, JobFailure>,
        out: &mut Output,
    ) -> Result<(), StoreError> {
        let reply = match result {
            Ok(reply) => reply,
            Err(failure) => {
                return self.errand_failed(now, wall, task, &failure, out);
            }
        };
        let Some((owner, job)) = self.errands.done(task) else { return Ok(()) };
        match (owner, job, reply) {
            (Owner::Deletion(target), _, JobReply::Done) => self.deleted(now, wall, target, out),
            (Owner::Trim(ino), _, JobReply::Trimmed(blocks)) => {
                self.trimmed(now, wall, ino, task, blocks, out)
            }
            (Owner::Seal(ino, _), _, JobReply::Sealed(limit)) => {
                self.stripe_sealed(wall, ino, task, Some(limit), out)
            }
            (Owner::Seal(ino, stripe), _, JobReply::NotSealed(why)) => {
                out.note(format!(
                    "file {ino}: stripe {stripe} of an extent that is closed stays open: {why}"
                ));
                self.stripe_sealed(wall, ino, task, None, out)
            }
            (Owner::Recovery(ino), Job::Stat { chunks, .. }, JobReply::Stats(stats)) => {
                self.recovered(wall, ino, task, &chunks, &stats, out)
            }
            (Owner::Remote(shard, txid), Job::Remote { message, .. }, JobReply::Remote(reply)) => {
                self.remote_answered(wall, shard, txid, message.step, &reply, out)
            }
            (owner, job, reply) => {
                out.note(format!("{owner:?}: {job:?} was answered with {reply:?}; it is repeated"));
                self.repeat(now, owner, job);
                Ok(())
            }
        }
    }

    /// An answer of the wrong shape counts as none: everything that waits for it must not hang.
    fn repeat(&mut self, now: Millis, owner: Owner, job: Job) {
        let id = self.errands.keep(owner, job);
        self.errands.failed(now, id);
        match owner {
            Owner::Trim(ino) => self.trims.also(ino, id),
            Owner::Recovery(ino) => self.recoveries.also(ino, id),
            Owner::Seal(ino, stripe) => self.seals.instead(ino, stripe, id),
            Owner::Deletion(_) | Owner::Remote(..) => {}
        }
    }

    fn errand_failed(
        &mut self,
        now: Millis,
        wall: Timestamp,
        task: u64,
        failure: &JobFailure,
        out: &mut Output,
    ) -> Result<(), StoreError> {
        let Some((owner, failures)) = self.errands.failed(now, task) else { return Ok(()) };
        if failures == NOTED_FAILURES {
            out.note(format!("{owner:?} does not succeed: {}; it is repeated until it does", failure.0));
        }
        match owner {
            Owner::Deletion(target) => self.deletion_failed(target, failures),
            Owner::Seal(ino, _) => return self.seal_failed(wall, ino, task, failures, out),
            Owner::Trim(_) | Owner::Recovery(_) | Owner::Remote(..) => {}
        }
        Ok(())
    }
}
