//! The clocks of the machine: the monotonic one that deadlines count in, and the one that people read.

use rustix::time::{ClockId, clock_gettime};
use skep_types::{Millis, Timestamp};

/// Milliseconds of the monotonic clock.
pub fn now() -> Millis {
    let time = clock_gettime(ClockId::Monotonic);
    Millis(time.tv_sec as u64 * 1000 + time.tv_nsec as u64 / 1_000_000)
}

/// Milliseconds of the clock that goes on while the machine sleeps.
pub fn boot() -> Millis {
    let time = clock_gettime(ClockId::Boottime);
    Millis(time.tv_sec as u64 * 1000 + time.tv_nsec as u64 / 1_000_000)
}

/// The time of day, which files carry.
pub fn wall() -> Timestamp {
    let time = clock_gettime(ClockId::Realtime);
    Timestamp { secs: time.tv_sec, nanos: time.tv_nsec as u32 }
}
