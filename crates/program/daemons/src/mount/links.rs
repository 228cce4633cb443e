//! The connections of a mount: few to each server, shared by all its lanes, and never more than the process
//! has descriptors for.
//!
//! A lane takes a connection for one round of requests and gives it back. Where a server has as many as it may
//! have, lanes wait in line for one. A server that refuses another one (it is at its limit) is not asked for
//! more for a while: the mount works with those that it has. One that nobody needed for a while is closed, and
//! the oldest idle one goes when descriptors run out.

use super::hands::Hands;
use super::lane_hands::LOOK_EVERY;
use skep_net::{Link, NetError};
use skep_types::{ClientId, NodeId};
use skep_wire::Status;
use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{Thread, ThreadId};
use std::time::{Duration, Instant};

/// Most connections of a mount to one storage server: each is served by a thread there, one request at a
/// time, so this is also how many requests of one mount a server works on at once.
pub const LINKS_PER_SERVER: usize = 32;
/// Most connections of the lanes of /dev/fuse to one metadata server: a request may wait there for something
/// slow, and others must not wait behind it.
pub const LINKS_PER_METAD: usize = 64;
/// Connections to a server that are made although an idle one of another thread is there: see [`Node::pick`].
const LINKS_UNSHARED: usize = 4;
/// A connection that nobody needed for this long is closed.
pub const IDLE_MAX: Duration = Duration::from_secs(15);
/// A server that has refused a connection is not asked for more of them for this long.
const REFUSED_FOR: Duration = Duration::from_secs(5);
/// Descriptors for everything but connections and workers: the device, logs, event queues, mgmtd.
const DESCRIPTORS_KEPT: u64 = 40;
/// Descriptors of a lane that serves programs: its event, a copy of it, its device.
const DESCRIPTORS_PER_LANE: u64 = 3;
/// Connections that a mount has room for whatever the limit of open files is.
const LINKS_MIN: usize = 8;

/// How many lanes and connections the limit of open files allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// Lanes that serve programs.
    pub lanes: usize,
    /// Connections to all servers together.
    pub links: usize,
}

impl Room {
    /// With so many open files, where so many lanes are wanted: half of what is left for each.
    pub fn within(open_files: u64, lanes: usize) -> Self {
        let left = open_files.saturating_sub(DESCRIPTORS_KEPT);
        let most = usize::try_from(left / 2 / DESCRIPTORS_PER_LANE).unwrap_or(usize::MAX);
        let lanes = lanes.min(most.max(2));
        let links = left.saturating_sub(lanes as u64 * DESCRIPTORS_PER_LANE);
        Self { lanes, links: usize::try_from(links).unwrap_or(usize::MAX).max(LINKS_MIN) }
    }
}

/// A connection that nobody uses.
struct Idle {
    link: Link,
    /// Of which session it is.
    client: ClientId,
    /// Who used it last.
    thread: ThreadId,
    since: Instant,
}

#[derive(Default)]
struct Node {
    /// Connections and attempts to connect.
    open: usize,
    /// So many at most.
    most: usize,
    /// It refused a connection: with so many it has to do, until then.
    refused: Option<(usize, Instant)>,
    /// The last one used at the back.
    idle: VecDeque<Idle>,
    /// Groups whose connection has ended, for the next ones.
    groups: Vec<u32>,
    /// Who waits, in the order of arrival.
    line: VecDeque<(u64, Option<Waker>)>,
}

struct State {
    nodes: BTreeMap<NodeId, Node>,
    /// Connections to all servers.
    open: usize,
    most: usize,
    tickets: u64,
}

pub struct Links {
    state: Mutex<State>,
}

/// A place among the connections of a node; free again when dropped.
pub struct Seat {
    /// `None`: it has gone over to an idle connection.
    links: Option<Arc<Links>>,
    node: NodeId,
}

/// What a lane got.
pub enum Taken {
    /// A connection of its session.
    Link(Link, Seat),
    /// The right to make one, in this group if it is to be a certain one.
    Connect(Seat, Option<u32>),
}

/// A place in the line for a node.
struct InLine<'a> {
    links: &'a Arc<Links>,
    node: NodeId,
    ticket: u64,
}

impl Links {
    /// At most so many at once.
    pub fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { state: Mutex::new(State { nodes: BTreeMap::new(), open: 0, most, tickets: 0 }) })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Connections at the moment, those included that are being made.
    #[cfg(test)]
    pub fn open(&self) -> usize {
        self.lock().open
    }

    /// No more than so many from now on.
    pub fn limit(&self, most: usize) {
        self.lock().most = most;
    }

    /// A connection to `node`, or the right to make one, once it is this lane's turn. `owed`: it must be a new
    /// one of that group.
    pub async fn take(
        self: &Arc<Self>,
        node: NodeId,
        most: usize,
        client: ClientId,
        owed: Option<u32>,
    ) -> Taken {
        match self.idle(node, most, client, owed) {
            Some(taken) => taken,
            None => self.in_line(node, most, client, owed).await,
        }
    }

    /// Once it is its turn.
    async fn in_line(
        self: &Arc<Self>,
        node: NodeId,
        most: usize,
        client: ClientId,
        owed: Option<u32>,
    ) -> Taken {
        let place = {
            let mut state = self.lock();
            state.tickets += 1;
            let ticket = state.tickets;
            let at = state.nodes.entry(node).or_default();
            at.most = most;
            at.line.push_back((ticket, None));
            InLine { links: self, node, ticket }
        };
        poll_fn(|cx| place.poll(client, owed, cx)).await
    }

    /// What most rounds get, without a place in the line: nobody waits, and there is a connection to go on with.
    fn idle(
        self: &Arc<Self>,
        node: NodeId,
        most: usize,
        client: ClientId,
        owed: Option<u32>,
    ) -> Option<Taken> {
        if owed.is_some() {
            return None;
        }
        let mut state = self.lock();
        let may_connect = state.open < state.most;
        let at = state.nodes.get_mut(&node).filter(|at| at.line.is_empty())?;
        at.most = most;
        let idle = at.pick(may_connect)?;
        if idle.client == client && idle.link.is_usable() {
            return Some(Taken::Link(idle.link, Seat { links: Some(self.clone()), node }));
        }
        // Whoever stands in the line closes it.
        at.idle.push_back(idle);
        None
    }

    /// As [`Links::take`], for a thread that may block; asked from time to time whether it should give up.
    pub fn take_blocking(
        self: &Arc<Self>,
        node: NodeId,
        most: usize,
        client: ClientId,
        owed: Option<u32>,
        gives_up: &dyn Fn() -> bool,
    ) -> Option<Taken> {
        if let Some(taken) = self.idle(node, most, client, owed) {
            return Some(taken);
        }
        let mut take = std::pin::pin!(self.in_line(node, most, client, owed));
        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
        let mut context = Context::from_waker(&waker);
        loop {
            if let Poll::Ready(taken) = take.as_mut().poll(&mut context) {
                return Some(taken);
            }
            std::thread::park_timeout(LOOK_EVERY);
            if gives_up() {
                return None;
            }
        }
    }

    /// A place that is needed whatever the limits say: one connection serves many lanes.
    pub fn seat(self: &Arc<Self>, node: NodeId) -> Seat {
        let mut state = self.lock();
        state.open += 1;
        state.nodes.entry(node).or_default().open += 1;
        let gone = if state.open > state.most { state.oldest_idle() } else { None };
        drop(state);
        drop(gone);
        Seat { links: Some(self.clone()), node }
    }

    /// Every answer on it has come.
    pub fn give_back(&self, link: Link, mut seat: Seat, client: ClientId) {
        let mut state = self.lock();
        if !link.is_usable() || state.open > state.most {
            state.nodes.entry(seat.node).or_default().groups.push(link.group());
            drop(state);
            return; // link and seat end here
        }
        let node = state.nodes.entry(seat.node).or_default();
        let thread = std::thread::current().id();
        node.idle.push_back(Idle { link, client, thread, since: Instant::now() });
        node.wake();
        if state.open >= state.most {
            // Somebody may wait for a descriptor, whatever his node.
            state.nodes.values_mut().for_each(Node::wake);
        }
        seat.links = None;
    }

    /// A lane ends: the next connection of this group does what it owed.
    pub fn settle(&self, node: NodeId, group: u32) {
        self.lock().nodes.entry(node).or_default().groups.push(group);
    }

    /// No connection could be made. `true`: there are others to wait for, so it is worth asking again.
    pub fn failed(&self, seat: Seat, why: &NetError) -> bool {
        let full = why.refusal().is_some_and(|refusal| refusal.status == Status::BUSY);
        let none_left = why.lacks_descriptors();
        let mut state = self.lock();
        let others = state.nodes.get(&seat.node).map_or(0, |node| node.open.saturating_sub(1));
        let mut gone = Vec::new();
        if full && let Some(node) = state.nodes.get_mut(&seat.node) {
            node.refused = Some((others.max(1), Instant::now() + REFUSED_FOR));
        }
        if none_left {
            // Room for as many as there are, and those that nobody uses go.
            state.most = state.open.saturating_sub(1).max(LINKS_MIN);
            while let Some(idle) = state.oldest_idle() {
                gone.push(idle);
            }
        }
        drop(state);
        let again = (full && others > 0) || (none_left && !gone.is_empty());
        drop((gone, seat));
        again
    }

    /// Closes what nobody needed for a while; says when to come again.
    pub fn close_idle(&self) -> Duration {
        let now = Instant::now();
        let mut gone = Vec::new();
        let mut state = self.lock();
        let mut open = state.open;
        for node in state.nodes.values_mut() {
            while node.idle.front().is_some_and(|idle| now.duration_since(idle.since) >= IDLE_MAX)
                && let Some(idle) = node.idle.pop_front()
            {
                node.groups.push(idle.link.group());
                node.open -= 1;
                open -= 1;
                gone.push(idle);
            }
        }
        state.open = open;
        drop(state);
        drop(gone);
        IDLE_MAX / 3
    }
}

impl Node {
    fn most(&self) -> usize {
        match self.refused {
            Some((most, until)) if Instant::now() < until => most.min(self.most),
            _ => self.most,
        }
    }

    /// The idle connection that this thread used last; else the one that was used last, unless this thread may have one
    /// of its own. The kernel gives requests of one program to the waiting threads in turn. With one connection for
    /// all, the thread that serves it at the server is woken from another processor each time and moves to and fro:
    /// measured with 4 KiB at random, 5 to 13 times the moves between processors, and a fifth fewer requests.
    fn pick(&mut self, may_connect: bool) -> Option<Idle> {
        let own = std::thread::current().id();
        match self.idle.iter().rposition(|idle| idle.thread == own) {
            Some(at) => self.idle.remove(at),
            None if may_connect && self.open < LINKS_UNSHARED.min(self.most()) => None,
            None => self.idle.pop_back(),
        }
    }

    /// Wakes whoever is first in line.
    fn wake(&mut self) {
        if let Some((_, waker)) = self.line.front_mut()
            && let Some(waker) = waker.take()
        {
            waker.wake();
        }
    }
}

impl State {
    /// The connection that nobody has used for longest, of all nodes; it is no longer counted.
    fn oldest_idle(&mut self) -> Option<Idle> {
        let oldest = self.nodes.values_mut().filter(|node| !node.idle.is_empty());
        let node = oldest.min_by_key(|node| node.idle.front().map(|idle| idle.since))?;
        let idle = node.idle.pop_front()?;
        node.groups.push(idle.link.group());
        node.open -= 1;
        self.open -= 1;
        Some(idle)
    }
}

impl InLine<'_> {
    fn poll(&self, client: ClientId, owed: Option<u32>, cx: &Context<'_>) -> Poll<Taken> {
        let mut gone = Vec::new();
        let mut state = self.links.lock();
        let state_ref = &mut *state;
        let Some(node) = state_ref.nodes.get_mut(&self.node) else { return Poll::Pending };
        if node.line.front().is_some_and(|(first, _)| *first == self.ticket) {
            let may_connect = state_ref.open < state_ref.most;
            while owed.is_none()
                && let Some(idle) = node.pick(may_connect)
            {
                if idle.client == client && idle.link.is_usable() {
                    drop(state);
                    drop(gone);
                    return Poll::Ready(Taken::Link(idle.link, self.seat()));
                }
                node.groups.push(idle.link.group());
                node.open -= 1;
                state_ref.open -= 1;
                gone.push(idle);
            }
            if owed.is_some()
                && node.open >= node.most()
                && let Some(idle) = node.idle.pop_front()
            {
                node.groups.push(idle.link.group());
                node.open -= 1;
                state_ref.open -= 1;
                gone.push(idle);
            }
            // One for every server there is always room for.
            let first = node.open == 0;
            if first || node.open < node.most() {
                if state_ref.open >= state_ref.most {
                    gone.extend(state_ref.oldest_idle());
                }
                if first || state_ref.open < state_ref.most {
                    state_ref.open += 1;
                    let node = state_ref.nodes.entry(self.node).or_default();
                    node.open += 1;
                    let group = owed.or_else(|| node.groups.pop());
                    drop(state);
                    drop(gone);
                    return Poll::Ready(Taken::Connect(self.seat(), group));
                }
            }
        }
        if let Some(node) = state_ref.nodes.get_mut(&self.node)
            && let Some((_, waker)) = node.line.iter_mut().find(|(ticket, _)| *ticket == self.ticket)
        {
            *waker = Some(cx.waker().clone());
        }
        drop(state);
        drop(gone);
        Poll::Pending
    }

    fn seat(&self) -> Seat {
        Seat { links: Some(self.links.clone()), node: self.node }
    }
}

impl Drop for InLine<'_> {
    fn drop(&mut self) {
        let mut state = self.links.lock();
        if let Some(node) = state.nodes.get_mut(&self.node) {
            node.line.retain(|(ticket, _)| *ticket != self.ticket);
            node.wake();
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let Some(links) = self.links.take() else { return };
        let mut state = links.lock();
        state.open -= 1;
        if let Some(node) = state.nodes.get_mut(&self.node) {
            node.open -= 1;
        }
        // Others may have waited for a descriptor, whatever their node.
        state.nodes.values_mut().for_each(Node::wake);
    }
}

/// Wakes a thread that is parked.
pub struct Unpark(pub Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Groups that a lane must connect anew before it asks their node again: it gave up what it had asked there,
/// or the connection broke, and the newer connection makes the daemon drop what is left of it. Nobody else
/// gets the group before.
#[derive(Default)]
pub struct Debts(std::cell::RefCell<BTreeMap<NodeId, u32>>);

impl Debts {
    /// What is owed to `node`.
    pub fn of(&self, node: NodeId) -> Option<u32> {
        self.0.borrow().get(&node).copied()
    }

    /// This group is in use.
    pub fn owe(&self, node: NodeId, group: u32) {
        self.0.borrow_mut().insert(node, group);
    }

    /// Every answer has come.
    pub fn paid(&self, node: NodeId) {
        self.0.borrow_mut().remove(&node);
    }

    /// The lane ends.
    pub fn settle(&self, hands: &Hands) {
        for (node, group) in self.0.take() {
            hands.links.settle(node, group);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: `tune` and `plan` count what a mount uses.
    #[test]
    fn tools_know_the_limits() {
        assert_eq!(skep_tune::STORAGE_CONNECTIONS_PER_CLIENT, LINKS_PER_SERVER as u64);
        assert_eq!(skep_tune::META_CONNECTIONS_PER_CLIENT, LINKS_PER_METAD as u64);
        assert_eq!(skep_plan::forward::CONNECTIONS_PER_CLIENT, LINKS_PER_SERVER as u64);
        assert_eq!(skep_plan::forward::META_CONNECTIONS_PER_CLIENT, LINKS_PER_METAD as u64);
    }

    /// Goal: whatever the limit of open files, lanes and connections together stay within it, and a mount has
    /// room for a few of each.
    #[test]
    fn room_within_the_limit_of_open_files() {
        for limit in [0, 64, 96, 200, 1_024, 4_096, 1 << 20, u64::MAX] {
            let room = Room::within(limit, 235);
            assert!((2..=235).contains(&room.lanes) && room.links >= LINKS_MIN, "{limit}: {room:?}");
            let used = DESCRIPTORS_KEPT as u128 + room.lanes as u128 * 3 + room.links as u128;
            assert!(limit < 96 || used <= u128::from(limit), "{limit}: {room:?}");
        }
        assert_eq!(Room::within(96, 64), Room { lanes: 9, links: 29 });
        assert_eq!(Room::within(65_536, 64).lanes, 64);
    }
}
