//! Did this machine, or this process, stand still? Leases are believed by a clock that goes on meanwhile, but nobody can say
//! how long what was asked before it took.

use std::time::Duration;

/// A look that comes so much later than it was to come says that something stood still.
const LATE: Duration = Duration::from_secs(1);
/// Boot time that goes so much further than monotonic time says that the machine slept.
const SLEPT_MS: u64 = 10;

/// Both clocks, in milliseconds: the machine is read twice, so that nothing that happens in between looks like sleep.
#[derive(Debug, Clone, Copy)]
struct Reading {
    before: u64,
    boot: u64,
    after: u64,
}

/// The clocks, as they were looked at last.
#[derive(Debug)]
pub struct Clocks {
    last: Reading,
}

impl Reading {
    fn new() -> Self {
        let before = skep_net::now().0;
        let boot = skep_net::boot().0;
        Self { before, boot, after: skep_net::now().0 }
    }
}

impl Clocks {
    /// As they are now.
    pub fn new() -> Self {
        Self { last: Reading::new() }
    }

    /// Looks again, `pause` after the last look or earlier. For how long something stood still, if it did.
    pub fn stood_still(&mut self, pause: Duration) -> Option<Duration> {
        self.compare(Reading::new(), pause)
    }

    fn compare(&mut self, now: Reading, pause: Duration) -> Option<Duration> {
        let last = std::mem::replace(&mut self.last, now);
        // At most so much of monotonic time lies between both looks at boot time.
        let most = now.after.saturating_sub(last.before);
        let slept = now.boot.saturating_sub(last.boot).saturating_sub(most);
        let late = now.before.saturating_sub(last.after).saturating_sub(pause.as_millis() as u64);
        let is_still = slept >= SLEPT_MS || Duration::from_millis(late) >= LATE;
        is_still.then(|| Duration::from_millis(slept.max(late)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: sleep is told by the clocks that part, a stop by the late look; neither a slow look nor a slow machine is taken for
    /// either.
    #[test]
    fn what_stood_still() {
        let pause = Duration::from_millis(100);
        let at = |before, boot, after| Reading { before, boot, after };
        let looks = |now| Clocks { last: at(1_000, 51_000, 1_000) }.compare(now, pause);
        assert_eq!(looks(at(1_100, 51_100, 1_100)), None);
        assert_eq!(looks(at(1_900, 51_900, 1_900)), None, "late, but not by much");
        assert_eq!(looks(at(1_100, 51_600, 1_600)), None, "between both looks of one reading");
        assert_eq!(looks(at(1_100, 51_105, 1_100)), None, "as exact as clocks are read");
        assert_eq!(looks(at(1_100, 81_100, 1_100)), Some(Duration::from_secs(30)), "slept");
        assert_eq!(looks(at(3_100, 53_100, 3_100)), Some(Duration::from_secs(2)), "stopped");
        let mut clocks = Clocks::new();
        assert_eq!(clocks.stood_still(Duration::from_secs(60)), None);
    }
}
