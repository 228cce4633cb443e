//! The thread that makes the log durable, and the handle of those who wait for it.

use super::LogError;
use super::sync::{Shared, State, Syncer};
use skep_types::LogSeq;
use std::io;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Default time after which an appended record is durable at the latest.
pub const INTERVAL_DEFAULT: Duration = Duration::from_millis(50);

/// When the log is synced without anybody asking.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyncPolicy {
    /// At once.
    Always,
    /// When the oldest unsynced record is this old.
    Every(Duration),
}

impl Default for SyncPolicy {
    fn default() -> Self {
        Self::Every(INTERVAL_DEFAULT)
    }
}

/// Told when the durable end moved, or once that the log failed, and how long the sync took. Runs on
/// the sync thread: it must not block (write to an eventfd).
pub type Notify = Box<dyn Fn(&Result<LogSeq, LogError>, Duration) + Send>;

/// Syncs the log until dropped; then once more. Sleeps without a timer while nothing is unsynced.
pub struct SyncThread {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// Asks for durability and waits for it. For any thread.
#[derive(Clone)]
pub struct SyncHandle {
    shared: Arc<Shared>,
}

impl SyncThread {
    /// Starts the thread.
    pub fn start(syncer: Syncer, policy: SyncPolicy, notify: Notify) -> io::Result<Self> {
        let shared = syncer.shared.clone();
        let run = move || run(&syncer, policy, &notify);
        let thread = std::thread::Builder::new().name("log-sync".into()).spawn(run)?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// A handle for those who wait.
    pub fn handle(&self) -> SyncHandle {
        SyncHandle { shared: self.shared.clone() }
    }
}

impl Drop for SyncThread {
    fn drop(&mut self) {
        self.shared.state().stop = true;
        self.shared.work.notify_all();
        if let Some(thread) = self.thread.take() {
            // A panic there was reported by the panic hook, and the log never got durable.
            let _ = thread.join();
        }
    }
}

fn run(syncer: &Syncer, policy: SyncPolicy, notify: &Notify) {
    let shared = &*syncer.shared;
    loop {
        let (stop, before) = {
            let state = wait_for_work(shared, policy);
            (state.stop, state.durable)
        };
        let began = Instant::now();
        let result = syncer.sync();
        if result.is_err() || shared.state().durable != before {
            notify(&result, began.elapsed());
        }
        if stop || result.is_err() {
            return;
        }
    }
}

fn wait_for_work(shared: &Shared, policy: SyncPolicy) -> MutexGuard<'_, State> {
    let mut state = shared.state();
    loop {
        if state.stop || state.failed.is_some() {
            return state;
        }
        let urgent = policy == SyncPolicy::Always || state.wanted > state.durable;
        if state.has_work() && (urgent || state.has_removals()) {
            return state;
        }
        let timer = match (policy, state.unsynced_since) {
            (SyncPolicy::Every(interval), Some(since)) if state.has_work() => Some(since + interval),
            _ => None,
        };
        // With a timer set, an append need not wake the thread; a request still does.
        state.sleeping = timer.is_none();
        state = match timer.map(|at| at.saturating_duration_since(Instant::now())) {
            Some(Duration::ZERO) => return state,
            Some(left) => shared.work.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0,
            None => shared.work.wait(state).unwrap_or_else(PoisonError::into_inner),
        };
        state.sleeping = false;
    }
}

impl SyncHandle {
    /// Up to which entry the log is durable.
    pub fn durable(&self) -> LogSeq {
        self.shared.durable()
    }

    /// Wakes the sync thread at once unless `seq` is durable already. One sync serves all that
    /// ask while the one before runs.
    pub fn request(&self, seq: LogSeq) {
        if seq > self.durable() {
            self.want(&mut self.shared.state());
        }
    }

    /// Wakes the sync thread at once for everything appended so far.
    pub fn request_all(&self) {
        self.want(&mut self.shared.state());
    }

    fn want(&self, state: &mut State) {
        if state.wanted < state.appended {
            state.wanted = state.appended;
            self.shared.work.notify_all();
        }
    }

    /// Waits until `seq` is durable.
    pub fn wait(&self, seq: LogSeq, limit: Duration) -> Result<LogSeq, LogError> {
        self.request(seq);
        self.wait_until(limit, |state| state.durable >= seq)
    }

    /// Waits until everything appended before the call is durable.
    pub fn wait_all(&self, limit: Duration) -> Result<LogSeq, LogError> {
        let appended = self.shared.state().appended;
        self.wait(appended, limit)
    }

    fn wait_until(&self, limit: Duration, done: impl Fn(&State) -> bool) -> Result<LogSeq, LogError> {
        let end = Instant::now() + limit;
        let mut state = self.shared.state();
        loop {
            if done(&state) {
                return Ok(state.durable);
            }
            if let Some(error) = &state.failed {
                return Err(error.clone());
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(LogError::Refused(format!(
                    "{} is not durable after {limit:?}: the disk is too slow or hangs (see dmesg, iostat)",
                    self.shared.dir.display()
                )));
            }
            state = self.shared.moved.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}
