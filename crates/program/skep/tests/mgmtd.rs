//! `skep mgmtd` as a process: real sockets, real keys, kill -9.

use skep_net::{Endpoint, KeyFile, Keyring, Link};
use skep_types::{
    ClientId, ClusterId, Decode, FenceEpoch, Incarnation, LogSeq, MapVersion, NodeId, Role, ServiceKind, Uuid,
};
use skep_wire::mgmt::*;
use skep_wire::{Header, Hello, Message, Refusal, Status, VERSION_MAX, VERSION_MIN};
use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(120);

/// A running mgmtd in a directory of its own; killed at the end.
struct Mgmtd {
    dir: tempfile::TempDir,
    child: Option<Child>,
    keyring: Keyring,
}

impl Mgmtd {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let key = KeyFile::generate().unwrap();
        key.write(&dir.path().join("cluster.key")).unwrap();
        let path = |name: &str| dir.path().join(name).display().to_string();
        let config = format!(
            "key_file = {:?}\nrun_dir = {:?}\nlisten = [\"127.0.0.1:0\"]\nunix_socket = {:?}\nstate_dir = {:?}\nshards = 4\n",
            path("cluster.key"),
            path(""),
            path("s"),
            path("state")
        );
        std::fs::write(dir.path().join("mgmtd.toml"), config).unwrap();
        Self { dir, child: None, keyring: Keyring::new(&key) }
    }

    fn started() -> Self {
        let mut mgmtd = Self::new();
        mgmtd.start();
        mgmtd
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.dir.path().join(name)
    }

    fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_skep"));
        command.args(["mgmtd", "--config"]).arg(self.path("mgmtd.toml"));
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command
    }

    /// Starts it and waits until it says that it serves.
    fn start(&mut self) {
        let socket = self.path("ready");
        let _ = std::fs::remove_file(&socket);
        let listener = UnixListener::bind(&socket).unwrap();
        let log = std::fs::File::create(self.path("log")).unwrap();
        let mut command = self.command();
        self.child = Some(command.env("SKEP_READY_SOCKET", &socket).stderr(log).spawn().unwrap());
        let mut line = String::new();
        listener.accept().unwrap().0.read_to_string(&mut line).unwrap();
        assert!(line.starts_with("mgmtd "), "{line}");
    }

    /// Starts it where it must refuse; gives what it says.
    fn refusal(&self) -> String {
        let output = self.command().stderr(Stdio::piped()).output().unwrap();
        assert!(!output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    fn endpoint(&self) -> Endpoint {
        Endpoint::Unix(self.path("s"))
    }

    fn link(&self, role: Role) -> Link {
        self.dial(&self.keyring, hello(role)).unwrap()
    }

    fn dial(&self, keyring: &Keyring, hello: Hello) -> Result<Link, String> {
        Link::connect(&[self.endpoint()], keyring, &hello, Instant::now() + PATIENCE)
            .map_err(|e| e.to_string())
    }

    fn state(&self) -> std::path::PathBuf {
        self.path("state")
    }
}

impl Drop for Mgmtd {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", std::fs::read_to_string(self.path("log")).unwrap_or_default());
        }
        self.kill();
    }
}

fn hello(role: Role) -> Hello {
    Hello {
        version_min: VERSION_MIN,
        version_max: VERSION_MAX,
        features: 0,
        role,
        client: ClientId(0),
        incarnation: Incarnation(0),
        token: [0; 32],
        node: NodeId(0),
        group: 0,
        connection: 0,
        cluster: ClusterId::default(),
        epoch: FenceEpoch(0),
    }
}

fn ask<M: Message>(link: &mut Link, message: &M) -> Result<M::Reply, Refusal> {
    link.send(&Header::request(M::KIND, 1), &message.to_bytes(), &[]).unwrap();
    let frame = link.recv(&mut [], Instant::now() + PATIENCE, &|| false).unwrap();
    match frame.header.status {
        0 => Ok(M::Reply::from_bytes(frame.body).unwrap()),
        _ => Err(Refusal::from_bytes(frame.body).unwrap()),
    }
}

fn register(link: &mut Link, uuid: u8, service: ServiceKind) -> RegisterNodeReply {
    let address = Address { text: "127.0.0.1:1".into(), nic: String::new(), preference: 0 };
    let message = RegisterNode {
        domain: String::new(),
        uuid: Uuid([uuid; 16]),
        service,
        alias: String::new(),
        addresses: vec![address],
        machine: Uuid([1; 16]),
        incarnation: Incarnation(1),
        mark: 1,
        confirmed: 1,
        index: LogSeq(0),
        restored: false,
        registry: RegistryAge::default(),
    };
    let registry = ask(link, &message).unwrap().registry;
    // The second time it tells that it knows of this start, which mgmtd waits for.
    let reply = ask(link, &RegisterNode { registry, ..message }).unwrap();
    // How old the registry is changes with every registration.
    RegisterNodeReply { registry: RegistryAge::default(), ..reply }
}

fn open_session(link: &mut Link, uuid: u8) -> OpenSessionReply {
    let uuid = Uuid([uuid; 16]);
    ask(link, &OpenSession { uuid, host: "h".into(), mount: "/m".into(), machine: uuid }).unwrap()
}

/// Goal: ids, the map and sessions outlive kill -9 at any time; the map version rises all the same.
#[test]
fn what_was_answered_outlives_kill() {
    let mut mgmtd = Mgmtd::started();
    let mut server = mgmtd.link(Role::Server);
    let first = register(&mut server, 1, ServiceKind::Metad);
    let mut sessions = Vec::new();
    let mut version = MapVersion(0);
    for round in 1..=5u8 {
        let node = register(&mut mgmtd.link(Role::Server), 10 + round, ServiceKind::Storaged);
        sessions.push(open_session(&mut mgmtd.link(Role::Client), round).client);
        mgmtd.kill();
        mgmtd.start();
        let mut server = mgmtd.link(Role::Server);
        assert_eq!(register(&mut server, 10 + round, ServiceKind::Storaged), node);
        assert_eq!(register(&mut server, 1, ServiceKind::Metad), first);
        let map = ask(&mut server, &GetMap { known: MapVersion(0) }).unwrap();
        assert!(map.version > version && map.cluster == first.cluster);
        assert_eq!(map.nodes.len(), 2 + round as usize, "mgmtd itself, one metad, the storage servers");
        assert!(map.shards.len() == 4 && map.shards.iter().all(|shard| shard.members == [first.node]));
        version = map.version;
        assert_eq!(ask(&mut server, &GetFences {}).unwrap().sessions, sessions);
    }
}

/// Goal: while mgmtd waits for metadata servers to tell it that it is no older copy, `skep health` and `skep df` say so, and
/// for whom it waits; afterwards they do not.
#[test]
fn it_is_told_what_mgmtd_waits_for() {
    let mut mgmtd = Mgmtd::started();
    register(&mut mgmtd.link(Role::Server), 1, ServiceKind::Metad);
    let told = |mgmtd: &Mgmtd, word: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_skep"));
        command.arg(word).arg("--mgmtd").arg(format!("unix:{}", mgmtd.path("s").display()));
        let output = command.arg("--key").arg(mgmtd.path("cluster.key")).output().unwrap();
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat()
    };
    for waits in [false, true, false] {
        if waits {
            mgmtd.kill();
            mgmtd.start();
        }
        for word in ["health", "df"] {
            let told = told(&mgmtd, word);
            assert_eq!(told.contains("has not heard metad-"), waits, "skep {word}: {told}");
        }
        register(&mut mgmtd.link(Role::Server), 1, ServiceKind::Metad);
    }
}

/// Goal: each role may do its own and nothing else, whatever it claims; a session is proven by its
/// token, and an evicted client is told so.
#[test]
fn roles_and_sessions() {
    let mgmtd = Mgmtd::started();
    let client_keys = Keyring::new(&mgmtd.keyring.client_file());
    assert!(mgmtd.dial(&client_keys, hello(Role::Server)).is_err());
    let mut client = mgmtd.dial(&client_keys, hello(Role::Client)).unwrap();
    assert_eq!(ask(&mut client, &GetFences {}).unwrap_err().status, Status::ROLE);
    assert_eq!(ask(&mut client, &Evict { client: ClientId(1) }).unwrap_err().status, Status::ROLE);
    let session = open_session(&mut client, 1);
    let other = open_session(&mut client, 2);
    let proven = Hello {
        client: session.client,
        incarnation: session.incarnation,
        token: session.token,
        ..hello(Role::Client)
    };
    let forged = Hello { client: other.client, ..proven.clone() };
    assert!(mgmtd.dial(&client_keys, forged).unwrap_err().contains("does not prove"));
    let mut mount = mgmtd.dial(&client_keys, proven.clone()).unwrap();
    ask(&mut mount, &RenewSession { client: session.client }).unwrap();
    assert_eq!(
        ask(&mut mount, &CloseSession { client: other.client, died: false }).unwrap_err().status,
        Status::ROLE
    );
    assert_eq!(
        ask(&mut client, &CloseSession { client: other.client, died: false }).unwrap_err().status,
        Status::ROLE
    );
    let mut admin = mgmtd.link(Role::Admin);
    ask(&mut admin, &Evict { client: session.client }).unwrap();
    assert_eq!(ask(&mut mount, &RenewSession { client: session.client }).unwrap_err().status, Status::FENCED);
    let status = ask(&mut admin, &ClusterStatus {}).unwrap();
    assert_eq!((status.sessions.len(), status.epoch), (1, FenceEpoch(2)));
}

/// Goal: strangers are closed: another key, another cluster, garbage; the service goes on.
#[test]
fn strangers_are_closed() {
    let mgmtd = Mgmtd::started();
    let other_key = Keyring::new(&KeyFile::generate().unwrap());
    assert!(mgmtd.dial(&other_key, hello(Role::Server)).is_err());
    let astray = Hello { cluster: Uuid([7; 16]), ..hello(Role::Server) };
    assert!(mgmtd.dial(&mgmtd.keyring, astray).unwrap_err().contains("check the address of mgmtd"));
    let mut garbage = std::os::unix::net::UnixStream::connect(mgmtd.path("s")).unwrap();
    garbage.write_all(b"GET / HTTP/1.1\r\nHost: mgmtd\r\n\r\n").unwrap();
    garbage.set_read_timeout(Some(PATIENCE)).unwrap();
    // The end of the stream, or a reset: closed either way.
    let closed = garbage.read_to_end(&mut Vec::new());
    assert!(closed.is_ok() || closed.unwrap_err().kind() == std::io::ErrorKind::ConnectionReset);
    let mut admin = mgmtd.link(Role::Admin);
    let reply = ask(
        &mut admin,
        &SetTargetState { target: skep_types::TargetId(5), consistency: skep_types::Consistency::Good },
    );
    assert!(reply.unwrap_err().detail.contains("target list"));
    let mut short = mgmtd.link(Role::Admin);
    short.send(&Header::request(Evict::KIND, 1), b"\x01", &[]).unwrap();
    let frame = short.recv(&mut [], Instant::now() + PATIENCE, &|| false).unwrap();
    assert_eq!(frame.header.status, Status::MALFORMED.0);
}

fn empty(dir: &Path) {
    for entry in std::fs::read_dir(dir).unwrap() {
        std::fs::remove_file(entry.unwrap().path()).unwrap();
    }
}

/// Goal: it does not start twice on one directory, not without its log, and not without a key.
#[test]
fn it_refuses_to_start() {
    let mut mgmtd = Mgmtd::started();
    assert!(mgmtd.refusal().contains("another daemon"), "{}", mgmtd.refusal());
    mgmtd.kill();
    empty(&mgmtd.state().join("log"));
    assert!(mgmtd.refusal().contains("the log is gone"), "{}", mgmtd.refusal());
    std::fs::remove_file(mgmtd.path("cluster.key")).unwrap();
    assert!(mgmtd.refusal().contains("does not exist"), "{}", mgmtd.refusal());
    mgmtd.keyring.client_file().write(&mgmtd.path("cluster.key")).unwrap();
    assert!(mgmtd.refusal().contains("needs the cluster key"), "{}", mgmtd.refusal());
}
