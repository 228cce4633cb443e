//! Making the log durable: what is unsynced, and the one place that syncs it.

use super::{LogError, segment::Segment};
use crate::disk::{Disk, DiskFile};
use skep_types::LogSeq;
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

pub(super) struct State {
    pub(super) appended: LogSeq,
    pub(super) durable: LogSeq,
    /// Segments with unsynced bytes, oldest first: they are synced in this order, and nothing is
    /// called durable before all of them are.
    dirty: Vec<(LogSeq, Arc<dyn DiskFile>)>,
    /// A segment was made whose name is not durable.
    dir_dirty: bool,
    /// Released segments, oldest first.
    removals: VecDeque<PathBuf>,
    /// Those that could not be removed: tried again with the next release.
    stuck: VecDeque<PathBuf>,
    pub(super) failed: Option<LogError>,
    /// Somebody waits for the log to be durable up to here.
    pub(super) wanted: LogSeq,
    /// When the oldest unsynced group was appended.
    pub(super) unsynced_since: Option<Instant>,
    /// The sync thread waits for work.
    pub(super) sleeping: bool,
    pub(super) stop: bool,
}

impl State {
    pub(super) fn has_work(&self) -> bool {
        self.failed.is_none() && (self.appended > self.durable || !self.removals.is_empty())
    }

    pub(super) fn has_removals(&self) -> bool {
        !self.removals.is_empty()
    }

    fn touch(&mut self, segment: &Segment) {
        if self.dirty.last().is_none_or(|(first, _)| *first != segment.first) {
            self.dirty.push((segment.first, segment.file.clone()));
        }
    }
}

/// What the owner, the sync thread and those who wait have in common.
pub(super) struct Shared {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) dir: PathBuf,
    state: Mutex<State>,
    /// Held while files are synced: what one sync takes over is durable before the next one says so.
    gate: Mutex<()>,
    /// There is work for the sync thread.
    pub(super) work: Condvar,
    /// The durable point moved, or the log failed.
    pub(super) moved: Condvar,
    durable_seq: AtomicU64,
}

pub(super) fn hold<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Every change of the state is a few assignments: a panic elsewhere leaves it whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    pub(super) fn new(disk: Arc<dyn Disk>, dir: PathBuf, last: LogSeq) -> Self {
        let state = State {
            appended: last,
            durable: last,
            dirty: Vec::new(),
            dir_dirty: false,
            removals: VecDeque::new(),
            stuck: VecDeque::new(),
            failed: None,
            wanted: LogSeq(0),
            unsynced_since: None,
            sleeping: false,
            stop: false,
        };
        Self {
            disk,
            dir,
            state: Mutex::new(state),
            gate: Mutex::new(()),
            work: Condvar::new(),
            moved: Condvar::new(),
            durable_seq: AtomicU64::new(last.0),
        }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        hold(&self.state)
    }

    pub(super) fn durable(&self) -> LogSeq {
        LogSeq(self.durable_seq.load(Ordering::Acquire))
    }

    /// Nothing works any more from here on.
    pub(super) fn fail(&self, error: LogError) -> LogError {
        let error = self.state().failed.get_or_insert(error).clone();
        self.moved.notify_all();
        self.work.notify_all();
        error
    }

    pub(super) fn check(&self) -> Result<(), LogError> {
        self.state().failed.clone().map_or(Ok(()), Err)
    }

    /// A group was written to the segment.
    pub(super) fn appended(&self, segment: &Segment, last: LogSeq) {
        let mut state = self.state();
        state.appended = last;
        state.touch(segment);
        if state.unsynced_since.is_none() {
            state.unsynced_since = Some(Instant::now());
            if state.sleeping {
                self.work.notify_all();
            }
        }
    }

    /// A segment was made.
    pub(super) fn made(&self, segment: &Segment) {
        let mut state = self.state();
        state.dir_dirty = true;
        state.touch(segment);
    }

    /// Segments are no longer needed. They go once everything behind them is durable.
    pub(super) fn released(&self, paths: impl Iterator<Item = PathBuf>) {
        let mut state = self.state();
        let stuck = std::mem::take(&mut state.stuck);
        state.removals.extend(stuck.into_iter().chain(paths));
        if state.sleeping && state.has_removals() {
            self.work.notify_all();
        }
    }
}

/// Makes the log durable. Used by one thread at a time ([`super::SyncThread`] does).
#[derive(Clone)]
pub struct Syncer {
    pub(super) shared: Arc<Shared>,
}

impl Syncer {
    /// Makes everything durable that was appended before the call; says up to which entry.
    /// After an error no sync ever succeeds again.
    pub fn sync(&self) -> Result<LogSeq, LogError> {
        let shared = &*self.shared;
        let _gate = hold(&shared.gate);
        let (target, files, dir_dirty, removals) = {
            let mut state = shared.state();
            if let Some(error) = &state.failed {
                return Err(error.clone());
            }
            state.unsynced_since = None;
            let dirty = std::mem::take(&mut state.dirty);
            let dir_dirty = std::mem::take(&mut state.dir_dirty);
            (state.appended, dirty, dir_dirty, std::mem::take(&mut state.removals))
        };
        let synced = files.iter().try_for_each(|(_, file)| file.sync_data());
        let synced = synced.and_then(|()| if dir_dirty { shared.disk.sync_dir(&shared.dir) } else { Ok(()) });
        if let Err(e) = synced {
            return Err(shared.fail(LogError::failed(&e)));
        }
        {
            let mut state = shared.state();
            state.durable = target;
            shared.durable_seq.store(target.0, Ordering::Release);
        }
        shared.moved.notify_all();
        self.remove(removals)?;
        Ok(target)
    }

    /// Oldest first, each made durable before the next: a crash leaves no hole.
    fn remove(&self, mut removals: VecDeque<PathBuf>) -> Result<(), LogError> {
        while let Some(path) = removals.front() {
            match self.shared.disk.remove(path) {
                // (File systems that copy on write may need room to remove.) Takes room, harms
                // nobody. Removing later ones before it would leave a hole.
                Err(e) if e.is_full() => {
                    self.shared.state().stuck = removals;
                    return Ok(());
                }
                Err(e) if !e.is_missing() => return Err(self.shared.fail(LogError::failed(&e))),
                _ => {}
            }
            // A directory whose sync failed cannot be trusted any more than a file.
            let synced = self.shared.disk.sync_dir(&self.shared.dir);
            synced.map_err(|e| self.shared.fail(LogError::failed(&e)))?;
            removals.pop_front();
        }
        Ok(())
    }

    /// Up to which entry the log is durable.
    pub fn durable(&self) -> LogSeq {
        self.shared.durable()
    }
}
