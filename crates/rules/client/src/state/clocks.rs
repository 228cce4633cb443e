//! What is known of the clocks of targets: until when a put counts is said by the clock of whom it goes to. See
//! `docs/design/gathering.md`, section 4.

use alloc::collections::BTreeMap;
use skep_types::{Millis, TargetId};
use skep_wire::storage::Clock;

/// Clocks differ in what they take for a second by less than this part of it (as for leases).
const RATE_PART: u64 = 100;
/// Both clocks leave out what is less than a millisecond.
const GRAIN_MS: u64 = 2;

/// What a target's clock showed, and when that was read, by the clock of this mount that goes on while the machine sleeps. It may
/// have shown it earlier, never later.
#[derive(Debug, Clone, Copy)]
struct Seen {
    clock: Clock,
    read: Millis,
}

impl Seen {
    /// It shows no less than this when it is `at` here: however long the answer took, and however slowly it goes.
    fn at_least(&self, at: Millis) -> u64 {
        let since = at.since(self.read);
        self.clock.ms.saturating_add(since - since.div_ceil(RATE_PART))
    }
}

#[derive(Debug, Default)]
pub struct Clocks {
    seen: BTreeMap<TargetId, Seen>,
}

impl Clocks {
    /// A target has told what its clock showed; it was read `now` at the latest. `None`: it tells nobody.
    pub fn is_told(&mut self, target: TargetId, clock: Option<Clock>, now: Millis) {
        let Some(clock) = clock else {
            self.seen.remove(&target);
            return;
        };
        // An answer that was long on its way says less than what is known.
        let says_more = |seen: &Seen| seen.clock.run == clock.run && seen.at_least(now) >= clock.ms;
        if !self.seen.get(&target).is_some_and(says_more) {
            self.seen.insert(target, Seen { clock, read: now });
        }
    }

    /// What it shows when it is `at` here, or less. (If that was over when the clock was read: less than it showed already, so
    /// that nothing lands which is sent from now on.) Where nothing is known, what no run of a daemon shows: the target refuses what
    /// is to be there by then, and says what it shows. (One that cannot tell lets it in.)
    pub fn at(&self, target: TargetId, at: Millis) -> Clock {
        let Some(seen) = self.seen.get(&target) else { return Clock::default() };
        Clock { run: seen.clock.run, ms: seen.at_least(at).saturating_sub(GRAIN_MS) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: TargetId = TargetId(101);
    const OTHER: TargetId = TargetId(102);

    fn clock(run: u64, ms: u64) -> Option<Clock> {
        Some(Clock { run, ms })
    }

    fn told(clocks: &[(TargetId, Option<Clock>, u64)]) -> Clocks {
        let mut all = Clocks::default();
        clocks.iter().for_each(|(target, clock, now)| all.is_told(*target, *clock, Millis(*now)));
        all
    }

    /// Goal: a moment of the mount is told by the clock of the target, each by its own, and never as one that comes later than it:
    /// a hundredth less of what lies between.
    #[test]
    fn moments_are_told_by_their_clocks() {
        let all = told(&[(ONE, clock(7, 50_000), 1_000), (OTHER, clock(8, 20), 1_500)]);
        let at = |target, at| (all.at(target, Millis(at)).run, all.at(target, Millis(at)).ms);
        assert_eq!((at(ONE, 1_000), at(ONE, 5_000)), ((7, 49_998), (7, 50_000 + 3_960 - 2)));
        assert_eq!((at(ONE, 1_001), at(OTHER, 1_600)), ((7, 49_998), (8, 117)));
        assert_eq!(at(ONE, 101_000), (7, 50_000 + 99_000 - 2), "an old one says less");
        assert_eq!((at(ONE, 0), at(OTHER, 0)), ((7, 49_998), (8, 18)), "what is over");
        assert_eq!(all.at(TargetId(103), Millis(9_000)), Clock::default(), "not known");
    }

    /// Goal: for any true rates within the bound, and however long answers took, the target shows what it was told at the latest
    /// when it was said. Method: all of the extremes.
    #[test]
    fn no_clock_is_told_too_late() {
        for (rate, delay, between) in [990, 1_000, 1_010].into_iter().flat_map(|rate| {
            [0, 1, 700, 4_000].into_iter().flat_map(move |delay| {
                [0, 1, 99, 100, 101, 4_000, 86_400_000].map(|between| (rate, delay, between))
            })
        }) {
            // By the clock of the target, from when it showed 1,000.
            let shows = |true_ms: u64| 1_000 + true_ms * rate / 1_000;
            let all = told(&[(ONE, clock(7, 1_000), delay)]);
            let until = all.at(ONE, Millis(delay + between)).ms;
            assert!(until <= shows(delay + between), "{rate} {delay} {between}: {until}");
        }
    }

    /// Goal: what says most is kept of one run of a daemon; another run counts alone; one that tells nothing is not known.
    #[test]
    fn what_says_most_is_kept() {
        let end = Millis(9_000);
        let at = |clocks: &[(TargetId, Option<Clock>, u64)]| told(clocks).at(ONE, end);
        let (first, late, newer) =
            ((ONE, clock(7, 100), 1_000), (ONE, clock(7, 500), 4_000), (ONE, clock(7, 3_990), 4_000));
        assert_eq!(at(&[first, late]), at(&[first]), "an answer of long ago");
        assert_eq!(at(&[first, newer]), at(&[newer]));
        assert_eq!(at(&[newer, (ONE, clock(8, 5), 4_000)]).run, 8);
        assert_eq!(at(&[newer, (ONE, None, 4_000)]), Clock::default());
    }
}
