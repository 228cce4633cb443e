//! Which clients have changes in work at this moment: an eviction waits for those of the evicted.

use skep_types::ClientId;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

#[derive(Default)]
pub struct Writers {
    /// Changing requests in work; nobody has 0.
    in_work: Mutex<BTreeMap<ClientId, u32>>,
    done: Condvar,
    /// How many wait: waking nobody would cost every change a system call. Changed under the lock.
    waiting: AtomicU32,
}

/// A changing request in work.
pub struct InWork<'a> {
    writers: &'a Writers,
    client: ClientId,
}

impl Writers {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<ClientId, u32>> {
        self.in_work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A change of this client begins. To be called before it is asked whether the client is fenced: then
    /// whoever fences it and looks here afterwards sees every change that was let through.
    pub fn enter(&self, client: ClientId) -> InWork<'_> {
        *self.lock().entry(client).or_insert(0) += 1;
        InWork { writers: self, client }
    }

    /// Who has a change in work.
    pub fn clients(&self) -> Vec<ClientId> {
        self.lock().keys().copied().collect()
    }

    /// Waits until none of these clients has a change in work; false = not within `limit`.
    pub fn wait_for(&self, clients: &BTreeSet<ClientId>, limit: Duration) -> bool {
        let busy =
            |in_work: &mut BTreeMap<ClientId, u32>| in_work.keys().any(|client| clients.contains(client));
        let in_work = self.lock();
        self.waiting.fetch_add(1, Relaxed);
        let (_guard, timeout) =
            self.done.wait_timeout_while(in_work, limit, busy).unwrap_or_else(PoisonError::into_inner);
        self.waiting.fetch_sub(1, Relaxed);
        !timeout.timed_out()
    }
}

impl Drop for InWork<'_> {
    fn drop(&mut self) {
        let mut in_work = self.writers.lock();
        if let Some(count) = in_work.get_mut(&self.client) {
            *count -= 1;
            if *count == 0 {
                in_work.remove(&self.client);
                if self.writers.waiting.load(Relaxed) > 0 {
                    self.writers.done.notify_all();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: an eviction waits for the changes of the evicted, all of them, for nobody else's, and not for ever.
    #[test]
    fn waits_for_the_fenced_only() {
        let writers = Writers::default();
        let fenced = BTreeSet::from([ClientId(1), ClientId(3)]);
        let _other = writers.enter(ClientId(2));
        assert!(writers.wait_for(&fenced, Duration::ZERO));
        let (first, second) = (writers.enter(ClientId(1)), writers.enter(ClientId(1)));
        assert!(!writers.wait_for(&fenced, Duration::from_millis(1)));
        drop(first);
        assert!(!writers.wait_for(&fenced, Duration::from_millis(1)), "one is in work still");
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| writers.wait_for(&fenced, Duration::from_secs(60)));
            drop(second);
            assert!(waiter.join().unwrap());
        });
    }
}
