//! Links of a thread with a reactor, against both servers.

mod rig;

use rig::*;
use skep_net::ring::{DirectLink, Pending, Reply, SharedLink, dial};
use skep_net::{
    ConnId, Endpoint, EventLimits, EventServer, KeyFile, Keyring, Listener, Log, NetError, Peer, PeerInfo,
    Replies, Service,
};
use skep_ring::Reactor;
use skep_types::{ClusterId, FenceEpoch, Incarnation, Millis, NodeId, ServiceKind};
use skep_wire::{Header, Hello, Refusal, Welcome};
use std::cell::Cell;
use std::future::Future;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::pin::Pin;
use std::rc::Rc;
use std::time::{Duration, Instant};

const BOTH: [Which; 2] = [Which::Event, Which::Stream];

fn reactor() -> Reactor {
    Reactor::new(64).expect("this kernel has io_uring")
}

async fn connect(at: &Endpoint, keyring: &Keyring, hello: &Hello) -> Result<skep_net::Link, NetError> {
    dial(vec![at.clone()], keyring.clone(), hello.clone(), Instant::now() + PATIENCE).await
}

async fn shared(reactor: &Reactor, server: &Running, at: &Endpoint, hello: &Hello) -> SharedLink {
    SharedLink::new(reactor, connect(at, &server.keyring, hello).await.unwrap())
}

async fn direct(reactor: &Reactor, server: &Running, at: &Endpoint, hello: &Hello) -> DirectLink {
    DirectLink::new(reactor, connect(at, &server.keyring, hello).await.unwrap()).unwrap()
}

/// Runs a future against the clock: nothing here may hang.
fn within_patience<T>(reactor: &Reactor, future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    let mut clock = std::pin::pin!(reactor.sleep(PATIENCE));
    let both = std::future::poll_fn(|cx| {
        if let std::task::Poll::Ready(value) = future.as_mut().poll(cx) {
            return std::task::Poll::Ready(value);
        }
        assert!(clock.as_mut().poll(cx).is_pending(), "it hangs");
        std::task::Poll::Pending
    });
    reactor.block_on(both).unwrap()
}

fn ask(link: &SharedLink, kind: u16, body: &[u8]) -> Pending {
    link.request(&Header::request(kind, 0), body, &[]).unwrap()
}

/// Goal: bodies and payloads of all sizes arrive unchanged in both directions, over both kinds of link,
/// both servers and both kinds of sockets.
#[test]
fn round_trips_of_all_sizes() {
    let sizes = [
        (0, 0),
        (200, 0),
        (0, 1),
        (16 << 10, 5),
        (1 << 20, 0),
        (100, 16 << 10),
        (100, 1 << 20),
        (3, 4 << 20),
    ];
    let reactor = reactor();
    for which in BOTH {
        let server = Running::start(which, Setup::default());
        for (n, at) in [&server.unix, &server.tcp].into_iter().enumerate() {
            within_patience(&reactor, async {
                let one = shared(&reactor, &server, at, &hello(1, n as u32, 1)).await;
                let mut other = direct(&reactor, &server, at, &hello(2, n as u32, 2)).await;
                assert_eq!((one.welcome().node.0, other.welcome().node.0), (9, 9));
                let mut into = vec![0; 4 << 20];
                for (n, (body, payload)) in sizes.into_iter().enumerate() {
                    let (body, payload) = (pattern(body), pattern(payload));
                    let reply = one.request(&Header::request(ECHO, 0), &body, &payload).unwrap();
                    let Reply { header, body: back, payload: gone_round } = reply.await.unwrap();
                    assert_eq!((header.epoch, header.status, back), (EPOCH, 0, body.clone()));
                    assert!(gone_round == payload, "{which:?} {at}");
                    other.send(&Header::request(ECHO, n as u64), &body, &payload).await.unwrap();
                    let frame = other.recv(&mut into).await.unwrap();
                    assert_eq!((frame.header.request, frame.body), (n as u64, &body[..]));
                    assert!(into[..payload.len()] == payload[..], "{which:?} {at}");
                }
                assert!(one.is_idle() && one.is_usable() && other.is_usable());
            });
        }
    }
}

/// Goal: many tasks ask over one connection at once and each gets its own answers, in its order; what they
/// ask in one turn travels together.
#[test]
fn many_tasks_on_one_connection() {
    const TASKS: u64 = 32;
    const REQUESTS: u64 = 200;
    let reactor = reactor();
    for which in BOTH {
        let server = Running::start(which, Setup::default());
        let link = within_patience(&reactor, shared(&reactor, &server, &server.tcp, &hello(1, 0, 1)));
        let done = Rc::new(Cell::new(0));
        let before = reactor.turns();
        for task in 0..TASKS {
            let (link, done) = (link.clone(), done.clone());
            reactor.spawn(async move {
                for n in 0..REQUESTS {
                    let body = (task << 32 | n).to_le_bytes();
                    assert_eq!(ask(&link, ECHO, &body).await.unwrap().body, body);
                }
                done.set(done.get() + 1);
            });
        }
        let until = Instant::now() + PATIENCE;
        reactor.run(|| done.get() == TASKS || Instant::now() > until).unwrap();
        assert_eq!(done.get(), TASKS);
        // One at a time it would take two turns for each.
        let turns = reactor.turns() - before;
        assert!(turns < TASKS * REQUESTS, "{turns} turns for {} requests", TASKS * REQUESTS);
    }
}

/// Answers the requests of a batch in the opposite order, when the batch is whole.
struct Reversing {
    batch: usize,
    asked: Vec<(ConnId, Header)>,
}

impl Service for Reversing {
    fn hello(&mut self, _hello: &Hello, _peer: &PeerInfo) -> Result<Welcome, Refusal> {
        Ok(Welcome {
            version: 1,
            features: 0,
            service: ServiceKind::Metad,
            node: NodeId(1),
            incarnation: Incarnation(1),
            cluster: ClusterId::default(),
            epoch: FenceEpoch(0),
        })
    }

    fn request(&mut self, conn: ConnId, _peer: &Peer, header: &Header, _body: &[u8], _payload: &[u8]) {
        self.asked.push((conn, *header));
    }

    fn round_end(&mut self, out: &mut Replies<'_>) {
        if self.asked.len() >= self.batch {
            for (conn, header) in self.asked.drain(..).rev() {
                out.push(conn, &header.reply(), &header.request.to_le_bytes(), &[]);
            }
        }
    }

    fn next_deadline(&self) -> Option<Millis> {
        None
    }

    fn epoch(&self) -> FenceEpoch {
        FenceEpoch(0)
    }
}

/// Goal: answers that come in another order than the requests find those who asked.
#[test]
fn answers_in_any_order() {
    const BATCH: usize = 20;
    let dir = TempDir::new();
    let keyring = Keyring::new(&KeyFile::generate().unwrap());
    let at = Endpoint::Unix(dir.path().join("socket"));
    let listeners = vec![Listener::bind(&at).unwrap()];
    let server =
        EventServer::new(listeners, keyring.clone(), EventLimits::default(), Log::new(|_| ())).unwrap();
    let stop = server.stop_handle();
    let thread = std::thread::spawn(move || server.run(&mut Reversing { batch: BATCH, asked: Vec::new() }));
    let reactor = reactor();
    within_patience(&reactor, async {
        let link = SharedLink::new(&reactor, connect(&at, &keyring, &hello(1, 0, 1)).await.unwrap());
        for _ in 0..10 {
            let asked: Vec<Pending> = (0..BATCH).map(|_| ask(&link, ECHO, &[])).collect();
            for pending in asked {
                let reply = pending.await.unwrap();
                assert_eq!(reply.body, reply.header.request.to_le_bytes());
            }
        }
    });
    stop.stop();
    thread.join().unwrap().unwrap();
}

/// Goal: a request that is given up disturbs nobody: its late answer is passed over, the others' come.
#[test]
fn giving_up() {
    let reactor = reactor();
    for which in BOTH {
        let server = Running::start(which, Setup::default());
        within_patience(&reactor, async {
            let link = shared(&reactor, &server, &server.unix, &hello(1, 0, 1)).await;
            let given_up = ask(&link, GATED, b"given up");
            let kept = ask(&link, ECHO, b"kept");
            reactor.sleep(Duration::from_millis(20)).await;
            drop(given_up);
            server.gate.send(()).unwrap();
            assert_eq!(kept.await.unwrap().body, b"kept");
            assert_eq!(ask(&link, ECHO, b"later").await.unwrap().body, b"later");
            assert!(link.is_usable() && link.is_idle());
        });
    }
}

/// Goal: a direct link whose task gave up in the middle, of a request or of an answer, is not used again.
#[test]
fn giving_up_directly() {
    let reactor = reactor();
    let server = Running::start(Which::Stream, Setup::default());
    within_patience(&reactor, async {
        let mut link = direct(&reactor, &server, &server.unix, &hello(1, 0, 1)).await;
        link.send(&Header::request(GATED, 1), b"x", &[]).await.unwrap();
        assert!(link.is_usable());
        let mut waiting = Box::pin(link.recv(&mut []));
        let once = std::future::poll_fn(|cx| std::task::Poll::Ready(waiting.as_mut().poll(cx).is_pending()));
        assert!(once.await);
        drop(waiting);
        assert!(!link.is_usable());
        server.gate.send(()).unwrap();
        // Nobody reads at the other end, so a long frame gets stuck.
        let mut link = direct(&reactor, &server, &server.unix, &hello(1, 1, 2)).await;
        link.send(&Header::request(GATED, 1), b"x", &[]).await.unwrap();
        let long = pattern(4 << 20);
        let header = Header::request(ECHO, 2);
        {
            let mut all = Box::pin(async {
                loop {
                    link.send(&header, &[], &long).await.unwrap();
                }
            });
            let once: Pin<&mut dyn Future<Output = ()>> = all.as_mut();
            let mut once = once;
            let pending =
                std::future::poll_fn(|cx| std::task::Poll::Ready(once.as_mut().poll(cx).is_pending()));
            assert!(pending.await);
        }
        assert!(!link.is_usable());
        server.gate.send(()).unwrap();
    });
}

/// Goal: when the service goes, all who wait hear of it, nothing more is taken, and a new connection works.
#[test]
fn death_of_the_peer() {
    let reactor = reactor();
    for which in BOTH {
        let keyring = Keyring::new(&KeyFile::generate().unwrap());
        let setup = Setup { keyring: Some(keyring.clone()), ..Default::default() };
        let server = Running::start(which, setup.clone());
        let (link, mut straight) = within_patience(&reactor, async {
            let link = shared(&reactor, &server, &server.tcp, &hello(1, 0, 1)).await;
            (link, direct(&reactor, &server, &server.tcp, &hello(1, 1, 2)).await)
        });
        let asked: Vec<Pending> = (0..5).map(|_| ask(&link, GATED, &[])).collect();
        let ended = Rc::new(Cell::new(0));
        for pending in asked {
            let ended = ended.clone();
            reactor.spawn(async move {
                // The event server may have answered what it had in hand.
                let _ = pending.await;
                ended.set(ended.get() + 1);
            });
        }
        within_patience(&reactor, async {
            reactor.sleep(Duration::from_millis(10)).await;
            for _ in 0..5 {
                let _ = server.gate.send(());
            }
            server.stop.stop();
        });
        let (at, keyring) = (server.tcp.clone(), keyring.clone());
        let until = Instant::now() + PATIENCE;
        let over = || !link.is_usable() && ended.get() == 5;
        reactor.run(|| over() || Instant::now() > until).unwrap();
        assert!(over(), "somebody still waits");
        assert!(link.request(&Header::request(ECHO, 0), &[], &[]).is_err());
        within_patience(&reactor, async {
            let header = Header::request(ECHO, 7);
            // Each connection hears of it by itself; until then it answers.
            while straight.send(&header, &[], &[]).await.is_ok() && straight.recv(&mut []).await.is_ok() {}
            assert!(!straight.is_usable());
        });
        server.finish();
        assert!(within_patience(&reactor, connect(&at, &keyring, &hello(1, 0, 3))).is_err());
        let again = Running::start(which, setup);
        within_patience(&reactor, async {
            let link = shared(&reactor, &again, &again.unix, &hello(1, 0, 4)).await;
            assert_eq!(ask(&link, ECHO, b"again").await.unwrap().body, b"again");
        });
    }
}

/// Passes everything on, and flips a bit in what the service says after its part of the handshake.
fn flipping_proxy(to: &Endpoint) -> (Endpoint, std::thread::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap().to_string().parse().unwrap();
    let to = to.to_string();
    let thread = std::thread::spawn(move || {
        let (client, _) = listener.accept().unwrap();
        let service = TcpStream::connect(to).unwrap();
        let mut up = (client.try_clone().unwrap(), service.try_clone().unwrap());
        let upward = std::thread::spawn(move || {
            let _ = std::io::copy(&mut up.0, &mut up.1);
            let _ = up.1.shutdown(std::net::Shutdown::Both);
        });
        let (mut service, mut client) = (service, client);
        let mut buf = vec![0; 1 << 16];
        let mut handshake = true;
        while let Ok(n @ 1..) = service.read(&mut buf) {
            if !std::mem::take(&mut handshake) {
                buf[skep_wire::HEADER_LEN] ^= 1; // in the body of the first frame
            }
            if client.write_all(&buf[..n]).is_err() {
                break;
            }
        }
        let _ = client.shutdown(std::net::Shutdown::Both);
        upward.join().unwrap();
    });
    (at, thread)
}

/// Goal: an answer that was changed on the way ends the link, for all who wait, and is given to nobody.
#[test]
fn a_changed_answer() {
    let reactor = reactor();
    let server = Running::start(Which::Event, Setup::default());
    let (at, thread) = flipping_proxy(&server.tcp);
    within_patience(&reactor, async {
        let link = SharedLink::new(&reactor, connect(&at, &server.keyring, &hello(1, 0, 1)).await.unwrap());
        let (one, two) = (ask(&link, ECHO, b"one"), ask(&link, GATED, b"two"));
        server.gate.send(()).unwrap();
        for pending in [one, two] {
            let error = pending.await.unwrap_err();
            assert!(error.to_string().contains("authentication failed"), "{error}");
        }
        assert!(!link.is_usable());
    });
    thread.join().unwrap();
    let (at, thread) = flipping_proxy(&server.tcp);
    within_patience(&reactor, async {
        let link = connect(&at, &server.keyring, &hello(1, 1, 2)).await.unwrap();
        let mut link = DirectLink::new(&reactor, link).unwrap();
        link.send(&Header::request(ECHO, 1), b"one", b"payload").await.unwrap();
        assert!(link.recv(&mut [0; 7]).await.unwrap_err().to_string().contains("authentication failed"));
        assert!(!link.is_usable());
    });
    thread.join().unwrap();
}

/// Goal: while a connection is made to something that does not answer, other tasks go on; dropped links
/// leave no task behind.
#[test]
fn connecting_holds_nobody_up() {
    let reactor = reactor();
    let server = Running::start(Which::Event, Setup::default());
    let deaf = TcpListener::bind("127.0.0.1:0").unwrap();
    let at: Endpoint = deaf.local_addr().unwrap().to_string().parse().unwrap();
    let failed = Rc::new(Cell::new(false));
    let (seen, keyring) = (failed.clone(), server.keyring.clone());
    reactor.spawn(async move {
        let until = Instant::now() + PATIENCE;
        seen.set(dial(vec![at], keyring, hello(1, 1, 1), until).await.is_err());
    });
    within_patience(&reactor, async {
        let link = shared(&reactor, &server, &server.unix, &hello(1, 0, 1)).await;
        assert_eq!(ask(&link, ECHO, b"meanwhile").await.unwrap().body, b"meanwhile");
        assert!(!failed.get());
    });
    // What waits there unaccepted is reset.
    drop(deaf);
    let until = Instant::now() + PATIENCE;
    reactor.run(|| (failed.get() && reactor.tasks() == 0) || Instant::now() > until).unwrap();
    assert!(failed.get());
    assert_eq!(reactor.tasks(), 0);
}
