//! Inodes that several clients keep changing: nobody is lent them for a while, so that a change costs no more than without
//! leases.

use crate::limit::BUSY_MAX;
use alloc::collections::BTreeMap;
use skep_types::{ClientId, Ino, Millis};

/// What a recall adds to the heat of its inode.
const HOT: u64 = 1 << 20;
/// With so much of it the inode is busy.
const BUSY: u64 = 8 * HOT;
/// Half of it is left after so long.
const HALF_MS: u64 = 2_500;
/// So long after the last conflict it is busy no more.
const QUIET_MS: u64 = 10_000;

#[derive(Debug, Clone, Copy)]
struct Heat {
    of: u64,
    at: Millis,
    until: Millis,
    changed_by: ClientId,
    /// Somebody else asked since: with a lease the next change would have to be told to him.
    asked: bool,
}

impl Heat {
    fn now(&self, now: Millis) -> u64 {
        let halvings = (now.since(self.at) / HALF_MS).min(63);
        // Between two halvings as good as straight.
        let left = self.of >> halvings;
        left - left * (now.since(self.at) % HALF_MS) / (2 * HALF_MS)
    }
}

#[derive(Debug, Default)]
pub struct Busy {
    inos: BTreeMap<Ino, Heat>,
}

impl Busy {
    /// Something is taken back for `client`.
    pub fn recalls(&mut self, ino: Ino, client: ClientId, now: Millis) {
        if self.inos.len() >= BUSY_MAX && !self.inos.contains_key(&ino) {
            self.forget(now);
        }
        let new = Heat { of: 0, at: now, until: Millis(0), changed_by: client, asked: false };
        let heat = self.inos.entry(ino).or_insert(new);
        *heat = Heat { of: heat.now(now) + HOT, at: now, changed_by: client, ..*heat };
        if heat.of >= BUSY {
            heat.until = now.plus(QUIET_MS);
        }
    }

    /// Room for more: what is cold, or else the one with the lowest number.
    fn forget(&mut self, now: Millis) {
        self.inos.retain(|_, heat| now < heat.until || heat.now(now) >= HOT / 2);
        if self.inos.len() >= BUSY_MAX {
            self.inos.pop_first();
        }
    }

    /// Is nobody to be lent it?
    pub fn is_busy(&self, ino: Ino, now: Millis) -> bool {
        self.inos.get(&ino).is_some_and(|heat| now < heat.until)
    }

    /// `client` asks for it.
    pub fn asks(&mut self, ino: Ino, client: ClientId) {
        if let Some(heat) = self.inos.get_mut(&ino) {
            heat.asked |= heat.changed_by != client;
        }
    }

    /// `client` changes it: was that a conflict?
    pub fn changes(&mut self, ino: Ino, client: ClientId, now: Millis) {
        if let Some(heat) = self.inos.get_mut(&ino)
            && now < heat.until
        {
            if heat.asked {
                heat.until = now.plus(QUIET_MS);
            }
            (heat.changed_by, heat.asked) = (client, false);
        }
    }

    pub fn is_empty(&self) -> bool {
        self.inos.is_empty()
    }

    /// Those that are busy.
    pub fn len(&self, now: Millis) -> usize {
        self.inos.values().filter(|heat| now < heat.until).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIR: Ino = Ino(7);
    const ONE: ClientId = ClientId(1);
    const OTHER: ClientId = ClientId(2);

    /// Goal: two conflicts a second are no reason, more are; ten seconds after the last one it is over, however much one client
    /// alone changes there.
    #[test]
    fn busy_by_conflicts_only() {
        let mut busy = Busy::default();
        let mut now = Millis(1_000);
        for _ in 0..100 {
            busy.recalls(DIR, ONE, now);
            now.0 += 550;
        }
        assert!(!busy.is_busy(DIR, now));
        for _ in 0..20 {
            busy.recalls(DIR, ONE, now);
            now.0 += 250;
        }
        assert!(busy.is_busy(DIR, now));
        for _ in 0..100 {
            now.0 += 500;
            busy.asks(DIR, OTHER);
            busy.changes(DIR, ONE, now);
            assert!(busy.is_busy(DIR, now), "with leases each of these would be a conflict");
        }
        for _ in 0..19 {
            now.0 += 500;
            busy.asks(DIR, ONE);
            busy.changes(DIR, ONE, now);
            assert!(busy.is_busy(DIR, now));
        }
        now.0 += 500;
        assert!(!busy.is_busy(DIR, now));
    }

    /// Goal: what is remembered is bounded, and what is busy stays.
    #[test]
    fn bounded() {
        let mut busy = Busy::default();
        let now = Millis(1_000);
        let last = Ino(u64::MAX);
        (0..8).for_each(|_| busy.recalls(last, ONE, now));
        for ino in 0..2 * BUSY_MAX as u64 {
            busy.recalls(Ino(ino), ONE, now.plus(ino * HALF_MS * 2));
        }
        assert!(busy.inos.len() <= BUSY_MAX);
        let mut busy = Busy::default();
        (0..8).for_each(|_| busy.recalls(last, ONE, now));
        (0..2 * BUSY_MAX as u64).for_each(|ino| busy.recalls(Ino(ino), ONE, now));
        assert!(busy.inos.len() <= BUSY_MAX && busy.is_busy(last, now));
    }
}
