//! The blocking port of a lane: for each round of requests it takes a link to each node that it asks.

use super::hands::Hands;
use super::lane_hands::{ANSWER_DEADLINE, Asker, CONNECT_DEADLINE, LOOK_EVERY, LaneHands, MountPort};
use super::links::{Debts, LINKS_PER_METAD, LINKS_PER_SERVER, Seat, Taken};
use super::pages::{Notice, Told};
use skep_client::{Answer, Call, Dropped, MGMTD, Outcome, Port};
use skep_net::Link;
use skep_types::{ClientId, Ino, Millis, NodeId, Timestamp, Uuid};
use skep_wire::{Header, Status};
use std::cell::{Cell as Local, LazyCell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

/// A link of this round, and whose it is: another session needs another one.
struct Held {
    link: Link,
    client: ClientId,
    /// Among the mount's connections; mgmtd's are not counted.
    seat: Option<Seat>,
}

/// Wakes a thread that is parked.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

pub struct BlockingPort {
    lane: LaneHands,
    /// Of its connections to mgmtd.
    group: u32,
    links: RefCell<BTreeMap<NodeId, Held>>,
    debts: Debts,
    requests: Local<u64>,
}

/// A call that was sent.
struct Sent {
    at: usize,
    request: u64,
}

impl BlockingPort {
    /// Waits for a notice to arrive, or until there is no sense in it.
    fn notified(&self, notice: Option<(Arc<Told>, Instant)>) -> Dropped {
        let Some((told, until)) = notice else { return Dropped::Done };
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match told.wait(left.min(LOOK_EVERY)) {
                Some(became) => return became,
                None if left.is_zero() || self.cancelled() => return Dropped::Waits,
                None => {}
            }
        }
    }

    /// For the lane with this slot.
    pub fn new(hands: Arc<Hands>, group: u32) -> Self {
        let lane = LaneHands::new(hands);
        Self { lane, group, links: RefCell::default(), debts: Debts::default(), requests: Local::new(0) }
    }

    /// See [`LaneHands::client`].
    #[cfg(test)]
    pub fn client(&self) -> ClientId {
        self.lane.client()
    }

    /// See [`LaneHands::give_up`].
    #[cfg(test)]
    pub fn give_up(&self) {
        self.lane.give_up();
    }

    /// A link of the session of `client`; `None`: none can be made, or that is over.
    fn connect(&self, node: NodeId, client: ClientId) -> Option<Held> {
        let hands = &self.lane.hands;
        let most = if hands.is_storage(node) { LINKS_PER_SERVER } else { LINKS_PER_METAD };
        // From the first look on: most rounds find a connection at once.
        let until = LazyCell::new(|| Instant::now() + ANSWER_DEADLINE);
        let gives_up = || self.cancelled() || Instant::now() >= *until;
        loop {
            if node != MGMTD && self.lane.client() != client {
                return None;
            }
            let owed = self.debts.of(node);
            let (seat, group) = if node == MGMTD {
                (None, self.group)
            } else {
                match hands.links.take_blocking(node, most, client, owed, &gives_up)? {
                    Taken::Link(link, seat) => {
                        self.debts.owe(node, link.group());
                        match link.waiting() {
                            Ok(link) => return Some(Held { link, client, seat: Some(seat) }),
                            Err(_) => continue,
                        }
                    }
                    Taken::Connect(seat, group) => {
                        let group = group.unwrap_or_else(|| hands.next_group());
                        self.debts.owe(node, group);
                        (Some(seat), group)
                    }
                }
            };
            let hello = self.lane.hello(node, group);
            if node != MGMTD && hello.client != client {
                return None;
            }
            let deadline = Instant::now() + CONNECT_DEADLINE;
            let unless = || self.cancelled();
            match Link::connect_unless(&hands.endpoints(node), &hands.keyring, &hello, deadline, &unless) {
                Ok(link) => return Some(Held { link, client: hello.client, seat }),
                Err(e) => match seat {
                    Some(seat) => {
                        if !self.lane.connects_again(&self.debts, node, owed, group, seat, &e) {
                            return None;
                        }
                    }
                    None => {
                        if !e.is_cancelled() {
                            self.lane.unreachable(&e);
                        }
                        return None;
                    }
                },
            }
        }
    }

    fn exchange(&self, calls: &mut [Call<'_>]) {
        self.connect_all(calls);
        let sent = self.send_all(calls);
        for own in 0..sent.len() {
            self.receive(calls, &sent, own);
        }
        self.give_back();
    }

    /// Links to all nodes that are asked. In the order of their numbers, as all lanes do: nobody waits for one
    /// that is held by somebody who waits for his.
    fn connect_all(&self, calls: &[Call<'_>]) {
        let nodes: BTreeSet<(NodeId, ClientId)> = calls.iter().map(|call| (call.node, call.client)).collect();
        for (node, client) in nodes {
            if let Some(held) = self.connect(node, client) {
                self.links.borrow_mut().insert(node, held);
            }
        }
    }

    /// Every answer on what is left has come.
    fn give_back(&self) {
        for (node, Held { link, client, seat }) in self.links.take() {
            // Lanes ask mgmtd rarely; its connections are counted.
            if let Some(seat) = seat
                && link.is_usable()
            {
                self.debts.paid(node);
                self.lane.hands.links.give_back(link, seat, client);
            }
        }
    }

    /// Sends one call. `false`: the link is gone, and with it what was sent on it before.
    fn send(&self, call: &Call<'_>, request: u64) -> bool {
        let mut links = self.links.borrow_mut();
        let Some(held) = links.get_mut(&call.node) else { return false };
        let header = Header { epoch: call.epoch, ..Header::request(call.kind, request) };
        match held.link.ask(&header, call.body, call.payload, call.into.len()) {
            Ok(()) => true,
            Err(_) => {
                links.remove(&call.node);
                false
            }
        }
    }

    fn send_all(&self, calls: &mut [Call<'_>]) -> Vec<Sent> {
        let mut sent = Vec::with_capacity(calls.len());
        for (at, call) in calls.iter_mut().enumerate() {
            call.outcome = Outcome::Unreachable;
            if !self.links.borrow().contains_key(&call.node) {
                continue;
            }
            let request = self.requests.get() + 1;
            self.requests.set(request);
            // From the first byte on it may arrive.
            call.outcome = Outcome::Lost;
            if self.send(call, request) {
                sent.push(Sent { at, request });
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
        let gives_up = || self.cancelled() && (!changing || self.lane.leaves_changes());
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

impl Drop for BlockingPort {
    fn drop(&mut self) {
        self.debts.settle(&self.lane.hands);
    }
}

impl Port for BlockingPort {
    type Notice = Option<Arc<Told>>;

    async fn call(&self, calls: &mut [Call<'_>]) {
        match self.lane.hands.netbench.get() {
            None => self.exchange(calls),
            Some(netbench) => netbench.around(calls, async |calls| self.exchange(calls)).await,
        }
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

    async fn pause_before(&self, ms: u64, called: impl Future<Output = ()>) {
        let until = Instant::now() + Duration::from_millis(ms);
        let (mut called, waker) = (pin!(called), Waker::from(Arc::new(Unpark(std::thread::current()))));
        let mut context = Context::from_waker(&waker);
        while called.as_mut().poll(&mut context).is_pending() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || self.cancelled() {
                return;
            }
            std::thread::park_timeout(left.min(LOOK_EVERY));
        }
    }

    async fn drop_pages(&self, ino: Ino, from: u64, len: u64, patience: Option<u64>) -> bool {
        self.notified(self.lane.notify(ino, Notice::Drop { from, len }, patience)) == Dropped::Done
    }

    fn drop_name(&self, dir: Ino, name: &[u8]) -> Self::Notice {
        self.lane.tell(dir, Notice::Name(name.into()))
    }

    async fn noticed(&self, notice: &Self::Notice, patience: u64) -> Dropped {
        let until = Instant::now() + Duration::from_millis(patience);
        self.notified(notice.clone().map(|told| (told, until)))
    }

    fn drop_names(&self) -> Dropped {
        self.lane.drop_names()
    }

    fn has_mounts(&self) -> bool {
        self.lane.has_mounts()
    }

    fn drop_attributes(&self, ino: Ino) -> Dropped {
        self.lane.drop_attributes(ino)
    }

    async fn settle(&self, ino: Ino) -> bool {
        let told = self.lane.settle(ino);
        self.notified(told) == Dropped::Done
    }

    async fn tell_size(&self, ino: Ino, size: u64) -> bool {
        self.notified(self.lane.notify(ino, Notice::Size(size), None)) == Dropped::Done
    }

    fn now(&self) -> Millis {
        self.lane.now()
    }

    fn boot(&self) -> Millis {
        self.lane.boot()
    }

    fn wall(&self) -> Timestamp {
        self.lane.wall()
    }

    fn cancelled(&self) -> bool {
        self.lane.cancelled()
    }

    fn caller(&self) -> u32 {
        self.lane.caller()
    }

    fn wanted_for(&self, ms: Option<u64>) {
        self.lane.wanted_for(ms);
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

    fn is_lent(&self) {
        self.lane.hands.bell.ring();
    }

    fn is_asked(&self) {
        self.lane.hands.is_asked();
    }

    fn is_looked_at(&self) {
        self.lane.hands.is_looked_at();
    }
}

impl MountPort for BlockingPort {
    fn begin(&self, asker: &Asker<'_>) {
        self.lane.begin(asker);
    }

    fn hands(&self) -> &Hands {
        &self.lane.hands
    }
}
