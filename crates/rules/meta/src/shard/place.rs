//! What the map says of the shard.

use super::{Locks, Shard};
use crate::command::{Format, Internal, Place};
use crate::group::{Host, not_ready};
use crate::limit::{CHASE_MS, EPOCH_HISTORY_BITS, ERA_TERM_BITS, RETRY_FIRST_MS, RETRY_LAST_MS, TERMS_END};
use crate::row::header::{Given, Keys};
use crate::store::{Store, StoreError};
use alloc::format;
use skep_types::log::Head;
use skep_types::{LogIndex, Millis, NodeId, Term};
use skep_wire::mgmt::{ShardEntry, ShardState};

/// The next term does not begin here.
pub(super) const NEVER: Millis = Millis(u64::MAX);

/// The lowest term of an era.
pub(super) fn first_of(era: u16) -> Term {
    Term(u64::from(era) << ERA_TERM_BITS)
}

/// Were epochs of a shard given by one mgmtd, which was not put back from a backup in between?
pub fn is_one_history(one: u64, other: u64) -> bool {
    one >> EPOCH_HISTORY_BITS == other >> EPOCH_HISTORY_BITS
}

impl Shard {
    /// Keys of its names.
    pub fn keys(&self) -> &Keys {
        &self.keys
    }

    /// Does the map say that this server answers for it?
    pub fn leads(&self) -> bool {
        self.leads
    }

    /// Epoch of its place in the map, as its rows say.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// It has come from another server: whoever has something open on it hears of its next term.
    pub fn settle_in<S: Store>(&mut self, host: &mut Host<S>) -> Result<(), StoreError> {
        self.served = true;
        let Some(entry) = host.seats.get(&self.id).cloned() else { return Ok(()) };
        self.placed(host, &entry)
    }

    /// Is it to begin its service, once it can?
    pub fn awaits_service(&self) -> bool {
        self.leads && !self.serves
    }

    /// Do clients still tell what they have?
    pub fn is_in_grace(&self) -> bool {
        self.grace.holds()
    }

    /// Its locks, for what concerns those of several shards.
    pub fn locks(&mut self) -> &mut Locks {
        &mut self.locks
    }

    /// As [`Shard::locks`], to look at.
    pub fn locks_held(&self) -> &Locks {
        &self.locks
    }

    /// Were all its rows told to another server, by an order that whoever made this place in the map does not know? Then
    /// mgmtd was put back from a backup of before that, and the other one may have served newer rows; unless an administrator
    /// said that those are lost.
    fn is_beyond(&self, entry: &ShardEntry) -> bool {
        let follows = |given: Given| entry.epoch > given.epoch && is_one_history(entry.epoch, given.epoch);
        let is_known = |given: Given| follows(given) || entry.are_newer_lost();
        entry.state != ShardState::Moving && self.given.is_some_and(|given| !is_known(given))
    }

    /// Which server has newer rows of it, perhaps, though the map gives it to this one.
    pub fn withheld_for<S: Store>(&self, host: &Host<S>) -> Option<NodeId> {
        let is_withheld = host.leads(self.id) && !self.leads;
        self.given.filter(|_| is_withheld).map(|given| given.to)
    }

    /// All its rows are told to another server, as the header says that is being written.
    pub fn note_given(&mut self, given: Given) {
        self.given = Some(given);
    }

    /// Nobody serves it, and it has all that a copy at `head` has (at 0: nothing).
    pub fn has_all_of(&self, head: Head) -> bool {
        let has_all = head.index == LogIndex(0) || self.holds(head.term, head.index);
        !self.has_term() && has_all
    }

    /// Does its header say so of this order?
    pub fn is_given(&self, given: Given) -> bool {
        self.given == Some(given)
    }

    /// To whom it was given by an order of another history than this one.
    pub fn given_before(&self, order: Given) -> Option<NodeId> {
        self.given.filter(|was| !is_one_history(was.epoch, order.epoch)).map(|was| was.to)
    }

    /// To whom, as its header says.
    pub fn given_to(&self) -> Option<NodeId> {
        self.given.map(|given| given.to)
    }

    /// Where the map has it. Who answers for it no more forgets what only its term knew. In a later era its terms lie
    /// behind all that were ever in use: targets, which may have heard of later ones than this copy has, take no other.
    pub fn placed<S: Store>(&mut self, host: &mut Host<S>, entry: &ShardEntry) -> Result<(), StoreError> {
        (self.leads, self.state) = (host.leads(self.id) && !self.is_beyond(entry), entry.state);
        let first = first_of(entry.era);
        self.least = self.least.max(first);
        // It is to come from elsewhere, where it may have been served since this term began.
        let comes = entry.state == ShardState::Moving && entry.epoch != self.epoch;
        let is_over = !self.leads || comes || self.term() < first;
        if is_over && self.started.is_some() { self.end_term(host) } else { Ok(()) }
    }

    /// Is it to answer for the shard, in a term of its own that has not begun?
    pub fn awaits_term(&self) -> bool {
        self.leads && self.started.is_none() && !self.is_moving()
    }

    /// Is its term over, because targets have heard of a later one?
    pub fn must_renew(&self, now: Millis) -> bool {
        self.has_term() && self.renewal().is_some_and(|at| now >= at)
    }

    /// When its next term begins. A server that was superseded is cut off from targets by the later term, and nothing else may
    /// be true of this one until mgmtd has answered it: what its map says may be old.
    pub fn renewal(&self) -> Option<Millis> {
        self.renew_at.filter(|at| self.is_vouched_for && *at != NEVER)
    }

    /// mgmtd knows no other process in its place, as of `at`.
    pub fn vouched(&mut self, at: Millis) {
        self.is_vouched_for |= self.renew_at.is_some() && at > self.deposed_at;
    }

    /// A target takes what comes in this term. After a while without refusals the next one is no chase any more.
    pub fn accepted(&mut self, now: Millis) {
        if now.since(self.deposed_at) > CHASE_MS {
            self.deposed = 0;
        }
    }

    /// A target has heard of a later term than this one, `heard`, and refuses what comes in it. What it refused stays under
    /// way until this term ends. If the map still gives the shard to this server, the next term begins behind that one, and
    /// all goes on from the rows, as after a restart: a pause later, so that the newest map is here and two servers that
    /// both take the shard for theirs do not chase each other.
    pub fn deposed<S: Store>(&mut self, host: &mut Host<S>, heard: Option<Term>, why: &str) {
        host.counters.deposed();
        // Who does not say how far it is, is met by ever longer steps.
        let behind = |step: u32| Term(self.term().0.saturating_add(1 << step.min(ERA_TERM_BITS)));
        let next = heard.map_or(behind(self.deposed), |heard| Term(heard.0.saturating_add(1)));
        let is_possible = next.0 < TERMS_END;
        if is_possible {
            self.least = self.least.max(next);
        }
        // One that named a term that cannot be must not cover up one that can.
        if self.renew_at.is_some_and(|at| at != NEVER || !is_possible) {
            return;
        }
        let pause = (RETRY_FIRST_MS << self.deposed.min(16)).min(RETRY_LAST_MS);
        self.renew_at = Some(if is_possible { host.now.plus(pause) } else { NEVER });
        (self.deposed_at, self.is_vouched_for) = (host.now, false);
        self.deposed += 1;
        host.out.fetch_map = true;
        host.out.warn(format!(
            "shard {}: term {} of this server was ended by a later one: {why}. Targets refuse what comes in it; a later term \
             begins once mgmtd has said that the shard is still this server's. If no other server has it, this copy of its data \
             may be an older one: stop the server, and put the newest one back",
            self.id,
            self.term()
        ));
    }

    /// Its term is over: everything but the rows is forgotten, and whoever waits is to ask again.
    pub fn end_term<S: Store>(&mut self, host: &mut Host<S>) -> Result<(), StoreError> {
        let again = core::mem::take(&mut self.again).into_iter().map(|again| again.request.reply_to);
        let undecided = self.txns.take_addresses();
        for to in self.waits.take_addresses().into_iter().chain(again).chain(undecided) {
            self.answer(host, to, self.stamp(), Err(not_ready()));
        }
        self.give_up_reads(host);
        host.errands.drop_of(self.id);
        self.opens.drop_all(&mut host.opens);
        // Who has not told what he holds may hold some.
        let who_hold = self.files_held.clients().chain(self.grace.unreported());
        host.leases.end_shard(self.id, who_hold);
        let (last, durable) = (self.last, self.durable);
        let (leads, state, served) = (self.leads, self.state, self.served || self.serves);
        let (least, deposed, deposed_at) = (self.least, self.deposed, self.deposed_at);
        let (noted, noted_load) = (self.noted, self.noted_load);
        let read = Self::read(host, self.id)?.unwrap_or_else(|| Self::new(host, self.id));
        *self = Self {
            last,
            durable,
            leads,
            state,
            served,
            least,
            deposed,
            deposed_at,
            noted,
            noted_load,
            ..read
        };
        Ok(())
    }

    /// Its place in the map is another one than it knew.
    pub fn take_place<S: Store>(&mut self, host: &mut Host<S>, place: &Place) -> Result<(), StoreError> {
        let Place { epoch, level, era } = *place;
        if !self.leads || (self.epoch, self.level, self.era) == (epoch, level, era) {
            return Ok(());
        }
        let jumps = era > self.era;
        (self.epoch, self.level, self.era) = (epoch, level, era);
        self.given = None;
        self.decide(host, &Internal::Place(Place { epoch, level, era }))?;
        if jumps {
            host.out.note(format!(
                "shard {} begins era {era}: an older copy of it, or of mgmtd's directory, was put back, or newer rows are \
                 lost. Inode numbers and generations go on far behind",
                self.id
            ));
            self.jumped(host)?;
        }
        Ok(())
    }

    /// It is made: its first term begins.
    pub fn format<S: Store>(&mut self, host: &mut Host<S>, format: &Format) -> Result<(), StoreError> {
        let (term, index) = (first_of(format.era).max(Term(1)), LogIndex(1));
        (self.epoch, self.level, self.era) = (format.epoch, format.level, format.era);
        self.keys = format.keys;
        self.terms.push(term, index);
        self.decide(host, &Internal::Format(format.clone()))?;
        self.started = Some(index);
        self.jumped(host)?;
        host.out.sync_now = true;
        Ok(())
    }
}
