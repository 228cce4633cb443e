//! The server: owns all shards of one metadata thread, and everything about them that is not in
//! rows. Inputs in, outputs out; the hands append `records` in one write before they send
//! `replies`, and hand `tasks` to the courier.

mod absorb;
mod admit;
mod chores;
mod deletions;
mod ends;
mod errands;
mod grace;
mod lane;
mod live;
mod locks;
mod lost;
mod map;
mod message;
mod opens;
mod recovery;
mod remote;
mod request;
mod run;
mod seals;
mod serials;
mod sessions;
mod start;
mod stats;
mod timers;
mod told;
mod trims;
mod waits;

pub use message::{
    EntryType, Input, Job, JobFailure, JobReply, Output, PeerIdentity, Record, Reply, Request, Task,
};

use crate::config::Config;
use crate::row::header::{Keys, Terms};
use crate::spread::Spread;
use crate::store::{Store, StoreError};
use absorb::Later;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use chores::Chores;
use deletions::Deletions;
use ends::Ends;
use errands::Errands;
use grace::Grace;
use lane::Memories;
use locks::Table as Locks;
use lost::LostChunks;
use opens::Opens;
use recovery::Recoveries;
use seals::Seals;
use serials::Serials;
use sessions::Sessions;
use skep_types::{
    ClientId, FenceEpoch, Ino, LogIndex, MapVersion, Millis, NodeId, ShardId, Slot, Term, Timestamp,
};
use skep_wire::Refusal;
use skep_wire::meta::{RemoteDir, ShardStamp};
use skep_wire::mgmt::ShardState;
use stats::Counters;
use trims::Trims;
use waits::Waits;

/// Answers to requests that the server sent to itself have this bit in their address.
const LOOPBACK: u64 = 1 << 63;

/// What the server knows of a shard beside its rows.
struct Shard {
    keys: Keys,
    epoch: u64,
    level: u16,
    era: u16,
    /// The map says that this server answers for it.
    leads: bool,
    /// It was formatted in this life of the server.
    is_new: bool,
    /// The record that formatted it, in this life of the server.
    made: LogIndex,
    /// As the map says: nobody is served from a shard that is still new.
    state: ShardState,
    serials: Serials,
    /// Index of its newest log record (at least the start of this term).
    last: LogIndex,
}

/// See the module.
pub struct Server<S: Store> {
    store: S,
    config: Config,
    terms: Terms,
    last: LogIndex,
    durable: LogIndex,
    /// First index of this term, once it began.
    started: Option<LogIndex>,
    own: NodeId,
    /// As of the current step.
    now: Millis,
    map: Option<MapVersion>,
    low_space: bool,
    shards: BTreeMap<ShardId, Shard>,
    /// Shards that it leads and the map still calls new.
    unworded: BTreeSet<ShardId>,
    spread: Spread,
    opens: Opens,
    locks: Locks,
    ends: Ends,
    sessions: Sessions,
    grace: Grace,
    remembered: Memories,
    waits: Waits,
    again: VecDeque<Request>,
    later: BTreeMap<LogIndex, Vec<Later>>,
    settling: BTreeMap<Ino, LogIndex>,
    /// The newest truncate of a file whose record is not durable yet: nothing of it may leave before that.
    cutting: BTreeMap<Ino, LogIndex>,
    orphans: BTreeSet<Ino>,
    growths: BTreeSet<Ino>,
    /// Lanes that may be copying a growth that was given up.
    dead_growths: BTreeSet<(ShardId, ClientId, Slot)>,
    /// Who may have written to chunks more than was committed, as the rows say.
    writers: BTreeSet<(Ino, ClientId)>,
    /// Sizes to recover once the current step is over.
    recover_later: Vec<Ino>,
    next_sweep: Option<Millis>,
    chores: Chores,
    errands: Errands,
    deletions: Deletions,
    trims: Trims,
    seals: Seals,
    recoveries: Recoveries,
    lost: LostChunks,
    loop_calls: VecDeque<(u64, ShardId, RemoteDir)>,
    loop_answers: VecDeque<(u64, Result<Vec<u8>, Refusal>)>,
    counters: Counters,
    /// The row store failed: nothing is answered any more.
    failed: Option<StoreError>,
}

impl<S: Store> Server<S> {
    /// Carries out one input. After an error the server answers nothing more: the hands end the
    /// process, and a restart replays the log.
    pub fn step(
        &mut self,
        now: Millis,
        wall: Timestamp,
        input: Input,
        out: &mut Output,
    ) -> Result<(), StoreError> {
        if let Some(e) = &self.failed {
            return Err(e.clone());
        }
        self.now = now;
        self.spread.set_now(now);
        let done = self.input(now, wall, input, out).and_then(|()| self.drain(now, wall, out));
        if let Err(e) = &done {
            self.failed = Some(e.clone());
        }
        done
    }

    fn input(
        &mut self,
        now: Millis,
        wall: Timestamp,
        input: Input,
        out: &mut Output,
    ) -> Result<(), StoreError> {
        match input {
            Input::Request(request) => {
                self.counters.asked(&request.message);
                self.request(now, wall, request, out)
            }
            Input::Gone(to) => {
                self.waits.abandon(to);
                self.locks.outcomes.abandon(to);
                Ok(())
            }
            Input::Durable(index) => self.durable(now, wall, index, out),
            Input::Courier { task, result } => self.courier(now, wall, task, result, out),
            Input::Map { own, map } => self.take_map(now, wall, own, &map, out),
            Input::Fences(fences) => self.take_fences(now, wall, &fences, out),
            Input::LowSpace(low) => {
                self.low_space = low;
                Ok(())
            }
            Input::Tick => self.tick(now, wall, out),
        }
    }

    /// What became possible, and what the server asked itself: a bounded part of it, the rest is due at once.
    fn drain(&mut self, now: Millis, wall: Timestamp, out: &mut Output) -> Result<(), StoreError> {
        for _ in 0..self.config.limits.resumed_per_step {
            if let Some(ino) = self.recover_later.pop().or_else(|| self.next_recovery()) {
                self.recover(ino, out)?;
            } else if let Some(request) = self.again.pop_front() {
                self.request(now, wall, request, out)?;
            } else if let Some((errand, result)) = self.loop_answers.pop_front() {
                self.loop_answered(now, wall, errand, result, out)?;
            } else if let Some((errand, shard, message)) = self.loop_calls.pop_front() {
                self.request(
                    now,
                    wall,
                    Request::loopback(errand, shard, self.own, message, self.epoch()),
                    out,
                )?;
            } else {
                break;
            }
        }
        Ok(())
    }

    /// Is there something to do at once, without any input?
    fn has_more(&self) -> bool {
        !(self.recover_later.is_empty()
            && self.again.is_empty()
            && self.loop_answers.is_empty()
            && self.loop_calls.is_empty())
            || self.chores.are_due()
            || self.recoveries.can_begin(self.config.limits.recoveries)
    }

    /// The rows.
    pub fn store(&self) -> &S {
        &self.store
    }

    /// The rows, for checkpoints by the hands.
    pub fn store_mut(&mut self) -> &mut S {
        &mut self.store
    }

    /// Gives the rows back.
    pub fn into_store(self) -> S {
        self.store
    }

    /// Term of the log.
    pub fn term(&self) -> Term {
        self.terms.last()
    }

    /// Index of the newest log record.
    pub fn last_index(&self) -> LogIndex {
        self.last
    }

    /// Highest fence epoch whose list it holds.
    pub fn epoch(&self) -> FenceEpoch {
        self.sessions.epoch()
    }

    /// Version of the map it holds.
    pub fn map_version(&self) -> MapVersion {
        self.map.unwrap_or_default()
    }

    /// Does it answer requests (term durable, map and fences known)?
    pub fn is_ready(&self) -> bool {
        let is_begun = self.started.is_some_and(|index| self.durable >= index);
        is_begun && self.map.is_some() && self.sessions.known() && !self.awaits_word()
    }

    /// Does mgmtd not know yet that a shard is formatted?
    fn awaits_word(&self) -> bool {
        !self.unworded.is_empty()
    }

    /// What the log holds on stable storage.
    pub fn durable_index(&self) -> LogIndex {
        self.durable
    }

    /// Shards that it holds rows of.
    pub fn shards(&self) -> impl Iterator<Item = ShardId> + '_ {
        self.shards.keys().copied()
    }

    /// Sends an answer, or keeps it when the server itself asked.
    fn answer(&mut self, to: u64, stamp: ShardStamp, result: Result<Vec<u8>, Refusal>, out: &mut Output) {
        if to & LOOPBACK != 0 {
            self.loop_answers.push_back((to & !LOOPBACK, result));
            return;
        }
        self.counters.answered(result.is_ok());
        // An answer kept from an older term vouches for itself only: what that term had after it may be
        // lost, and its indexes may be in use again.
        let durable = match stamp.term == self.terms.last() {
            true => self.durable,
            false => self.durable.min(stamp.index),
        };
        out.replies.push(Reply { to, stamp: ShardStamp { durable, ..stamp }, result });
    }

    /// The stamp of an answer that shows the shard as it is now.
    fn stamp(&self, shard: ShardId) -> ShardStamp {
        let index = self.shards.get(&shard).map_or(LogIndex(0), |shard| shard.last);
        ShardStamp { term: self.terms.last(), index, durable: self.durable }
    }
}

#[cfg(test)]
mod tests;
