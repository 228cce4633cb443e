//! Notifications that the kernel has not returned from.
//!
//! One that drops pages waits for those that are being filled or written back, so for requests, and these may be queued
//! behind others that wait for the notification. So while a notification takes long, the transports look further into
//! the kernel's queue than there are places, for the requests that it may wait for: see
//! [`crate::dispatch::is_awaited`].

use crate::abi::header::InHeader;
use crate::dispatch;
use crate::sizes::Askers;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use zerocopy::FromBytes;

/// Those of one connection.
#[derive(Default)]
pub(crate) struct Notices {
    state: Mutex<State>,
    /// Who has the kernel ask for something that others wait for.
    pub askers: Askers,
}

#[derive(Default)]
struct State {
    next: u64,
    /// When each began, the oldest first.
    running: BTreeMap<u64, Instant>,
}

/// A notification, until it is dropped.
pub(crate) struct Told<'a>(&'a Notices, u64);

impl Notices {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The kernel is about to be told something.
    pub(crate) fn begin(&self) -> Told<'_> {
        let mut state = self.lock();
        let number = state.next;
        state.next += 1;
        state.running.insert(number, Instant::now());
        Told(self, number)
    }

    /// May a notification wait for this request, or what is like one? See [`dispatch::is_awaited`].
    pub(crate) fn is_awaited(&self, request: &[u8]) -> bool {
        let is_asked = || {
            !self.askers.are_none()
                && InHeader::read_from_prefix(request).is_ok_and(|(header, _)| self.askers.has(header.pid))
        };
        dispatch::is_awaited(request) || is_asked()
    }

    /// Has the kernel had one for so long?
    pub(crate) fn take(&self, time: Duration) -> bool {
        self.lock().running.values().next().is_some_and(|since| since.elapsed() >= time)
    }
}

impl Drop for Told<'_> {
    fn drop(&mut self) {
        self.0.lock().running.remove(&self.1);
    }
}

#[cfg(test)]
mod tests {
    use super::Notices;
    use std::time::Duration;

    /// Goal: a notification counts from its beginning to its end, whatever others do meanwhile.
    #[test]
    fn beginning_and_end() {
        let notices = Notices::default();
        assert!(!notices.take(Duration::ZERO));
        let first = notices.begin();
        drop(notices.begin());
        assert!(notices.take(Duration::ZERO) && !notices.take(Duration::from_secs(3_600)));
        let second = notices.begin();
        drop(first);
        assert!(notices.take(Duration::ZERO));
        drop(second);
        assert!(!notices.take(Duration::ZERO));
    }
}
