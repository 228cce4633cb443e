//! Leases of all shards of a group: who may use what without asking, until when, and what is being taken back. Volatile,
//! like opens. See `docs/design/leases.md`.

mod busy;
mod holders;
mod recalls;
mod times;
mod touched;

pub use recalls::Conflict;
pub use touched::{Known, Knows, Touched, What, names_of, touched};

use super::{Group, Request};
use crate::Config;
use crate::limit::{LEASES_SWEPT_PER_STEP, Limits};
use crate::shard::Shard;
use crate::store::{Store, StoreError};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use busy::Busy;
use holders::Holders;
use recalls::Recalls;
use skep_types::{ClientId, Ino, Millis, Role, ShardId};
use skep_wire::meta::{Grant, LeaseKind, LeaseTime, Recall, Wish};
use times::{Asked, Times, patience};

/// See the module.
#[derive(Debug, Default)]
pub struct Leases {
    holders: Holders,
    /// Number of the newest grant or recall, of any client: so it rises for each.
    number: u64,
    times: Times,
    recalls: Recalls,
    busy: Busy,
    broken: u64,
    /// Grants that there was no room for.
    no_room: u64,
    /// Clients that were silent for too long, and whose leases ended by that.
    passed_over: u64,
    limits: Limits,
    /// Canary for the simulator: see [`Config`].
    grants_while_recalling: bool,
}

/// How it is with leases, in numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LeaseCounts {
    /// Leases given.
    pub held: usize,
    /// Recalls that are not confirmed.
    pub recalls: usize,
    /// See [`Leases::broken`].
    pub broken: u64,
    /// Grants that there was no room for: too many holders of an inode, or leases of a client or of the group.
    pub no_room: u64,
    /// Inodes that nobody is lent for a while.
    pub busy: usize,
    /// Clients whose leases ended because they were silent.
    pub passed_over: u64,
}

impl Leases {
    /// As they are set.
    pub fn new(config: &Config) -> Self {
        Self {
            times: Times::new(config.lease_ms),
            busy: Busy::new(config.limits.busy_at),
            limits: config.limits.clone(),
            grants_while_recalling: config.canary_grants_while_recalling,
            ..Self::default()
        }
    }

    /// Has anybody but `client` a lease on it?
    pub fn others(&self, ino: Ino, client: ClientId) -> bool {
        self.holders.of(ino).any(|holder| holder != client)
    }

    /// Has anybody but `client` a lease on anything? Or are changes counted of something?
    pub fn has_others(&self, client: ClientId, now: Millis) -> bool {
        self.holders.clients().len() > usize::from(self.has_any(client)) || self.busy.is_any(now)
    }

    /// Has any request to change these to wait for others?
    pub fn must_wait(&self, client: ClientId, items: &Touched) -> bool {
        items.iter().any(|(ino, what)| {
            let mut others =
                self.holders.of(*ino).filter(|holder| *holder != client && what.is_known_to(*holder));
            others.any(|holder| !self.recalls.is_cleared(*ino, what, holder))
        })
    }

    /// Is it of interest that `client` changes `ino`?
    pub fn notes(&self, ino: Ino, client: ClientId, now: Millis) -> bool {
        self.others(ino, client) || self.busy.is_busy(ino, now)
    }

    /// Has `client` a lease on it?
    pub fn has(&self, client: ClientId, ino: Ino) -> bool {
        self.holders.has(client, ino)
    }

    fn has_any(&self, client: ClientId) -> bool {
        self.holders.count_of(client) > 0
    }

    /// The same, given by this grant or a later one.
    pub fn has_grant(&self, client: ClientId, ino: Ino, number: u64) -> bool {
        self.holders.number(ino, client).is_some_and(|newest| newest >= number)
    }

    /// May the answer to this request give a lease on `ino`?
    fn may_grant(&self, to: u64, ino: Ino) -> bool {
        self.wishes(to).is_some_and(|client| {
            (!self.recalls.blocks(ino) || self.grants_while_recalling) && self.has_room(client, ino)
        })
    }

    fn has_room(&self, client: ClientId, ino: Ino) -> bool {
        self.has(client, ino)
            || self.holders.kept() < self.limits.leases
                && self.holders.count_of(client) < self.limits.leases_per_client
                && self.holders.of(ino).count() < self.limits.lease_holders
    }

    /// Gives one, where it may be given.
    pub fn grant(&mut self, to: u64, ino: Ino, now: Millis) -> Option<Grant> {
        let client = self.wishes(to)?;
        if self.busy.is_busy(ino, now) {
            self.busy.asks(ino, client);
            return None;
        }
        if !self.may_grant(to, ino) {
            self.no_room += u64::from(!self.has_room(client, ino));
            return None;
        }
        self.number += 1;
        self.holders.add(ino, client, self.number);
        Some(Grant { ino, kind: LeaseKind::Shared, number: self.number })
    }

    /// A client gives a lease back; one that is on its way to it (its number is higher) stays. What is being taken back of it
    /// counts as confirmed: who has no lease asks for no events, and may never hear of it.
    pub fn give_back(&mut self, client: ClientId, ino: Ino, number: u64) {
        if self.holders.number(ino, client).is_some_and(|newest| newest <= number) {
            self.holders.end(ino, client);
            self.recalls.end_of(client, ino);
        }
    }

    /// A request is about to change these. What others may use of it is taken back first; `None`: nobody uses any of it. The
    /// recalls that go out for it.
    pub fn recall(&mut self, request: Conflict, items: &Touched) -> (Option<u64>, Vec<(ClientId, Recall)>) {
        let (mut told, mut awaited, mut conflicts) = (Vec::new(), Vec::new(), BTreeSet::new());
        for (ino, what) in items {
            self.busy.changes(*ino, request.client, request.now);
            let is_wanted = self.busy.is_wanted(*ino, request.now);
            let is_asked = |holder: &ClientId| *holder != request.client && what.is_known_to(*holder);
            for holder in self.holders.of(*ino).filter(is_asked) {
                if self.recalls.is_cleared(*ino, what, holder) {
                    continue;
                }
                let grant = self.holders.number(*ino, holder).unwrap_or_default();
                let is_overdue = is_wanted && self.busy.is_overdue(*ino, grant, request.now);
                let what = if is_overdue { &What::Everything } else { what };
                // Who is to give it back need not hear of each change before he has: so what is kept of one inode is bounded.
                let wanted = self.recalls.wanted_by(*ino, holder).filter(|_| is_wanted);
                if let Some(number) = self.recalls.is_out(*ino, what, holder).or(wanted) {
                    awaited.push((holder, number));
                    continue;
                }
                if !(is_wanted && self.busy.is_kept(*ino, grant)) {
                    conflicts.insert(*ino);
                }
                self.number += 1;
                let recall = what.recall(*ino, request.shard, request.term, self.number);
                told.push((holder, Recall { wants_back: is_wanted.then_some(true), ..recall }));
                awaited.push((holder, self.number));
                self.recalls.told(holder, self.number, (*ino, what.clone()), is_wanted, request.now);
            }
        }
        conflicts
            .into_iter()
            .for_each(|ino| self.busy.recalls(ino, request.client, self.number, request.now));
        let id = self.recalls.wait(&request, items.iter().map(|(ino, _)| *ino), awaited);
        (id, told)
    }

    /// A client has dropped what this recall named. Who never confirms is passed over, which is no reason to lend others less.
    pub fn confirmed(&mut self, client: ClientId, number: u64, now: Millis) {
        if let Some((ino, at)) = self.recalls.out_since(client, number) {
            self.busy.waited(ino, at, now);
        }
        if let Some((ino, what)) = self.recalls.confirmed(client, number)
            && what == What::Everything
        {
            self.holders.end(ino, client);
        }
    }

    /// The request has its answer, or waits for something else: leases are given again on what it was to change.
    pub fn release(&mut self, to: u64) {
        self.recalls.release(to);
    }

    /// Requests that are to be run again, and their shards.
    pub fn take_over(&mut self) -> Vec<(ShardId, u64)> {
        self.recalls.take_over()
    }

    /// A request came whose answer may renew leases, and may give some if it wishes. `true`: its mount has dropped everything.
    pub fn asked(&mut self, to: u64, client: ClientId, lapses: u64, wishes: bool, now: Millis) -> bool {
        let has_nothing = !self.has_any(client);
        let lapsed = self.times.asked(to, Asked { client, lapses, wishes }, has_nothing, now);
        if lapsed {
            if self.recalls.oldest(client).is_some() {
                // It talks, and perhaps cannot hear: lent something at once, it would have the next change wait as well.
                self.times.listens(client, false);
            }
            self.end_all(client);
        }
        lapsed
    }

    /// The answer to a request leaves: does it renew the leases of whoever asked?
    pub fn answered(&mut self, to: u64, now: Millis, lives: impl Fn(ClientId) -> bool) -> Option<LeaseTime> {
        let recalls = &self.recalls;
        let is_late = |client, ms| recalls.oldest(client).is_some_and(|at| now >= at.plus(ms));
        self.times.answered(to, now, |client, ms| lives(client) && !is_late(client, ms))
    }

    /// Nobody waits for the answer.
    pub fn abandoned(&mut self, to: u64) {
        self.times.abandoned(to);
        self.release(to);
    }

    /// All leases of a client end, and what it was told to drop counts as dropped.
    pub fn end_all(&mut self, client: ClientId) {
        self.holders.end_client(client);
        self.recalls.end_all(client);
    }

    /// Has anybody a lease of this shard, or has not confirmed that he uses it no longer?
    pub fn has_of(&self, shard: ShardId) -> bool {
        self.holders.has_of(shard) || self.recalls.has_of(shard)
    }

    /// A term of a shard ended: its leases go with it, and what waited for them has been answered. These hold files there, or
    /// may: they are to believe no longer that who renews them here waits for them.
    pub fn end_shard(&mut self, shard: ShardId, who_hold: impl Iterator<Item = ClientId>) {
        self.recalls.end_shard(shard);
        let mut clients = self.holders.end_shard(shard);
        clients.extend(who_hold);
        self.times.term_ended(&clients);
    }

    /// Takes apart some of what ended together.
    pub fn sweep(&mut self) {
        self.holders.sweep(LEASES_SWEPT_PER_STEP);
    }

    /// Is nothing left of it?
    pub fn is_swept(&self) -> bool {
        self.holders.is_swept()
    }

    /// Clients that have not been heard for so long that they use nothing any more: their leases have ended.
    pub fn expire(&mut self, now: Millis) -> Vec<ClientId> {
        if !self.times.is_due(now) {
            return Vec::new();
        }
        let holders: BTreeSet<ClientId> = self.holders.clients().chain(self.recalls.clients()).collect();
        let over = self.times.expire(now, &holders);
        over.iter().for_each(|client| self.end_all(*client));
        self.passed_over += over.len() as u64;
        over
    }

    /// When somebody may be silent for too long.
    pub fn deadline(&self) -> Option<Millis> {
        self.times.deadline().filter(|_| self.holders.count() > 0 || !self.recalls.is_quiet())
    }

    /// So long after the end of a term nobody uses what it gave, whatever was set then.
    pub fn hold_ms(&self) -> u64 {
        patience(self.limits.lease_ms)
    }

    /// An inode is gone: whoever has a lease on it was told, or made it go.
    pub fn gone(&mut self, ino: Ino) {
        let of: Vec<ClientId> = self.holders.of(ino).collect();
        of.into_iter().for_each(|client| self.holders.end(ino, client));
    }

    /// When a client is silent for so long that it believes in nothing that was said to it, if nothing is heard of it before;
    /// `None`: nobody counts that.
    pub fn silent_at(&self, client: ClientId) -> Option<Millis> {
        self.times.silent_at(client)
    }

    /// The group stood still until now: what it has not heard of meanwhile says nothing about who holds files.
    pub fn stood_still(&mut self, now: Millis) {
        self.times.stood_still(now);
    }

    /// May something be lent to the client? One that does not listen has everybody else wait for its time to be over. It need
    /// not before it has anything, unless that has happened just now.
    pub fn may_lend(&self, client: ClientId, listens: bool) -> bool {
        !self.times.is_deaf(client) && (listens || !self.has_any(client))
    }

    /// The client asks what it is to hear.
    pub fn listens(&mut self, client: ClientId) {
        self.times.listens(client, true);
    }

    /// Who may be given leases by the answer to this request.
    pub fn wishes(&self, to: u64) -> Option<ClientId> {
        self.times.is_wished(to)
    }

    /// So much was changed by the server itself though others had leases on it: never, or a rule is wrong.
    pub fn broken(&mut self, more: usize) {
        self.broken += more as u64;
    }

    /// In numbers.
    pub fn counts(&self, now: Millis) -> LeaseCounts {
        LeaseCounts {
            held: self.holders.count(),
            recalls: self.recalls.len(),
            broken: self.broken,
            no_room: self.no_room,
            busy: self.busy.len(now),
            passed_over: self.passed_over,
        }
    }

    /// When the oldest recall went out that this client has not confirmed.
    pub fn oldest_recall(&self, client: ClientId) -> Option<Millis> {
        self.recalls.oldest(client)
    }

    /// Numbers for people. Changes wait for whoever has not confirmed a recall.
    pub fn gauges(&self, now: Millis) -> [(&'static str, u64); 8] {
        let counts = self.counts(now);
        let oldest = self.recalls.first_out();
        let (ms, client, ino) =
            oldest.map_or((0, 0, 0), |(at, client, ino)| (now.since(at), client.0, ino.0));
        [
            ("leases", counts.held as u64),
            ("recalls", counts.recalls as u64),
            ("leases_broken", counts.broken),
            ("leases_no_room", counts.no_room),
            ("busy_inodes", counts.busy as u64),
            ("oldest_recall_ms", ms),
            ("oldest_recall_client", client),
            ("oldest_recall_inode", ino),
        ]
    }

    /// Does the table agree with itself?
    #[cfg(test)]
    pub fn check(&self) {
        self.holders.check();
        self.recalls.check();
    }
}

impl<S: Store> Group<S> {
    /// How it is with leases, in numbers.
    pub fn lease_counts(&self) -> LeaseCounts {
        self.host.leases.counts(self.host.now)
    }

    /// So many requests looked at files that went on being held by other clients.
    pub fn held_looks(&self) -> u64 {
        self.shards.values().map(Shard::held_looks).sum()
    }

    /// Does this shard answer requests here?
    pub fn serves(&self, shard: ShardId) -> bool {
        self.shards.get(&shard).is_some_and(|shard| shard.is_in_service(&self.host))
    }

    /// Is it known here that this client may use what the lease on `ino` covers, by this grant? A shard that holds changes knows
    /// it of all.
    pub fn knows_lease(&self, client: ClientId, ino: Ino, number: u64) -> bool {
        self.host.leases.has_grant(client, ino, number) || self.holds_changes(ino.shard())
    }

    /// Is it known here that this client holds the file?
    pub fn is_held_by(&self, client: ClientId, ino: Ino) -> bool {
        self.shards.get(&ino.shard()).is_some_and(|shard| shard.is_held_by(ino, client))
    }

    /// The same, or what is held is not known. A shard that has not heard of all what they hold knows it of all.
    pub fn knows_hold(&self, client: ClientId, ino: Ino) -> bool {
        self.shards.get(&ino.shard()).is_some_and(|shard| shard.knows_hold(&self.host, ino, client))
    }

    /// Do changes of this shard wait for what was lent in an earlier term?
    pub fn holds_changes(&self, shard: ShardId) -> bool {
        self.shards.get(&shard).is_some_and(|shard| shard.held_until().is_some())
    }

    /// When the oldest recall went out that this client has not confirmed.
    pub fn oldest_recall(&self, client: ClientId) -> Option<Millis> {
        self.host.leases.oldest_recall(client)
    }

    /// A request came: of a mount that counts its lapses, the answer renews its leases, and gives some if it wishes.
    pub(super) fn note_lapses(&mut self, request: &Request) {
        let Some(lapses) = request.call.lapses.filter(|_| request.peer.role == Role::Client) else { return };
        let (client, wish) = (request.peer.client, request.call.wish.unwrap_or_default());
        let wishes = wish & Wish::SHARED != 0;
        if self.host.leases.asked(request.reply_to, client, lapses, wishes, self.host.now) {
            self.host.events.retract_recalls(client);
        }
    }

    /// What waited for others to drop something goes on.
    pub(super) fn recalls_over(&mut self) -> Result<(), StoreError> {
        for (shard, id) in self.host.leases.take_over() {
            self.deliver(shard, |shard, host| {
                shard.recall_over(host, id);
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Time passed: who was silent for too long uses nothing any more.
    pub(super) fn end_leases(&mut self) {
        self.host.leases.sweep();
        for client in self.host.leases.expire(self.host.now) {
            self.host.events.retract_recalls(client);
        }
    }
}

#[cfg(test)]
mod tests;
