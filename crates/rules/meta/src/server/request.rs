//! Requests: where each kind goes, and when its answer leaves.

use super::Server;
use super::message::{Output, Request};
use super::run::Ran;
use super::waits::{For, Parked};
use crate::command::Caller;
use crate::ctx::Done;
use crate::fail::Need;
use crate::op;
use crate::row::slot::Gate;
use crate::store::{Store, StoreError};
use alloc::format;
use skep_types::{ClientId, Encode, Errno, LogIndex, Millis, ShardId, Timestamp};
use skep_wire::meta::{MetaRequest, OpenMode, StatsReply};
use skep_wire::{Refusal, Status};

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
            MetaRequest::SetLock(_)
            | MetaRequest::GetLock(_)
            | MetaRequest::DropLocks(_)
            | MetaRequest::AwaitLocks(_)
            | MetaRequest::CancelLock(_) => self.lock_request(now, &request, out),
            MetaRequest::ReserveEnd(m) => {
                let m = m.clone();
                self.reserve_end(now, &request, &m, out)
            }
            MetaRequest::SealExtent(m) => {
                let m = m.clone();
                self.seal_extent(now, wall, &request, &m, out)
            }
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
            MetaRequest::ReadInline(m) if !m.short.is_empty() => {
                self.note_lost(m, out)?;
                self.perform(now, wall, request, None, out)
            }
            message if op::changes(message) => self.change(now, wall, request, out),
            _ => self.perform(now, wall, request, None, out),
        }
    }

    /// Runs a request and sees to its answer.
    pub(super) fn perform(
        &mut self,
        now: Millis,
        wall: Timestamp,
        request: Request,
        caller: Option<Caller>,
        out: &mut Output,
    ) -> Result<(), StoreError> {
        let shard = request.call.shard;
        let client = request.peer.client;
        if wish(&request.message).is_some()
            && let Some(refusal) = self.too_many_opens(client)
        {
            self.answer(request.reply_to, self.stamp(shard), Err(refusal), out);
            return Ok(());
        }
        match self.run(wall, &request, caller, out)? {
            Ran::Refused(refusal) => {
                out.fetch_map |= self.spread.take_wants_map();
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
                match (&request.message, logged) {
                    (_, None) => self.remember(&request, caller, None),
                    (MetaRequest::Repair(m), Some(_)) => self.note_repair(m, client, out),
                    _ => {}
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
    pub(super) fn park(&mut self, now: Millis, what: For, parked: Parked, out: &mut Output) {
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

    /// A wait is over.
    pub(super) fn resume(&mut self, parked: Parked, out: &mut Output) {
        match parked {
            Parked::Answer { to, stamp, result } => self.answer(to, stamp, result, out),
            Parked::Again(request) => self.again.push_back(request),
            parked @ Parked::Outcome { .. } => self.give_up(parked, "ask again", out),
        }
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

    /// Why `client` may not have one more file open.
    fn too_many_opens(&self, client: ClientId) -> Option<Refusal> {
        if self.opens.count(client) >= self.config.opens_per_client {
            return Some(self.too_many_of_client(client));
        }
        (self.opens.len() >= self.config.opens).then(|| {
            let text = format!(
                "the clients of this metadata server have {} files open together; the limit is {} (max_opens in \
                 metad.toml, about 200 bytes of memory each)",
                self.opens.len(),
                self.config.opens
            );
            Refusal::with(Status::errno(Errno::ENFILE), text)
        })
    }

    pub(super) fn too_many_of_client(&self, client: ClientId) -> Refusal {
        let text = format!(
            "client {client} has too many files open; the limit is {} (max_opens_per_client in metad.toml)",
            self.config.opens_per_client
        );
        Refusal::with(Status::errno(Errno::ENFILE), text)
    }
}

/// What the request wants to have open.
pub(super) fn wish(message: &MetaRequest) -> Option<(OpenMode, u64)> {
    match message {
        MetaRequest::Open(m) => Some((m.mode, m.open_seq)),
        MetaRequest::Create(m) => m.open.map(|mode| (mode, m.open_seq)),
        MetaRequest::CreateTemp(m) => Some((m.open, m.open_seq)),
        _ => None,
    }
}
