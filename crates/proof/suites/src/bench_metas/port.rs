//! The hands of one thread of the load: blocking connections of its own to each server, by the real protocol.

use skep_client::{Answer, Call, Cell, Dropped, MGMTD, Outcome, Port, Shared};
use skep_net::{Endpoint, Keyring, Link};
use skep_types::{Incarnation, Ino, Millis, NodeId, Role, Timestamp, Uuid};
use skep_wire::{Header, Hello, Status};
use std::cell::{Cell as Local, RefCell};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A server takes a connection, and answers, within this time.
const DEADLINE: Duration = Duration::from_secs(40);

/// The client's state behind a lock.
#[derive(Clone)]
pub struct SharedCell(Arc<Mutex<Shared>>);

impl SharedCell {
    /// Of a client that knows nothing yet.
    pub fn new(shared: Shared) -> Self {
        Self(Arc::new(Mutex::new(shared)))
    }
}

impl Cell<Shared> for SharedCell {
    fn with<R>(&self, f: impl FnOnce(&mut Shared) -> R) -> R {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// What all threads share.
pub struct Hands {
    /// The client's state.
    pub shared: SharedCell,
    /// The key of the cluster.
    pub keyring: Keyring,
    /// Where mgmtd is.
    pub mgmtd: Vec<Endpoint>,
    /// Zero of the clock.
    pub born: Instant,
    /// Numbers of connections: a server drops what older ones of a group hold.
    pub connections: AtomicU64,
}

/// See the module.
pub struct OwnLinks {
    hands: Arc<Hands>,
    group: u32,
    links: RefCell<BTreeMap<NodeId, Link>>,
    requests: Local<u64>,
}

impl OwnLinks {
    /// For the lane of this slot.
    pub fn new(hands: Arc<Hands>, group: u32) -> Self {
        Self { hands, group, links: RefCell::default(), requests: Local::new(0) }
    }

    fn hello(&self) -> Hello {
        let connection = self.hands.connections.fetch_add(1, Ordering::Relaxed) + 1;
        let mut hello = Hello { group: self.group, connection, ..skep_base::caller::hello(Role::Client) };
        self.hands.shared.with(|s| {
            hello.epoch = s.epoch;
            if let Some(session) = s.session.open() {
                hello.client = session.client;
                hello.incarnation = session.incarnation;
                hello.token = session.token;
                hello.cluster = session.cluster;
            }
        });
        hello
    }

    fn connect(&self, node: NodeId) -> Option<Link> {
        let own = skep_net::machine_id();
        let endpoints = match node {
            MGMTD => self.hands.mgmtd.clone(),
            _ => self.hands.shared.with(|s| {
                s.map.node(node).map(|entry| skep_net::choose(&entry.addresses, entry.machine, own))
            })?,
        };
        let made = Link::connect(&endpoints, &self.hands.keyring, &self.hello(), Instant::now() + DEADLINE);
        made.inspect_err(|e| self.log(format_args!("{e}"))).ok()
    }

    /// One call after the other: each thread of the load waits for one answer at a time.
    fn one(&self, call: &mut Call<'_>) -> Outcome {
        let mut links = self.links.borrow_mut();
        let mut link = match links.remove(&call.node) {
            Some(link) => link,
            None => match self.connect(call.node) {
                Some(link) => link,
                None => return Outcome::Unreachable,
            },
        };
        let request = self.requests.get() + 1;
        self.requests.set(request);
        let header = Header { epoch: call.epoch, ..Header::request(call.kind, request) };
        if let Err(e) = link.send(&header, call.body, call.payload) {
            self.log(format_args!("{e}"));
            return Outcome::Lost;
        }
        let incarnation: Incarnation = link.welcome().incarnation;
        let answer = match link.recv(call.into, Instant::now() + DEADLINE, &|| false) {
            Ok(frame) => Answer {
                status: Status(frame.header.status),
                body: frame.body.to_vec(),
                payload_len: frame.header.payload_len as usize,
                incarnation,
                epoch: frame.header.epoch,
            },
            Err(e) => {
                self.log(format_args!("{e}"));
                return Outcome::Lost;
            }
        };
        // A connection shows the session that there was when it was made, and mgmtd must see the present one.
        if call.node != MGMTD {
            links.insert(call.node, link);
        }
        Outcome::Answer(answer)
    }
}

impl Port for OwnLinks {
    type Notice = ();

    fn drop_name(&self, _: Ino, _: &[u8]) {}

    async fn noticed(&self, (): &(), _: u64) -> Dropped {
        Dropped::Done
    }

    async fn call(&self, calls: &mut [Call<'_>]) {
        for call in calls {
            call.outcome = self.one(call);
        }
    }

    async fn pause(&self, ms: u64) {
        std::thread::sleep(Duration::from_millis(ms));
    }

    fn now(&self) -> Millis {
        Millis(self.hands.born.elapsed().as_millis() as u64)
    }

    fn wall(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp { secs: since.as_secs() as i64, nanos: since.subsec_nanos() }
    }

    fn uuid(&self) -> Uuid {
        skep_base::identity::random_uuid().unwrap_or(Uuid([7; 16]))
    }

    fn log(&self, line: fmt::Arguments<'_>) {
        eprintln!("load: {line}");
    }
}
