//! Lanes on a thread with a reactor, against real servers.

use super::{RingHands, RingPort};
use crate::mount::hands::Hands;
use crate::mount::port::BlockingPort;
use skep_client::state::{Session, SessionState};
use skep_client::{Call, Cell as _, Limits, MGMTD, Outcome, Port, Shared};
use skep_net::{
    Answer, ConnId, Endpoint, EventLimits, EventServer, Handler, KeyFile, Keyring, Listener, Log, Payload,
    Peer, PeerInfo, Replies, Service, StopHandle, StreamLimits, StreamServer,
};
use skep_ring::Reactor;
use skep_types::{
    ClientId, ClusterId, FenceEpoch, Incarnation, MapVersion, Millis, NodeId, Reachability, ServiceKind, Uuid,
};
use skep_wire::mgmt::{Address, MapReply, NodeEntry};
use skep_wire::{Header, Hello, Refusal, Welcome};
use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(120);
const METAD: NodeId = NodeId(1);
const STORED: NodeId = NodeId(2);
const ABSENT: NodeId = NodeId(3);
/// Answered at once.
const ECHO: u16 = 0x0301;
/// Answered when the test says so.
const GATED: u16 = 0x0302;

/// A connection: its group, its number, whose session.
type Seen = (u32, u64, u64);

/// What both services do.
struct Echo {
    seen: Mutex<Vec<Seen>>,
    gate: Mutex<Receiver<()>>,
    node: NodeId,
}

impl Echo {
    fn welcome(&self, hello: &Hello) -> Result<Welcome, Refusal> {
        self.seen.lock().unwrap().push((hello.group, hello.connection, hello.client.0));
        Ok(Welcome {
            version: 1,
            features: 0,
            service: ServiceKind::Metad,
            node: self.node,
            incarnation: Incarnation(u64::from(self.node.0)),
            cluster: ClusterId::default(),
            epoch: FenceEpoch(0),
        })
    }

    fn pass(&self, kind: u16) {
        if kind == GATED {
            self.gate.lock().unwrap().recv_timeout(PATIENCE).expect("nobody opened the gate");
        }
    }
}

struct EventEcho(Arc<Echo>, Vec<(ConnId, Header, Vec<u8>)>);

impl Service for EventEcho {
    fn hello(&mut self, hello: &Hello, _peer: &PeerInfo) -> Result<Welcome, Refusal> {
        self.0.welcome(hello)
    }

    fn request(&mut self, conn: ConnId, _peer: &Peer, header: &Header, body: &[u8], _payload: &[u8]) {
        self.0.pass(header.kind);
        self.1.push((conn, *header, body.to_vec()));
    }

    fn round_end(&mut self, out: &mut Replies<'_>) {
        for (conn, header, body) in self.1.drain(..) {
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

struct StreamEcho(Arc<Echo>);

impl Handler for StreamEcho {
    fn hello(&self, hello: &Hello, _peer: &PeerInfo) -> Result<Welcome, Refusal> {
        self.0.welcome(hello)
    }

    fn handle(&self, _peer: &Peer, header: &Header, body: &[u8], payload: &mut Payload) -> Answer {
        self.0.pass(header.kind);
        Answer { status: 0, body: body.to_vec(), payload: payload.len() }
    }

    fn epoch(&self) -> FenceEpoch {
        FenceEpoch(0)
    }
}

/// One running service.
struct Running {
    at: Endpoint,
    echo: Arc<Echo>,
    gate: Sender<()>,
    stop: StopHandle,
    thread: Option<JoinHandle<std::io::Result<()>>>,
}

impl Running {
    fn start(keyring: &Keyring, at: Endpoint, node: NodeId, connections: usize) -> Self {
        let (gate, opened) = channel();
        let echo = Arc::new(Echo { seen: Mutex::default(), gate: Mutex::new(opened), node });
        let listeners = vec![Listener::bind(&at).unwrap()];
        let (keyring, log, shared) = (keyring.clone(), Log::new(|_| ()), echo.clone());
        let (stop, thread) = if node == STORED {
            let server = StreamServer::new(
                listeners,
                keyring,
                StreamLimits { connections, ..StreamLimits::default() },
                log,
            )
            .unwrap();
            (server.stop_handle(), std::thread::spawn(move || server.run(&StreamEcho(shared))))
        } else {
            let server = EventServer::new(listeners, keyring, EventLimits::default(), log).unwrap();
            let stop = server.stop_handle();
            (stop, std::thread::spawn(move || server.run(&mut EventEcho(shared, Vec::new()))))
        };
        Self { at, echo, gate, stop, thread: Some(thread) }
    }

    fn seen(&self) -> Vec<Seen> {
        self.echo.seen.lock().unwrap().clone()
    }

    fn end(&mut self) {
        self.stop.stop();
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap().unwrap();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

/// A metadata server, a storage daemon, mgmtd, and a mount that knows them.
struct Scene {
    metad: Running,
    stored: Running,
    mgmtd: Running,
    keyring: Keyring,
    hands: Arc<Hands>,
    reactor: Reactor,
    thread: Rc<RingHands>,
    _dir: tempfile::TempDir,
}

impl Scene {
    fn new() -> Self {
        Self::with(4_096)
    }

    /// The storage daemon takes so many connections.
    fn with(connections: usize) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let keyring = Keyring::new(&KeyFile::generate().unwrap());
        let start = |name: &str, node| {
            Running::start(&keyring, Endpoint::Unix(dir.path().join(name)), node, connections)
        };
        let (metad, stored, mgmtd) = (start("m", METAD), start("s", STORED), start("g", MGMTD));
        let shared = Shared::new(Limits::default());
        let hands = Hands::new(shared, keyring.clone(), vec![mgmtd.at.clone()]);
        let absent = Endpoint::Unix(dir.path().join("nobody"));
        let nodes = [
            (METAD, ServiceKind::Metad, &metad.at),
            (STORED, ServiceKind::Storaged, &stored.at),
            (ABSENT, ServiceKind::Storaged, &absent),
        ];
        let nodes = nodes.map(|(node, service, at)| entry(node, service, at, hands.machine)).to_vec();
        let map = MapReply { version: MapVersion(1), nodes, command_level: 1, ..MapReply::default() };
        hands.shared.with(|s| assert_eq!(s.map.update(map), Ok(true)));
        let reactor = Reactor::new(64).unwrap();
        let thread = RingHands::new(hands.clone(), &reactor);
        Self { metad, stored, mgmtd, keyring, hands, reactor, thread, _dir: dir }
    }

    fn lane(&self) -> Rc<RingPort> {
        Rc::new(RingPort::new(&self.thread))
    }

    fn run<T>(&self, future: impl Future<Output = T>) -> T {
        let mut clock = pin!(self.reactor.sleep(PATIENCE));
        let mut future = pin!(future);
        let both = poll_fn(|cx| {
            if let Poll::Ready(value) = future.as_mut().poll(cx) {
                return Poll::Ready(value);
            }
            assert!(clock.as_mut().poll(cx).is_pending(), "it hangs");
            Poll::Pending
        });
        self.reactor.block_on(both).unwrap()
    }

    fn session(&self, client: u64) {
        self.hands.shared.with(|s| {
            s.session = SessionState::Open(Session {
                client: ClientId(client),
                incarnation: Incarnation(1),
                token: [0; 32],
                cluster: ClusterId::default(),
                timeout_ms: 60_000,
                renewed: Millis(0),
            });
        });
    }
}

fn entry(node: NodeId, service: ServiceKind, at: &Endpoint, machine: Uuid) -> NodeEntry {
    NodeEntry {
        node,
        service,
        alias: format!("node{}", node.0),
        addresses: vec![Address { text: at.to_string(), nic: String::new(), preference: 0 }],
        machine,
        reachability: Reachability::Online,
        incarnation: Incarnation(1),
        domain: String::new(),
    }
}

/// A port, and whose requests it sends now.
trait Present: Port {
    fn present(&self) -> ClientId;
}

impl Present for RingPort {
    fn present(&self) -> ClientId {
        self.client()
    }
}

impl Present for BlockingPort {
    fn present(&self) -> ClientId {
        self.client()
    }
}

/// One request; gives its outcome, and checks that the answer is its own.
async fn call(port: &RingPort, node: NodeId, kind: u16, body: &[u8]) -> Outcome {
    send(port, node, kind, body, false).await
}

async fn send(port: &impl Present, node: NodeId, kind: u16, body: &[u8], changing: bool) -> Outcome {
    send_as(port, port.present(), node, kind, body, changing).await
}

async fn send_as(
    port: &impl Present,
    client: ClientId,
    node: NodeId,
    kind: u16,
    body: &[u8],
    changing: bool,
) -> Outcome {
    let (payload, mut into) = (body.repeat(3), vec![0; body.len() * 3]);
    let payload = if node == STORED { &payload[..] } else { &[] };
    let call = Call {
        node,
        client,
        kind,
        epoch: FenceEpoch(0),
        body,
        payload,
        into: &mut into,
        changing,
        outcome: Outcome::Lost,
    };
    let mut calls = [call];
    port.call(&mut calls).await;
    let [Call { outcome, .. }] = calls;
    if let Outcome::Answer(answer) = &outcome {
        assert_eq!((answer.body.as_slice(), answer.incarnation.0), (body, u64::from(node.0)));
        assert_eq!(&into[..answer.payload_len], payload);
    }
    outcome
}

fn is_answer(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Answer(_))
}

/// Polls once, then drops: a lane that gives up.
async fn begin_and_give_up(scene: &Scene, future: impl Future) {
    let mut future: Pin<Box<dyn Future<Output = _>>> = Box::pin(future);
    poll_fn(|cx| {
        assert!(future.as_mut().poll(cx).is_pending());
        Poll::Ready(())
    })
    .await;
    let until = Instant::now() + Duration::from_millis(100);
    while Instant::now() < until {
        scene.reactor.sleep(Duration::from_millis(10)).await;
        poll_fn(|cx| {
            assert!(future.as_mut().poll(cx).is_pending());
            Poll::Ready(())
        })
        .await;
    }
}

/// Goal: all lanes of a thread ask a metadata server over one connection, each gets its own answers, and
/// while one request waits there the others go on.
#[test]
fn lanes_share_the_connection_to_a_service() {
    let scene = Scene::new();
    let done = Rc::new(Cell::new(0));
    for lane in 0..32u32 {
        let (port, done) = (scene.lane(), done.clone());
        scene.reactor.spawn(async move {
            for n in 0..50u32 {
                let body = (u64::from(lane) << 32 | u64::from(n)).to_le_bytes();
                assert!(is_answer(&call(&port, METAD, ECHO, &body).await));
            }
            done.set(done.get() + 1);
        });
    }
    let until = Instant::now() + PATIENCE;
    scene.reactor.run(|| done.get() == 32 || Instant::now() > until).unwrap();
    assert_eq!((done.get(), scene.metad.seen().len()), (32, 1));
}

/// Goal: a connection to a storage daemon is used again by the next lane; lanes at the same time have their
/// own, each its own group.
#[test]
fn storage_connections_are_pooled() {
    let scene = Scene::new();
    for _ in 0..5 {
        let port = scene.lane();
        assert!(is_answer(&scene.run(call(&port, STORED, ECHO, b"one after another"))));
    }
    assert_eq!(scene.stored.seen().len(), 1);
    let done = Rc::new(Cell::new(0));
    for _ in 0..4 {
        let (port, done) = (scene.lane(), done.clone());
        scene.reactor.spawn(async move {
            assert!(is_answer(&call(&port, STORED, GATED, b"at once").await));
            done.set(done.get() + 1);
        });
    }
    scene.run(async {
        while scene.stored.seen().len() < 4 {
            scene.reactor.sleep(Duration::from_millis(5)).await;
        }
        (0..4).for_each(|_| scene.stored.gate.send(()).unwrap());
        while done.get() < 4 {
            scene.reactor.sleep(Duration::from_millis(5)).await;
        }
    });
    let groups: std::collections::BTreeSet<u32> = scene.stored.seen().iter().map(|seen| seen.0).collect();
    assert_eq!((scene.stored.seen().len(), groups.len()), (4, 4));
}

/// Goal: after a lane gave up at a storage daemon, its next request there goes over a newer connection of
/// the same group, so that the daemon drops what is left of the older one; another lane gets neither.
#[test]
fn what_was_given_up_is_superseded() {
    let scene = Scene::new();
    scene.session(5);
    let (port, other) = (scene.lane(), scene.lane());
    scene.run(begin_and_give_up(&scene, call(&port, STORED, GATED, b"given up")));
    let [(group, number, 5)] = scene.stored.seen()[..] else { panic!("{:?}", scene.stored.seen()) };
    assert!(is_answer(&scene.run(call(&other, STORED, ECHO, b"another lane"))));
    assert_ne!(scene.stored.seen()[1].0, group);
    scene.stored.gate.send(()).unwrap();
    assert!(is_answer(&scene.run(call(&port, STORED, ECHO, b"again"))));
    let again = scene.stored.seen()[2];
    assert!(again.0 == group && again.1 > number, "{again:?}");
    // A lane that ends in debt leaves the group to the next connection of the pool.
    scene.run(begin_and_give_up(&scene, call(&port, STORED, GATED, b"given up once more")));
    drop(port);
    scene.stored.gate.send(()).unwrap();
    let (one, two) = (scene.lane(), scene.lane());
    scene.run(begin_and_give_up(&scene, call(&one, STORED, GATED, b"takes the idle one")));
    scene.stored.gate.send(()).unwrap();
    assert!(is_answer(&scene.run(call(&two, STORED, ECHO, b"must connect"))));
    let last = *scene.stored.seen().last().unwrap();
    assert!(last.0 == group && last.1 > again.1, "{last:?}");
}

/// Goal: giving up at a metadata server leaves the connection to the other lanes.
#[test]
fn giving_up_at_a_service() {
    let scene = Scene::new();
    let (port, other) = (scene.lane(), scene.lane());
    scene.run(begin_and_give_up(&scene, call(&port, METAD, GATED, b"given up")));
    scene.metad.gate.send(()).unwrap();
    assert!(is_answer(&scene.run(call(&other, METAD, ECHO, b"another lane"))));
    assert!(is_answer(&scene.run(call(&port, METAD, ECHO, b"the same lane"))));
    assert_eq!(scene.metad.seen().len(), 1);
}

/// Goal: no connection is "not done", a broken one "perhaps done", each for its own call only; when the
/// service is back, it is found again.
#[test]
fn outcomes() {
    let mut scene = Scene::new();
    let port = scene.lane();
    let mut into = [[0; 0]; 3];
    let [a, b, c] = &mut into;
    let request = |node, into| Call {
        node,
        client: ClientId(0),
        kind: ECHO,
        epoch: FenceEpoch(0),
        body: b"x",
        payload: &[],
        into,
        changing: false,
        outcome: Outcome::Lost,
    };
    let mut calls = [request(METAD, &mut a[..]), request(ABSENT, &mut b[..]), request(STORED, &mut c[..])];
    scene.run(port.call(&mut calls));
    assert!(is_answer(&calls[0].outcome) && is_answer(&calls[2].outcome));
    assert_eq!(calls[1].outcome, Outcome::Unreachable);
    for node in [METAD, STORED] {
        let (lost, sink) = (Rc::new(Cell::new(None)), scene.lane());
        let place = lost.clone();
        scene.reactor.spawn(async move { place.set(Some(call(&sink, node, GATED, b"in work").await)) });
        scene.run(scene.reactor.sleep(Duration::from_millis(50)));
        let running = if node == METAD { &mut scene.metad } else { &mut scene.stored };
        running.stop.stop();
        running.gate.send(()).unwrap();
        running.end();
        let at = running.at.clone();
        let until = Instant::now() + PATIENCE;
        let outcome = Cell::new(None);
        scene
            .reactor
            .run(|| {
                outcome.set(lost.take());
                let there = outcome.take();
                let found = there.is_some();
                outcome.set(there);
                found || Instant::now() > until
            })
            .unwrap();
        assert!(matches!(outcome.take(), Some(Outcome::Lost | Outcome::Answer(_))));
        // A connection that was idle meanwhile is tried first.
        let first = scene.run(call(&port, node, ECHO, b"gone"));
        assert!(matches!(first, Outcome::Unreachable | Outcome::Lost));
        assert_eq!(scene.run(call(&port, node, ECHO, b"gone")), Outcome::Unreachable);
        let again = Running::start(&scene.keyring, at, node, 4_096);
        assert!(is_answer(&scene.run(call(&port, node, ECHO, b"back"))));
        drop(again);
    }
}

/// Goal: a program that gives up leaves a question behind at once, but never a change that was sent: it
/// could land behind what others do later. Both kinds of port, both kinds of service.
#[test]
fn a_change_is_not_left_behind() {
    let scene = Scene::new();
    for running in [&scene.metad, &scene.stored] {
        let node = running.echo.node;
        let open_soon = || {
            let gate = running.gate.clone();
            std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(300));
                gate.send(()).unwrap();
            })
        };
        let (ring, blocking) = (scene.lane(), BlockingPort::new(scene.hands.clone(), 900));
        // Giving up counts while it is being connected.
        assert!(is_answer(&scene.run(call(&ring, node, ECHO, b"connected"))));
        ring.give_up();
        blocking.give_up();
        let opened = open_soon();
        assert!(is_answer(&scene.run(send(&*ring, node, GATED, b"a change", true))));
        opened.join().unwrap();
        let opened = open_soon();
        assert!(is_answer(&crate::mount::drive(send(&blocking, node, GATED, b"a change", true))));
        opened.join().unwrap();
        // The gate stays shut for both: a question that was left behind may never come to it.
        assert_eq!(scene.run(send(&*ring, node, GATED, b"a question", false)), Outcome::Lost);
        let lost = crate::mount::drive(send(&blocking, node, GATED, b"a question", false));
        assert_eq!(lost, Outcome::Lost);
        running.gate.send(()).unwrap();
        running.gate.send(()).unwrap();
    }
}

/// Goal: a service that is silent for the deadline is not asked again over that connection.
#[test]
fn a_silent_service() {
    let scene = Scene::new();
    let port = scene.lane();
    for (node, running) in [(METAD, &scene.metad), (STORED, &scene.stored)] {
        assert_eq!(scene.run(call(&port, node, GATED, b"silence")), Outcome::Lost);
        running.gate.send(()).unwrap();
        assert!(is_answer(&scene.run(call(&port, node, ECHO, b"again"))));
        assert_eq!(running.seen().len(), 2);
    }
}

/// Goal: another session gets connections of its own, and what was decided in the one before is not sent over them.
#[test]
fn a_new_session() {
    let scene = Scene::new();
    let port = scene.lane();
    let blocking = BlockingPort::new(scene.hands.clone(), 900);
    for client in [5, 6] {
        scene.session(client);
        for node in [METAD, STORED] {
            assert!(is_answer(&scene.run(call(&port, node, ECHO, b"x"))));
            let before = ClientId(client - 1);
            let late = [
                scene.run(send_as(&*port, before, node, ECHO, b"late", true)),
                crate::mount::drive(send_as(&blocking, before, node, ECHO, b"late", true)),
            ];
            assert_eq!(late, [Outcome::Unreachable, Outcome::Unreachable]);
        }
    }
    for running in [&scene.metad, &scene.stored] {
        let clients: Vec<u64> = running.seen().iter().map(|seen| seen.2).collect();
        assert_eq!(clients, [5, 6]);
    }
}

/// Goal: the connection to mgmtd ends with the last one who asks.
#[test]
fn mgmtd_is_left_alone() {
    let scene = Scene::new();
    let port = scene.lane();
    for n in 1..=2 {
        assert!(is_answer(&scene.run(call(&port, MGMTD, ECHO, b"x"))));
        assert_eq!(scene.mgmtd.seen().len(), n);
    }
}

/// Goal: nobody looks after lanes when none waits: an idle mount costs nothing.
#[test]
fn rest() {
    let scene = Scene::new();
    let port = scene.lane();
    assert!(is_answer(&scene.run(call(&port, METAD, ECHO, b"x"))));
    let tasks = scene.reactor.tasks();
    scene.run(async {
        while scene.reactor.tasks() >= tasks {
            scene.reactor.sleep(Duration::from_millis(50)).await;
        }
    });
    assert!(!scene.thread.watches.looking.get());
}

/// Goal: a storage daemon at its limit refuses some connections of a mount, and every request is answered all the
/// same, over those that there are; blocking lanes too.
#[test]
fn a_server_at_its_limit() {
    let scene = Scene::with(3);
    scene.session(5);
    let lanes: Vec<_> = (0..40).map(|_| scene.lane()).collect();
    let done = Rc::new(Cell::new(0));
    for (n, lane) in lanes.into_iter().enumerate() {
        let done = done.clone();
        scene.reactor.spawn(async move {
            assert!(matches!(call(&lane, STORED, ECHO, &[n as u8; 9]).await, Outcome::Answer(_)), "lane {n}");
            done.set(done.get() + 1);
        });
    }
    let hands = scene.hands.clone();
    let blocking = std::thread::spawn(move || {
        let port = BlockingPort::new(hands, 900);
        for n in 0..20 {
            let outcome = crate::mount::drive(send(&port, STORED, ECHO, &[n; 9], false));
            assert!(matches!(outcome, Outcome::Answer(_)), "{n}");
        }
    });
    scene.run(async {
        while done.get() < 40 {
            scene.reactor.sleep(Duration::from_millis(5)).await;
        }
    });
    blocking.join().unwrap();
    // The server takes turns: what it has closed is counted until somebody looks at it.
    assert!(scene.hands.links.open() < 40, "connections are shared: {}", scene.hands.links.open());
}

/// Goal: a mount with room for few connections answers everything over them, and keeps one for each server.
#[test]
fn few_descriptors() {
    let scene = Scene::new();
    scene.session(5);
    scene.hands.links.limit(4);
    let lanes: Vec<_> = (0..40).map(|_| scene.lane()).collect();
    let done = Rc::new(Cell::new(0));
    for (n, lane) in lanes.into_iter().enumerate() {
        let done = done.clone();
        scene.reactor.spawn(async move {
            for node in [STORED, METAD, STORED] {
                assert!(
                    matches!(call(&lane, node, ECHO, &[n as u8; 9]).await, Outcome::Answer(_)),
                    "lane {n}"
                );
            }
            done.set(done.get() + 1);
        });
    }
    scene.run(async {
        while done.get() < 40 {
            scene.reactor.sleep(Duration::from_millis(5)).await;
        }
    });
    assert!(scene.hands.links.open() <= 4, "{}", scene.hands.links.open());
    assert!(scene.stored.seen().len() < 40, "connections are shared");
}

/// Goal: who pauses for another lane goes on when that calls it, on either kind of hands; and after the pause if nobody does.
#[test]
fn pauses_end_when_they_are_called() {
    let scene = Scene::new();
    let blocking = BlockingPort::new(scene.hands.clone(), 0);
    let woken = || {
        let mut thread = None;
        poll_fn(move |cx| {
            let waker = cx.waker().clone();
            let is_called = thread.replace(std::thread::spawn(move || waker.wake())).is_some();
            if is_called { Poll::Ready(()) } else { Poll::Pending }
        })
    };
    scene.run(scene.lane().pause_before(600_000, woken()));
    scene.run(blocking.pause_before(600_000, woken()));
    scene.run(scene.lane().pause_before(1, std::future::pending()));
    scene.run(blocking.pause_before(1, std::future::pending()));
}
