//! What the shards of a group have in common: rows, the log's newest place, the clock of this step, other servers.

use super::errands::Errands;
use super::events::Events;
use super::job::ShardMessage;
use super::leases::Leases;
use super::message::{Output, Reply, Request};
use super::reads::Reads;
use super::sessions::Sessions;
use super::stats::Counters;
use crate::config::Config;
use crate::limit::STOOD_STILL_MS;
use crate::op;
use crate::shard::{Begun, Homes, OpenCounts};
use crate::spread::Spread;
use crate::store::{Batch, Store, StoreError};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::format;
use alloc::vec::Vec;
use skep_types::log::{Head, Record};
use skep_types::{
    Encode, Ino, LogIndex, LogSeq, MapVersion, Millis, NamesKey, NodeId, Role, ShardId, Timestamp,
};
use skep_wire::meta::{MetaRequest, ShardCall, ShardStamp};
use skep_wire::mgmt::{ShardEntry, ShardState};
use skep_wire::{Lead, Refusal, Status, View};

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
    /// As of the first one.
    pub began: Millis,
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
    /// Rows that this step may still read of shards whose terms begin.
    pub term_rows_left: usize,
    /// Transactions whose time has come that this step may still go on with.
    pub txns_left: usize,
    /// Waits whose time is over that this step may still end.
    pub waits_left: usize,
    /// The newest record.
    pub last: LogSeq,
    /// What is on stable storage.
    pub durable: LogSeq,
    /// Records behind that, with their shards.
    pub undurable: VecDeque<(LogSeq, ShardId, LogIndex)>,
    /// With what shards are made, as the map says: the key of names, and the command level in force.
    pub made_with: (NamesKey, u16),
    /// Every shard, as the map says.
    pub seats: BTreeMap<ShardId, ShardEntry>,
    /// Where chunks go.
    pub spread: Spread,
    /// Where directories go.
    pub homes: Homes,
    /// Who lives.
    pub sessions: Sessions,
    /// Opens of all shards.
    pub opens: OpenCounts,
    /// What clients may use without asking, of all shards.
    pub leases: Leases,
    /// What else is bounded over all shards.
    pub load: Load,
    /// The shard that has the request which is to be answered there, of each that it has not answered at once.
    pub held: BTreeMap<u64, ShardId>,
    /// Reads from the disk that requests wait for.
    pub reads: Reads,
    /// So often the request that is carried out has waited for one.
    pub waited: u8,
    /// Until then it may wait, once it has waited for anything.
    pub waits_until: Option<Millis>,
    /// The transaction that the request which is carried out was before.
    pub begun: Option<Begun>,
    /// It may look at this file, though another client holds it, which has told of it since the request came.
    pub may_look: Option<Ino>,
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
            leases: Leases::new(&config),
            last: store.applied(),
            config,
            store,
            out: Output::default(),
            now: Millis(0),
            began: Millis(0),
            wall: Timestamp::default(),
            own: NodeId(0),
            map: None,
            started: false,
            low_space: false,
            holds_chores: false,
            chores_left: 0,
            term_rows_left: 0,
            txns_left: 0,
            waits_left: 0,
            durable: LogSeq(0),
            undurable: VecDeque::new(),
            made_with: (NamesKey::default(), 0),
            seats: BTreeMap::new(),
            sessions: Sessions::default(),
            opens: OpenCounts::default(),
            load: Load::default(),
            held: BTreeMap::new(),
            reads: Reads::default(),
            waited: 0,
            waits_until: None,
            begun: None,
            may_look: None,
            errands: Errands::default(),
            loop_calls: VecDeque::new(),
            loop_answers: VecDeque::new(),
            counters: Counters::default(),
        }
    }

    /// The output of a round goes through many steps.
    pub fn begin_step(&mut self, now: Millis, wall: Timestamp, out: &mut Output) {
        // Of the first step nothing is known, nor was anybody heard before.
        if self.now > Millis(0) && now.since(self.now) > STOOD_STILL_MS {
            self.leases.stood_still(now);
        }
        (self.now, self.wall) = (now, wall);
        if self.began == Millis(0) {
            self.began = now;
        }
        self.chores_left = self.config.limits.chores_per_step;
        self.term_rows_left = self.config.limits.term_rows;
        self.txns_left = self.config.limits.txns_due;
        self.waits_left = self.config.limits.waits_over;
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

    /// The requests that waited for these reads are gone: others may wait in their place.
    pub fn give_up_reads(&mut self, reads: Vec<u64>) {
        for read in reads {
            if self.reads.ended(read).is_some() {
                self.out.reads_given_up.push(read);
            }
        }
    }

    /// Answers for no shard.
    pub fn reply(&mut self, to: u64, stamp: ShardStamp, result: Result<Vec<u8>, Refusal>) {
        self.leases.release(to);
        if to & super::LOOPBACK != 0 {
            self.loop_answers.push_back((to & !super::LOOPBACK, result));
            return;
        }
        self.counters.answered(result.is_ok());
        let renews = self.leases.answered(to, self.now, |client| self.sessions.lives(client));
        let grants = stamp.grants.filter(|_| renews.is_some());
        self.out.replies.push(Reply { to, stamp: ShardStamp { grants, renews, ..stamp }, result });
    }

    /// Who asks knows a newer fence list than this server.
    pub fn behind(&mut self, request: &Request) -> Option<Refusal> {
        (request.epoch > self.sessions.epoch()).then(|| {
            self.out.fetch_fences = true;
            Refusal::with(Status::NOT_READY, "a newer fence list is being fetched")
        })
    }

    /// The answer to a request for a shard that is not served here, until something is put back if there is a `why`. Who asks
    /// for a vote need not wait for that. A no is safe whatever was promised before, here or by newer rows elsewhere: the
    /// coordinator decides once, on votes that it holds by then, and a no has it abort, which it may at any time before. What
    /// has promised the same is told so.
    pub fn refused(&mut self, request: &Request, why: Option<Refusal>) -> Result<Vec<u8>, Refusal> {
        if let Some(refusal) = self.behind(request) {
            return Err(refusal);
        }
        if !(self.started && self.knows_cluster()) {
            return Err(not_ready());
        }
        self.locate(&request.call)?;
        match (why, &request.message) {
            (None, _) => Err(not_ready()),
            (_, MetaRequest::Prepare(_)) if request.peer.role == Role::Server => Ok(op::lost().to_bytes()),
            (Some(why), _) => Err(why),
        }
    }

    /// Why a shard is not served of which there are no rows here; `None`: they are on their way, or are being made.
    pub fn not_here(&self, shard: ShardId) -> Option<Refusal> {
        let is_lost = self.seats.get(&shard).is_some_and(|seat| seat.state == ShardState::Active);
        is_lost.then(|| self.missing(shard))
    }

    /// Why a shard that the map gives to this group is not served, though nothing is on its way.
    pub fn missing(&self, shard: ShardId) -> Refusal {
        let text = format!(
            "node {} has no rows of shard {shard}, which it should have: its log says what to put back",
            self.own
        );
        Refusal::with(Status::NOT_READY, text)
    }

    /// Why a shard that the map gives to this group is not served, though its rows are here.
    pub fn withheld(&self, shard: ShardId, to: NodeId) -> Refusal {
        let own = self.own;
        let what = match to {
            to if to == own => {
                format!("has never served its rows of shard {shard}, and there may be newer ones")
            }
            to => format!("gave shard {shard} to node {to}"),
        };
        let text = format!(
            "node {own} {what}, which a map from a backup does not know: its log says what to put back"
        );
        Refusal::with(Status::NOT_READY, text)
    }

    /// Who waits for events by a shard that is not of this group any more is to ask elsewhere.
    pub fn dismiss_askers(&mut self) {
        let (seats, own) = (&self.seats, self.own);
        self.events.dismiss(|shard| !seats.get(&shard).is_some_and(|seat| seat.is_led_by(own)));
    }

    /// Does the map give the shard to this group?
    pub fn leads(&self, shard: ShardId) -> bool {
        self.seats.get(&shard).is_some_and(|seat| seat.is_led_by(self.own))
    }

    /// The shard's epoch in the map; 0 = it is not there.
    pub fn shard_epoch(&self, shard: ShardId) -> u64 {
        self.seats.get(&shard).map_or(0, |seat| seat.epoch)
    }

    /// A call of this server.
    pub fn call_to(&self, shard: ShardId) -> ShardCall {
        ShardCall { shard, epoch: self.shard_epoch(shard), ..ShardCall::default() }
    }

    /// Refuses what another server answers, or nobody. Whoever knows an older epoch is served all the same: that this
    /// group leads the shard is what counts. Who knows a newer one may know of another leader.
    pub fn locate(&mut self, call: &ShardCall) -> Result<(), Refusal> {
        let (shard, own) = (call.shard, self.own);
        let epoch = self.shard_epoch(shard);
        let seat = self.seats.get(&shard);
        let leader = seat.and_then(ShardEntry::led_by);
        self.out.fetch_map |= call.epoch > epoch;
        match leader {
            _ if seat.is_some() && call.epoch > epoch => {
                Err(Refusal::with(Status::NOT_READY, "a newer map is being fetched"))
            }
            Some(node) if node == own => Ok(()),
            Some(node) => {
                let text = format!("shard {shard} is not served by node {own}, but by node {node}");
                let lead = Some(Lead { node, epoch });
                Err(Refusal { lead, ..Refusal::with(Status::NOT_LEADER, text) })
            }
            None => {
                let text = format!("shard {shard} is not served by node {own}; fetch the map");
                let view = Some(Box::new(View { map: self.map.unwrap_or_default(), epoch }));
                Err(Refusal { view, ..Refusal::with(Status::ELSEWHERE, text) })
            }
        }
    }
}

/// It will be soon.
pub fn not_ready() -> Refusal {
    Refusal::with(
        Status::NOT_READY,
        "the metadata server is starting: it waits for its log, the map and the fence list",
    )
}
