//! Turns requests and the passing of time into commands and answers.

use crate::command::{Command, Node, RegisterShards, SetConsistency, SetNode, SetOffline, SetTarget, Target};
use crate::limits::{
    CAPACITY_EVERY_MS, CAPACITY_STEP, NODES_MAX, OFFLINE_MS, PROBABLY_OFFLINE_MS, SESSION_TIMEOUT_MS,
    SESSIONS_MAX, TARGETS_MAX,
};
use crate::state::State;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use skep_types::limits::{ADDRESSES_MAX, ALIAS_MAX};
use skep_types::{
    Capacity, ClientId, Consistency, Encode, Errno, MapVersion, Millis, NodeId, Reachability, ServiceKind,
    TargetId, Term, Uuid,
};
use skep_wire::mgmt::{
    Heartbeat, HeartbeatReply, MgmtRequest, OpenSessionReply, RegisterNode, RegisterNodeReply,
    RegisterTarget, RegisterTargetReply, SetTargetState,
};
use skep_wire::{Empty, Refusal, Status};

/// Times after which silence means something, and limits.
#[derive(Debug, Clone, Copy)]
pub struct Config {
    /// A node silent for this long is probably offline.
    pub probably_offline_ms: u64,
    /// A node silent for this long is offline.
    pub offline_ms: u64,
    /// A session silent for this long is evicted.
    pub session_timeout_ms: u64,
    /// Most registered daemons.
    pub max_nodes: usize,
    /// Most registered targets.
    pub max_targets: usize,
    /// Most sessions at a time.
    pub max_sessions: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            probably_offline_ms: PROBABLY_OFFLINE_MS,
            offline_ms: OFFLINE_MS,
            session_timeout_ms: SESSION_TIMEOUT_MS,
            max_nodes: NODES_MAX,
            max_targets: TARGETS_MAX,
            max_sessions: SESSIONS_MAX,
        }
    }
}

/// Who sent a request, as the handshake proved it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Peer {
    /// The client of the connection (0: none).
    pub client: ClientId,
}

/// What happens to the registry.
pub enum Input {
    /// A request whose role was checked.
    Request {
        /// Comes back with the answer.
        reply_to: u64,
        /// Who asks.
        peer: Peer,
        /// What.
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
}

impl Output {
    fn body(&mut self, reply_to: u64, reply: &impl Encode) {
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
    pub reachability: Reachability,
    pub capacity: Capacity,
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
    told_at: Millis,
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
            (*id, NodePulse { heard: now, seen: false, reachability, capacity: Capacity::default() })
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
            state,
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

    /// One event.
    pub fn step(&mut self, now: Millis, input: Input, out: &mut Output) {
        match input {
            Input::Tick => {
                self.watch_nodes(now, out);
                self.watch_sessions(now, out);
                self.tell_capacities(now);
            }
            Input::Request { reply_to, peer, request } => {
                if let Err(refusal) = self.request(now, reply_to, peer, request, out) {
                    out.answers.push((reply_to, Err(refusal)));
                }
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
        match request {
            MgmtRequest::RegisterNode(m) => self.register_node(now, to, m, out),
            MgmtRequest::RegisterTarget(m) => self.register_target(to, m, out),
            MgmtRequest::Heartbeat(m) => self.heartbeat(now, to, m, out),
            MgmtRequest::GetMap(m) => {
                out.body(to, &self.map(m.known));
                Ok(())
            }
            MgmtRequest::GetFences(_) => {
                out.body(to, &self.fences());
                Ok(())
            }
            MgmtRequest::ClusterStatus(_) => {
                out.body(to, &self.status(now));
                Ok(())
            }
            MgmtRequest::SetTargetState(m) => self.set_target_state(to, m, out),
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
        HeartbeatReply { map: self.map_version(), epoch: self.state.epoch, ended }
    }

    fn register_node(
        &mut self,
        now: Millis,
        to: u64,
        m: RegisterNode,
        out: &mut Output,
    ) -> Result<(), Refusal> {
        if m.uuid == Uuid::default() || m.addresses.is_empty() || m.addresses.len() > ADDRESSES_MAX {
            return Err(Refusal::with(
                Status::errno(Errno::EINVAL),
                "a node needs a uuid and 1 to 32 addresses",
            ));
        }
        let known = self.state.nodes.values().find(|node| node.uuid == m.uuid).cloned();
        let id = match &known {
            Some(node) if node.service != m.service => {
                let text =
                    format!("the state directory belongs to {}, a {}", node.alias, node.service.as_str());
                return Err(Refusal::with(Status::errno(Errno::EINVAL), text));
            }
            Some(node) => node.id,
            None if self.state.nodes.len() >= self.config.max_nodes => {
                let max = self.config.max_nodes;
                let text = format!("{max} nodes are registered, the limit; raise max_nodes of mgmtd");
                return Err(Refusal::with(Status::errno(Errno::ENOSPC), text));
            }
            None => NodeId(self.state.last_node.0 + 1),
        };
        let made_up = || format!("{}-{id}", m.service.as_str());
        let alias = match &known {
            Some(node) if m.alias.is_empty() || m.alias == node.alias => node.alias.clone(),
            _ => self.free_alias(&m.alias, made_up)?,
        };
        let node = Node {
            id,
            uuid: m.uuid,
            service: m.service,
            alias: alias.clone(),
            addresses: m.addresses,
            machine: m.machine,
            incarnation: m.incarnation,
        };
        if known.as_ref() != Some(&node) {
            self.commit(SetNode { node }, out);
            self.map_changed();
        }
        if m.service == ServiceKind::Metad && self.state.shards.iter().any(|shard| shard.replicas.is_empty())
        {
            self.commit(RegisterShards { node: id }, out);
            self.map_changed();
        }
        self.hear(now, id, Capacity::default(), out);
        out.notes.push(format!("{alias} (node {id}) registered"));
        out.body(
            to,
            &RegisterNodeReply { node: id, alias, cluster: self.state.cluster, epoch: self.state.epoch },
        );
        Ok(())
    }

    fn register_target(&mut self, to: u64, m: RegisterTarget, out: &mut Output) -> Result<(), Refusal> {
        let refuse = |text: String| Err(Refusal::with(Status::errno(Errno::EINVAL), text));
        if m.uuid == Uuid::default() || !self.state.nodes.contains_key(&m.node) {
            return refuse("register the node first; a target needs a uuid".to_string());
        }
        let by_uuid = self.state.targets.values().find(|target| target.uuid == m.uuid).cloned();
        let target = match by_uuid {
            Some(target) if m.target.0 != 0 && m.target != target.id => {
                return refuse(format!(
                    "the identity file says target {}, this cluster knows its uuid as target {}; was the file edited or copied?",
                    m.target, target.id
                ));
            }
            Some(target) => Target { node: m.node, ..target },
            None if m.target.0 != 0 => {
                return refuse(format!(
                    "target {} with this uuid is not registered here: another cluster's disk?",
                    m.target
                ));
            }
            None if self.state.targets.len() >= self.config.max_targets => {
                let max = self.config.max_targets;
                let text = format!("{max} targets are registered, the limit; raise max_targets of mgmtd");
                return Err(Refusal::with(Status::errno(Errno::ENOSPC), text));
            }
            None => {
                // Targets count from 101, so that nobody takes one for a node.
                let id = TargetId(self.state.last_target.0.max(100) + 1);
                let alias = self.free_alias(&m.alias, || format!("target-{id}"))?;
                let consistency = Consistency::Good;
                Target { id, uuid: m.uuid, node: m.node, alias, consistency, capacity: m.capacity }
            }
        };
        if self.state.targets.get(&target.id) != Some(&target) {
            self.commit(SetTarget { target: target.clone() }, out);
        }
        self.capacities.insert(target.id, m.capacity);
        self.told.insert(target.id, m.capacity);
        self.map_changed();
        out.notes.push(format!("{} (target {}) registered by node {}", target.alias, target.id, m.node));
        let Target { id, uuid, alias, consistency, .. } = target;
        out.body(to, &RegisterTargetReply { target: id, alias, uuid, consistency });
        Ok(())
    }

    /// The wished alias when it is free and well formed, else a refusal; a made-up one when none
    /// is wished.
    fn free_alias(&self, wish: &str, made_up: impl FnOnce() -> String) -> Result<String, Refusal> {
        let alias = if wish.is_empty() { made_up() } else { wish.to_string() };
        let well_formed = alias.len() <= ALIAS_MAX
            && alias.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
            && !alias.bytes().all(|b| b.is_ascii_digit());
        if !well_formed {
            let text = format!(
                "alias \"{alias}\": use up to {ALIAS_MAX} letters, digits, '-', '_' or '.', not digits only"
            );
            return Err(Refusal::with(Status::errno(Errno::EINVAL), text));
        }
        let taken = self.state.nodes.values().any(|node| node.alias == alias)
            || self.state.targets.values().any(|target| target.alias == alias);
        if taken {
            let text = format!("alias \"{alias}\" is taken; choose another one");
            return Err(Refusal::with(Status::errno(Errno::EEXIST), text));
        }
        Ok(alias)
    }

    fn heartbeat(&mut self, now: Millis, to: u64, m: Heartbeat, out: &mut Output) -> Result<(), Refusal> {
        let Some(node) = self.state.nodes.get(&m.node) else {
            return Err(Refusal::with(
                Status::errno(Errno::ENOENT),
                format!("node {} is not registered", m.node),
            ));
        };
        if node.incarnation != m.incarnation {
            return Err(Refusal::with(
                Status::errno(Errno::ESTALE),
                format!("{} was started again since", node.alias),
            ));
        }
        for report in m.targets {
            let Some(target) = self.state.targets.get(&report.target).filter(|target| target.node == m.node)
            else {
                continue;
            };
            self.capacities.insert(report.target, report.capacity);
            // A server may say that its disk failed; only an administrator says that it is good again.
            if report.consistency == Consistency::Bad && target.consistency != Consistency::Bad {
                out.notes.push(format!("{} is bad: its disk failed", target.alias));
                self.commit(SetConsistency { target: report.target, consistency: Consistency::Bad }, out);
                self.map_changed();
            }
        }
        if m.leaving {
            self.set_reachability(m.node, Reachability::Offline, out);
        } else {
            self.hear(now, m.node, m.capacity, out);
        }
        self.tell_capacities(now);
        out.body(to, &self.pulse());
        Ok(())
    }

    fn hear(&mut self, now: Millis, node: NodeId, capacity: Capacity, out: &mut Output) {
        let reachability = self.nodes.get(&node).map_or(Reachability::Online, |pulse| pulse.reachability);
        self.nodes.insert(node, NodePulse { heard: now, seen: true, reachability, capacity });
        self.set_reachability(node, Reachability::Online, out);
    }

    fn set_reachability(&mut self, node: NodeId, reachability: Reachability, out: &mut Output) {
        let Some(pulse) = self.nodes.get_mut(&node) else { return };
        if pulse.reachability == reachability {
            return;
        }
        pulse.reachability = reachability;
        let alias = self.state.nodes.get(&node).map_or("?", |node| node.alias.as_str());
        out.notes.push(format!("{alias} is {}", reachability.as_str()));
        let offline = reachability == Reachability::Offline;
        if offline != self.state.offline.contains(&node) {
            self.commit(SetOffline { node, offline }, out);
        }
        self.map_changed();
    }

    fn watch_nodes(&mut self, now: Millis, out: &mut Output) {
        let silent: Vec<_> =
            self.nodes.iter().map(|(id, pulse)| (*id, now.since(pulse.heard), pulse.reachability)).collect();
        for (id, silence, is) in silent {
            let becomes = if silence >= self.config.offline_ms {
                Reachability::Offline
            } else if silence >= self.config.probably_offline_ms {
                Reachability::ProbablyOffline
            } else {
                continue;
            };
            // Silence never makes anybody look more alive (one that signed off stays offline).
            if becomes > is {
                self.set_reachability(id, becomes, out);
            }
        }
    }

    /// Moves the map when a target's space moved much, or a while after it moved at all.
    fn tell_capacities(&mut self, now: Millis) {
        let overdue = now.since(self.told_at) >= CAPACITY_EVERY_MS;
        let moved = |target: &TargetId, is: &Capacity| {
            let was = self.told.get(target).copied().unwrap_or_default();
            let much = was.bytes_free.abs_diff(is.bytes_free) > is.bytes / CAPACITY_STEP;
            much || (overdue && was != *is)
        };
        if self.capacities.iter().any(|(target, is)| moved(target, is)) {
            self.told = self.capacities.clone();
            self.told_at = now;
            self.map_changed();
        }
    }

    fn set_target_state(&mut self, to: u64, m: SetTargetState, out: &mut Output) -> Result<(), Refusal> {
        if !self.state.targets.contains_key(&m.target) {
            let text = format!("there is no target {}; see `skep target list`", m.target);
            return Err(Refusal::with(Status::errno(Errno::ENOENT), text));
        }
        self.commit(SetConsistency { target: m.target, consistency: m.consistency }, out);
        self.map_changed();
        out.body(to, &Empty {});
        Ok(())
    }
}
