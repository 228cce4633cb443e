//! Leases that shards take back, and changes of this mount, for which they take back nothing.
//!
//! A recall is taken in with the events, in one step with everything that it ends, and confirmed by who took it in: on a lane
//! that does nothing else, so that no request of a program, which may wait for that very confirmation, is in its way.

use crate::housekeeping::is_passing;
use crate::job::{Job, To};
use crate::lane::Lane;
use crate::port::{Cell, Port};
use crate::state::{Became, Change, Found, Shared, TakenBack, Told};
use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use skep_types::{Errno, Ino, Kind, Millis, NodeId, ShardId};
use skep_wire::meta::{Recall, RecallKind, Recalled};

/// With the canary: when the kernel is told then.
const CONFIRMED_FIRST_MS: u64 = 100;

impl<P: Port, C: Cell<Shared>> Lane<P, C> {
    /// Tells shards of `node` what is used no longer. `false`: some may not have heard it.
    pub(crate) async fn report_leases(&self, node: NodeId) -> bool {
        if !self.leases {
            return true;
        }
        self.shared.with(|s| s.give_back_unkept(node));
        let confirms_first = self.shared.with(|s| s.limits.canary_confirms_first);
        let has_dropped = confirms_first || self.drop_told(node).await;
        // The leader of before lends nothing of a shard any more, and the next one has lent nothing yet.
        let reports = self.shared.with(|s| s.take_lease_reports(node, self.port.boot()));
        let has_told = reports.is_empty() || self.tell_leases(node, reports).await;
        if confirms_first {
            self.port.pause(CONFIRMED_FIRST_MS).await;
        }
        has_told && (has_dropped && !confirms_first || self.drop_told(node).await)
    }

    async fn tell_leases(&self, node: NodeId, reports: Vec<(ShardId, Recalled)>) -> bool {
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
    pub(crate) async fn own_change_begins(&self, job: &mut Job<'_>) -> Option<Change> {
        let mut change = if self.leases { job.change() } else { None }?;
        let now = self.port.boot();
        let told = self.shared.with(|s| {
            s.own_change_begins(&mut change, job.moves_dirs(), now);
            if self.tells && job.takes_names() {
                s.moves_names(&mut change, now);
            }
            match self.tells {
                true => s.told_of_change(&change, job.takes_names(), now),
                false => Vec::new(),
            }
        });
        // Others see the change before its answer comes. A program that was killed meanwhile changes nothing.
        if !told.is_empty() && !Box::pin(self.untell(told)).await {
            job.settled = Some(Err(Errno::EINTR.into()));
        }
        Some(change)
    }

    /// It was answered, or given up.
    pub(crate) async fn own_change_ends(&self, job: &mut Job<'_>, change: Change) {
        let To::Shard(shard) = job.to else { return };
        let takes_names = self.tells && job.takes_names();
        if takes_names {
            self.drop_moved(&change);
        }
        let (told, now) = (job.told.as_mut().filter(|_| job.is_answered), self.port.boot());
        let left = self.shared.with(|s| {
            let left = match self.tells {
                true => s.told_beside(&change, told.as_deref().map(|told| &**told), takes_names, now),
                false => Vec::new(),
            };
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
            left
        });
        if !left.is_empty() {
            Box::pin(self.untell(left)).await;
        }
    }
}

impl Shared {
    /// What those shards are to hear that `node` leads.
    pub(crate) fn take_lease_reports(&mut self, node: NodeId, now: Millis) -> Vec<(ShardId, Recalled)> {
        let Self { map, leases, kernel, limits, .. } = self;
        kernel.end_waits(now);
        let confirms_first = limits.canary_confirms_first;
        let is_told = |shard, unclean_until| {
            let is_dropped = kernel.is_clear(shard) && unclean_until <= now;
            map.leader(shard) == Some(node) && (is_dropped || confirms_first)
        };
        leases.take_reports(node, is_told, |dir| kernel.waits_in(dir) && !confirms_first)
    }

    /// Servers whose shards are to hear something.
    pub(crate) fn nodes_to_report(&self) -> BTreeSet<NodeId> {
        let reports = self.leases.reports().filter(|(shard, node)| self.map.leader(*shard) == Some(*node));
        reports.map(|(_, node)| node).collect()
    }

    /// A shard takes something back. `has_mounts`: something is mounted below this mount.
    pub(crate) fn recalled(&mut self, recall: &Recall, node: NodeId, has_mounts: bool, now: Millis) {
        let is_wanted = recall.wants_back == Some(true);
        let gives_back = is_wanted && !self.kernel.names.outlast(recall.ino, has_mounts, now);
        let mut taken = if self.limits.leases {
            self.leases.recalled(recall, gives_back, node)
        } else {
            TakenBack::Nothing
        };
        if taken == TakenBack::Nothing {
            return;
        }
        if self.kernel.waits_in(recall.ino) && !self.leases.has(recall.ino) {
            // It was given back a moment ago, when nobody waited. (Of one that is held less than all is to go.)
            self.kernel.drop_all_soon(recall.ino, true);
        }
        if taken == TakenBack::Kept {
            self.kernel.names.is_wanted(recall.ino, now);
        }
        // What changes goes as ever, for the kernel may use it when its time is over; the rest of a lease goes behind that.
        match (recall.kind, &recall.name, recall.entry) {
            (RecallKind::Name, Some(name), entry) => {
                // Of what is another shard's the recall does not say what the name leads to.
                let entry = entry.or_else(|| self.leads_to(recall.ino, name.as_bytes()));
                self.names.forget_name(recall.ino, name.as_bytes());
                self.kernel.names.is_contested(recall.ino, now);
                self.kernel.drop_soon(recall.ino, now);
                if !self.limits.canary_forgets_told_names {
                    self.kernel.drop_name_soon(recall.ino, name.as_bytes(), now);
                }
                entry.into_iter().for_each(|entry| self.forget_entry(entry, now));
            }
            (RecallKind::Entry, _, Some(entry)) => self.forget_entry(entry, now),
            (RecallKind::Attributes, ..) => {
                self.forget_told(recall.ino, now);
                // What its `..` leads to stands in its listing.
                self.names.forget_parts(recall.ino);
            }
            _ => taken = TakenBack::All,
        }
        if taken == TakenBack::All {
            self.forget_lease(recall);
        }
        [Some(recall.ino), recall.entry].into_iter().flatten().for_each(|ino| self.acls.forget(ino));
    }

    /// Whatever it covers goes, while somebody waits.
    fn forget_lease(&mut self, recall: &Recall) {
        self.kernel.drop_all_soon(recall.ino, true);
        self.names.forget_dir(recall.ino);
        self.kept.wants_look = true;
        // Which entries it covers is not looked for.
        self.acls.forget_shard(recall.shard);
    }

    fn leads_to(&mut self, dir: Ino, name: &[u8]) -> Option<Ino> {
        match self.names.find(dir, self.leases.era(dir.shard()), name) {
            Found::There(ino, kind, _) if kind != Kind::Dir => Some(ino),
            _ => None,
        }
    }

    /// Of a file that others are about to change, or to remove, no open is kept.
    fn forget_entry(&mut self, ino: Ino, now: Millis) {
        self.forget_told(ino, now);
        self.close_kept(ino, now);
    }

    /// Attributes are known no longer, neither here nor to the kernel.
    fn forget_told(&mut self, ino: Ino, now: Millis) {
        self.names.forget_attr(ino);
        self.kernel.drop_soon(ino, now);
    }

    /// What the kernel was told of that a change of this mount touches, for who has it dropped before that is sent.
    /// `takes_names`: also what they led to, whatever that was.
    fn told_of_change(&mut self, change: &Change, takes_names: bool, now: Millis) -> Vec<Ino> {
        let mut told = self.take_told(change.inos.into_iter().chain(change.found).flatten(), now);
        let known = if takes_names { self.known_of(change, now) } else { [Found::Absent, Found::Absent] };
        for at in [0, 1] {
            if let (Found::Unknown, Some((dir, name))) = (&known[at], &change.names[at]) {
                told.extend(self.kernel.take_under(*dir, now));
                // A directory has a lease of its own; a look-up said which one it is.
                let looked_up = self.ghosts.was_seen(*dir, name);
                told.extend(looked_up.filter(|ino| self.kernel.take(*ino, now)));
            }
        }
        told
    }

    /// The same of what an answer says of others.
    fn told_beside(
        &mut self,
        change: &Change,
        told: Option<&Told>,
        takes_names: bool,
        now: Millis,
    ) -> Vec<Ino> {
        let touched = || told.into_iter().flat_map(|told| &told.touched);
        if takes_names {
            // What is renamed keeps its name, if it is known what that is.
            let kept = change.found[0].filter(|_| change.names[1].is_some());
            let others = touched().filter(|attr| attr.kind != Kind::Dir).map(|attr| attr.ino);
            let all = others.chain(change.found.into_iter().flatten());
            all.filter(|ino| Some(*ino) != kept).for_each(|ino| self.kernel.lost_a_name(ino));
        }
        self.take_told(touched().map(|attr| attr.ino), now)
    }
}

#[cfg(test)]
pub(super) mod tests;
