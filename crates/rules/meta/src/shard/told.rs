//! What clients tell about their opens, and what they ask about the log.

use super::Shard;
use super::waits::{For, Parked, is_told};
use crate::command::{Internal, Writers};
use crate::group::{Host, Request};
use crate::key;
use crate::limit::{OPENS_PER_MESSAGE_MAX, OPENS_TOLD_MAX};
use crate::near::Near;
use crate::store::{Store, StoreError, Wanted};
use alloc::format;
use alloc::vec::Vec;
use skep_types::{ClientId, Encode, Errno, Ino, LogIndex, Term};
use skep_wire::meta::{Close, Closed, MetaRequest, Reclaim, ReclaimReply, ReclaimedLock, Sync};
use skep_wire::{Empty, Refusal, Status};

impl Shard {
    /// Is this record one of its own?
    pub fn holds(&self, term: Term, index: LogIndex) -> bool {
        index <= self.last && self.terms.at(index) == Some(term)
    }

    /// `Sync`: answered when durable, or refused when a power cut took what was acknowledged.
    pub(super) fn sync<S: Store>(&mut self, host: &mut Host<S>, request: &Request, m: &Sync) {
        let stamp = self.stamp();
        let held = m.index == LogIndex(0) || self.holds(m.term, m.index);
        let (to, done) = (request.reply_to, Ok(Empty {}.to_bytes()));
        if !held {
            let text = "a power cut took changes that this client was told of; what was not synced is lost";
            self.answer(host, to, stamp, Err(Refusal::with(Status::LOST_HISTORY, text)));
        } else if m.index <= self.durable {
            self.answer(host, to, stamp, done);
        } else {
            self.park(host, For::Durable(m.index), Parked::Answer { to, stamp, result: done });
        }
    }

    /// Is something taken up again soon by which this client tells what it has open? What comes is lined up behind it.
    pub(super) fn is_telling(&self, client: ClientId) -> bool {
        self.again.iter().any(|again| again.request.peer.client == client && is_told(&again.request))
    }

    /// `Close` and `Reclaim`. A lock counts only for a file that is open, and a file that is closed is not open again: none
    /// overtakes an earlier one that waits for rows.
    pub(super) fn opens_told<S: Store>(
        &mut self,
        host: &mut Host<S>,
        request: Request,
    ) -> Result<(), StoreError> {
        let client = request.peer.client;
        // A report needs many waits, and what stands behind it as many: each has its time for itself.
        host.waits_until = None;
        if let Some(what) = self.waits.told_by(client) {
            self.park(host, what, Parked::Again(request.into()));
            return Ok(());
        }
        if let Err(refusal) = self.may_tell(host, client, &request.message) {
            self.answer(host, request.reply_to, self.stamp(), Err(refusal));
            return Ok(());
        }
        let lost = match &request.message {
            MetaRequest::Close(m) => {
                self.closed(host, client, m)?;
                Vec::new()
            }
            MetaRequest::Reclaim(m) => {
                let lacks = self.rows_of_report(host, client, m)?;
                if !lacks.is_empty() {
                    self.await_rows(host, request, lacks);
                    return Ok(());
                }
                // A report behind the grace period: others may know what they now cannot.
                let written = m.opens.iter().filter(|open| open.mode.writes()).map(|open| open.ino);
                let written: Vec<Ino> = written.collect();
                if let Some(ran) = self.uncover_again(host, &request, &written)? {
                    return self.ran(host, request, None, ran, None);
                }
                self.reclaimed(host, client, m)?
            }
            _ => Vec::new(),
        };
        // The bytes of an empty answer where nothing is lost, as to a `Close`.
        let reply = ReclaimReply { lost: (!lost.is_empty()).then_some(lost) };
        self.answer(host, request.reply_to, self.stamp(), Ok(reply.to_bytes()));
        Ok(())
    }

    fn closed<S: Store>(
        &mut self,
        host: &mut Host<S>,
        client: ClientId,
        m: &Close,
    ) -> Result<(), StoreError> {
        let mut idle = Vec::new();
        let mut done = Vec::new();
        for closed in &m.opens {
            let Some(closed) = self.named(client, closed) else { continue };
            if self.opens.close(&mut host.opens, client, closed.ino, closed.open_seq) {
                idle.push(closed.ino);
                self.ends.forget(closed.ino);
            }
            if self.opens.has(client, closed.ino) {
                continue;
            }
            self.tells_nothing(host, closed.ino, client);
            self.locks.close(host.now, client, closed.ino);
            if self.writers.contains(&(closed.ino, client)) {
                done.push(closed.ino);
            }
        }
        self.writes(host, client, done, true)?;
        self.purge(host, idle)
    }

    /// What comes with another request of this client, which it may be about: so the last name of a file that its mount only
    /// kept open goes with the file. Where it cannot be heard now, its `Close` says it.
    pub(super) fn closed_beside<S: Store>(
        &mut self,
        host: &mut Host<S>,
        request: &Request,
    ) -> Result<(), StoreError> {
        let client = request.peer.client;
        let Some(closed) = request.call.closed.filter(|closed| self.own([closed.ino].into_iter()).is_ok())
        else {
            return Ok(());
        };
        if closed.is_untold() || self.is_telling(client) || self.waits.told_by(client).is_some() {
            return Ok(());
        }
        self.closed(host, client, &Close { opens: alloc::vec![closed] })
    }

    /// The inode that is closed, where the mount does not know it.
    fn named(&mut self, client: ClientId, closed: &Closed) -> Option<Closed> {
        if !closed.is_untold() {
            return Some(*closed);
        }
        let ino = self.opens.untold(client, closed.open_seq)?;
        Some(Closed { ino, open_seq: closed.open_seq })
    }

    /// The locks that are lost.
    fn reclaimed<S: Store>(
        &mut self,
        host: &mut Host<S>,
        client: ClientId,
        m: &Reclaim,
    ) -> Result<Vec<ReclaimedLock>, StoreError> {
        for open in &m.opens {
            self.opens(host, client, open.ino, open.mode, open.open_seq);
            if open.mode.writes() {
                self.reclaim_end(host, (open.ino, client), open.reserved)?;
            }
        }
        let again = self.grace.has_reported(client);
        if !again {
            self.reclaim_held(host, client, m)?;
        }
        let lost = self.reclaim_locks(host, client, &m.locks, again)?;
        let wrote = m.opens.iter().filter(|open| open.mode.writes()).map(|open| open.ino);
        let new = wrote.filter(|ino| !self.writers.contains(&(*ino, client))).collect();
        self.writes(host, client, new, false)?;
        if m.last && self.grace.reported(client) {
            self.opens_known(host)?;
        }
        Ok(lost)
    }

    /// The next rows, a part of all, that this report looks at and that are not in memory: it is taken as a whole, once none
    /// is left.
    fn rows_of_report<S: Store>(
        &self,
        host: &Host<S>,
        client: ClientId,
        m: &Reclaim,
    ) -> Result<Vec<Wanted>, StoreError> {
        if self.reads_in_place(host) {
            return Ok(Vec::new());
        }
        let near = Near::new(&host.store, false);
        let written = m.opens.iter().filter(|open| open.mode.writes()).map(|open| open.ino);
        let new = written.clone().filter(|ino| !self.writers.contains(&(*ino, client)));
        let inodes = written.chain(m.locks.iter().map(|claim| claim.ino)).map(key::inode);
        let mut left = host.config.limits.report_rows;
        for row in inodes.chain(new.map(|ino| key::writer(ino, client))) {
            match near.get(&row) {
                Ok(_) => {}
                Err(StoreError::Away) => left -= 1,
                Err(e) => return Err(e),
            }
            if left == 0 {
                break;
            }
        }
        Ok(near.take_lacks())
    }

    /// Is it for this term, of this shard, and not too much?
    fn may_tell<S: Store>(
        &self,
        host: &Host<S>,
        client: ClientId,
        message: &MetaRequest,
    ) -> Result<(), Refusal> {
        let (count, reclaimed) = match message {
            MetaRequest::Close(m) => {
                self.own(m.opens.iter().map(|closed| closed.ino))?;
                (m.opens.len(), 0)
            }
            MetaRequest::Reclaim(m) => {
                let held = m.holds.iter().flatten().copied();
                let locked = m.locks.iter().map(|claim| claim.ino);
                self.own(m.opens.iter().map(|open| open.ino).chain(locked).chain(held))?;
                if m.term.is_some_and(|term| term != self.term()) {
                    let text =
                        "what is open was put together for another term of this shard: it is to be told anew";
                    return Err(Refusal::with(Status::NOT_READY, text));
                }
                // What a repetition tells again is counted once.
                let new = m.opens.iter().filter(|open| !self.opens.has(client, open.ino)).count();
                let held = m.holds.as_ref().map_or(0, Vec::len);
                (m.opens.len().max(m.locks.len()).max(held), new)
            }
            _ => (0, 0),
        };
        if count > OPENS_PER_MESSAGE_MAX {
            let text =
                format!("{count} inodes or locks in one message; the limit is {OPENS_PER_MESSAGE_MAX}");
            return Err(Refusal::with(Status::MALFORMED, text));
        }
        // These were open before, and may be more than the settings allow by now: only new ones are counted against them.
        if reclaimed > 0 && host.opens.of(client) + reclaimed > OPENS_TOLD_MAX {
            let text = format!(
                "client {client} tells of more than {OPENS_TOLD_MAX} open files, which no server allows"
            );
            return Err(Refusal::with(Status::errno(Errno::ENFILE), text));
        }
        Ok(())
    }

    /// Are all of these of this shard?
    fn own(&self, mut inos: impl Iterator<Item = Ino>) -> Result<(), Refusal> {
        match inos.find(|ino| ino.shard() != self.id) {
            Some(ino) => {
                let text = format!("inode {ino} belongs to shard {}, not to shard {}", ino.shard(), self.id);
                Err(Refusal::with(Status::MALFORMED, text))
            }
            None => Ok(()),
        }
    }

    /// Notes in the rows who writes to chunks, or does no longer.
    pub(super) fn writes<S: Store>(
        &mut self,
        host: &mut Host<S>,
        client: ClientId,
        inos: Vec<Ino>,
        cease: bool,
    ) -> Result<(), StoreError> {
        if inos.is_empty() {
            return Ok(());
        }
        // Others may know them still by what an earlier term has lent, also in the next term, if that begins soon.
        let held = (!cease && self.hold.is_some()).then_some(true);
        self.decide(host, &Internal::Writers(Writers { client, inos, cease, held }))
    }
}
