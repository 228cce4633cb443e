//! Threads that read rows from fjall which requests wait for, so that the owner of the store goes on meanwhile. They
//! know nothing of what is newer than fjall: what they bring is the owner's to judge. See `docs/design/log.md`.

use super::engine::Engine;
use super::warmth::{Begun, Pace};
use fjall::KvPair;
use skep_rows::{Key, StoreError, Wanted};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
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
    left: VecDeque<Wanted>,
    pub(super) found: Vec<Found>,
    pub(super) paces: Vec<Pace>,
    bytes: usize,
    pub(super) failed: Option<StoreError>,
}

impl Job {
    pub(super) fn new(id: u64, wanted: Vec<Wanted>) -> Self {
        let (found, paces) = (Vec::new(), Vec::new());
        Self { id, left: wanted.into(), found, paces, bytes: 0, failed: None }
    }

    /// Rows of a checkpoint have reached fjall: what was read of them before is older. So may be a range.
    fn forget(&mut self, is_changed: impl Fn(&[u8]) -> bool) {
        self.found.retain(|found| match found {
            Found::Row(key, _) => !is_changed(key),
            Found::Range(..) => false,
        });
    }
}

/// What a thread reads of a job before it looks at the others.
struct Turn {
    id: u64,
    /// Checkpoints that the owner had collected when it began.
    checkpoints: u64,
    wanted: Vec<Wanted>,
    found: Vec<Found>,
    paces: Vec<Pace>,
    bytes: usize,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Job>,
    /// Jobs of which threads have a turn in hand.
    in_work: BTreeMap<u64, Job>,
    /// Checkpoints that the owner has collected.
    checkpoints: u64,
    done: Vec<Job>,
    untaken: usize,
    stop: bool,
}

impl State {
    /// The next turn, if there is work and the owner keeps up.
    fn begin_turn(&mut self) -> Option<Turn> {
        if self.untaken >= UNTAKEN_BYTES {
            return None;
        }
        let mut job = self.waiting.pop_front()?;
        let wanted = job.left.drain(..job.left.len().min(TURN_ROWS)).collect();
        let (id, checkpoints) = (job.id, self.checkpoints);
        self.in_work.insert(id, job);
        Some(Turn { id, checkpoints, wanted, found: Vec::new(), paces: Vec::new(), bytes: 0 })
    }

    /// A turn is over. Is its job done?
    fn end_turn(&mut self, turn: Turn, failed: Option<StoreError>) -> bool {
        let Some(mut job) = self.in_work.remove(&turn.id) else { return false };
        job.paces.extend(turn.paces);
        // Nobody could say of each row whether it was read before those of the checkpoint reached fjall, or after it.
        if turn.checkpoints == self.checkpoints {
            job.found.extend(turn.found);
            job.bytes += turn.bytes;
        }
        if failed.is_some() {
            job.failed = failed;
            job.left.clear();
        }
        if !job.left.is_empty() {
            self.waiting.push_back(job);
            return false;
        }
        self.untaken += job.bytes;
        self.done.push(job);
        true
    }
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

    /// The request of this job is gone. What was read for it is brought all the same: whoever asks again, because a disk
    /// was slow, is to get on.
    pub(super) fn give_up(&self, id: u64) {
        let mut state = self.shared.state();
        state.waiting.retain(|job| job.id != id || !job.found.is_empty());
        let State { waiting, in_work, .. } = &mut *state;
        for job in waiting.iter_mut().chain(in_work.values_mut()).filter(|job| job.id == id) {
            job.left.clear();
        }
    }

    /// The owner has collected a checkpoint: what is read from now on has its rows. Of what was read before, those rows
    /// are believed that it has not changed.
    pub(super) fn collected(&self, is_changed: impl Fn(&[u8]) -> bool) {
        let mut state = self.shared.state();
        state.checkpoints += 1;
        let State { waiting, in_work, done, .. } = &mut *state;
        waiting.iter_mut().chain(in_work.values_mut()).chain(done).for_each(|job| job.forget(&is_changed));
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
        while let Some(mut turn) = self.next() {
            let wanted = std::mem::take(&mut turn.wanted);
            let failed = wanted.into_iter().try_for_each(|wanted| self.read(&mut turn, wanted)).err();
            let mut state = self.shared.state();
            let is_first = state.end_turn(turn, failed) && state.done.len() == 1;
            drop(state);
            if is_first {
                (self.notify)();
            }
        }
    }

    fn next(&self) -> Option<Turn> {
        let mut state = self.shared.state();
        loop {
            if state.stop {
                return None;
            }
            if let Some(turn) = state.begin_turn() {
                return Some(turn);
            }
            state = self.shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn read(&self, turn: &mut Turn, wanted: Wanted) -> Result<(), StoreError> {
        if let Some(before) = &self.before {
            before(&wanted);
        }
        let begun = Begun::now();
        let found = match wanted {
            Wanted::Row(key) => {
                let value = self.engine.get(&key)?;
                turn.paces.push(begun.pace(1));
                turn.bytes += key.len() + value.as_ref().map_or(0, Vec::len);
                Found::Row(key, value)
            }
            Wanted::Range(from, until) => {
                let range = self.range(&from, &until)?;
                turn.paces.push(begun.pace(range.rows.len()));
                turn.bytes += range.bytes;
                Found::Range(from, until, range)
            }
        };
        turn.found.push(found);
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
    all: BTreeMap<(Key, Key), (u64, RangeRows)>,
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
