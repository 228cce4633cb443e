//! Timers: one ordered list; the next deadline is the time-out of the turn's system call, so a sleeper costs the
//! kernel nothing.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use crate::Reactor;
use crate::reactor::Inner;

/// The sleepers of one reactor.
#[derive(Default)]
pub(crate) struct Timers {
    /// By deadline; the number tells those of one moment apart.
    sleepers: BTreeMap<(Instant, u64), Waker>,
    next: u64,
}

impl Timers {
    /// Time until the first deadline.
    pub(crate) fn next_in(&self) -> Option<Duration> {
        let ((deadline, _), _) = self.sleepers.first_key_value()?;
        Some(deadline.saturating_duration_since(Instant::now()))
    }

    /// Takes one sleeper whose time has come.
    pub(crate) fn take_due(&mut self, now: Instant) -> Option<Waker> {
        let entry = self.sleepers.first_entry()?;
        (entry.key().0 <= now).then(|| entry.remove())
    }
}

/// Ends at its deadline.
pub struct Sleep {
    inner: Rc<Inner>,
    deadline: Instant,
    key: Option<(Instant, u64)>,
}

impl Reactor {
    /// Waits for a time.
    #[must_use = "a future that is not awaited does nothing"]
    pub fn sleep(&self, time: Duration) -> Sleep {
        let now = Instant::now();
        // Farther than the clock reaches: a year is as good.
        let deadline = now.checked_add(time).unwrap_or_else(|| now + Duration::from_secs(365 * 24 * 60 * 60));
        self.sleep_until(deadline)
    }

    /// Waits until a moment.
    #[must_use = "a future that is not awaited does nothing"]
    pub fn sleep_until(&self, deadline: Instant) -> Sleep {
        Sleep { inner: Rc::clone(self.inner()), deadline, key: None }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if Instant::now() >= self.deadline {
            return Poll::Ready(());
        }
        let inner = Rc::clone(&self.inner);
        let mut timers = inner.timers.borrow_mut();
        let key = self.key.unwrap_or_else(|| {
            timers.next += 1;
            (self.deadline, timers.next)
        });
        timers.sleepers.insert(key, cx.waker().clone());
        self.key = Some(key);
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            self.inner.timers.borrow_mut().sleepers.remove(&key);
        }
    }
}
