//! Threads that begin together, or not at all: a machine at its limit of threads must not take the daemon down.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, Scope, ScopedJoinHandle};

#[derive(Default)]
struct State {
    ready: usize,
    /// Once it is open: shall they go?
    go: Option<bool>,
}

#[derive(Default)]
pub struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

impl Gate {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A thread is ready; gives whether it shall go, once that is known.
    pub fn wait(&self) -> bool {
        let mut state = self.lock();
        state.ready += 1;
        self.changed.notify_all();
        let waiting = |state: &mut State| state.go.is_none();
        let state = self.changed.wait_while(state, waiting).unwrap_or_else(PoisonError::into_inner);
        state.go.unwrap_or(false)
    }

    /// Waits until so many are ready.
    pub fn all_ready(&self, threads: usize) {
        let missing = |state: &mut State| state.ready < threads;
        drop(self.changed.wait_while(self.lock(), missing).unwrap_or_else(PoisonError::into_inner));
    }

    /// Lets all go when so many are ready; sends them away when not all could be started.
    pub fn open(&self, threads: usize, all_started: bool) {
        if all_started {
            self.all_ready(threads);
        }
        self.lock().go = Some(all_started);
        self.changed.notify_all();
    }
}

/// Starts a thread; a failure is told, not panicked about.
pub fn spawn<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    work: impl FnOnce() -> T + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, T>, String> {
    let thread = Builder::new().name("instrument".to_owned());
    thread.spawn_scoped(scope, work).map_err(|e| format!("cannot start a thread: {e}; take fewer"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: nobody passes before all are ready, and nobody at all when one could not be started.
    #[test]
    fn together_or_not_at_all() {
        for all in [true, false] {
            let gate = Gate::default();
            let passed = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..3).map(|_| spawn(scope, || gate.wait()).unwrap()).collect();
                gate.open(if all { 3 } else { 4 }, all);
                threads.into_iter().map(|one| one.join().unwrap()).collect::<Vec<_>>()
            });
            assert_eq!(passed, [all; 3]);
        }
    }
}
