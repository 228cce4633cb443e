//! A crowd of daemons and mounts, as mgmtd sees them, in front of a real one: connections of their own over TCP with
//! keys, heartbeats with moving space, renewals, maps fetched when they moved. Tells what mgmtd's process used, to be
//! held against `skep plan scale`.
//!
//! `cargo run --release -p skep-net --example mgmtd_swarm -- target/release/skep SERVERS SESSIONS SECONDS`; the line
//! `swarm SERVERS TARGETS SESSIONS CPU HEARTBEATS RENEWALS MAPS BYTES` has CPU as a share of one core, the others per second.

use skep_net::{Endpoint, KeyFile, Keyring, Link};
use skep_types::*;
use skep_wire::mgmt::*;
use skep_wire::{Header, Hello, Message, VERSION_MAX, VERSION_MIN};
use std::collections::BinaryHeap;
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

const TARGETS: u32 = 4;
const HEARTBEAT: Duration = Duration::from_secs(1);
const RENEWAL: Duration = Duration::from_secs(15);
/// Until everybody goes its own pace.
const WARM_UP: Duration = Duration::from_secs(20);
const PATIENCE: Duration = Duration::from_secs(30);
/// Clock ticks of /proc in a second: the same on every Linux.
const TICKS: f64 = 100.0;

struct Peer {
    link: Link,
    node: u32,
    client: u64,
    targets: Vec<TargetId>,
    map: MapVersion,
    beats: u64,
}

#[derive(Default)]
struct Counts {
    heartbeats: u64,
    renewals: u64,
    maps: u64,
    bytes: u64,
}

fn uuid(kind: u8, n: u32) -> Uuid {
    let mut bytes = [kind; 16];
    bytes[..4].copy_from_slice(&n.to_le_bytes());
    Uuid(bytes)
}

fn capacity(free: u64) -> Capacity {
    Capacity { bytes: 80 << 40, bytes_free: free, inodes: 4 << 30, inodes_free: 3 << 30 }
}

impl Peer {
    fn connect(at: &Endpoint, keyring: &Keyring, role: Role, group: u32) -> Self {
        Self::connect_as(at, keyring, role, group, (ClientId(0), [0; 32]))
    }

    fn connect_as(
        at: &Endpoint,
        keyring: &Keyring,
        role: Role,
        group: u32,
        (client, token): (ClientId, skep_wire::SessionToken),
    ) -> Self {
        let hello = Hello {
            version_min: VERSION_MIN,
            version_max: VERSION_MAX,
            features: 0,
            role,
            client,
            incarnation: Incarnation(1),
            token,
            node: NodeId(0),
            group,
            connection: 1,
            cluster: ClusterId::default(),
            epoch: FenceEpoch(0),
        };
        let link = Link::connect(std::slice::from_ref(at), keyring, &hello, Instant::now() + PATIENCE);
        let link = link.expect("mgmtd takes the connection");
        Self { link, node: 0, client: client.0, targets: Vec::new(), map: MapVersion(0), beats: 0 }
    }

    fn ask<M: Message>(&mut self, message: &M) -> (M::Reply, u64) {
        self.link.send(&Header::request(M::KIND, 1), &message.to_bytes(), &[]).expect("sent");
        let frame = self.link.recv(&mut [], Instant::now() + PATIENCE, &|| false).expect("answered");
        assert_eq!(frame.header.status, 0, "refused");
        let bytes = frame.body.len() as u64;
        (M::Reply::from_bytes(frame.body).expect("a reply"), bytes)
    }

    fn join(&mut self, n: u32) {
        let address = |net: u32, nic: &str| Address {
            text: format!("10.{net}.{}.{}:7740", n / 250, n % 250 + 1),
            nic: nic.into(),
            preference: 0,
        };
        let (node, _) = self.ask(&RegisterNode {
            uuid: uuid(1, n),
            service: ServiceKind::Storaged,
            alias: format!("storage-{n:05}"),
            addresses: vec![address(1, "ib0"), address(2, "eth0")],
            machine: uuid(2, n),
            incarnation: Incarnation(1),
            domain: String::new(),
            mark: 1,
            confirmed: 0,
            index: LogSeq(0),
            restored: false,
            registry: RegistryAge::default(),
        });
        self.node = node.node.0;
        for k in 0..TARGETS {
            let (node, uuid) = (NodeId(self.node), uuid(3, n * TARGETS + k));
            let capacity = capacity(40 << 40);
            let alias = format!("target-{n:05}-{k}");
            let (reply, _) = self.ask(&RegisterTarget {
                node,
                uuid,
                target: TargetId(0),
                alias,
                capacity,
                mark: 1,
                confirmed: 0,
                restored: false,
            });
            self.targets.push(reply.target);
        }
    }

    /// Opens a session and comes back with its proof, as a mount does.
    fn mount(mut self, n: u32, at: &Endpoint, keyring: &Keyring) -> Self {
        let (host, mount) = (format!("node{n:06}"), "/mnt/skep".to_owned());
        let (session, _) = self.ask(&OpenSession { uuid: uuid(4, n), host, mount, machine: uuid(5, n) });
        Self::connect_as(at, keyring, Role::Client, n + 1, (session.client, session.token))
    }

    /// A heartbeat or a renewal, and the map when it moved.
    fn turn(&mut self, counts: &mut Counts) {
        let pulse = if self.client == 0 {
            self.beats += 1;
            counts.heartbeats += 1;
            let free = (40 << 40) - self.beats * 4_096;
            let report = |target: &TargetId| TargetReport {
                target: *target,
                consistency: Consistency::Good,
                failures: 0,
                capacity: capacity(free),
                filesystem: u64::from(target.0) << 32,
                mark: Some(1),
            };
            let targets = self.targets.iter().map(report).collect();
            let (node, incarnation) = (NodeId(self.node), Incarnation(1));
            let capacity = Capacity::default();
            let (index, formatted, registry) = (LogSeq(0), Vec::new(), RegistryAge::default());
            let (map, leaving, mark) = (self.map, false, Some(1));
            let beat = Heartbeat {
                node,
                incarnation,
                targets,
                capacity,
                map,
                index,
                formatted,
                registry,
                leaving,
                mark,
            };
            self.ask(&beat).0
        } else {
            counts.renewals += 1;
            self.ask(&RenewSession { client: ClientId(self.client) }).0
        };
        if pulse.map > self.map {
            // What arrives is not decoded: the asking side is not what is measured.
            let message = GetMap { known: self.map };
            self.link.send(&Header::request(GetMap::KIND, 1), &message.to_bytes(), &[]).expect("sent");
            let frame = self.link.recv(&mut [], Instant::now() + PATIENCE, &|| false).expect("a map");
            counts.maps += 1;
            counts.bytes += frame.body.len() as u64;
            self.map = pulse.map;
        }
    }
}

/// Seconds of CPU of a process.
fn cpu(process: &Child) -> f64 {
    let text = std::fs::read_to_string(format!("/proc/{}/stat", process.id())).expect("mgmtd runs");
    let fields: Vec<&str> = text.rsplit_once(") ").expect("a stat line").1.split(' ').collect();
    let number = |at: usize| fields[at].parse::<f64>().expect("a number");
    (number(11) + number(12)) / TICKS
}

fn mgmtd(skep: &str, dir: &Path, port: u16) -> (Child, Keyring) {
    let key = KeyFile::generate().expect("random bytes");
    let path = dir.join("cluster.key");
    key.write(&path).expect("the key");
    let settings = [
        format!("key_file={}", path.display()),
        format!("run_dir={}", dir.join("run").display()),
        format!("state_dir={}", dir.join("state").display()),
        format!("listen=127.0.0.1:{port}"),
        "http=".to_owned(),
        "log=error".to_owned(),
    ];
    // It must not outlive a swarm that is killed.
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", skep, "mgmtd", "--config", "/dev/null"]);
    settings.iter().for_each(|setting| {
        command.args(["--set", setting]);
    });
    (command.spawn().expect("mgmtd starts"), Keyring::new(&key))
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let number = |at: usize| arguments.get(at).and_then(|n| n.parse::<u32>().ok()).expect("a number");
    let (servers, sessions, seconds) = (number(2), number(3), number(4));
    // In memory: the disk's syncs of thousands of registrations are not what is measured.
    let dir = Path::new("/dev/shm").join(format!("skep-swarm-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a directory");
    let free = std::net::TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a port");
    let (mut process, keyring) = mgmtd(&arguments[1], &dir, free.port());
    let at = Endpoint::Tcp("127.0.0.1".into(), free.port());
    while std::net::TcpStream::connect(free).is_err() {
        assert!(process.try_wait().expect("a child").is_none(), "mgmtd ended");
        std::thread::sleep(Duration::from_millis(50));
    }
    let mut peers = Vec::new();
    for n in 0..servers {
        let mut peer = Peer::connect(&at, &keyring, Role::Server, n + 1);
        peer.join(n);
        peers.push(peer);
    }
    for n in 0..sessions {
        peers.push(Peer::connect(&at, &keyring, Role::Client, n + 1).mount(n, &at, &keyring));
    }
    // Everybody at a time of its own within its interval.
    let begin = Instant::now();
    let start = |n: usize, of: u32, every: Duration| begin + every * (n as u32) / of.max(1);
    let mut due: BinaryHeap<std::cmp::Reverse<(Instant, usize)>> = BinaryHeap::new();
    for n in 0..peers.len() {
        let at = match n.checked_sub(servers as usize) {
            None => start(n, servers, HEARTBEAT),
            Some(client) => start(client, sessions, RENEWAL),
        };
        due.push(std::cmp::Reverse((at, n)));
    }
    let (mut counts, mut from, mut late) = (Counts::default(), None, Duration::ZERO);
    let measured = Duration::from_secs(u64::from(seconds));
    while let Some(std::cmp::Reverse((at, n))) = due.pop() {
        if begin.elapsed() >= WARM_UP && from.is_none() {
            counts = Counts::default();
            from = Some((Instant::now(), cpu(&process)));
        }
        if from.is_some_and(|(since, _)| since.elapsed() >= measured) {
            break;
        }
        std::thread::sleep(at.saturating_duration_since(Instant::now()));
        late = late.max(Instant::now().saturating_duration_since(at));
        peers[n].turn(&mut counts);
        let every = if peers[n].client == 0 { HEARTBEAT } else { RENEWAL };
        due.push(std::cmp::Reverse((at + every, n)));
    }
    let (since, before) = from.expect("longer than the warm-up");
    let time = since.elapsed().as_secs_f64();
    let used = (cpu(&process) - before) / time;
    process.kill().expect("mgmtd ends");
    process.wait().expect("mgmtd ended");
    std::fs::remove_dir_all(&dir).expect("the directory goes");
    let per_s = |n: u64| n as f64 / time;
    eprintln!("the swarm was late by {late:?} at most");
    println!(
        "swarm {servers} {} {sessions} {used:.4} {:.1} {:.1} {:.1} {:.0}",
        servers * TARGETS,
        per_s(counts.heartbeats),
        per_s(counts.renewals),
        per_s(counts.maps),
        per_s(counts.bytes),
    );
}
