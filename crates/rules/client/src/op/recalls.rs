//! Leases that shards take back, and changes of this mount, for which they take back nothing.
//!
//! A recall is taken in with the events, in one step with everything that it ends, and confirmed by who took it in: on a lane
//! that does nothing else, so that no request of a program, which may wait for that very confirmation, is in its way.

use crate::housekeeping::is_passing;
use crate::job::{Job, To};
use crate::lane::Lane;
use crate::port::{Cell, Port};
use crate::state::{Became, Change, Shared};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use skep_types::{NodeId, ShardId};
use skep_wire::meta::{Recall, RecallKind, Recalled};

impl<P: Port, C: Cell<Shared>> Lane<P, C> {
    /// Tells shards of `node` what is used no longer. `false`: some may not have heard it.
    pub(crate) async fn report_leases(&self, node: NodeId) -> bool {
        // The leader of before lends nothing of a shard any more, and the next one has lent nothing yet.
        let reports = match self.leases {
            true => self.shared.with(|s| {
                s.give_back_unkept(node);
                s.take_lease_reports(node)
            }),
            false => Vec::new(),
        };
        if reports.is_empty() {
            return true;
        }
        let mut jobs: Vec<Job<'_>> =
            reports.iter().map(|(shard, report)| self.asking(*shard, report)).collect();
        self.once_each_at(node, &mut jobs).await;
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
        let mut change = if self.leases { job.change() } else { None }?;
        let now = self.port.boot();
        self.shared.with(|s| s.own_change_begins(&mut change, job.moves_dirs(), now));
        Some(change)
    }

    /// It was answered, or given up.
    pub(crate) fn own_change_ends(&self, job: &mut Job<'_>, change: Change) {
        let To::Shard(shard) = job.to else { return };
        let (told, now) = (job.told.as_mut().filter(|_| job.is_answered), self.port.boot());
        self.shared.with(|s| {
            let index = told.as_ref().filter(|told| s.leases.is_of_its_term(told)).map(|told| told.index);
            if let Some(told) = told {
                told.before = s.known_of(&change, now);
            }
            if !job.is_answered {
                s.may_have_moved(&change);
            }
            s.own_change_ended(&change, index);
            let became = match job.is_answered {
                true if job.changing => Became::Settled,
                // Nothing of a session that has ended is done any more.
                false if job.unsure && s.sender().is_none_or(|sender| sender == job.sent_as) => {
                    Became::InDoubt
                }
                _ => Became::Over,
            };
            s.leases.changed((self.slot(), shard), change, became);
        });
    }
}

impl Shared {
    /// What those shards are to hear that `node` leads.
    pub(crate) fn take_lease_reports(&mut self, node: NodeId) -> Vec<(ShardId, Recalled)> {
        let Self { map, leases, .. } = self;
        leases.take_reports(node, |shard| map.leader(shard) == Some(node))
    }

    /// Servers whose shards are to hear something.
    pub(crate) fn nodes_to_report(&self) -> BTreeSet<NodeId> {
        let reports = self.leases.reports().filter(|(shard, node)| self.map.leader(*shard) == Some(*node));
        reports.map(|(_, node)| node).collect()
    }

    /// A shard takes something back.
    pub(crate) fn recalled(&mut self, recall: &Recall, node: NodeId) {
        if !self.limits.leases || !self.leases.recalled(recall, node) {
            return;
        }
        match (recall.kind, &recall.name, recall.entry) {
            (RecallKind::Name, Some(name), entry) => {
                self.names.forget_name(recall.ino, name.as_bytes());
                entry.into_iter().for_each(|entry| self.names.forget_attr(entry));
            }
            (RecallKind::Entry, _, Some(entry)) => self.names.forget_attr(entry),
            (RecallKind::Attributes, ..) => {
                self.names.forget_attr(recall.ino);
                // What its `..` leads to stands in its listing.
                self.names.forget_parts(recall.ino);
            }
            _ => {
                self.names.forget_dir(recall.ino);
                // Which entries it covers is not looked for.
                self.acls.forget_shard(recall.shard);
            }
        }
        [Some(recall.ino), recall.entry].into_iter().flatten().for_each(|ino| self.acls.forget(ino));
    }
}

#[cfg(test)]
pub(super) mod tests;
