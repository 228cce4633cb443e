//! What keeps the registry: identity, snapshot and command log of one state directory.
//!
//! A change is on stable storage before anybody hears of it. Crash points: `docs/design/cluster.md`.

use super::identity::{IDENTITY_FILE, Identity};
use super::snapshot::Snapshot;
use skep_cluster::{Command, DECIDED_LEVEL, Decided, State};
use skep_disk::disk::{DirLock, Disk, DiskError};
use skep_disk::log::{CommandLog, EntryKind, Head, LogError, LogOptions, Record, Syncer};
use skep_types::{Decode, Encode, LogIndex, LogSeq, NamesKey, ShardId, Term, Uuid};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Size of a log segment: the registry changes seldom.
const SEGMENT_BYTES: u64 = 4 << 20;
/// A snapshot is taken once this many bytes of log stand behind the last one ...
const SNAPSHOT_BYTES: u64 = 8 << 20;
/// ... or this many entries.
const SNAPSHOT_ENTRIES: u64 = 50_000;
/// Bytes of log that are read at a time when it is replayed.
const REPLAY_BYTES: usize = 1 << 20;
/// Terms that are left out when an older copy of the directory is put back: more than it was started since.
const RESTORED_TERMS: u64 = 1 << 16;
/// The only shard of the log: its indexes are the log's own numbers.
const SHARD: ShardId = ShardId(0);
/// Directory of the log in the state directory.
const LOG_DIR: &str = "log";
/// File that the lock of a directory is held on; the one file that an empty directory may have.
const LOCK_FILE: &str = "lock";

/// Why the state directory cannot be used: what, where, what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JournalError(pub String);

impl fmt::Display for JournalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for JournalError {}

impl From<DiskError> for JournalError {
    fn from(e: DiskError) -> Self {
        let advice = if e.is_full() { "free some space" } else { "check the directory and its disk" };
        Self(format!("{e}; {advice}"))
    }
}

impl From<LogError> for JournalError {
    fn from(e: LogError) -> Self {
        Self(e.to_string())
    }
}

/// The open state directory.
pub struct Journal {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    identity: Identity,
    log: CommandLog,
    syncer: Syncer,
    term: Term,
    snapshot_at: LogIndex,
    snapshot_bytes: u64,
    _lock: Box<dyn DirLock>,
}

impl Journal {
    /// Opens the directory, or makes it: a new cluster with `shards` metadata shards, named by `fresh`
    /// (cluster, node and key of names).
    pub fn open(
        disk: Arc<dyn Disk>,
        dir: &Path,
        shards: u16,
        fresh: (Uuid, Uuid, NamesKey),
    ) -> Result<(Self, State), JournalError> {
        disk.create_dir(dir)?;
        let lock = disk.lock_dir(dir)?;
        let mut identity = identity(&*disk, dir, shards, fresh)?;
        let snapshot = Snapshot::read(&*disk, dir)?;
        if identity.formatted {
            expect_log(&*disk, dir)?;
        }
        let options = LogOptions { segment_bytes: SEGMENT_BYTES, ..LogOptions::new(identity.cluster) };
        let (log, recovered) = CommandLog::open(disk.clone(), &dir.join(LOG_DIR), options)?;
        let at = snapshot.as_ref().map_or(LogIndex(0), |s| s.index);
        if recovered.last.0 < at.0 || recovered.first.0 > at.0 + 1 {
            return Err(JournalError(format!(
                "{}: the log holds entries {} to {}, the snapshot ends at {at}: files of different days were \
                 mixed; restore the whole directory from one backup",
                dir.display(),
                recovered.first,
                recovered.last
            )));
        }
        let mut journal = Self {
            syncer: log.syncer(),
            term: Term(log.head(SHARD).map_or(0, |head| head.term.0) + 1),
            snapshot_at: at,
            snapshot_bytes: log.bytes(),
            disk,
            dir: dir.to_owned(),
            identity: identity.clone(),
            log,
            _lock: lock,
        };
        let state = journal.replay(snapshot)?;
        // A new term: map versions rise although they are not logged.
        journal.begin_term()?;
        if !identity.formatted {
            identity.formatted = true;
            identity.write(&*journal.disk, dir)?;
            journal.identity = identity;
        }
        Ok((journal, state))
    }

    /// Who this is.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Length of the log.
    pub fn log_bytes(&self) -> u64 {
        self.log.bytes()
    }

    /// The term of this start.
    pub fn term(&self) -> Term {
        self.term
    }

    /// Terms go on far behind those that this copy of the directory does not know of.
    pub fn jump(&mut self) -> Result<Term, LogError> {
        self.term.0 += RESTORED_TERMS;
        self.begin_term()?;
        Ok(self.term)
    }

    /// Makes the changes durable. [`LogError::Full`]: nothing was written, all goes on. Any other
    /// error: the disk failed, nothing can be acknowledged any more.
    pub fn commit(&mut self, commands: &[Command]) -> Result<(), LogError> {
        let (next, at) = (self.next(), skep_net::wall());
        let record = |(n, command): (u64, &Command)| {
            let head = Head { index: LogIndex(next.index.0 + n), ..next };
            let decided = Decided { level: command.level(), at, command: command.clone() };
            Record::command(LogSeq(head.index.0), head, decided.to_bytes())
        };
        let records: Vec<_> = (0..).zip(commands).map(record).collect();
        self.append(&records)
    }

    fn begin_term(&mut self) -> Result<(), LogError> {
        let next = self.next();
        self.append(&[Record::terms(LogSeq(next.index.0), &[next])])
    }

    /// What the next record leaves.
    fn next(&self) -> Head {
        Head { shard: SHARD, term: self.term, index: LogIndex(self.log.last_seq().0 + 1) }
    }

    fn append(&mut self, records: &[Record]) -> Result<(), LogError> {
        self.log.append(records)?;
        self.syncer.sync().map(|_| ())
    }

    /// The registry as the directory holds it.
    pub fn reload(&self) -> Result<State, JournalError> {
        self.replay(Snapshot::read(&*self.disk, &self.dir)?)
    }

    fn replay(&self, snapshot: Option<Snapshot>) -> Result<State, JournalError> {
        let empty = || State::format(self.identity.cluster, self.identity.names, self.identity.shards);
        let (mut at, mut state) = snapshot.map_or_else(|| (LogIndex(0), empty()), |s| (s.index, s.state));
        while at.0 < self.log.last_seq().0 {
            for record in self.log.read(LogSeq(at.0 + 1), REPLAY_BYTES)? {
                at = LogIndex(record.seq.0);
                if record.kind != EntryKind::Command {
                    continue;
                }
                state.apply(&self.understood(at, &record.bytes)?);
            }
        }
        Ok(state)
    }

    fn understood(&self, at: LogIndex, bytes: &[u8]) -> Result<Command, JournalError> {
        let fail = |why: String| {
            let dir = self.dir.display();
            JournalError(format!(
                "{dir}: entry {at} of the log cannot be read ({why}); was it written by a later release? Start that one"
            ))
        };
        let decided = Decided::from_bytes(bytes).map_err(|e| fail(e.to_string()))?;
        if decided.level > DECIDED_LEVEL {
            return Err(fail(format!("its level is {}, this release knows {DECIDED_LEVEL}", decided.level)));
        }
        Ok(decided.command)
    }

    /// Takes a snapshot when the log has grown enough; says whether it did.
    pub fn snapshot_if_due(&mut self, state: &State) -> Result<bool, JournalError> {
        let last = self.log.last_seq();
        let bytes = self.log.bytes().saturating_sub(self.snapshot_bytes);
        if last.0 - self.snapshot_at.0 < SNAPSHOT_ENTRIES && bytes < SNAPSHOT_BYTES {
            return Ok(false);
        }
        self.snapshot(state)?;
        Ok(true)
    }

    fn snapshot(&mut self, state: &State) -> Result<(), JournalError> {
        let index = LogIndex(self.log.last_seq().0);
        let snapshot = Snapshot { index, term: self.term, state: state.clone() };
        snapshot.write(&*self.disk, &self.dir)?;
        self.log.release_before(LogSeq(index.0 + 1))?;
        self.syncer.sync()?;
        self.snapshot_at = index;
        self.snapshot_bytes = self.log.bytes();
        Ok(())
    }
}

/// Reads the identity; an empty directory gets a new one.
fn identity(
    disk: &dyn Disk,
    dir: &Path,
    shards: u16,
    fresh: (Uuid, Uuid, NamesKey),
) -> Result<Identity, JournalError> {
    if let Some(identity) = Identity::read(disk, dir)? {
        return Ok(identity);
    }
    let strange = |name: &String| *name != LOCK_FILE && *name != format!("{IDENTITY_FILE}.skep-tmp");
    if let Some(name) = disk.list(dir)?.into_iter().find(strange) {
        return Err(JournalError(format!(
            "{}: there is no {IDENTITY_FILE}, yet the directory is not empty ({name}); a new cluster needs an \
             empty directory, an old one all its files",
            dir.display()
        )));
    }
    let (cluster, node, names) = fresh;
    let identity = Identity { cluster, node, names, shards, formatted: false };
    identity.write(disk, dir)?;
    Ok(identity)
}

/// A log that was there must be there: an empty one would be an empty cluster.
fn expect_log(disk: &dyn Disk, dir: &Path) -> Result<(), JournalError> {
    let log = dir.join(LOG_DIR);
    let names = disk.list(&log).unwrap_or_default();
    if names.iter().any(|name| name.ends_with(".log")) {
        return Ok(());
    }
    Err(JournalError(format!(
        "{}: the log is gone; without it nodes, targets and sessions would be forgotten: restore the \
         directory from a backup",
        log.display()
    )))
}

#[cfg(test)]
mod tests;
