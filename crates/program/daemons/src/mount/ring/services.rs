//! The connections of a thread that all its lanes share: one to each metadata server, and one to mgmtd
//! while it is asked something.

use super::RingHands;
use crate::mount::lane_hands::{CONNECT_DEADLINE, LaneHands};
use crate::mount::links::Seat;
use skep_client::MGMTD;
use skep_net::ring::{SharedLink, dial};
use skep_types::{ClientId, NodeId};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::Instant;

pub struct Services {
    /// The connection group of the thread: each lane's requests carry their own slot.
    group: u32,
    all: RefCell<BTreeMap<NodeId, Rc<Service>>>,
}

#[derive(Default)]
struct Service {
    /// The connection, and of which session it is.
    link: RefCell<Option<(SharedLink, ClientId, Seat)>>,
    dialing: Cell<bool>,
    /// How often a connection could not be made.
    failures: Cell<u64>,
    /// Those who wait for the connection.
    waiting: RefCell<Vec<Waker>>,
}

impl Service {
    fn link(&self, client: ClientId) -> Option<SharedLink> {
        let link = self.link.borrow();
        link.as_ref().filter(|(link, of, _)| *of == client && link.is_usable()).map(|(link, ..)| link.clone())
    }
}

impl Services {
    /// For a thread with this group.
    pub fn new(group: u32) -> Self {
        Self { group, all: RefCell::default() }
    }

    fn service(&self, node: NodeId) -> Rc<Service> {
        self.all.borrow_mut().entry(node).or_default().clone()
    }

    /// Closes the connection to a node: it is silent, or not the same one any more.
    pub fn close(&self, node: NodeId) {
        if let Some((link, ..)) = self.service(node).link.take() {
            link.close();
        }
    }

    /// Closes it unless another lane waits for an answer.
    pub fn close_if_idle(&self, node: NodeId) {
        let service = self.service(node);
        if service.link.borrow().as_ref().is_some_and(|(link, ..)| link.is_idle()) {
            service.link.take();
        }
    }
}

/// A connection to `node` of the session of `client`; `None`: none can be made, or that is over. One lane's wish connects
/// for all, and goes on when that lane gives up.
pub async fn connected(
    thread: &Rc<RingHands>,
    lane: &Rc<LaneHands>,
    node: NodeId,
    client: ClientId,
) -> Option<SharedLink> {
    let client = if node == MGMTD { lane.client() } else { client };
    let service = thread.services.service(node);
    if let Some(link) = service.link(client) {
        return Some(link);
    }
    let before = service.failures.get();
    poll_fn(|cx| {
        if let Some(link) = service.link(client) {
            return Poll::Ready(Some(link));
        }
        if service.failures.get() != before || lane.client() != client {
            return Poll::Ready(None);
        }
        service.waiting.borrow_mut().push(cx.waker().clone());
        if !service.dialing.replace(true) {
            thread.reactor.spawn(connect(thread.clone(), lane.clone(), node, service.clone()));
        }
        Poll::Pending
    })
    .await
}

async fn connect(thread: Rc<RingHands>, lane: Rc<LaneHands>, node: NodeId, service: Rc<Service>) {
    // The older one, if any, ends: the server would end it anyway.
    service.link.take();
    let hello = lane.hello(node, thread.services.group);
    let client = hello.client;
    let (endpoints, keyring) = (lane.hands.endpoints(node), lane.hands.keyring.clone());
    let seat = lane.hands.links.seat(node);
    match dial(endpoints, keyring, hello, Instant::now() + CONNECT_DEADLINE).await {
        Ok(link) => {
            service.link.replace(Some((SharedLink::new(&thread.reactor, link), client, seat)));
        }
        Err(e) => {
            lane.unreachable(&e);
            lane.hands.links.failed(seat, &e);
            service.failures.set(service.failures.get() + 1);
        }
    }
    service.dialing.set(false);
    service.waiting.take().into_iter().for_each(Waker::wake);
}
