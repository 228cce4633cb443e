//! Requests about locks.

use super::super::Server;
use super::super::message::{Output, Request};
use crate::key;
use crate::limit::LOCK_AWAIT_MAX_MS;
use crate::store::{Store, StoreError};
use alloc::format;
use alloc::vec::Vec;
use skep_types::{ClientId, Encode, Errno, Ino, Millis};
use skep_wire::meta::{CancelLockReply, GetLockReply, LockOwner, MetaRequest, ReclaimedLock, SetLockReply};
use skep_wire::{Empty, Refusal, Status};

impl<S: Store> Server<S> {
    /// Answers a request about locks.
    pub(in super::super) fn lock_request(
        &mut self,
        now: Millis,
        request: &Request,
        out: &mut Output,
    ) -> Result<(), StoreError> {
        let (to, shard, client) = (request.reply_to, request.call.shard, request.peer.client);
        if let MetaRequest::AwaitLocks(m) = &request.message {
            let until = now.plus(m.wait_ms.min(LOCK_AWAIT_MAX_MS));
            self.locks.outcomes.ask(client, m.received, to, shard, now, until);
            self.tell_outcomes(out);
            return Ok(());
        }
        let result = match self.refuse_lock(request)? {
            Some(refusal) => Err(refusal),
            None => self.lock(now, client, &request.message),
        };
        if let Some(ino) = ino_of(&request.message) {
            self.locks.tidy_client(client, ino, self.opens.has(client, ino));
        }
        self.answer(to, self.stamp(shard), result, out);
        self.tell_outcomes(out);
        Ok(())
    }

    /// What cannot be asked, or not yet.
    fn refuse_lock(&self, request: &Request) -> Result<Option<Refusal>, StoreError> {
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
        if self.grace.holds(shard) && takes || !self.grace.has_reported(shard, client) {
            return Ok(Some(Refusal::with(Status::GRACE, "clients are still telling which locks they hold")));
        }
        if takes && self.store.get(&key::inode(ino))?.is_none() {
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

    fn lock(
        &mut self,
        now: Millis,
        client: ClientId,
        message: &MetaRequest,
    ) -> Result<alloc::vec::Vec<u8>, Refusal> {
        Ok(match message {
            MetaRequest::SetLock(m) => {
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
                CancelLockReply { held: self.locks.cancel(now, client, m.ticket) }.to_bytes()
            }
            _ => return Err(Refusal::with(Status::MALFORMED, "not about locks")),
        })
    }

    /// Sends what became of waiting wishes to whoever asked.
    pub(in super::super) fn tell_outcomes(&mut self, out: &mut Output) {
        for due in self.locks.outcomes.take_due() {
            self.answer(due.to, self.stamp(due.shard), Ok(due.reply.to_bytes()), out);
        }
    }

    /// Locks that a client held before this life of the server; gives those that are lost. In the grace period the first of
    /// two that conflict wins: one of the clients has lost its lock already, by being away for too long. After it, others may
    /// have held it meanwhile. `again`: the client has told all that it holds before, and this is a
    /// repetition, which what it did since may have overtaken.
    pub(in super::super) fn reclaim_locks(
        &mut self,
        client: ClientId,
        locks: &[ReclaimedLock],
        again: bool,
        out: &mut Output,
    ) -> Result<Vec<ReclaimedLock>, StoreError> {
        let mut lost = Vec::new();
        for claim @ ReclaimedLock { ino, lock, order } in locks {
            if self.store.get(&key::inode(*ino))?.is_none() {
                continue;
            }
            if again && (!self.opens.has(client, *ino) || self.locks.is_overtaken(*ino, client, lock, *order))
            {
                continue;
            }
            let late = !self.grace.holds(ino.shard());
            if let Err(refusal) = self.locks.reclaim(*ino, client, lock, *order, late) {
                out.warn(format!(
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
