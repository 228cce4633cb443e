//! A registry, a clock and a log that the tests turn by hand.
#![allow(dead_code)] // Every test file uses a part of it.

use skep_cluster::{Answer, Command, Config, Input, Output, Peer, Registry, State};
use skep_types::{
    Capacity, ClientId, Consistency, Decode, Encode, Incarnation, LogSeq, MapVersion, Millis, NodeId,
    ServiceKind, ShardId, TargetId, Term, Uuid,
};
use skep_wire::mgmt::*;
use skep_wire::{Message, Refusal};

/// The defaults, except for limits that a test can reach.
pub const CONFIG: Config = Config {
    probably_offline_ms: 5_000,
    offline_ms: 15_000,
    session_timeout_ms: 60_000,
    metas: 1,
    max_nodes: 4,
    max_targets: 4,
    max_sessions: 4,
    max_pools: 3,
    canary_trusts_itself: false,
};

/// An administrator.
pub const ADMIN: Peer = Peer { client: ClientId(0), admin: true };

/// A registration in the first life of a daemon.
pub fn registration(uuid: u8, service: ServiceKind, alias: &str) -> RegisterNode {
    RegisterNode {
        domain: String::new(),
        uuid: Uuid([uuid; 16]),
        service,
        alias: alias.into(),
        addresses: vec![Address { text: "127.0.0.1:1".into(), nic: String::new(), preference: 0 }],
        machine: Uuid([1; 16]),
        incarnation: Incarnation(1),
        mark: 1,
        confirmed: 0,
        index: LogSeq(0),
        restored: false,
        registry: RegistryAge::default(),
    }
}

/// A heartbeat with nothing to tell.
pub fn heartbeat(node: u32, life: u64) -> Heartbeat {
    Heartbeat {
        node: NodeId(node),
        incarnation: Incarnation(life),
        targets: vec![],
        capacity: Capacity::default(),
        map: MapVersion(0),
        index: LogSeq(0),
        formatted: vec![],
        registry: RegistryAge::default(),
        leaving: false,
        mark: None,
    }
}

pub struct Cluster {
    pub registry: Registry,
    pub now: Millis,
    pub log: Vec<Command>,
}

impl Cluster {
    pub fn new() -> Self {
        let state = State::format(Uuid([9; 16]), skep_types::NamesKey([6; 16]), 4);
        Self { registry: Registry::new(CONFIG, state, Term(1), Millis(0)), now: Millis(0), log: vec![] }
    }

    /// One that is made for so many metadata servers.
    pub fn of_metas(metas: usize) -> Self {
        let new = Self::new();
        let config = Config { metas, ..CONFIG };
        Self { registry: Registry::new(config, new.registry.state().clone(), Term(1), Millis(0)), ..new }
    }

    pub fn step(&mut self, input: Input) -> Output {
        let mut out = Output::default();
        self.registry.step(self.now, input, &mut out);
        self.log.extend(out.commands.iter().cloned());
        out
    }

    pub fn ask<M: Message>(&mut self, client: u64, m: M) -> Result<M::Reply, Refusal>
    where
        MgmtRequest: From<M>,
    {
        self.ask_as(Peer { client: ClientId(client), admin: false }, m)
    }

    pub fn ask_as<M: Message>(&mut self, peer: Peer, m: M) -> Result<M::Reply, Refusal>
    where
        MgmtRequest: From<M>,
    {
        let mut out = self.step(Input::Request { reply_to: 7, peer, request: m.into() });
        assert_eq!(out.answers.len(), 1);
        let (to, answer) = out.answers.pop().unwrap();
        assert_eq!(to, 7);
        Ok(match answer? {
            Answer::Body(body) => M::Reply::from_bytes(&body).unwrap(),
            Answer::Session(session) => M::Reply::from_bytes(&session.to_bytes()).unwrap(),
        })
    }

    pub fn pass(&mut self, ms: u64) {
        self.now = self.now.plus(ms);
        self.step(Input::Tick);
    }

    pub fn node(
        &mut self,
        uuid: u8,
        service: ServiceKind,
        alias: &str,
    ) -> Result<RegisterNodeReply, Refusal> {
        self.ask(0, registration(uuid, service, alias))
    }

    pub fn target(&mut self, node: u32, uuid: u8, target: u32) -> Result<RegisterTargetReply, Refusal> {
        let capacity = Capacity { bytes: 1_000, bytes_free: 1_000, inodes: 10, inodes_free: 10 };
        let (node, target) = (NodeId(node), TargetId(target));
        self.ask(
            0,
            RegisterTarget {
                node,
                uuid: Uuid([uuid; 16]),
                target,
                alias: String::new(),
                capacity,
                mark: 1,
                confirmed: 0,
                restored: false,
            },
        )
    }

    pub fn session(&mut self, uuid: u8) -> OpenSessionReply {
        let uuid = Uuid([uuid; 16]);
        self.ask(0, OpenSession { uuid, host: "h".into(), mount: "/m".into(), machine: Uuid([1; 16]) })
            .unwrap()
    }

    pub fn beat(&mut self, node: u32, targets: Vec<TargetReport>) -> HeartbeatReply {
        self.ask(0, Heartbeat { targets, ..heartbeat(node, 1) }).unwrap()
    }

    /// A heartbeat of `node` that reports `free` of 1,000 bytes on a target.
    pub fn report(&mut self, node: u32, target: u32, free: u64) -> HeartbeatReply {
        let capacity = Capacity { bytes: 1_000, bytes_free: free, inodes: 0, inodes_free: 0 };
        let (target, consistency) = (TargetId(target), Consistency::Good);
        let report = TargetReport { target, consistency, failures: 0, capacity, filesystem: 7, mark: None };
        self.beat(node, vec![report])
    }

    pub fn status(&mut self) -> StatusReply {
        self.ask(0, ClusterStatus {}).unwrap()
    }

    /// The state as log and snapshot would give it back.
    pub fn replayed(&self) -> State {
        let mut state = State::format(Uuid([9; 16]), skep_types::NamesKey([6; 16]), 4);
        for command in &self.log {
            state.apply(&Command::from_bytes(&command.to_bytes()).unwrap());
        }
        assert_eq!(&state, self.registry.state());
        let read = State::from_bytes(&state.to_bytes()).unwrap();
        assert_eq!(read, state);
        read
    }

    /// A new start on what the disk holds.
    pub fn restart(&mut self) {
        self.registry = Registry::new(CONFIG, self.replayed(), Term(2), self.now);
    }

    /// These shards, where the map has them now.
    pub fn at(&mut self, shards: impl IntoIterator<Item = u16>) -> Vec<ShardAt> {
        let map = self.map();
        let at = |id: u16| ShardAt { shard: ShardId(id), epoch: map.shards[usize::from(id)].epoch };
        shards.into_iter().map(at).collect()
    }

    /// As an administrator is shown it.
    pub fn map(&mut self) -> MapReply {
        self.ask_as(ADMIN, GetMap { known: MapVersion(0) }).unwrap()
    }
}

/// Registers the daemon of `uuid` in life `life`, marked so, with `confirmed` as the mark that it knows, and a log up to
/// `index`.
pub fn life(
    c: &mut Cluster,
    (uuid, service): (u8, ServiceKind),
    (confirmed, life): (u64, u64),
    index: u64,
) -> Result<RegisterNodeReply, Refusal> {
    c.ask(
        0,
        RegisterNode {
            incarnation: Incarnation(life),
            mark: life,
            confirmed,
            index: LogSeq(index),
            ..registration(uuid, service, "")
        },
    )
}

/// Another start of mgmtd, of this number.
pub fn begin(c: &mut Cluster, start: u64) {
    let mut out = Output::default();
    c.registry.begin(start, &mut out);
    c.log.extend(out.commands);
}
