//! Vocabulary: ordered rows, as rules see them and hands keep them, and the transaction that
//! makes a command all-or-nothing.
//!
//! The rules of a shard see rows only through [`Store`]; the hands put fjall under it, the
//! simulator a `BTreeMap`. A command runs in a [`Txn`]: its writes become one [`Batch`] that is
//! applied together with its place in the log, or are dropped when the command is refused.
#![no_std]
#![warn(missing_docs)]
extern crate alloc;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use skep_types::log::Head;
use skep_types::{Decode, Encode, LogSeq, ShardId};

/// The row store failed. Whoever owns the shard stops serving it: guessing would lose data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreError {
    /// The disk refused; the text says what and where.
    Io(String),
    /// Bytes that were read are not what was written.
    Corrupt(String),
    /// The row is on a disk, and whoever asks does not wait for it: nothing has failed.
    Away,
}

impl core::fmt::Display for StoreError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Io(text) => write!(f, "row store: {text}"),
            Self::Corrupt(text) => write!(f, "row store is corrupt: {text}"),
            Self::Away => f.write_str("row store: the row is not in memory (a bug: please report it)"),
        }
    }
}

impl core::error::Error for StoreError {}

/// A row's key.
pub type Key = Vec<u8>;
/// Rows to write (`Some`) and to delete (`None`), in key order.
pub type Batch = BTreeMap<Key, Option<Vec<u8>>>;
/// Called with key and value of each row of a scan; `false` ends the scan.
pub type Visit<'a> = &'a mut dyn FnMut(&[u8], &[u8]) -> bool;

/// What has to be read from a disk first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wanted {
    /// A row, if there is one.
    Row(Key),
    /// The first rows of a range: from, until.
    Range(Key, Key),
}

/// Last byte of the key of [`applied_key`]: no other rows of a shard have it behind the shard.
const APPLIED: u8 = 0xff;

/// Key of the row that says how far a shard's records are applied: its value is a [`Head`]. It lies among the
/// rows of the shard, so that it goes wherever they go.
pub fn applied_key(shard: ShardId) -> Key {
    Key::from(applied_bytes(shard))
}

fn applied_bytes(shard: ShardId) -> [u8; 3] {
    let [high, low] = shard.0.to_be_bytes();
    [high, low, APPLIED]
}

/// Whose [`applied_key`] is this?
pub fn applied_shard(key: &[u8]) -> Option<ShardId> {
    match *key {
        [high, low, APPLIED] => Some(ShardId(u16::from_be_bytes([high, low]))),
        _ => None,
    }
}

/// Ordered rows of all shards of one metadata thread.
pub trait Store {
    /// The row at `key`.
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError>;

    /// Visits rows with `from <= key < until` in order until `visit` says `false`.
    fn scan(&self, from: &[u8], until: &[u8], visit: Visit<'_>) -> Result<(), StoreError>;

    /// As [`Store::get`], but waits for no disk: `None` = it would have to.
    fn get_near(&self, key: &[u8]) -> Result<Option<Option<Vec<u8>>>, StoreError> {
        self.get(key).map(Some)
    }

    /// As [`Store::scan`], but waits for no disk: `false` = it would have to, and nothing was visited.
    fn scan_near(&self, from: &[u8], until: &[u8], visit: Visit<'_>) -> Result<bool, StoreError> {
        self.scan(from, until, visit).map(|()| true)
    }

    /// Writes `batch` and remembers the record at `seq` as applied, and that it left shards at the heads `of`:
    /// all or nothing, also across a crash. Need not be durable: after a crash the log is replayed from
    /// [`Store::applied`].
    fn apply(&mut self, seq: LogSeq, of: &[Head], batch: Batch) -> Result<(), StoreError>;

    /// The last place given to [`Store::apply`] that survived.
    fn applied(&self) -> LogSeq;

    /// The head of a shard as the records up to [`Store::applied`] left it; `None` = it has none here. A scan may
    /// show an older row at its [`applied_key`], or none: a store may write it with its next checkpoint only.
    fn applied_of(&self, shard: ShardId) -> Result<Option<Head>, StoreError>;
}

/// Reads through its own writes. Dropped without [`Txn::into_batch`], it never happened.
pub struct Txn<'a, S: Store + ?Sized> {
    store: &'a S,
    writes: Batch,
}

impl<'a, S: Store + ?Sized> Txn<'a, S> {
    /// Starts with no writes.
    pub fn new(store: &'a S) -> Self {
        Self { store, writes: Batch::new() }
    }

    /// The row at `key`, own writes included.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        match self.writes.get(key) {
            Some(value) => Ok(value.clone()),
            None => self.store.get(key),
        }
    }

    /// Writes a row.
    pub fn put(&mut self, key: Key, value: Vec<u8>) {
        self.writes.insert(key, Some(value));
    }

    /// Deletes a row.
    pub fn delete(&mut self, key: Key) {
        self.writes.insert(key, None);
    }

    /// Visits rows with `from <= key < until` in order, own writes included.
    pub fn scan(&self, from: &[u8], until: &[u8], visit: Visit<'_>) -> Result<(), StoreError> {
        if from >= until {
            return Ok(());
        }
        let own = |range| self.writes.range::<[u8], _>(range);
        let mut pending =
            own((core::ops::Bound::Included(from), core::ops::Bound::Excluded(until))).peekable();
        let mut go = true;
        self.store.scan(from, until, &mut |key, value| {
            while let Some((k, v)) = pending.next_if(|(k, _)| k.as_slice() < key) {
                if let Some(v) = v {
                    go = visit(k, v);
                    if !go {
                        return false;
                    }
                }
            }
            go = match pending.next_if(|(k, _)| k.as_slice() == key) {
                Some((_, None)) => true,
                Some((k, Some(v))) => visit(k, v),
                None => visit(key, value),
            };
            go
        })?;
        if go {
            for (k, v) in pending {
                if v.as_ref().is_some_and(|v| !visit(k, v)) {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Did it write nothing?
    pub fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }

    /// The writes, to be applied.
    pub fn into_batch(self) -> Batch {
        self.writes
    }
}

/// Rows in memory: the simulator's store, and the tests'.
#[derive(Debug, Clone, Default)]
pub struct MemoryStore {
    /// All but those of [`applied_key`].
    rows: BTreeMap<Key, Vec<u8>>,
    applied: LogSeq,
    /// Rows of [`applied_key`]: they change with every record, and would be looked for among all rows each time.
    heads: BTreeMap<ShardId, Vec<u8>>,
    /// What of them counts as read from a disk; `None`: all.
    near: Option<RefCell<Near>>,
    /// Rows that scans have visited.
    visited: Cell<usize>,
}

/// Keys and ranges that [`MemoryStore::bring`] has read.
#[derive(Debug, Clone, Default)]
struct Near {
    keys: BTreeSet<Key>,
    ranges: BTreeSet<(Key, Key)>,
    in_place: BTreeSet<Key>,
}

impl MemoryStore {
    /// As if its rows were on a disk: none of them counts as in memory before it is brought, or written.
    pub fn on_disk() -> Self {
        Self { near: Some(RefCell::default()), ..Self::default() }
    }

    /// Does it count as on a disk?
    pub fn is_on_disk(&self) -> bool {
        self.near.is_some()
    }

    /// Reads rows from the disk that is made up.
    pub fn bring(&self, wanted: &[Wanted]) {
        let Some(near) = &self.near else { return };
        for wanted in wanted {
            match wanted {
                Wanted::Row(key) => near.borrow_mut().keys.insert(key.clone()),
                Wanted::Range(from, until) => near.borrow_mut().ranges.insert((from.clone(), until.clone())),
            };
        }
    }

    /// So many rows, one by one, were read from the disk since the last call while everybody waited; ranges do not count.
    pub fn take_read_in_place(&self) -> usize {
        let read = self.near.as_ref().map(|near| core::mem::take(&mut near.borrow_mut().in_place));
        read.map_or(0, |keys| keys.len())
    }

    /// So many rows were visited by scans since the last call.
    pub fn take_visited(&self) -> usize {
        self.visited.take()
    }

    /// None of its rows is in memory any more, if they are on a disk.
    pub fn forget(&self) {
        if let Some(near) = &self.near {
            near.take();
        }
    }
}

impl Store for MemoryStore {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        if let Some(shard) = applied_shard(key) {
            return Ok(self.heads.get(&shard).cloned());
        }
        if let Some(mut near) = self.near.as_ref().map(RefCell::borrow_mut)
            && !near.keys.contains(key)
        {
            near.in_place.insert(key.to_vec());
        }
        Ok(self.rows.get(key).cloned())
    }

    fn get_near(&self, key: &[u8]) -> Result<Option<Option<Vec<u8>>>, StoreError> {
        match &self.near {
            Some(near) if !near.borrow().keys.contains(key) => Ok(None),
            _ => self.get(key).map(Some),
        }
    }

    fn scan_near(&self, from: &[u8], until: &[u8], visit: Visit<'_>) -> Result<bool, StoreError> {
        match &self.near {
            Some(near) if !near.borrow().ranges.contains(&(from.to_vec(), until.to_vec())) => Ok(false),
            _ => self.scan(from, until, visit).map(|()| true),
        }
    }

    fn scan(&self, from: &[u8], until: &[u8], visit: Visit<'_>) -> Result<(), StoreError> {
        if from >= until {
            return Ok(());
        }
        let heads = self.heads.iter().map(|(shard, head)| (applied_bytes(*shard), head));
        let mut heads = heads.filter(|(key, _)| from <= &key[..] && &key[..] < until).peekable();
        let range = (core::ops::Bound::Included(from), core::ops::Bound::Excluded(until));
        for (key, value) in self.rows.range::<[u8], _>(range) {
            while let Some((before, head)) = heads.next_if(|(before, _)| &before[..] < key.as_slice()) {
                if !visit(&before, head) {
                    return Ok(());
                }
            }
            self.visited.set(self.visited.get() + 1);
            if !visit(key, value) {
                return Ok(());
            }
        }
        heads.all(|(key, head)| visit(&key, head));
        Ok(())
    }

    fn apply(&mut self, seq: LogSeq, of: &[Head], batch: Batch) -> Result<(), StoreError> {
        if let Some(near) = &self.near {
            near.borrow_mut().keys.extend(batch.keys().cloned());
        }
        for (key, value) in batch {
            match (applied_shard(&key), value) {
                (Some(shard), Some(value)) => self.heads.insert(shard, value),
                (Some(shard), None) => self.heads.remove(&shard),
                (None, Some(value)) => self.rows.insert(key, value),
                (None, None) => self.rows.remove(&key),
            };
        }
        for head in of {
            let row = self.heads.entry(head.shard).or_default();
            row.clear();
            head.encode(row);
        }
        self.applied = seq;
        Ok(())
    }

    fn applied(&self) -> LogSeq {
        self.applied
    }

    fn applied_of(&self, shard: ShardId) -> Result<Option<Head>, StoreError> {
        let row = self.heads.get(&shard).map(|row| Head::from_bytes(row)).transpose();
        row.map_err(|e| StoreError::Corrupt(format!("how far shard {shard} is applied is unreadable: {e}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use skep_types::{LogIndex, Term};

    /// Goal: a scan through a transaction sees the store with the transaction's writes on top.
    #[test]
    fn scan_merges_own_writes() {
        let mut store = MemoryStore::default();
        let rows = [(vec![1], Some(vec![1])), (vec![3], Some(vec![3])), (vec![5], Some(vec![5]))];
        store.apply(LogSeq(1), &[], rows.into_iter().collect()).unwrap();
        let mut txn = Txn::new(&store);
        txn.delete(vec![3]);
        txn.put(vec![4], vec![4]);
        txn.put(vec![5], vec![50]);
        txn.put(vec![7], vec![7]);
        let mut seen = vec![];
        txn.scan(&[1], &[9], &mut |k, v| {
            seen.push((k[0], v[0]));
            true
        })
        .unwrap();
        assert_eq!(seen, [(1, 1), (4, 4), (5, 50), (7, 7)]);
        assert_eq!([store.take_visited(), store.take_visited()], [3, 0]);
        seen.clear();
        txn.scan(&[1], &[9], &mut |k, v| {
            seen.push((k[0], v[0]));
            seen.len() < 2
        })
        .unwrap();
        assert_eq!(seen, [(1, 1), (4, 4)]);
    }

    /// Goal: what is applied of a shard lies among the shard's rows: it is deleted and copied with them.
    #[test]
    fn applied_goes_with_the_rows() {
        let heads = [1, 2].map(|n| Head { shard: ShardId(n), term: Term(3), index: LogIndex(u64::from(n)) });
        let mut store = MemoryStore::default();
        store.apply(LogSeq(7), &heads, Batch::new()).unwrap();
        assert_eq!((store.applied(), store.applied_of(ShardId(2))), (LogSeq(7), Ok(Some(heads[1]))));
        let mut rows = Batch::new();
        let visit = &mut |key: &[u8], value: &[u8]| {
            assert_eq!(applied_shard(key), Some(ShardId(1)));
            rows.insert(key.to_vec(), Some(value.to_vec())).is_none()
        };
        store.scan(&[0, 1], &[0, 2], visit).unwrap();
        for (key, other) in [(vec![0, 1, 5], 1), (vec![0, 2, 5], 2)] {
            store.apply(LogSeq(7), &[], [(key, Some(vec![other]))].into()).unwrap();
        }
        let mut seen = vec![];
        let visit = &mut |key: &[u8], _: &[u8]| {
            seen.push(key.to_vec());
            seen.len() < 3
        };
        store.scan(&[0, 1], &[0, 3], visit).unwrap();
        assert_eq!(seen, [vec![0, 1, 5], applied_key(ShardId(1)), vec![0, 2, 5]]);
        let mut copy = MemoryStore::default();
        copy.apply(LogSeq(1), &[], rows).unwrap();
        assert_eq!(
            (copy.applied_of(ShardId(1)), copy.applied_of(ShardId(2))),
            (Ok(Some(heads[0])), Ok(None))
        );
        store.apply(LogSeq(8), &[], [(applied_key(ShardId(1)), None)].into()).unwrap();
        assert_eq!(store.applied_of(ShardId(1)), Ok(None));
        store.apply(LogSeq(9), &[], [(applied_key(ShardId(1)), Some(vec![7]))].into()).unwrap();
        assert!(matches!(store.applied_of(ShardId(1)), Err(StoreError::Corrupt(_))));
        assert_eq!(applied_shard(&[0, 1, APPLIED, 0]), None);
    }

    /// Goal: rows on a disk that is made up are not near before they are brought or written; what waits for the disk
    /// finds them all the same, and is counted.
    #[test]
    fn rows_on_a_disk_are_brought() {
        let mut store = MemoryStore::on_disk();
        let visit = &mut |_: &[u8], _: &[u8]| true;
        store.apply(LogSeq(1), &[], [(vec![0, 0, 5], Some(vec![5]))].into()).unwrap();
        assert_eq!(store.get_near(&[0, 0, 5]), Ok(Some(Some(vec![5]))));
        store.forget();
        assert_eq!(store.get_near(&[0, 0, 5]), Ok(None));
        assert_eq!(store.take_read_in_place(), 0);
        assert_eq!(store.get(&[0, 0, 5]), Ok(Some(vec![5])));
        assert_eq!([store.take_read_in_place(), store.take_read_in_place()], [1, 0]);
        assert_eq!(store.scan_near(&[0], &[1], visit), Ok(false));
        store.bring(&[Wanted::Row(vec![0, 0, 6]), Wanted::Range(vec![0], vec![1])]);
        assert_eq!((store.get_near(&[0, 0, 6]), store.get_near(&[0, 0, 5])), (Ok(Some(None)), Ok(None)));
        assert_eq!(store.scan_near(&[0], &[1], visit), Ok(true));
        assert_eq!(store.get(&[0, 0, 6]).map(|_| store.take_read_in_place()), Ok(0), "it is in memory");
        assert_eq!(MemoryStore::default().get_near(&[0, 0, 5]), Ok(Some(None)));
    }
}
