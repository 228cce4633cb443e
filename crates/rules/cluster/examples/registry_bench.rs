//! What the rules of the management service cost, by the size of the cluster: CPU time of a request, bytes of a
//! reply. `taskset -c 1 cargo run --release -p skep-cluster --example registry_bench`; lines `cost WHAT NODES
//! TARGETS SESSIONS US` and `bytes WHAT NODES TARGETS SESSIONS BYTES` for `cargo xtask calibrate`.

use skep_cluster::{
    Command, Config, Input, Node, Output, Peer, Registry, Session, SetNode, SetSession, SetTarget, State,
    Target,
};
use skep_types::*;
use skep_wire::mgmt::*;
use std::time::{Duration, Instant};

/// Storage servers of the measured clusters.
const NODES: [u32; 7] = [10, 30, 100, 300, 1_000, 3_000, 10_000];
/// Targets of each, as of a server with a few RAID groups or drives.
const TARGETS_PER_NODE: u32 = 4;
/// Mounts for each server.
const SESSIONS_PER_NODE: u32 = 10;
/// Shards of a cluster as it is formatted.
const SHARDS: u16 = 64;
/// Each figure is taken from at least this much time ...
const LONG_ENOUGH: Duration = Duration::from_millis(150);
/// ... and is the least of so many runs, which other work of the machine disturbs least.
const RUNS: usize = 5;

struct Bench {
    registry: Registry,
    nodes: u32,
    now: u64,
}

fn uuid(kind: u8, n: u32) -> Uuid {
    let mut bytes = [kind; 16];
    bytes[..4].copy_from_slice(&n.to_le_bytes());
    Uuid(bytes)
}

fn capacity(free: u64) -> Capacity {
    Capacity { bytes: 80 << 40, bytes_free: free, inodes: 4 << 30, inodes_free: 3 << 30 }
}

/// A node as two networks and a host name make it.
fn node(n: u32) -> Node {
    let address = |net: u32, nic: &str| Address {
        text: format!("10.{net}.{}.{}:7740", n / 250, n % 250 + 1),
        nic: nic.into(),
        preference: 0,
    };
    let alias = format!("storage-{n:05}");
    Node {
        id: NodeId(n),
        uuid: uuid(1, n),
        service: if n == 1 { ServiceKind::Metad } else { ServiceKind::Storaged },
        wish: alias.clone(),
        alias,
        addresses: vec![address(1, "ib0"), address(2, "eth0")],
        machine: uuid(2, n),
        incarnation: Incarnation(1),
        domain: String::new(),
        mark: 1,
        index: LogSeq(0),
    }
}

fn target(n: u32, on: u32) -> Target {
    Target {
        id: TargetId(100 + n),
        uuid: uuid(3, n),
        node: NodeId(on),
        alias: format!("target-{}", 100 + n),
        consistency: Consistency::Good,
        capacity: capacity(40 << 40),
        pool: PoolId(1),
        class: CapacityClass::Normal,
        filesystem: u64::from(n) << 32 | 7,
        failures: 0,
        decisions: 0,
        mark: 1,
    }
}

impl Bench {
    fn new(nodes: u32, targets_per_node: u32, sessions: u32) -> Self {
        let mut state = State::format(uuid(9, 0), skep_types::NamesKey([6; 16]), SHARDS);
        let mut apply = |command: Command| state.apply(&command);
        for n in 1..=nodes + 1 {
            apply(SetNode { node: node(n) }.into());
        }
        for n in 0..nodes * targets_per_node {
            apply(SetTarget { target: target(n + 1, n / targets_per_node + 2) }.into());
        }
        for n in 1..=sessions {
            let (client, host, mount) = (ClientId(u64::from(n)), format!("node{n:06}"), "/mnt/skep".into());
            let session = Session { client, uuid: uuid(4, n), host, mount, machine: uuid(5, n) };
            apply(SetSession { session }.into());
        }
        for shard in &mut state.shards {
            (shard.members, shard.leader) = (vec![NodeId(1)], NodeId(1));
        }
        let config = Config {
            max_nodes: 1 << 20,
            max_targets: 1 << 20,
            max_sessions: 1 << 20,
            probably_offline_ms: u64::MAX / 2,
            offline_ms: u64::MAX / 2,
            session_timeout_ms: u64::MAX / 2,
            ..Config::default()
        };
        let registry = Registry::new(config, state, Term(1), Millis(0));
        Self { registry, nodes, now: 1 }
    }

    /// Microseconds of one step of `input`, encoding of answers included.
    fn cost(&mut self, mut input: impl FnMut(u32) -> Input) -> f64 {
        let mut best = f64::INFINITY;
        for _ in 0..RUNS {
            let (start, mut done) = (Instant::now(), 0);
            while start.elapsed() < LONG_ENOUGH / RUNS as u32 {
                for _ in 0..8 {
                    let mut out = Output::default();
                    self.registry.step(Millis(self.now), input(done), &mut out);
                    std::hint::black_box(&out);
                    done += 1;
                }
            }
            best = best.min(start.elapsed().as_secs_f64() * 1e6 / f64::from(done));
        }
        best
    }

    fn request(client: u64, request: impl Into<MgmtRequest>) -> Input {
        Input::Request {
            reply_to: 0,
            peer: Peer { client: ClientId(client), admin: false },
            request: request.into(),
        }
    }

    fn heartbeat(n: u32, nodes: u32, targets_per_node: u32, free: u64) -> Input {
        let n = n % nodes;
        let report = |k| TargetReport {
            target: TargetId(101 + n * targets_per_node + k),
            consistency: Consistency::Good,
            failures: 0,
            capacity: capacity(free),
            filesystem: u64::from(n * targets_per_node + k + 1) << 32 | 7,
            mark: Some(1),
        };
        let beat = Heartbeat {
            node: NodeId(n + 2),
            incarnation: Incarnation(1),
            targets: (0..targets_per_node).map(report).collect(),
            capacity: Capacity::default(),
            map: MapVersion(0),
            index: LogSeq(0),
            formatted: vec![],
            registry: RegistryAge::default(),
            leaving: false,
            mark: Some(1),
        };
        Self::request(0, beat)
    }
}

fn main() {
    target_bytes();
    for nodes in NODES {
        let (per, targets, sessions) =
            (TARGETS_PER_NODE, nodes * TARGETS_PER_NODE, nodes * SESSIONS_PER_NODE);
        let mut bench = Bench::new(nodes, per, sessions);
        let at = format!("{nodes} {targets} {sessions}");
        let say = |what: &str, us: f64| println!("cost {what} {at} {us:.3}");
        // Space as it was: nothing to tell, the usual case between two moves of the map.
        for n in 0..nodes {
            let input = Bench::heartbeat(n, nodes, per, 40 << 40);
            bench.registry.step(Millis(1), input, &mut Output::default());
        }
        bench.registry.step(Millis(1), Input::Tick, &mut Output::default());
        say("heartbeat", bench.cost(|n| Bench::heartbeat(n, nodes, per, 40 << 40)));
        say("tick", bench.cost(|_| Input::Tick));
        say(
            "renew",
            bench.cost(|n| {
                let client = ClientId(u64::from(n % sessions) + 1);
                Bench::request(client.0, RenewSession { client })
            }),
        );
        say("map", bench.cost(|_| Bench::request(0, GetMap { known: MapVersion(0) })));
        say("map-known", {
            let known = bench.registry.map_version();
            bench.cost(move |_| Bench::request(0, GetMap { known }))
        });
        say("fences", bench.cost(|_| Bench::request(0, GetFences {})));
        // The round that reclassifies: space was reported since the last tick.
        let mut free = 40u64 << 40;
        say("tick-after-reports", {
            let mut beats = 0;
            let both = bench.cost(|n| {
                beats += 1;
                free -= 4_096;
                if n % 2 == 0 { Bench::heartbeat(n / 2, nodes, per, free) } else { Input::Tick }
            });
            2.0 * both
        });
        bench.nodes_and_sessions(&say);
        bytes(&mut bench, &at);
    }
}

impl Bench {
    /// Newcomers: what is looked through to find them.
    fn nodes_and_sessions(&mut self, say: &dyn Fn(&str, f64)) {
        let known = self.nodes;
        say(
            "register-node",
            self.cost(|n| {
                let Node { uuid, service, alias, addresses, machine, incarnation, domain, .. } =
                    node(n % known + 2);
                let message = RegisterNode {
                    uuid,
                    service,
                    alias,
                    addresses,
                    machine,
                    incarnation,
                    domain,
                    mark: 1,
                    confirmed: 1,
                    index: LogSeq(0),
                    restored: false,
                    registry: RegistryAge::default(),
                };
                Bench::request(0, message)
            }),
        );
        let per = TARGETS_PER_NODE;
        say(
            "register-target",
            self.cost(|n| {
                let n = n % (known * per);
                let Target { id, uuid, node, alias, capacity, .. } = target(n + 1, n / per + 2);
                Bench::request(
                    0,
                    RegisterTarget {
                        node,
                        uuid,
                        target: id,
                        alias,
                        capacity,
                        mark: 1,
                        confirmed: 1,
                        restored: false,
                    },
                )
            }),
        );
        // Open and close in turn, so that the table keeps its size; ids are given one by one.
        let mut client = self.registry.state().last_client.0;
        let mut opened = false;
        let us = self.cost(|_| {
            opened = !opened;
            if !opened {
                return Bench::request(client, CloseSession { client: ClientId(client), died: false });
            }
            client += 1;
            let (host, mount) = ("node000001".into(), "/mnt/skep".into());
            let (uuid, machine) = (uuid(6, client as u32), uuid(5, client as u32));
            Bench::request(0, OpenSession { uuid, host, mount, machine })
        });
        say("open-and-close-session", 2.0 * us);
    }
}

/// What each target more takes in the map.
fn target_bytes() {
    let length = |per| Bench::new(1_000, per, 1).registry.map(MapVersion(0)).to_bytes().len();
    let more = (length(2 * TARGETS_PER_NODE) - length(TARGETS_PER_NODE)) as f64;
    println!("bytes target 1000 1 1 {:.2}", more / f64::from(1_000 * TARGETS_PER_NODE));
}

fn bytes(bench: &mut Bench, at: &str) {
    let map = bench.registry.map(MapVersion(0)).to_bytes().len();
    println!("bytes map {at} {map}");
    let mut out = Output::default();
    let mut registry = Registry::new(Config::default(), bench.registry.state().clone(), Term(2), Millis(0));
    registry.step(Millis(0), Bench::request(0, GetFences {}), &mut out);
    if let Some((_, Ok(skep_cluster::Answer::Body(body)))) = out.answers.pop() {
        println!("bytes fences {at} {}", body.len());
    }
}
