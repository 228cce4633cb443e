//! What clients tell about their opens, and what they ask about the log.

use super::Server;
use super::chores::by_shard;
use super::message::{Output, Request};
use super::waits::{For, Parked};
use crate::command::{Internal, Writers};
use crate::limit::OPENS_PER_MESSAGE_MAX;
use crate::store::{Store, StoreError};
use alloc::format;
use alloc::vec::Vec;
use skep_types::{ClientId, Encode, Ino, LogIndex, Millis, Timestamp};
use skep_wire::meta::{MetaRequest, ReclaimReply, Sync};
use skep_wire::{Empty, Refusal, Status};

impl<S: Store> Server<S> {
    /// `Sync`: answered when durable, or refused when a power cut took what was acknowledged.
    pub(super) fn sync(&mut self, now: Millis, request: &Request, m: &Sync, out: &mut Output) {
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
    pub(super) fn opens_told(
        &mut self,
        now: Millis,
        wall: Timestamp,
        request: &Request,
        out: &mut Output,
    ) -> Result<(), StoreError> {
        let (shard, client) = (request.call.shard, request.peer.client);
        if let Err(refusal) = self.may_tell(client, &request.message) {
            self.answer(request.reply_to, self.stamp(shard), Err(refusal), out);
            return Ok(());
        }
        let mut lost = Vec::new();
        match &request.message {
            MetaRequest::Close(m) => {
                let mut idle = Vec::new();
                let mut done = Vec::new();
                for closed in &m.opens {
                    if self.opens.close(client, closed.ino, closed.open_seq) {
                        idle.push(closed.ino);
                        self.ends.forget(closed.ino);
                    }
                    if self.opens.has(client, closed.ino) {
                        continue;
                    }
                    self.locks.close(now, client, closed.ino);
                    if self.writers.contains(&(closed.ino, client)) {
                        done.push(closed.ino);
                    }
                }
                self.tell_outcomes(out);
                self.writes(wall, client, done, true, out)?;
                self.purge(wall, idle, out)?;
            }
            MetaRequest::Reclaim(m) => {
                for open in &m.opens {
                    self.opens.open(client, open.ino, open.mode, open.open_seq);
                    if open.mode.writes() {
                        self.reclaim_end(open.ino, open.reserved)?;
                    }
                }
                let again = self.grace.has_reported(shard, client);
                lost = self.reclaim_locks(client, &m.locks, again, out)?;
                let wrote = m.opens.iter().filter(|open| open.mode.writes()).map(|open| open.ino);
                let new = wrote.filter(|ino| !self.writers.contains(&(*ino, client))).collect();
                self.writes(wall, client, new, false, out)?;
                if m.last && self.grace.reported(shard, client) {
                    self.opens_known(&[shard]);
                }
            }
            _ => {}
        }
        // The bytes of an empty answer where nothing is lost, as to a `Close`.
        let reply = ReclaimReply { lost: (!lost.is_empty()).then_some(lost) };
        self.answer(request.reply_to, self.stamp(shard), Ok(reply.to_bytes()), out);
        Ok(())
    }

    /// Is it of this life, and not too much?
    fn may_tell(&self, client: ClientId, message: &MetaRequest) -> Result<(), Refusal> {
        let (count, reclaimed) = match message {
            MetaRequest::Close(m) => (m.opens.len(), 0),
            MetaRequest::Reclaim(m) => {
                if m.life.is_some_and(|life| life != self.config.life) {
                    let text = "what is open was put together for another life of this server: it is to be told anew";
                    return Err(Refusal::with(Status::NOT_READY, text));
                }
                // What a repetition tells again is counted once.
                let new = m.opens.iter().filter(|open| !self.opens.has(client, open.ino)).count();
                (m.opens.len().max(m.locks.len()), new)
            }
            _ => (0, 0),
        };
        if count > OPENS_PER_MESSAGE_MAX {
            let text =
                format!("{count} inodes or locks in one message; the limit is {OPENS_PER_MESSAGE_MAX}");
            return Err(Refusal::with(Status::MALFORMED, text));
        }
        // Not counted against the server's own limit: these were open before.
        if reclaimed > 0 && self.opens.count(client) + reclaimed > self.config.opens_per_client {
            return Err(self.too_many_of_client(client));
        }
        Ok(())
    }

    /// Notes in the rows who writes to chunks, or does no longer.
    fn writes(
        &mut self,
        wall: Timestamp,
        client: ClientId,
        inos: Vec<Ino>,
        cease: bool,
        out: &mut Output,
    ) -> Result<(), StoreError> {
        for (shard, inos) in by_shard(inos) {
            self.decide(wall, shard, &Internal::Writers(Writers { client, inos, cease }), out)?;
        }
        Ok(())
    }
}
