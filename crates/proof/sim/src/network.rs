//! Connections and what befalls them. Within a connection requests keep their order; between
//! connections nothing does. A connection ends by a lost message, a partition, the death of the
//! daemon, or because a port gives a call up; what was sent on it may still arrive, until a newer
//! connection of the same lane is heard by the daemon.

mod ends;
mod sticks;

pub use ends::End;

use crate::hub::{CallId, Hub, Landed, LaneId, Outgoing};
use crate::queue::{Event, Queue};
use crate::world::is_hearer;
use skep_client::{Answer, Outcome};
use skep_types::{ClientId, Decode, Errno, FenceEpoch, Incarnation, NodeId, Reader};
use skep_wire::meta::{AskHistory, AskOutcome, Decide, FetchRows, Prepare, Recalled, ShardCall};
use skep_wire::storage::{DeleteChunks, SealChunk, StatChunks, TrimChunk, WriteChunk};
use skep_wire::{Flags, Header, Message, Refusal, Status};
use std::collections::{BTreeMap, BTreeSet};

/// Longest ordinary way of a message, in milliseconds.
const DELAY_MAX: u64 = 3;
/// Longest way of a message that is held up.
const HELD_UP_MAX: u64 = 400;
/// Longest way of a write to a chunk file that is.
const WRITE_HELD_UP_MAX: u64 = 1_500;
/// Longest way of a message of a server that was deposed.
const DEPOSED_MAX: u64 = 2_500;
/// Longest way of a message between shards that comes once more.
const TWICE_MAX: u64 = 2_500;
/// A call that was never answered counts as lost after this.
const PATIENCE_MAX: u64 = 1_500;

/// Who sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum From {
    /// A client's lane.
    Lane(LaneId),
    /// A daemon, in one of its lives, on one of its lines.
    Node(NodeId, u64, u32),
}

impl From {
    /// Whose connection this is, and which of them is newer.
    fn ranked(self, connection: u64) -> (Sender, (u64, u64)) {
        match self {
            Self::Lane(lane) => (Sender::Lane(lane), (0, connection)),
            Self::Node(node, life, line) => (Sender::Node(node, line), (life, connection)),
        }
    }
}

/// Whose newer connection ends an older one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Sender {
    Lane(LaneId),
    Node(NodeId, u32),
}

/// A request on its way or at work.
#[derive(Debug)]
pub struct Flight {
    pub from: From,
    pub node: NodeId,
    pub kind: u16,
    pub client: ClientId,
    pub incarnation: Incarnation,
    pub epoch: FenceEpoch,
    pub body: Vec<u8>,
    pub payload: Vec<u8>,
    pub room: usize,
    /// Number of the connection it was sent on.
    connection: u64,
    /// Life of the daemon that the connection leads to; `None` = the connection is made by this.
    life: Option<u64>,
    arrived: bool,
    /// Life of the daemon when it was sent.
    launched_to: Option<u64>,
    /// The sender has its outcome.
    settled: bool,
    /// Its sender was deposed, and lives: it arrives then, whatever the next server has sent meanwhile.
    deposed: Option<u64>,
    /// It came before.
    is_second: bool,
    /// Its connection stuck.
    held_back: bool,
}

#[derive(Debug, Default)]
struct Connection {
    number: u64,
    /// Life of the daemon at the other end.
    life: Option<u64>,
    broken: bool,
    last_arrival: u64,
}

/// How the network misbehaves, each in a thousand messages.
#[derive(Debug, Clone, Copy, Default)]
pub struct Weather {
    /// Requests that never arrive.
    pub lose_request: u64,
    /// Replies that never arrive.
    pub lose_reply: u64,
    /// Requests whose sender gives up before they arrive.
    pub late: u64,
    /// Messages that are held up.
    pub hold_up: u64,
    /// Messages of servers that come once more.
    pub twice: u64,
    /// Writes to chunk files that are held up for so long that the file has another layout when they arrive.
    pub hold_up_writes: u64,
    /// Truncates of chunk files whose sender gives up before they arrive.
    pub late_trims: u64,
}

#[derive(Debug, Default)]
pub struct Network {
    flights: BTreeMap<CallId, Flight>,
    connections: BTreeMap<(From, NodeId), Connection>,
    /// Newest connection that a daemon has heard of a lane or another daemon: life, number.
    heard: BTreeMap<(NodeId, Sender), (u64, u64)>,
    /// Lives of daemons that are up.
    up: BTreeMap<NodeId, u64>,
    /// Ways (from whom, to whom) on which nothing passes, and until when.
    partitions: BTreeMap<(u32, u32), u64>,
    /// Clients from which what they send to a server is held back until then.
    sticks: BTreeMap<(u32, NodeId), u64>,
    /// Clients that are no more: nothing lands there.
    gone: BTreeSet<u32>,
    /// Requests at work whose connection is over, as daemons are to hear before anything newer.
    over: Vec<CallId>,
    /// How it is at the moment.
    pub weather: Weather,
}

fn speaks_for_a_shard(kind: u16) -> bool {
    [TrimChunk::KIND, DeleteChunks::KIND, SealChunk::KIND, StatChunks::KIND].contains(&kind)
}

fn second_marker(kind: u16) -> &'static str {
    match kind {
        Prepare::KIND | Decide::KIND | AskOutcome::KIND | FetchRows::KIND | AskHistory::KIND => {
            "a message between shards came twice"
        }
        kind if speaks_for_a_shard(kind) => "a message to a target came twice",
        _ => "a message to mgmtd came twice",
    }
}

/// Stands for a daemon in [`Network::block`], as its life does for a client.
pub fn side_of_node(node: NodeId) -> u32 {
    1_000_000 + node.0
}

fn side_of(from: From) -> u32 {
    match from {
        From::Lane(lane) => lane.life,
        From::Node(node, ..) => side_of_node(node),
    }
}

impl Network {
    /// A daemon is up, in that life.
    pub fn set_up(&mut self, node: NodeId, life: u64) {
        self.up.insert(node, life);
        self.heard.retain(|(at, _), _| *at != node);
    }

    /// Its life, when it is up.
    pub fn life(&self, node: NodeId) -> Option<u64> {
        self.up.get(&node).copied()
    }

    /// Nothing from one side reaches the other until then. What the other one says passes.
    pub fn block(&mut self, from: u32, to: u32, until: u64) {
        self.partitions.insert((from, to), until);
    }

    /// Ends all partitions.
    pub fn heal(&mut self) {
        self.partitions.clear();
        self.weather = Weather::default();
    }

    /// A client is no more.
    pub fn remove_client(&mut self, life: u32, hub: &mut Hub, queue: &mut Queue) {
        self.gone.insert(life);
        self.announce_all(|from| matches!(from, From::Lane(lane) if lane.life == life), hub, queue);
    }

    /// Is a request of the client on its way still?
    pub fn has_flights_of(&self, life: u32) -> bool {
        self.flights.values().any(|flight| matches!(flight.from, From::Lane(lane) if lane.life == life))
    }

    fn is_blocked(&self, from: u32, to: u32, now: u64) -> bool {
        self.partitions.get(&(from, to)).is_some_and(|until| now < *until)
    }

    /// Does the sender give up before it arrives?
    fn is_late(&self, kind: u16, hub: &mut Hub) -> bool {
        let often = if kind == TrimChunk::KIND { self.weather.late_trims } else { 0 };
        hub.permille(self.weather.late.max(often))
    }

    fn delay_of_request(&self, kind: u16, hub: &mut Hub) -> u64 {
        if kind == WriteChunk::KIND && hub.permille(self.weather.hold_up_writes) {
            hub.rng.below(WRITE_HELD_UP_MAX)
        } else {
            self.delay(hub)
        }
    }

    fn delay(&self, hub: &mut Hub) -> u64 {
        if hub.permille(self.weather.hold_up) {
            hub.rng.below(HELD_UP_MAX)
        } else {
            hub.rng.below(DELAY_MAX + 1)
        }
    }

    /// Sends what a port asks for.
    pub fn send(&mut self, call: Outgoing, hub: &mut Hub, queue: &mut Queue) {
        let Outgoing { id, from, node, kind, epoch, client, incarnation, body, payload, room } = call;
        let flight = Flight {
            from: From::Lane(from),
            node,
            kind,
            client,
            incarnation,
            epoch,
            body,
            payload,
            room,
            connection: 0,
            life: None,
            arrived: false,
            launched_to: None,
            settled: false,
            deposed: None,
            is_second: false,
            held_back: false,
        };
        self.launch(id, flight, hub, queue);
    }

    /// A daemon asks another one, on one of its lines.
    pub fn send_from_node(
        &mut self,
        (from, life, line): (NodeId, u64, u32),
        node: NodeId,
        (kind, epoch, body): (u16, FenceEpoch, Vec<u8>),
        hub: &mut Hub,
        queue: &mut Queue,
    ) -> CallId {
        let id = hub.next_call();
        let flight = Flight {
            from: From::Node(from, life, line),
            node,
            kind,
            client: ClientId(0),
            incarnation: Incarnation(life),
            epoch,
            body,
            payload: Vec::new(),
            room: 0,
            connection: 0,
            life: None,
            arrived: false,
            launched_to: None,
            settled: false,
            deposed: None,
            is_second: false,
            held_back: false,
        };
        self.launch(id, flight, hub, queue);
        id
    }

    /// A metadata server is deposed: the next life of its node stands for another server that goes on with its shards, to
    /// which its connections mean nothing. What it has sent to targets arrives some time later.
    pub fn depose(&mut self, node: NodeId, hub: &mut Hub, queue: &mut Queue) {
        for (id, flight) in &mut self.flights {
            let From::Node(from, life, line) = flight.from else { continue };
            let rank = (life, flight.connection);
            let newest =
                self.heard.get(&(flight.node, Sender::Node(from, line))).copied().unwrap_or_default();
            // What its own newer connection has ended stays so.
            let lives = !flight.arrived && rank >= newest;
            if from == node && lives && speaks_for_a_shard(flight.kind) {
                let due = hub.now + 1 + hub.rng.below(DEPOSED_MAX);
                flight.deposed = Some(due);
                queue.at(due, &mut hub.rng, Event::Arrive(*id));
            }
        }
    }

    fn launch(&mut self, id: CallId, mut flight: Flight, hub: &mut Hub, queue: &mut Queue) {
        let (from, node) = (flight.from, flight.node);
        let (side, other) = (side_of(from), side_of_node(node));
        let (goes, comes) = (self.is_blocked(side, other, hub.now), self.is_blocked(other, side, hub.now));
        let delay = self.delay_of_request(flight.kind, hub);
        if let Some((life, until)) = hub.sticks(from, flight.kind, &flight.body) {
            self.stick(life, &[node], until, hub);
        }
        let held_until = self.held_until(from, node, hub.now);
        flight.held_back = held_until.is_some();
        let connection = self.connections.entry((from, node)).or_default();
        if connection.broken || connection.number == 0 {
            let number = connection.number + 1;
            *connection = Connection { number, ..Connection::default() };
        }
        flight.connection = connection.number;
        flight.life = connection.life;
        flight.launched_to = self.up.get(&node).copied();
        let fresh = connection.life.is_none();
        if goes || (comes && fresh) {
            // Nobody answers a new connection; an old one just falls silent.
            let due = hub.now + 20 + hub.rng.below(PATIENCE_MAX);
            let outcome = if fresh { Outcome::Unreachable } else { Outcome::Lost };
            connection.broken = true;
            self.flights.insert(id, flight);
            self.settle(id, due, Landed { outcome, payload: Vec::new() }, hub, queue);
            self.flights.remove(&id);
            return;
        }
        let mut arrival = connection.last_arrival.max(hub.now + delay + hub.holds_up(flight.kind));
        if let Some(until) = held_until {
            arrival = connection.behind(until.max(arrival));
        }
        connection.last_arrival = arrival;
        self.come_twice(&flight, arrival, hub, queue);
        let kind = flight.kind;
        self.flights.insert(id, flight);
        let is_mute = kind == Recalled::KIND && hub.lending.is_mute(side, hub.now) || asks_no_more(from, hub);
        if hub.permille(self.weather.lose_request) || is_mute {
            hub.coverage.hit("a request was lost");
            hub.say(format_args!("call {id} is lost on its way"));
            let due = hub.now + hub.rng.below(PATIENCE_MAX);
            self.break_off(id, due, hub, queue);
            self.flights.remove(&id);
        } else if let Some((due, later)) = gives_up(from, kind, hub) {
            self.break_off(id, due, hub, queue);
            queue.at(arrival + later, &mut hub.rng, Event::Arrive(id));
        } else if self.is_late(kind, hub) {
            // The sender gives up first. Whether the request is still read decides the daemon.
            self.break_off(id, hub.now + hub.rng.below(20), hub, queue);
            queue.at(arrival + hub.rng.below(HELD_UP_MAX), &mut hub.rng, Event::Arrive(id));
        } else {
            queue.at(arrival, &mut hub.rng, Event::Arrive(id));
        }
    }

    /// A message of a server comes once more, and nobody waits for its answer. One to another shard or to mgmtd whatever has
    /// been sent meanwhile; one to a target right behind the first: for them nothing that their connection could not do.
    fn come_twice(&mut self, flight: &Flight, arrival: u64, hub: &mut Hub, queue: &mut Queue) {
        if !matches!(flight.from, From::Node(..)) || !hub.permille(self.weather.twice) {
            return;
        }
        let is_late = !speaks_for_a_shard(flight.kind);
        let due = if is_late { hub.now + 1 + hub.rng.below(TWICE_MAX) } else { arrival };
        let id = hub.next_call();
        let again = Flight {
            body: flight.body.clone(),
            payload: Vec::new(),
            settled: true,
            deposed: is_late.then_some(due),
            is_second: true,
            ..*flight
        };
        self.flights.insert(id, again);
        queue.at(due, &mut hub.rng, Event::Arrive(id));
    }

    /// Ends the connection of a call: it and everything else in flight on it is lost for the sender.
    fn break_off(&mut self, id: CallId, due: u64, hub: &mut Hub, queue: &mut Queue) {
        let Some(flight) = self.flights.get(&id) else { return };
        let end = (flight.from, flight.node, flight.connection);
        let (from, node, number) = end;
        if let Some(connection) = self.connections.get_mut(&(from, node))
            && connection.number == number
        {
            connection.broken = true;
        }
        self.lose_all(end, due, hub, queue);
        self.announce(end, hub, queue);
    }

    /// A port gave a call up.
    pub fn abandon(&mut self, id: CallId, hub: &mut Hub, queue: &mut Queue) {
        self.break_off(id, hub.now, hub, queue);
    }

    /// Tells the sender, once.
    fn settle(&mut self, id: CallId, due: u64, landed: Landed, hub: &mut Hub, queue: &mut Queue) {
        let Some(flight) = self.flights.get_mut(&id) else { return };
        if flight.settled {
            return;
        }
        flight.settled = true;
        match flight.from {
            From::Lane(lane) => queue.at(due, &mut hub.rng, Event::Land(id, lane, landed)),
            From::Node(..) => {
                let result = match landed.outcome {
                    Outcome::Answer(answer) if answer.status == Status(0) => Ok(answer.body),
                    Outcome::Answer(answer) => {
                        Err(Refusal::from_bytes(&answer.body).unwrap_or_else(|_| Refusal::new(answer.status)))
                    }
                    other => Err(Refusal::with(Status::errno(Errno::EIO), format!("{other:?}"))),
                };
                queue.at(due, &mut hub.rng, Event::LandAtNode(id, result));
            }
        }
    }

    /// A request arrives. `Some` = the daemon is to answer it.
    pub fn arrive(&mut self, id: CallId, hub: &mut Hub, queue: &mut Queue) -> Option<&Flight> {
        let flight = self.flights.get_mut(&id)?;
        if flight.deposed.is_some_and(|due| hub.now < due) {
            return None;
        }
        if self.is_held_back(id, hub, queue) {
            return None;
        }
        let flight = self.flights.get_mut(&id)?;
        let (from, node, number) = (flight.from, flight.node, flight.connection);
        let (life, gone) = (self.up.get(&node).copied(), flight.settled);
        let same_life = flight.life.is_none_or(|known| Some(known) == life);
        // Nobody shakes hands for a sender that has gone: such a request was sent to an earlier life.
        let is_of_another = gone && flight.life.is_none() && flight.launched_to != life;
        let no_handshake = is_of_another || Self::was_never_sent(flight);
        if life.is_none() || !same_life || no_handshake {
            let fresh = flight.life.is_none();
            let outcome = if fresh && !gone { Outcome::Unreachable } else { Outcome::Lost };
            self.settle(id, hub.now + 1, Landed { outcome, payload: Vec::new() }, hub, queue);
            self.break_off(id, hub.now + 1, hub, queue);
            self.flights.remove(&id);
            return None;
        }
        let (is_second, is_deposed, kind) = (flight.is_second, flight.deposed.is_some(), flight.kind);
        let (sender, rank) = from.ranked(number);
        let newest = self.heard.entry((node, sender)).or_default();
        if is_second {
            hub.coverage.hit(second_marker(kind));
            hub.say(format_args!("call {id} is one that came before"));
        } else if is_deposed {
            hub.coverage.hit("a message of a deposed server arrived");
            hub.say(format_args!("call {id} of a deposed server arrives"));
        }
        if !is_deposed && rank < *newest {
            hub.coverage.hit("a late request was dropped by a newer connection");
            self.flights.remove(&id);
            return None;
        }
        if rank > *newest {
            *newest = rank;
            let over = self.supersede(node, sender, rank);
            self.over.extend(over);
        }
        if gone {
            hub.coverage.hit("a request arrived after its client gave it up");
            hub.say(format_args!("call {id} arrives late"));
        }
        if self.flights.get(&id).is_some_and(|flight| flight.held_back) {
            hub.coverage.hit("what was held back arrived");
            hub.say(format_args!("call {id} arrives, which was held back"));
        }
        if let Some(connection) = self.connections.get_mut(&(from, node))
            && connection.number == number
        {
            connection.life = life;
        }
        let flight = self.flights.get_mut(&id)?;
        flight.arrived = true;
        (flight.life, flight.body) = (life, reframed(id, flight));
        Some(flight)
    }

    /// What [`Network::arrive`] ended, by a newer connection.
    pub fn take_over(&mut self) -> Vec<CallId> {
        std::mem::take(&mut self.over)
    }

    /// The flight of a request that is at work.
    pub fn flight(&self, id: CallId) -> Option<&Flight> {
        self.flights.get(&id)
    }

    /// The daemon answers. It is in the life in which the request arrived: a death ends its flights.
    pub fn reply(
        &mut self,
        id: CallId,
        (status, body, payload): (Status, Vec<u8>, Vec<u8>),
        epoch: FenceEpoch,
        hub: &mut Hub,
        queue: &mut Queue,
    ) {
        let Some(flight) = self.flights.get(&id) else { return };
        if flight.payload_too_long(&payload) {
            hub.fail(format!("call {id}: the answer's payload is longer than asked for"));
        }
        let (from, node, kind) = (flight.from, flight.node, flight.kind);
        let incarnation = Incarnation(flight.life.unwrap_or(0));
        let blocked = self.is_blocked(side_of_node(node), side_of(from), hub.now);
        if blocked && !flight.settled && !self.is_blocked(side_of(from), side_of_node(node), hub.now) {
            hub.coverage.hit("a request passed where its answer does not");
        }
        let lost = hub.permille(self.weather.lose_reply) || blocked;
        if let Some(due) = flight.is_forgotten(status, hub) {
            hub.say(format_args!("the answer to call {id} is lost, and the term ends"));
            self.break_off(id, due, hub, queue);
        } else if lost && !flight.settled {
            hub.coverage.hit("a reply was lost");
            hub.say(format_args!("the answer to call {id} is lost"));
            let due = hub.now + hub.rng.below(PATIENCE_MAX);
            self.break_off(id, due, hub, queue);
        } else {
            let late = late_until(from, kind, hub);
            let due = late.unwrap_or(hub.now) + self.delay(hub);
            let payload_len = payload.len();
            let answer = Answer { status, body, payload_len, incarnation, epoch };
            self.settle(id, due, Landed { outcome: Outcome::Answer(answer), payload }, hub, queue);
        }
        self.flights.remove(&id);
    }

    /// A daemon dies: its connections break, nothing that it was doing is answered.
    pub fn set_down(&mut self, node: NodeId, hub: &mut Hub, queue: &mut Queue) {
        self.up.remove(&node);
        let at_work: Vec<CallId> =
            self.flights.iter().filter(|(_, f)| f.node == node && f.arrived).map(|(id, _)| *id).collect();
        for id in at_work {
            let due = hub.now + 1 + hub.rng.below(5);
            self.break_off(id, due, hub, queue);
            self.flights.remove(&id);
        }
        for ((_, to), connection) in &mut self.connections {
            connection.broken |= *to == node;
        }
        self.announce_all(|from| matches!(from, From::Node(by, ..) if by == node), hub, queue);
    }

    /// Does the client of this life still exist?
    pub fn lives(&self, life: u32) -> bool {
        !self.gone.contains(&life)
    }
}

/// Does its program give up a request? When, and how much later it arrives.
fn gives_up(from: From, kind: u16, hub: &mut Hub) -> Option<(u64, u64)> {
    let From::Lane(lane) = from else { return None };
    hub.gives_up(lane, kind)
}

/// Nothing passes from who hears recalls.
fn asks_no_more(from: From, hub: &Hub) -> bool {
    matches!(from, From::Lane(lane) if is_hearer(&lane) && hub.lending.is_unheard(lane.life, hub.now))
}

/// What is told to who hears recalls may be held up, or the answer to who looks.
fn late_until(from: From, kind: u16, hub: &mut Hub) -> Option<u64> {
    match from {
        From::Lane(lane) if is_hearer(&lane) => hub.lending.late_until(lane.life, hub.now),
        From::Lane(lane) => hub.overtaken(lane, kind),
        From::Node(..) => None,
    }
}

impl Flight {
    fn payload_too_long(&self, payload: &[u8]) -> bool {
        payload.len() > self.room
    }

    /// Is the answer lost, and its shard forgets what it opened, or who asked gives up? When that is heard.
    fn is_forgotten(&self, status: Status, hub: &mut Hub) -> Option<u64> {
        let From::Lane(lane) = self.from else { return None };
        if self.settled || status != Status(0) {
            return None;
        }
        if let Some(due) = hub.tells_in_vain(lane, self.kind) {
            return Some(due);
        }
        let shard = || ShardCall::decode(&mut Reader::new(&self.body)).ok().map(|call| call.shard);
        hub.forgets((lane, self.node), self.kind, shard)
    }
}

/// The body as it comes out of a real frame.
fn reframed(id: CallId, flight: &Flight) -> Vec<u8> {
    let header = Header {
        flags: Flags::default(),
        epoch: flight.epoch,
        payload_len: flight.payload.len() as u32,
        ..Header::request(flight.kind, id)
    };
    let mut frame = Vec::new();
    header.encode_with(&flight.body, crc32c::crc32c, &mut frame);
    match Header::decode(&frame, crc32c::crc32c) {
        Ok((back, _)) if back.kind == flight.kind && back.epoch == flight.epoch => {
            frame.split_off(skep_wire::HEADER_LEN)
        }
        // Cannot be read: the daemon would close the connection. Shown as an empty body, which no
        // request is.
        _ => Vec::new(),
    }
}
