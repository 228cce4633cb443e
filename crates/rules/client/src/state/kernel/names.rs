//! Names that the kernel may use without asking, and until when.
//!
//! One counts as told until its validity is over, and for so much longer as a reply may be applied late. While it is to be
//! dropped, it is told nothing. A name that is absent is never told.

use crate::limits::{
    CONTESTED_AT, CONTESTED_MS, LATE_MS, NAME_MS, STUCK_MAX, STUCK_MS, STUCK_NAME_MS, TOLD_NAMES_MAX,
};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use core::ops::Bound;
use skep_types::{Ino, Millis, ShardId};

/// A name that the kernel is to drop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NameDrop {
    pub dir: Ino,
    pub name: Arc<[u8]>,
    /// It goes with the lease on its directory, though what it leads to may be the same.
    pub with_lease: bool,
}

/// What a name led to when it was told, or may lead to now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeadsTo {
    pub ino: Ino,
    pub is_dir: bool,
}

/// What is known of one name.
#[derive(Debug, Clone, Copy)]
struct Told {
    /// Validity and margin are over then.
    until: Millis,
    to: LeadsTo,
    /// All names of that epoch are gone if a later one has begun in the kernel.
    epoch: u64,
    /// So many are about to have it dropped ...
    dropping: u32,
    /// ... and it was told again since.
    is_anew: bool,
    /// Its entry in [`ToldNames::over`].
    listed: u64,
}

#[derive(Debug, Default)]
struct Dir {
    names: BTreeMap<Arc<[u8]>, Told>,
    /// Validity of all that was told is over then, ...
    until: Millis,
    /// ... and that of names that lead to directories.
    dirs_until: Millis,
}

/// Names of a directory are told for no longer, for a while.
#[derive(Debug, Clone, Copy)]
struct Brief {
    ms: u64,
    until: Millis,
}

/// Steps towards what is long over, each time that a name may be told.
const OVER_AT_ONCE: usize = 2;

#[derive(Debug, Default)]
pub struct ToldNames {
    dirs: BTreeMap<Ino, Dir>,
    count: usize,
    /// The name by which a file was told last.
    files: BTreeMap<Ino, (Ino, Arc<[u8]>)>,
    /// When what was told of each may be over, the oldest first; with the number of the entry.
    over: VecDeque<(Millis, Ino, Arc<[u8]>, u64)>,
    entries: u64,
    /// When all that was told of a shard is over.
    shards: BTreeMap<ShardId, Millis>,
    brief: BTreeMap<Ino, Brief>,
    /// Until then names of all directories are told for a moment only.
    all_brief: Millis,
    /// Directories of which names were taken back a short while ago: how often, and when last.
    contested: BTreeMap<Ino, (u32, Millis)>,
    epoch: u64,
    /// What was told before this epoch is used no more.
    begun: u64,
    bumps: u64,
    waits: u64,
}

impl ToldNames {
    fn get(&self, dir: Ino, name: &[u8]) -> Option<&Told> {
        self.dirs.get(&dir)?.names.get(name).filter(|told| told.epoch >= self.begun)
    }

    fn get_mut(&mut self, dir: Ino, name: &[u8]) -> Option<&mut Told> {
        self.dirs.get_mut(&dir)?.names.get_mut(name)
    }

    /// May a reply make it valid?
    pub fn may_tell(&self, dir: Ino, name: &[u8]) -> bool {
        match self.dirs.get(&dir).and_then(|dir| dir.names.get(name)) {
            Some(told) => told.dropping == 0,
            None => self.count < TOLD_NAMES_MAX,
        }
    }

    /// For how many milliseconds at most a name in the directory is told.
    pub fn most(&self, dir: Ino, now: Millis) -> u64 {
        let most = if self.all_brief > now { STUCK_NAME_MS } else { NAME_MS };
        let brief = self.brief.get(&dir).filter(|brief| brief.until > now);
        brief.map_or(most, |brief| brief.ms.min(most))
    }

    /// A request holds that directory while a name in it is to be dropped.
    pub fn sticks(&mut self, dir: Ino, now: Millis) {
        self.is_brief(dir, STUCK_NAME_MS, now);
    }

    /// The lease on it is wanted back, and kept until the names that were told are over: no more are.
    pub fn is_wanted(&mut self, dir: Ino, now: Millis) {
        self.is_brief(dir, 0, now);
    }

    fn is_brief(&mut self, dir: Ino, ms: u64, now: Millis) {
        self.brief.retain(|_, brief| brief.until > now);
        if self.brief.len() < STUCK_MAX || self.brief.contains_key(&dir) {
            let brief = self.brief.entry(dir).or_insert(Brief { ms, until: now });
            *brief = Brief { ms: ms.min(brief.ms), until: now.plus(STUCK_MS) };
        }
    }

    /// A name in it is taken back. Where that goes on the lease is wanted back, and kept until names of directories are over: from
    /// now on they are told for a moment only, so that this is soon.
    pub fn is_contested(&mut self, dir: Ino, now: Millis) {
        if !self.contested.contains_key(&dir) && self.contested.len() >= STUCK_MAX {
            self.contested.retain(|_, (_, last)| now.since(*last) < CONTESTED_MS);
        }
        if self.contested.len() >= STUCK_MAX {
            return;
        }
        let (count, last) = self.contested.entry(dir).or_insert((0, now));
        *count = if now.since(*last) < CONTESTED_MS { *count + 1 } else { 1 };
        *last = now;
        if *count >= CONTESTED_AT {
            self.sticks(dir, now);
        }
    }

    /// A reply that was built makes it valid; with the margin that is over then.
    pub fn tells(&mut self, (dir, name): (Ino, &[u8]), to: LeadsTo, until: Millis) {
        let shard = self.shards.entry(dir.shard()).or_default();
        *shard = until.max(*shard);
        let (epoch, begun) = (self.epoch, self.begun);
        let of = self.dirs.entry(dir).or_default();
        of.until = until.max(of.until);
        if to.is_dir {
            of.dirs_until = until.max(of.dirs_until);
        }
        if let Some(told) = of.names.get_mut(name) {
            let is_by_this = |(of, by): &(Ino, Arc<[u8]>)| (*of, &**by) == (dir, name);
            if told.to != to && self.files.get(&told.to.ino).is_some_and(is_by_this) {
                self.files.remove(&told.to.ino);
            }
            let known = if told.epoch >= begun { told.until } else { Millis(0) };
            (told.until, told.to, told.epoch) = (known.max(until), to, epoch);
            told.is_anew = told.dropping > 0;
        } else {
            let name: Arc<[u8]> = name.into();
            self.entries += 1;
            let told = Told { until, to, epoch, dropping: 0, is_anew: false, listed: self.entries };
            of.names.insert(name.clone(), told);
            self.over.push_back((until, dir, name, self.entries));
            self.count += 1;
        }
        let key = of.names.get_key_value(name).map(|(key, _)| key.clone());
        if let Some(key) = key.filter(|_| !to.is_dir) {
            self.files.insert(to.ino, (dir, key));
        }
    }

    /// Some of what is long over goes. `true`: there may be more.
    pub fn sweep(&mut self, now: Millis) -> bool {
        for _ in 0..OVER_AT_ONCE {
            let is_over = |(until, ..): &mut (Millis, Ino, Arc<[u8]>, u64)| until.plus(LATE_MS) <= now;
            let Some((_, dir, name, number)) = self.over.pop_front_if(is_over) else { return false };
            // It may be gone, and have come again with another entry.
            let told = self.dirs.get(&dir).and_then(|dir| dir.names.get(&name));
            let Some(told) = told.filter(|told| told.listed == number) else { continue };
            if told.until.plus(LATE_MS) > now || told.dropping > 0 {
                self.over.push_back((told.until.max(now), dir, name, number));
            } else {
                self.remove(dir, &name);
            }
        }
        true
    }

    fn remove(&mut self, dir: Ino, name: &[u8]) {
        let Some(of) = self.dirs.get_mut(&dir) else { return };
        if let Some(told) = of.names.remove(name) {
            self.count -= 1;
            let is_by_this = |(of, by): &(Ino, Arc<[u8]>)| (*of, &**by) == (dir, name);
            if self.files.get(&told.to.ino).is_some_and(is_by_this) {
                self.files.remove(&told.to.ino);
            }
        }
        if of.names.is_empty() {
            self.dirs.remove(&dir);
        }
    }

    /// May the kernel use it, as far as that is to be waited for?
    pub fn uses(&self, dir: Ino, name: &[u8], now: Millis) -> bool {
        self.get(dir, name).is_some_and(|told| told.until.plus(LATE_MS) > now)
    }

    /// The same where every reply is applied in time: until when, and does it lead to a directory?
    pub fn valid_until(&self, dir: Ino, name: &[u8]) -> Option<(Millis, bool)> {
        self.get(dir, name).map(|told| (told.until, told.to.is_dir))
    }

    /// The same of all names of a directory.
    pub fn all_valid_until(&self, dir: Ino) -> Millis {
        self.dirs.get(&dir).map_or(Millis(0), |dir| dir.until)
    }

    /// Would who gives back a lease have to wait for names of that directory, which are not taken from who uses them? Those that
    /// lead to directories, or to `all` if something may be mounted there.
    pub fn outlast(&self, dir: Ino, all: bool, now: Millis) -> bool {
        self.dirs.get(&dir).is_some_and(|dir| if all { dir.until } else { dir.dirs_until } > now)
    }

    /// And of all of a shard.
    pub fn shard_valid_until(&self, shard: ShardId) -> Millis {
        self.shards.get(&shard).copied().unwrap_or_default()
    }

    /// A name by which the kernel has this file and does not ask; it may lead elsewhere by now.
    pub fn of_file(&self, ino: Ino, now: Millis) -> Option<(Ino, Arc<[u8]>)> {
        let (dir, name) = self.files.get(&ino)?;
        let is_valid = self.valid_until(*dir, name).is_some_and(|(until, _)| until > now);
        is_valid.then(|| (*dir, name.clone()))
    }

    /// The same, whether the kernel asks for it or not.
    pub fn last_of_file(&self, ino: Ino) -> Option<(Ino, Arc<[u8]>)> {
        self.files.get(&ino).cloned()
    }

    /// Who calls has it dropped, and says so ([`ToldNames::dropped`]); `None`: there is nothing to drop.
    pub fn take(&mut self, dir: Ino, name: &[u8], now: Millis) -> Option<Arc<[u8]>> {
        let is_told = self.uses(dir, name, now);
        let key = self.dirs.get(&dir)?.names.get_key_value(name).filter(|_| is_told)?.0.clone();
        self.get_mut(dir, name)?.dropping += 1;
        Some(key)
    }

    /// The name behind `after` in a directory that nobody is about to have dropped.
    pub fn next(&self, dir: Ino, after: Option<&[u8]>) -> Option<Arc<[u8]>> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut names = self.dirs.get(&dir)?.names.range::<[u8], _>((from, Bound::Unbounded));
        names.find(|(_, told)| told.dropping == 0).map(|(name, _)| name.clone())
    }

    /// It uses it no more.
    pub fn dropped(&mut self, dir: Ino, name: &[u8]) {
        let Some(told) = self.get_mut(dir, name).filter(|told| told.dropping > 0) else { return };
        told.dropping -= 1;
        if told.dropping == 0 && !core::mem::take(&mut told.is_anew) {
            self.remove(dir, name);
        }
    }

    /// It goes by time.
    pub fn not_dropped(&mut self, dir: Ino, name: &[u8]) {
        if let Some(told) = self.get_mut(dir, name) {
            told.is_anew = true;
        }
        self.dropped(dir, name);
    }

    /// An own rename is about to be sent: either name may be used as long as the other (K13).
    pub fn moves(&mut self, one: (Ino, &[u8]), two: (Ino, &[u8])) {
        let known = [one, two].map(|(dir, name)| self.get(dir, name).map(|told| (told.until, told.to)));
        let Some(until) = known.iter().flatten().map(|(until, _)| *until).max() else { return };
        let is_dir = known.iter().flatten().any(|(_, to)| to.is_dir);
        for (place, other) in [(one, known[1]), (two, known[0])] {
            let ino = other.map_or(Ino(0), |(_, to)| to.ino);
            self.tells(place, LeadsTo { ino, is_dir }, until);
        }
    }

    /// The kernel is about to drop all names at their next use. What is told from now on is of the epoch that is given.
    pub fn bumps(&mut self, now: Millis) -> u64 {
        self.epoch += 1;
        self.bumps += 1;
        // One at a time: what a bump drops is looked up again, and pages of files that nobody has open are read again.
        self.all_brief = now.plus(STUCK_MS);
        self.epoch
    }

    /// It has: nothing is used that was told before that epoch.
    pub fn bumped(&mut self, epoch: u64) {
        self.begun = self.begun.max(epoch);
    }

    /// Somebody waits until the validity of a name is over.
    pub fn waits(&mut self) {
        self.waits += 1;
    }

    /// For people: names told, epochs, and waits.
    pub fn counts(&self) -> (usize, u64, u64) {
        (self.count, self.bumps, self.waits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIR: Ino = Ino(5);
    const NOW: Millis = Millis(10_000);
    const UNTIL: Millis = Millis(11_250);

    fn to(is_dir: bool) -> LeadsTo {
        LeadsTo { ino: Ino(70), is_dir }
    }

    fn with(names: &[&[u8]]) -> ToldNames {
        let mut told = ToldNames::default();
        names.iter().for_each(|name| told.tells((DIR, name), to(false), UNTIL));
        told
    }

    /// Goal: a name is to be dropped while a reply may be applied that made it valid; meanwhile it is told nothing.
    #[test]
    fn names_are_told_until_they_are_dropped() {
        let mut told = with(&[b"a", b"b"]);
        let late = UNTIL.plus(LATE_MS);
        assert!(told.uses(DIR, b"a", Millis(late.0 - 1)) && !told.uses(DIR, b"a", late));
        assert!(!told.uses(DIR, b"c", NOW) && told.take(DIR, b"c", NOW).is_none());
        let name = told.take(DIR, b"a", NOW).unwrap();
        assert!(!told.may_tell(DIR, b"a") && told.may_tell(DIR, b"b"));
        told.take(DIR, b"a", NOW).unwrap();
        told.dropped(DIR, &name);
        assert!(!told.may_tell(DIR, b"a"), "somebody else is at it");
        told.dropped(DIR, &name);
        assert!(told.may_tell(DIR, b"a") && !told.uses(DIR, b"a", NOW));
        let name = told.take(DIR, b"b", NOW).unwrap();
        told.not_dropped(DIR, &name);
        assert!(told.may_tell(DIR, b"b") && told.uses(DIR, b"b", NOW), "it goes by time");
        assert_eq!((told.all_valid_until(DIR), told.shard_valid_until(DIR.shard())), (UNTIL, UNTIL));
        assert_eq!(
            (told.all_valid_until(Ino(6)), told.shard_valid_until(ShardId(9))),
            (Millis(0), Millis(0))
        );
    }

    /// Goal: with as many names as there is room for no further one is told, but those that are there are told on; when some
    /// are over others are told.
    #[test]
    fn no_more_names_are_told_than_there_is_room_for() {
        let name = |number: usize| (number as u64).to_be_bytes();
        let mut told = ToldNames::default();
        for number in 0..TOLD_NAMES_MAX {
            assert!(told.may_tell(DIR, &name(number)), "{number}");
            told.tells((DIR, &name(number)), to(false), UNTIL);
        }
        assert_eq!(told.counts().0, TOLD_NAMES_MAX);
        assert!(!told.may_tell(DIR, b"one more") && !told.may_tell(Ino(6), b"one more"));
        assert!(told.may_tell(DIR, &name(7)));
        told.sweep(Millis(UNTIL.plus(LATE_MS).0 - 1));
        assert!(!told.may_tell(DIR, b"one more"), "they may be used still");
        told.sweep(UNTIL.plus(LATE_MS));
        assert!(told.may_tell(DIR, b"one more") && told.counts().0 < TOLD_NAMES_MAX);
    }

    /// Goal: a renamed name is valid for as long as the one that it had, and so are two that are exchanged; who had the one dropped
    /// that was there before ends nothing of that.
    #[test]
    fn names_take_their_validity_along() {
        let mut told = with(&[b"a"]);
        told.moves((DIR, b"a"), (Ino(6), b"b"));
        assert!(told.uses(Ino(6), b"b", NOW) && told.uses(DIR, b"a", NOW));
        assert_eq!(told.of_file(Ino(70), NOW).map(|(dir, name)| (dir, name[0])), Some((Ino(6), b'b')));
        told.moves((DIR, b"x"), (DIR, b"y"));
        assert!(!told.uses(DIR, b"y", NOW));
        let taken = told.take(DIR, b"a", NOW).unwrap();
        told.moves((Ino(6), b"b"), (DIR, b"a"));
        told.dropped(DIR, &taken);
        assert!(told.uses(DIR, b"a", NOW) && told.may_tell(DIR, b"a"));
    }

    /// Goal: where names are taken back one after the other they are told for a moment only; where that is rare they are not; and
    /// no more is remembered of it than there is room for.
    #[test]
    fn contested_names_are_brief() {
        let mut told = ToldNames::default();
        let mut now = NOW;
        for _ in 0..2 * CONTESTED_AT {
            told.is_contested(DIR, now);
            assert_eq!(told.most(DIR, now), NAME_MS);
            now = now.plus(CONTESTED_MS);
        }
        for _ in 0..CONTESTED_AT {
            now = now.plus(CONTESTED_MS - 1);
            told.is_contested(DIR, now);
        }
        assert_eq!((told.most(DIR, now), told.most(Ino(6), now)), (STUCK_NAME_MS, NAME_MS));
        assert_eq!(told.most(DIR, now.plus(STUCK_MS)), NAME_MS);
        for ino in 0..2 * STUCK_MAX as u64 {
            told.is_contested(Ino(ino), now);
        }
        assert_eq!(told.contested.len(), STUCK_MAX);
    }

    /// Goal: what was told before an epoch is gone with it, and what is told meanwhile is not.
    #[test]
    fn an_epoch_takes_the_names_before_it() {
        let mut told = with(&[b"a", b"b"]);
        let taken = told.take(DIR, b"b", NOW).unwrap();
        let epoch = told.bumps(NOW);
        told.tells((DIR, b"c"), to(false), UNTIL);
        told.bumped(epoch);
        assert!(!told.uses(DIR, b"a", NOW) && !told.uses(DIR, b"b", NOW) && told.uses(DIR, b"c", NOW));
        assert!(told.may_tell(DIR, b"a") && !told.may_tell(DIR, b"b"), "it is still at it");
        told.tells((DIR, b"a"), to(true), Millis(10_500));
        assert_eq!(told.valid_until(DIR, b"a"), Some((Millis(10_500), true)));
        told.dropped(DIR, &taken);
        assert!(told.may_tell(DIR, b"b"));
    }

    /// Goal: names that are over take no room, nor does one that comes and goes; a name that is told again stays.
    #[test]
    fn what_is_over_goes() {
        let mut told = with(&[b"a", b"b", b"c", b"d"]);
        told.tells((DIR, b"b"), to(false), Millis(90_000));
        let late = UNTIL.plus(LATE_MS);
        told.tells((DIR, b"e"), to(false), Millis(90_000));
        assert!(!(0..9).all(|_| told.sweep(late)), "there is no more");
        assert_eq!((told.counts().0, told.over.len()), (2, 2));
        assert_eq!(told.next(DIR, None).as_deref(), Some(&b"b"[..]));
        assert_eq!(told.next(DIR, Some(b"b")).as_deref(), Some(&b"e"[..]));
        assert!(told.next(DIR, Some(b"e")).is_none());
        let mut told = ToldNames::default();
        for round in 0..9_000 {
            let now = late.plus(round);
            told.sweep(now);
            told.tells((DIR, b"e"), to(false), now.plus(1_250));
            let name = told.take(DIR, b"e", now).unwrap();
            told.dropped(DIR, &name);
        }
        assert!(told.over.len() < 5_300, "{}", told.over.len());
        assert_eq!((told.counts().0, told.files.len(), told.dirs.len()), (0, 0, 0));
        // A name that leads to other files, one after the other, keeps none of them.
        for ino in 100..200 {
            told.tells((DIR, b"e"), LeadsTo { ino: Ino(ino), is_dir: false }, UNTIL);
        }
        assert_eq!(told.files.len(), 1);
    }

    /// Goal: names of a directory whose lock was held are told for a moment only, for a while, and after an epoch those of all; no
    /// more directories are remembered than there may be.
    #[test]
    fn brief_directories() {
        let mut told = ToldNames::default();
        told.sticks(DIR, NOW);
        let later = NOW.plus(STUCK_MS);
        assert_eq!([DIR, Ino(6)].map(|dir| told.most(dir, NOW)), [STUCK_NAME_MS, NAME_MS]);
        assert_eq!(told.most(DIR, later), NAME_MS);
        told.bumps(NOW);
        assert_eq!((told.most(Ino(6), NOW), told.most(Ino(6), later)), (STUCK_NAME_MS, NAME_MS));
        (0..2 * STUCK_MAX as u64).for_each(|ino| told.sticks(Ino(ino), NOW));
        assert_eq!(told.brief.len(), STUCK_MAX);
        told.sticks(Ino(7), later);
        assert_eq!(told.brief.len(), 1);
    }
}
