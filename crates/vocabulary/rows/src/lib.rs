//! Vocabulary: ordered rows, as rules see them and hands keep them, and the transaction that
//! makes a command all-or-nothing.
//!
//! The rules of a shard see rows only through [`Store`]; the hands put fjall under it, the
//! simulator a `BTreeMap`. A command runs in a [`Txn`]: its writes become one [`Batch`] that is
//! applied together with the log index, or are dropped when the command is refused.
#![no_std]
extern crate alloc;

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use skep_types::LogIndex;

/// The row store failed. Whoever owns the shard stops serving it: guessing would lose data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreError {
    /// The disk refused; the text says what and where.
    Io(String),
    /// Bytes that were read are not what was written.
    Corrupt(String),
}

impl core::fmt::Display for StoreError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Io(text) => write!(f, "row store: {text}"),
            Self::Corrupt(text) => write!(f, "row store is corrupt: {text}"),
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

/// Ordered rows of all shards of one metadata thread.
pub trait Store {
    /// The row at `key`.
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError>;

    /// Visits rows with `from <= key < until` in order until `visit` says `false`.
    fn scan(&self, from: &[u8], until: &[u8], visit: Visit<'_>) -> Result<(), StoreError>;

    /// Writes `batch` and remembers `index` as applied, both or neither, also across a crash.
    /// Need not be durable: after a crash the log is replayed from [`Store::applied`].
    fn apply(&mut self, index: LogIndex, batch: Batch) -> Result<(), StoreError>;

    /// The last index given to [`Store::apply`] that survived.
    fn applied(&self) -> LogIndex;
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
    rows: BTreeMap<Key, Vec<u8>>,
    applied: LogIndex,
}

impl Store for MemoryStore {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self.rows.get(key).cloned())
    }

    fn scan(&self, from: &[u8], until: &[u8], visit: Visit<'_>) -> Result<(), StoreError> {
        if from < until {
            let range = (core::ops::Bound::Included(from), core::ops::Bound::Excluded(until));
            for (key, value) in self.rows.range::<[u8], _>(range) {
                if !visit(key, value) {
                    break;
                }
            }
        }
        Ok(())
    }

    fn apply(&mut self, index: LogIndex, batch: Batch) -> Result<(), StoreError> {
        for (key, value) in batch {
            match value {
                Some(value) => self.rows.insert(key, value),
                None => self.rows.remove(&key),
            };
        }
        self.applied = index;
        Ok(())
    }

    fn applied(&self) -> LogIndex {
        self.applied
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    /// Goal: a scan through a transaction sees the store with the transaction's writes on top.
    #[test]
    fn scan_merges_own_writes() {
        let mut store = MemoryStore::default();
        let rows = [(vec![1], Some(vec![1])), (vec![3], Some(vec![3])), (vec![5], Some(vec![5]))];
        store.apply(LogIndex(1), rows.into_iter().collect()).unwrap();
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
        seen.clear();
        txn.scan(&[1], &[9], &mut |k, v| {
            seen.push((k[0], v[0]));
            seen.len() < 2
        })
        .unwrap();
        assert_eq!(seen, [(1, 1), (4, 4)]);
    }
}
