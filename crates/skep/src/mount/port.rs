//! The blocking port of a lane: one link to each node it talks to, used by one thread.

use super::hands::Hands;
use crate::caller::hello;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use skep_client::{Answer, Call, Cell, INTERRUPT_AFTER_MS, MGMTD, Outcome, Port};
use skep_net::Link;
use skep_types::{ClientId, Millis, NodeId, Role, Timestamp, Uuid};
use skep_wire::{Header, Hello, Status};
use std::cell::{Cell as Local, RefCell};
use std::collections::BTreeMap;
use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A node must take a connection within this time.
const CONNECT_DEADLINE: Duration = Duration::from_secs(5);
/// A node must answer within this time; longer than any server lets a request wait (20 s).
const ANSWER_DEADLINE: Duration = Duration::from_secs(40);
/// A pause looks this often whether the program gave up.
const PAUSE_SLICE: Duration = Duration::from_millis(100);

/// A link, and whose it is: another session needs another one.
struct Held {
    link: Link,
    client: ClientId,
}

/// See the module.
pub struct BlockingPort {
    hands: Arc<Hands>,
    group: u32,
    links: RefCell<BTreeMap<NodeId, Held>>,
    requests: Local<u64>,
    started: Local<Instant>,
    /// Trying to get a session will fail again until a person changes something (a key, a version).
    hopeless: Local<bool>,
    /// Readable while the program of the present request has a signal.
    interrupt: RefCell<Option<OwnedFd>>,
}

/// A call that was sent.
struct Sent {
    at: usize,
    request: u64,
}

impl BlockingPort {
    /// For the lane with this slot.
    pub fn new(hands: Arc<Hands>, group: u32) -> Self {
        Self {
            hands,
            group,
            links: RefCell::default(),
            requests: Local::new(0),
            started: Local::new(Instant::now()),
            hopeless: Local::new(false),
            interrupt: RefCell::new(None),
        }
    }

    /// An operation begins for a program whose signals make `interrupt` known.
    pub fn begin(&self, interrupt: &skep_fuse::Interrupt<'_>) {
        self.started.set(Instant::now());
        // Drains what an earlier request of this worker left behind.
        let _ = interrupt.is_set();
        if self.interrupt.borrow().is_none() {
            // Without one the operation can still be waited for, up to the retry limit.
            let copy = interrupt.descriptor().ok().and_then(|fd| fd.try_clone_to_owned().ok());
            self.interrupt.replace(copy);
        }
    }

    fn hello(&self) -> Hello {
        let mut hello = Hello { group: self.group, ..hello(Role::Client) };
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

    /// Makes sure that there is a link of the present session.
    fn connect(&self, node: NodeId) -> bool {
        let client = self.hands.shared.with(|s| s.session.open().map_or(ClientId(0), |s| s.client));
        let mut links = self.links.borrow_mut();
        if links.get(&node).is_some_and(|held| held.client == client && held.link.is_usable()) {
            return true;
        }
        links.remove(&node);
        let mut hello = self.hello();
        hello.connection = self.hands.next_connection();
        let deadline = Instant::now() + CONNECT_DEADLINE;
        match Link::connect(&self.hands.endpoints(node), &self.hands.keyring, &hello, deadline) {
            Ok(link) => {
                links.insert(node, Held { link, client: hello.client });
                true
            }
            Err(e) => {
                self.hopeless.set(e.is_permanent() && client == ClientId(0));
                self.hands.unreachable(&e);
                false
            }
        }
    }

    /// Sends one call. `false`: the link is gone, and with it what was sent on it before.
    fn send(&self, call: &Call<'_>, request: u64) -> bool {
        let mut links = self.links.borrow_mut();
        let Some(held) = links.get_mut(&call.node) else { return false };
        let header = Header { epoch: call.epoch, ..Header::request(call.kind, request) };
        match held.link.send(&header, call.body, call.payload) {
            Ok(()) => true,
            Err(_) => {
                links.remove(&call.node);
                false
            }
        }
    }

    fn send_all(&self, calls: &mut [Call<'_>]) -> Vec<Sent> {
        let mut sent = Vec::with_capacity(calls.len());
        let mut failed: Vec<NodeId> = Vec::new();
        for (at, call) in calls.iter_mut().enumerate() {
            call.outcome = Outcome::Unreachable;
            if failed.contains(&call.node) {
                continue;
            }
            if !self.connect(call.node) {
                failed.push(call.node);
                continue;
            }
            let request = self.requests.get() + 1;
            self.requests.set(request);
            // From the first byte on it may arrive.
            call.outcome = Outcome::Lost;
            match self.send(call, request) {
                true => sent.push(Sent { at, request }),
                false => failed.push(call.node),
            }
        }
        sent
    }

    /// Waits for the answer to one call. Answers of the same node to other calls of the round may
    /// come first; those have no payload, and are put where they belong.
    fn receive(&self, calls: &mut [Call<'_>], sent: &[Sent], own: usize) {
        let node = calls[sent[own].at].node;
        let mut links = self.links.borrow_mut();
        let deadline = Instant::now() + ANSWER_DEADLINE;
        while calls[sent[own].at].outcome == Outcome::Lost {
            let Some(held) = links.get_mut(&node) else { return };
            let (incarnation, call) = (held.link.welcome().incarnation, &mut calls[sent[own].at]);
            let frame = match held.link.recv(call.into, deadline, &|| self.cancelled()) {
                Ok(frame) => frame,
                Err(e) => {
                    if !e.is_cancelled() {
                        self.hands.say(format_args!("{e}"));
                    }
                    // A late answer must not be taken for that of a later request.
                    links.remove(&node);
                    return;
                }
            };
            let answer = Answer {
                status: Status(frame.header.status),
                body: frame.body.to_vec(),
                payload_len: frame.header.payload_len as usize,
                incarnation,
                epoch: frame.header.epoch,
            };
            let (request, payload) = (frame.header.request, frame.header.payload_len);
            let place = sent.iter().find(|sent| sent.request == request && calls[sent.at].node == node);
            match place {
                Some(place) if place.request == sent[own].request || payload == 0 => {
                    calls[place.at].outcome = Outcome::Answer(answer);
                }
                _ => {
                    self.hands.say(format_args!(
                        "{}: an answer that belongs to no request; connecting again",
                        held.link.peer().address
                    ));
                    links.remove(&node);
                    return;
                }
            }
        }
    }
}

impl Port for BlockingPort {
    async fn call(&self, calls: &mut [Call<'_>]) {
        let sent = self.send_all(calls);
        for own in 0..sent.len() {
            self.receive(calls, &sent, own);
        }
        // Lanes ask mgmtd rarely; its connections are counted.
        self.links.borrow_mut().remove(&MGMTD);
    }

    async fn pause(&self, ms: u64) {
        let until = Instant::now() + Duration::from_millis(ms);
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || self.cancelled() {
                return;
            }
            std::thread::sleep(left.min(PAUSE_SLICE));
        }
    }

    fn now(&self) -> Millis {
        Millis(self.hands.born.elapsed().as_millis() as u64)
    }

    fn wall(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp { secs: since.as_secs() as i64, nanos: since.subsec_nanos() }
    }

    fn cancelled(&self) -> bool {
        if self.hopeless.get() {
            return true;
        }
        if self.started.get().elapsed() < Duration::from_millis(INTERRUPT_AFTER_MS) {
            return false;
        }
        let interrupt = self.interrupt.borrow();
        let Some(interrupt) = interrupt.as_ref() else { return false };
        let mut polled = [PollFd::new(interrupt, PollFlags::IN)];
        matches!(poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })), Ok(1))
    }

    fn uuid(&self) -> Uuid {
        crate::identity::random_uuid().unwrap_or_else(|e| {
            // A session's identity only has to differ from others'.
            self.hands.say(format_args!("{e}"));
            let mut raw = [0; 16];
            raw[..8].copy_from_slice(&self.wall().secs.to_le_bytes());
            raw[8..12].copy_from_slice(&self.wall().nanos.to_le_bytes());
            raw[12..].copy_from_slice(&std::process::id().to_le_bytes());
            Uuid(raw)
        })
    }

    fn log(&self, line: fmt::Arguments<'_>) {
        self.hands.say(line);
    }

    fn work_waits(&self) {
        self.hands.work_waits();
    }
}
