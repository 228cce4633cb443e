//! Which servers a mount asks what they take back, what it tells them, and what is done so that no shard counts a lease of which
//! the mount does not know: others would wait for it.

use super::{ANEW_MS, Group, Leases, NO_DIR, OfShard, Sent};
use crate::limits::{EVENTS_HELD_MS, PUT_LEFT_MS};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use skep_types::{Ino, Millis, NodeId, ShardId};
use skep_wire::meta::{Recall, RecallKind, Recalled};

/// By whom this mount is heard, and since when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heard {
    pub shard: ShardId,
    node: NodeId,
    breaks: u64,
}

/// What a recall took of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TakenBack {
    /// It is of a term that has ended.
    Nothing,
    /// What it names, ...
    Part,
    /// ... of one that is wanted back, and kept for the moment.
    Kept,
    /// Whatever the lease covered.
    All,
}

impl Leases {
    /// Has the shard's server heard this mount lately enough to wait for it for some time more, whatever is held? As long as this
    /// is the same it has without a break.
    pub fn heard_by(&mut self, shard: ShardId, now: Millis) -> Option<Heard> {
        let node = self.shards.get(&shard)?.node;
        self.look(node, now);
        let left = |group: &&Group| group.until.since(now) > PUT_LEFT_MS.min(group.ms / 4);
        let group = self.groups.get(&node).filter(left)?;
        Some(Heard { shard, node, breaks: group.breaks })
    }

    /// Until when this mount counts as heard by the shard's server, as far as it knows.
    pub fn until(&self, shard: ShardId) -> Millis {
        let group = self.shards.get(&shard).and_then(|of| self.groups.get(&of.node));
        group.map_or(Millis(0), |group| group.until)
    }

    /// Is it so, for who only looks?
    pub fn is_heard_at(&self, shard: ShardId, now: Millis) -> bool {
        let group = self.shards.get(&shard).and_then(|of| self.groups.get(&of.node));
        group.is_some_and(|group| group.until > now)
    }

    /// Something is taken back; `gives_back`: the lease is given back with it.
    pub fn recalled(&mut self, recall: &Recall, gives_back: bool, node: NodeId) -> TakenBack {
        if recall.ino.shard() != recall.shard || !self.term_is(recall.shard, recall.term, node) {
            return TakenBack::Nothing;
        }
        let (serial, forgets, most) = (self.serial, self.forgets_recalls, self.recalls_kept());
        let of = self.shards.entry(recall.shard).or_default();
        let is_again = of.unconfirmed.contains_key(&recall.number);
        let mut taken = if recall.kind == RecallKind::Everything { TakenBack::All } else { TakenBack::Part };
        if !forgets {
            of.refuse(recall.ino, recall.number, (serial, most));
        }
        let held_nothing = of.held.is_empty();
        if recall.kind == RecallKind::Everything {
            // It may be told twice, and something be lent in between.
            if of.held.get(&recall.ino).is_some_and(|held| held.number < recall.number) {
                of.held.remove(&recall.ino);
            }
        } else if gives_back && of.held.get(&recall.ino).is_none_or(|held| held.number < recall.number) {
            taken = TakenBack::All;
            self.counts.given_back += u64::from(of.held.remove(&recall.ino).is_some());
            of.is_unknown(recall.ino, recall.number, (serial, most));
        } else if let Some(held) = of.held.get_mut(&recall.ino).filter(|_| !forgets) {
            held.since = held.since.max(recall.number + 1);
            // One that is lent anew is not what was wanted.
            if recall.wants_back == Some(true) && held.number < recall.number {
                taken = TakenBack::Kept;
                self.counts.kept += u64::from(!is_again);
            }
        } else {
            // The answer that lent it was lost, or is not believed.
            of.is_unknown(recall.ino, recall.number, (serial, most));
        }
        self.counts.recalls += u64::from(!is_again);
        of.unconfirmed.insert(recall.number, recall.ino);
        self.news |= held_nothing;
        self.nothing_unknown_stays(node);
        taken
    }

    /// Is a lease on `ino` held, as far as this mount has looked?
    pub fn has(&self, ino: Ino) -> bool {
        self.shards.get(&ino.shard()).is_some_and(|of| of.held.contains_key(&ino))
    }

    /// Does somebody wait for something that was covered by a lease on `ino`?
    pub fn is_to_confirm(&self, ino: Ino) -> bool {
        self.shards.get(&ino.shard()).is_some_and(|of| of.unconfirmed.values().any(|of| *of == ino))
    }

    /// Does the kernel use nothing that leases of `node` covered which have ended?
    pub fn is_clean(&self, node: NodeId, now: Millis) -> bool {
        self.shards.values().all(|of| of.node != node || of.unclean_until <= now)
    }

    /// An answer to `sent` was lost, or nobody can read it.
    pub fn is_lost(&mut self, node: NodeId, sent: &Sent) {
        let group = self.groups.entry(node).or_default();
        if sent.wishes && !self.is_over && sent.lapses == group.lapses {
            group.has_lost = true;
            self.nothing_unknown_stays(node);
        }
    }

    /// What was lent by an answer that was lost is heard of while something is held, when it is taken back. Who holds nothing
    /// says that all has lapsed: nobody is to wait for what this mount does not know of.
    pub(super) fn nothing_unknown_stays(&mut self, node: NodeId) {
        if self.groups.get(&node).is_some_and(|group| group.has_lost) && !self.holds(node) {
            self.lapse(node);
            self.is_to_ask(node);
        }
    }

    /// A question for events, `sent` to `node`, was answered, or was not.
    pub fn heard(&mut self, node: NodeId, sent: &Sent, ok: bool) {
        let group = self.groups.entry(node).or_default();
        group.is_deaf = !ok;
        if !ok {
            self.is_to_ask(node);
        } else if sent.lapses == group.lapses {
            group.is_to_ask = false;
        }
    }

    pub(super) fn is_to_ask(&mut self, node: NodeId) {
        if !self.is_over {
            let group = self.groups.entry(node).or_default();
            self.news |= !core::mem::replace(&mut group.is_to_ask, true);
        }
    }

    /// Is there something to hear or to tell since the last look at this that was not there before?
    pub fn take_news(&mut self) -> bool {
        core::mem::take(&mut self.news)
    }

    /// An answer renews nothing. The server may have passed this mount over, for a lease whose answer was lost: then it renews
    /// nothing before it hears that all has lapsed. (Or it lends nothing at all.)
    pub(super) fn is_not_renewed(&mut self, node: NodeId, sent: &Sent, now: Millis) {
        let group = self.groups.entry(node).or_default();
        if sent.lapses == group.lapses && now >= group.asked_anew.plus(ANEW_MS) {
            group.asked_anew = now;
            self.lapse(node);
        }
    }

    /// An answer of `node` to who waits for events may wait no longer than this, or what it renews comes too late.
    pub fn patience(&self, node: NodeId) -> u64 {
        let ms = self.groups.get(&node).map_or(0, |group| group.ms);
        if ms == 0 { EVENTS_HELD_MS } else { (ms / 4).clamp(1, EVENTS_HELD_MS) }
    }

    /// Servers of which something is held, or that are to hear something.
    pub fn nodes(&self) -> BTreeSet<NodeId> {
        let shards = self.shards.values();
        shards.filter(|of| !of.held.is_empty() || of.has_report()).map(|of| of.node).collect()
    }

    /// Is `node` to be asked for events: because it counts something as held, or once?
    pub fn asks(&self, node: NodeId) -> bool {
        self.nodes_asked().contains(&node)
    }

    /// Is it to be asked to learn that this mount listens? That is not waited for.
    pub fn asks_once(&self, node: NodeId) -> bool {
        self.groups.get(&node).is_some_and(|group| group.is_to_ask)
    }

    /// Those of [`Leases::asks`].
    pub fn nodes_asked(&self) -> BTreeSet<NodeId> {
        // What is given back is still taken back as long as the shard has not heard of it.
        let counts = |of: &&OfShard| !of.held.is_empty() || !of.back.is_empty();
        let held = self.shards.values().filter(counts).map(|of| of.node);
        let once = self.groups.iter().filter(|(_, group)| group.is_to_ask).map(|(node, _)| *node);
        held.chain(once).collect()
    }

    /// Shards that are to hear something, each with the server that it was on.
    pub fn reports(&self) -> impl Iterator<Item = (ShardId, NodeId)> + '_ {
        self.shards.iter().filter(|(_, of)| of.has_report()).map(|(shard, of)| (*shard, of.node))
    }

    /// What shards of `node` are to hear, of those that are to be told now: that is asked with the shard, and until when the kernel
    /// may use what leases covered that have ended. Not of directories of which `waits` says that it uses names in them.
    pub fn take_reports(
        &mut self,
        node: NodeId,
        is_told: impl Fn(ShardId, Millis) -> bool,
        waits: impl Fn(Ino) -> bool,
    ) -> Vec<(ShardId, Recalled)> {
        let of_node = self
            .shards
            .iter_mut()
            .filter(|(shard, of)| of.node == node && of.has_report() && is_told(**shard, of.unclean_until));
        of_node.filter_map(|(shard, of)| Some((*shard, of.take_report(&waits)?))).collect()
    }

    /// Shards of which the kernel was told something by leases that have ended, each with its server.
    pub fn unclean(&self) -> impl Iterator<Item = (ShardId, NodeId)> + '_ {
        let unclean = self.shards.iter().filter(|(_, of)| of.unclean_until > Millis(0) && !of.is_dropped);
        unclean.map(|(shard, of)| (*shard, of.node))
    }

    /// The kernel uses nothing of that any more but names, and those until then.
    pub fn is_cleaned(&mut self, shard: ShardId, names_until: Millis) {
        if let Some(of) = self.shards.get_mut(&shard) {
            (of.unclean_until, of.is_dropped) = (names_until, true);
        }
    }

    /// Shards of `node`; each with when names are over that leases covered which have ended.
    pub fn of_node(&self, node: NodeId) -> impl Iterator<Item = (ShardId, Option<Millis>)> + '_ {
        let of_node = self.shards.iter().filter(move |(_, of)| of.node == node);
        of_node.map(|(shard, of)| (*shard, of.is_dropped.then_some(of.unclean_until)))
    }

    /// Nor of any other shard.
    pub fn all_is_cleaned(&mut self) {
        for of in self.shards.values_mut() {
            (of.told_until, of.unclean_until) = (Millis(0), Millis(0));
        }
    }

    /// The server that lends, or lent, what is of `shard`.
    pub fn node_of(&self, shard: ShardId) -> Option<NodeId> {
        self.shards.get(&shard).map(|of| of.node)
    }

    /// They have not heard it, as far as is known.
    pub fn report_again(&mut self, shard: ShardId, report: Recalled) {
        let Some(of) = self.shards.get_mut(&shard).filter(|of| of.term == report.term) else { return };
        // Nothing of these is in use any more.
        of.unconfirmed.extend(report.confirmed.into_iter().map(|number| (number, NO_DIR)));
        report.back.into_iter().rev().for_each(|back| of.back.push_front(back));
        of.is_to_hear |= report.anew == Some(true);
    }
}
