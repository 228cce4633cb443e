//! Power cuts: random appends of several shards, syncs, releases and reopens; then a crash of any kind.
//!
//! Checked after every crash: every entry that was durable (and not released) is there bit for
//! bit; what follows is a prefix of what was appended; nothing was invented; the heads are what
//! the entries lead to, those of released entries included.

use skep_disk::disk::{CrashMode, FaultDisk};
use skep_disk::log::{CommandLog, Head, LogError, LogOptions, Record, SEGMENT_MIN};
use skep_types::{LogIndex, LogSeq, ShardId, Term, Uuid};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

struct Dice(u64);

impl Dice {
    fn below(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) % below
    }
}

/// What a program knows about its log.
struct World {
    disk: FaultDisk,
    log: CommandLog,
    dice: Dice,
    /// Every entry of the log as it must be, from the first.
    written: Vec<Record>,
    durable: u64,
}

const SHARDS: u64 = 8;

type Heads = BTreeMap<ShardId, Head>;

fn heads_after(records: &[Record]) -> Heads {
    let all = records.iter().flat_map(|record| record.heads().expect("made here"));
    all.map(|head| (head.shard, head)).collect()
}

fn next(heads: &Heads, shard: u64, rise: u64) -> Head {
    let shard = ShardId(shard as u16);
    let (term, index) = heads.get(&shard).map_or((0, 0), |head| (head.term.0, head.index.0));
    Head { shard, term: Term(term + rise), index: LogIndex(index + 1) }
}

fn options(preallocate: bool) -> LogOptions {
    LogOptions { segment_bytes: SEGMENT_MIN, preallocate, ..LogOptions::new(Uuid([1; 16])) }
}

impl World {
    fn new(seed: u64) -> Self {
        let disk = FaultDisk::new();
        let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        dice.below(2);
        let log = Self::open(&disk, seed).expect("an empty disk");
        Self { disk, log, dice, written: Vec::new(), durable: 0 }
    }

    fn open(disk: &FaultDisk, seed: u64) -> Result<CommandLog, LogError> {
        let disk = Arc::new(disk.clone());
        CommandLog::open(disk, Path::new("log"), options(seed.is_multiple_of(2))).map(|(log, _)| log)
    }

    fn append(&mut self) -> Result<(), LogError> {
        let mut heads = heads_after(&self.written);
        let mut group = Vec::new();
        for n in 0..1 + self.dice.below(6) {
            let seq = LogSeq(self.written.len() as u64 + 1 + n);
            let record = if self.dice.below(15) == 0 {
                let some = self.dice.below(1 << SHARDS);
                let some = (0..SHARDS).filter(|shard| some >> shard & 1 == 1);
                let list: Vec<_> = some.map(|shard| next(&heads, shard, 1 + seq.0 % 3)).collect();
                Record::terms(seq, &list)
            } else {
                let size = if self.dice.below(20) == 0 { 3000 } else { self.dice.below(250) };
                let bytes = (0..size).map(|_| self.dice.below(256) as u8).collect();
                // One shard has most of the work, another one nearly none.
                let shard = self.dice.below(SHARDS).min(self.dice.below(SHARDS));
                Record::command(seq, next(&heads, shard, 0), bytes)
            };
            heads.extend(heads_after(std::slice::from_ref(&record)));
            group.push(record);
        }
        self.log.append(&group)?;
        self.written.extend(group);
        Ok(())
    }

    fn step(&mut self) -> Result<(), LogError> {
        match self.dice.below(12) {
            0..=7 => self.append()?,
            8..=10 => {
                let synced = self.log.syncer().sync();
                // Durable all the same when only the removal of a released segment failed.
                self.durable = self.log.durable().0;
                synced?;
            }
            _ => {
                let before = self.dice.below(self.durable + 2);
                self.log.release_before(LogSeq(before))?;
            }
        }
        assert_eq!(self.log.durable().0, self.durable);
        Ok(())
    }

    /// Power goes and comes back. `Err` = a loss, as text.
    fn crash(&mut self, mode: CrashMode, seed: u64) -> Result<(), String> {
        self.disk = self.disk.crash(mode, seed);
        self.log = Self::open(&self.disk, seed).map_err(|e| format!("does not open: {e}"))?;
        let last = self.log.last_seq().0;
        if last < self.durable || last > self.written.len() as u64 {
            let written = self.written.len();
            return Err(format!("ends at {last}; durable {}, written {written}", self.durable));
        }
        let first = self.log.first_seq();
        let found = self.log.read(first, usize::MAX).map_err(|e| e.to_string())?;
        let expected = &self.written[first.0 as usize - 1..last as usize];
        if found != expected {
            return Err(format!("entries {first} to {last} are not what was written"));
        }
        self.written.truncate(last as usize);
        self.durable = last;
        let heads: Vec<_> = heads_after(&self.written).into_values().collect();
        if self.log.heads() != heads {
            return Err(format!("the heads are {:?} instead of {heads:?}", self.log.heads()));
        }
        Ok(())
    }
}

const MODES: [CrashMode; 4] =
    [CrashMode::KeepAll, CrashMode::DropAll, CrashMode::Prefix, CrashMode::Reordered];

fn live_through(seed: u64, steps: u64) -> Result<(), String> {
    let mut world = World::new(seed);
    for life in 0..3 {
        for _ in 0..1 + world.dice.below(steps) {
            world.step().map_err(|e| e.to_string())?;
        }
        let mode = MODES[(seed + life) as usize % 4];
        world.crash(mode, seed + life).map_err(|e| format!("seed {seed}, {mode:?}: {e}"))?;
    }
    Ok(())
}

/// Goal: no crash of any kind loses, changes or invents an entry. 1,000 seeds, three lives each.
#[test]
fn crashes_keep_every_durable_entry() {
    for seed in 0..1000 {
        live_through(seed, 60).unwrap();
    }
}

/// Goal: whichever operation fails, with whichever error, and a crash follows: the same holds.
#[test]
fn a_failing_operation_and_a_crash_keep_every_durable_entry() {
    for errno in [rustix::io::Errno::IO, rustix::io::Errno::NOSPC] {
        for n in 1..120 {
            for mode in MODES {
                let mut world = World::new(n);
                world.disk.fail_after(n, errno);
                for _ in 0..80 {
                    // After an EIO everything fails; after ENOSPC it goes on.
                    let _ = world.step();
                }
                world.crash(mode, n).unwrap_or_else(|e| panic!("{errno:?} at {n}, {mode:?}: {e}"));
            }
        }
    }
}

/// Goal: a crash while the log is opened after a crash, at every operation, loses nothing.
#[test]
fn a_crash_during_recovery_keeps_every_durable_entry() {
    for seed in 0..60 {
        for n in 1..12 {
            let mut world = World::new(seed);
            for _ in 0..50 {
                world.step().unwrap();
            }
            world.disk = world.disk.crash(CrashMode::Reordered, seed);
            world.disk.fail_after(n, rustix::io::Errno::IO);
            drop(World::open(&world.disk, seed));
            let mode = MODES[(seed + n) as usize % 4];
            world.crash(mode, seed).unwrap_or_else(|e| panic!("seed {seed} {n} {mode:?}: {e}"));
        }
    }
}

/// Goal: the canary. With an fsync that does nothing, this very harness must see the loss.
#[test]
fn an_fsync_that_does_nothing_is_caught() {
    let mut caught = 0;
    for seed in 0..50 {
        let mut world = World::new(seed);
        world.disk.fsync_does_nothing();
        while world.durable < 10 {
            world.step().unwrap();
        }
        caught += u32::from(world.crash(CrashMode::DropAll, seed).is_err());
    }
    assert_eq!(caught, 50);
}
