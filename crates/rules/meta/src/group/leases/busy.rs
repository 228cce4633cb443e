//! Inodes that several clients keep changing. Who has one and does not look at it any more is to give it back, so that
//! whoever changes it is alone with it. Where others come back for it all the same, nobody is lent it for a while: a change
//! then costs no more than without leases.

use crate::limit::{BUSY_AT, BUSY_MAX};
use alloc::collections::{BTreeMap, VecDeque};
use skep_types::{ClientId, Ino, Millis};

/// What a recall adds to the heat of its inode.
const HOT: u64 = 1 << 20;
/// A wait for one adds as much for each time that it took so long: so where confirmations are slow it takes fewer changes.
const WAIT_MS: u64 = 125;
/// As if it had taken no longer: one long pause of a mount is no reason.
const WAIT_COUNTS_MS: u64 = 1_000;
/// Half of it is left after so long.
const HALF_MS: u64 = 2_500;
/// What is left after each tenth of that, in 65,536ths.
const LEFT: [u64; 11] =
    [65_536, 61_147, 57_052, 53_232, 49_667, 46_341, 43_238, 40_342, 37_641, 35_120, 32_768];
const STEP_MS: u64 = HALF_MS / 10;
/// So often is an inode wanted back before it is busy.
const CHANCES: u64 = 2;
/// Who was told that it is wanted back, and has it still after so long, does not know what that means, or cannot do it.
const KEPT_MS: u64 = 1_500;
/// So many are looked at for one that may be forgotten.
const LOOKS: usize = 8;
/// So long after the last conflict it is busy no more.
const QUIET_MS: u64 = 10_000;

#[derive(Debug, Clone, Copy, Default)]
struct Heat {
    of: u64,
    at: Millis,
    until: Millis,
    /// The last wait for it that counts, from and to.
    waited: (Millis, Millis),
    changed_by: ClientId,
    /// Somebody else asked since: with a lease the next change would have to be told to him.
    asked: bool,
    /// Number of the last recall by which it was wanted back of somebody who had come for it since the one before, ...
    wanted: u64,
    /// ... and since when that goes on.
    wanted_since: Millis,
}

impl Heat {
    fn now(&self, now: Millis) -> u64 {
        let since = now.since(self.at);
        let (halvings, rest) = ((since / HALF_MS).min(63), since % HALF_MS);
        let (step, within) = ((rest / STEP_MS) as usize, rest % STEP_MS);
        // Within a step as good as straight.
        let left = LEFT[step] - (LEFT[step] - LEFT[step + 1]) * within / STEP_MS;
        ((self.of >> halvings) * left) >> 16
    }
}

/// What so long a wait adds.
fn counts(ms: u64) -> u64 {
    ms.min(WAIT_COUNTS_MS) / WAIT_MS * HOT
}

#[derive(Debug)]
pub struct Busy {
    /// With so much heat an inode is wanted back.
    wanted_at: u64,
    /// With so much it is busy.
    at: u64,
    inos: BTreeMap<Ino, Heat>,
    /// The same, about as old as they are.
    order: VecDeque<Ino>,
    /// Nothing is busy from then on.
    until: Millis,
}

impl Default for Busy {
    fn default() -> Self {
        Self::new(BUSY_AT)
    }
}

impl Busy {
    /// With so many recalls at once an inode is busy.
    pub fn new(at: u64) -> Self {
        let wanted_at = at.saturating_sub(CHANCES) * HOT;
        Self { wanted_at, at: at * HOT, inos: BTreeMap::new(), order: VecDeque::new(), until: Millis(0) }
    }

    /// Something is taken back for `client`, by recalls up to this number.
    pub fn recalls(&mut self, ino: Ino, client: ClientId, number: u64, now: Millis) {
        if !self.inos.contains_key(&ino) {
            if self.inos.len() >= BUSY_MAX {
                self.forget_one(now);
            }
            self.order.push_back(ino);
        }
        let new = Heat { at: now, changed_by: client, ..Heat::default() };
        let is_wanted = self.is_wanted(ino, now);
        let heat = self.inos.entry(ino).or_insert(new);
        heat.changed_by = client;
        if now.since(heat.at) >= KEPT_MS {
            // Who kept it then had no more reason to give it back.
            heat.wanted = 0;
        }
        if is_wanted {
            // Whoever had it for that long has just been told to give up all of it.
            if heat.wanted == 0 || now.since(heat.wanted_since) >= KEPT_MS {
                heat.wanted_since = now;
            }
            heat.wanted = number;
        }
        let of = heat.now(now) + HOT;
        self.heats(ino, of, now);
    }

    /// Was it lent by this grant before it was wanted back? Who still keeps it then is not another conflict with each change.
    pub fn is_kept(&self, ino: Ino, grant: u64) -> bool {
        self.inos.get(&ino).is_some_and(|heat| grant < heat.wanted)
    }

    /// Was that so long ago that it is to be taken from him, whatever he waits for?
    pub fn is_overdue(&self, ino: Ino, grant: u64, now: Millis) -> bool {
        let is_overdue = |heat: &Heat| grant < heat.wanted && now.since(heat.wanted_since) >= KEPT_MS;
        self.inos.get(&ino).is_some_and(is_overdue)
    }

    /// What was taken back at `since` was confirmed: so long changes waited for it. What several holders keep waiting at the same
    /// time is one wait, however many they are. No more than makes it busy.
    pub fn waited(&mut self, ino: Ino, since: Millis, now: Millis) {
        let Some(heat) = self.inos.get_mut(&ino) else { return };
        let (from, to) = heat.waited;
        let (from, counted) = if since <= from { (from, counts(to.since(from))) } else { (since.max(to), 0) };
        let more = counts(now.since(from)).saturating_sub(counted);
        if more > 0 {
            heat.waited = (from, now);
            let of = heat.now(now);
            self.heats(ino, of.max(self.at.min(of + more)), now);
        }
    }

    fn heats(&mut self, ino: Ino, of: u64, now: Millis) {
        let Some(heat) = self.inos.get_mut(&ino) else { return };
        (heat.of, heat.at) = (of, now);
        if of >= self.at {
            heat.until = now.plus(QUIET_MS);
            self.until = heat.until;
        }
    }

    /// Room for one more: an old one that is not busy, if there is one.
    fn forget_one(&mut self, now: Millis) {
        for _ in 0..LOOKS {
            let Some(old) = self.order.pop_front() else { return };
            if !self.is_busy(old, now) {
                self.inos.remove(&old);
                return;
            }
            self.order.push_back(old);
        }
        self.order.pop_front().map(|old| self.inos.remove(&old));
    }

    /// Are those who have it to give it back?
    pub fn is_wanted(&self, ino: Ino, now: Millis) -> bool {
        self.is_busy(ino, now) || self.inos.get(&ino).map_or(0, |heat| heat.now(now)) >= self.wanted_at
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
                self.until = heat.until;
            }
            (heat.changed_by, heat.asked) = (client, false);
        }
    }

    /// Is anything?
    pub fn is_any(&self, now: Millis) -> bool {
        now < self.until
    }

    /// Those that are busy.
    pub fn len(&self, now: Millis) -> usize {
        self.inos.values().filter(|heat| now < heat.until).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

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
            busy.recalls(DIR, ONE, 1, now);
            now.0 += 550;
        }
        assert!(!busy.is_busy(DIR, now));
        for _ in 0..20 {
            busy.recalls(DIR, ONE, 1, now);
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

    /// Goal: one long wait is no reason, however long; a second one soon after is, and one behind some changes that waited for
    /// nothing. Not so waits that are short, or far from one another; nor is one for something that was forgotten.
    #[test]
    fn busy_by_long_waits() {
        for (wait, pause, waits) in
            [(750, 0, 2), (750, 1_000, 2), (4_000, 0, 2), (9_000, 0, 100), (120, 300, 100), (250, 2_000, 100)]
        {
            let (mut busy, mut now) = (Busy::default(), Millis(1_000));
            for n in 1..=waits {
                busy.recalls(DIR, ONE, 1, now);
                assert!(!busy.is_busy(DIR, now), "{wait} {pause} {n}");
                now.0 += wait;
                busy.waited(DIR, Millis(now.0 - wait), now);
                let is_over = n == waits && waits == 2;
                assert_eq!(busy.is_busy(DIR, now), is_over, "{wait} {pause} {n}");
                now.0 += pause;
            }
            assert!(busy.inos[&DIR].of <= BUSY_AT * HOT);
        }
        let (mut busy, now) = (Busy::default(), Millis(1_000));
        (0..8).for_each(|_| busy.recalls(DIR, ONE, 1, now));
        busy.recalls(DIR, ONE, 1, now);
        busy.waited(DIR, now, now.plus(750));
        assert!(busy.is_busy(DIR, now.plus(750)));
        let mut busy = Busy::default();
        busy.waited(DIR, Millis(10_000), Millis(70_000));
        assert_eq!((busy.inos.len(), busy.is_any(Millis(70_000))), (0, false));
    }

    /// Goal: holders that keep one change waiting at the same time are one wait, whenever each of them confirms; what is waited for
    /// the next change counts anew.
    #[test]
    fn waits_at_the_same_time_are_one() {
        for confirms in [vec![1_000; 20], vec![125; 10], (1..=20).map(|n| n * 200).collect()] {
            let (mut busy, begun) = (Busy::default(), Millis(1_000));
            busy.recalls(DIR, ONE, 1, begun);
            for ms in &confirms {
                busy.waited(DIR, begun, begun.plus(*ms));
            }
            let now = begun.plus(confirms[confirms.len() - 1]);
            assert!(!busy.is_busy(DIR, now), "{confirms:?}");
            busy.recalls(DIR, ONE, 1, now);
            busy.waited(DIR, now, now.plus(1_000));
            assert!(busy.is_busy(DIR, now.plus(1_000)), "{confirms:?}");
        }
        // Changes that begin while others wait: what lies behind is a wait as well.
        let (mut busy, mut now) = (Busy::default(), Millis(1_000));
        busy.recalls(DIR, ONE, 1, now);
        for _ in 0..4 {
            busy.recalls(DIR, ONE, 1, now.plus(250));
            busy.waited(DIR, now, now.plus(500));
            now.0 += 250;
        }
        assert!(busy.is_busy(DIR, now.plus(250)));
    }

    /// Goal: what is remembered is bounded, and what is busy stays.
    #[test]
    fn bounded() {
        let (mut busy, now, first) = (Busy::default(), Millis(1_000), Ino(u64::MAX));
        (0..BUSY_AT).for_each(|_| busy.recalls(first, ONE, 1, now));
        (0..2 * BUSY_MAX as u64).for_each(|ino| busy.recalls(Ino(ino), ONE, 1, now));
        assert_eq!((busy.inos.len(), busy.order.len(), busy.len(now)), (BUSY_MAX, BUSY_MAX, 1));
        assert!(busy.is_busy(first, now));
    }
}
