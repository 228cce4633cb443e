//! For how long the kernel may use the attributes of a reply, and how it comes to drop them: before a shard hears that nobody uses
//! them, and before this mount changes them itself. See `docs/design/leases.md`, section 7.

use crate::lane::Lane;
use crate::limits::{DROPS_AT_ONCE, LINES_AT_ONCE, OLD_LOOK_MS, UNKNOWN_PATIENCE_MS, VALIDITY_MARGIN_MS};
use crate::port::{Cell, Dropped, Port};
use crate::state::{AttrsBy, Shared};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use skep_types::{Attr, Ino, Kind, Millis, NodeId, ShardId};

/// What tells the attributes of a reply from newer ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shown {
    ino: Ino,
    change: u64,
    size: u64,
}

impl From<&Attr> for Shown {
    fn from(attr: &Attr) -> Self {
        Self { ino: attr.ino, change: attr.change, size: attr.size }
    }
}

impl<P: Port, C: Cell<Shared>> Lane<P, C> {
    /// A reply with these attributes goes to the kernel now: for how many milliseconds it may use them without asking.
    pub fn valid_for(&self, attr: &Attr, by: AttrsBy) -> u64 {
        let now = self.port.boot();
        if self.tells { self.shared.with(|s| s.valid_for(&attr.into(), by, now)) } else { 0 }
    }

    /// The same of a reply with the attributes of several.
    pub fn valid_for_each(&self, shown: &[Shown], by: AttrsBy) -> Vec<u64> {
        if !self.tells {
            return Vec::new();
        }
        let mut all = Vec::with_capacity(shown.len());
        for shown in shown.chunks(LINES_AT_ONCE) {
            let now = self.port.boot();
            self.shared.with(|s| all.extend(shown.iter().map(|shown| s.valid_for(shown, by, now))));
        }
        all
    }

    /// This mount is about to change these, or has changed them beside what it named. `false`: they are not dropped, and nobody waits
    /// any more; somebody else has it done.
    pub(crate) async fn untell(&self, inos: Vec<Ino>) -> bool {
        let mut all = true;
        for (at, ino) in inos.into_iter().enumerate() {
            if at > 0 && at.is_multiple_of(DROPS_AT_ONCE) {
                self.port.pause(1).await;
            }
            let is_done = self.has_dropped(ino).await;
            all &= is_done;
            let rings = self.shared.with(|s| {
                // The program was killed, and its lane waits for nothing any more.
                if !is_done {
                    s.kernel.drop_soon(ino, self.port.boot());
                }
                s.kernel.dropped(ino);
                s.kernel.take_news()
            });
            if rings {
                self.port.is_lent();
            }
        }
        all
    }

    /// It has a file open for writing from now on: of that the kernel is told nothing.
    pub(crate) async fn untell_writer(&self, ino: Ino) {
        if self.tells && self.shared.with(|s| s.kernel.take(ino, self.port.boot())) {
            self.untell(Vec::from([ino])).await;
        }
    }

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
    async fn drop_batch(&self, mut drops: Vec<Ino>) -> bool {
        let since = self.port.now();
        loop {
            drops.retain(|ino| {
                let is_dropped = self.is_dropped(*ino) == Tried::Dropped;
                if is_dropped {
                    self.shared.with(|s| s.kernel.took(*ino, true));
                }
                !is_dropped
            });
            if drops.is_empty() {
                return true;
            }
            if self.port.cancelled() || self.port.now().since(since) >= UNKNOWN_PATIENCE_MS {
                self.shared.with(|s| drops.iter().for_each(|ino| s.kernel.took(*ino, false)));
                return false;
            }
            self.port.pause(1).await;
        }
    }

    /// Waits until it is dropped. `false`: nobody waits any more.
    async fn has_dropped(&self, ino: Ino) -> bool {
        loop {
            match self.is_dropped(ino) {
                Tried::Dropped => return true,
                Tried::Failed => return false,
                Tried::Unknown if self.port.cancelled() => return false,
                Tried::Unknown => self.port.pause(1).await,
            }
        }
    }

    /// One that the kernel does not know it may come to have by a reply that it has not looked at: until it has, or has forgotten
    /// it, or what was told is over.
    fn is_dropped(&self, ino: Ino) -> Tried {
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

/// What came of one try to have something dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tried {
    Dropped,
    Unknown,
    Failed,
}

impl Shared {
    /// The kernel has nothing of this mount any more.
    pub fn unmounted(&mut self) {
        self.kernel.unmounted();
        self.leases.all_is_cleaned();
    }

    fn valid_for(&mut self, shown: &Shown, by: AttrsBy, now: Millis) -> u64 {
        let ino = shown.ino;
        if by != AttrsBy::Question {
            self.kernel.looked(ino);
        }
        if by == AttrsBy::Made {
            return 0;
        }
        let Some((lease, attr)) = self.covering(ino, now) else { return 0 };
        // The reply may be older, or the kernel may have pages that are.
        let is_known = Shown::from(&attr) == *shown && (attr.kind == Kind::Dir || self.is_at_rest(&attr));
        if !is_known || !self.kernel.may_tell(ino, lease, by) {
            return 0;
        }
        let Some(ms) = self.leases.tells(lease, now) else { return 0 };
        let ms = if self.limits.old_kernel && by == AttrsBy::Look { ms.min(OLD_LOOK_MS) } else { ms };
        self.kernel.tells(ino, lease, now.plus(ms + VALIDITY_MARGIN_MS), now);
        ms
    }

    /// This mount writes nothing to it, and what the kernel has of its pages is of now.
    fn is_at_rest(&mut self, attr: &Attr) -> bool {
        self.inodes.get_mut(attr.ino).is_none_or(|inode| {
            let is_read_only = inode.writers == 0 && inode.opening == 0;
            is_read_only && (!inode.pages.may_be_held() || inode.pages.are_as_of(attr.change))
        })
    }

    /// The next inodes of shards of `node` whose attributes the kernel is to drop, and whether there may be more.
    fn next_drops(&mut self, node: NodeId, now: Millis) -> (Vec<Ino>, bool) {
        let Self { leases, kernel, .. } = self;
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
            while let Some(ino) = kernel.next_drop(shard, has_ended, now, &mut steps) {
                drops.push(ino);
            }
            if has_ended && steps > 0 && kernel.is_clear(shard) {
                leases.is_cleaned(shard);
            }
        }
        (drops, steps == 0)
    }

    /// Servers of whose shards the kernel is to drop something.
    pub(crate) fn nodes_to_drop(&self) -> impl Iterator<Item = NodeId> + '_ {
        let queued = self.kernel.shards().filter_map(|shard| self.leases.node_of(shard));
        queued.chain(self.leases.unclean().map(|(_, node)| node))
    }

    /// What of these the kernel was told, for who has it dropped.
    pub(crate) fn take_told(&mut self, inos: impl IntoIterator<Item = Ino>, now: Millis) -> Vec<Ino> {
        inos.into_iter().filter(|ino| self.kernel.take(*ino, now)).collect()
    }
}

#[cfg(test)]
mod tests;
