//! fjall, as far as the row store uses it: point reads, ranges, and sorted runs that become
//! visible and durable as a whole.
//!
//! Runs go in by fjall's ingestion, not by write batches. A batch of 64 MiB would pass through
//! fjall's journal, and a journal that a power cut tears in the middle of a batch may not open
//! again; it would also be written twice and sorted twice. A run is written once, synced, and
//! switched on by an atomic rename (`docs/design/log.md`).

use super::RESERVED;
use super::overlay::Overlay;
use fjall::{Database, Keyspace, KeyspaceCreateOptions, LsmError, PersistMode};
use skep_rows::{StoreError, applied_key};
use skep_types::log::Head;
use skep_types::{Decode, LogSeq, ShardId};
use std::path::{Path, PathBuf};

/// Threads of fjall that merge runs. One: the metadata thread needs the other cores.
const WORKERS: usize = 1;
/// Open files that fjall keeps.
const FILES: usize = 256;
/// Key of the row that says up to which place of the log all is applied.
const APPLIED_KEY: [u8; 9] = *b"\xff\xffapplied";
/// Start of that row: what it is, and the version of this use of fjall.
const APPLIED_MAGIC: [u8; 8] = *b"SKEPROW1";

/// A store on disk.
#[derive(Clone)]
pub(super) struct Engine {
    database: Database,
    rows: Keyspace,
    dir: PathBuf,
}

impl Engine {
    /// Opens or makes the store; says up to which entry of the log its rows are.
    pub(super) fn open(dir: &Path, block_cache_bytes: u64) -> Result<(Self, LogSeq), StoreError> {
        let fail = |e| sort(dir, "open", &e);
        let database = Database::builder(dir)
            .cache_size(block_cache_bytes)
            .worker_threads(WORKERS)
            .max_cached_files(Some(FILES))
            .manual_journal_persist(true)
            .open()
            .map_err(fail)?;
        let rows = database.keyspace("rows", KeyspaceCreateOptions::default).map_err(fail)?;
        // The keyspace's name goes through fjall's journal.
        database.persist(PersistMode::SyncAll).map_err(fail)?;
        let engine = Self { database, rows, dir: dir.to_path_buf() };
        let applied = engine.applied()?;
        Ok((engine, applied))
    }

    fn applied(&self) -> Result<LogSeq, StoreError> {
        let Some(value) = self.get(&APPLIED_KEY)? else {
            return match self.rows.first_key_value() {
                None => Ok(LogSeq(0)),
                Some(_) => Err(corrupt(&self.dir, "it has rows but no word on how far they are applied")),
            };
        };
        let mut seq = [0; 8];
        match value.strip_prefix(&APPLIED_MAGIC) {
            Some(rest) if rest.len() == 8 => seq.copy_from_slice(rest),
            _ => {
                return Err(corrupt(
                    &self.dir,
                    "how far its rows are applied is unreadable or of another release",
                ));
            }
        }
        Ok(LogSeq(u64::from_le_bytes(seq)))
    }

    /// How far each shard's records are applied.
    pub(super) fn heads(&self) -> Result<Vec<Head>, StoreError> {
        let mut heads = Vec::new();
        let mut from = 0u16;
        // From one shard that has rows to the next: few steps, whatever the rows.
        while let Some(row) = self.range(&from.to_be_bytes(), &RESERVED).next() {
            let (key, _) = row?;
            let shard = ShardId(u16::from_be_bytes([key[0], key.get(1).copied().unwrap_or(0)]));
            if let Some(value) = self.get(&applied_key(shard))? {
                let head = Head::from_bytes(&value).ok().filter(|head| head.shard == shard);
                let what =
                    || corrupt(&self.dir, format_args!("how far shard {shard} is applied is unreadable"));
                heads.push(head.ok_or_else(what)?);
            }
            from = shard.0.max(from) + 1;
        }
        Ok(heads)
    }

    pub(super) fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        let value = self.rows.get(key).map_err(|e| sort(&self.dir, "read", &e))?;
        Ok(value.map(|value| value.to_vec()))
    }

    /// Rows of a range in key order, the store's own left out.
    pub(super) fn range<'a>(&'a self, from: &[u8], until: &[u8]) -> Range<'a> {
        // The store's own keys are the last of all.
        let until = until.min(&RESERVED[..]);
        let iter = (from < until).then(|| self.rows.range(from..until));
        Range { iter, dir: &self.dir }
    }

    /// Writes rows and how far they are applied as one run: all of it or nothing, durable on return.
    pub(super) fn write_run(&self, rows: &Overlay, applied: LogSeq) -> Result<(), StoreError> {
        let fail = |e| sort(&self.dir, "write a checkpoint to", &e);
        let mut run = self.rows.start_ingestion().map_err(fail)?;
        for (key, value) in rows.iter() {
            match value {
                Some(value) => run.write(key, value.as_slice()),
                None => run.write_tombstone(key),
            }
            .map_err(fail)?;
        }
        let value = [APPLIED_MAGIC, applied.0.to_le_bytes()].concat();
        run.write(&APPLIED_KEY[..], value.as_slice()).map_err(fail)?;
        run.finish().map_err(fail)?;
        // Its journal is empty; this tells when one of fjall's threads has failed.
        self.database.persist(PersistMode::SyncAll).map_err(fail)
    }

    /// Runs that wait to be merged.
    pub(super) fn unmerged_runs(&self) -> usize {
        self.rows.l0_table_count()
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }
}

/// Rows of a range.
pub(super) struct Range<'a> {
    iter: Option<fjall::Iter>,
    dir: &'a Path,
}

impl Iterator for Range<'_> {
    type Item = Result<fjall::KvPair, StoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        let row = self.iter.as_mut()?.next()?;
        Some(row.into_inner().map_err(|e| sort(self.dir, "scan", &e)))
    }
}

fn corrupt(dir: &Path, what: impl std::fmt::Display) -> StoreError {
    StoreError::Corrupt(format!(
        "{}: {what}; copy it aside, check the disk, then restore this server from a replica or a backup",
        dir.display()
    ))
}

fn sort(dir: &Path, doing: &str, error: &fjall::Error) -> StoreError {
    let place = dir.display();
    match error {
        fjall::Error::Locked => StoreError::Io(format!(
            "{place} is in use by another process; stop it, or give this daemon its own directory"
        )),
        fjall::Error::Io(e) | fjall::Error::Storage(LsmError::Io(e)) => StoreError::Io(format!(
            "cannot {doing} {place}: {e}; check its free space and the disk (df, dmesg), then restart the daemon"
        )),
        fjall::Error::Poisoned => StoreError::Io(format!(
            "cannot {doing} {place}: an earlier write failed; check its free space and the disk (df, dmesg), \
             then restart the daemon"
        )),
        e => corrupt(dir, format_args!("cannot {doing} it: {e}")),
    }
}
