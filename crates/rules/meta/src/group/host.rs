//! What the shards of a group have in common: rows, the log's newest place, the clock of this step, other servers.

use super::errands::Errands;
use super::events::Events;
use super::message::{Output, Reply, Request, ShardMessage};
use super::sessions::Sessions;
use super::stats::Counters;
use crate::config::Config;
use crate::shard::{Homes, OpenCounts};
use crate::spread::Spread;
use crate::store::{Batch, Store, StoreError};
use alloc::collections::{BTreeSet, VecDeque};
use alloc::format;
use alloc::vec::Vec;
use skep_types::log::{Head, Record};
use skep_types::{LogIndex, LogSeq, MapVersion, Millis, NodeId, ShardId, Timestamp};
use skep_wire::meta::ShardStamp;
use skep_wire::{Refusal, Status};

/// What a shard keeps in memory for others, as far as it is bounded over all shards of a group.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Load {
    /// Requests that wait.
    pub waits: usize,
    /// Locks held.
    pub locks: usize,
    /// Locks waited for.
    pub lock_waits: usize,
}

impl Load {
    /// A shard has `new` where it had `old`.
    pub fn change(&mut self, old: Self, new: Self) {
        self.waits = self.waits + new.waits - old.waits;
        self.locks = self.locks + new.locks - old.locks;
        self.lock_waits = self.lock_waits + new.lock_waits - old.lock_waits;
    }
}

/// See the module.
pub struct Host<S> {
    /// Rows of all shards.
    pub store: S,
    /// Settings.
    pub config: Config,
    /// What the hands are to do.
    pub out: Output,
    /// As of the current step.
    pub now: Millis,
    /// As of the current step, by the wall clock.
    pub wall: Timestamp,
    /// This server.
    pub own: NodeId,
    /// The map that is held.
    pub map: Option<MapVersion>,
    /// The terms of its shards have begun.
    pub started: bool,
    /// The disk is nearly full.
    pub low_space: bool,
    /// The hands have no room for more rows: work that can wait does.
    pub holds_chores: bool,
    /// Chores that may still be done in this step.
    pub chores_left: usize,
    /// The newest record.
    pub last: LogSeq,
    /// What is on stable storage.
    pub durable: LogSeq,
    /// Records behind that, with their shards.
    pub undurable: VecDeque<(LogSeq, ShardId, LogIndex)>,
    /// Shards that the map gives to this group.
    pub led: BTreeSet<ShardId>,
    /// Where chunks go.
    pub spread: Spread,
    /// Where directories go.
    pub homes: Homes,
    /// Who lives.
    pub sessions: Sessions,
    /// Opens of all shards.
    pub opens: OpenCounts,
    /// What else is bounded over all shards.
    pub load: Load,
    /// Jobs for other servers.
    pub errands: Errands,
    /// What clients are to hear.
    pub events: Events,
    /// What one shard of this group asks another.
    pub loop_calls: VecDeque<(u64, ShardId, ShardMessage)>,
    /// And what came of it.
    pub loop_answers: VecDeque<(u64, Result<Vec<u8>, Refusal>)>,
    /// Counted since the start.
    pub counters: Counters,
}

impl<S: Store> Host<S> {
    /// Over rows that are as old as the store says.
    pub fn new(config: Config, store: S) -> Self {
        Self {
            spread: Spread::new(&config),
            homes: Homes::new(config.life.0),
            events: Events::new(config.life),
            last: store.applied(),
            config,
            store,
            out: Output::default(),
            now: Millis(0),
            wall: Timestamp::default(),
            own: NodeId(0),
            map: None,
            started: false,
            low_space: false,
            holds_chores: false,
            chores_left: 0,
            durable: LogSeq(0),
            undurable: VecDeque::new(),
            led: BTreeSet::new(),
            sessions: Sessions::default(),
            opens: OpenCounts::default(),
            load: Load::default(),
            errands: Errands::default(),
            loop_calls: VecDeque::new(),
            loop_answers: VecDeque::new(),
            counters: Counters::default(),
        }
    }

    /// The output of a round goes through many steps.
    pub fn begin_step(&mut self, now: Millis, wall: Timestamp, out: &mut Output) {
        (self.now, self.wall) = (now, wall);
        self.chores_left = self.config.limits.chores_per_step;
        self.spread.set_now(now);
        core::mem::swap(&mut self.out, out);
    }

    /// Gives it back.
    pub fn end_step(&mut self, out: &mut Output) {
        core::mem::swap(&mut self.out, out);
    }

    /// Are map and fence list known?
    pub fn knows_cluster(&self) -> bool {
        self.map.is_some() && self.sessions.known()
    }

    /// Puts a record into the log that brings these shards so far, and its rows into the store.
    pub fn log(&mut self, heads: &[Head], batch: Batch, record: Record) -> Result<(), StoreError> {
        self.store.apply(record.seq, heads, batch)?;
        self.last = record.seq;
        self.undurable.extend(heads.iter().map(|head| (record.seq, head.shard, head.index)));
        self.out.records.push(record);
        self.counters.logged();
        Ok(())
    }

    /// Place of the next record.
    pub fn next_seq(&self) -> LogSeq {
        LogSeq(self.last.0 + 1)
    }

    /// Answers for no shard.
    pub fn reply(&mut self, to: u64, stamp: ShardStamp, result: Result<Vec<u8>, Refusal>) {
        if to & super::LOOPBACK != 0 {
            self.loop_answers.push_back((to & !super::LOOPBACK, result));
            return;
        }
        self.counters.answered(result.is_ok());
        self.out.replies.push(Reply { to, stamp, result });
    }

    /// Who asks knows a newer fence list than this server.
    pub fn behind(&mut self, request: &Request) -> Option<Refusal> {
        (request.epoch > self.sessions.epoch()).then(|| {
            self.out.fetch_fences = true;
            Refusal::with(Status::NOT_READY, "a newer fence list is being fetched")
        })
    }

    /// Why a request for a shard of which there are no rows here is refused.
    pub fn not_here(&mut self, request: &Request) -> Refusal {
        if let Some(refusal) = self.behind(request) {
            return refusal;
        }
        if !(self.started && self.knows_cluster()) {
            return not_ready();
        }
        self.elsewhere(request.call.shard)
    }

    /// Another server answers for the shard.
    pub fn elsewhere(&self, shard: ShardId) -> Refusal {
        Refusal::with(
            Status::STALE_MAP,
            format!("shard {shard} is not served by node {}; fetch the map", self.own),
        )
    }
}

/// It will be soon.
pub fn not_ready() -> Refusal {
    Refusal::with(
        Status::NOT_READY,
        "the metadata server is starting: it waits for its log, the map and the fence list",
    )
}
