//! The hands of lanes that share a thread: each is a task of the thread's reactor, and all of them ask over
//! the thread's connections.
//!
//! - [`RingHands`]: what the thread has: one connection to each service that answers out of one thread
//!   (mgmtd, metad), for all lanes; the storage daemons' are the mount's, one lane at a time.
//! - [`RingPort`]: the port of a lane.
//! - `watch`: looks every 100 ms after lanes that wait: deadlines, and programs that gave up.

mod pool;
mod port;
mod services;
#[cfg(test)]
mod tests;
mod watch;

pub use port::RingPort;

use super::hands::Hands;
use services::Services;
use skep_ring::Reactor;
use skep_types::NodeId;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use watch::Watches;

pub struct RingHands {
    hands: Arc<Hands>,
    reactor: Reactor,
    services: Services,
    watches: Watches,
    requests: Cell<u64>,
}

impl RingHands {
    /// For the thread that runs `reactor`.
    pub fn new(hands: Arc<Hands>, reactor: &Reactor) -> Rc<Self> {
        Rc::new(Self {
            services: Services::new(hands.next_group()),
            hands,
            reactor: reactor.clone(),
            watches: Watches::default(),
            requests: Cell::new(0),
        })
    }

    /// The next request to this service goes over a new connection.
    pub fn hang_up(&self, node: NodeId) {
        self.services.close(node);
    }

    /// A number for a request on a connection of a pool.
    fn next_request(&self) -> u64 {
        self.requests.set(self.requests.get() + 1);
        self.requests.get()
    }
}
