//! Turns requests and the passing of time into commands and answers.

use crate::command::Command;
use crate::history::History;
use crate::limits::{
    NODES_MAX, OFFLINE_MS, POOLS_MAX, PROBABLY_OFFLINE_MS, SESSION_TIMEOUT_MS, SESSIONS_MAX, TARGETS_MAX,
};
use crate::state::State;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;
use skep_types::{
    Capacity, ClientId, Encode, LogSeq, MapVersion, Millis, NodeId, Reachability, TargetId, Term,
};
use skep_wire::mgmt::{HeartbeatReply, MgmtRequest, OpenSessionReply};
use skep_wire::{Empty, Refusal};

/// Times after which silence means something, and limits.
#[derive(Debug, Clone, Copy)]
pub struct Config {
    /// A node silent for this long is probably offline.
    pub probably_offline_ms: u64,
    /// A node silent for this long is offline.
    pub offline_ms: u64,
    /// A session silent for this long is evicted.
    pub session_timeout_ms: u64,
    /// Metadata servers that a new cluster waits for before its shards are spread over them.
    pub metas: usize,
    /// Most registered daemons.
    pub max_nodes: usize,
    /// Most registered targets.
    pub max_targets: usize,
    /// Most sessions at a time.
    pub max_sessions: usize,
    /// Most storage pools.
    pub max_pools: usize,
    /// An older registry opens and ends sessions like any other: a fault on purpose, for the simulator.
    pub canary_trusts_itself: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            probably_offline_ms: PROBABLY_OFFLINE_MS,
            offline_ms: OFFLINE_MS,
            session_timeout_ms: SESSION_TIMEOUT_MS,
            metas: 1,
            max_nodes: NODES_MAX,
            max_targets: TARGETS_MAX,
            max_sessions: SESSIONS_MAX,
            max_pools: POOLS_MAX,
            canary_trusts_itself: false,
        }
    }
}

/// Who sent a request, as the handshake proved it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Peer {
    /// The client of the connection (0: none).
    pub client: ClientId,
    /// An administrator, who is shown what there is.
    pub admin: bool,
}

/// What happens to the registry.
pub enum Input {
    /// A request whose role was checked.
    Request {
        /// Comes back with the answer.
        reply_to: u64,
        peer: Peer,
        request: MgmtRequest,
    },
    /// Time passed.
    Tick,
}

/// The answer to one request.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// The body as it is.
    Body(Vec<u8>),
    /// A session: the hands add the token, for which they hold the key.
    Session(OpenSessionReply),
}

/// What the hands have to do, in this order: log and sync the commands, then send the answers.
#[derive(Debug, Default)]
pub struct Output {
    /// Already applied; to be on stable storage before any answer leaves.
    pub commands: Vec<Command>,
    /// Answers by `reply_to`.
    pub answers: Vec<(u64, Result<Answer, Refusal>)>,
    /// For the log.
    pub notes: Vec<String>,
    /// A member knows a newer registry than this one: nothing may be answered any more, the process ends.
    pub outdated: Option<String>,
}

impl Output {
    pub(crate) fn body(&mut self, reply_to: u64, reply: &impl Encode) {
        self.answers.push((reply_to, Ok(Answer::Body(reply.to_bytes()))));
    }
}

/// What is known of a node since this start.
#[derive(Debug, Clone)]
pub(crate) struct NodePulse {
    /// Heard at; at the start everybody gets a fresh time-out.
    pub heard: Millis,
    /// Heard at all since the start?
    pub seen: bool,
    /// Did it say that it knows of this start?
    pub knows_start: bool,
    /// It came to be since the start, and had not heard of any earlier one: it knows of no newer registry.
    pub is_newborn: bool,
    pub reachability: Reachability,
    pub capacity: Capacity,
    /// Newest map that it acts upon, as it said.
    pub map: MapVersion,
    /// What its log holds on stable storage, as it said.
    pub index: LogSeq,
}

impl NodePulse {
    fn new(now: Millis, reachability: Reachability) -> Self {
        let (capacity, map) = (Capacity::default(), MapVersion(0));
        let (seen, knows_start, is_newborn) = (false, false, false);
        Self { heard: now, seen, knows_start, is_newborn, reachability, capacity, map, index: LogSeq(0) }
    }
}

/// What is known of a session since this start.
#[derive(Debug, Clone)]
pub(crate) struct SessionPulse {
    pub heard: Millis,
    pub seen: bool,
}

/// The management service without its hands.
pub struct Registry {
    pub(crate) config: Config,
    pub(crate) state: State,
    pub(crate) nodes: BTreeMap<NodeId, NodePulse>,
    pub(crate) capacities: BTreeMap<TargetId, Capacity>,
    pub(crate) sessions: BTreeMap<ClientId, SessionPulse>,
    /// Capacities as the map last told them.
    pub(crate) told: BTreeMap<TargetId, Capacity>,
    pub(crate) told_at: Millis,
    /// Targets whose space was reported since the start.
    pub(crate) reported: BTreeSet<TargetId>,
    /// Targets that their daemons, when they were heard last, did not list.
    pub(crate) unserved: BTreeSet<TargetId>,
    /// What each daemon listed last, and after which change of the targets: most heartbeats say the same again, and
    /// need no look at all targets.
    pub(crate) listed: BTreeMap<NodeId, (u64, Vec<TargetId>)>,
    /// Counts registrations and removals of targets.
    pub(crate) target_changes: u64,
    /// Reports came since the classes were computed.
    pub(crate) unclassified: bool,
    /// When log indexes were last written down.
    pub(crate) indexes_at: Millis,
    /// Seconds since 1970, as the hands said last: for people only.
    pub(crate) clock: u64,
    /// The map as it was told, for differences.
    pub(crate) history: History,
    /// Metadata servers have vouched for it since the start: whoever comes later changes nothing in that.
    pub(crate) vouched: bool,
    term: Term,
    changes: u32,
}

impl Registry {
    /// `state` is what the snapshot and the log gave; `term` is higher than in any earlier start,
    /// which keeps map versions rising although they are not logged.
    pub fn new(config: Config, state: State, term: Term, now: Millis) -> Self {
        let node = |id: &NodeId| {
            // Who was online gets the benefit of the doubt: a restart of this service must not keep
            // anybody from writing.
            let reachability = match state.offline.contains(id) {
                true => Reachability::Offline,
                false => Reachability::Online,
            };
            (*id, NodePulse::new(now, reachability))
        };
        let session = |id: &ClientId| (*id, SessionPulse { heard: now, seen: false });
        let told: BTreeMap<_, _> = state.targets.values().map(|t| (t.id, t.capacity)).collect();
        Self {
            config,
            nodes: state.nodes.keys().map(node).collect(),
            sessions: state.sessions.keys().map(session).collect(),
            capacities: told.clone(),
            told,
            told_at: now,
            reported: BTreeSet::new(),
            unserved: BTreeSet::new(),
            listed: BTreeMap::new(),
            target_changes: 0,
            unclassified: false,
            indexes_at: now,
            state,
            clock: 0,
            history: History::default(),
            vouched: false,
            term,
            changes: 1,
        }
    }

    /// The durable part, for the snapshot.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Takes back the commands of a step that could not be logged: `state` is what the log holds.
    /// Whoever is a member again that the step had removed gets a fresh time-out.
    pub fn roll_back(&mut self, now: Millis, state: State) {
        self.state = state;
        let fresh = Self::new(self.config, self.state.clone(), self.term, now);
        self.nodes.retain(|id, _| fresh.nodes.contains_key(id));
        self.sessions.retain(|id, _| fresh.sessions.contains_key(id));
        self.capacities.retain(|id, _| fresh.capacities.contains_key(id));
        self.reported.retain(|id| fresh.capacities.contains_key(id));
        self.unserved.retain(|id| fresh.capacities.contains_key(id));
        self.target_changes += 1;
        self.unclassified = true;
        for (id, pulse) in fresh.nodes {
            self.nodes.entry(id).or_insert(pulse);
        }
        for (id, pulse) in fresh.sessions {
            self.sessions.entry(id).or_insert(pulse);
        }
        for (id, capacity) in fresh.capacities {
            self.capacities.entry(id).or_insert(capacity);
        }
        self.told = self.capacities.clone();
        self.map_changed();
    }

    /// Version of the map: rises with every change of what the map says.
    pub fn map_version(&self) -> MapVersion {
        MapVersion(self.term.0 << 32 | u64::from(self.changes))
    }

    /// The time of day, in seconds since 1970. It decides nothing: people are told when something was.
    pub fn tell_time(&mut self, secs: u64) {
        self.clock = secs;
    }

    /// One event.
    pub fn step(&mut self, now: Millis, input: Input, out: &mut Output) {
        match input {
            Input::Tick => {
                self.watch_nodes(now, out);
                if self.note_vouched() {
                    self.watch_sessions(now, out);
                }
                if self.unclassified {
                    self.reclassify(out);
                }
                self.tell_capacities(now);
                self.note_indexes(now, out);
            }
            Input::Request { reply_to, peer, request } => {
                if let Err(refusal) = self.request(now, reply_to, peer, request, out) {
                    out.answers.push((reply_to, Err(refusal)));
                }
                self.note_vouched();
            }
        }
    }

    fn request(
        &mut self,
        now: Millis,
        to: u64,
        peer: Peer,
        request: MgmtRequest,
        out: &mut Output,
    ) -> Result<(), Refusal> {
        self.pass_gate(peer, &request)?;
        match request {
            MgmtRequest::RegisterNode(m) => self.register_node(now, to, m, out),
            MgmtRequest::RegisterTarget(m) => self.register_target(to, m, out),
            MgmtRequest::Heartbeat(m) => self.heartbeat(now, to, m, out),
            MgmtRequest::GetMap(m) => {
                let map = self.map(m.known);
                out.body(to, &map);
                Ok(())
            }
            MgmtRequest::GetFences(_) => {
                out.body(to, &self.fences());
                Ok(())
            }
            MgmtRequest::GetSpace(_) => {
                out.body(to, &self.space());
                Ok(())
            }
            MgmtRequest::ClusterStatus(_) => {
                out.body(to, &self.status(now));
                Ok(())
            }
            MgmtRequest::SetTargetState(m) => self.set_target_state(to, m, out),
            MgmtRequest::CreatePool(m) => self.create_pool(to, m, out),
            MgmtRequest::RenamePool(m) => self.rename_pool(to, m, out),
            MgmtRequest::DeletePool(m) => self.delete_pool(to, m, out),
            MgmtRequest::AssignTargets(m) => self.assign_targets(to, m, out),
            MgmtRequest::SetCapacityLimits(m) => self.set_capacity_limits(to, m, out),
            MgmtRequest::SetNodeAlias(m) => self.set_node_alias(to, m, out),
            MgmtRequest::SetTargetAlias(m) => self.set_target_alias(to, m, out),
            MgmtRequest::RemoveTarget(m) => self.remove_target(to, m, out),
            MgmtRequest::RemoveNode(m) => self.remove_node(to, m, out),
            MgmtRequest::GiveShard(m) => {
                self.give_shard(&m, out)?;
                out.body(to, &Empty {});
                Ok(())
            }
            MgmtRequest::OpenSession(m) => self.open_session(now, to, m, out),
            MgmtRequest::RenewSession(m) => self.renew_session(now, to, peer, m, out),
            MgmtRequest::CloseSession(m) => self.close_session(to, peer, m, out),
            MgmtRequest::Evict(m) => self.evict(to, m, out),
        }
    }

    /// Applies a command and hands it out to be logged.
    pub(crate) fn commit(&mut self, command: impl Into<Command>, out: &mut Output) {
        let command = command.into();
        self.state.apply(&command);
        out.commands.push(command);
    }

    pub(crate) fn map_changed(&mut self) {
        self.changes += 1;
    }

    pub(crate) fn pulse(&self) -> HeartbeatReply {
        // Ids are given one by one, so what no longer lives has ended.
        let ended = self.state.last_client.0 - self.state.sessions.len() as u64;
        let registry = self.state.age();
        HeartbeatReply { map: self.map_version(), epoch: self.state.epoch, ended, registry }
    }
}
