//! The thread that writes frozen overlays to fjall.

use super::engine::Engine;
use super::overlay::Overlay;
use crate::log::{LogError, SyncHandle, Syncer};
use skep_rows::StoreError;
use skep_types::LogSeq;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long one look at the log's durable end may take before the thread checks for its end.
const BARRIER_STEP: Duration = Duration::from_secs(1);
/// Pause before a full disk is looked at again.
const FULL_STEP: Duration = Duration::from_secs(1);
/// Free bytes that stay after a checkpoint, for merging runs.
const SPARE_BYTES: u64 = 32 << 20;
/// A checkpoint waits while so many runs are unmerged: each makes reads slower.
const RUNS_MAX: usize = 16;
/// Pause before the number of runs is looked at again.
const RUNS_STEP: Duration = Duration::from_millis(20);
/// It no longer waits after this long: slow reads are better than none.
const RUNS_WAIT: Duration = Duration::from_secs(60);

/// Says when the log is durable: rows of commands that the log may still lose must not be written.
pub trait LogBarrier: Send + Sync {
    /// Waits until `seq` is durable; `false` = not yet, ask again.
    fn wait_durable(&self, seq: LogSeq, limit: Duration) -> Result<bool, LogError>;
}

impl LogBarrier for SyncHandle {
    fn wait_durable(&self, seq: LogSeq, limit: Duration) -> Result<bool, LogError> {
        match self.wait(seq, limit) {
            Ok(_) => Ok(true),
            Err(LogError::Refused(_)) => Ok(false),
            Err(e) => Err(e),
        }
    }
}

impl LogBarrier for Syncer {
    fn wait_durable(&self, seq: LogSeq, _limit: Duration) -> Result<bool, LogError> {
        if self.durable() < seq && self.sync()? < seq {
            return Err(LogError::Refused(format!("entry {seq} was never appended to it")));
        }
        Ok(true)
    }
}

/// Told when a checkpoint is done or failed: call [`super::RowStore::poll`]. Must not block.
pub type CheckpointNotify = Box<dyn Fn() + Send>;

/// An overlay on its way to fjall.
pub(super) struct Frozen {
    pub(super) overlay: Overlay,
    pub(super) applied: LogSeq,
}

#[derive(Default)]
enum Job {
    #[default]
    Idle,
    Given(Arc<Frozen>),
    Running,
    Ended(Result<LogSeq, StoreError>),
}

#[derive(Default)]
struct State {
    job: Job,
    /// What keeps the running checkpoint from going on (a full disk).
    trouble: Option<StoreError>,
    stop: bool,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes one frozen overlay at a time.
pub(super) struct Checkpointer {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Checkpointer {
    pub(super) fn start(
        engine: Engine,
        barrier: Arc<dyn LogBarrier>,
        notify: CheckpointNotify,
    ) -> io::Result<Self> {
        let shared = Arc::<Shared>::default();
        let worker = Worker { engine, barrier, notify, shared: shared.clone() };
        let thread = std::thread::Builder::new().name("checkpoint".into()).spawn(move || worker.run())?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Gives it work. The one before must have been collected.
    pub(super) fn give(&self, frozen: Arc<Frozen>) {
        self.shared.state().job = Job::Given(frozen);
        self.shared.changed.notify_all();
    }

    /// The result, once; `None` = still running.
    pub(super) fn collect(&self) -> Option<Result<LogSeq, StoreError>> {
        let mut state = self.shared.state();
        match std::mem::take(&mut state.job) {
            Job::Ended(result) => Some(result),
            job => {
                state.job = job;
                None
            }
        }
    }

    /// Waits until a result can be collected; `false` = not within `limit`.
    pub(super) fn wait(&self, limit: Duration) -> bool {
        let end = Instant::now() + limit;
        let mut state = self.shared.state();
        while matches!(state.job, Job::Given(_) | Job::Running) {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            state = self.shared.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    pub(super) fn trouble(&self) -> Option<StoreError> {
        self.shared.state().trouble.clone()
    }
}

impl Drop for Checkpointer {
    fn drop(&mut self) {
        self.shared.state().stop = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // A panic there was reported by the panic hook; the checkpoint never happened.
            let _ = thread.join();
        }
    }
}

struct Worker {
    engine: Engine,
    barrier: Arc<dyn LogBarrier>,
    notify: CheckpointNotify,
    shared: Arc<Shared>,
}

impl Worker {
    fn run(&self) {
        while let Some(frozen) = self.next() {
            let Some(result) = self.write(&frozen) else { return };
            // Before the result can be seen: the owner takes the rows back.
            drop(frozen);
            let mut state = self.shared.state();
            state.trouble = None;
            state.job = Job::Ended(result);
            drop(state);
            self.shared.changed.notify_all();
            (self.notify)();
        }
    }

    fn next(&self) -> Option<Arc<Frozen>> {
        let mut state = self.shared.state();
        loop {
            if state.stop {
                return None;
            }
            match std::mem::take(&mut state.job) {
                Job::Given(frozen) => {
                    state.job = Job::Running;
                    return Some(frozen);
                }
                job => state.job = job,
            }
            state = self.shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// `None` = told to stop.
    fn write(&self, frozen: &Frozen) -> Option<Result<LogSeq, StoreError>> {
        loop {
            match self.barrier.wait_durable(frozen.applied, BARRIER_STEP) {
                Ok(true) => break,
                Ok(false) if self.shared.state().stop => return None,
                Ok(false) => {}
                Err(e) => {
                    let text = format!("no checkpoint of {}: {e}", self.engine.dir().display());
                    return Some(Err(StoreError::Io(text)));
                }
            }
        }
        // Before, not after the failure: a checkpoint that meets a full disk half-way leaves files
        // that take room until the next start.
        let need = frozen.overlay.bytes as u64 + SPARE_BYTES;
        while let Some(trouble) = self.lacks(need) {
            self.shared.state().trouble = Some(trouble);
            if self.pause(FULL_STEP) {
                return None;
            }
        }
        let patience = Instant::now() + RUNS_WAIT;
        while self.engine.unmerged_runs() > RUNS_MAX && Instant::now() < patience {
            if self.pause(RUNS_STEP) {
                return None;
            }
        }
        Some(self.engine.write_run(&frozen.overlay, frozen.applied).map(|()| frozen.applied))
    }

    fn lacks(&self, need: u64) -> Option<StoreError> {
        let dir = self.engine.dir();
        let stat = rustix::fs::statvfs(dir).ok()?;
        let free = stat.f_bavail.saturating_mul(stat.f_frsize);
        (free < need).then(|| {
            StoreError::Io(format!(
                "{}: {free} bytes free, a checkpoint needs {need}; free some space on this file system",
                dir.display()
            ))
        })
    }

    /// Waits; `true` = told to stop.
    fn pause(&self, time: Duration) -> bool {
        let end = Instant::now() + time;
        let mut state = self.shared.state();
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if state.stop || left.is_zero() {
                return state.stop;
            }
            state = self.shared.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}
