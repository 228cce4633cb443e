//! The clock of measurements: monotonic, one for all processes of a host.

use rustix::thread::{NanosleepRelativeResult, nanosleep};
use rustix::time::{ClockId, Timespec, clock_gettime};

/// Nanoseconds of the host's monotonic clock.
#[inline]
pub fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Sleeps until that moment; at once back when it is past.
pub(super) fn sleep_until(at: u64) {
    loop {
        let left = at.saturating_sub(now_ns());
        if left == 0 {
            return;
        }
        let span = Timespec { tv_sec: (left / 1_000_000_000) as i64, tv_nsec: (left % 1_000_000_000) as i64 };
        // Interrupted or not, the loop looks at the clock again.
        if let NanosleepRelativeResult::Err(_) = nanosleep(&span) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a sleep never ends early, and one into the past ends.
    #[test]
    fn sleeps() {
        let at = now_ns() + 2_000_000;
        sleep_until(at);
        assert!(now_ns() >= at);
        sleep_until(0);
    }
}
