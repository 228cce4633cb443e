//! Requests arrive at daemons; daemons tick and sync.

use super::World;
use super::upkeep::Purpose;
use crate::Canary;
use crate::hub::CallId;
use crate::network::{End, From};
use crate::queue::Event;
use skep_client::MGMTD;
use skep_meta::{Input, Job, JobFailure, JobReply, Output, PeerIdentity, Request, Task};
use skep_storage::Sender;
use skep_types::{ClientId, Decode, Encode, LogSeq, NodeId, Reader, Role, ShardId};
use skep_wire::meta::{
    Events, EventsReply, MakeDirOn, MetaRequest, ReserveEnd, ReserveEndReply, ShardCall, ShardStamp,
};
use skep_wire::mgmt::{Evict, ShardEntry};
use skep_wire::{Message, Refusal, Status};

/// Milliseconds between two looks at what a daemon has to do.
const TICK_MS: u64 = 100;
/// Of a thousand truncates that are told to targets so many find their server deposed, in seeds where servers are.
const DEPOSED_TRIMMING: u64 = 30;
/// Of a thousand replies so many have the stamp of another shard, with that canary.
const WRONG_STAMPS: u64 = 20;
/// Rows that are missing are missed within so many milliseconds, where other shards go on.
const MISSED_MS: u64 = 3_000;
/// metad syncs its log this often.
const SYNC_INTERVAL_MS: u64 = 50;

impl World {
    /// A request arrives.
    pub(super) fn arrive(&mut self, id: CallId) {
        let hub = self.hub.clone();
        let hub = &mut *hub.borrow_mut();
        let comes = self.network.arrive(id, hub, &mut self.queue).map(|flight| flight.node);
        let Some(node) = comes else { return };
        for call in self.network.take_over() {
            self.gone(node, call, hub);
        }
        // A server may have died of what it did then.
        let Some(flight) = self.network.flight(id) else { return };
        if node == MGMTD {
            // A mount without a session speaks for none that exists.
            let is_nobody = flight.client == ClientId(0) && matches!(flight.from, From::Lane(_));
            let client = if is_nobody { ClientId(u64::MAX) } else { flight.client };
            let (kind, body) = (flight.kind, flight.body.clone());
            let result = self.mgmtd.answer(client, kind, &body, hub);
            if self.mgmtd.is_outdated() {
                return self.found_out(hub);
            }
            return self.reply(id, result.map(|body| (body, Vec::new())), hub);
        }
        let Some(at) = self.metad_at(node) else { return self.arrive_at_storaged(id, hub) };
        if hub.metad_terms.len() < self.metads.len() {
            hub.coverage.hit("one metad was down and another served");
        }
        match self.meta_request(id, hub) {
            Ok(request) => {
                let life = self.network.life(node).unwrap_or(0);
                let low = matches!(request.message, MetaRequest::Prepare(_)) && self.has_little_room(at, hub);
                if let Some(out) = self.metads[at].step_in(Input::Request(request), low, hub) {
                    self.carry_out_with(at, life, out, hub);
                }
            }
            Err(refusal) => self.reply_from_shard(at, id, ShardStamp::default(), Err(refusal), hub),
        }
    }

    /// A daemon hears that a connection has ended.
    pub(super) fn connection_ended(&mut self, end: End) {
        let calls = self.network.close(end);
        let hub = self.hub.clone();
        for call in calls {
            self.gone(end.1, call, &mut hub.borrow_mut());
        }
    }

    /// Nobody waits any more for the answer to a request that is at work.
    pub(super) fn gone(&mut self, node: NodeId, call: CallId, hub: &mut crate::hub::Hub) {
        let (Some(life), Some(at)) = (self.network.life(node), self.metad_at(node)) else { return };
        hub.coverage.hit("a waiting request went with its connection");
        hub.say(format_args!("node {node} hears that nobody waits for call {call}"));
        if let Some(out) = self.metads[at].step(Input::Gone(call), hub) {
            self.carry_out_with(at, life, out, hub);
        }
    }

    fn meta_request(&self, id: CallId, hub: &mut crate::hub::Hub) -> Result<Request, Refusal> {
        let malformed = |what: &str| Refusal::with(Status::MALFORMED, what);
        let flight = self.network.flight(id).ok_or_else(|| malformed("gone"))?;
        let mut reader = Reader::new(&flight.body);
        let call = ShardCall::decode(&mut reader).map_err(|e| malformed(&e.to_string()))?;
        let mut message = MetaRequest::decode(flight.kind, &mut reader)
            .map_err(|e| malformed(&e.to_string()))?
            .ok_or_else(|| malformed("unknown message"))?;
        // An administrator's command comes over the mount's network here, under its own key.
        let (role, client) = match flight.kind {
            _ if matches!(flight.from, From::Node(..)) => (Role::Server, ClientId(0)),
            MakeDirOn::KIND => (Role::Admin, ClientId(0)),
            _ => (Role::Client, flight.client),
        };
        if let MetaRequest::Reclaim(m) = &mut message {
            if !m.opens.is_empty() {
                hub.coverage.hit("opens were reclaimed");
            }
            if !m.last {
                hub.coverage.hit("opens and locks were reclaimed in parts");
            }
            if m.holds.is_some() {
                hub.coverage.hit("held files were reported to a new term");
            }
            if hub.canary == Some(Canary::ForgetsLocks) {
                m.locks.clear();
            }
        }
        match &mut message {
            MetaRequest::Commit(m) if hub.canary == Some(Canary::CommitBlind) => m.cuts = u64::MAX,
            MetaRequest::ChangeAttr(m) if hub.canary == Some(Canary::FallocateCuts) => {
                m.set.grow_only = false;
            }
            _ => {}
        }
        let ticket = (flight.client, call.slot.0, call.shard, call.seq.0);
        if hub.executed.contains_key(&ticket) {
            hub.coverage.hit("a retry was executed before");
        }
        let node = if let From::Node(node, ..) = flight.from { node } else { NodeId(0) };
        let peer = PeerIdentity { role, client, incarnation: flight.incarnation, node };
        Ok(Request { reply_to: id, peer, epoch: flight.epoch, call, message })
    }

    fn arrive_at_storaged(&mut self, id: CallId, hub: &mut crate::hub::Hub) {
        let Some(flight) = self.network.flight(id) else { return };
        let Some(storaged) = self.storageds.iter_mut().find(|storaged| storaged.node == flight.node) else {
            return;
        };
        let role = if matches!(flight.from, From::Node(..)) { Role::Server } else { Role::Client };
        let sender = Sender { role, client: flight.client, epoch: flight.epoch };
        if storaged.admission.must_fetch_fences(&sender)
            && let Some(upkeep) = self.upkeep.get_mut(&flight.node)
        {
            upkeep.fences_wanted = true;
        }
        let content = (&flight.body[..], &flight.payload[..], flight.room);
        let result = storaged.answer(&sender, flight.kind, content, hub);
        self.reply(id, result, hub);
    }

    fn reply(&mut self, id: CallId, result: Result<(Vec<u8>, Vec<u8>), Refusal>, hub: &mut crate::hub::Hub) {
        let Some(node) = self.network.flight(id).map(|flight| flight.node) else { return };
        let epoch = self.epoch_of(node);
        let answer = match result {
            Ok((body, payload)) => (Status(0), body, payload),
            Err(refusal) => {
                mark(&refusal, hub);
                (refusal.status, refusal.to_bytes(), Vec::new())
            }
        };
        self.network.reply(id, answer, epoch, hub, &mut self.queue);
    }

    fn reply_from_shard(
        &mut self,
        at: usize,
        id: CallId,
        stamp: ShardStamp,
        result: Result<Vec<u8>, Refusal>,
        hub: &mut crate::hub::Hub,
    ) {
        let mut body = stamp.to_bytes();
        let status = match result {
            Ok(reply) => {
                body.extend(self.spoiled(id, reply, hub));
                Status(0)
            }
            Err(refusal) => {
                mark(&refusal, hub);
                refusal.encode(&mut body);
                refusal.status
            }
        };
        let epoch = self.epoch_of(self.metads[at].node);
        self.network.reply(id, (status, body, Vec::new()), epoch, hub, &mut self.queue);
    }

    /// The canary: now and then a reply has the stamp of another shard of its group.
    fn stamp(&self, at: usize, reply: &skep_meta::Reply, hub: &mut crate::hub::Hub) -> ShardStamp {
        // The healing at the end must not be what finds it.
        let is_on = hub.canary == Some(Canary::StampsOfAnotherShard) && !hub.calm;
        if !is_on || !hub.permille(WRONG_STAMPS) {
            return reply.stamp.clone();
        }
        let call =
            self.network.flight(reply.to).and_then(|f| ShardCall::decode(&mut Reader::new(&f.body)).ok());
        let other = self.metads[at].server().zip(call).and_then(|(server, call)| {
            let other = server.shards().find(|shard| *shard != call.shard && server.has_term(*shard))?;
            server.standing(other)
        });
        other.unwrap_or_else(|| reply.stamp.clone())
    }

    /// The canaries: the end of a file is given to the next append as well; terms that begin are not told.
    fn spoiled(&self, id: CallId, reply: Vec<u8>, hub: &mut crate::hub::Hub) -> Vec<u8> {
        let kind = self.network.flight(id).map(|flight| flight.kind);
        if hub.canary == Some(Canary::TermsUntold)
            && kind == Some(Events::KIND)
            && let Ok(mut told) = EventsReply::from_bytes(&reply)
        {
            told.events.0.retain(|event| !matches!(event, skep_wire::meta::Event::Term(_)));
            return told.to_bytes();
        }
        let reserves = |flight: &crate::network::Flight| flight.kind == ReserveEnd::KIND;
        let Some(flight) = self.network.flight(id).filter(|flight| reserves(flight)) else { return reply };
        let mut reader = Reader::new(&flight.body);
        let asked = ShardCall::decode(&mut reader).and_then(|_| ReserveEnd::decode(&mut reader));
        let (Ok(asked), Ok(mut told)) = (asked, ReserveEndReply::from_bytes(&reply)) else { return reply };
        if hub.canary == Some(Canary::SameEndTwice)
            && let Some(offset) = told.offset
        {
            told.offset = Some(hub.ends.remove(&asked.ino).unwrap_or(offset));
            if told.offset == Some(offset) {
                hub.ends.insert(asked.ino, offset);
            }
        }
        told.to_bytes()
    }

    /// An input of a metadata server that is no request.
    pub(super) fn metad_input(&mut self, node: NodeId, input: Input) {
        let hub = self.hub.clone();
        let hub = &mut *hub.borrow_mut();
        let (Some(life), Some(at)) = (self.network.life(node), self.metad_at(node)) else { return };
        let is_vote = matches!(input, Input::Courier { result: Ok(JobReply::Voted(_)), .. });
        let low = is_vote && self.has_little_room(at, hub);
        let is_map = matches!(input, Input::Map { .. });
        let out = self.metads[at].step_in(input, low, hub);
        if is_map && self.metads[at].lacks_rows() {
            hub.coverage.hit("a server went on without rows of one shard");
            let due = hub.now + hub.rng.below(MISSED_MS);
            self.queue.at(due, &mut hub.rng, Event::PutBack(node));
        }
        if let Some(out) = out {
            self.carry_out_with(at, life, out, hub);
        }
    }

    /// Is there little room for a transaction? Not for what else may be run in the step: the oracle knows no full disk.
    fn has_little_room(&self, at: usize, hub: &mut crate::hub::Hub) -> bool {
        let metad = &self.metads[at];
        let until = self.low_until.get(&metad.node).copied().unwrap_or(0);
        let is_idle = |server: &skep_meta::Group<_>| {
            server.next_deadline().is_none_or(|due| due > hub.mono(metad.process))
        };
        let low = !hub.calm && hub.now < until && metad.server().is_some_and(is_idle);
        if low {
            hub.coverage.hit("a transaction met a server with little room");
        }
        low
    }

    pub(super) fn carry_out(&mut self, at: usize, life: u64, out: Output) {
        let hub = self.hub.clone();
        self.carry_out_with(at, life, out, &mut hub.borrow_mut());
    }

    /// Appends, then answers, then sends the courier: unless metad dies in between.
    fn carry_out_with(&mut self, at: usize, life: u64, out: Output, hub: &mut crate::hub::Hub) {
        let node = self.metads[at].node;
        if let Some(term) = hub.metad_terms.get_mut(&node) {
            *term = self.metads[at].root_term();
        }
        for note in &out.notes {
            hub.say(format_args!("metad {node}: {note}"));
            // Whoever was cut off for longer may lose its locks while it lives; its programs hear of it when it reports.
            if note.starts_with("grace period over") {
                let late = self.metads[at].server().map(|server| server.late_clients()).unwrap_or_default();
                hub.fields.lose_locks(&late);
            }
        }
        for warning in &out.warnings {
            hub.say(format_args!("metad {node} warns: {warning}"));
        }
        let wrote = !out.records.is_empty();
        let late = self.metads[at].append(out.records, hub);
        if late {
            let due = hub.now + 1 + hub.rng.below(40);
            self.queue.at(due, &mut hub.rng, Event::AppendLate(life));
        }
        if wrote && !late && !hub.calm && hub.permille(self.mood.dies_before_reply) {
            hub.coverage.hit("metad was killed between append and reply");
            hub.say(format_args!("metad {node} is killed before it answers"));
            self.kill_process(node, false, hub);
            let due = hub.now + 50 + hub.rng.below(500);
            self.start_again(node, due, hub);
            return;
        }
        for reply in out.replies {
            let stamp = self.stamp(at, &reply, hub);
            self.reply_from_shard(at, reply.to, stamp, reply.result, hub);
        }
        let trims = out.tasks.iter().any(|task| matches!(task.job, Job::Trim { .. }));
        for task in out.tasks {
            self.send_task(at, life, task, hub);
        }
        if trims && self.mood.deposes && !hub.calm && hub.permille(DEPOSED_TRIMMING) {
            self.queue.at(hub.now, &mut hub.rng, Event::Deposed(node));
        }
        self.read_rows(life, out.reads, hub);
        if out.sync_now {
            self.queue.at(hub.now, &mut hub.rng, Event::Sync(life));
        }
        if out.fetch_fences
            && let Some(upkeep) = self.upkeep.get_mut(&node)
        {
            upkeep.fences_wanted = true;
        }
        if out.fetch_map
            && let Some(upkeep) = self.upkeep.get_mut(&node)
        {
            hub.coverage.hit("a metad was asked with a newer map");
            upkeep.map_wanted = true;
        }
        if hub.permille(20) {
            self.metads[at].begin_checkpoint();
        }
        self.plan_tick(at, life, hub);
    }

    fn plan_tick(&mut self, at: usize, life: u64, hub: &mut crate::hub::Hub) {
        let metad = &mut self.metads[at];
        let Some(due) = metad.server().and_then(skep_meta::Group::next_deadline) else { return };
        let due = hub.true_time(metad.process, due).max(hub.now + 1);
        if metad.tick_at.is_none_or(|planned| due < planned) {
            metad.tick_at = Some(due);
            self.queue.at(due, &mut hub.rng, Event::Deadline(life));
        }
    }

    fn send_task(&mut self, at: usize, life: u64, task: Task, hub: &mut crate::hub::Hub) {
        let (mut epoch_of_shard, job) = (0, &task.job);
        let to = match job {
            Job::Delete { target, .. }
            | Job::Trim { target, .. }
            | Job::Seal { target, .. }
            | Job::Stat { target, .. } => self.homes.get(target).copied(),
            Job::Fetch { node, epoch, .. } => {
                epoch_of_shard = *epoch;
                Some(*node)
            }
            // Another server's, or it did not know yet that the shard is its own.
            Job::Shard { shard, .. } => {
                let seat = self.seat_of(*shard);
                epoch_of_shard = seat.map_or(0, |seat| seat.epoch);
                seat.and_then(ShardEntry::led_by)
            }
        };
        let node = self.metads[at].node;
        let Some(to) = to else {
            // Nobody answers for a shard that is new, or that mgmtd's older copy knows as new.
            hub.coverage.hit("a task had no server");
            self.queue.at(hub.now + 1, &mut hub.rng, Event::NoServer(life, task.id));
            return;
        };
        match job {
            Job::Trim { .. } => hub.coverage.hit("a truncate was told to targets"),
            Job::Stat { .. } => hub.coverage.hit("the size of a file was recovered"),
            Job::Seal { .. } => hub.coverage.hit("an extent was sealed"),
            Job::Shard { .. } if to != node => hub.coverage.hit("a directory of another metad"),
            _ => {}
        }
        let mut line = job.line(task.id);
        if hub.canary == Some(Canary::RepeatsOnAnyLine) {
            line.number = hub.rng.below(u64::from(line.class.lines())) as u32;
        }
        let (kind, body) = job.request(task.by, epoch_of_shard);
        let content = (kind, self.epoch_of(node), body);
        let id = self.network.send_from_node((node, life, line.group()), to, content, hub, &mut self.queue);
        self.purposes.insert(id, (node, life, Purpose::Task(task.id)));
        self.metads[at].tasks.insert(id, task.job);
    }

    /// Where a shard is, as mgmtd placed it.
    fn seat_of(&self, shard: ShardId) -> Option<&ShardEntry> {
        self.mgmtd.state().shards.iter().find(|entry| entry.shard == shard)
    }

    /// The answer to a daemon's question.
    pub(super) fn land_at_node(&mut self, id: CallId, result: Result<Vec<u8>, Refusal>) {
        let Some((node, life, purpose)) = self.purposes.remove(&id) else { return };
        if self.network.life(node) != Some(life) {
            return;
        }
        let Purpose::Task(task) = purpose else {
            return self.upkeep_answered(node, life, purpose, result);
        };
        let Some(at) = self.metad_at(node) else { return };
        let Some(job) = self.metads[at].tasks.remove(&id) else { return };
        let result = match result {
            Ok(body) => job.answered(Ok(&body)),
            Err(refusal) => job.answered(Err(refusal)),
        };
        self.metad_input(node, Input::Courier { task, result });
    }

    /// The courier of that life knows no server for a task.
    pub(super) fn no_server(&mut self, life: u64, task: u64) {
        let Some(at) = self.metad_in(life) else { return };
        let result = Err(JobFailure("the map names no server for it".to_owned()));
        self.metad_input(self.metads[at].node, Input::Courier { task, result });
    }

    /// An administrator ends the session that a program would have ended.
    pub(super) fn evict(&mut self) {
        let hub = &mut *self.hub.borrow_mut();
        let serves = self.network.life(MGMTD).is_some() && !self.mgmtd.is_a_copy();
        let Some(client) = hub.evicts.take().filter(|_| serves) else { return };
        let body = Evict { client }.to_bytes();
        if self.mgmtd.answer(ClientId(0), Evict::KIND, &body, hub).is_err() {
            hub.say(format_args!("client {client} has no session to end"));
        }
    }

    /// Time passes for a daemon.
    pub(super) fn tick(&mut self, node: NodeId, life: u64) {
        if self.network.life(node) != Some(life) {
            return;
        }
        if node == MGMTD {
            self.mgmtd.tick(&mut self.hub.borrow_mut());
            self.bury_the_dead();
            self.give_what_is_not_served();
            let hub = self.hub.clone();
            self.go_on_detour(&mut hub.borrow_mut());
            self.after(5 * TICK_MS, Event::Tick(node, life));
            return;
        }
        if self.metad_at(node).is_some() {
            self.metad_input(node, Input::Tick);
            self.sync(life);
            self.after(SYNC_INTERVAL_MS, Event::Tick(node, life));
        } else {
            self.after(TICK_MS, Event::Tick(node, life));
        }
        self.keep_up(node, life);
    }

    /// Something that metad waits for is due.
    pub(super) fn deadline(&mut self, life: u64) {
        if let Some(at) = self.metad_in(life) {
            self.metads[at].tick_at = None;
            self.metad_input(self.metads[at].node, Input::Tick);
        }
    }

    /// metad syncs its log, now and then at once.
    pub(super) fn sync(&mut self, life: u64) {
        let Some(at) = self.metad_in(life) else { return };
        if self.metads[at].syncing {
            self.metads[at].sync_again = true;
        } else if let Some(index) = self.metads[at].sync_begins() {
            let took = 1 + self.hub.borrow_mut().rng.below(8);
            self.after(took, Event::Synced(life, index));
        }
    }

    /// A sync has ended.
    pub(super) fn synced(&mut self, life: u64, index: LogSeq) {
        let Some(at) = self.metad_in(life) else { return };
        self.metads[at].sync_ended(index);
        self.metad_input(self.metads[at].node, Input::Durable(index));
        if std::mem::take(&mut self.metads[at].sync_again) {
            self.sync(life);
        }
    }
}

fn mark(refusal: &Refusal, hub: &mut crate::hub::Hub) {
    let marker = match refusal.status {
        Status::LOST_HISTORY => "LOST_HISTORY",
        Status::LOST_WRITES => "LOST_WRITES",
        Status::STALE_GENERATION => "STALE_GENERATION",
        Status::MUST_GROW => "MUST_GROW",
        Status::STALE_SIZE => "STALE_SIZE",
        Status::STALE_LAYOUT => "STALE_LAYOUT",
        Status::NOT_READY => "NOT_READY",
        Status::FENCED => "FENCED",
        Status::OLD_TERM => "OLD_TERM",
        Status::NOT_LEADER => "NOT_LEADER",
        Status::ELSEWHERE => "ELSEWHERE",
        Status::MALFORMED | Status::ROLE | Status::OLD_SEQUENCE => {
            return hub.say(format_args!("refused: {refusal}"));
        }
        _ => return,
    };
    hub.coverage.hit(marker);
}
