//! Requests about locks.

use super::super::Shard;
use super::table::Beside;
use crate::group::{Events, Host, Request, Sessions};
use crate::key;
use crate::store::{Store, StoreError};
use alloc::format;
use alloc::vec::Vec;
use skep_types::{ClientId, Encode, Errno, Ino};
use skep_wire::meta::{
    CancelLockReply, GetLockReply, LockOutcome, LockOwner, MetaRequest, ReclaimedLock, SetLockReply,
};
use skep_wire::{Empty, Refusal, Status};

impl Shard {
    /// Answers a request about locks.
    pub(in super::super) fn lock_request<S: Store>(
        &mut self,
        host: &mut Host<S>,
        request: &Request,
    ) -> Result<(), StoreError> {
        let (to, client) = (request.reply_to, request.peer.client);
        let result = match self.refuse_lock(host, request)? {
            Some(refusal) => Err(refusal),
            None => self.lock(host, client, &request.message),
        };
        if let Some(ino) = ino_of(&request.message) {
            self.locks.tidy_client(client, ino, self.opens.has(client, ino));
        }
        self.answer(host, to, self.stamp(), result);
        Ok(())
    }

    /// What cannot be asked, or not yet.
    fn refuse_lock<S: Store>(
        &self,
        host: &Host<S>,
        request: &Request,
    ) -> Result<Option<Refusal>, StoreError> {
        let Some(ino) = ino_of(&request.message) else { return Ok(None) };
        let (shard, client) = (request.call.shard, request.peer.client);
        if ino.shard() != shard {
            let text = format!("inode {ino} belongs to shard {}, not to shard {shard}", ino.shard());
            return Ok(Some(Refusal::with(Status::MALFORMED, text)));
        }
        let takes = match &request.message {
            MetaRequest::SetLock(m) => m.lock.kind.is_some(),
            MetaRequest::GetLock(_) => true,
            _ => false,
        };
        // Whoever has reported may give up; only who has not, though the period is over, could still claim what is given
        // up here.
        if self.grace.holds() && takes || !self.grace.has_reported(client) {
            return Ok(Some(Refusal::with(Status::GRACE, "clients are still telling which locks they hold")));
        }
        if takes && host.store.get(&key::inode(ino))?.is_none() {
            return Ok(Some(Errno::ESTALE.into()));
        }
        if matches!(&request.message, MetaRequest::SetLock(m) if m.lock.kind.is_some())
            && !self.opens.has(client, ino)
        {
            // Its close has overtaken it: the lock would be nobody's, for ever.
            let text = format!("client {client} does not have inode {ino} open");
            return Ok(Some(Refusal::with(Status::OLD_SEQUENCE, text)));
        }
        Ok(None)
    }

    fn lock<S: Store>(
        &mut self,
        host: &Host<S>,
        client: ClientId,
        message: &MetaRequest,
    ) -> Result<Vec<u8>, Refusal> {
        let now = host.now;
        Ok(match message {
            MetaRequest::SetLock(m) => {
                let (load, own) = (host.load, (self.locks.held(), self.locks.waits()));
                self.locks.beside = Beside {
                    locks: load.locks.saturating_sub(own.0),
                    lock_waits: load.lock_waits.saturating_sub(own.1),
                    unconfirmed: host.events.unconfirmed_locks(client),
                };
                let state = self.locks.set(now, m.ino, client, &m.lock, m.ticket, m.order)?;
                SetLockReply { state }.to_bytes()
            }
            MetaRequest::GetLock(m) => {
                GetLockReply { held: self.locks.get(m.ino, client, &m.lock)? }.to_bytes()
            }
            MetaRequest::DropLocks(m) => {
                let by = LockOwner { client, owner: m.owner };
                self.locks.drop_owner(now, (m.ino, m.space), by, m.order)?;
                Empty {}.to_bytes()
            }
            MetaRequest::CancelLock(m) => {
                let held = !self.locks.cancel(now, client, m.ticket)
                    && host.events.was_granted(client, m.ticket, self.term());
                CancelLockReply { held }.to_bytes()
            }
            _ => return Err(Refusal::with(Status::MALFORMED, "not about locks")),
        })
    }

    /// Hands on what became of waiting locks. Of those whose session has ended nobody hears.
    pub fn tell_events(&mut self, events: &mut Events, sessions: &Sessions) {
        let term = self.term();
        for (client, ticket, errno) in self.locks.take_told() {
            if sessions.lives(client) {
                events.tell(client, LockOutcome { ticket, errno, term }.into());
            }
        }
    }

    /// Locks that a client held before this life of the server; gives those that are lost. In the grace period the first of
    /// two that conflict wins: one of the clients has lost its lock already, by being away for too long. After it, others may
    /// have held it meanwhile. `again`: the client has told all that it holds before, and this is a
    /// repetition, which what it did since may have overtaken.
    pub(in super::super) fn reclaim_locks<S: Store>(
        &mut self,
        host: &mut Host<S>,
        client: ClientId,
        locks: &[ReclaimedLock],
        again: bool,
    ) -> Result<Vec<ReclaimedLock>, StoreError> {
        let mut lost = Vec::new();
        for claim @ ReclaimedLock { ino, lock, order } in locks {
            if host.store.get(&key::inode(*ino))?.is_none() {
                continue;
            }
            if again && (!self.opens.has(client, *ino) || self.locks.is_overtaken(*ino, client, lock, *order))
            {
                continue;
            }
            let late = !self.grace.holds();
            if let Err(refusal) = self.locks.reclaim(*ino, client, lock, *order, late) {
                host.out.warn(format!(
                    "client {client} lost its lock on inode {ino} (process {}), its program gets EIO: {refusal}",
                    lock.pid
                ));
                lost.push(*claim);
            }
        }
        Ok(lost)
    }
}

fn ino_of(message: &MetaRequest) -> Option<Ino> {
    match message {
        MetaRequest::SetLock(m) => Some(m.ino),
        MetaRequest::GetLock(m) => Some(m.ino),
        MetaRequest::DropLocks(m) => Some(m.ino),
        MetaRequest::CancelLock(m) => Some(m.ino),
        _ => None,
    }
}
