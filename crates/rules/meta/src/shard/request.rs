//! Requests: where each kind goes.

use super::Shard;
use super::lane::wish;
use super::waits::{For, Parked, is_told};
use crate::command::{Holds, Internal};
use crate::group::Host;
use crate::group::Request;
use crate::op;
use crate::store::{Store, StoreError};
use skep_types::{ClientId, LogIndex, Role};
use skep_wire::meta::MetaRequest;

impl Shard {
    /// Answers a request that came just now, at once or when it can.
    pub fn request<S: Store>(&mut self, host: &mut Host<S>, request: Request) -> Result<(), StoreError> {
        if is_told(&request) && self.is_telling(request.peer.client) {
            host.held.insert(request.reply_to, self.id);
            self.again.push_back(request.into());
            return Ok(());
        }
        self.carry_out(host, request)
    }

    /// The same of one that may have waited.
    pub(super) fn carry_out<S: Store>(
        &mut self,
        host: &mut Host<S>,
        request: Request,
    ) -> Result<(), StoreError> {
        if let Err(refusal) = self.admit(host, &request) {
            self.answer(host, request.reply_to, self.stamp_in_service(host), Err(refusal));
            return Ok(());
        }
        if let Some(index) = self.awaits_holder(host, &request)? {
            self.park(host, For::Durable(index), Parked::Again(request.into()));
            return Ok(());
        }
        let Some(request) = self.dealt(host, request)? else { return Ok(()) };
        if request.peer.role == Role::Client {
            self.closed_beside(host, &request)?;
        }
        if let Some(ran) = self.meets_held(host, &request)? {
            return self.ran(host, request, None, ran, None);
        }
        match &request.message {
            MetaRequest::Close(_) | MetaRequest::Reclaim(_) => self.opens_told(host, request),
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
            MetaRequest::Recalled(m) => {
                let m = m.clone();
                self.recalled(host, &request, &m);
                Ok(())
            }
            MetaRequest::AskOutcome(m) => {
                let m = m.clone();
                self.tell_outcome(host, &request, &m);
                Ok(())
            }
            MetaRequest::ReadInline(m) if !m.short.is_empty() => {
                // Once, however often it waits for rows.
                if host.waited == 0 {
                    self.note_lost(host, m)?;
                }
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
}
