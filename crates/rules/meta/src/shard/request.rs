//! Requests: where each kind goes, and when its answer leaves.

use super::Shard;
use super::run::Ran;
use super::txns::Begun;
use super::waits::{Again, For, Parked};
use crate::command::{Caller, Holds, Internal};
use crate::ctx::Done;
use crate::fail::Need;
use crate::group::Host;
use crate::group::Request;
use crate::op;
use crate::row::slot::Gate;
use crate::store::{Store, StoreError};
use alloc::format;
use skep_types::{ClientId, Errno, LogIndex};
use skep_wire::meta::{MetaRequest, OpenMode};
use skep_wire::{Refusal, Status};

impl Shard {
    /// Answers a request, at once or when it can.
    pub fn request<S: Store>(&mut self, host: &mut Host<S>, request: Request) -> Result<(), StoreError> {
        if let Err(refusal) = self.admit(host, &request) {
            self.answer(host, request.reply_to, self.stamp_in_service(host), Err(refusal));
            return Ok(());
        }
        if let Some(index) = self.awaits_holder(host, &request)? {
            self.park(host, For::Durable(index), Parked::Again(request));
            return Ok(());
        }
        let request = self.dealt(host, request)?;
        match &request.message {
            MetaRequest::Close(_) | MetaRequest::Reclaim(_) => self.opens_told(host, &request),
            MetaRequest::SetLock(_)
            | MetaRequest::GetLock(_)
            | MetaRequest::DropLocks(_)
            | MetaRequest::CancelLock(_) => self.lock_request(host, &request),
            MetaRequest::ReserveEnd(m) => {
                let m = m.clone();
                self.reserve_end(host, &request, &m)
            }
            MetaRequest::SealExtent(m) => {
                let m = m.clone();
                self.seal_extent(host, &request, &m)
            }
            MetaRequest::Sync(m) => {
                let m = m.clone();
                self.sync(host, &request, &m);
                Ok(())
            }
            MetaRequest::AskOutcome(m) => {
                let m = m.clone();
                self.tell_outcome(host, &request, &m);
                Ok(())
            }
            MetaRequest::ReadInline(m) if !m.short.is_empty() => {
                self.note_lost(host, m)?;
                self.perform(host, request, None)
            }
            message if op::changes(message) => self.change(host, request),
            _ => self.perform(host, request, None),
        }
    }

    /// Before a client gets its first state on the shard, a durable row says so: only those are waited for when a new term
    /// begins. The record that is to be waited for.
    fn awaits_holder<S: Store>(
        &mut self,
        host: &mut Host<S>,
        request: &Request,
    ) -> Result<Option<LogIndex>, StoreError> {
        let gives = match &request.message {
            MetaRequest::Reclaim(m) => !m.opens.is_empty(),
            message => wish(message).is_some(),
        };
        let client = request.peer.client;
        if !gives || client == ClientId(0) {
            return Ok(None);
        }
        if !self.holders.contains_key(&client) {
            self.decide(host, &Internal::Holds(Holds { client }))?;
            self.holders.insert(client, self.last);
        }
        let index = self.holders.get(&client).copied();
        Ok(index.filter(|index| *index > self.durable))
    }

    /// Runs a request and sees to its answer.
    pub(super) fn perform<S: Store>(
        &mut self,
        host: &mut Host<S>,
        request: Request,
        caller: Option<Caller>,
    ) -> Result<(), StoreError> {
        let client = request.peer.client;
        if wish(&request.message).is_some()
            && let Some(refusal) = self.too_many_opens(host, client)
        {
            self.answer(host, request.reply_to, self.stamp(), Err(refusal));
            return Ok(());
        }
        let ran = self.run(host, &request, caller, None)?;
        self.ran(host, request, caller, ran, None);
        Ok(())
    }

    /// Sees to the answer of a request that was run.
    pub(super) fn ran<S: Store>(
        &mut self,
        host: &mut Host<S>,
        request: Request,
        caller: Option<Caller>,
        ran: Ran,
        begun: Option<Begun>,
    ) {
        let client = request.peer.client;
        match ran {
            Ran::Refused(refusal) => {
                host.out.fetch_map |= host.spread.take_wants_map();
                self.remember(caller, Some(&refusal));
                self.answer(host, request.reply_to, self.stamp(), Err(refusal));
            }
            Ran::Wait(need) => {
                let what = match need {
                    Need::Durable(index) => For::Durable(index),
                    Need::Txn(txid) => For::Txn(txid),
                    Need::Gate(Gate::Trim(gate)) => For::Trim(gate.ino, gate.id),
                    Need::Gate(Gate::Open | Gate::Durable) => For::Durable(self.last),
                };
                self.park(host, what, Parked::Again(request));
            }
            Ran::Lacks(rows) => self.await_rows(host, request, rows),
            Ran::Transact(plan) => self.begin_txn(host, request, caller, plan, begun),
            Ran::Done { done, logged } => {
                if let (Some(ino), Some((mode, seq))) = (done.opened, wish(&request.message)) {
                    self.opens.open(&mut host.opens, client, ino, mode, seq);
                }
                match (&request.message, logged) {
                    (_, None) => self.remember(caller, None),
                    (MetaRequest::Repair(m), Some(_)) => self.note_repair(host, m, client),
                    _ => {}
                }
                self.release(host, request, done, logged);
            }
        }
    }

    /// Sends an answer as soon as its gate allows.
    pub(super) fn release<S: Store>(
        &mut self,
        host: &mut Host<S>,
        request: Request,
        done: Done,
        logged: Option<LogIndex>,
    ) {
        let stamp = self.stamp();
        let to = request.reply_to;
        let gate = match done.gate {
            Gate::Open if host.config.sync_always && logged.is_some() => Gate::Durable,
            _ if host.config.canary_votes_early && matches!(request.message, MetaRequest::Prepare(_)) => {
                Gate::Open
            }
            gate => gate,
        };
        let what = match gate {
            Gate::Open => return self.answer(host, to, stamp, Ok(done.body)),
            Gate::Durable if self.durable >= logged.unwrap_or(self.last) => {
                return self.answer(host, to, stamp, Ok(done.body));
            }
            Gate::Durable => For::Durable(logged.unwrap_or(self.last)),
            Gate::Trim(gate) => For::Trim(gate.ino, gate.id),
        };
        self.park(host, what, Parked::Answer { to, stamp, result: Ok(done.body) });
    }

    /// Parks, or says BUSY when too many wait.
    pub(super) fn park<S: Store>(&mut self, host: &mut Host<S>, what: For, parked: Parked) {
        host.out.sync_now |= !matches!(what, For::Rows(_));
        let is_full = host.load.waits >= host.config.limits.waits;
        let refused = if is_full { Some(parked) } else { self.waits.park(host.now, what, parked) };
        if let Some(parked) = refused {
            self.give_up(host, parked, "too many requests wait");
        }
    }

    pub(super) fn give_up<S: Store>(&mut self, host: &mut Host<S>, parked: Parked, why: &str) {
        let to = match parked {
            Parked::Answer { to, stamp, .. } => {
                return self.answer(host, to, stamp, Err(Refusal::with(Status::BUSY, why)));
            }
            Parked::Again(request) | Parked::Read(Again { request, .. }) => request.reply_to,
        };
        self.answer(host, to, self.stamp(), Err(Refusal::with(Status::BUSY, why)));
    }

    /// A wait is over.
    pub(super) fn resume<S: Store>(&mut self, host: &mut Host<S>, parked: Parked) {
        match parked {
            Parked::Answer { to, stamp, result } => self.answer(host, to, stamp, result),
            Parked::Again(request) => self.again.push_back(request.into()),
            Parked::Read(again) => self.again.push_back(again),
        }
    }

    /// Why `client` may not have one more file open.
    fn too_many_opens<S: Store>(&self, host: &Host<S>, client: ClientId) -> Option<Refusal> {
        if host.opens.of(client) >= host.config.opens_per_client {
            let text = format!(
                "client {client} has too many files open; the limit is {} (max_opens_per_client in metad.toml)",
                host.config.opens_per_client
            );
            return Some(Refusal::with(Status::errno(Errno::ENFILE), text));
        }
        (host.opens.all() >= host.config.opens).then(|| {
            let text = format!(
                "the clients of this metadata server have {} files open together; the limit is {} (max_opens in \
                 metad.toml, about 200 bytes of memory each)",
                host.opens.all(),
                host.config.opens
            );
            Refusal::with(Status::errno(Errno::ENFILE), text)
        })
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
