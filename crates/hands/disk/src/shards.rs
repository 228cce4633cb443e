//! The shards of a metadata server with their log and rows: one round after another.
//!
//! A round carries out inputs, appends what they decided, and only then lets answers out. Two things keep
//! it bounded whatever arrives: records go to the log in groups as soon as there are enough of them, and when
//! rows arrive faster than checkpoints take them away, the round waits a moment and then takes no more changes.
//! The rows never wait by themselves: a checkpoint waits for records that only this thread appends.

use crate::log::{CommandLog, GROUP_MAX, LogError, PAYLOAD_MAX, Record, SyncHandle};
use crate::rows::RowStore;
use skep_meta::{Group, Input, Output};
use skep_rows::StoreError;
use skep_types::{LogSeq, Millis, Timestamp};
use std::fmt;
use std::time::Duration;

/// Bytes of records that go to the log as one group.
pub const GROUP_BYTES: usize = 8 << 20;
/// A round waits no longer than this for a checkpoint; then it refuses changes until there is room.
pub const ROOM_WAIT: Duration = Duration::from_millis(500);

const _: () = assert!(GROUP_BYTES + 2 * PAYLOAD_MAX <= GROUP_MAX);

/// Why the shards cannot go on.
#[derive(Debug)]
pub enum ShardsError {
    /// The log refused. The rows are ahead of it now, in memory: only a restart brings them together.
    Log(LogError),
    /// The rows failed.
    Rows(StoreError),
}

impl fmt::Display for ShardsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Log(e) => fmt::Display::fmt(e, f),
            Self::Rows(e) => fmt::Display::fmt(e, f),
        }
    }
}

impl std::error::Error for ShardsError {}

impl From<LogError> for ShardsError {
    fn from(e: LogError) -> Self {
        Self::Log(e)
    }
}

impl From<StoreError> for ShardsError {
    fn from(e: StoreError) -> Self {
        Self::Rows(e)
    }
}

pub struct Shards {
    rules: Group<RowStore>,
    log: CommandLog,
    sync: SyncHandle,
    /// What the steps of the round gave. Its records are appended here; the rest is the caller's.
    pub out: Output,
    group_bytes: usize,
    /// Records of `out` that are counted in `bytes`.
    counted: usize,
    bytes: usize,
    /// Records appended since the last look.
    appended: u64,
    /// This round has waited for a checkpoint.
    waited: bool,
}

impl Shards {
    /// The rules brought up to date from this log.
    pub fn new(rules: Group<RowStore>, log: CommandLog, sync: SyncHandle) -> Self {
        let out = Output::default();
        let group_bytes = GROUP_BYTES;
        Self { rules, log, sync, out, group_bytes, counted: 0, bytes: 0, appended: 0, waited: false }
    }

    /// With smaller groups, for tests.
    pub fn with_groups_of(self, bytes: usize) -> Self {
        Self { group_bytes: bytes, ..self }
    }

    /// The log is replayed. What is to be served says the map.
    pub fn start(&mut self) {
        self.rules.start();
    }

    /// Carries out one input of the round.
    pub fn step(&mut self, now: Millis, wall: Timestamp, input: Input) -> Result<(), ShardsError> {
        self.rules.step(now, wall, input, &mut self.out)?;
        for read in self.out.reads.drain(..) {
            self.rules.store_mut().read_ahead(read.id, read.wanted);
        }
        for read in self.out.reads_given_up.drain(..) {
            self.rules.store_mut().give_up_read(read);
        }
        let fresh = &self.out.records[self.counted..];
        self.bytes += fresh.iter().map(|record| record.bytes.len()).sum::<usize>();
        self.counted = self.out.records.len();
        if self.bytes >= self.group_bytes {
            self.append()?;
        }
        if self.rules.store().is_crowded() { self.make_room() } else { Ok(()) }
    }

    /// Rows were read that requests wait for: they go on.
    pub fn take_read(&mut self, now: Millis, wall: Timestamp) -> Result<(), ShardsError> {
        for id in self.rules.store_mut().take_read()? {
            self.step(now, wall, Input::Read(id))?;
        }
        Ok(())
    }

    /// The last step of the round is done: everything is in the log afterwards. Says how many records the
    /// round wrote.
    pub fn end_round(&mut self) -> Result<u64, ShardsError> {
        self.append()?;
        if self.rules.store().is_crowded() {
            self.make_room()?;
        }
        self.waited = false;
        self.rules.hold_chores(!self.has_room());
        Ok(std::mem::take(&mut self.appended))
    }

    /// May it change something? Otherwise a checkpoint is late: refuse with BUSY.
    pub fn has_room(&self) -> bool {
        !self.rules.store().is_crowded()
    }

    /// Appends what is there, so that the checkpoint can become durable, and waits for it once in a round.
    fn make_room(&mut self) -> Result<(), ShardsError> {
        if std::mem::replace(&mut self.waited, true) {
            return Ok(());
        }
        self.append()?;
        self.sync.request_all();
        self.rules.store_mut().make_room(ROOM_WAIT)?;
        Ok(())
    }

    fn append(&mut self) -> Result<(), ShardsError> {
        (self.counted, self.bytes) = (0, 0);
        let mut rest = &self.out.records[..];
        while !rest.is_empty() {
            let mut bytes = 0;
            let fits = |record: &&Record| {
                bytes += record.bytes.len();
                bytes <= self.group_bytes
            };
            let count = rest.iter().take_while(fits).count().max(1);
            self.log.append(&rest[..count])?;
            rest = &rest[count..];
        }
        self.appended += self.out.records.len() as u64;
        self.out.records.clear();
        Ok(())
    }

    /// A checkpoint ended: the log before it is no longer needed.
    pub fn release(&mut self) -> Result<(), ShardsError> {
        if let Some(seq) = self.rules.store_mut().poll()? {
            self.log.release_before(LogSeq(seq.0 + 1))?;
        }
        self.rules.hold_chores(!self.has_room());
        Ok(())
    }

    /// Everything applied so far becomes part of the rows on disk. The log must be durable.
    pub fn flush(&mut self, limit: Duration) -> Result<(), StoreError> {
        self.rules.store_mut().flush(limit)
    }

    pub fn rules(&self) -> &Group<RowStore> {
        &self.rules
    }

    pub fn log(&self) -> &CommandLog {
        &self.log
    }
}

/// Bytes of the log read at once for the replay.
const REPLAY_BYTES: usize = 16 << 20;
/// A checkpoint that takes longer than this during the replay will never end.
const REPLAY_WAIT: Duration = Duration::from_secs(120);

/// Brings the rules up to the end of the log, `last`.
pub fn replay(rules: &mut Group<RowStore>, log: &CommandLog, last: LogSeq) -> Result<(), String> {
    while rules.last_seq() < last {
        let next = LogSeq(rules.last_seq().0 + 1);
        let records = log.read(next, REPLAY_BYTES).map_err(|e| e.to_string())?;
        if records.is_empty() {
            return Err(format!("the log ends at {} where {last} was found", rules.last_seq()));
        }
        for record in records {
            rules.replay(&log.in_force(record)).map_err(|e| e.to_string())?;
            if !rules.store_mut().make_room(REPLAY_WAIT).map_err(|e| e.to_string())? {
                return Err(format!(
                    "no checkpoint within {REPLAY_WAIT:?} while the log is replayed; the disk is too slow, hangs or \
                     is full (see dmesg, iostat, df)"
                ));
            }
        }
        rules.store_mut().poll().map_err(|e| e.to_string())?;
    }
    Ok(())
}
