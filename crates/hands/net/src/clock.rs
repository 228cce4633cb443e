//! The monotonic clock that deadlines of services count in.

use rustix::time::{ClockId, clock_gettime};
use skep_types::Millis;

/// Milliseconds of the monotonic clock.
pub fn now() -> Millis {
    let time = clock_gettime(ClockId::Monotonic);
    Millis(time.tv_sec as u64 * 1000 + time.tv_nsec as u64 / 1_000_000)
}
