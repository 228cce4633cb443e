//! How the kernel comes to drop what it was told, and who waits for that.

use crate::lane::Lane;
use crate::limits::{DROPS_AT_ONCE, NAME_LEFT_MS, NAME_PATIENCE_MS, UNKNOWN_PATIENCE_MS, VALIDITY_MARGIN_MS};
use crate::port::{Cell, Dropped, Port};
use crate::state::{Drop, NameDrop, Shared};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use skep_types::{Ino, Millis, NodeId, ShardId};

/// What came of one try to have something dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tried {
    Dropped,
    /// The kernel may come to have it.
    Unknown,
    Failed,
    /// A name is used until then.
    Late(Millis),
}

impl<P: Port, C: Cell<Shared>> Lane<P, C> {
    /// Has the kernel drop all that it is to drop: this mount stood still, and its servers need not answer for that.
    pub async fn drop_all_told(&self) {
        for node in self.shared.with(|s| s.nodes_to_drop().collect::<BTreeSet<_>>()) {
            self.drop_told(node).await;
        }
    }

    /// Has the kernel drop what it is to drop of shards of `node`. `false`: something is left.
    pub(crate) async fn drop_told(&self, node: NodeId) -> bool {
        loop {
            let (drops, has_more) = self.shared.with(|s| s.next_drops(node, self.port.boot()));
            if drops.is_empty() && !has_more {
                // Somebody else may be at some.
                return self.shared.with(|s| s.nodes_to_drop().all(|other| other != node));
            }
            if !self.drop_batch(drops).await {
                return false;
            }
            if has_more {
                // Others have something to hear as well.
                self.port.pause(1).await;
            }
        }
    }

    /// Those that the kernel does not know are waited for together, and for a moment only: others have something to hear.
    async fn drop_batch(&self, drops: Vec<Drop>) -> bool {
        let since = self.port.now();
        let has_mounts = drops.iter().any(Drop::goes_with_lease) && self.port.has_mounts();
        let mut batch = Batch { shared: &self.shared, left: drops };
        loop {
            let mut at = 0;
            while let Some(drop) = batch.left.get(at).cloned() {
                let tried = match &drop {
                    Drop::Attributes(ino) => self.drop_attributes(*ino),
                    Drop::Name(name) => self.drop_name(name, has_mounts).await,
                };
                match (tried, &drop) {
                    (Tried::Dropped, _) => self.shared.with(|s| s.kernel.took(drop, true)),
                    (Tried::Late(until), Drop::Name(name)) => {
                        self.shared.with(|s| s.kernel.took_late(name, until));
                    }
                    _ => {
                        at += 1;
                        continue;
                    }
                }
                batch.left.remove(at);
            }
            if batch.left.is_empty() {
                return true;
            }
            if self.port.cancelled() || self.port.now().since(since) >= UNKNOWN_PATIENCE_MS {
                return false;
            }
            self.port.pause(1).await;
        }
    }

    async fn drop_name(&self, drop: &NameDrop, has_mounts: bool) -> Tried {
        let valid = self.shared.with(|s| s.kernel.names.valid_until(drop.dir, &drop.name));
        let Some((until, is_dir)) = valid else { return Tried::Dropped };
        // What it leads to may stay, and somebody be in it, or have mounted something there.
        if drop.with_lease && (is_dir || has_mounts || until <= self.port.boot()) {
            return self.is_over(until);
        }
        let notice = self.port.drop_name(drop.dir, &drop.name);
        match self.port.noticed(&notice, NAME_PATIENCE_MS).await {
            Dropped::Done => Tried::Dropped,
            Dropped::Unknown if !self.shared.with(|s| s.limits.hasty_kernel) => Tried::Dropped,
            // A reply may make it yet (K6), or nobody was told.
            Dropped::Unknown | Dropped::Failed => self.is_over(until),
            Dropped::Waits => self.drop_held(drop, until),
        }
    }

    fn is_over(&self, until: Millis) -> Tried {
        if until <= self.port.boot() { Tried::Dropped } else { Tried::Late(until) }
    }

    /// A request of this mount holds the directory, and may wait for the very change that is to be let pass.
    fn drop_held(&self, drop: &NameDrop, until: Millis) -> Tried {
        let now = self.port.boot();
        if until <= now {
            return Tried::Dropped;
        }
        self.shared.with(|s| s.kernel.names.sticks(drop.dir, now));
        let left = until.since(now).saturating_sub(VALIDITY_MARGIN_MS);
        if left > NAME_LEFT_MS && !self.port.has_mounts() {
            let epoch = self.shared.with(|s| s.kernel.names.bumps(now));
            if self.port.drop_names() == Dropped::Done {
                self.shared.with(|s| s.kernel.names.bumped(epoch));
                return Tried::Dropped;
            }
        }
        self.shared.with(|s| s.kernel.names.waits());
        Tried::Late(until)
    }

    /// Waits until it is dropped. `false`: nobody waits any more.
    pub(super) async fn has_dropped(&self, ino: Ino) -> bool {
        loop {
            match self.drop_attributes(ino) {
                Tried::Dropped => return true,
                Tried::Unknown if !self.port.cancelled() => self.port.pause(1).await,
                _ => return false,
            }
        }
    }

    /// One that the kernel does not know it may come to have by a reply that it has not looked at: until it has, or has forgotten
    /// it, or what was told is over.
    fn drop_attributes(&self, ino: Ino) -> Tried {
        let dropped = self.port.drop_attributes(ino);
        if dropped == Dropped::Done {
            return Tried::Dropped;
        }
        let now = self.port.boot();
        let is_over = self.shared.with(|s| {
            let is_gone = dropped == Dropped::Unknown && s.kernel.is_gone(ino, now);
            is_gone || !s.kernel.uses(ino, now) || s.limits.canary_unknown_is_gone
        });
        match dropped {
            _ if is_over => Tried::Dropped,
            Dropped::Failed => Tried::Failed,
            _ => Tried::Unknown,
        }
    }
}

/// What one pass is to have dropped. Who stops in the middle leaves the rest to others.
struct Batch<'a, C: Cell<Shared>> {
    shared: &'a C,
    left: Vec<Drop>,
}

impl<C: Cell<Shared>> core::ops::Drop for Batch<'_, C> {
    fn drop(&mut self) {
        let left = core::mem::take(&mut self.left);
        if !left.is_empty() {
            self.shared.with(|s| left.into_iter().for_each(|drop| s.kernel.took(drop, false)));
        }
    }
}

impl Shared {
    /// What the kernel is to drop next of shards of `node`, and whether there may be more.
    fn next_drops(&mut self, node: NodeId, now: Millis) -> (Vec<Drop>, bool) {
        let Self { leases, kernel, .. } = self;
        kernel.end_waits(now);
        let ended: Vec<ShardId> =
            leases.unclean().filter(|(_, of)| *of == node).map(|(shard, _)| shard).collect();
        let others = kernel.shards().filter(|shard| leases.node_of(*shard).is_none_or(|of| of == node));
        let shards: Vec<(ShardId, bool)> = others
            .filter(|shard| !ended.contains(shard))
            .map(|shard| (shard, false))
            .chain(ended.iter().map(|shard| (*shard, true)))
            .collect();
        let (mut drops, mut steps) = (Vec::new(), DROPS_AT_ONCE);
        for (shard, has_ended) in shards {
            while let Some(drop) = kernel.next_drop(shard, has_ended, now, &mut steps) {
                drops.push(drop);
            }
            if has_ended && steps > 0 && kernel.is_clear(shard) {
                // Names are not dropped one by one then: they go by time.
                leases.is_cleaned(shard, kernel.names.shard_valid_until(shard));
            }
        }
        (drops, steps == 0)
    }

    /// Servers of whose shards the kernel is to drop something.
    pub(crate) fn nodes_to_drop(&self) -> impl Iterator<Item = NodeId> + '_ {
        let queued = self.kernel.shards().filter_map(|shard| self.leases.node_of(shard));
        queued.chain(self.leases.unclean().map(|(_, node)| node))
    }

    /// In how many milliseconds something can be said to a shard of `node` that is not said because the kernel uses names.
    pub(crate) fn names_wait_for(&self, node: NodeId, now: Millis) -> Option<u64> {
        let of_node = self.leases.of_node(node);
        // What is over of the first is said in the next round; of the second nothing need be said.
        let ended = |until: &Millis| *until > now;
        let waits = of_node.flat_map(|(shard, until)| [self.kernel.waits_until(shard), until.filter(ended)]);
        waits.flatten().min().map(|until| until.since(now))
    }
}
