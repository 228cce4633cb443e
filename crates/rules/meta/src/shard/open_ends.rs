//! What a shard was in the middle of when its last term ended, and whom its rows know: read in parts when its next term
//! begins. Until all of it is read the shard serves nobody, writes nothing of its own and sends nothing, so its rows stay.

use super::Shard;
use super::absorb::Later;
use crate::fail::corrupt;
use crate::group::Host;
use crate::key::{self, Table};
use crate::row::growth::Growth;
use crate::row::txn::{Decision, Prepared, Redo};
use crate::store::{Key, Store, StoreError};
use alloc::collections::BTreeSet;
use skep_types::{ClientId, Decode, Ino, LogIndex, Millis};

/// Tables that are read, in this order: what waits for the record of the term begins in it.
const TABLES: [Table; 10] = [
    Table::Trim,
    Table::Prepared,
    Table::Decision,
    Table::Seal,
    Table::Orphan,
    Table::Growth,
    Table::Holder,
    Table::Writer,
    Table::DeadGrowth,
    Table::Slot,
];

/// How far this is.
#[derive(Debug, Default)]
pub struct Reading {
    /// Place of the table in [`TABLES`].
    table: usize,
    /// The newest row of it that was read.
    after: Option<Key>,
}

impl Shard {
    /// Its newest record has begun a term here.
    pub fn begin_reading(&mut self) {
        (self.started, self.reading) = (Some(self.last), Some(Reading::default()));
    }

    /// Reads on, as many rows as this step may still read. `true`: that was the last of them, or its term is over.
    pub fn read_on<S: Store>(&mut self, host: &mut Host<S>) -> Result<bool, StoreError> {
        while let Some(Reading { table, after }) = self.reading.take() {
            let Some(kind) = TABLES.get(table).copied() else {
                // Its term may have become durable before.
                self.durable(host)?;
                break;
            };
            if host.term_rows_left == 0 {
                self.reading = Some(Reading { table, after });
                return Ok(false);
            }
            let after = self.read_some(host, kind, after)?;
            let table = if after.is_some() { table } else { table + 1 };
            self.reading = Some(Reading { table, after });
        }
        Ok(true)
    }

    /// Reads rows of a table behind `after`; the last of them, if there may be more.
    fn read_some<S: Store>(
        &mut self,
        host: &mut Host<S>,
        table: Table,
        after: Option<Key>,
    ) -> Result<Option<Key>, StoreError> {
        let (start, until) = key::table(self.id, table);
        let from = after.map_or(start, |mut key| {
            key.push(0);
            key
        });
        let (most, now) = (host.term_rows_left, host.now);
        let (mut read, mut last, mut done) = (0, None, Ok(()));
        host.store.scan(&from, &until, &mut |key, bytes| {
            done = self.open_end(table, key, bytes, now);
            read += 1;
            if read == most {
                last = Some(key.to_vec());
            }
            read < most && done.is_ok()
        })?;
        host.term_rows_left -= read.max(1);
        done.map(|()| last)
    }

    fn open_end(&mut self, table: Table, key: &[u8], bytes: &[u8], now: Millis) -> Result<(), StoreError> {
        let (begun, number) = (self.started.unwrap_or(self.last), key::last_u64(key));
        let ino = Ino(number);
        let mut later = |what| self.later.entry(begun).or_default().push(what);
        match table {
            Table::Trim => {
                later(Later::Trim(ino));
                self.trimming.insert(ino);
            }
            Table::Prepared => {
                let row = Prepared::from_bytes(bytes).map_err(|e| corrupt("prepared row", e))?;
                if let (Some(txid), Prepared { age, redo: Some(redo) }) = (key::prepared_of(key), row) {
                    self.txns.prepared(txid, age, redo.iter().map(Redo::ino).collect(), now);
                }
            }
            Table::Decision => {
                let row = Decision::from_bytes(bytes).map_err(|e| corrupt("decision row", e))?;
                if let Some(txid) = key::decision_of(key) {
                    later(Later::Decided(txid));
                    self.txns.committed(txid, row.participants);
                }
            }
            Table::Seal => {
                later(Later::Seal(ino));
                self.seals.noted(ino);
            }
            Table::Orphan => {
                self.orphans.insert(ino);
            }
            Table::Growth => {
                self.growths.insert(ino);
                self.in_rows.extend(Growth::from_bytes(bytes).ok().map(|growth| growth.client));
            }
            // Of the log as it was read, so on stable storage.
            Table::Holder => {
                self.holders.insert(ClientId(number), LogIndex(0));
            }
            Table::Writer => {
                let writer = key::writer_of(key);
                self.writers.extend(writer);
                self.unlent.extend(writer.filter(|_| bytes.is_empty()).map(|(ino, _)| ino));
            }
            Table::DeadGrowth => self.dead_growths.extend(key::slot_of(key)),
            Table::Slot => self.in_rows.extend(key::slot_of(key).map(|(client, _)| client)),
            Table::Header
            | Table::Inode
            | Table::Entry
            | Table::Xattr
            | Table::Inline
            | Table::Deletion
            | Table::Terms
            | Table::Floor => {}
        }
        Ok(())
    }

    /// Service begins: sessions that ended while nobody answered for this shard have left something behind in its rows.
    pub(super) fn end_forgotten<S: Store>(&mut self, host: &mut Host<S>) {
        let mut clients: BTreeSet<ClientId> = core::mem::take(&mut self.in_rows);
        clients.extend(self.writers.iter().map(|(_, client)| *client));
        clients.extend(self.dead_growths.iter().map(|(client, _)| *client));
        clients.extend(self.holders.keys());
        clients.remove(&ClientId(0));
        for client in clients {
            if !host.sessions.watch(client) {
                self.end_session(host, client);
            }
        }
    }
}
