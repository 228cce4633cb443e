//! Making the log durable: what is unsynced, and the one place that syncs it.

use super::{LogError, segment::Segment};
use crate::disk::{Disk, DiskFile};
use skep_types::LogIndex;
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// A point in the log: the last entry, and how many groups were appended in this run (hard
/// states take no index, yet they must become durable too).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Point {
    pub(super) groups: u64,
    pub(super) index: LogIndex,
}

pub(super) struct State {
    pub(super) appended: Point,
    pub(super) durable: Point,
    /// Segments with unsynced bytes, oldest first: they are synced in this order, and nothing is
    /// called durable before all of them are.
    dirty: Vec<(LogIndex, Arc<dyn DiskFile>)>,
    /// A segment was made whose name is not durable.
    dir_dirty: bool,
    /// Released segments, oldest first.
    removals: VecDeque<PathBuf>,
    /// Those that could not be removed: tried again with the next release.
    stuck: VecDeque<PathBuf>,
    pub(super) failed: Option<LogError>,
    /// Somebody waits for the log to be durable up to this group.
    pub(super) wanted: u64,
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
    /// Held while files are synced, so that a truncation never meets a sync half-way.
    pub(super) gate: Mutex<()>,
    /// There is work for the sync thread.
    pub(super) work: Condvar,
    /// The durable point moved, or the log failed.
    pub(super) moved: Condvar,
    durable_index: AtomicU64,
}

pub(super) fn hold<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Every change of the state is a few assignments: a panic elsewhere leaves it whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    pub(super) fn new(disk: Arc<dyn Disk>, dir: PathBuf, last: LogIndex) -> Self {
        let point = Point { groups: 0, index: last };
        let state = State {
            appended: point,
            durable: point,
            dirty: Vec::new(),
            dir_dirty: false,
            removals: VecDeque::new(),
            stuck: VecDeque::new(),
            failed: None,
            wanted: 0,
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
            durable_index: AtomicU64::new(last.0),
        }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        hold(&self.state)
    }

    pub(super) fn durable(&self) -> LogIndex {
        LogIndex(self.durable_index.load(Ordering::Acquire))
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
    pub(super) fn appended(&self, segment: &Segment, last: LogIndex) {
        let mut state = self.state();
        state.appended = Point { groups: state.appended.groups + 1, index: last };
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

    /// The log was cut back to `last`, durably; `gone` says which segments are no more.
    pub(super) fn truncated(&self, last: LogIndex, gone: impl Fn(LogIndex) -> bool) {
        let mut state = self.state();
        state.dirty.retain(|(first, _)| !gone(*first));
        state.appended.index = last;
        state.durable.index = state.durable.index.min(last);
        self.durable_index.store(state.durable.index.0, Ordering::Release);
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
    pub fn sync(&self) -> Result<LogIndex, LogError> {
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
            shared.durable_index.store(target.index.0, Ordering::Release);
        }
        shared.moved.notify_all();
        self.remove(removals)?;
        Ok(target.index)
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
    pub fn durable(&self) -> LogIndex {
        self.shared.durable()
    }
}
