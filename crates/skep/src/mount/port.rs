//! The blocking port of a lane: one link to each node it talks to, used by one thread.

use super::hands::Hands;
use super::lane_hands::{ANSWER_DEADLINE, CONNECT_DEADLINE, LOOK_EVERY, LaneHands, MountPort};
use skep_client::{Answer, Call, MGMTD, Outcome, Port};
use skep_net::Link;
use skep_types::{ClientId, Millis, NodeId, Timestamp, Uuid};
use skep_wire::{Header, Status};
use std::cell::{Cell as Local, RefCell};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A link, and whose it is: another session needs another one.
struct Held {
    link: Link,
    client: ClientId,
}

/// See the module.
pub struct BlockingPort {
    lane: LaneHands,
    group: u32,
    links: RefCell<BTreeMap<NodeId, Held>>,
    requests: Local<u64>,
}

/// A call that was sent.
struct Sent {
    at: usize,
    request: u64,
}

impl BlockingPort {
    /// For the lane with this slot.
    pub fn new(hands: Arc<Hands>, group: u32) -> Self {
        Self { lane: LaneHands::new(hands), group, links: RefCell::default(), requests: Local::new(0) }
    }

    /// See [`LaneHands::give_up`].
    #[cfg(test)]
    pub fn give_up(&self) {
        self.lane.give_up();
    }

    /// Makes sure that there is a link of the present session.
    fn connect(&self, node: NodeId) -> bool {
        let client = self.lane.client();
        let mut links = self.links.borrow_mut();
        if links.get(&node).is_some_and(|held| held.client == client && held.link.is_usable()) {
            return true;
        }
        links.remove(&node);
        let hello = self.lane.hello(self.group);
        let (hands, deadline) = (&self.lane.hands, Instant::now() + CONNECT_DEADLINE);
        match Link::connect(&hands.endpoints(node), &hands.keyring, &hello, deadline) {
            Ok(link) => {
                links.insert(node, Held { link, client: hello.client });
                true
            }
            Err(e) => {
                self.lane.unreachable(&e);
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
        // A change that was sent must not be left behind: it could land at any time later.
        let changing = calls.iter().any(|call| call.changing && call.outcome != Outcome::Unreachable);
        let gives_up = || !changing && self.cancelled();
        while calls[sent[own].at].outcome == Outcome::Lost {
            let Some(held) = links.get_mut(&node) else { return };
            let (incarnation, call) = (held.link.welcome().incarnation, &mut calls[sent[own].at]);
            let frame = match held.link.recv(call.into, deadline, &gives_up) {
                Ok(frame) => frame,
                Err(e) => {
                    if !e.is_cancelled() {
                        self.lane.hands.say(format_args!("{e}"));
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
                    self.lane.hands.say(format_args!(
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
            std::thread::sleep(left.min(LOOK_EVERY));
        }
    }

    fn now(&self) -> Millis {
        self.lane.now()
    }

    fn wall(&self) -> Timestamp {
        self.lane.wall()
    }

    fn cancelled(&self) -> bool {
        self.lane.cancelled()
    }

    fn uuid(&self) -> Uuid {
        self.lane.uuid()
    }

    fn log(&self, line: fmt::Arguments<'_>) {
        self.lane.hands.say(line);
    }

    fn work_waits(&self) {
        self.lane.hands.work_waits();
    }
}

impl MountPort for BlockingPort {
    fn begin(&self, interrupt: &skep_fuse::Interrupt<'_>) {
        self.lane.begin(interrupt);
    }
}
