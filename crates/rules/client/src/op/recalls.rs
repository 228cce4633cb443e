//! Leases that shards take back, and changes of this mount, for which they take back nothing.
//!
//! A recall is taken in with the events, in one step with everything that it ends, and confirmed by who took it in: on a lane
//! that does nothing else, so that no request of a program, which may wait for that very confirmation, is in its way.

use crate::housekeeping::is_passing;
use crate::job::{Job, To};
use crate::lane::Lane;
use crate::port::{Cell, Port};
use crate::state::{Change, Shared};
use alloc::vec::Vec;
use skep_types::NodeId;
use skep_wire::meta::Recall;

impl<P: Port, C: Cell<Shared>> Lane<P, C> {
    /// Tells shards of `node` what is used no longer. `false`: some may not have heard it.
    pub(crate) async fn report_leases(&self, node: NodeId) -> bool {
        let reports = match self.leases {
            true => self.shared.with(|s| s.leases.take_reports(node)),
            false => Vec::new(),
        };
        if reports.is_empty() {
            return true;
        }
        let mut jobs: Vec<Job<'_>> =
            reports.iter().map(|(shard, report)| self.asking(*shard, report)).collect();
        self.once_each(&mut jobs).await;
        let mut heard = true;
        for ((shard, report), mut job) in reports.into_iter().zip(jobs) {
            // What is refused for good is settled: the shard has no such leases.
            if job.take().is_err_and(|refusal| is_passing(refusal.status)) {
                heard = false;
                self.shared.with(|s| s.leases.report_again(shard, report));
            }
        }
        heard
    }

    /// A request is about to be sent that may change something: until it is answered that is not told from memory.
    pub(crate) fn own_change_begins(&self, job: &mut Job<'_>) -> Option<Change> {
        let change = if self.leases { job.change() } else { None }?;
        self.shared.with(|s| s.leases.own.begins(&change));
        Some(change)
    }

    /// It was answered, or given up.
    pub(crate) fn own_change_ends(&self, job: &Job<'_>, change: Change) {
        let To::Shard(shard) = job.to else { return };
        let is_certain = job.is_answered || !job.unsure || !job.changing;
        self.shared.with(|s| s.leases.changed((self.slot(), shard), change, is_certain));
    }
}

impl Shared {
    /// A shard takes something back.
    pub(crate) fn recalled(&mut self, recall: &Recall, node: NodeId) {
        if self.limits.leases {
            self.leases.recalled(recall, node);
        }
    }
}

#[cfg(test)]
mod tests;
