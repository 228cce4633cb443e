//! A group: the shards of one thread of a metadata server, with what they have in common. Inputs in, outputs out; the
//! hands append `records` in one write before they send `replies`, and hand `tasks` to the courier. See
//! `docs/design/group.md`.

mod errands;
mod events;
mod host;
mod job;
mod leases;
mod map;
mod message;
mod reads;
mod sessions;
mod start;
mod stats;
mod telling;
mod timers;
mod travel;

pub use errands::{Errands, Owner};
pub use events::Events;
pub use host::{Host, Load, not_ready};
pub use job::{Class, Job, JobFailure, JobReply, Line, ShardMessage, Task};
pub use leases::{Conflict, Known, Knows, LeaseCounts, Touched, names_of, touched};
pub use message::{Input, Output, PeerIdentity, Read, Reply, Request};
pub use sessions::Sessions;

use crate::shard::{Shard, is_circle_over};
use crate::store::{Store, StoreError};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::ops::Bound;
use skep_types::{ClientId, Encode, FenceEpoch, LogSeq, MapVersion, Millis, ShardId, Timestamp};
use skep_wire::meta::{AskHistoryReply, MetaRequest, ShardStamp, StatsReply};
use travel::Travels;

/// Answers to requests that the group sent to itself have this bit in their address.
pub const LOOPBACK: u64 = 1 << 63;

/// See the module.
pub struct Group<S: Store> {
    host: Host<S>,
    shards: BTreeMap<ShardId, Shard>,
    /// When each shard has something to do.
    deadlines: BTreeSet<(Millis, ShardId)>,
    /// Shards that can go on with something at once.
    busy: BTreeSet<ShardId>,
    /// Shards that can begin a recovery as soon as the group has room for its read.
    recovering: BTreeSet<ShardId>,
    /// The one that went on last.
    resumed: ShardId,
    /// The one whose time came first in the last tick.
    ticked: ShardId,
    /// Shards whose terms have begun and that read what the last ones left.
    reading: BTreeSet<ShardId>,
    /// Shards whose service may begin.
    beginning: BTreeSet<ShardId>,
    /// Sessions that ended, of which the shards have not heard.
    ended: BTreeSet<ClientId>,
    /// Shards of which mgmtd may not know that they are here.
    untold: Vec<ShardId>,
    /// Shards that come or have gone.
    travels: Travels,
    /// The row store failed: nothing is answered any more.
    failed: Option<StoreError>,
    /// How often something was delivered to each shard.
    #[cfg(test)]
    delivered: BTreeMap<ShardId, u64>,
}

impl<S: Store> Group<S> {
    /// For tests of what is told: the client holds the file, however it was made.
    #[cfg(test)]
    pub fn makes_held(&mut self, ino: skep_types::Ino, client: ClientId) {
        self.shards.get_mut(&ino.shard()).unwrap().makes_held(ino, client);
    }

    /// Carries out one input. After an error the group answers nothing more: the hands end the
    /// process, and a restart replays the log.
    pub fn step(
        &mut self,
        now: Millis,
        wall: Timestamp,
        input: Input,
        out: &mut Output,
    ) -> Result<(), StoreError> {
        if let Some(e) = &self.failed {
            return Err(e.clone());
        }
        self.host.begin_step(now, wall, out);
        let done = self.input(input).and_then(|()| self.recalls_over()).and_then(|()| self.drain());
        self.tell_events();
        self.host.end_step(out);
        if let Err(e) = &done {
            self.failed = Some(e.clone());
        }
        done
    }

    fn input(&mut self, input: Input) -> Result<(), StoreError> {
        match input {
            Input::Request(request) => {
                self.host.counters.asked(&request.message);
                self.note_lapses(&request);
                self.request(request)
            }
            Input::Gone(to) => {
                self.host.events.abandon(to);
                self.host.leases.abandoned(to);
                let Some(shard) = self.host.held.remove(&to) else { return Ok(()) };
                self.deliver(shard, |shard, host| shard.abandon(host, to)).map(drop)
            }
            Input::Durable(seq) => self.durable(seq),
            Input::Courier { task, result } => self.courier(task, result),
            Input::Read(read) => self.has_read(read),
            Input::Map { own, map } => self.take_map(own, &map),
            Input::Fences(fences) => self.take_fences(&fences),
            Input::Vouched(at) => self.deliver_to_all(|shard, _| {
                shard.vouched(at);
                Ok(())
            }),
            Input::LowSpace(low) => {
                self.host.low_space = low;
                Ok(())
            }
            Input::Tick => self.tick(),
        }
    }

    /// What became possible, and what shards asked each other: a bounded part of it, the rest is due at once.
    fn drain(&mut self) -> Result<(), StoreError> {
        for _ in 0..self.host.config.limits.resumed_per_step {
            if let Some(shard) = self.next_busy() {
                self.deliver(shard, Shard::resume_one)?;
            } else if let Some((errand, result)) = self.host.loop_answers.pop_front() {
                self.loop_answered(errand, result)?;
            } else if let Some((errand, shard, message)) = self.host.loop_calls.pop_front() {
                let call = self.host.call_to(shard);
                let (own, epoch) = (self.host.own, self.host.sessions.epoch());
                self.request(Request::loopback(errand, call, own, message, epoch))?;
            } else {
                break;
            }
        }
        Ok(())
    }

    /// Has no shard anything to go on with?
    fn is_idle(&self) -> bool {
        self.busy.is_empty() && !self.can_recover()
    }

    fn can_recover(&self) -> bool {
        !self.recovering.is_empty() && self.host.reads.has_room_for_recovery(&self.host.config.limits)
    }

    /// The next shard that can go on, each in turn.
    fn next_busy(&mut self) -> Option<ShardId> {
        let recovering = self.can_recover().then_some(&self.recovering);
        let sets = || [Some(&self.busy), recovering].into_iter().flatten();
        let behind = (Bound::Excluded(self.resumed), Bound::Unbounded);
        let next = sets().filter_map(|of| of.range(behind).next()).min();
        let next = next.or_else(|| sets().filter_map(BTreeSet::first).min()).copied();
        self.resumed = next.unwrap_or(self.resumed);
        next
    }

    /// Lets a shard do something, and notes when it is to be asked again.
    fn deliver<T>(
        &mut self,
        shard: ShardId,
        what: impl FnOnce(&mut Shard, &mut Host<S>) -> Result<T, StoreError>,
    ) -> Result<Option<T>, StoreError> {
        let Some(place) = self.shards.get_mut(&shard) else { return Ok(None) };
        #[cfg(test)]
        {
            *self.delivered.entry(shard).or_default() += 1;
        }
        let done = what(place, &mut self.host)?;
        place.tell_events(&mut self.host.events, &self.host.sessions);
        note(&mut self.busy, shard, place.can_resume());
        note(&mut self.recovering, shard, place.can_recover(self.host.config.limits.recoveries));
        let (old, new) = place.renew_load();
        self.host.load.change(old, new);
        if let Some((old, new)) = place.renew_deadline(self.host.holds_chores) {
            old.map(|at| self.deadlines.remove(&(at, shard)));
            self.deadlines.extend(new.map(|at| (at, shard)));
        }
        Ok(Some(done))
    }

    /// As [`Group::deliver`], to each shard.
    fn deliver_to_all(
        &mut self,
        mut what: impl FnMut(&mut Shard, &mut Host<S>) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let shards: Vec<ShardId> = self.shards.keys().copied().collect();
        shards.into_iter().try_for_each(|shard| self.deliver(shard, &mut what).map(drop))
    }

    fn request(&mut self, request: Request) -> Result<(), StoreError> {
        let id = request.call.shard;
        match &request.message {
            MetaRequest::FetchRows(m) => return self.give_rows(&request, m),
            MetaRequest::GroupStats(_) => {
                let reply = StatsReply { counters: self.host.counters.list(&self.gauges()) };
                self.host.reply(request.reply_to, ShardStamp::default(), Ok(reply.to_bytes()));
                return Ok(());
            }
            _ => {}
        }
        let Some(shard) = self.shards.get_mut(&id) else {
            let why = self.host.not_here(id);
            let answer = self.host.refused(&request, why);
            self.host.reply(request.reply_to, ShardStamp::default(), answer);
            return Ok(());
        };
        let withheld_for = shard.withheld_for(&self.host);
        match &request.message {
            MetaRequest::AskHistory(m) => {
                let admitted = shard.admit(&mut self.host, &request);
                let (stamp, holds) = (shard.stamp_in_service(&self.host), shard.holds(m.term, m.index));
                let result = admitted.map(|()| AskHistoryReply { holds }.to_bytes());
                self.host.reply(request.reply_to, stamp, result);
                Ok(())
            }
            MetaRequest::Events(m) => {
                self.ask_events(&request, m);
                Ok(())
            }
            _ if withheld_for.is_some() => {
                let why = withheld_for.map(|to| self.host.withheld(id, to));
                let answer = self.host.refused(&request, why);
                self.host.reply(request.reply_to, ShardStamp::default(), answer);
                Ok(())
            }
            _ => {
                self.deliver(id, |shard, host| shard.request(host, request))?;
                self.break_circle(id)
            }
        }
    }

    /// A lock that began to wait may close a circle over several shards.
    fn break_circle(&mut self, id: ShardId) -> Result<(), StoreError> {
        let Some((owner, ticket)) = self.shards.get_mut(&id).and_then(|shard| shard.locks().take_queued())
        else {
            return Ok(());
        };
        if !is_circle_over(self.shards.values().map(Shard::locks_held), owner) {
            return Ok(());
        }
        self.deliver(id, |shard, host| {
            shard.locks().refuse_circle(host.now, owner.client, ticket);
            Ok(())
        })
        .map(drop)
    }

    /// Log records up to `seq` are on stable storage.
    fn durable(&mut self, seq: LogSeq) -> Result<(), StoreError> {
        let mut touched = BTreeSet::new();
        while let Some((at, shard, index)) = self.host.undurable.front().copied()
            && at <= seq
        {
            self.host.undurable.pop_front();
            if let Some(place) = self.shards.get_mut(&shard) {
                place.is_durable_to(index);
                touched.insert(shard);
            }
        }
        self.host.durable = self.host.durable.max(seq.min(self.host.last));
        let mut awaits_service = false;
        for shard in touched {
            awaits_service |= self.shards.get(&shard).is_some_and(Shard::awaits_service);
            self.deliver(shard, Shard::durable)?;
        }
        if awaits_service { self.begin_service() } else { Ok(()) }
    }

    /// Rows that a request or a recovery waits for are in memory.
    fn has_read(&mut self, read: u64) -> Result<(), StoreError> {
        let Some((shard, awaited)) = self.host.reads.ended(read) else { return Ok(()) };
        self.host.counters.read_ahead(awaited);
        self.deliver(shard, |shard, host| shard.has_read(host, read)).map(drop)
    }

    /// The rows.
    pub fn store(&self) -> &S {
        &self.host.store
    }

    /// The rows, for checkpoints by the hands.
    pub fn store_mut(&mut self) -> &mut S {
        &mut self.host.store
    }

    /// Gives the rows back.
    pub fn into_store(self) -> S {
        self.host.store
    }

    /// The newest log record.
    pub fn last_seq(&self) -> LogSeq {
        self.host.last
    }

    /// What the log holds on stable storage.
    pub fn durable_seq(&self) -> LogSeq {
        self.host.durable
    }

    /// Highest fence epoch whose list it holds.
    pub fn epoch(&self) -> FenceEpoch {
        self.host.sessions.epoch()
    }

    /// Version of the map it holds.
    pub fn map_version(&self) -> MapVersion {
        self.host.map.unwrap_or_default()
    }

    /// Does every shard that the map gives it answer requests?
    pub fn is_ready(&self) -> bool {
        let is_ready = |shard: &Shard| !shard.leads() || shard.is_moving() || shard.is_in_service(&self.host);
        self.host.started && self.host.knows_cluster() && self.shards.values().all(is_ready)
    }

    /// Shards that come, have to go, or have left rows here.
    pub fn moves_under_way(&self) -> usize {
        self.travels.len()
    }

    /// Shards that it holds rows of.
    pub fn shards(&self) -> impl Iterator<Item = ShardId> + '_ {
        self.shards.keys().copied()
    }

    /// Has a term of this shard begun here?
    pub fn has_term(&self, shard: ShardId) -> bool {
        self.shards.get(&shard).is_some_and(Shard::has_term)
    }

    /// Term of a shard, and how far its records go: the newest, and the newest on stable storage.
    pub fn standing(&self, shard: ShardId) -> Option<ShardStamp> {
        self.shards.get(&shard).map(Shard::stamp)
    }

    /// There is (no) room for rows that nobody waits for: work that can wait does.
    pub fn hold_chores(&mut self, hold: bool) {
        if core::mem::replace(&mut self.host.holds_chores, hold) != hold {
            // No rows are read or written by this.
            let _ = self.deliver_to_all(|_, _| Ok(()));
        }
    }
}

/// Is the shard one of these from now on?
fn note(of: &mut BTreeSet<ShardId>, shard: ShardId, is_in: bool) {
    if is_in {
        of.insert(shard);
    } else {
        of.remove(&shard);
    }
}

#[cfg(test)]
mod tests;
