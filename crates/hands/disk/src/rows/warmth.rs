//! Does fjall answer from memory at the moment? The row cache is not all that there is: fjall's blocks and filters and the
//! kernel's pages answer in microseconds, and whether they hold a row is not to be known beforehand. So it is told from
//! how long reads take. As long as they are quick, rows are read in place; from the first slow one on they are not, until
//! there has been none for a while. A wrong guess costs one slow read in place, or the way over another thread.

use std::time::{Duration, Instant};

/// A read that waited, and took longer than this, and this for each further row, has waited for a disk.
const SLOW: Duration = Duration::from_micros(50);
const SLOW_PER_ROW: Duration = Duration::from_micros(5);
/// So many quick reads in a row, and so long without a slow one: then the disk is not asked any more.
const QUICK_READS: u32 = 1_024;
const CALM: Duration = Duration::from_secs(10);

/// A read that has begun, by this thread.
#[derive(Debug, Clone, Copy)]
pub(super) struct Begun {
    at: Instant,
    /// See [`waits`].
    waits: Option<i64>,
}

/// When a read ended, and whether it was slow.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    at: Instant,
    slow: bool,
}

impl Begun {
    pub(super) fn now() -> Self {
        Self { at: Instant::now(), waits: waits() }
    }

    /// It was a read of so many rows, and has ended. Who lost the processor meanwhile was slow, too, but for another reason:
    /// it goes by whether the thread went to sleep.
    pub(super) fn pace(self, rows: usize) -> Pace {
        let at = Instant::now();
        let limit = SLOW + SLOW_PER_ROW * u32::try_from(rows).unwrap_or(u32::MAX);
        let slept = || self.waits.zip(waits()).is_none_or(|(before, now)| now > before);
        Pace { at, slow: at.saturating_duration_since(self.at) > limit && slept() }
    }
}

/// How often this thread has gone to sleep by itself, for a disk or for another thread. `None`: the system does not say.
#[allow(unsafe_code)] // rustix has no wrapper for it
fn waits() -> Option<i64> {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the kernel writes nothing but the structure, for which zeros are a valid value.
    unsafe {
        let said = libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr()) == 0;
        said.then(|| usage.assume_init().ru_nvcsw)
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Warmth {
    quick: u32,
    /// The last slow read; `None` = it answers from memory.
    slow: Option<Instant>,
}

impl Warmth {
    /// Of a store with rows that nobody has read yet, or without any.
    pub(super) fn new(has_rows: bool) -> Self {
        Self { quick: 0, slow: has_rows.then(Instant::now) }
    }

    pub(super) fn is_warm(&self) -> bool {
        self.slow.is_none()
    }

    pub(super) fn note(&mut self, pace: Pace) {
        if pace.slow {
            *self = Self { quick: 0, slow: Some(pace.at) };
        } else if let Some(slow) = self.slow {
            self.quick = self.quick.saturating_add(1);
            if self.quick >= QUICK_READS && pace.at.saturating_duration_since(slow) >= CALM {
                self.slow = None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: one slow read is enough to ask the disk no more; many quick ones and some time are needed to ask it again.
    #[test]
    fn slow_reads_count_for_a_while() {
        let start = Instant::now();
        let read = |ms, slow| Pace { at: start + Duration::from_millis(ms), slow };
        let mut warmth = Warmth::new(false);
        assert!(warmth.is_warm() && !Warmth::new(true).is_warm());
        warmth.note(read(0, false));
        assert!(warmth.is_warm());
        warmth.note(read(1, true));
        assert!(!warmth.is_warm());
        (0..5 * QUICK_READS).for_each(|_| warmth.note(read(9_000, false)));
        assert!(!warmth.is_warm(), "not for long enough");
        warmth.note(read(9_500, true));
        (1..QUICK_READS).for_each(|_| warmth.note(read(30_000, false)));
        assert!(!warmth.is_warm(), "not often enough");
        warmth.note(read(30_000, false));
        assert!(warmth.is_warm());
    }

    /// Goal: a read that slept is slow when it took long for its rows; one that only lost the processor is not.
    #[test]
    fn sleep_is_told_from_a_busy_processor() {
        let slept = Begun::now();
        std::thread::sleep(Duration::from_millis(1));
        assert!(slept.pace(1).slow && !slept.pace(1_000_000).slow);
        let busy = Begun::now();
        while busy.at.elapsed() < Duration::from_millis(1) {}
        assert!(!busy.pace(1).slow);
    }
}
