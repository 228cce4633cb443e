//! Time: deadlines of waits, the end of grace, forgotten growths; and what became of jobs for other servers.

use super::Shard;
use crate::group::{Host, Job, JobReply, Load, Owner};
use crate::limit::{GROWTH_SWEEP_MS, WAIT_DEADLINE_MS};
use crate::store::{Store, StoreError};
use alloc::collections::BTreeSet;
use alloc::format;
use skep_types::{ClientId, Millis};

impl Shard {
    fn deadline(&self, holds_chores: bool) -> Option<Millis> {
        if !self.acts() {
            return None;
        }
        if self.chores.is_due(holds_chores) {
            return Some(Millis(0));
        }
        let growth = if self.growths.is_empty() { None } else { self.next_sweep.or(Some(Millis(0))) };
        [
            self.waits.deadline(),
            self.grace.deadline(),
            self.deletions.deadline(),
            self.locks.deadline(),
            self.renewal(),
            self.txns.deadline(),
            self.held_until(),
            self.lease_row_due(),
            self.files_held.deadline().filter(|_| !holds_chores),
            growth,
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// The deadline that the group knew, and the one that it is to know, where they differ.
    pub fn renew_deadline(&mut self, holds_chores: bool) -> Option<(Option<Millis>, Option<Millis>)> {
        let new = self.deadline(holds_chores);
        let old = core::mem::replace(&mut self.noted, new);
        (old != new).then_some((old, new))
    }

    /// The load that the group knew, and the one that it is to know.
    pub fn renew_load(&mut self) -> (Load, Load) {
        let (waits, locks, lock_waits) = (self.waits.len(), self.locks.held(), self.locks.waits());
        let new = Load { waits, locks, lock_waits };
        (core::mem::replace(&mut self.noted_load, new), new)
    }

    /// Clients that had not reported what they hold when the grace period ended, and have not since.
    pub fn late_clients(&self) -> BTreeSet<ClientId> {
        self.grace.late().clone()
    }

    /// Time passed. `true`: the grace period is over by that.
    pub fn tick<S: Store>(&mut self, host: &mut Host<S>) -> Result<bool, StoreError> {
        if !self.acts() {
            return Ok(false);
        }
        let now = host.now;
        self.end_waits(host);
        self.end_hold(host);
        self.end_lease_row(host)?;
        self.end_unheld(host)?;
        self.pass_silent(host)?;
        self.tick_txns(host)?;
        let over = self.grace.expire(now);
        self.rescan_deletions(host)?;
        if !self.growths.is_empty() && self.next_sweep.is_none_or(|at| now >= at) {
            self.next_sweep = Some(now.plus(GROWTH_SWEEP_MS));
            self.sweep_growths();
        }
        self.do_chores(host)?;
        Ok(over)
    }

    /// What has waited too long is given up. What is more than a step may end stays due.
    fn end_waits<S: Store>(&mut self, host: &mut Host<S>) {
        while host.waits_left > 0
            && let Some(parked) = self.waits.take_expired(host.now)
        {
            host.waits_left -= 1;
            self.give_up(host, parked, &format!("still waiting after {} s", WAIT_DEADLINE_MS / 1_000));
        }
        self.give_up_reads(host);
        host.waits_left -= self.locks.tick(host.now, host.waits_left);
    }

    /// A job for another server is done.
    pub fn errand_done<S: Store>(
        &mut self,
        host: &mut Host<S>,
        task: u64,
        owner: Owner,
        job: Job,
        reply: JobReply,
    ) -> Result<(), StoreError> {
        if owner.asks_a_target() {
            self.accepted(host.now);
        }
        match (owner, job, reply) {
            (Owner::Deletion(_, target), _, JobReply::Done) => self.deleted(host, target),
            (Owner::Trim(ino), Job::Trim { chunk, .. }, JobReply::Trimmed(blocks)) => {
                self.trimmed(host, ino, Some((task, chunk, blocks)))
            }
            (Owner::Seal(ino, _), _, JobReply::Sealed(limit)) => {
                self.stripe_sealed(host, ino, task, Some(limit))
            }
            (Owner::Seal(ino, stripe), _, JobReply::NotSealed(why)) => {
                host.out.note(format!(
                    "file {ino}: stripe {stripe} of an extent that is closed stays open: {why}"
                ));
                self.stripe_sealed(host, ino, task, None)
            }
            (Owner::Recovery(ino), Job::Stat { chunks, .. }, JobReply::Stats(stats)) => {
                self.recovered(host, ino, task, &chunks, &stats)
            }
            (Owner::Prepare(txid, by), _, JobReply::Voted(vote)) => self.voted(host, txid, by, vote),
            (Owner::Commit(txid, by), _, JobReply::Done) => self.confirmed(host, txid, by),
            (Owner::Abort(_), ..) => Ok(()),
            (Owner::Ask(_, txid), _, JobReply::Outcome(outcome)) => self.heard(host, task, txid, outcome),
            (owner, job, reply) => {
                host.out.note(format!("{owner:?}: {job:?} was answered with {reply:?}; it is repeated"));
                self.repeat(host, owner, job);
                Ok(())
            }
        }
    }

    /// An answer of the wrong shape counts as none: everything that waits for it must not hang.
    fn repeat<S: Store>(&mut self, host: &mut Host<S>, owner: Owner, job: Job) {
        let id = host.errands.keep(owner, self.term(), job);
        host.errands.failed(host.now, id);
        match owner {
            Owner::Trim(ino) => self.trims.also(ino, id),
            Owner::Recovery(ino) => self.recoveries.also(ino, id),
            Owner::Seal(ino, stripe) => self.seals.instead(ino, stripe, id),
            Owner::Ask(_, txid) => self.txns.asking(txid, id),
            Owner::Deletion(..)
            | Owner::Prepare(..)
            | Owner::Commit(..)
            | Owner::Abort(_)
            | Owner::Arrival(_)
            | Owner::Departure(_) => {}
        }
    }

    /// Values of the moment; those of all shards of a group are added up.
    pub fn gauges(&self, now: Millis) -> [(&'static str, u64); 20] {
        [
            ("waiting", self.waits.len() as u64),
            ("deletions_loaded", self.deletions.len() as u64),
            ("deletions_left_out", u64::from(self.deletions.has_left_out())),
            ("trims", self.trims.len() as u64),
            ("seals", self.seals.len() as u64),
            ("orphans", self.orphans.len() as u64),
            ("chores", self.chores.len() as u64),
            ("growths", self.growths.len() as u64),
            ("transactions", self.txns.len() as u64),
            ("recoveries", self.recoveries.len() as u64),
            ("writers", self.writers.len() as u64),
            ("locks", self.locks.held() as u64),
            ("lock_waits", self.locks.waits() as u64),
            ("appended_files", self.ends.len() as u64),
            ("held_files", self.files_held.len() as u64),
            ("holds_given", self.files_held.given()),
            ("held_looks", self.files_held.shown()),
            ("holds_passed", self.files_held.passed.times()),
            ("lost_chunk_files", self.lost.len(now) as u64),
            ("lost_chunk_errors", self.lost.times()),
        ]
    }

    /// A file that has lost something; 0 = none has.
    pub fn lost_example(&self, now: Millis) -> u64 {
        self.lost.example(now)
    }
}
