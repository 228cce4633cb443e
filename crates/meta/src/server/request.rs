//! Requests: lanes and exactly-once, running an operation, logging it, answering.

use super::Server;
use super::live::Live;
use super::message::{EntryType, Output, Record, Request};
use super::waits::{For, Parked};
use crate::command::{Caller, Internal, Serials, encode_internal, encode_request};
use crate::ctx::{Ctx, Done, Effect, Scene};
use crate::fail::{Fail, Need};
use crate::key::{self, Table};
use crate::limit::{OPENS_PER_MESSAGE_MAX, REMEMBERED_MAX};
use crate::op;
use crate::row::slot::{Gate, Outcome, SlotRow};
use crate::row::trim::Trim;
use crate::store::{Batch, Store, StoreError};
use alloc::format;
use alloc::vec::Vec;
use skep_types::codec::Bytes;
use skep_types::limits::SLOTS_MAX;
use skep_types::{
    ClientId, Decode, Encode, Errno, Incarnation, Ino, LogIndex, Millis, Role, Seq, ShardId, Timestamp,
};
use skep_wire::meta::{InspectReply, MetaRequest, OpenMode, OpenReply, ShardStamp, StatsReply, Sync};
use skep_wire::{Empty, Refusal, Status};

/// The last request of a lane that had no effect. In memory only: nothing happened.
pub struct Remembered {
    incarnation: Incarnation,
    seq: Seq,
    refusal: Option<Refusal>,
}

/// How a run ended.
enum Ran {
    Done { done: Done, logged: Option<LogIndex> },
    Refused(Refusal),
    Wait(Need),
}

impl<S: Store> Server<S> {
    pub(super) fn request(
        &mut self,
        now: Millis,
        wall: Timestamp,
        request: Request,
        out: &mut Output,
    ) -> Result<(), StoreError> {
        if let Err(refusal) = self.admit(&request, out) {
            self.answer(request.reply_to, self.stamp(request.call.shard), Err(refusal), out);
            return Ok(());
        }
        match &request.message {
            MetaRequest::Close(_) | MetaRequest::Reclaim(_) => self.opens_told(now, wall, &request, out),
            MetaRequest::Sync(m) => {
                let m = m.clone();
                self.sync(now, &request, &m, out);
                Ok(())
            }
            MetaRequest::ShardStats(_) => {
                let reply = StatsReply { counters: self.counters.list(&self.gauges()) };
                self.answer(request.reply_to, self.stamp(request.call.shard), Ok(reply.to_bytes()), out);
                Ok(())
            }
            message if op::changes(message) => self.change(now, wall, request, out),
            _ => self.perform(now, wall, request, None, out),
        }
    }

    /// A changing request: once, however often it comes.
    fn change(
        &mut self,
        now: Millis,
        wall: Timestamp,
        request: Request,
        out: &mut Output,
    ) -> Result<(), StoreError> {
        if request.peer.role != Role::Client {
            return self.perform(now, wall, request, None, out);
        }
        let (shard, peer, call) = (request.call.shard, request.peer, request.call);
        let refuse = |status: Status, text: &str| Err(Refusal::with(status, text));
        let caller =
            Caller { client: peer.client, incarnation: peer.incarnation, slot: call.slot, seq: call.seq };
        let wrong = if call.seq == Seq(0) || call.slot.0 >= SLOTS_MAX {
            Some(refuse(Status::MALFORMED, "a changing request needs a lane (below 256) and a number from 1"))
        } else {
            None
        };
        if let Some(wrong) = wrong {
            self.answer(request.reply_to, self.stamp(shard), wrong, out);
            return Ok(());
        }
        if let Some(slot) = self.slot(shard, &caller)? {
            if slot.incarnation > caller.incarnation {
                let fenced = refuse(Status::FENCED, "a newer life of this client is served");
                self.answer(request.reply_to, self.stamp(shard), fenced, out);
                return Ok(());
            }
            if slot.incarnation == caller.incarnation && slot.seq >= caller.seq {
                if slot.seq > caller.seq {
                    let old = Err(Status::OLD_SEQUENCE.into());
                    self.answer(request.reply_to, self.stamp(shard), old, out);
                    return Ok(());
                }
                if !self.config.canary_runs_retries {
                    return self.repeated(now, request, slot, out);
                }
            }
        }
        if let Some(before) = self.remembered.get(&(shard, caller.client, caller.slot))
            && before.incarnation == caller.incarnation
            && before.seq >= caller.seq
        {
            let refusal = match &before.refusal {
                _ if before.seq > caller.seq => Some(Status::OLD_SEQUENCE.into()),
                other => other.clone(),
            };
            if let Some(refusal) = refusal {
                self.answer(request.reply_to, self.stamp(shard), Err(refusal), out);
                return Ok(());
            }
        }
        self.perform(now, wall, request, Some(caller), out)
    }

    fn slot(&self, shard: ShardId, caller: &Caller) -> Result<Option<SlotRow>, StoreError> {
        let row = self.store.get(&key::slot(shard, caller.client, caller.slot))?;
        row.map(|bytes| SlotRow::from_bytes(&bytes).map_err(|e| crate::fail::corrupt("slot row", e)))
            .transpose()
    }

    /// The request was done before: the answer that it got, or will get.
    fn repeated(
        &mut self,
        now: Millis,
        request: Request,
        slot: SlotRow,
        out: &mut Output,
    ) -> Result<(), StoreError> {
        let shard = request.call.shard;
        let stamp = ShardStamp { term: slot.term, index: slot.index, durable: self.durable };
        let result = match slot.outcome {
            Outcome::Pending(_) => {
                if let Gate::Remote(gate) = slot.gate {
                    let what = For::Remote(shard, gate.txid);
                    self.park(now, what, Parked::Again(request), out);
                }
                return Ok(());
            }
            Outcome::Refused(refusal) => Err(refusal),
            Outcome::Done(body) => {
                self.reopen(&request, &body.0);
                Ok(body.0)
            }
        };
        let what = match slot.gate {
            Gate::Open if self.config.sync_always && self.durable < slot.index => {
                Some(For::Durable(slot.index))
            }
            Gate::Durable if self.durable < slot.index => Some(For::Durable(slot.index)),
            Gate::Trim(gate) => {
                let row = self.store.get(&key::of_ino(Table::Trim, gate.ino))?;
                let open = row.and_then(|bytes| Trim::from_bytes(&bytes).ok());
                open.filter(|trim| trim.id == gate.id).map(|_| For::Trim(gate.ino, gate.id))
            }
            _ => None,
        };
        match what {
            Some(what) => {
                self.park(now, what, Parked::Answer { to: request.reply_to, stamp, result }, out);
            }
            None => self.answer(request.reply_to, stamp, result, out),
        }
        Ok(())
    }

    /// The first answer was lost, perhaps with the server's memory of the open.
    fn reopen(&mut self, request: &Request, body: &[u8]) {
        if let Some((mode, seq)) = wish(&request.message)
            && let Ok(reply) = OpenReply::from_bytes(body)
        {
            self.opens.open(request.peer.client, reply.attr.ino, mode, seq);
        }
    }

    /// Runs a request and sees to its answer.
    fn perform(
        &mut self,
        now: Millis,
        wall: Timestamp,
        request: Request,
        caller: Option<Caller>,
        out: &mut Output,
    ) -> Result<(), StoreError> {
        let shard = request.call.shard;
        if let Some((_, _)) = wish(&request.message)
            && self.opens.count(request.peer.client) >= self.config.opens_per_client
        {
            let text = format!(
                "client {} has {} files open, the limit of max_opens_per_client in metad.toml",
                request.peer.client, self.config.opens_per_client
            );
            let refusal = Refusal::with(Status::errno(Errno::ENFILE), text);
            self.answer(request.reply_to, self.stamp(shard), Err(refusal), out);
            return Ok(());
        }
        match self.run(wall, &request, caller, out)? {
            Ran::Refused(refusal) => {
                self.remember(&request, caller, Some(&refusal));
                self.answer(request.reply_to, self.stamp(shard), Err(refusal), out);
            }
            Ran::Wait(need) => {
                let what = match need {
                    Need::Durable(index) => For::Durable(index),
                    Need::Gate(Gate::Trim(gate)) => For::Trim(gate.ino, gate.id),
                    Need::Gate(Gate::Remote(gate)) => For::Remote(shard, gate.txid),
                    Need::Gate(Gate::Open | Gate::Durable) => For::Durable(self.last),
                };
                self.park(now, what, Parked::Again(request), out);
            }
            Ran::Done { done, logged } => {
                if let (Some(ino), Some((mode, seq))) = (done.opened, wish(&request.message)) {
                    self.opens.open(request.peer.client, ino, mode, seq);
                }
                if logged.is_none() {
                    self.remember(&request, caller, None);
                }
                self.release(now, request, caller, done, logged, out);
            }
        }
        Ok(())
    }

    /// Sends an answer as soon as its gate allows.
    fn release(
        &mut self,
        now: Millis,
        request: Request,
        caller: Option<Caller>,
        done: Done,
        logged: Option<LogIndex>,
        out: &mut Output,
    ) {
        let shard = request.call.shard;
        let stamp = self.stamp(shard);
        let to = request.reply_to;
        let gate = match done.gate {
            Gate::Open if self.config.sync_always && logged.is_some() => Gate::Durable,
            gate => gate,
        };
        let what = match gate {
            Gate::Open => return self.answer(to, stamp, Ok(done.body), out),
            Gate::Durable if self.durable >= logged.unwrap_or(self.last) => {
                return self.answer(to, stamp, Ok(done.body), out);
            }
            Gate::Durable => For::Durable(logged.unwrap_or(self.last)),
            Gate::Trim(gate) => For::Trim(gate.ino, gate.id),
            Gate::Remote(gate) => For::Remote(shard, gate.txid),
        };
        let parked = match (done.pending, caller) {
            (true, Some(_)) => Parked::Again(request),
            (true, None) => Parked::Outcome { to, shard },
            (false, _) => Parked::Answer { to, stamp, result: Ok(done.body) },
        };
        self.park(now, what, parked, out);
    }

    /// Parks, or says BUSY when too many wait.
    fn park(&mut self, now: Millis, what: For, parked: Parked, out: &mut Output) {
        out.sync_now = true;
        if let Some(parked) = self.waits.park(now, what, parked) {
            self.give_up(parked, "too many requests wait", out);
        }
    }

    pub(super) fn give_up(&mut self, parked: Parked, why: &str, out: &mut Output) {
        let (to, shard) = match parked {
            Parked::Answer { to, stamp, .. } => {
                return self.answer(to, stamp, Err(Refusal::with(Status::BUSY, why)), out);
            }
            Parked::Again(request) => (request.reply_to, request.call.shard),
            Parked::Outcome { to, shard } => (to, shard),
        };
        self.answer(to, self.stamp(shard), Err(Refusal::with(Status::BUSY, why)), out);
    }

    fn remember(&mut self, request: &Request, caller: Option<Caller>, refusal: Option<&Refusal>) {
        let Some(caller) = caller else { return };
        if refusal.is_some_and(|refusal| refusal.status.is_transient()) {
            return;
        }
        if self.remembered.len() >= REMEMBERED_MAX {
            self.remembered.pop_first();
        }
        let (incarnation, seq, refusal) = (caller.incarnation, caller.seq, refusal.cloned());
        let lane = (request.call.shard, caller.client, caller.slot);
        self.remembered.insert(lane, Remembered { incarnation, seq, refusal });
    }

    /// Runs an operation; when it wrote rows, it is in the log afterwards.
    fn run(
        &mut self,
        wall: Timestamp,
        request: &Request,
        caller: Option<Caller>,
        out: &mut Output,
    ) -> Result<Ran, StoreError> {
        let shard = request.call.shard;
        if op::needs_room(&request.message) {
            self.reserve_serials(wall, shard, out)?;
        }
        let index = LogIndex(self.last.0 + 1);
        let term = self.terms.last();
        let Some(place) = self.shards.get_mut(&shard) else {
            return Ok(Ran::Refused(Status::STALE_MAP.into()));
        };
        let recoveries = &self.recoveries;
        let recovering = |ino: Ino| recoveries.holds(ino);
        let mut live = Live {
            shard,
            client: request.peer.client,
            grace: self.grace.holds(shard),
            durable: self.durable,
            opens: &self.opens,
            recovering: &recovering,
            unsettled: &self.settling,
            spread: &mut self.spread,
            serials: &mut place.serials,
            choices: crate::command::Choices::default(),
        };
        let scene = Scene {
            shard,
            hash_key: place.hash_key,
            hash: self.config.hash,
            at: wall,
            term,
            index,
            caller,
            inline_limit: self.config.inline_limit,
            replay: false,
        };
        let mut ctx = Ctx::new(&self.store, scene, &mut live);
        let ran = operate(&mut ctx, &request.message, &self.opens);
        let (shows, writes) = (ctx.shows_undurable, !ctx.txn.is_empty());
        let mut done = match ran {
            Ok(done) => done,
            Err(Fail::Refused(refusal)) => return Ok(Ran::Refused(refusal)),
            Err(Fail::Wait(need)) => return Ok(Ran::Wait(need)),
            Err(Fail::Store(e)) => return Err(e),
        };
        if shows && done.gate == Gate::Open {
            done.gate = Gate::Durable;
        }
        if !writes {
            return Ok(Ran::Done { done, logged: None });
        }
        if self.low_space && op::needs_room(&request.message) {
            return Ok(Ran::Refused(Refusal::with(
                Status::errno(Errno::ENOSPC),
                "the disk of the metadata server is nearly full; free space in its state directory",
            )));
        }
        put_slot(&mut ctx, &done);
        let (batch, effects) = (ctx.txn.into_batch(), core::mem::take(&mut ctx.effects));
        let bytes = encode_request(wall, caller, &live.choices, &request.message);
        self.commit(shard, bytes, batch, effects, out)?;
        if let Some(caller) = caller {
            self.remembered.remove(&(shard, caller.client, caller.slot));
        }
        Ok(Ran::Done { done, logged: Some(index) })
    }

    /// Applies a command's rows and puts it into the log.
    fn commit(
        &mut self,
        shard: ShardId,
        bytes: Vec<u8>,
        batch: Batch,
        effects: Vec<Effect>,
        out: &mut Output,
    ) -> Result<(), StoreError> {
        let index = LogIndex(self.last.0 + 1);
        self.store.apply(index, batch)?;
        self.last = index;
        if let Some(place) = self.shards.get_mut(&shard) {
            place.last = index;
        }
        let entry = if shard == key::SERVER { EntryType::TermStart } else { EntryType::Command };
        out.records.push(Record { term: self.terms.last(), index, entry, shard, bytes });
        self.counters.logged();
        self.absorb(index, shard, effects, out);
        Ok(())
    }

    /// Logs what the server itself decides. Nothing is logged when it changes nothing.
    pub(super) fn decide(
        &mut self,
        wall: Timestamp,
        shard: ShardId,
        internal: &Internal,
        out: &mut Output,
    ) -> Result<(), StoreError> {
        let choices = crate::command::Choices::default();
        let mut none = crate::choose::Recorded(&choices);
        let scene = Scene {
            shard,
            hash_key: self.shards.get(&shard).map_or([0; 16], |place| place.hash_key),
            hash: self.config.hash,
            at: wall,
            term: self.terms.last(),
            index: LogIndex(self.last.0 + 1),
            caller: None,
            inline_limit: self.config.inline_limit,
            replay: false,
        };
        let mut ctx = Ctx::new(&self.store, scene, &mut none);
        match op::internal::run(&mut ctx, internal) {
            Ok(()) if ctx.txn.is_empty() => Ok(()),
            Ok(()) => {
                let (batch, effects) = (ctx.txn.into_batch(), core::mem::take(&mut ctx.effects));
                self.commit(shard, encode_internal(wall, internal), batch, effects, out)
            }
            Err(Fail::Store(e)) => Err(e),
            Err(fail) => Err(StoreError::Corrupt(format!("shard {shard}: {internal:?} failed: {fail:?}"))),
        }
    }

    /// Reserves the next block of inode numbers when few are left.
    fn reserve_serials(
        &mut self,
        wall: Timestamp,
        shard: ShardId,
        out: &mut Output,
    ) -> Result<(), StoreError> {
        let Some(end) = self.shards.get(&shard).and_then(|place| place.serials.wants()) else {
            return Ok(());
        };
        self.decide(wall, shard, &Internal::Serials(Serials { end }), out)?;
        let index = self.last;
        if let Some(place) = self.shards.get_mut(&shard) {
            place.serials.reserved(end, index);
        }
        Ok(())
    }

    /// `Sync`: answered when durable, or refused when a power cut took what was acknowledged.
    fn sync(&mut self, now: Millis, request: &Request, m: &Sync, out: &mut Output) {
        let stamp = self.stamp(request.call.shard);
        let held = m.index == LogIndex(0) || (m.index <= self.last && self.terms.at(m.index) == Some(m.term));
        let (to, done) = (request.reply_to, Ok(Empty {}.to_bytes()));
        if !held {
            let text = "a power cut took changes that this client was told of; what was not synced is lost";
            self.answer(to, stamp, Err(Refusal::with(Status::LOST_HISTORY, text)), out);
        } else if m.index <= self.durable {
            self.answer(to, stamp, done, out);
        } else {
            self.park(now, For::Durable(m.index), Parked::Answer { to, stamp, result: done }, out);
        }
    }

    /// `Close` and `Reclaim`.
    fn opens_told(
        &mut self,
        now: Millis,
        wall: Timestamp,
        request: &Request,
        out: &mut Output,
    ) -> Result<(), StoreError> {
        let (shard, client) = (request.call.shard, request.peer.client);
        let count = match &request.message {
            MetaRequest::Close(m) => m.opens.len(),
            MetaRequest::Reclaim(m) => m.opens.len(),
            _ => 0,
        };
        if count > OPENS_PER_MESSAGE_MAX {
            let text = format!("{count} inodes in one message; the limit is {OPENS_PER_MESSAGE_MAX}");
            let refusal = Refusal::with(Status::MALFORMED, text);
            self.answer(request.reply_to, self.stamp(shard), Err(refusal), out);
            return Ok(());
        }
        match &request.message {
            MetaRequest::Close(m) => {
                let mut idle = Vec::new();
                for closed in &m.opens {
                    if self.opens.close(client, closed.ino, closed.open_seq) {
                        idle.push(closed.ino);
                    }
                }
                self.purge(wall, idle, out)?;
            }
            MetaRequest::Reclaim(m) => {
                for open in &m.opens {
                    self.opens.open(client, open.ino, open.mode, open.open_seq);
                }
                if m.last && self.grace.reported(shard, client) {
                    self.grace_over(now, wall, &[shard], out)?;
                }
            }
            _ => {}
        }
        self.answer(request.reply_to, self.stamp(shard), Ok(Empty {}.to_bytes()), out);
        Ok(())
    }

    /// What waited for an operation over two shards goes on.
    pub(super) fn remote_over(
        &mut self,
        shard: ShardId,
        txid: u64,
        status: Status,
        body: &[u8],
        out: &mut Output,
    ) {
        for parked in self.waits.over(For::Remote(shard, txid)) {
            match parked {
                Parked::Outcome { to, shard } => {
                    let result =
                        if status == Status(0) { Ok(body.to_vec()) } else { Err(Refusal::new(status)) };
                    self.answer(to, self.stamp(shard), result, out);
                }
                parked => self.resume(parked, out),
            }
        }
    }

    /// A wait is over.
    pub(super) fn resume(&mut self, parked: Parked, out: &mut Output) {
        match parked {
            Parked::Answer { to, stamp, result } => self.answer(to, stamp, result, out),
            Parked::Again(request) => self.again.push_back(request),
            parked @ Parked::Outcome { .. } => self.give_up(parked, "ask again", out),
        }
    }
}

/// Runs the operation; `Inspect` also wants to know who has the inode open.
fn operate(ctx: &mut Ctx<'_>, message: &MetaRequest, opens: &super::opens::Opens) -> Result<Done, Fail> {
    match message {
        MetaRequest::Inspect(m) => {
            let sessions = opens.sessions(m.ino);
            Ok(Done::reply(&InspectReply { sessions, ..op::inspect(ctx, m.ino)? }))
        }
        message => op::run(ctx, message),
    }
}

/// The lane remembers the request together with its effect.
pub(super) fn put_slot(ctx: &mut Ctx<'_>, done: &Done) {
    let Some(caller) = ctx.scene.caller else { return };
    let outcome =
        if done.pending { Outcome::Pending(Empty {}) } else { Outcome::Done(Bytes(done.body.clone())) };
    let row = SlotRow {
        incarnation: caller.incarnation,
        seq: caller.seq,
        term: ctx.scene.term,
        index: ctx.scene.index,
        gate: done.gate,
        outcome,
    };
    ctx.put(key::slot(ctx.scene.shard, caller.client, caller.slot), &row);
}

/// What the request wants to have open.
fn wish(message: &MetaRequest) -> Option<(OpenMode, u64)> {
    match message {
        MetaRequest::Open(m) => Some((m.mode, m.open_seq)),
        MetaRequest::Create(m) => m.open.map(|mode| (mode, m.open_seq)),
        _ => None,
    }
}

/// The lanes of a session are forgotten.
pub(super) fn lanes_of(
    remembered: &alloc::collections::BTreeMap<(ShardId, ClientId, skep_types::Slot), Remembered>,
    client: ClientId,
) -> Vec<(ShardId, ClientId, skep_types::Slot)> {
    remembered.keys().filter(|(_, other, _)| *other == client).copied().collect()
}
