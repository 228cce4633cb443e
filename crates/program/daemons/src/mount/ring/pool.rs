//! Connections to storage daemons, for one lane at a time: such a daemon serves a connection's requests one
//! after another.

use super::RingHands;
use crate::mount::lane_hands::{CONNECT_DEADLINE, LaneHands};
use crate::mount::links::{Debts, LINKS_PER_SERVER, Seat, Taken};
use skep_net::ring::{DirectLink, dial};
use skep_types::{ClientId, NodeId};
use std::time::Instant;

/// A connection in use. Its group is a debt of the lane until everything asked was answered and the
/// connection is given back; when it is dropped, the debt stays.
pub struct Lease<'a> {
    lane: &'a LaneHands,
    debts: &'a Debts,
    node: NodeId,
    client: ClientId,
    seat: Seat,
    /// The connection.
    pub link: DirectLink,
}

impl Lease<'_> {
    /// Every answer has come.
    pub fn give_back(self) {
        if self.link.is_usable() {
            self.debts.paid(self.node);
            self.lane.hands.links.give_back(self.link.park(), self.seat, self.client);
        }
    }
}

/// A connection to `node` for one lane, in the session of `client`; `None`: none can be made, or that is over.
pub async fn lease<'a>(
    thread: &'a RingHands,
    lane: &'a LaneHands,
    debts: &'a Debts,
    node: NodeId,
    client: ClientId,
) -> Option<Lease<'a>> {
    loop {
        if lane.client() != client {
            return None;
        }
        let owed = debts.of(node);
        let (seat, group) = match lane.hands.links.take(node, LINKS_PER_SERVER, client, owed).await {
            Taken::Link(link, seat) => {
                debts.owe(node, link.group());
                match DirectLink::new(&thread.reactor, link) {
                    Ok(link) => return Some(Lease { lane, debts, node, client, seat, link }),
                    Err(_) => continue,
                }
            }
            Taken::Connect(seat, group) => (seat, group),
        };
        let group = group.unwrap_or_else(|| lane.hands.next_group());
        debts.owe(node, group);
        let hello = lane.hello(node, group);
        if hello.client != client {
            return None;
        }
        let (endpoints, keyring) = (lane.hands.endpoints(node), lane.hands.keyring.clone());
        let dialed = dial(endpoints, keyring, hello, Instant::now() + CONNECT_DEADLINE).await;
        match dialed.and_then(|link| DirectLink::new(&thread.reactor, link)) {
            Ok(link) => return Some(Lease { lane, debts, node, client, seat, link }),
            Err(e) => {
                if !lane.connects_again(debts, node, owed, group, seat, &e) {
                    return None;
                }
            }
        }
    }
}
