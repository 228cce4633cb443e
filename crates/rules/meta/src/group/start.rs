//! Start: rows, replay of the log; new terms of shards.

use super::message::{Output, misplaced};
use super::travel::Travels;
use super::{Group, Host};
use crate::command::{Action, Command, Internal};
use crate::config::Config;
use crate::key;
use crate::shard::Shard;
use crate::store::{Batch, Store, StoreError};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::vec::Vec;
use skep_types::log::{EntryKind, GROUP, Head, Record};
use skep_types::{Millis, ShardId, Timestamp};

impl<S: Store> Group<S> {
    /// Over rows that are as old as the store says; the log is to be replayed from there.
    pub fn new(config: Config, store: S) -> Result<Self, StoreError> {
        let mut group = Self {
            host: Host::new(config, store),
            shards: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            busy: BTreeSet::new(),
            recovering: BTreeSet::new(),
            resumed: ShardId(0),
            ticked: ShardId(0),
            reading: BTreeSet::new(),
            beginning: BTreeSet::new(),
            ended: BTreeSet::new(),
            untold: Vec::new(),
            travels: Travels::default(),
            failed: None,
            #[cfg(test)]
            delivered: BTreeMap::new(),
        };
        let in_rows = group.shards_in_rows()?;
        for id in &in_rows {
            if let Some(shard) = Shard::read(&group.host, *id)? {
                group.shards.insert(*id, shard);
            }
        }
        group.find_leftovers(&in_rows);
        Ok(group)
    }

    fn shards_in_rows(&self) -> Result<Vec<ShardId>, StoreError> {
        let mut shards = Vec::new();
        let mut from = key::header(ShardId(0));
        loop {
            let mut next = None;
            self.host.store.scan(&from, &key::header(GROUP), &mut |key, _| {
                next = key.first_chunk().map(|raw| ShardId(u16::from_be_bytes(*raw)));
                false
            })?;
            let Some(shard) = next else { return Ok(shards) };
            shards.push(shard);
            from = key::header(ShardId(shard.0 + 1));
        }
    }

    /// Applies a record of the log that the rows do not hold yet. In order, before [`Group::start`].
    pub fn replay(&mut self, record: &Record) -> Result<(), StoreError> {
        if record.seq <= self.host.last {
            return Ok(());
        }
        if record.seq != self.host.next_seq() {
            return Err(misplaced(record, self.host.next_seq()));
        }
        match record.kind {
            EntryKind::Terms => self.replay_terms(record)?,
            EntryKind::Command => self.replay_command(record)?,
            EntryKind::Moves => self.replay_moves(record)?,
            EntryKind::Rows => self.replay_rows(record)?,
        }
        self.host.last = record.seq;
        Ok(())
    }

    fn replay_terms(&mut self, record: &Record) -> Result<(), StoreError> {
        let heads = record.heads().map_err(|e| crate::fail::corrupt("heads of shards in the log", e))?;
        let mut batch = Batch::new();
        for head in &heads {
            let Some(shard) = self.shards.get_mut(&head.shard) else {
                return Err(unknown(record, head.shard));
            };
            shard.begin_term(*head, record, &mut batch)?;
        }
        self.host.store.apply(record.seq, &heads, batch)
    }

    fn replay_command(&mut self, record: &Record) -> Result<(), StoreError> {
        let (id, term, index) = (record.shard, record.term, record.index);
        let command = Command::decode(&record.bytes, id, index)?;
        let is_format = matches!(command.action, Action::Internal(Internal::Format(_)));
        if is_format && !self.shards.contains_key(&id) {
            self.shards.insert(id, Shard::new(&self.host, id));
            // What an earlier stay had left was gone by then, or it would not have been made.
            self.travels.made(id);
        }
        let Some(shard) = self.shards.get_mut(&id) else { return Err(unknown(record, id)) };
        shard.require_next(record, Head { shard: id, term, index })?;
        let batch = shard.replay(&self.host, record, &command)?;
        self.host.store.apply(record.seq, &[Head { shard: id, term, index }], batch)?;
        shard.replayed(index);
        if matches!(
            command.action,
            Action::Internal(
                Internal::Format(_) | Internal::Serials(_) | Internal::Place(_) | Internal::EraTold(_)
            )
        ) && let Some(read) = Shard::read(&self.host, id)?
        {
            self.shards.insert(id, read);
        }
        Ok(())
    }

    /// The log is replayed. Which shards begin a term here says the map.
    pub fn start(&mut self) {
        self.host.started = true;
    }

    /// Shards that the map gives to this group begin their terms, by one record. It must be durable before anything is
    /// answered, so that no stamp of a lost tail can look like one of these terms.
    pub(super) fn begin_terms(&mut self) -> Result<(), StoreError> {
        let awaiting = self.shards.values().filter(|shard| shard.awaits_term());
        let heads: Vec<Head> = awaiting.map(|shard| shard.next_head()).collect();
        if heads.is_empty() {
            return Ok(());
        }
        let record = Record::terms(self.host.next_seq(), &heads);
        let mut batch = Batch::new();
        for head in &heads {
            if let Some(shard) = self.shards.get_mut(&head.shard) {
                shard.begin_term(*head, &record, &mut batch)?;
            }
        }
        self.host.log(&heads, batch, record)?;
        self.host.out.sync_now = true;
        for head in &heads {
            self.deliver(head.shard, |shard, _| {
                shard.begin_reading();
                Ok(())
            })?;
            self.reading.insert(head.shard);
        }
        self.read_on().map(drop)
    }

    /// Shards whose terms begin read on, so many rows in one step: those that have read all.
    pub(super) fn read_on(&mut self) -> Result<Vec<ShardId>, StoreError> {
        let mut done = Vec::new();
        while let Some(shard) = self.reading.first().copied()
            && self.deliver(shard, Shard::read_on)?.unwrap_or(true)
        {
            self.reading.remove(&shard);
            done.push(shard);
        }
        Ok(done)
    }

    /// The terms of these shards end, and the next ones begin: what was under way there goes on from the rows.
    pub(super) fn renew_terms(&mut self, shards: &[ShardId]) -> Result<(), StoreError> {
        for shard in shards {
            self.deliver(*shard, Shard::end_term)?;
        }
        self.begin_terms()?;
        self.begin_service()
    }

    /// Ends the term of one shard and begins the next, as when another server had answered for it in between: what is open
    /// there is forgotten, and nothing else. For tests.
    pub fn restart_term(
        &mut self,
        now: Millis,
        wall: Timestamp,
        id: ShardId,
        out: &mut Output,
    ) -> Result<(), StoreError> {
        self.host.begin_step(now, wall, out);
        let done = if self.has_term(id) { self.renew_terms(&[id]) } else { Ok(()) };
        self.host.end_step(out);
        done
    }
}

fn unknown(record: &Record, shard: ShardId) -> StoreError {
    StoreError::Corrupt(format!(
        "log record {} is of shard {shard}, of which there are no rows here: rows and log are not of one server; \
         restore both from one backup",
        record.seq
    ))
}
