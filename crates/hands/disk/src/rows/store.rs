//! The owner's side of the row store.

use super::cache::Cache;
use super::checkpoint::{CheckpointNotify, Checkpointer, Frozen, LogBarrier};
use super::engine::Engine;
use super::key_hash::KeyHash;
use super::overlay::Overlay;
use super::readers::{BeforeRead, Found, Job, Ranges, ReadNotify, Readers};
use super::warmth::{Begun, Pace, Warmth};
use super::{KEY_MAX, RESERVED, RowOptions, VALUE_MAX};
use fjall::KvPair;
use skep_rows::{Batch, Store, StoreError, Visit, Wanted, applied_key, applied_shard};
use skep_types::log::Head;
use skep_types::{Decode, Encode, LogSeq, ShardId};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Rows that each apply moves from a finished checkpoint into the cache, or twice as many as it writes: so that of most
/// checkpoints nothing is left when the next one is done, which moves the rest at once.
const SETTLE_ROWS: usize = 16;

/// How far a shard's records are applied.
struct Applied {
    head: Head,
    /// Since the last checkpoint began: its row is made when the next one begins, not with every command.
    moved: bool,
}

/// The rows of one metadata thread. Belongs to that thread.
pub struct RowStore {
    engine: Engine,
    options: RowOptions,
    hash: KeyHash,
    /// Applied and in no checkpoint.
    overlay: Overlay,
    /// Being written to fjall.
    frozen: Option<Arc<Frozen>>,
    /// Written to fjall, on the way into the cache. Until a row has arrived there, the cache may
    /// hold its older state, so this comes first.
    settling: Overlay,
    cache: RefCell<Cache>,
    applied: LogSeq,
    heads: BTreeMap<ShardId, Applied>,
    checkpointed: LogSeq,
    checkpointer: Checkpointer,
    readers: Option<Readers>,
    /// Ranges that were read since the last checkpoint was collected.
    ranges: Ranges,
    warmth: RefCell<Warmth>,
    failed: Option<StoreError>,
}

impl RowStore {
    /// Opens the store in `dir`, or makes it. `barrier` is the command log it is applied from.
    pub fn open(
        dir: &Path,
        options: RowOptions,
        barrier: Arc<dyn LogBarrier>,
        notify: CheckpointNotify,
    ) -> Result<Self, StoreError> {
        let (engine, applied) = Engine::open(dir, options.block_cache_bytes)?;
        let heads = engine.heads()?.into_iter().map(|head| (head.shard, Applied { head, moved: false }));
        let heads = heads.collect();
        let checkpointer = Checkpointer::start(engine.clone(), barrier, notify).map_err(|e| {
            StoreError::Io(format!(
                "cannot start the checkpoint thread: {e}; check the limit of threads (ulimit -u)"
            ))
        })?;
        Ok(Self {
            engine,
            hash: KeyHash::new(),
            overlay: Overlay::new(),
            frozen: None,
            settling: Overlay::new(),
            cache: RefCell::new(Cache::new(options.cache_bytes)),
            applied,
            heads,
            checkpointed: applied,
            checkpointer,
            readers: None,
            ranges: Ranges::default(),
            warmth: RefCell::new(Warmth::new(applied > LogSeq(0))),
            options,
            failed: None,
        })
    }

    /// Can the state be brought up to date from a log that holds `first..=last`? To be asked once,
    /// before the replay.
    pub fn check_log(&self, first: LogSeq, last: LogSeq) -> Result<(), StoreError> {
        let (dir, applied) = (self.engine.dir().display(), self.applied);
        if applied > last {
            return Err(StoreError::Corrupt(format!(
                "{dir} holds rows up to entry {applied}, but its command log ends at {last}: the log lost durable \
                 entries or is not this store's; restore both together"
            )));
        }
        if applied.0 + 1 < first.0 {
            return Err(StoreError::Corrupt(format!(
                "{dir} holds rows up to entry {applied}, but its command log starts at {first}: entries between are \
                 missing; restore both together"
            )));
        }
        Ok(())
    }

    /// Every entry up to this one is in fjall, durably: the log may release it.
    pub fn checkpointed(&self) -> LogSeq {
        self.checkpointed
    }

    /// Bytes in memory that are in no finished checkpoint.
    pub fn dirty_bytes(&self) -> usize {
        self.overlay.bytes + self.frozen.as_ref().map_or(0, |f| f.overlay.bytes)
    }

    /// Why the store should take no further changes for now (its disk is full), before apply has
    /// to wait. To be asked before a command is logged; reads go on.
    pub fn trouble(&self) -> Option<StoreError> {
        if self.overlay.bytes < self.options.overlay_bytes { None } else { self.checkpointer.trouble() }
    }

    /// Do so many rows wait behind a checkpoint that is still running that no more should come?
    pub fn is_crowded(&self) -> bool {
        self.frozen.is_some() && self.overlay.bytes >= 2 * self.options.overlay_bytes
    }

    /// Waits until it is no longer crowded; `false` = not within `limit`. Everything applied must be in the
    /// log already: the checkpoint that is waited for waits for that.
    pub fn make_room(&mut self, limit: Duration) -> Result<bool, StoreError> {
        if !self.is_crowded() {
            return Ok(true);
        }
        if !self.checkpointer.wait(limit) {
            return Ok(false);
        }
        self.checkpoint()?;
        Ok(true)
    }

    /// Takes note of a finished checkpoint; says up to which entry, if there is news.
    pub fn poll(&mut self) -> Result<Option<LogSeq>, StoreError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        if self.frozen.is_none() {
            return Ok(None);
        }
        match self.checkpointer.collect() {
            None => Ok(None),
            Some(Err(e)) => {
                // The rows stay readable in memory. Whether fjall switched to the new run is
                // unknown, so no other one may follow: a restart finds out.
                self.failed = Some(e.clone());
                Err(e)
            }
            Some(Ok(seq)) => {
                self.checkpointed = seq;
                if let (Some(readers), Some(frozen)) = (&self.readers, &self.frozen) {
                    readers.collected(|key| frozen.overlay.get(self.hash.of(key), key).is_some());
                }
                self.ranges = Ranges::default();
                self.settle(usize::MAX);
                if let Some(frozen) = self.frozen.take().and_then(Arc::into_inner) {
                    self.settling = frozen.overlay;
                }
                Ok(Some(seq))
            }
        }
    }

    /// Starts a checkpoint of all that is applied, unless one runs or nothing is to be done.
    pub fn checkpoint(&mut self) -> Result<bool, StoreError> {
        self.poll()?;
        if self.frozen.is_some() || self.checkpointed == self.applied {
            return Ok(false);
        }
        for (shard, applied) in &mut self.heads {
            if std::mem::take(&mut applied.moved) {
                let key = applied_key(*shard);
                self.overlay.put(self.hash.of(&key), key, Some(applied.head.to_bytes()));
            }
        }
        let overlay = std::mem::replace(&mut self.overlay, Overlay::new());
        let frozen = Arc::new(Frozen { overlay, applied: self.applied });
        self.checkpointer.give(frozen.clone());
        self.frozen = Some(frozen);
        Ok(true)
    }

    /// Brings all that is applied into fjall (for a clean stop).
    pub fn flush(&mut self, limit: Duration) -> Result<(), StoreError> {
        while self.checkpointed < self.applied {
            self.checkpoint()?;
            self.wait(limit)?;
        }
        Ok(())
    }

    fn wait(&mut self, limit: Duration) -> Result<(), StoreError> {
        if self.frozen.is_some() && !self.checkpointer.wait(limit) {
            return Err(self.checkpointer.trouble().unwrap_or_else(|| {
                let dir = self.engine.dir().display();
                StoreError::Io(format!(
                    "{dir}: no checkpoint within {limit:?}; the disk is too slow or hangs (see dmesg, iostat)"
                ))
            }));
        }
        self.poll().map(|_| ())
    }

    #[cfg(test)]
    pub(super) fn has_settled(&self) -> bool {
        self.settling.iter().next().is_none()
    }

    /// Moves rows of a finished checkpoint into the cache.
    fn settle(&mut self, rows: usize) {
        for _ in 0..rows {
            let Some((hash, key, value)) = self.settling.pop_first(|key| self.hash.of(key)) else { return };
            self.cache.get_mut().put(hash, key, value);
        }
    }

    /// A shard's rows came from elsewhere or go, and with them the row that says how far it is applied.
    fn follow(&mut self, shard: ShardId, key: &[u8], value: Option<&[u8]>) {
        match value.and_then(|value| head_in(key, value)) {
            Some(head) => self.heads.insert(shard, Applied { head, moved: false }),
            None => self.heads.remove(&shard),
        };
    }

    /// From now on requests can wait for rows that are not in memory ([`Store::get_near`]): threads read them.
    pub fn start_readers(
        &mut self,
        notify: &ReadNotify,
        before: Option<&BeforeRead>,
    ) -> Result<(), StoreError> {
        let readers = Readers::start(&self.engine, notify, before).map_err(|e| {
            StoreError::Io(format!(
                "cannot start the threads that read rows: {e}; check the limit of threads (ulimit -u)"
            ))
        })?;
        self.readers = Some(readers);
        Ok(())
    }

    /// Has these rows read; their number comes back from [`RowStore::take_read`].
    pub fn read_ahead(&mut self, id: u64, wanted: Vec<Wanted>) {
        if let Some(readers) = &self.readers {
            readers.give(Job::new(id, wanted));
        }
    }

    /// Nobody waits for this read any more: it is not begun, or not gone on with. Its number may come back all the same, with
    /// what was read of it.
    pub fn give_up_read(&mut self, id: u64) {
        if let Some(readers) = &self.readers {
            readers.give_up(id);
        }
    }

    /// Takes what was read into memory, as far as it is still what fjall has; the numbers of these reads. What a checkpoint
    /// has changed since was forgotten when that was collected: it may have left the overlays again, and then nothing in memory
    /// would tell that what was read is older.
    pub fn take_read(&mut self) -> Result<Vec<u64>, StoreError> {
        let jobs = self.readers.as_ref().map(Readers::take).unwrap_or_default();
        let mut ids = Vec::with_capacity(jobs.len());
        for job in jobs {
            if let Some(error) = job.failed {
                return Err(error);
            }
            job.paces.into_iter().for_each(|pace| self.warmth.get_mut().note(pace));
            ids.push(job.id);
            job.found.into_iter().for_each(|found| self.keep(found));
        }
        Ok(ids)
    }

    fn keep(&mut self, found: Found) {
        match found {
            Found::Row(key, value) => {
                let hash = self.hash.of(&key);
                if self.newest(hash, &key).is_none() {
                    self.cache.get_mut().put(hash, key, value);
                }
            }
            Found::Range(from, until, rows) => self.ranges.put(from, until, rows),
        }
    }

    /// Is fjall to be asked by this thread?
    fn asks_fjall(&self) -> bool {
        self.readers.is_none() || self.warmth.borrow().is_warm()
    }

    /// As if it had been slow just now.
    #[cfg(test)]
    pub(super) fn is_cold(&mut self) {
        *self.warmth.get_mut() = Warmth::new(true);
    }

    fn note(&self, pace: Pace) {
        self.warmth.borrow_mut().note(pace);
    }

    /// The row as memory has it.
    fn recall(&self, hash: u64, key: &[u8]) -> Option<Option<Vec<u8>>> {
        if let Some(value) = self.newest(hash, key) {
            return Some(value.clone());
        }
        if let Some(value) = self.cache.borrow_mut().get(hash, key) {
            return Some(value);
        }
        (key.is_empty() || key.len() > KEY_MAX || key.starts_with(&RESERVED)).then_some(None)
    }

    /// The row as fjall has it. Nothing newer is in memory.
    fn read(&self, hash: u64, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        let begun = Begun::now();
        let value = self.engine.get(key)?;
        self.note(begun.pace(1));
        self.cache.borrow_mut().put(hash, key.to_vec(), value.clone());
        Ok(value)
    }

    /// Visits rows of a range: what is in memory over what is `stored`.
    fn merge(
        &self,
        from: &[u8],
        until: &[u8],
        stored: &mut dyn Iterator<Item = Result<KvPair, StoreError>>,
        visit: Visit<'_>,
    ) -> Result<(), StoreError> {
        let mut newest = self.overlay.range(from, until).peekable();
        let mut frozen = self.frozen.iter().flat_map(|f| f.overlay.range(from, until)).peekable();
        let mut row = stored.next().transpose()?;
        loop {
            let heads = [newest.peek(), frozen.peek()].map(|head| head.map(|(key, _)| *key));
            let stored_key = row.as_ref().map(|(key, _)| &**key);
            let Some(key) = heads.into_iter().chain([stored_key]).flatten().min() else { return Ok(()) };
            let is_stored = stored_key == Some(key);
            let [in_newest, in_frozen] = heads.map(|head| head == Some(key));
            let first = if in_newest { newest.peek() } else { frozen.peek() };
            let go = match (first, &row) {
                (Some((key, value)), _) if in_newest || in_frozen => {
                    value.as_ref().is_none_or(|value| visit(key, value))
                }
                (_, Some((key, value))) => visit(key, value),
                _ => true,
            };
            if !go {
                return Ok(());
            }
            if in_newest {
                newest.next();
            }
            if in_frozen {
                frozen.next();
            }
            if is_stored {
                row = stored.next().transpose()?;
            }
        }
    }

    fn newest(&self, hash: u64, key: &[u8]) -> Option<&Option<Vec<u8>>> {
        let frozen = || self.frozen.as_ref().and_then(|f| f.overlay.get(hash, key));
        self.overlay.get(hash, key).or_else(frozen).or_else(|| self.settling.get(hash, key))
    }
}

/// The head in a row of [`applied_key`].
fn head_in(key: &[u8], value: &[u8]) -> Option<Head> {
    Head::from_bytes(value).ok().filter(|head| applied_shard(key) == Some(head.shard))
}

fn validate(batch: &Batch) -> Result<(), StoreError> {
    for (key, value) in batch {
        let length = value.as_ref().map_or(0, Vec::len);
        if key.is_empty() || key.len() > KEY_MAX || key.starts_with(&RESERVED) || length > VALUE_MAX {
            return Err(StoreError::Io(format!(
                "a row with a key of {} bytes and a value of {length} cannot be stored: keys have 1 to {KEY_MAX} \
                 bytes and do not start with ff ff, values have at most {VALUE_MAX} (a bug: please report it)",
                key.len()
            )));
        }
        if let Some(shard) = applied_shard(key)
            && value.as_ref().is_some_and(|value| head_in(key, value).is_none())
        {
            return Err(StoreError::Io(format!(
                "a row that says how far shard {shard} is applied cannot be read (a bug: please report it)"
            )));
        }
    }
    Ok(())
}

impl Store for RowStore {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        let hash = self.hash.of(key);
        self.recall(hash, key).map_or_else(|| self.read(hash, key), Ok)
    }

    fn get_near(&self, key: &[u8]) -> Result<Option<Option<Vec<u8>>>, StoreError> {
        let hash = self.hash.of(key);
        match self.recall(hash, key) {
            None if self.asks_fjall() => self.read(hash, key).map(Some),
            known => Ok(known),
        }
    }

    fn scan(&self, from: &[u8], until: &[u8], visit: Visit<'_>) -> Result<(), StoreError> {
        if from >= until {
            return Ok(());
        }
        let (begun, mut rows) = (Begun::now(), 0);
        let mut stored = self.engine.range(from, until).inspect(|_| rows += 1);
        self.merge(from, until, &mut stored, visit)?;
        self.note(begun.pace(rows));
        Ok(())
    }

    fn scan_near(&self, from: &[u8], until: &[u8], visit: Visit<'_>) -> Result<bool, StoreError> {
        if let Some(known) = self.ranges.get(from, until) {
            let rest = known.rest.iter().flat_map(|rest| self.engine.range(rest, until));
            self.merge(from, until, &mut known.rows.iter().cloned().map(Ok).chain(rest), visit)?;
            return Ok(true);
        }
        if !self.asks_fjall() {
            return Ok(false);
        }
        self.scan(from, until, visit).map(|()| true)
    }

    fn apply(&mut self, seq: LogSeq, of: &[Head], batch: Batch) -> Result<(), StoreError> {
        self.poll()?;
        if seq <= self.applied {
            return Err(StoreError::Io(format!(
                "entry {seq} is applied behind entry {} (a bug: please report it)",
                self.applied
            )));
        }
        validate(&batch)?;
        let settle = SETTLE_ROWS.max(2 * batch.len());
        for (key, value) in batch {
            if let Some(shard) = applied_shard(&key) {
                self.follow(shard, &key, value.as_deref());
            }
            self.overlay.put(self.hash.of(&key), key, value);
        }
        for head in of {
            self.heads.insert(head.shard, Applied { head: *head, moved: true });
        }
        self.applied = seq;
        self.settle(settle);
        if self.overlay.bytes >= self.options.overlay_bytes {
            // Unless one runs. It is not waited for here: it may wait for a log that this thread must write.
            self.checkpoint()?;
        }
        Ok(())
    }

    fn applied(&self) -> LogSeq {
        self.applied
    }

    fn applied_of(&self, shard: ShardId) -> Result<Option<Head>, StoreError> {
        Ok(self.heads.get(&shard).map(|applied| applied.head))
    }
}
