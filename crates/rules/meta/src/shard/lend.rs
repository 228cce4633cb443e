//! What answers lend of this shard, and what its changes take back first.

use super::Shard;
use super::run::Ran;
use super::waits::For;
use crate::command::{Holds, Internal};
use crate::fail::corrupt;
use crate::group::{Conflict, Host, Request, Touched, touched};
use crate::key;
use crate::row::Inode;
use crate::store::{Batch, Store, StoreError};
use alloc::vec::Vec;
use skep_types::{ClientId, Decode, Encode, Ino, Millis};
use skep_wire::meta::{Grant, MetaRequest, Recalled, ShardStamp};
use skep_wire::{Empty, Refusal, Status};

/// In the rows of holders it stands for whoever may have leases.
pub(super) const ANYBODY: ClientId = ClientId(0);

impl Shard {
    /// What a run touches of what others use, or may use still of an earlier term.
    pub(super) fn touched_by<S: Store>(
        &self,
        host: &Host<S>,
        client: ClientId,
        touched: impl FnOnce(&dyn Fn(Ino) -> bool) -> Result<Touched, StoreError>,
    ) -> Result<Touched, StoreError> {
        match self.hold {
            Some(_) => touched(&|_| true),
            None if host.leases.is_empty() => Ok(Touched::new()),
            None => touched(&|ino| host.leases.others(ino, client)),
        }
    }

    /// Takes it back: how the run ends, if that has to be waited for.
    pub(super) fn take_back<S: Store>(
        &self,
        host: &mut Host<S>,
        request: &Request,
        touched: &Touched,
    ) -> Option<Ran> {
        if touched.is_empty() {
            return None;
        }
        if self.hold.is_some() {
            return Some(Ran::Hold);
        }
        if host.leases.waits() >= host.config.limits.waits / 2 {
            let refusal = Refusal::with(Status::BUSY, "too many requests wait for mounts that do not answer");
            return Some(Ran::Refused(refusal, Vec::new()));
        }
        let conflict = Conflict {
            to: request.reply_to,
            client: request.peer.client,
            shard: self.id,
            term: self.term(),
            now: host.now,
        };
        let (wait, told) = host.leases.recall(conflict, touched);
        told.into_iter().for_each(|(client, recall)| host.events.tell(client, recall.into()));
        wait.map(Ran::Recall)
    }

    /// The stamp of an answer that tells of these directories.
    pub(super) fn lending_stamp<S: Store>(
        &mut self,
        host: &mut Host<S>,
        request: &Request,
        dirs: Vec<Ino>,
    ) -> Result<ShardStamp, StoreError> {
        let stamp = self.stamp();
        let to = request.reply_to;
        // What it was to change has changed, or will not.
        host.leases.release(to);
        let Some(client) = host.leases.wishes(to) else { return Ok(stamp) };
        if !(host.events.listens(client, host.now, host.config.lease_ms / 2) && self.may_lend(host)?) {
            return Ok(stamp);
        }
        // The directories in a listing have leases of their own.
        let most = if matches!(request.message, MetaRequest::List(_)) { 1 } else { dirs.len() };
        let mut grants: Vec<Grant> = Vec::new();
        for ino in dirs.into_iter().take(most) {
            if host.leases.may_grant(to, ino) && (host.leases.has(client, ino) || self.is_there(host, ino)?) {
                grants.extend(host.leases.grant(to, ino));
            }
        }
        Ok(ShardStamp { grants: (!grants.is_empty()).then_some(grants), ..stamp })
    }

    /// Is it a directory of this shard that has a name, and that no transaction has locked?
    fn is_there<S: Store>(&self, host: &Host<S>, ino: Ino) -> Result<bool, StoreError> {
        if ino.shard() != self.id || self.txns.has_locked(ino) {
            return Ok(false);
        }
        let Some(Some(row)) = host.store.get_near(&key::inode(ino))? else { return Ok(false) };
        let inode = Inode::from_bytes(&row).map_err(|e| corrupt("inode row", e))?;
        Ok(inode.is_dir() && inode.nlink > 0)
    }

    /// Before the first lease is given a durable row says that there may be some: whoever answers for the shard next waits
    /// until their time is over.
    fn may_lend<S: Store>(&mut self, host: &mut Host<S>) -> Result<bool, StoreError> {
        if !self.holders.contains_key(&ANYBODY) {
            self.decide(host, &Internal::Holds(Holds { client: ANYBODY }))?;
            self.holders.insert(ANYBODY, self.last);
        }
        Ok(self.holders.get(&ANYBODY).is_some_and(|index| *index <= self.durable))
    }

    /// The shard itself changes nothing that anybody may have a lease on.
    pub(super) fn note_broken<S: Store>(&self, host: &mut Host<S>, batch: &Batch) -> Result<(), StoreError> {
        let held = |is_leased: &dyn Fn(Ino) -> bool| touched(&host.store, batch, is_leased);
        let broken = if self.hold.is_none() { self.touched_by(host, ClientId(0), held)?.len() } else { 0 };
        host.leases.broken(broken);
        Ok(())
    }

    /// A term begins: leases of the one before may be in use for a while.
    pub(super) fn hold_changes<S: Store>(&mut self, host: &Host<S>) {
        let ms = host.leases.hold_ms();
        if ms > 0 && (self.era_untold || self.holders.contains_key(&ANYBODY)) {
            self.hold = Some(host.now.plus(ms));
        }
    }

    /// Time passed.
    pub(super) fn end_hold<S: Store>(&mut self, host: &mut Host<S>) {
        if self.hold.is_some_and(|until| host.now >= until) {
            self.hold = None;
            for parked in self.waits.over(For::Hold) {
                self.resume(host, parked);
            }
        }
    }

    /// Until when changes wait.
    pub(super) fn held_until(&self) -> Option<Millis> {
        self.hold
    }

    /// A mount uses something no longer. What is of another term is settled by its end.
    pub(super) fn recalled<S: Store>(&self, host: &mut Host<S>, request: &Request, m: &Recalled) {
        let client = request.peer.client;
        if m.term == self.term() {
            m.confirmed.iter().for_each(|number| host.leases.confirmed(client, *number));
            let own = m.back.iter().filter(|(ino, _)| ino.shard() == self.id);
            own.for_each(|(ino, number)| host.leases.give_back(client, *ino, *number));
        }
        self.answer(host, request.reply_to, self.stamp(), Ok(Empty {}.to_bytes()));
    }

    /// What was to be confirmed is: the request is run again.
    pub fn recall_over<S: Store>(&mut self, host: &mut Host<S>, id: u64) {
        for parked in self.waits.over(For::Recall(id)) {
            self.resume(host, parked);
        }
    }
}
