//! What the kernel may use without asking: attributes and names that it was given with a validity. And what it is to drop of them
//! before a shard hears that nobody uses it. See `docs/design/leases.md`, section 7.
//!
//! An inode counts as told until the validity of the newest such answer is over, or the kernel has dropped it. While it is to be
//! dropped, it is told nothing.

mod names;

pub use names::{LeadsTo, NameDrop, ToldNames};

use crate::limits::{LATE_MS, LOOKS_LOST_MS};
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::sync::Arc;
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
    names: VecDeque<NameDrop>,
    /// And all that was told under these leases.
    leases: BTreeMap<Ino, Leaving>,
    /// Somebody is at so many.
    taken: usize,
    /// Names in these directories are not dropped: until then they may be used.
    late: BTreeMap<Ino, Millis>,
}

/// Of a lease that ends: what is left to drop.
#[derive(Debug, Default)]
struct Leaving {
    /// The names as well, ...
    takes_names: bool,
    /// ... those behind this one.
    after: Option<Arc<[u8]>>,
}

impl Drops {
    fn is_empty(&self) -> bool {
        self.inodes.is_empty() && self.names.is_empty() && self.leases.is_empty() && self.taken == 0
    }
}

/// One thing that the kernel is to drop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Drop {
    Attributes(Ino),
    Name(NameDrop),
}

impl Drop {
    /// See [`NameDrop::with_lease`].
    pub fn goes_with_lease(&self) -> bool {
        matches!(self, Self::Name(NameDrop { with_lease: true, .. }))
    }
}

/// Leases are given back no more often, less one: see [`Drops::late`].
const GIVEN_BACK_EACH_MS: u64 = 127;
/// Steps towards what is long over, each time that something is told.
const OVER_AT_ONCE: usize = 2;

/// The kernel above a mount.
#[derive(Debug, Default)]
pub struct Kernel {
    pub names: ToldNames,
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
        let node_may = |node: &Node| node.dropping == 0 && !(node.lost_a_name && by == AttrsBy::Look);
        by != AttrsBy::Made && !self.is_leaving(lease) && self.nodes.get(&ino).is_none_or(node_may)
    }

    /// May it make a name valid?
    pub fn may_tell_name(&self, dir: Ino, name: &[u8]) -> bool {
        !self.is_leaving(dir) && self.names.may_tell(dir, name)
    }

    /// Is what the lease on a directory covers about to be dropped?
    pub fn is_leaving(&self, lease: Ino) -> bool {
        self.drops.get(&lease.shard()).is_some_and(|drops| drops.leases.contains_key(&lease))
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
        (0..OVER_AT_ONCE).all(|_| self.sweep(now));
    }

    /// Some of what was told, and is long over, goes: where nothing more is told, nothing else frees it. `true`: there may be more.
    pub fn free_over(&mut self, now: Millis) -> bool {
        self.names.sweep(now) | self.sweep(now)
    }

    /// What is long over is no longer found by its lease. `false`: there is nothing of the kind.
    fn sweep(&mut self, now: Millis) -> bool {
        let Some((_, ino, entry)) = self.over.pop_front_if(|(until, ..)| until.plus(LATE_MS) <= now) else {
            return false;
        };
        // The inode may have been forgotten, and come again with another entry.
        let Some(node) = self.nodes.get_mut(&ino).filter(|node| node.listed == entry) else { return true };
        match node.told {
            Some((_, until)) if until.plus(LATE_MS) > now => self.over.push_back((until, ino, entry)),
            told => {
                node.listed = 0;
                self.under.remove(&(told.map_or(ino, |(lease, _)| lease), ino));
            }
        }
        true
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

    /// And a name.
    pub fn drop_name_soon(&mut self, dir: Ino, name: &[u8], now: Millis) {
        if let Some(name) = self.names.take(dir, name, now) {
            let drop = NameDrop { dir, name, with_lease: false };
            self.drops.entry(dir.shard()).or_default().names.push_back(drop);
            self.news = true;
        }
    }

    /// And all that the lease on a directory covers: attributes, its own too, and names. `waits`: somebody waits for that; else what
    /// names lead to is the same, and they go by time.
    pub fn drop_all_soon(&mut self, lease: Ino, waits: bool) {
        let has_told = self.under.range((lease, Ino(0))..=(lease, Ino(u64::MAX))).next().is_some();
        let until = self.names.all_valid_until(lease);
        if !has_told && until == Millis(0) {
            return;
        }
        let drops = self.drops.entry(lease.shard()).or_default();
        let leaving = drops.leases.entry(lease).or_default();
        if waits {
            // From the first one on: what has gone by time until now need not.
            *leaving = Leaving { takes_names: true, after: None };
            drops.late.remove(&lease);
        } else if until > Millis(0) {
            // Nobody waits: what ends at about the same time is said together.
            drops.late.insert(lease, Millis(until.0 | GIVEN_BACK_EACH_MS));
        }
        self.news = true;
    }

    /// Do names of that directory go by time, which is not over?
    pub fn waits_in(&self, dir: Ino) -> bool {
        self.drops.get(&dir.shard()).is_some_and(|drops| drops.late.contains_key(&dir))
    }

    /// When the first of those of a shard are over.
    pub fn waits_until(&self, shard: ShardId) -> Option<Millis> {
        self.drops.get(&shard).and_then(|drops| drops.late.values().min().copied())
    }

    /// Those that are.
    pub fn end_waits(&mut self, now: Millis) {
        self.drops.values_mut().for_each(|drops| drops.late.retain(|_, until| *until > now));
        self.drops.retain(|_, drops| !drops.is_empty() || !drops.late.is_empty());
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

    /// What is to go next of the shard, for who has it dropped; `all`: the attributes of whatever was told. It looks at no more than
    /// `steps`.
    pub fn next_drop(&mut self, shard: ShardId, all: bool, now: Millis, steps: &mut usize) -> Option<Drop> {
        while *steps > 0
            && let Some((drop, is_taken)) = self.next_of(shard, all)
        {
            *steps -= 1;
            let is_taken = is_taken
                || match &drop {
                    Drop::Attributes(ino) => self.take(*ino, now),
                    Drop::Name(name) => self.names.take(name.dir, &name.name, now).is_some(),
                };
            if is_taken {
                self.drops.entry(shard).or_default().taken += 1;
                return Some(drop);
            }
        }
        self.tidy(shard);
        None
    }

    /// `true` beside it: it is marked already.
    fn next_of(&mut self, shard: ShardId, all: bool) -> Option<(Drop, bool)> {
        if let Some(drops) = self.drops.get_mut(&shard) {
            if let Some(ino) = drops.inodes.pop_front() {
                return Some((Drop::Attributes(ino), true));
            }
            if let Some(name) = drops.names.pop_front() {
                return Some((Drop::Name(name), true));
            }
            while let Some(mut lease) = drops.leases.first_entry() {
                let dir = *lease.key();
                if let Some(place) = self.under.range((dir, Ino(0))..=(dir, Ino(u64::MAX))).next().copied() {
                    self.under.remove(&place);
                    return Some((Drop::Attributes(place.1), false));
                }
                let leaving = lease.get_mut();
                let next =
                    if leaving.takes_names { self.names.next(dir, leaving.after.as_deref()) } else { None };
                if let Some(name) = next {
                    leaving.after = Some(name.clone());
                    return Some((Drop::Name(NameDrop { dir, name, with_lease: true }), false));
                }
                lease.remove();
            }
        }
        let first = (Ino::new(shard, 0), Ino(0));
        let place = self.under.range(first..).next().copied().filter(|_| all)?;
        (place.0.shard() == shard && self.under.remove(&place)).then_some((Drop::Attributes(place.1), false))
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
    pub fn took(&mut self, drop: Drop, done: bool) {
        let shard = match &drop {
            Drop::Attributes(ino) => ino.shard(),
            Drop::Name(name) => name.dir.shard(),
        };
        let drops = self.drops.entry(shard).or_default();
        drops.taken = drops.taken.saturating_sub(1);
        match drop {
            Drop::Attributes(ino) if done => self.dropped(ino),
            Drop::Name(name) if done => self.names.dropped(name.dir, &name.name),
            Drop::Attributes(ino) => drops.inodes.push_back(ino),
            Drop::Name(name) => drops.names.push_back(name),
        }
        self.tidy(shard);
    }

    /// A name of [`Kernel::next_drop`] goes by time.
    pub fn took_late(&mut self, drop: &NameDrop, until: Millis) {
        let drops = self.drops.entry(drop.dir.shard()).or_default();
        drops.taken = drops.taken.saturating_sub(1);
        let known = drops.late.entry(drop.dir).or_default();
        *known = until.max(*known);
        self.names.not_dropped(drop.dir, &drop.name);
    }

    /// Is nothing to be dropped of a shard's inodes?
    pub fn is_clear(&self, shard: ShardId) -> bool {
        self.drops.get(&shard).is_none_or(Drops::is_empty)
    }

    fn tidy(&mut self, shard: ShardId) {
        if self.is_clear(shard) && self.waits_until(shard).is_none() {
            self.drops.remove(&shard);
        }
    }

    /// Shards with something to drop.
    pub fn shards(&self) -> impl Iterator<Item = ShardId> + '_ {
        self.drops.iter().filter(|(_, drops)| !drops.is_empty()).map(|(shard, _)| *shard)
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
        let next = || kernel.next_drop(SHARD, whole, NOW, &mut 9);
        let ino = |drop| if let Drop::Attributes(ino) = drop { ino } else { panic!("{drop:?}") };
        core::iter::from_fn(next).map(ino).collect()
    }

    fn took(kernel: &mut Kernel, ino: u64, done: bool) {
        kernel.took(Drop::Attributes(Ino(ino)), done);
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
        took(&mut kernel, 7, false);
        assert_eq!((kernel.is_clear(SHARD), all(&mut kernel, false)), (false, alloc::vec![Ino(7)]));
        took(&mut kernel, 7, true);
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
        kernel.drop_all_soon(DIR, true);
        assert!(
            !kernel.may_tell(Ino(8), DIR, AttrsBy::Look) && kernel.may_tell(Ino(8), Ino(6), AttrsBy::Look)
        );
        assert_eq!(all(&mut kernel, false), [DIR, Ino(7)]);
        took(&mut kernel, DIR.0, true);
        assert!(!kernel.is_clear(SHARD));
        took(&mut kernel, 7, true);
        assert!(kernel.is_clear(SHARD));
        assert_eq!(all(&mut kernel, true), [Ino(9)]);
        took(&mut kernel, 9, true);
        assert!(kernel.is_clear(SHARD) && kernel.counts().1 == 0);
    }

    /// Goal: names go by themselves when they are recalled, and with their lease when that ends, each once; nothing is told of them
    /// meanwhile, and the shard is clear when the last one is gone.
    #[test]
    fn names_go_alone_and_with_their_lease() {
        let mut kernel = Kernel::default();
        for name in [b"a", b"b", b"c"] {
            kernel.names.tells((DIR, name), LeadsTo { ino: Ino(70), is_dir: false }, Millis(11_000));
        }
        kernel.drop_name_soon(DIR, b"b", NOW);
        kernel.drop_name_soon(DIR, b"x", NOW);
        assert!(kernel.may_tell_name(DIR, b"a") && !kernel.may_tell_name(DIR, b"b") && kernel.take_news());
        let next = |kernel: &mut Kernel| match kernel.next_drop(SHARD, false, NOW, &mut 9) {
            Some(Drop::Name(name)) => Some(name),
            other => other.map(|drop| panic!("{drop:?}")),
        };
        let first = next(&mut kernel).unwrap();
        assert_eq!((&*first.name, first.with_lease), (&b"b"[..], false));
        kernel.took(Drop::Name(first.clone()), false);
        assert_eq!(next(&mut kernel), Some(first.clone()), "again");
        assert!(!kernel.is_clear(SHARD));
        kernel.took(Drop::Name(first), true);
        assert!(kernel.is_clear(SHARD) && kernel.may_tell_name(DIR, b"b"));
        kernel.drop_all_soon(DIR, true);
        assert!(!kernel.may_tell_name(DIR, b"b"));
        let rest: Vec<_> = core::iter::from_fn(|| next(&mut kernel)).collect();
        assert_eq!(
            rest.iter().map(|drop| (drop.name[0], drop.with_lease)).collect::<Vec<_>>(),
            [(b'a', true), (b'c', true)]
        );
        let [first, other] = <[NameDrop; 2]>::try_from(rest).unwrap();
        kernel.took(Drop::Name(first), true);
        kernel.took_late(&other, Millis(11_000));
        assert!(kernel.is_clear(SHARD) && kernel.waits_in(DIR) && !kernel.waits_in(Ino(6)));
        assert_eq!((kernel.waits_until(SHARD), kernel.shards().count()), (Some(Millis(11_000)), 0));
        kernel.end_waits(Millis(11_000));
        assert!(!kernel.waits_in(DIR) && kernel.drops.is_empty());
    }

    /// Goal: a lease that nobody waits for takes no names along: they go by time.
    #[test]
    fn names_of_a_lease_that_is_given_back_go_by_time() {
        let mut kernel = Kernel::default();
        kernel.drop_all_soon(DIR, false);
        assert!(kernel.drops.is_empty());
        kernel.names.tells((DIR, b"a"), LeadsTo { ino: Ino(70), is_dir: false }, Millis(11_000));
        kernel.drop_all_soon(DIR, false);
        assert!(kernel.take_news() && kernel.next_drop(SHARD, false, NOW, &mut 9).is_none());
        assert!(kernel.is_clear(SHARD) && kernel.waits_in(DIR));
    }

    /// Goal: who comes to wait for a lease has names dropped, also those that were to go by time; and one that comes later waits for
    /// all that still does.
    #[test]
    fn who_comes_to_wait_has_names_dropped_from_the_first_on() {
        let mut kernel = Kernel::default();
        for (name, is_dir) in [(b"a", true), (b"b", false)] {
            kernel.names.tells((DIR, name), LeadsTo { ino: Ino(7), is_dir }, Millis(12_000));
        }
        let next = |kernel: &mut Kernel| match kernel.next_drop(SHARD, false, NOW, &mut 9) {
            Some(Drop::Name(drop)) => drop,
            other => panic!("{other:?}"),
        };
        kernel.drop_all_soon(DIR, false);
        assert!(kernel.waits_in(DIR));
        kernel.drop_all_soon(DIR, true);
        assert!(!kernel.waits_in(DIR));
        let first = next(&mut kernel);
        kernel.took_late(&first, Millis(12_000));
        // Another one comes meanwhile: what goes by time is found to do so again.
        kernel.drop_all_soon(DIR, true);
        assert_eq!(next(&mut kernel).name, first.name);
        kernel.took_late(&first, Millis(12_000));
        let second = next(&mut kernel);
        kernel.took(Drop::Name(second), true);
        assert!(kernel.next_drop(SHARD, false, NOW, &mut 9).is_none() && kernel.waits_in(DIR));
        kernel.end_waits(Millis(12_000));
        assert!(kernel.is_clear(SHARD) && !kernel.waits_in(DIR));
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
        assert_eq!(all(&mut kernel, false), [Ino(7)]);
        took(&mut kernel, 7, true);
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
