//! The clock of a run of the daemon, by which writes say until when they count; and since when a target lives.

use super::identity::TargetError;
use rustix::time::{ClockId, clock_gettime};
use skep_storage::Standing;
use skep_types::Timestamp;
use skep_wire::storage::Clock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub(super) struct RunClock {
    run: u64,
    began: Duration,
}

impl RunClock {
    pub(super) fn begin() -> Result<Self, TargetError> {
        Ok(Self { run: draw()?.max(1), began: boot() })
    }

    pub(super) fn shows(&self) -> Clock {
        let ms = boot().saturating_sub(self.began).as_millis();
        Clock { run: self.run, ms: u64::try_from(ms).unwrap_or(u64::MAX) }
    }
}

/// Goes on while the machine sleeps: what was sent before that counts no more behind it.
fn boot() -> Duration {
    let time = clock_gettime(ClockId::Boottime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// `new` with the moment at which its life began: now, if the target had another one before.
pub(super) fn since_when(old: Option<Standing>, new: Standing) -> Standing {
    if old.is_some_and(|old| old.life == new.life) {
        return new;
    }
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Standing { since: Some(Timestamp { secs: since.as_secs() as i64, nanos: since.subsec_nanos() }), ..new }
}

/// A number that nobody has had before.
pub(super) fn draw() -> Result<u64, TargetError> {
    getrandom::u64().map_err(|e| TargetError(format!("the system gives no random bytes: {e}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a clock goes on from 0, and no two runs have the same one.
    #[test]
    fn each_run_has_a_clock_of_its_own() {
        let (one, other) = (RunClock::begin().unwrap(), RunClock::begin().unwrap());
        let first = one.shows();
        std::thread::sleep(Duration::from_millis(3));
        let next = one.shows();
        assert!(first.ms < 60_000 && next.ms >= first.ms + 3 && next.run == first.run, "{first:?} {next:?}");
        assert!(first.run != 0 && other.shows().run != first.run);
    }
}
