//! What one request costs: CPU of both sides together, small requests and 1 MiB payloads, both servers,
//! both kinds of sockets. `cargo run --release -p skep-net --example rpc_bench [requests]`, pinned to
//! one core (`taskset -c 1`): the pinned figure decides.

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use skep_net::ring::{DirectLink, SharedLink};
use skep_net::{
    Answer, ConnId, Endpoint, EventLimits, EventServer, Handler, KeyFile, Keyring, Link, Listener, Log,
    Payload, Peer, PeerInfo, Replies, Service, StopHandle, StreamLimits, StreamServer,
};
use skep_ring::Reactor;
use skep_types::{ClientId, ClusterId, FenceEpoch, Incarnation, Millis, NodeId, Role, ServiceKind};
use skep_wire::{Header, Hello, Refusal, SHARED_MEMORY, Welcome};
use std::time::{Duration, Instant};

const SMALL: usize = 200;
const LARGE: usize = 1 << 20;
/// The request's payload is dropped / the answer brings one.
const PUT: u16 = 1;
const GET: u16 = 2;

struct Echo(Vec<(ConnId, Header, Vec<u8>)>);

fn welcome(hello: &Hello) -> Welcome {
    Welcome {
        version: 1,
        features: hello.features,
        service: ServiceKind::Metad,
        node: NodeId(1),
        incarnation: Incarnation(1),
        cluster: ClusterId::default(),
        epoch: FenceEpoch(0),
    }
}

impl Service for Echo {
    fn hello(&mut self, hello: &Hello, _: &PeerInfo) -> Result<Welcome, Refusal> {
        Ok(welcome(hello))
    }
    fn request(&mut self, conn: ConnId, _: &Peer, header: &Header, body: &[u8], _: &[u8]) {
        self.0.push((conn, *header, body.to_vec()));
    }
    fn round_end(&mut self, out: &mut Replies<'_>) {
        for (conn, header, body) in self.0.drain(..) {
            out.push(conn, &header.reply(), &body, &[]);
        }
    }
    fn next_deadline(&self) -> Option<Millis> {
        None
    }
    fn epoch(&self) -> FenceEpoch {
        FenceEpoch(0)
    }
}

struct EchoAll;

impl Handler for EchoAll {
    fn hello(&self, hello: &Hello, _: &PeerInfo) -> Result<Welcome, Refusal> {
        Ok(welcome(hello))
    }
    fn handle(&self, _: &Peer, header: &Header, body: &[u8], payload: &mut Payload) -> Answer {
        let give = if header.kind == GET { payload.room(LARGE).len() } else { 0 };
        Answer { status: 0, body: body.to_vec(), payload: give }
    }
    fn epoch(&self) -> FenceEpoch {
        FenceEpoch(0)
    }
}

fn cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn link(at: &Endpoint, keyring: &Keyring, group: u32, features: u64) -> Link {
    let hello = Hello {
        version_min: 1,
        version_max: 1,
        features,
        role: Role::Client,
        client: ClientId(1),
        incarnation: Incarnation(1),
        token: [0; 32],
        node: NodeId(0),
        group,
        connection: 1,
        cluster: ClusterId::default(),
        epoch: FenceEpoch(0),
    };
    Link::connect(std::slice::from_ref(at), keyring, &hello, Instant::now() + Duration::from_secs(5))
        .expect("connect")
}

/// Runs `times` requests, prints wall and CPU time of each.
fn measure(name: &str, times: u64, link: &mut Link, kind: u16, payload: &[u8], into: &mut [u8]) {
    let body = [7; SMALL];
    let mut round = |times: u64| {
        for id in 0..times {
            link.ask(&Header::request(kind, id), &body, payload, into.len()).expect("send");
            link.recv(into, Instant::now() + Duration::from_secs(10), &|| false).expect("recv");
        }
    };
    round(times / 10 + 1);
    let (start, cpu_start) = (Instant::now(), cpu());
    round(times);
    let (wall, cpu) = (start.elapsed(), cpu() - cpu_start);
    let each = |time: Duration| time.as_secs_f64() * 1e6 / times as f64;
    let rate = (payload.len() + into.len()) as f64 / each(wall);
    print!("{name:32} wall {:8.2} us  cpu {:8.2} us", each(wall), each(cpu));
    println!("{}", if rate > 0.0 { format!("  {rate:8.0} MB/s") } else { String::new() });
}

/// How payloads go.
fn way(at: &Endpoint, features: u64) -> &'static str {
    match (at.is_unix(), features) {
        (true, 0) => "unix",
        (true, _) => "memory",
        (false, _) => "tcp",
    }
}

fn run(which: &str, at: &Endpoint, features: u64, group: u32, times: u64, large: bool, keyring: &Keyring) {
    let mut link = link(at, keyring, group, features);
    let transport = way(at, features);
    measure(&format!("{which} {transport} {SMALL} B"), times, &mut link, PUT, &[], &mut []);
    measure(&format!("{which} {transport} put 1 MiB"), times / 20, &mut link, PUT, &vec![7; LARGE], &mut []);
    if large {
        measure(
            &format!("{which} {transport} get 1 MiB"),
            times / 20,
            &mut link,
            GET,
            &[],
            &mut vec![0; LARGE],
        );
    }
}

/// Many tasks of one reactor over one connection, each with one request at a time.
fn run_shared(at: &Endpoint, keyring: &Keyring, group: u32, times: u64) {
    let reactor = Reactor::new(64).expect("io_uring");
    for tasks in [1, 4, 32] {
        let link = SharedLink::new(&reactor, link(at, keyring, group + tasks as u32, 0));
        let left = std::rc::Rc::new(std::cell::Cell::new(tasks));
        let (start, cpu_start, turns) = (Instant::now(), cpu(), reactor.turns());
        for _ in 0..tasks {
            let (link, left) = (link.clone(), left.clone());
            reactor.spawn(async move {
                for _ in 0..times / tasks {
                    let pending = link.request(&Header::request(PUT, 0), &[7; SMALL], &[]).expect("send");
                    pending.await.expect("an answer");
                }
                left.set(left.get() - 1);
            });
        }
        reactor.run(|| left.get() == 0).expect("the ring");
        let each = |time: Duration| time.as_secs_f64() * 1e6 / times as f64;
        let name = format!("shared {} x {tasks}", if at.is_unix() { "unix" } else { "tcp" });
        let (wall, cpu) = (each(start.elapsed()), each(cpu() - cpu_start));
        let turns = (reactor.turns() - turns) as f64 / times as f64;
        println!("{name:32} wall {wall:8.2} us  cpu {cpu:8.2} us  {turns:8.2} turns");
    }
}

/// One task of a reactor over a connection of its own.
fn run_direct(at: &Endpoint, features: u64, keyring: &Keyring, group: u32, times: u64) {
    let reactor = Reactor::new(64).expect("io_uring");
    let mut link = DirectLink::new(&reactor, link(at, keyring, group, features)).expect("a link");
    let large = vec![7; LARGE];
    for (name, kind, payload, room, times) in [
        ("200 B", PUT, &large[..0], 0, times),
        ("put 4 KiB", PUT, &large[..4096], 0, times),
        ("put 1 MiB", PUT, &large[..], 0, times / 20),
        ("get 1 MiB", GET, &large[..0], LARGE, times / 20),
    ] {
        let mut into = vec![0; room];
        let (start, cpu_start, turns) = (Instant::now(), cpu(), reactor.turns());
        let done = reactor.block_on(async {
            for id in 0..times {
                let header = Header::request(kind, id);
                link.ask(&header, &[7; SMALL], payload, into.len()).await.expect("send");
                link.recv(&mut into).await.expect("an answer");
            }
        });
        done.expect("the ring");
        let each = |time: Duration| time.as_secs_f64() * 1e6 / times as f64;
        let name = format!("direct {} {name}", way(at, features));
        let (wall, cpu) = (each(start.elapsed()), each(cpu() - cpu_start));
        let turns = (reactor.turns() - turns) as f64 / times as f64;
        println!("{name:32} wall {wall:8.2} us  cpu {cpu:8.2} us  {turns:8.2} turns");
    }
}

fn listeners(name: &str) -> (Vec<Listener>, Vec<Endpoint>) {
    let path = std::env::temp_dir().join(format!("skep-rpc-bench-{name}-{}", std::process::id()));
    let at = [Endpoint::Unix(path), Endpoint::Tcp("127.0.0.1".into(), 0)];
    let listeners: Vec<Listener> = at.iter().map(|at| Listener::bind(at).expect("listen")).collect();
    let at = listeners.iter().map(|listener| listener.endpoint().clone()).collect();
    (listeners, at)
}

/// What the checks of one payload cost on one side, without any socket.
fn checks() {
    let (payload, times) = (vec![7; LARGE], 200);
    let each = |name: &str, check: &dyn Fn() -> u8| {
        let start = cpu();
        let sum = (0..times).fold(0, |sum: u8, _| sum.wrapping_add(check()));
        println!("{name:32} cpu {:8.2} us ({sum})", (cpu() - start).as_secs_f64() * 1e6 / f64::from(times));
    };
    let key = UnboundKey::new(&AES_256_GCM, &[1; 32]).map(LessSafeKey::new).expect("a key");
    let mac = || {
        let nonce = Nonce::assume_unique_for_key([0; 12]);
        let tag = key.seal_in_place_separate_tag(nonce, Aad::from(&payload), &mut []).expect("a tag");
        tag.as_ref()[0]
    };
    each("mac of 1 MiB, one side", &mac);
    each("crc of 1 MiB, one side", &|| {
        crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &payload) as u8
    });
}

fn main() {
    checks();
    let times = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(40_000);
    let keyring = Keyring::new(&KeyFile::generate().expect("random bytes"));

    let (sockets, at) = listeners("event");
    let server =
        EventServer::new(sockets, keyring.clone(), EventLimits::default(), Log::default()).expect("server");
    let stop: StopHandle = server.stop_handle();
    let thread = std::thread::spawn(move || server.run(&mut Echo(Vec::new())));
    at.iter().enumerate().for_each(|(n, at)| run("event ", at, 0, n as u32, times, false, &keyring));
    at.iter().enumerate().for_each(|(n, at)| run_shared(at, &keyring, 100 + 100 * n as u32, times));
    stop.stop();
    thread.join().expect("no panic").expect("server");

    let (sockets, at) = listeners("stream");
    let server =
        StreamServer::new(sockets, keyring.clone(), StreamLimits::default(), Log::default()).expect("server");
    let stop = server.stop_handle();
    let thread = std::thread::spawn(move || server.run(&EchoAll));
    let ways = [(&at[0], 0), (&at[0], SHARED_MEMORY), (&at[1], 0)];
    for (n, (at, features)) in ways.into_iter().enumerate() {
        run("stream", at, features, n as u32, times, true, &keyring);
    }
    for (n, (at, features)) in ways.into_iter().enumerate() {
        run_direct(at, features, &keyring, 100 + n as u32, times);
    }
    stop.stop();
    thread.join().expect("no panic").expect("server");
}
