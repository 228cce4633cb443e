//! What the kernel may use without asking: attributes that it was given with a validity. And what it is to drop of them before a
//! shard hears that nobody uses it. See `docs/design/leases.md`, section 7.
//!
//! An inode counts as told until the validity of the newest such answer is over, or the kernel has dropped it. While it is to be
//! dropped, it is told nothing.

use crate::limits::{LATE_MS, LOOKS_LOST_MS};
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use skep_types::{Ino, Millis, ShardId};

/// A reply that has attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttrsBy {
    /// LOOKUP, READDIRPLUS: it counts as a look-up.
    Look,
    /// CREATE, MKDIR, LINK and their like: so does it, but nothing stops a late one (K3).
    Made,
    /// GETATTR: the kernel has the inode.
    Question,
}

/// What is known of one inode.
#[derive(Debug, Default)]
struct Node {
    /// Look-ups in replies, without those that the kernel has forgotten.
    looks: u64,
    /// The directory whose lease covers what was told, and until when the kernel may use that.
    told: Option<(Ino, Millis)>,
    /// So many are about to have it dropped.
    dropping: u32,
    /// An own change took one of its names: the kernel may take it for one without names, and does not count its eviction (K5).
    lost_a_name: bool,
    /// Its entry in [`Kernel::over`]; 0 = none.
    listed: u64,
    /// It was to be dropped, and not known, since then; for long.
    unknown_since: Option<Millis>,
    is_lost: bool,
}

/// What the kernel is to drop of a shard's inodes.
#[derive(Debug, Default)]
struct Drops {
    inodes: VecDeque<Ino>,
    /// And all that was told under these leases.
    leases: BTreeSet<Ino>,
    /// Somebody is at so many.
    taken: usize,
}

/// Steps towards what is long over, each time that something is told.
const OVER_AT_ONCE: usize = 2;

/// The kernel above a mount.
#[derive(Debug, Default)]
pub struct Kernel {
    nodes: BTreeMap<Ino, Node>,
    /// Those told, each behind the directory whose lease covers it.
    under: BTreeSet<(Ino, Ino)>,
    /// When what was told of each inode may be over, the oldest first; with the number of the entry.
    over: VecDeque<(Millis, Ino, u64)>,
    entries: u64,
    drops: BTreeMap<ShardId, Drops>,
    /// There is something to drop that was not there before.
    news: bool,
    /// Inodes that it did not know for long, though it had been given them.
    lost: u64,
}

impl Kernel {
    /// A reply that was built has this inode.
    pub fn looked(&mut self, ino: Ino) {
        self.nodes.entry(ino).or_default().looks += 1;
    }

    /// The kernel forgets so many look-ups.
    pub fn forgot(&mut self, ino: Ino, looks: u64) {
        let Some(node) = self.nodes.get_mut(&ino) else { return };
        node.looks = node.looks.saturating_sub(looks);
        // Who is about to have it dropped says so: until then nothing new is told of it.
        if node.looks == 0
            && node.dropping == 0
            && let Some(Node { told: Some((lease, _)), .. }) = self.nodes.remove(&ino)
        {
            self.under.remove(&(lease, ino));
        }
    }

    /// May a reply make its attributes valid?
    pub fn may_tell(&self, ino: Ino, lease: Ino, by: AttrsBy) -> bool {
        let is_leaving = self.drops.get(&lease.shard()).is_some_and(|drops| drops.leases.contains(&lease));
        let node_may = |node: &Node| node.dropping == 0 && !(node.lost_a_name && by == AttrsBy::Look);
        by != AttrsBy::Made && !is_leaving && self.nodes.get(&ino).is_none_or(node_may)
    }

    /// A reply that was built makes them valid until then, under the lease on that directory.
    pub fn tells(&mut self, ino: Ino, lease: Ino, until: Millis, now: Millis) {
        let node = self.nodes.entry(ino).or_default();
        let until = match node.told.replace((lease, until)) {
            Some((other, known)) => {
                if other != lease {
                    self.under.remove(&(other, ino));
                }
                until.max(known)
            }
            None => until,
        };
        node.told = Some((lease, until));
        if node.listed == 0 {
            self.entries += 1;
            node.listed = self.entries;
            self.over.push_back((until, ino, self.entries));
        }
        self.under.insert((lease, ino));
        (0..OVER_AT_ONCE).for_each(|_| self.sweep(now));
    }

    /// What is long over is no longer found by its lease.
    fn sweep(&mut self, now: Millis) {
        let Some((_, ino, entry)) = self.over.pop_front_if(|(until, ..)| until.plus(LATE_MS) <= now) else {
            return;
        };
        // The inode may have been forgotten, and come again with another entry.
        let Some(node) = self.nodes.get_mut(&ino).filter(|node| node.listed == entry) else { return };
        match node.told {
            Some((_, until)) if until.plus(LATE_MS) > now => self.over.push_back((until, ino, entry)),
            told => {
                node.listed = 0;
                self.under.remove(&(told.map_or(ino, |(lease, _)| lease), ino));
            }
        }
    }

    /// May it use what it was told of the inode, as far as that is to be waited for?
    pub fn uses(&self, ino: Ino, now: Millis) -> bool {
        let told = self.nodes.get(&ino).and_then(|node| node.told);
        told.is_some_and(|(_, until)| until.plus(LATE_MS) > now)
    }

    /// It says that it does not know the inode. Will it not come to have it by a reply, either?
    pub fn is_gone(&mut self, ino: Ino, now: Millis) -> bool {
        let Some(node) = self.nodes.get_mut(&ino).filter(|node| node.looks > 0) else { return true };
        let since = *node.unknown_since.get_or_insert(now);
        if now.since(since) >= LOOKS_LOST_MS && !core::mem::replace(&mut node.is_lost, true) {
            self.lost += 1;
        }
        false
    }

    /// An own change took a name of the inode.
    pub fn lost_a_name(&mut self, ino: Ino) {
        if let Some(node) = self.nodes.get_mut(&ino) {
            node.lost_a_name = true;
        }
    }

    /// It is to drop the inode's attributes.
    pub fn drop_soon(&mut self, ino: Ino, now: Millis) {
        if self.take(ino, now) {
            self.drops.entry(ino.shard()).or_default().inodes.push_back(ino);
            self.news = true;
        }
    }

    /// And all those that the lease on a directory covers, its own too.
    pub fn drop_all_soon(&mut self, lease: Ino) {
        if self.under.range((lease, Ino(0))..=(lease, Ino(u64::MAX))).next().is_some() {
            self.drops.entry(lease.shard()).or_default().leases.insert(lease);
            self.news = true;
        }
    }

    /// Who calls has them dropped, and says so ([`Kernel::dropped`]); `false`: there is nothing to drop.
    pub fn take(&mut self, ino: Ino, now: Millis) -> bool {
        let may_use = |node: &&mut Node| {
            node.told.is_some_and(|(_, until)| node.looks > 0 || until.plus(LATE_MS) > now)
        };
        let Some(node) = self.nodes.get_mut(&ino).filter(may_use) else { return false };
        node.dropping += 1;
        true
    }

    /// The same of all that was told under the lease on a directory.
    pub fn take_under(&mut self, lease: Ino, now: Millis) -> Vec<Ino> {
        let under = self.under.range((lease, Ino(0))..=(lease, Ino(u64::MAX)));
        let inos: Vec<Ino> = under.map(|(_, ino)| *ino).collect();
        inos.into_iter().filter(|ino| self.take(*ino, now)).collect()
    }

    /// The next inode of the shard whose attributes are to go, for who has them dropped; `all`: whatever was told. It looks at no more
    /// than `steps`.
    pub fn next_drop(&mut self, shard: ShardId, all: bool, now: Millis, steps: &mut usize) -> Option<Ino> {
        while *steps > 0
            && let Some((ino, is_marked)) = self.next_of(shard, all)
        {
            *steps -= 1;
            if is_marked || self.take(ino, now) {
                self.drops.entry(shard).or_default().taken += 1;
                return Some(ino);
            }
        }
        self.is_clear(shard);
        None
    }

    /// `true` beside it: it is marked already.
    fn next_of(&mut self, shard: ShardId, all: bool) -> Option<(Ino, bool)> {
        if let Some(drops) = self.drops.get_mut(&shard) {
            if let Some(ino) = drops.inodes.pop_front() {
                return Some((ino, true));
            }
            while let Some(lease) = drops.leases.first().copied() {
                match self.under.range((lease, Ino(0))..=(lease, Ino(u64::MAX))).next().copied() {
                    Some(place) => {
                        self.under.remove(&place);
                        return Some((place.1, false));
                    }
                    None => drops.leases.remove(&lease),
                };
            }
        }
        let first = (Ino::new(shard, 0), Ino(0));
        let place = self.under.range(first..).next().copied().filter(|_| all)?;
        (place.0.shard() == shard && self.under.remove(&place)).then_some((place.1, false))
    }

    /// It uses nothing any more that it was told of the inode until then.
    pub fn dropped(&mut self, ino: Ino) {
        let Some(node) = self.nodes.get_mut(&ino).filter(|node| node.dropping > 0) else { return };
        node.dropping -= 1;
        if node.dropping > 0 {
            return;
        }
        (node.unknown_since, node.is_lost) = (None, false);
        if let Some((lease, _)) = node.told.take() {
            self.under.remove(&(lease, ino));
        }
        if node.looks == 0 {
            self.nodes.remove(&ino);
        }
    }

    /// What came of [`Kernel::next_drop`]. (Not `done`: somebody else is to do it.)
    pub fn took(&mut self, ino: Ino, done: bool) {
        if let Some(drops) = self.drops.get_mut(&ino.shard()) {
            drops.taken = drops.taken.saturating_sub(1);
            if !done {
                drops.inodes.push_back(ino);
            }
        }
        if done {
            self.dropped(ino);
        }
        self.is_clear(ino.shard());
    }

    /// Is nothing to be dropped of a shard's inodes?
    pub fn is_clear(&mut self, shard: ShardId) -> bool {
        let is_clear = self
            .drops
            .get(&shard)
            .is_none_or(|drops| drops.inodes.is_empty() && drops.leases.is_empty() && drops.taken == 0);
        if is_clear {
            self.drops.remove(&shard);
        }
        is_clear
    }

    /// Shards with something to drop.
    pub fn shards(&self) -> impl Iterator<Item = ShardId> + '_ {
        self.drops.keys().copied()
    }

    /// Is there something to drop since the last look at this that was not there before?
    pub fn take_news(&mut self) -> bool {
        core::mem::take(&mut self.news)
    }

    /// How often it has not known for long what it was given: a count of look-ups is wrong then.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Inodes that it has, and those told.
    pub fn counts(&self) -> (usize, usize) {
        (self.nodes.len(), self.under.len())
    }

    /// It has nothing of this mount any more.
    pub fn unmounted(&mut self) {
        *self = Self { lost: self.lost, ..Self::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIR: Ino = Ino(5);
    const NOW: Millis = Millis(10_000);
    const SHARD: ShardId = ShardId(0);

    fn all(kernel: &mut Kernel, whole: bool) -> alloc::vec::Vec<Ino> {
        core::iter::from_fn(|| kernel.next_drop(SHARD, whole, NOW, &mut 9)).collect()
    }

    /// Goal: what is to be dropped is told nothing until it is, and a shard is clear when the last one is.
    #[test]
    fn a_drop_is_over_when_it_is_done() {
        let mut kernel = Kernel::default();
        for ino in [Ino(7), Ino(8)] {
            kernel.looked(ino);
            kernel.tells(ino, DIR, Millis(12_000), NOW);
        }
        kernel.drop_soon(Ino(7), NOW);
        kernel.drop_soon(Ino(9), NOW);
        assert!(kernel.take_news() && !kernel.may_tell(Ino(7), DIR, AttrsBy::Question));
        assert!(kernel.may_tell(Ino(8), DIR, AttrsBy::Look) && !kernel.may_tell(Ino(8), DIR, AttrsBy::Made));
        assert_eq!(all(&mut kernel, false), [Ino(7)], "what was never told needs no drop");
        assert!(!kernel.is_clear(SHARD));
        kernel.took(Ino(7), false);
        assert_eq!((kernel.is_clear(SHARD), all(&mut kernel, false)), (false, alloc::vec![Ino(7)]));
        kernel.took(Ino(7), true);
        assert!(kernel.is_clear(SHARD) && kernel.may_tell(Ino(7), DIR, AttrsBy::Look));
        assert!(
            !kernel.uses(Ino(7), NOW)
                && kernel.uses(Ino(8), NOW)
                && !kernel.uses(Ino(8), Millis(12_000 + LATE_MS))
        );
    }

    /// Goal: all that a lease covers goes with it, and nothing is told under it meanwhile; what is long over needs no drop.
    #[test]
    fn a_lease_takes_along_what_it_covers() {
        let mut kernel = Kernel::default();
        kernel.tells(DIR, DIR, Millis(12_000), NOW);
        kernel.tells(Ino(7), DIR, Millis(12_000), NOW);
        kernel.tells(Ino(8), DIR, Millis(0), NOW);
        kernel.tells(Ino(9), Ino(6), Millis(12_000), NOW);
        kernel.drop_all_soon(DIR);
        assert!(
            !kernel.may_tell(Ino(8), DIR, AttrsBy::Look) && kernel.may_tell(Ino(8), Ino(6), AttrsBy::Look)
        );
        assert_eq!(all(&mut kernel, false), [DIR, Ino(7)]);
        kernel.took(DIR, true);
        assert!(!kernel.is_clear(SHARD));
        kernel.took(Ino(7), true);
        assert!(kernel.is_clear(SHARD));
        assert_eq!(all(&mut kernel, true), [Ino(9)]);
        kernel.took(Ino(9), true);
        assert!(kernel.is_clear(SHARD) && kernel.counts().1 == 0);
    }

    /// Goal: two who drop the same inode are both waited for; one whose names the kernel may miscount is told by GETATTR only;
    /// what the kernel has forgotten is not kept.
    #[test]
    fn who_drops_and_who_forgets() {
        let mut kernel = Kernel::default();
        kernel.looked(Ino(7));
        kernel.looked(Ino(7));
        kernel.tells(Ino(7), DIR, Millis(12_000), NOW);
        assert!(kernel.take(Ino(7), NOW));
        kernel.drop_soon(Ino(7), NOW);
        kernel.dropped(Ino(7));
        assert!(!kernel.is_clear(SHARD) && !kernel.may_tell(Ino(7), DIR, AttrsBy::Look));
        assert_eq!(kernel.next_drop(SHARD, false, NOW, &mut 9), Some(Ino(7)));
        kernel.took(Ino(7), true);
        kernel.lost_a_name(Ino(7));
        assert!(
            !kernel.may_tell(Ino(7), DIR, AttrsBy::Look) && kernel.may_tell(Ino(7), DIR, AttrsBy::Question)
        );
        kernel.forgot(Ino(7), 1);
        assert!(!kernel.is_gone(Ino(7), NOW) && kernel.lost() == 0);
        assert!(!kernel.is_gone(Ino(7), NOW.plus(LOOKS_LOST_MS)) && kernel.lost() == 1);
        kernel.tells(Ino(7), DIR, Millis(12_000), NOW);
        kernel.forgot(Ino(7), 1);
        assert_eq!((kernel.counts(), kernel.is_gone(Ino(7), NOW)), ((0, 0), true));
        kernel.dropped(Ino(7));
    }

    /// Goal: who has an inode dropped that the kernel forgets meanwhile ends nothing that is told later.
    #[test]
    fn a_drop_ends_nothing_newer() {
        let mut kernel = Kernel::default();
        kernel.looked(Ino(7));
        kernel.tells(Ino(7), DIR, Millis(12_000), NOW);
        assert!(kernel.take(Ino(7), NOW));
        kernel.forgot(Ino(7), 1);
        kernel.looked(Ino(7));
        assert!(!kernel.may_tell(Ino(7), DIR, AttrsBy::Look));
        kernel.dropped(Ino(7));
        kernel.tells(Ino(7), DIR, Millis(12_000), NOW);
        kernel.dropped(Ino(7));
        assert!(kernel.uses(Ino(7), NOW));
    }

    /// Goal: what is long over takes no room among what a lease covers, and is dropped by its number all the same: a reply may
    /// have been looked at late. What was told again since stays.
    #[test]
    fn what_is_over_takes_no_room() {
        let mut kernel = Kernel::default();
        for ino in (10..20).map(Ino) {
            kernel.looked(ino);
            kernel.tells(ino, DIR, Millis(12_000), NOW);
        }
        kernel.tells(Ino(12), DIR, Millis(90_000), NOW);
        let late = Millis(12_000 + LATE_MS);
        (0..9).for_each(|_| kernel.tells(Ino(10), DIR, Millis(90_000), late));
        assert_eq!(kernel.take_under(DIR, late), [Ino(10), Ino(12)]);
        assert!(kernel.take(Ino(11), late) && kernel.over.len() == 2);
        // Nor do many who are dropped and told again and again.
        let mut kernel = Kernel::default();
        kernel.looked(Ino(10));
        for round in 0..1_000 {
            let now = Millis(20_000 + round * 10);
            kernel.tells(Ino(10), DIR, now.plus(4_000), now);
            assert!(kernel.take(Ino(10), now));
            kernel.dropped(Ino(10));
            kernel.tells(Ino(30), DIR, now.plus(4_000), now);
            kernel.looked(Ino(30));
            kernel.forgot(Ino(30), 1);
        }
        assert!(kernel.over.len() < 810, "{} entries", kernel.over.len());
    }
}
