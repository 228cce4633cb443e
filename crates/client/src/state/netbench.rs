//! Directories in which the network is measured without the disks.
//!
//! What is made in such a directory, through this mount and while its lease runs, carries the mark; chunks of a
//! marked file are neither written nor read by the targets. Nothing else is ever marked, so nobody's data can be
//! harmed; when the lease ends, marked files are ordinary ones full of holes.

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
        self.leases.insert(dir, Lease { since: now, until: now.plus(ms) });
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
        if self.leases.is_empty() || self.marked.len() >= NETBENCH_MARKS_MAX {
            return;
        }
        let Some(dir) = self.dir_of(parent) else { return };
        if self.leases.get(&dir).is_some_and(|lease| now < lease.until) {
            self.marked.insert(ino, dir);
        }
    }

    fn dir_of(&self, ino: Ino) -> Option<Ino> {
        if self.leases.contains_key(&ino) { Some(ino) } else { self.marked.get(&ino).copied() }
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
