//! What the socket tests share: echo services on real sockets that write down what happens.
#![allow(dead_code)] // every test file uses its part

use skep_net::{
    Answer, ConnId, Endpoint, EventLimits, EventServer, Handler, KeyFile, Keyring, Link, Listener, Log,
    Payload, Peer, PeerInfo, Replies, Service, StopHandle, StreamLimits, StreamServer, Waker,
};
use skep_types::{ClientId, ClusterId, FenceEpoch, Incarnation, Millis, NodeId, Role, ServiceKind};
use skep_wire::{Header, Hello, Refusal, Welcome};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Longer than anything here takes; a test that waits so long has failed.
pub const PATIENCE: Duration = Duration::from_secs(120);
/// Message numbers that the echo services understand.
pub const ECHO: u16 = 0x0301;
/// Answered only after the test opened the gate.
pub const GATED: u16 = 0x0302;
/// Answered with as many payload bytes as the request id says.
pub const GIVE: u16 = 0x0303;
/// Not answered by the event server.
pub const NEVER: u16 = 0x0304;
/// The epoch in every reply.
pub const EPOCH: FenceEpoch = FenceEpoch(42);

/// A new directory, removed at the end.
pub struct TempDir(PathBuf);

impl TempDir {
    pub fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("skep-net-rig-{}-{n}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// What a service saw.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen {
    Hello(u64),
    Opened(u64),
    Request(u64, u64),
    Closed(u64),
    Woken,
    Log(String),
}

/// What the echo services share.
pub struct Echo {
    pub seen: Mutex<Sender<Seen>>,
    /// Waited for by gated requests.
    gate: Mutex<Receiver<()>>,
    /// Rounds of the event loop.
    pub rounds: AtomicU64,
    pub deadline: Mutex<Option<Millis>>,
}

impl Echo {
    pub fn saw(&self, what: Seen) {
        let _ = self.seen.lock().unwrap().send(what);
    }

    fn welcome(&self, hello: &Hello) -> Result<Welcome, Refusal> {
        self.saw(Seen::Hello(hello.connection));
        if hello.cluster == ClusterId::parse("ffffffffffffffffffffffffffffffff").unwrap() {
            return Err(Refusal::with(skep_wire::Status::MALFORMED, "another cluster"));
        }
        Ok(Welcome {
            version: 1,
            features: hello.features,
            service: ServiceKind::Storaged,
            node: NodeId(9),
            incarnation: Incarnation(1),
            cluster: ClusterId::default(),
            epoch: EPOCH,
        })
    }

    fn pass_gate(&self) {
        self.gate.lock().unwrap().recv_timeout(PATIENCE).expect("nobody opened the gate");
    }
}

/// For the event server.
pub struct EchoService {
    pub echo: Arc<Echo>,
    ready: Vec<(ConnId, Header, Vec<u8>, Vec<u8>)>,
}

impl Service for EchoService {
    fn hello(&mut self, hello: &Hello, _peer: &PeerInfo) -> Result<Welcome, Refusal> {
        self.echo.welcome(hello)
    }

    fn opened(&mut self, _conn: ConnId, peer: &Peer) {
        self.echo.saw(Seen::Opened(peer.hello.connection));
    }

    fn request(&mut self, conn: ConnId, peer: &Peer, header: &Header, body: &[u8], payload: &[u8]) {
        self.echo.saw(Seen::Request(peer.hello.connection, header.request));
        if header.kind == GATED {
            self.echo.pass_gate();
        }
        if header.flags.has(skep_wire::Flags::ONE_WAY) || header.kind == NEVER {
            return;
        }
        let payload = if header.kind == GIVE { vec![7; header.request as usize] } else { payload.to_vec() };
        self.ready.push((conn, *header, body.to_vec(), payload));
    }

    fn closed(&mut self, _conn: ConnId, peer: &Peer) {
        self.echo.saw(Seen::Closed(peer.hello.connection));
    }

    fn wake(&mut self) {
        self.echo.saw(Seen::Woken);
    }

    fn round_end(&mut self, out: &mut Replies<'_>) {
        self.echo.rounds.fetch_add(1, Ordering::SeqCst);
        let mut deadline = self.echo.deadline.lock().unwrap();
        if deadline.is_some_and(|at| at <= skep_net::now()) {
            *deadline = None;
            self.echo.saw(Seen::Woken);
        }
        for (conn, header, body, payload) in self.ready.drain(..) {
            out.push(conn, &header.reply(), &body, &payload);
        }
    }

    fn next_deadline(&self) -> Option<Millis> {
        *self.echo.deadline.lock().unwrap()
    }

    fn epoch(&self) -> FenceEpoch {
        EPOCH
    }
}

/// For the stream server.
pub struct EchoHandler(pub Arc<Echo>);

impl Handler for EchoHandler {
    fn hello(&self, hello: &Hello, _peer: &PeerInfo) -> Result<Welcome, Refusal> {
        self.0.welcome(hello)
    }

    fn handle(&self, peer: &Peer, header: &Header, body: &[u8], payload: &mut Payload) -> Answer {
        self.0.saw(Seen::Request(peer.hello.connection, header.request));
        if header.kind == GATED {
            self.0.pass_gate();
        }
        if header.kind == GIVE {
            payload.room(header.request as usize).fill(7);
        }
        Answer { status: 0, body: body.to_vec(), payload: payload.len() }
    }

    fn closed(&self, peer: &Peer) {
        self.0.saw(Seen::Closed(peer.hello.connection));
    }

    fn epoch(&self) -> FenceEpoch {
        EPOCH
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    Event,
    Stream,
}

/// How a server is set up.
#[derive(Clone, Default)]
pub struct Setup {
    pub keyring: Option<Keyring>,
    pub event: EventLimits,
    pub stream: StreamLimits,
    pub at: Option<Vec<Endpoint>>,
}

/// A running server.
pub struct Running {
    pub unix: Endpoint,
    pub tcp: Endpoint,
    pub keyring: Keyring,
    pub seen: Receiver<Seen>,
    pub echo: Arc<Echo>,
    pub gate: Sender<()>,
    pub stop: StopHandle,
    pub waker: Option<Waker>,
    pub thread: Option<JoinHandle<std::io::Result<()>>>,
    _dir: TempDir,
}

impl Running {
    pub fn start(which: Which, setup: Setup) -> Self {
        let dir = TempDir::new();
        let unix = Endpoint::Unix(dir.path().join("socket"));
        let at = setup.at.unwrap_or_else(|| vec![unix, "127.0.0.1:0".parse().unwrap()]);
        let listeners: Vec<Listener> = at.iter().map(|at| Listener::bind(at).unwrap()).collect();
        let (unix, tcp) = (listeners[0].endpoint().clone(), listeners[1].endpoint().clone());
        let (sender, seen) = channel();
        let (gate, opened) = channel();
        let to_log = sender.clone();
        let log = Log::new(move |line| drop(to_log.send(Seen::Log(line.to_owned()))));
        let echo = Arc::new(Echo {
            seen: Mutex::new(sender),
            gate: Mutex::new(opened),
            rounds: AtomicU64::new(0),
            deadline: Mutex::new(None),
        });
        let keyring = setup.keyring.unwrap_or_else(|| Keyring::new(&KeyFile::generate().unwrap()));
        let shared = echo.clone();
        let (stop, waker, thread) = match which {
            Which::Event => {
                let server = EventServer::new(listeners, keyring.clone(), setup.event, log).unwrap();
                let (stop, waker) = (server.stop_handle(), server.waker());
                let mut service = EchoService { echo: shared, ready: Vec::new() };
                (stop, Some(waker), std::thread::spawn(move || server.run(&mut service)))
            }
            Which::Stream => {
                let server = StreamServer::new(listeners, keyring.clone(), setup.stream, log).unwrap();
                let stop = server.stop_handle();
                (stop, None, std::thread::spawn(move || server.run(&EchoHandler(shared))))
            }
        };
        Self { unix, tcp, keyring, seen, echo, gate, stop, waker, thread: Some(thread), _dir: dir }
    }

    pub fn link(&self, to: &Endpoint, hello: &Hello) -> Link {
        self.try_link(to, hello).unwrap()
    }

    pub fn try_link(&self, to: &Endpoint, hello: &Hello) -> Result<Link, skep_net::NetError> {
        Link::connect(std::slice::from_ref(to), &self.keyring, hello, Instant::now() + PATIENCE)
    }

    /// The next event of interest; others before it are skipped.
    pub fn wait_for(&self, wanted: impl Fn(&Seen) -> bool) -> Seen {
        let until = Instant::now() + PATIENCE;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let seen = self.seen.recv_timeout(left).expect("the event did not come");
            if wanted(&seen) {
                return seen;
            }
        }
    }

    pub fn wait_for_log(&self) -> String {
        match self.wait_for(|seen| matches!(seen, Seen::Log(_))) {
            Seen::Log(line) => line,
            _ => unreachable!(),
        }
    }

    /// Ends the server and gives what it saw until its end.
    pub fn finish(mut self) -> Vec<Seen> {
        self.stop.stop();
        self.thread.take().unwrap().join().unwrap().unwrap();
        self.seen.try_iter().collect()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A client's hello.
pub fn hello(client: u64, group: u32, connection: u64) -> Hello {
    Hello {
        version_min: 1,
        version_max: 1,
        features: 0,
        role: Role::Client,
        client: ClientId(client),
        incarnation: Incarnation(1),
        token: [0; 32],
        node: NodeId(0),
        group,
        connection,
        cluster: ClusterId::default(),
        epoch: FenceEpoch(0),
    }
}

/// Sends one request and waits for its answer; gives the body.
pub fn call(
    link: &mut Link,
    kind: u16,
    id: u64,
    body: &[u8],
    payload: &[u8],
    into: &mut [u8],
) -> (Header, Vec<u8>) {
    link.send(&Header::request(kind, id), body, payload).unwrap();
    answer(link, into)
}

pub fn answer(link: &mut Link, into: &mut [u8]) -> (Header, Vec<u8>) {
    let frame = link.recv(into, Instant::now() + PATIENCE, &|| false).unwrap();
    (frame.header, frame.body.to_vec())
}

/// Bytes that differ from place to place.
pub fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|n| (n as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes()[7]).collect()
}
