//! Threads that read rows from fjall which requests wait for, so that the owner of the store goes on meanwhile. They
//! know nothing of what is newer than fjall: what they bring is the owner's to judge. See `docs/design/log.md`.

use super::engine::Engine;
use super::warmth::{Begun, Pace};
use fjall::KvPair;
use skep_rows::{Key, StoreError, Wanted};
use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// Threads of a store.
const READERS: usize = 2;
/// Rows that a thread reads for one request before it looks at the others: a long listing lets short reads pass.
const TURN_ROWS: usize = 16;
/// Rows of a range that are read ahead: those of the longest listing, and some names that are dead.
const RANGE_ROWS: usize = skep_types::limits::READDIR_MAX as usize + 64;
/// Bytes after which a range ends as well.
const RANGE_BYTES: usize = 1 << 20;
/// With so many bytes that the owner has not taken, the threads rest.
const UNTAKEN_BYTES: usize = 16 << 20;

/// Told when something was read: call [`super::RowStore::take_read`]. Must not block.
pub type ReadNotify = Arc<dyn Fn() + Send + Sync>;
/// Called by a thread before it reads this. Makes a disk slow, in tests.
pub type BeforeRead = Arc<dyn Fn(&Wanted) + Send + Sync>;

/// The first rows of a range, as fjall has them.
pub(super) struct RangeRows {
    pub(super) rows: Vec<KvPair>,
    /// Where it goes on; `None` = nowhere.
    pub(super) rest: Option<Key>,
    pub(super) bytes: usize,
}

/// What was read.
pub(super) enum Found {
    Row(Key, Option<Vec<u8>>),
    Range(Key, Key, RangeRows),
}

/// Reads of one request.
pub(super) struct Job {
    pub(super) id: u64,
    /// Checkpoints that the owner had collected when the first of them was begun.
    pub(super) checkpoints: u64,
    left: VecDeque<Wanted>,
    pub(super) found: Vec<Found>,
    pub(super) paces: Vec<Pace>,
    bytes: usize,
    pub(super) failed: Option<StoreError>,
}

impl Job {
    pub(super) fn new(id: u64, wanted: Vec<Wanted>) -> Self {
        let (found, paces) = (Vec::new(), Vec::new());
        Self { id, checkpoints: 0, left: wanted.into(), found, paces, bytes: 0, failed: None }
    }
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Job>,
    /// Jobs that threads have, and those of them that nobody wants any more.
    in_work: BTreeSet<u64>,
    given_up: BTreeSet<u64>,
    /// Checkpoints that the owner has collected.
    checkpoints: u64,
    done: Vec<Job>,
    untaken: usize,
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

/// See the module.
pub(super) struct Readers {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Readers {
    pub(super) fn start(
        engine: &Engine,
        notify: &ReadNotify,
        before: Option<&BeforeRead>,
    ) -> io::Result<Self> {
        let mut readers = Self { shared: Arc::default(), threads: Vec::new() };
        for _ in 0..READERS {
            let shared = readers.shared.clone();
            let reader =
                Reader { engine: engine.clone(), notify: notify.clone(), before: before.cloned(), shared };
            let thread = std::thread::Builder::new().name("rows".into()).spawn(move || reader.run())?;
            readers.threads.push(thread);
        }
        Ok(readers)
    }

    /// Gives them work. How much of it there is at once is the caller's business.
    pub(super) fn give(&self, job: Job) {
        self.shared.state().waiting.push_back(job);
        self.shared.changed.notify_one();
    }

    /// The request of this job is gone.
    pub(super) fn give_up(&self, id: u64) {
        let mut state = self.shared.state();
        state.waiting.retain(|job| job.id != id);
        if state.in_work.contains(&id) {
            state.given_up.insert(id);
        }
    }

    /// The owner has collected so many checkpoints: what is read from now on has the rows of all of them.
    pub(super) fn collected(&self, checkpoints: u64) {
        self.shared.state().checkpoints = checkpoints;
    }

    /// What was read since the last look.
    pub(super) fn take(&self) -> Vec<Job> {
        let mut state = self.shared.state();
        if state.untaken >= UNTAKEN_BYTES {
            self.shared.changed.notify_all();
        }
        state.untaken = 0;
        std::mem::take(&mut state.done)
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        self.shared.state().stop = true;
        self.shared.changed.notify_all();
        for thread in self.threads.drain(..) {
            // A panic there was reported by the panic hook; whoever waited has been told that it takes too long.
            let _ = thread.join();
        }
    }
}

struct Reader {
    engine: Engine,
    notify: ReadNotify,
    before: Option<BeforeRead>,
    shared: Arc<Shared>,
}

impl Reader {
    fn run(&self) {
        while let Some(mut job) = self.next() {
            for _ in 0..TURN_ROWS {
                let Some(wanted) = job.left.pop_front() else { break };
                if let Err(e) = self.read(&mut job, wanted) {
                    job.failed = Some(e);
                    job.left.clear();
                }
            }
            let mut state = self.shared.state();
            state.in_work.remove(&job.id);
            if state.given_up.remove(&job.id) {
                continue;
            }
            if !job.left.is_empty() {
                state.waiting.push_back(job);
                continue;
            }
            state.untaken += job.bytes;
            state.done.push(job);
            let is_first = state.done.len() == 1;
            drop(state);
            if is_first {
                (self.notify)();
            }
        }
    }

    fn next(&self) -> Option<Job> {
        let mut state = self.shared.state();
        loop {
            if state.stop {
                return None;
            }
            if state.untaken < UNTAKEN_BYTES
                && let Some(mut job) = state.waiting.pop_front()
            {
                // Not when it was asked for: it may have waited for longer than a checkpoint takes.
                if job.found.is_empty() {
                    job.checkpoints = state.checkpoints;
                }
                state.in_work.insert(job.id);
                return Some(job);
            }
            state = self.shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn read(&self, job: &mut Job, wanted: Wanted) -> Result<(), StoreError> {
        if let Some(before) = &self.before {
            before(&wanted);
        }
        let begun = Begun::now();
        let found = match wanted {
            Wanted::Row(key) => {
                let value = self.engine.get(&key)?;
                job.paces.push(begun.pace(1));
                job.bytes += key.len() + value.as_ref().map_or(0, Vec::len);
                Found::Row(key, value)
            }
            Wanted::Range(from, until) => {
                let range = self.range(&from, &until)?;
                job.paces.push(begun.pace(range.rows.len()));
                job.bytes += range.bytes;
                Found::Range(from, until, range)
            }
        };
        job.found.push(found);
        Ok(())
    }

    fn range(&self, from: &[u8], until: &[u8]) -> Result<RangeRows, StoreError> {
        let mut range = RangeRows { rows: Vec::new(), rest: None, bytes: 0 };
        for row in self.engine.range(from, until) {
            let row = row?;
            if range.rows.len() >= RANGE_ROWS || range.bytes >= RANGE_BYTES {
                range.rest = Some(row.0.to_vec());
                break;
            }
            range.bytes += row.0.len() + row.1.len();
            range.rows.push(row);
        }
        Ok(range)
    }
}

/// Ranges that were read ahead, bounded: the oldest go.
#[derive(Default)]
pub(super) struct Ranges {
    all: std::collections::BTreeMap<(Key, Key), (u64, RangeRows)>,
    by_age: BTreeSet<(u64, (Key, Key))>,
    next: u64,
    bytes: usize,
}

/// Bytes of ranges that are kept.
const RANGES_BYTES: usize = 8 << 20;
/// What one of them costs beyond its rows.
const RANGE_OVERHEAD: usize = 256;

impl Ranges {
    pub(super) fn get(&self, from: &[u8], until: &[u8]) -> Option<&RangeRows> {
        if self.all.is_empty() {
            return None;
        }
        self.all.get(&(from.to_vec(), until.to_vec())).map(|(_, range)| range)
    }

    pub(super) fn put(&mut self, from: Key, until: Key, range: RangeRows) {
        self.forget(&(from.clone(), until.clone()));
        self.next += 1;
        self.bytes += range.bytes + RANGE_OVERHEAD;
        self.by_age.insert((self.next, (from.clone(), until.clone())));
        self.all.insert((from, until), (self.next, range));
        while self.bytes > RANGES_BYTES
            && let Some((_, oldest)) = self.by_age.first().cloned()
        {
            self.forget(&oldest);
        }
    }

    fn forget(&mut self, bounds: &(Key, Key)) {
        if let Some((age, range)) = self.all.remove(bounds) {
            self.bytes -= range.bytes + RANGE_OVERHEAD;
            self.by_age.remove(&(age, bounds.clone()));
        }
    }
}
