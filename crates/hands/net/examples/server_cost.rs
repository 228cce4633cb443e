//! What a request costs the server's thread alone: CPU of the event server (mgmtd, metad) and of a connection of the
//! stream server (storaged), without what the service itself does. `taskset -c 1 cargo run --release -p skep-net
//! --example server_cost`; lines `serve WHAT TRANSPORT US` for `cargo xtask calibrate`.

use skep_net::{
    Answer, ConnId, Endpoint, EventLimits, EventServer, Handler, KeyFile, Keyring, Link, Listener, Log,
    Payload, Peer, PeerInfo, Replies, Service, StreamLimits, StreamServer,
};
use skep_types::{ClientId, ClusterId, FenceEpoch, Incarnation, Millis, NodeId, Role, ServiceKind};
use skep_wire::{Header, Hello, Refusal, Welcome};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Bytes of the body of a small request and of its answer: about a lookup and its attributes.
const SMALL: usize = 120;
/// Bytes of a long answer: the longest body of a frame, such as a map.
const LONG: usize = 1 << 20;
const LARGE: usize = 1 << 20;
/// The answer is small, long, or brings a payload.
const PUT: u16 = 1;
const GET: u16 = 2;
const READ_LONG: u16 = 3;

/// CPU time of this thread in nanoseconds.
fn cpu() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// What the serving thread has used so far, as of its last answer.
static USED: AtomicU64 = AtomicU64::new(0);

fn welcome() -> Welcome {
    Welcome {
        version: 1,
        features: 0,
        service: ServiceKind::Metad,
        node: NodeId(1),
        incarnation: Incarnation(1),
        cluster: ClusterId::default(),
        epoch: FenceEpoch(0),
    }
}

#[derive(Default)]
struct Event {
    pending: Vec<(ConnId, Header)>,
    small: Vec<u8>,
    long: Vec<u8>,
}

impl Service for Event {
    fn hello(&mut self, _: &Hello, _: &PeerInfo) -> Result<Welcome, Refusal> {
        Ok(welcome())
    }
    fn request(&mut self, conn: ConnId, _: &Peer, header: &Header, _: &[u8], _: &[u8]) {
        self.pending.push((conn, *header));
    }
    fn round_end(&mut self, out: &mut Replies<'_>) {
        // What is sent after this is counted with the next round.
        USED.store(cpu(), Ordering::SeqCst);
        for (conn, header) in self.pending.drain(..) {
            let body = if header.kind == READ_LONG { &self.long } else { &self.small };
            out.push(conn, &header.reply(), body, &[]);
        }
    }
    fn next_deadline(&self) -> Option<Millis> {
        None
    }
    fn epoch(&self) -> FenceEpoch {
        FenceEpoch(0)
    }
}

struct Stream;

impl Handler for Stream {
    fn hello(&self, _: &Hello, _: &PeerInfo) -> Result<Welcome, Refusal> {
        Ok(welcome())
    }
    fn handle(&self, _: &Peer, header: &Header, _: &[u8], payload: &mut Payload) -> Answer {
        USED.store(cpu(), Ordering::SeqCst);
        let give = if header.kind == GET { payload.room(LARGE).len() } else { 0 };
        Answer { status: 0, body: vec![7; SMALL], payload: give }
    }
    fn epoch(&self) -> FenceEpoch {
        FenceEpoch(0)
    }
}

fn link(at: &Endpoint, keyring: &Keyring, group: u32) -> Link {
    let hello = Hello {
        version_min: 1,
        version_max: 1,
        features: 0,
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

/// Every link asks, then every link waits: the server finds as many requests at once as there are links.
fn measure(
    name: &str,
    at: &Endpoint,
    links: &mut [Link],
    rounds: u64,
    kind: u16,
    payload: &[u8],
    room: usize,
) {
    let mut into = vec![0; room];
    let count = links.len() as u64;
    let mut round = |rounds: u64| {
        for id in 0..rounds {
            for link in links.iter_mut() {
                link.send(&Header::request(kind, id), &[7; SMALL], payload).expect("send");
            }
            for link in links.iter_mut() {
                link.recv(&mut into, Instant::now() + Duration::from_secs(10), &|| false).expect("recv");
            }
        }
    };
    round(rounds / 10 + 1);
    let mut best = f64::INFINITY;
    for _ in 0..5 {
        let before = USED.load(Ordering::SeqCst);
        round(rounds / 5);
        let used = USED.load(Ordering::SeqCst) - before;
        best = best.min(used as f64 / 1_000.0 / ((rounds / 5) * count) as f64);
    }
    println!("serve {name} {} {best:.3}", if at.is_unix() { "unix" } else { "tcp" });
}

/// New connections, one after the other: what a mount costs that comes, or comes back.
fn handshakes(at: &Endpoint, keyring: &Keyring, group: u32) {
    const TIMES: u32 = 300;
    let mut last = None;
    let before = USED.load(Ordering::SeqCst);
    for n in 0..TIMES {
        let mut link = link(at, keyring, group + n);
        link.send(&Header::request(PUT, 0), &[7; SMALL], &[]).expect("send");
        link.recv(&mut [], Instant::now() + Duration::from_secs(10), &|| false).expect("recv");
        last = Some(link);
    }
    drop(last);
    let used = (USED.load(Ordering::SeqCst) - before) as f64 / 1_000.0 / f64::from(TIMES);
    println!("serve connect {} {used:.3}", if at.is_unix() { "unix" } else { "tcp" });
}

fn listeners(name: &str) -> (Vec<Listener>, Vec<Endpoint>) {
    let path = std::env::temp_dir().join(format!("skep-server-cost-{name}-{}", std::process::id()));
    let at = [Endpoint::Unix(path), Endpoint::Tcp("127.0.0.1".into(), 0)];
    let listeners: Vec<Listener> = at.iter().map(|at| Listener::bind(at).expect("listen")).collect();
    let at = listeners.iter().map(|listener| listener.endpoint().clone()).collect();
    (listeners, at)
}

fn main() {
    let keyring = Keyring::new(&KeyFile::generate().expect("random bytes"));

    let (sockets, at) = listeners("event");
    let server =
        EventServer::new(sockets, keyring.clone(), EventLimits::default(), Log::default()).expect("server");
    let stop = server.stop_handle();
    let mut service = Event { pending: Vec::new(), small: vec![7; SMALL], long: vec![7; LONG] };
    let thread = std::thread::spawn(move || server.run(&mut service));
    for (n, at) in at.iter().enumerate() {
        handshakes(at, &keyring, 10_000 + 1_000 * n as u32);
        let mut links: Vec<Link> = (0..32).map(|group| link(at, &keyring, 100 * n as u32 + group)).collect();
        measure("request-alone", at, &mut links[..1], 20_000, PUT, &[], 0);
        measure("request-of-32", at, &mut links, 2_000, PUT, &[], 0);
        measure("long-reply-1mib", at, &mut links[..1], 400, READ_LONG, &[], 0);
    }
    stop.stop();
    thread.join().expect("no panic").expect("server");

    let (sockets, at) = listeners("stream");
    let server =
        StreamServer::new(sockets, keyring.clone(), StreamLimits::default(), Log::default()).expect("server");
    let stop = server.stop_handle();
    let thread = std::thread::spawn(move || server.run(&Stream));
    let large = vec![7; LARGE];
    for (n, at) in at.iter().enumerate() {
        // A thread per connection: one link, so that all figures are of one thread.
        let own = |name: &str, group: u32, rounds: u64, kind: u16, payload: &[u8], room: usize| {
            let mut links = [link(at, &keyring, 1_000 + 100 * n as u32 + group)];
            measure(name, at, &mut links, rounds, kind, payload, room);
        };
        own("stream-small", 0, 20_000, PUT, &[], 0);
        own("stream-put-1mib", 1, 1_000, PUT, &large, 0);
        own("stream-get-1mib", 2, 1_000, GET, &[], LARGE);
    }
    stop.stop();
    thread.join().expect("no panic").expect("server");
}
