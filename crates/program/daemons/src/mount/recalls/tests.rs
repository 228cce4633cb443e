//! Hearing, against a real server.

use super::*;
use skep_client::state::{Session, SessionState};
use skep_client::{Limits, Shared};
use skep_net::{
    ConnId, Endpoint, EventLimits, EventServer, KeyFile, Keyring, Listener, Log, Peer, PeerInfo, Replies,
    Service,
};
use skep_types::codec::Growing;
use skep_types::{
    ClientId, ClusterId, Encode, FenceEpoch, Incarnation, Ino, LogIndex, MapVersion, Millis, Reachability,
    ServiceKind, ShardId, Term,
};
use skep_wire::meta::{
    Event, Events, EventsReply, LockKind, LockOutcome, LockSpace, LockWish, Recalled, ShardStamp,
};
use skep_wire::mgmt::{Address, MapReply, NodeEntry, ShardEntry, ShardState};
use skep_wire::{Header, Hello, Message, Refusal, Welcome};

const PATIENCE: Duration = Duration::from_secs(60);
const METAD: NodeId = NodeId(1);
const TERM: Term = Term(3);
const SHARD: ShardId = ShardId(0);

/// Tells of the end of the wait for a lock to who asks, and notes what it was asked.
struct Teller {
    asked: Arc<Mutex<Vec<u16>>>,
    ticket: u64,
    answers: Vec<(ConnId, Header)>,
}

impl Service for Teller {
    fn hello(&mut self, _hello: &Hello, _peer: &PeerInfo) -> Result<Welcome, Refusal> {
        Ok(Welcome {
            version: 1,
            features: 0,
            service: ServiceKind::Metad,
            node: METAD,
            incarnation: Incarnation(1),
            cluster: ClusterId::default(),
            epoch: FenceEpoch(0),
        })
    }

    fn request(&mut self, conn: ConnId, _peer: &Peer, header: &Header, _body: &[u8], _payload: &[u8]) {
        self.asked.lock().unwrap().push(header.kind);
        self.answers.push((conn, *header));
    }

    fn round_end(&mut self, out: &mut Replies<'_>) {
        for (conn, header) in self.answers.drain(..) {
            let mut body = Vec::new();
            ShardStamp::new(TERM, LogIndex(1), LogIndex(1)).encode(&mut body);
            if header.kind == Events::KIND {
                let outcome = LockOutcome { ticket: self.ticket, errno: 35, term: TERM };
                let events = Growing(vec![Event::from(outcome)]);
                EventsReply { events, number: 1 }.encode(&mut body);
            }
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

/// A mount that has a session, and a server on which a program of it waits for a lock under the ticket.
fn waiting(leases: bool, keyring: &Keyring, at: &Endpoint) -> (Arc<Hands>, u64) {
    let shared = Shared::new(Limits { leases, ..Limits::default() });
    let hands = Hands::new(shared, keyring.clone(), Vec::new());
    let node = NodeEntry {
        node: METAD,
        service: ServiceKind::Metad,
        alias: "metad".to_owned(),
        addresses: vec![Address { text: at.to_string(), nic: String::new(), preference: 0 }],
        machine: hands.machine,
        reachability: Reachability::Online,
        incarnation: Incarnation(1),
        domain: String::new(),
    };
    let shard = ShardEntry {
        shard: SHARD,
        members: vec![METAD],
        leader: METAD,
        epoch: 1,
        state: ShardState::Active,
        era: 0,
        newer_are_lost: None,
    };
    let (nodes, shards) = (vec![node], vec![shard]);
    let map = MapReply { version: MapVersion(1), nodes, shards, command_level: 1, ..MapReply::default() };
    let ticket = hands.shared.with(|s| {
        assert_eq!(s.map.update(map), Ok(true));
        s.session = SessionState::Open(Session {
            client: ClientId(1),
            incarnation: Incarnation(1),
            token: [0; 32],
            cluster: ClusterId::default(),
            timeout_ms: 60_000,
            renewed: Millis(0),
        });
        s.shards.heard(SHARD, TERM);
        let kind = Some(LockKind::Write);
        let lock = LockWish { owner: 1, pid: 1, space: LockSpace::Range, kind, start: 0, last: 9 };
        let ticket = s.locks.wish(Ino::new(SHARD, 7), lock, 1);
        s.locks.waits(ticket, TERM);
        if leases {
            assert!(s.leases.term_is(SHARD, TERM, METAD), "it is to say that it uses nothing older");
        }
        ticket
    });
    (hands, ticket)
}

/// What the server was asked, once the mount has heard by `hear` that the wait is over.
fn asked(leases: bool, hear: impl FnOnce(&Arc<Ear>) + Send + 'static) -> Vec<u16> {
    let dir = tempfile::tempdir().unwrap();
    let keyring = Keyring::new(&KeyFile::generate().unwrap());
    let at = Endpoint::Unix(dir.path().join("m"));
    let (hands, ticket) = waiting(leases, &keyring, &at);
    let listeners = vec![Listener::bind(&at).unwrap()];
    let server = EventServer::new(listeners, keyring, EventLimits::default(), Log::new(|_| ())).unwrap();
    let (stop, asked) = (server.stop_handle(), Arc::<Mutex<Vec<u16>>>::default());
    let mut teller = Teller { asked: asked.clone(), ticket, answers: Vec::new() };
    let serving = std::thread::spawn(move || server.run(&mut teller));
    let keeper = Keeper::new(hands.clone());
    let ear = Ear::new(&hands, &keeper);
    let hearing = std::thread::spawn({
        let ear = ear.clone();
        move || hear(&ear)
    });
    let until = Instant::now() + PATIENCE;
    while keeper.told() != [ticket] || !ear.asked().is_empty() {
        assert!(Instant::now() < until, "told {:?}, asks {:?}", keeper.told(), ear.asked());
        std::thread::sleep(Duration::from_millis(1));
    }
    hands.end();
    hearing.join().unwrap();
    stop.stop();
    serving.join().unwrap().unwrap();
    std::mem::take(&mut *asked.lock().unwrap())
}

/// Goal: what became of a waiting lock is heard with leases and without, by one thread over io_uring and where there is none;
/// nobody asks any more when nobody waits.
#[test]
fn locks_are_heard_of_with_and_without_io_uring() {
    assert_eq!(asked(false, |ear| ear.by_ring().unwrap()), [Events::KIND]);
    assert_eq!(asked(false, |ear| ear.by_threads()), [Events::KIND]);
    assert_eq!(asked(true, |ear| ear.by_ring().unwrap()), [Recalled::KIND, Events::KIND]);
}

/// Goal: when the thread that hears cannot go on the mount has no leases from then on, shards are told what they are to hear all
/// the same, and locks go on being heard of.
#[test]
fn who_cannot_go_on_has_no_leases_and_has_locks() {
    let said = asked(true, |ear| {
        ear.without_ring(&io::Error::other("the ring is gone"));
        let sent = ear.hands.shared.with(|s| s.leases.sends(METAD, SHARD, Millis(1), true));
        assert!(!sent.wishes, "nobody would hear what is taken back");
    });
    assert_eq!(said, [Recalled::KIND, Events::KIND]);
}
