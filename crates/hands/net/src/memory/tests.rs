use super::*;
use crate::handshake::Initiator;
use crate::inbound::Inbound;
use crate::link::Parts;
use crate::outbound::Outbound;
use crate::ring::DirectLink;
use crate::testing::TempDir;
use crate::{
    Answer, Endpoint, Handler, Keyring, Link, Listener, Log, NetError, Payload, Peer, PeerInfo, StopHandle,
    StreamLimits, StreamServer, socket,
};
use skep_ring::Reactor;
use skep_types::{ClientId, ClusterId, FenceEpoch, Incarnation, NodeId, Role, ServiceKind};
use skep_wire::{Hello, Protection, Refusal, SHARED_MEMORY, Welcome};
use std::fs::File;
use std::io::Read;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);
/// The payload comes back as it was.
const ECHO: u16 = 1;
/// As many bytes of 7 as the request's number says.
const GIVE: u16 = 2;
/// As `GIVE`, after the gate was opened: so many mebibytes as the highest byte of the number says.
const GATED: u16 = 3;

struct Service {
    /// In which slot each request's payload was.
    seen: Mutex<Sender<u32>>,
    gate: Mutex<Receiver<()>>,
}

impl Handler for Service {
    fn hello(&self, hello: &Hello, _: &PeerInfo) -> Result<Welcome, Refusal> {
        Ok(Welcome {
            version: 1,
            features: hello.features,
            service: ServiceKind::Storaged,
            node: NodeId(1),
            incarnation: Incarnation(1),
            cluster: ClusterId::default(),
            epoch: FenceEpoch(0),
        })
    }

    fn handle(&self, _: &Peer, header: &Header, body: &[u8], payload: &mut Payload) -> Answer {
        self.seen.lock().unwrap().send(payload.slot()).unwrap();
        match header.kind {
            GIVE => payload.room(header.request as usize).fill(7),
            GATED => {
                self.gate.lock().unwrap().recv_timeout(PATIENCE).expect("the gate is never opened");
                payload.room((header.request >> 56 << 20) as usize).fill(header.request as u8);
            }
            _ => {}
        }
        Answer { status: 0, body: body.to_vec(), payload: payload.len() }
    }

    fn epoch(&self) -> FenceEpoch {
        FenceEpoch(0)
    }
}

struct Running {
    at: Vec<Endpoint>,
    seen: Receiver<u32>,
    lines: Receiver<String>,
    gate: Sender<()>,
    stop: StopHandle,
    thread: Option<JoinHandle<()>>,
    _dir: TempDir,
}

impl Running {
    fn start(limits: StreamLimits) -> Self {
        let dir = TempDir::new();
        let wanted = [Endpoint::Unix(dir.path().join("s")), "127.0.0.1:0".parse().unwrap()];
        let listeners: Vec<Listener> = wanted.iter().map(|at| Listener::bind(at).unwrap()).collect();
        let at = listeners.iter().map(|listener| listener.endpoint().clone()).collect();
        let ((sender, seen), (to_log, lines), (gate, opened)) = (channel(), channel(), channel());
        let log = Log::new(move |line| drop(to_log.send(line.to_owned())));
        let server = StreamServer::new(listeners, Keyring::insecure(), limits, log).unwrap();
        let stop = server.stop_handle();
        let service = Service { seen: Mutex::new(sender), gate: Mutex::new(opened) };
        let thread = std::thread::spawn(move || server.run(&service).unwrap());
        Self { at, seen, lines, gate, stop, thread: Some(thread), _dir: dir }
    }

    fn link(&self, at: usize, hello: &Hello) -> Link {
        let until = Instant::now() + PATIENCE;
        Link::connect(&self.at[at..=at], &Keyring::insecure(), hello, until).unwrap()
    }

    /// In which slot the next request's payload was.
    fn slot(&self) -> u32 {
        self.seen.recv_timeout(PATIENCE).unwrap()
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

fn hello(group: u32, features: u64) -> Hello {
    Hello {
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
    }
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|n| (n as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes()[7]).collect()
}

fn ask(link: &mut Link, kind: u16, id: u64, payload: &[u8], room: usize) {
    link.ask(&Header::request(kind, id), b"a body", payload, room).unwrap();
}

fn answer(link: &mut Link, into: &mut [u8]) -> Result<Header, NetError> {
    link.recv(into, Instant::now() + PATIENCE, &|| false).map(|frame| frame.header)
}

fn free(link: &Link) -> usize {
    link.slots.as_ref().map_or(0, |slots| slots.held.iter().filter(|held| held.is_none()).count())
}

/// Memory as a peer might make it.
fn memfd(len: u64, seals: SealFlags) -> OwnedFd {
    let fd = memfd_create("a test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    ftruncate(&fd, len).unwrap();
    fcntl_add_seals(&fd, seals).unwrap();
    fd
}

/// Goal: what could be cut off under the service, or has another length than slots have, is not mapped.
#[test]
fn what_could_change_is_not_mapped() {
    let slot = SLOT_LEN as u64;
    assert_eq!(Memory::accept(&memfd(slot * 2, SEALS)).map(|memory| memory.slots()), Ok(2));
    assert!(Memory::accept(&Memory::make().unwrap().1).is_ok());
    for seal in [SealFlags::SHRINK, SealFlags::GROW, SealFlags::SEAL] {
        let why = Memory::accept(&memfd(slot, SEALS.difference(seal))).err().unwrap();
        assert!(why.contains("not sealed"), "{why}");
    }
    for len in [0, 4096, slot + 4096, slot * (SLOTS_MAX as u64 + 1)] {
        let why = Memory::accept(&memfd(len, SEALS)).err().unwrap();
        assert!(why.contains("bytes"), "{why}");
    }
    let why = Memory::accept(&memfd(slot, SEALS | SealFlags::WRITE)).err().unwrap();
    assert!(why.contains("cannot be mapped"), "{why}");
    let dir = TempDir::new();
    let file = File::create_new(dir.path().join("f")).unwrap();
    file.set_len(slot).unwrap();
    for other in [file.into(), rustix::pipe::pipe().unwrap().0] {
        assert!(Memory::accept(&other).is_err());
    }
}

/// Goal: payloads of all lengths go both ways, on both kinds of links, in memory where that is worth it and fits, and over
/// the socket otherwise; slots are there again afterwards.
#[test]
fn payloads_both_ways() {
    let server = Running::start(StreamLimits::default());
    let mut link = server.link(0, &hello(1, SHARED_MEMORY));
    let reactor = Reactor::new(8).unwrap();
    let lens = [0, 1, SHARED_FROM - 1, SHARED_FROM, 100_001, SLOT_LEN, SLOT_LEN + 1, 4 << 20];
    for direct in [false, true] {
        for (id, len) in (1..).zip(lens) {
            let by_memory = u32::from((SHARED_FROM..=SLOT_LEN).contains(&len));
            let (sent, mut back) = (pattern(len), vec![0; len]);
            let (echo, give) = (Header::request(ECHO, id), Header::request(GIVE, len as u64));
            let mut given = vec![0; len];
            if direct {
                let mut straight = DirectLink::new(&reactor, link).unwrap();
                let both = reactor.block_on(async {
                    straight.ask(&echo, b"a body", &sent, len).await.unwrap();
                    assert_eq!(straight.recv_of(id, &mut back).await.unwrap().body, b"a body");
                    straight.ask(&give, b"a body", &[], len).await.unwrap();
                    let header = straight.recv(&mut given).await.unwrap().header;
                    (header.slot, header.payload_len as usize)
                });
                assert_eq!(both.unwrap(), (by_memory, len));
                link = straight.park().waiting().unwrap();
            } else {
                ask(&mut link, ECHO, id, &sent, len);
                assert_eq!(answer(&mut link, &mut back).unwrap().slot, by_memory, "{len}");
                link.ask(&give, b"a body", &[], len).unwrap();
                assert_eq!(answer(&mut link, &mut given).unwrap().payload_len as usize, len);
            }
            assert_eq!([server.slot(), server.slot()], [by_memory; 2], "{len}");
            assert!(back == sent && given == vec![7; len], "{len} bytes");
            assert_eq!(free(&link), SLOTS);
        }
    }
}

/// Goal: an answer that is longer than a slot goes over the socket, whole, although its request had a slot.
#[test]
fn answers_longer_than_a_slot() {
    let server = Running::start(StreamLimits::default());
    let mut link = server.link(0, &hello(1, SHARED_MEMORY));
    let mut into = vec![0; 4 << 20];
    for len in [SLOT_LEN + 1, 4 << 20, SLOT_LEN] {
        ask(&mut link, GIVE, len as u64, &[], SLOT_LEN);
        assert_eq!(server.slot(), 1);
        let header = answer(&mut link, &mut into).unwrap();
        assert_eq!((header.slot, header.payload_len as usize), (u32::from(len == SLOT_LEN), len));
        assert!(into[..len].iter().all(|byte| *byte == 7));
        into.fill(0);
        assert_eq!(free(&link), SLOTS);
    }
}

/// Goal: where one side does not know of it, where it is another machine, and where too many share already, everything goes
/// over the socket.
#[test]
fn who_does_without() {
    let server = Running::start(StreamLimits { sharing: 1, ..StreamLimits::default() });
    let old = server.link(0, &hello(1, 0));
    let far = server.link(1, &hello(2, SHARED_MEMORY));
    let first = server.link(0, &hello(3, SHARED_MEMORY));
    let second = server.link(0, &hello(4, SHARED_MEMORY));
    let payload = pattern(SLOT_LEN);
    for (mut link, slots) in [(old, 0), (far, 0), (second, 0), (first, SLOTS)] {
        let by_memory = u32::from(slots > 0);
        assert_eq!(free(&link), slots);
        assert_eq!(link.welcome().features, u64::from(by_memory) * SHARED_MEMORY);
        let mut back = vec![0; SLOT_LEN];
        ask(&mut link, ECHO, 1, &payload, SLOT_LEN);
        assert_eq!(answer(&mut link, &mut back).unwrap().slot, by_memory);
        assert!(back == payload);
    }
}

/// Goal: a connection that has ended no longer counts among those that share.
#[test]
fn a_place_is_free_again() {
    let server = Running::start(StreamLimits { sharing: 1, ..StreamLimits::default() });
    for connection in 1..20 {
        // The newer one of a lane waits for the end of the older one, after its own welcome.
        let link = server.link(0, &Hello { connection, ..hello(1, SHARED_MEMORY) });
        drop(link);
        let until = Instant::now() + PATIENCE;
        let mut group = 100 * connection as u32;
        loop {
            group += 1;
            let link = server.link(0, &hello(group, SHARED_MEMORY));
            if free(&link) == SLOTS {
                break;
            }
            assert!(Instant::now() < until, "its place is taken for ever");
        }
    }
}

/// Goal: a request that nobody waits for any more keeps its slot until its answer has come; others go on in other slots,
/// and over the socket when there are none; what the late answer brings lands nowhere else.
#[test]
fn given_up_and_used_up() {
    let server = Running::start(StreamLimits::default());
    let mut link = server.link(0, &hello(1, SHARED_MEMORY));
    let mebibyte = |id: u64| 1 << 56 | id;
    for id in 1..=SLOTS as u64 {
        ask(&mut link, GATED, mebibyte(id), &[], SLOT_LEN);
        assert_eq!(free(&link), SLOTS - id as usize);
    }
    let error = link.recv(&mut [], Instant::now(), &|| false).unwrap_err();
    assert!(error.is_timeout() && link.is_usable());
    assert_eq!(free(&link), 0, "given back, and the server writes to it");
    // The same number once more, and one that finds no slot.
    ask(&mut link, GATED, mebibyte(1), &[], SLOT_LEN);
    ask(&mut link, ECHO, 100, &pattern(SLOT_LEN), SLOT_LEN);
    let mut into = vec![0; SLOT_LEN];
    for id in (1..=SLOTS as u64).chain([1]) {
        server.gate.send(()).unwrap();
        let header = answer(&mut link, &mut into).unwrap();
        assert_eq!(header.request, mebibyte(id));
        assert!(into.iter().all(|byte| *byte == id as u8));
    }
    let header = answer(&mut link, &mut into).unwrap();
    assert_eq!((header.request, header.slot), (100, 0));
    assert!(into == pattern(SLOT_LEN));
    assert_eq!(free(&link), SLOTS);
    let slots: Vec<u32> = (0..SLOTS + 2).map(|_| server.slot()).collect();
    assert_eq!(slots, [1, 2, 3, 4, 0, 0]);
    // One-way frames have no answer that would give a slot back.
    let header = Header { flags: Flags::ONE_WAY, ..Header::request(ECHO, 200) };
    link.ask(&header, &[], &pattern(SLOT_LEN), 0).unwrap();
    assert_eq!((free(&link), server.slot()), (SLOTS, 0));
}

/// Goal: a connection that ends while a request is in work takes its memory with it: the next one of the lane has other
/// pages, and what the service still does for the older one changes none of them.
#[test]
fn a_new_connection_has_new_memory() {
    let server = Running::start(StreamLimits::default());
    let mut old = server.link(0, &hello(1, SHARED_MEMORY));
    ask(&mut old, GATED, 1 << 56 | 5, &[], SLOT_LEN);
    assert_eq!(server.slot(), 1);
    drop(old);
    let (mut other, mut back) = (server.link(0, &hello(2, SHARED_MEMORY)), vec![0; SLOT_LEN]);
    other.slots.as_ref().unwrap().memory.put(1, &pattern(SLOT_LEN));
    // The late request is done now: before the newer connection of its lane is served.
    server.gate.send(()).unwrap();
    let mut new = server.link(0, &Hello { connection: 2, ..hello(1, SHARED_MEMORY) });
    ask(&mut new, ECHO, 1, &pattern(SLOT_LEN), SLOT_LEN);
    assert_eq!(answer(&mut new, &mut back).unwrap().slot, 1);
    assert!(back == pattern(SLOT_LEN));
    assert!(other.slots.as_ref().unwrap().memory.take(1, &mut back));
    assert!(back == pattern(SLOT_LEN));
    ask(&mut other, ECHO, 2, &[], 0);
    answer(&mut other, &mut []).unwrap();
}

/// Goal: who names a slot that is not there, or more bytes than one has, is closed with one line, and harms nobody.
#[test]
fn slots_that_are_not_there() {
    let server = Running::start(StreamLimits::default());
    let long = SLOT_LEN as u32 + 1;
    let bad =
        [(0, 1, 0), (0, SLOTS as u32 + 1, 0), (0, u32::MAX, 9), (0, 1, long), (1, 1, 0), (0, 1, u32::MAX)];
    for (group, (at, slot, payload_len)) in (1..).zip(bad) {
        // Without the bit in the first of them: no slot is there at all.
        let features = if group == 1 { 0 } else { SHARED_MEMORY };
        let mut link = server.link(at, &hello(group, features));
        let header = Header { slot, payload_len, ..Header::request(ECHO, 1) };
        let mut parts = link.into_parts();
        let sent = parts.outbound.send(parts.fd.as_fd(), &header, &[], &[], &mut || Err(Cause::TimedOut));
        sent.unwrap();
        link = Link::from_parts(parts);
        assert!(answer(&mut link, &mut []).is_err());
        let line = server.lines.recv_timeout(PATIENCE).unwrap();
        assert!(line.contains("of shared memory") || line.contains("the limits are"), "{line}");
    }
    let mut link = server.link(0, &hello(99, SHARED_MEMORY));
    ask(&mut link, ECHO, 1, &pattern(SHARED_FROM), SHARED_FROM);
    assert_eq!(answer(&mut link, &mut vec![0; SHARED_FROM]).unwrap().slot, 1);
    assert!(server.lines.try_recv().is_err());
}

/// Goal: an answer that names a slot which its request does not have is not believed, and the link not used again.
#[test]
fn answers_in_others_slots() {
    for (slot, len, fine) in [(1, 10, true), (2, 10, false), (0, 0, true)] {
        let mut slots = Slots::new(Memory::make().unwrap().0);
        let sent = pattern(SHARED_FROM);
        let (first, payload) = slots.place(Header::request(ECHO, 1), &[], &sent, 0);
        assert_eq!((first.slot, first.payload_len, payload.len()), (1, SHARED_FROM as u32, 0));
        let (second, _) = slots.place(Header::request(ECHO, 2), &[], &[], SHARED_FROM);
        assert_eq!((second.slot, second.payload_len), (2, 0));
        // Its answer could not be told from the first one's.
        assert_eq!(
            slots.place(Header::request(ECHO, 1), &[], &sent, 0),
            (Header::request(ECHO, 1), &sent[..])
        );
        let reply = Header { slot, payload_len: len as u32, ..first.reply() };
        let mut into = vec![0; len];
        assert_eq!(slots.answered(&reply, &mut into).is_ok(), fine);
        assert!(!fine || into == pattern(len));
        assert_eq!(slots.held, [if fine { None } else { Some(1) }, Some(2), None, None]);
        let nobody = Header { slot: 3, ..Header::request(ECHO, 3).reply() };
        assert!(slots.answered(&nobody, &mut []).is_err());
    }
}

/// Goal: memory that is not sealed is refused in the welcome, with a line; the connection goes on without.
#[test]
fn unsealed_memory_is_not_used() {
    let server = Running::start(StreamLimits::default());
    let brought = [
        Some(memfd(SLOT_LEN as u64, SealFlags::GROW)),
        Some(File::open("/dev/null").unwrap().into()),
        None,
        Some(memfd(SLOT_LEN as u64, SEALS)),
    ];
    for (group, descriptor) in (1..).zip(brought) {
        let refused = descriptor.is_some() && group != 4;
        let patience = socket::Patience { until: Instant::now() + PATIENCE, gives_up: &|| false };
        let (fd, info) = socket::connect(&server.at[0], patience).unwrap();
        let hello = hello(group, SHARED_MEMORY);
        let begun = Initiator::begin(&Keyring::insecure(), &hello, Protection::Local).unwrap();
        let (initiator, first) = begun;
        let mut outbound = Outbound::new(None);
        outbound.raw(&first[socket::send_beside(fd.as_fd(), &first, descriptor).unwrap()..]);
        outbound.flush(fd.as_fd(), &mut || Err(Cause::TimedOut)).unwrap();
        let mut file = File::from(fd);
        let mut length = [0; 2];
        file.read_exact(&mut length).unwrap();
        let mut said = vec![0; Initiator::follow(length).unwrap()];
        file.read_exact(&mut said).unwrap();
        let (welcome, seals, confirmation) = initiator.finish(&said).unwrap();
        assert_eq!(welcome.features, if group == 4 { SHARED_MEMORY } else { 0 });
        if refused {
            let line = server.lines.recv_timeout(PATIENCE).unwrap();
            assert!(line.contains("its memory is not used"), "{line}");
        }
        outbound.raw(&confirmation);
        let (fd, inbound, slots) = (file.into(), Inbound::new(seals.receive), None);
        let mut link =
            Link::from_parts(Parts { fd, info, welcome, group, inbound, outbound, slots, waits: true });
        let mut back = vec![0; SLOT_LEN];
        ask(&mut link, ECHO, 1, &pattern(SLOT_LEN), SLOT_LEN);
        assert_eq!(answer(&mut link, &mut back).unwrap().slot, 0);
        assert!(back == pattern(SLOT_LEN));
    }
}
