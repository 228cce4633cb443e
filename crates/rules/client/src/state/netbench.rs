//! Directories in which the network is measured without the disks.
//!
//! What is made in such a directory, through this mount and while its lease runs, carries the mark; chunks of a
//! marked file are neither written nor read by the targets. Nothing else is ever marked, so nobody's data can be
//! harmed; when the lease ends, marked files are ordinary ones full of holes. What is marked gets no name outside
//! of the directory: this mount refuses it, and what another mount gave a name there loses the mark when it is found.

use alloc::collections::BTreeMap;
use skep_types::{Errno, Ino, Millis};

/// Longest lease of one renewal: a program that is killed leaves the mode on for no longer.
pub const NETBENCH_LEASE_MAX_MS: u64 = 10_000;
/// A directory is measured in for no longer than this, however often its lease is renewed.
pub const NETBENCH_TOTAL_MAX_MS: u64 = 600_000;
/// Directories measured in at once.
pub const NETBENCH_DIRS_MAX: usize = 16;
/// Files and directories marked at once; what is made beyond it is ordinary.
pub const NETBENCH_MARKS_MAX: usize = 1 << 16;

/// One directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    /// When it began.
    pub since: Millis,
    /// When it ends unless it is renewed.
    pub until: Millis,
    /// What was made in it and got no mark, for there were too many: it is ordinary.
    pub unmarked: u64,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Netbench {
    leases: BTreeMap<Ino, Lease>,
    /// What was made below them, and below which.
    marked: BTreeMap<Ino, Ino>,
}

impl Netbench {
    /// Directories and their leases.
    pub fn leases(&self) -> impl Iterator<Item = (Ino, Lease)> {
        self.leases.iter().map(|(dir, lease)| (*dir, *lease))
    }

    /// Is this directory measured in?
    pub fn has(&self, dir: Ino) -> bool {
        self.leases.contains_key(&dir)
    }

    /// Begins or goes on. `true`: it began.
    pub fn renew(&mut self, dir: Ino, now: Millis, ms: u64) -> Result<bool, Errno> {
        if ms > NETBENCH_LEASE_MAX_MS {
            return Err(Errno::EINVAL);
        }
        if let Some(lease) = self.leases.get_mut(&dir) {
            let end = lease.since.plus(NETBENCH_TOTAL_MAX_MS);
            if now >= end {
                return Err(Errno::ETIMEDOUT);
            }
            lease.until = now.plus(ms).min(end);
            return Ok(false);
        }
        if self.leases.len() >= NETBENCH_DIRS_MAX {
            return Err(Errno::EBUSY);
        }
        self.leases.insert(dir, Lease { since: now, until: now.plus(ms), unmarked: 0 });
        Ok(true)
    }

    /// Ends it. `false`: it was not on.
    pub fn end(&mut self, dir: Ino) -> bool {
        self.marked.retain(|_, of| *of != dir);
        self.leases.remove(&dir).is_some()
    }

    /// Ends those whose lease has run out; gives them.
    pub fn expire(&mut self, now: Millis) -> alloc::vec::Vec<Ino> {
        let over: alloc::vec::Vec<Ino> =
            self.leases.iter().filter(|(_, lease)| lease.until <= now).map(|(dir, _)| *dir).collect();
        for dir in &over {
            self.end(*dir);
        }
        over
    }

    /// Something was made in `parent`: it is marked if that is measured in.
    pub fn made(&mut self, parent: Ino, ino: Ino, now: Millis) {
        if self.leases.is_empty() {
            return;
        }
        let Some(dir) = self.dir_of(parent) else { return };
        let Some(lease) = self.leases.get_mut(&dir).filter(|lease| now < lease.until) else { return };
        if self.marked.len() >= NETBENCH_MARKS_MAX {
            lease.unmarked = lease.unmarked.saturating_add(1);
        } else {
            self.marked.insert(ino, dir);
        }
    }

    fn dir_of(&self, ino: Ino) -> Option<Ino> {
        if self.leases.contains_key(&ino) { Some(ino) } else { self.marked.get(&ino).copied() }
    }

    /// Is it marked? Then its name may not leave the directories of its own mark.
    pub fn keeps(&self, ino: Ino, to_parent: Ino) -> bool {
        self.marked.get(&ino).is_some_and(|dir| self.dir_of(to_parent) != Some(*dir))
    }

    /// May something that is here, if it is marked, not leave? Marks are few, and mostly there are none.
    pub fn is_inside(&self, parent: Ino) -> bool {
        !self.marked.is_empty() && self.dir_of(parent).is_some()
    }

    /// Is it marked: made in a directory that is measured in, through this mount, while it was?
    pub fn is_marked(&self, ino: Ino) -> bool {
        self.marked.contains_key(&ino)
    }

    /// Something was found in `parent`: outside of its directory it is an ordinary file from now on.
    pub fn found(&mut self, parent: Ino, ino: Ino) {
        if self.keeps(ino, parent) {
            self.marked.remove(&ino);
        }
    }

    /// Until when chunks of this file are not for the disks.
    pub fn until(&self, ino: Ino) -> Option<Millis> {
        if self.leases.is_empty() {
            return None;
        }
        self.leases.get(self.marked.get(&ino)?).map(|lease| lease.until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIR: Ino = Ino(10);

    /// Goal: only what is made below the directory while the lease runs is marked, at every depth, and nothing
    /// is marked any more when it has run out.
    #[test]
    fn marks_and_their_end() {
        let mut bench = Netbench::default();
        bench.made(DIR, Ino(11), Millis(0));
        assert!(bench.until(Ino(11)).is_none(), "made before");
        assert_eq!(bench.renew(DIR, Millis(0), 5_000), Ok(true));
        bench.made(DIR, Ino(12), Millis(10));
        bench.made(Ino(12), Ino(13), Millis(10));
        bench.made(Ino(99), Ino(14), Millis(10));
        assert_eq!(bench.until(Ino(12)), Some(Millis(5_000)));
        assert_eq!(bench.until(Ino(13)), Some(Millis(5_000)));
        assert!(bench.until(Ino(14)).is_none() && bench.until(Ino(11)).is_none());
        assert!(bench.until(DIR).is_none(), "the directory itself has no content");
        assert_eq!(bench.renew(DIR, Millis(4_000), 5_000), Ok(false));
        assert!(bench.expire(Millis(8_999)).is_empty());
        bench.made(DIR, Ino(15), Millis(9_000));
        assert!(bench.until(Ino(15)).is_none(), "made when the lease was over");
        assert_eq!(bench.expire(Millis(9_000)), [DIR]);
        assert!(bench.until(Ino(12)).is_none() && !bench.has(DIR) && bench.marked.is_empty());
        assert!(!bench.end(DIR));
    }

    /// Goal: what is marked stays below its directory, and loses the mark when it is found elsewhere; what is not
    /// goes where it likes.
    #[test]
    fn marks_stay_inside() {
        let mut bench = Netbench::default();
        bench.renew(DIR, Millis(0), 5_000).unwrap();
        bench.renew(Ino(20), Millis(0), 5_000).unwrap();
        for (parent, ino) in [(DIR, 12), (Ino(12), 13), (DIR, 14)] {
            bench.made(parent, Ino(ino), Millis(10));
        }
        for (ino, parent, stays) in
            [(13, 12, false), (13, 10, false), (13, 1, true), (13, 20, true), (99, 1, false)]
        {
            assert_eq!(bench.keeps(Ino(ino), Ino(parent)), stays, "{ino} to {parent}");
        }
        assert!(bench.is_inside(DIR) && bench.is_inside(Ino(12)) && !bench.is_inside(Ino(1)));
        bench.found(DIR, Ino(14));
        assert!(bench.is_marked(Ino(14)));
        bench.found(Ino(1), Ino(14));
        assert!(!bench.is_marked(Ino(14)) && bench.until(Ino(14)).is_none());
        bench.found(Ino(1), Ino(12));
        bench.found(Ino(12), Ino(13));
        assert!(!bench.is_marked(Ino(13)), "with the directory what is in it");
        bench.end(DIR);
        assert!(!bench.is_inside(Ino(12)));
    }

    /// Goal: what is made beyond the limit is ordinary, and counted.
    #[test]
    fn too_many_are_counted() {
        let mut bench = Netbench::default();
        bench.renew(DIR, Millis(0), 5_000).unwrap();
        let unmarked = |bench: &Netbench| bench.leases().next().unwrap().1.unmarked;
        let most = NETBENCH_MARKS_MAX as u64;
        (0..most).for_each(|n| bench.made(DIR, Ino(100 + n), Millis(1)));
        assert_eq!((bench.marked.len(), unmarked(&bench)), (NETBENCH_MARKS_MAX, 0));
        bench.made(DIR, Ino(100 + most), Millis(1));
        bench.made(Ino(9), Ino(101 + most), Millis(1));
        bench.made(DIR, Ino(102 + most), Millis(5_000));
        assert!(!bench.is_marked(Ino(100 + most)));
        assert_eq!(unmarked(&bench), 1, "neither elsewhere nor afterwards");
    }

    /// Goal: neither a long lease nor endless renewal keeps the mode on.
    #[test]
    fn it_cannot_be_left_on() {
        let mut bench = Netbench::default();
        assert_eq!(bench.renew(DIR, Millis(0), NETBENCH_LEASE_MAX_MS + 1), Err(Errno::EINVAL));
        let mut now = 0;
        while now < NETBENCH_TOTAL_MAX_MS {
            bench.renew(DIR, Millis(now), NETBENCH_LEASE_MAX_MS).unwrap();
            now += NETBENCH_LEASE_MAX_MS / 2;
        }
        assert_eq!(bench.renew(DIR, Millis(now), 1), Err(Errno::ETIMEDOUT));
        assert_eq!(bench.expire(Millis(now)), [DIR]);
        for dir in 0..NETBENCH_DIRS_MAX as u64 {
            bench.renew(Ino(100 + dir), Millis(0), 1).unwrap();
        }
        assert_eq!(bench.renew(DIR, Millis(0), 1), Err(Errno::EBUSY));
    }
}
