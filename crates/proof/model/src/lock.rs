//! Advisory locks: byte ranges (`fcntl`) and whole files (`flock`), each owner against all others.

use crate::fs::Fs;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use skep_types::{Errno, Ino};

/// The last byte that a lock can reach: "to the end, wherever that will be".
pub const LOCK_END: u64 = i64::MAX as u64;

/// Which locks exclude each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LockSpace {
    /// Byte ranges: `fcntl`, owned by a process or an open file.
    Range,
    /// Whole files: `flock`, owned by an open file.
    Whole,
}

/// A lock that an owner holds, without the owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct LockFound {
    /// Excludes everybody (not: readers share it).
    pub exclusive: bool,
    /// First byte.
    pub start: u64,
    /// Last byte.
    pub last: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Held {
    owner: u64,
    lock: LockFound,
}

impl Held {
    fn conflicts(&self, owner: u64, exclusive: bool, (start, last): (u64, u64)) -> bool {
        let meet = self.lock.start <= last && start <= self.lock.last;
        self.owner != owner && meet && (exclusive || self.lock.exclusive)
    }
}

impl Fs {
    /// Locks of others that stand against this one, side by side ranges of one owner as one.
    pub fn lock_conflicts(
        &self,
        (ino, space): (Ino, LockSpace),
        owner: u64,
        exclusive: bool,
        range: (u64, u64),
    ) -> BTreeSet<LockFound> {
        let held = self.locks.get(&(ino, space)).map_or(&[][..], Vec::as_slice);
        held.iter().filter(|held| held.conflicts(owner, exclusive, range)).map(|held| held.lock).collect()
    }

    /// Takes a lock, changes it, or (`None`) gives it up. EAGAIN when it conflicts. A whole-file lock that cannot be
    /// changed is lost, as Linux documents.
    pub fn set_lock(
        &mut self,
        place: (Ino, LockSpace),
        owner: u64,
        exclusive: Option<bool>,
        range: (u64, u64),
    ) -> Result<(), Errno> {
        self.inode(place.0)?;
        let is_same = |held: &Held| held.owner == owner && Some(held.lock.exclusive) == exclusive;
        if place.1 == LockSpace::Whole {
            let held = self.locks.entry(place).or_default();
            if held.iter().any(is_same) {
                return Ok(());
            }
            held.retain(|held| held.owner != owner);
        }
        if let Some(exclusive) = exclusive
            && !self.lock_conflicts(place, owner, exclusive, range).is_empty()
        {
            return Err(Errno::EAGAIN);
        }
        let held = self.locks.entry(place).or_default();
        cut_out(held, owner, range);
        if let Some(exclusive) = exclusive {
            held.push(Held { owner, lock: LockFound { exclusive, start: range.0, last: range.1 } });
            join(held, owner);
        }
        self.locks.retain(|_, held| !held.is_empty());
        Ok(())
    }

    /// An owner is gone: its locks on the file are.
    pub fn drop_locks(&mut self, ino: Ino, owner: u64) {
        for space in [LockSpace::Range, LockSpace::Whole] {
            if let Some(held) = self.locks.get_mut(&(ino, space)) {
                held.retain(|held| held.owner != owner);
            }
        }
        self.locks.retain(|_, held| !held.is_empty());
    }
}

/// Takes a range from what an owner holds.
fn cut_out(held: &mut Vec<Held>, owner: u64, (start, last): (u64, u64)) {
    let mut left = Vec::new();
    for one in held.drain(..) {
        let lock = one.lock;
        if one.owner != owner || lock.last < start || last < lock.start {
            left.push(one);
            continue;
        }
        if lock.start < start {
            left.push(Held { lock: LockFound { last: start - 1, ..lock }, ..one });
        }
        if lock.last > last {
            left.push(Held { lock: LockFound { start: last + 1, ..lock }, ..one });
        }
    }
    *held = left;
}

/// Makes one lock of those of an owner that are of one kind and side by side.
fn join(held: &mut Vec<Held>, owner: u64) {
    held.sort_by_key(|held| (held.owner, held.lock.start));
    let mut joined: Vec<Held> = Vec::new();
    for one in held.drain(..) {
        match joined.last_mut() {
            Some(before)
                if one.owner == owner
                    && before.owner == owner
                    && before.lock.exclusive == one.lock.exclusive
                    && before.lock.last + 1 == one.lock.start =>
            {
                before.lock.last = one.lock.last;
            }
            _ => joined.push(one),
        }
    }
    *held = joined;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rng;
    use crate::namespace::tests::{call, name, root};

    /// Goal: ranges agree, byte by byte, with an array of who holds what.
    #[test]
    fn ranges_agree_with_an_array() {
        let mut fs = root();
        let ino = fs.create(Ino::ROOT, &name("f"), 0o644, call(2)).unwrap();
        let place = (ino, LockSpace::Range);
        let mut rng = Rng::new(3);
        // Of each byte and owner: none, shared, exclusive.
        let mut plain = [[None::<bool>; 4]; 40];
        for _ in 0..20_000 {
            let (owner, start) = (rng.below(4), rng.below(40));
            let last = start + rng.below(40 - start);
            let kind = rng.pick(&[None, Some(false), Some(false), Some(true)]);
            let bytes = start as usize..=last as usize;
            let against = |(other, held): (usize, &Option<bool>)| {
                other as u64 != owner && held.is_some_and(|exclusive| exclusive || kind == Some(true))
            };
            let blocked =
                kind.is_some() && bytes.clone().any(|byte| plain[byte].iter().enumerate().any(against));
            let told = fs.set_lock(place, owner, kind, (start, last));
            assert_eq!(told, if blocked { Err(Errno::EAGAIN) } else { Ok(()) });
            if !blocked {
                bytes.for_each(|byte| plain[byte][owner as usize] = kind);
            }
            let exclusive = kind == Some(true);
            let conflicts = fs.lock_conflicts(place, owner, exclusive, (start, last));
            for found in conflicts {
                let whole = |byte: u64| plain[byte as usize].contains(&Some(found.exclusive));
                assert!((found.start..=found.last).all(whole), "{found:?}");
            }
        }
    }

    /// Goal: a whole-file lock that cannot be changed is lost; a dropped owner holds nothing.
    #[test]
    fn whole_files() {
        let mut fs = root();
        let ino = fs.create(Ino::ROOT, &name("f"), 0o644, call(2)).unwrap();
        let place = (ino, LockSpace::Whole);
        let all = (0, LOCK_END);
        fs.set_lock(place, 1, Some(false), all).unwrap();
        fs.set_lock(place, 2, Some(false), all).unwrap();
        assert_eq!(fs.set_lock(place, 1, Some(true), all), Err(Errno::EAGAIN));
        fs.set_lock(place, 2, Some(true), all).unwrap();
        assert_eq!(fs.set_lock(place, 1, Some(false), all), Err(Errno::EAGAIN));
        fs.set_lock((ino, LockSpace::Range), 1, Some(true), all).unwrap();
        fs.drop_locks(ino, 2);
        fs.set_lock(place, 1, Some(true), all).unwrap();
    }
}
