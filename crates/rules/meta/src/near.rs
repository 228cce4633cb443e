//! Rows for a run that does not wait for a disk: it ends where a row is not in memory, without an effect, and says
//! which rows it lacks. See `docs/design/shard.md`, "Rows that are read from disk".

use crate::store::{Batch, Store, StoreError, Visit, Wanted};
use alloc::vec::Vec;
use core::cell::RefCell;
use skep_types::log::Head;
use skep_types::{LogSeq, ShardId};

/// Rows as one run sees them.
pub struct Near<'a, S> {
    store: &'a S,
    /// It reads from the disk what it lacks, and all others wait.
    in_place: bool,
    lacks: RefCell<Vec<Wanted>>,
}

impl<'a, S: Store> Near<'a, S> {
    /// For one run.
    pub fn new(store: &'a S, in_place: bool) -> Self {
        Self { store, in_place, lacks: RefCell::default() }
    }

    /// What was asked for and is not in memory. Whatever the run ended with, it counts only when this is empty.
    pub fn take_lacks(&self) -> Vec<Wanted> {
        self.lacks.take()
    }

    /// Twice the same does no harm.
    fn lack<T>(&self, wanted: Wanted) -> Result<T, StoreError> {
        self.lacks.borrow_mut().push(wanted);
        Err(StoreError::Away)
    }
}

impl<S: Store> Store for Near<'_, S> {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        if self.in_place {
            return self.store.get(key);
        }
        match self.store.get_near(key)? {
            Some(row) => Ok(row),
            None => self.lack(Wanted::Row(key.to_vec())),
        }
    }

    fn scan(&self, from: &[u8], until: &[u8], visit: Visit<'_>) -> Result<(), StoreError> {
        if self.in_place || from >= until {
            return self.store.scan(from, until, visit);
        }
        match self.store.scan_near(from, until, visit)? {
            true => Ok(()),
            false => self.lack(Wanted::Range(from.to_vec(), until.to_vec())),
        }
    }

    fn apply(&mut self, _: LogSeq, _: &[Head], _: Batch) -> Result<(), StoreError> {
        Err(StoreError::Io(
            "rows that a run only looks at were to be written (a bug: please report it)".into(),
        ))
    }

    fn applied(&self) -> LogSeq {
        self.store.applied()
    }

    fn applied_of(&self, shard: ShardId) -> Result<Option<Head>, StoreError> {
        self.store.applied_of(shard)
    }
}
