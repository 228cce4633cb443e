//! The connections of a thread to storage daemons. Such a daemon serves a connection's requests one after
//! another, so each is used by one lane at a time; the last one used is used next.

use super::RingHands;
use crate::mount::lane_hands::{CONNECT_DEADLINE, LaneHands};
use skep_net::ring::{DirectLink, dial};
use skep_types::{ClientId, NodeId};
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

/// A connection that was not needed for this long is closed when another one of its pool comes back.
const IDLE_MAX: Duration = Duration::from_secs(60);

/// A connection that nobody uses.
struct Idle {
    link: DirectLink,
    /// Of which session it is.
    client: ClientId,
    since: Instant,
}

#[derive(Default)]
struct Pool {
    /// The last one used at the back.
    idle: VecDeque<Idle>,
    /// Groups whose connection has ended, for the next ones.
    groups: Vec<u32>,
}

/// See the module.
#[derive(Default)]
pub struct Pools(RefCell<BTreeMap<NodeId, Pool>>);

/// Groups that a lane must connect anew before it asks their node again: it gave up what it had asked there,
/// or the connection broke, and the newer connection makes the daemon drop what is left of it. Nobody else
/// gets the group before.
#[derive(Default)]
pub struct Debts(RefCell<BTreeMap<NodeId, u32>>);

impl Pools {
    /// A connection of this session; others are closed.
    fn take(&self, node: NodeId, client: ClientId) -> Option<DirectLink> {
        let mut pools = self.0.borrow_mut();
        let pool = pools.entry(node).or_default();
        while let Some(Idle { link, client: of, .. }) = pool.idle.pop_back() {
            if of == client && link.is_usable() {
                return Some(link);
            }
            pool.groups.push(link.group());
        }
        None
    }

    fn group(&self, node: NodeId) -> Option<u32> {
        self.0.borrow_mut().entry(node).or_default().groups.pop()
    }

    fn put_back(&self, node: NodeId, link: DirectLink, client: ClientId) {
        let since = Instant::now();
        let mut pools = self.0.borrow_mut();
        let pool = pools.entry(node).or_default();
        pool.idle.push_back(Idle { link, client, since });
        if pool.idle.front().is_some_and(|idle| since.duration_since(idle.since) >= IDLE_MAX)
            && let Some(Idle { link, .. }) = pool.idle.pop_front()
        {
            pool.groups.push(link.group());
        }
    }

    /// A lane ends; the next connections of its groups do what it owed.
    pub fn settle(&self, debts: &Debts) {
        let mut pools = self.0.borrow_mut();
        for (node, group) in debts.0.take() {
            pools.entry(node).or_default().groups.push(group);
        }
    }
}

/// A connection in use. Its group is a debt of the lane until everything asked was answered and the
/// connection is given back; when it is dropped, the debt stays.
pub struct Lease<'a> {
    pools: &'a Pools,
    debts: &'a Debts,
    node: NodeId,
    client: ClientId,
    /// The connection.
    pub link: DirectLink,
}

impl Lease<'_> {
    /// Every answer has come.
    pub fn give_back(self) {
        if self.link.is_usable() {
            self.debts.0.borrow_mut().remove(&self.node);
            self.pools.put_back(self.node, self.link, self.client);
        }
    }
}

/// A connection to `node` for one lane; `None`: none can be made.
pub async fn lease<'a>(
    thread: &'a RingHands,
    lane: &LaneHands,
    debts: &'a Debts,
    node: NodeId,
) -> Option<Lease<'a>> {
    let (pools, client) = (&thread.pools, lane.client());
    let owed = debts.0.borrow().get(&node).copied();
    if owed.is_none()
        && let Some(link) = pools.take(node, client)
    {
        debts.0.borrow_mut().insert(node, link.group());
        return Some(Lease { pools, debts, node, client, link });
    }
    let group = owed.or_else(|| pools.group(node)).unwrap_or_else(|| lane.hands.next_group());
    debts.0.borrow_mut().insert(node, group);
    let hello = lane.hello(group);
    let client = hello.client;
    let (endpoints, keyring) = (lane.hands.endpoints(node), lane.hands.keyring.clone());
    let dialed = dial(endpoints, keyring, hello, Instant::now() + CONNECT_DEADLINE).await;
    match dialed.and_then(|link| DirectLink::new(&thread.reactor, link)) {
        Ok(link) => Some(Lease { pools, debts, node, client, link }),
        Err(e) => {
            lane.unreachable(&e);
            None
        }
    }
}
