//! A daemon and a management service that forgets, changes or refuses.

use super::*;
use crate::identity::StateDir;
use skep_net::{
    ConnId, EventLimits, EventServer, Listener, Log, Peer, PeerInfo, Replies, Service, StopHandle,
};
use skep_types::{ClientId, Millis, Reader};
use skep_wire::Header;
use skep_wire::mgmt::{HeartbeatReply, MgmtRequest};
use std::sync::atomic::{AtomicU32, Ordering};

const OWN: ClusterId = Uuid([1; 16]);
const OTHER: ClusterId = Uuid([2; 16]);

/// What the service says, changed by the test while it runs.
#[derive(Debug, Clone)]
struct Script {
    cluster: ClusterId,
    knows: bool,
    /// Another process has taken the daemon's place.
    superseded: bool,
    registrations: u32,
    /// Map that the last heartbeat said to act upon.
    map_told: MapVersion,
    /// Maps that were said to be held when one was asked for.
    maps_asked: Vec<MapVersion>,
    /// What the map is told as a difference to, whatever is held.
    base: MapVersion,
}

struct Fake {
    script: Arc<Mutex<Script>>,
    pending: Vec<(ConnId, Header, MgmtRequest)>,
}

impl Service for Fake {
    fn hello(&mut self, hello: &Hello, _peer: &PeerInfo) -> Result<Welcome, Refusal> {
        Ok(Welcome {
            version: VERSION_MAX.min(hello.version_max),
            features: 0,
            service: ServiceKind::Mgmtd,
            node: NodeId(1),
            incarnation: Incarnation(1),
            cluster: self.script.lock().unwrap().cluster,
            epoch: FenceEpoch(1),
        })
    }

    fn request(&mut self, conn: ConnId, _peer: &Peer, header: &Header, body: &[u8], _payload: &[u8]) {
        let request = MgmtRequest::decode(header.kind, &mut Reader::new(body)).unwrap().unwrap();
        self.pending.push((conn, *header, request));
    }

    fn round_end(&mut self, out: &mut Replies<'_>) {
        let mut script = self.script.lock().unwrap();
        for (conn, header, request) in self.pending.drain(..) {
            match request {
                MgmtRequest::RegisterNode(m) => {
                    script.registrations += 1;
                    let (node, alias) = (NodeId(2), m.alias);
                    let (cluster, epoch, registry) = (script.cluster, FenceEpoch(1), RegistryAge::default());
                    let reply = RegisterNodeReply { node, alias, cluster, epoch, registry };
                    out.answer(conn, &header, &reply);
                }
                MgmtRequest::Heartbeat(m) if script.knows => {
                    script.map_told = m.map;
                    let (map, epoch) = (MapVersion(5), FenceEpoch(1));
                    out.answer(
                        conn,
                        &header,
                        &HeartbeatReply {
                            map,
                            epoch,
                            ended: 0,
                            registry: RegistryAge { start: 3, changes: 4 },
                        },
                    );
                }
                MgmtRequest::GetMap(m) => {
                    let reply = MapReply {
                        version: MapVersion(5),
                        base: if m.known == MapVersion(0) { m.known } else { script.base },
                        cluster: script.cluster,
                        command_level: 1,
                        ..MapReply::default()
                    };
                    script.maps_asked.push(m.known);
                    out.answer(conn, &header, &reply);
                }
                MgmtRequest::GetFences(_) => {
                    let epoch = FenceEpoch(1);
                    let reply = FencesReply { epoch, fences: vec![], sessions: vec![], closed: vec![] };
                    out.answer(conn, &header, &reply);
                }
                MgmtRequest::Heartbeat(_) if script.superseded => {
                    let refusal = Refusal::with(Status::errno(Errno::ESTALE), "superseded: look at node 2");
                    out.refuse(conn, &header, &refusal);
                }
                _ => {
                    let refusal = Refusal::with(Status::errno(Errno::ENOENT), "node 2 is not registered");
                    out.refuse(conn, &header, &refusal);
                }
            }
        }
    }

    fn next_deadline(&self) -> Option<Millis> {
        None
    }

    fn epoch(&self) -> FenceEpoch {
        FenceEpoch(1)
    }
}

/// The service in a thread of its own, on a socket that goes away with the directory.
struct Running {
    dir: tempfile::TempDir,
    script: Arc<Mutex<Script>>,
    stop: StopHandle,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    fn start() -> Self {
        Self::start_in(tempfile::tempdir().unwrap())
    }

    fn start_in(dir: tempfile::TempDir) -> Self {
        let script = Script {
            cluster: OWN,
            knows: true,
            superseded: false,
            registrations: 0,
            map_told: MapVersion(9),
            maps_asked: Vec::new(),
            base: MapVersion(0),
        };
        let script = Arc::new(Mutex::new(script));
        let listener = Listener::bind(&Endpoint::Unix(dir.path().join("s"))).unwrap();
        let limits = EventLimits::default();
        let log = Log::new(|line| eprintln!("{line}"));
        let server = EventServer::new(vec![listener], Keyring::insecure(), limits, log).unwrap();
        let stop = server.stop_handle();
        let mut fake = Fake { script: script.clone(), pending: Vec::new() };
        let thread = std::thread::spawn(move || server.run(&mut fake).unwrap());
        Self { dir, script, stop, thread: Some(thread) }
    }

    fn join(&self) -> Membership {
        join(self.dir.path()).unwrap()
    }

    fn change(&self, change: impl FnOnce(&mut Script)) {
        change(&mut self.script.lock().unwrap());
    }

    fn now(&self) -> Script {
        self.script.lock().unwrap().clone()
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

fn join(dir: &std::path::Path) -> Result<Membership, String> {
    let introduction = Introduction {
        uuid: Uuid([7; 16]),
        service: ServiceKind::Storaged,
        alias: "disk-a".to_owned(),
        addresses: Vec::new(),
        domain: String::new(),
        index: LogSeq(0),
        restored: false,
    };
    let state = StateDir::open(&dir.join("state"), "storaged").unwrap();
    let memory = state.begin_life().unwrap();
    let endpoint = Endpoint::Unix(dir.join("s"));
    let (keyring, stop) = (Arc::new(Keyring::insecure()), Stop::new().unwrap());
    Membership::join(keyring, vec![endpoint], introduction, memory, &stop)
}

#[derive(Default)]
struct Daemon {
    maps: AtomicU32,
    fences: AtomicU32,
}

impl Member for Daemon {
    fn report(&self) -> Report {
        Report::default()
    }

    fn map(&self, _map: MapReply) {
        self.maps.fetch_add(1, Ordering::SeqCst);
    }

    fn fences(&self, _fences: FencesReply) {
        self.fences.fetch_add(1, Ordering::SeqCst);
    }
}

/// Goal: map and fences come once, and a heartbeat says which map the daemon acts upon.
#[test]
fn what_is_known_is_not_fetched_again() {
    let mgmtd = Running::start();
    let (mut membership, daemon, mut known) = (mgmtd.join(), Daemon::default(), Known::default());
    membership.beat(&daemon, &mut known).unwrap();
    assert_eq!(mgmtd.now().map_told, MapVersion(0), "none yet");
    for _ in 0..3 {
        membership.beat(&daemon, &mut known).unwrap();
    }
    assert_eq!(mgmtd.now().map_told, MapVersion(5));
    assert_eq!((daemon.maps.load(Ordering::SeqCst), daemon.fences.load(Ordering::SeqCst)), (1, 1));
}

/// Goal: a daemon says which map it holds and gives its parts the merged one; a difference to another map is not used, the
/// whole is asked for.
#[test]
fn a_difference_that_does_not_fit_is_not_used() {
    let mgmtd = Running::start();
    let (mut membership, daemon, mut known) = (mgmtd.join(), Daemon::default(), Known::default());
    let held = MapReply { version: MapVersion(3), ..MapReply::default() };
    assert_eq!(known.map.take(held), Ok(true));
    mgmtd.change(|script| script.base = MapVersion(2));
    membership.beat(&daemon, &mut known).unwrap();
    assert_eq!(mgmtd.now().maps_asked, [MapVersion(3), MapVersion(0)]);
    assert_eq!((known.map.version(), daemon.maps.load(Ordering::SeqCst)), (MapVersion(5), 1));
    assert_eq!(known.map.map().cluster, OWN);
}

/// Goal: a daemon that mgmtd forgot registers again by itself, and goes on.
#[test]
fn a_forgotten_daemon_registers_again() {
    let mgmtd = Running::start();
    let (mut membership, daemon, mut known) = (mgmtd.join(), Daemon::default(), Known::default());
    assert_eq!((mgmtd.now().registrations, membership.place.cluster), (1, OWN));
    mgmtd.change(|script| script.knows = false);
    membership.beat(&daemon, &mut known).unwrap();
    assert_eq!(mgmtd.now().registrations, 2);
    mgmtd.change(|script| script.knows = true);
    membership.beat(&daemon, &mut known).unwrap();
    assert_eq!((membership.place.node, membership.place.cluster), (NodeId(2), OWN));
}

/// Goal: a daemon that another process has superseded does not register again, it is told to end, with the words of
/// mgmtd; and the newest registry that it saw is remembered.
#[test]
fn a_superseded_daemon_ends() {
    let mgmtd = Running::start();
    let (mut membership, daemon, mut known) = (mgmtd.join(), Daemon::default(), Known::default());
    membership.beat(&daemon, &mut known).unwrap();
    assert_eq!(membership.memory.seen(), RegistryAge { start: 3, changes: 4 });
    mgmtd.change(|script| (script.knows, script.superseded) = (false, true));
    let stop = Stop::new().unwrap();
    let pause = Duration::from_secs(60);
    let thread =
        membership.keep(Arc::new(daemon), pause, Nudge::default(), Vigil::new(pause, stop.clone())).unwrap();
    assert!(thread.join().unwrap().unwrap_err().contains("look at node 2"));
    assert!(stop.is_set());
    assert_eq!(mgmtd.now().registrations, 1);
}

/// Goal: a process that was stopped for longer than heartbeats take waits for the next one, and answers nobody when that
/// says that it is superseded.
#[test]
fn a_process_that_was_away_asks_first() {
    let stop = Stop::new().unwrap();
    let vigil = Vigil::new(Duration::from_secs(1), stop.clone());
    vigil.asked();
    let now = Instant::now();
    assert!(!vigil.was_away(now + Duration::from_secs(6)) && vigil.wait());
    assert!(vigil.was_away(now + Duration::from_secs(8)));
    let away = Vigil { longest: Duration::ZERO, ..vigil.clone() };
    let waits = std::thread::spawn(move || away.wait());
    stop.set();
    assert!(!waits.join().unwrap());
}

/// Goal: a management service of another cluster at the same address is no reason to change sides: the
/// daemon keeps its place and says what is wrong, at every heartbeat anew.
#[test]
fn another_cluster_is_not_joined() {
    let mgmtd = Running::start();
    let (mut membership, daemon, mut known) = (mgmtd.join(), Daemon::default(), Known::default());
    mgmtd.change(|script| (script.cluster, script.knows) = (OTHER, false));
    for _ in 0..2 {
        let text = membership.beat(&daemon, &mut known).unwrap_err().to_string();
        assert!(text.contains("of cluster") && text.contains("check the mgmtd addresses"), "{text}");
        assert_eq!(membership.place.cluster, OWN);
    }
    assert_eq!(daemon.maps.load(Ordering::SeqCst), 0);
}

/// Goal: peers of another cluster, and clients that prove no session, are sent away with a reason.
#[test]
fn strangers_are_not_greeted() {
    let dir = tempfile::tempdir().unwrap();
    let key = skep_net::KeyFile::generate().unwrap();
    key.write(&dir.path().join("key")).unwrap();
    let keyring = Keyring::new(&key);
    let place = RegisterNodeReply {
        node: NodeId(2),
        alias: "disk-a".to_owned(),
        cluster: OWN,
        epoch: FenceEpoch(1),
        registry: RegistryAge::default(),
    };
    let greeter = Greeter {
        place: &place,
        incarnation: Incarnation(3),
        keyring: &keyring,
        service: ServiceKind::Storaged,
        epoch: FenceEpoch(4),
    };
    let hello = |role| crate::caller::hello(role);
    let welcome = greeter.welcome(&hello(Role::Server)).unwrap();
    assert_eq!((welcome.node, welcome.epoch, welcome.cluster), (NodeId(2), FenceEpoch(4), OWN));
    let stranger = Hello { cluster: OTHER, ..hello(Role::Server) };
    let refusal = greeter.welcome(&stranger).unwrap_err();
    assert!(refusal.detail.contains("disk-a") && refusal.detail.contains("mgmtd"), "{refusal}");
    let client =
        |token| Hello { client: ClientId(9), incarnation: Incarnation(1), token, ..hello(Role::Client) };
    assert_eq!(greeter.welcome(&client([0; 32])).unwrap_err().status, Status::FENCED);
    let token = keyring.token(ClientId(9), Incarnation(1)).unwrap();
    assert!(greeter.welcome(&client(token)).is_ok());
}

/// Goal: a daemon that meets a management service which dies during the handshake waits for the next one; only one that
/// does so again and again is taken for one with another key, and said to be.
#[test]
fn a_dying_service_is_not_a_wrong_key() {
    use std::io::Read;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let dies = |listener: &std::os::unix::net::UnixListener| {
        let (mut asked, _) = listener.accept().unwrap();
        assert!(asked.read(&mut [0; 1 << 16]).unwrap() > 0);
    };
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let place = dir.path().to_owned();
    let joining = std::thread::spawn(move || join(&place));
    dies(&listener);
    drop(listener);
    std::fs::remove_file(&path).unwrap();
    let mgmtd = Running::start_in(dir);
    joining.join().unwrap().unwrap();
    assert_eq!(mgmtd.now().registrations, 1);
    drop(mgmtd);

    let dir = tempfile::tempdir().unwrap();
    let listener = std::os::unix::net::UnixListener::bind(dir.path().join("s")).unwrap();
    let place = dir.path().to_owned();
    let joining = std::thread::spawn(move || join(&place));
    (0..HOPELESS).for_each(|_| dies(&listener));
    let said = joining.join().unwrap().err().unwrap();
    assert!(said.contains("during the handshake"), "{said}");
}
