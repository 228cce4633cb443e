//! Connections that stick: what a client sends to a server is held back on its way, while both go on. It arrives behind that, in
//! its order, if neither end is another by then; or it has died with its connection.

use super::{Connection, Flight, From, Network};
use crate::hub::{CallId, Hub};
use crate::queue::{Event, Queue};
use skep_types::NodeId;

impl Network {
    /// What the client of this life sends to a server, or to any, arrives only then.
    pub fn stick(&mut self, life: u32, nodes: &[NodeId], until: u64, hub: &mut Hub) {
        hub.coverage.hit("a connection stuck");
        hub.say(format_args!("what life {life} sends to nodes {nodes:?} is held back until {until}"));
        for node in nodes {
            let known = self.sticks.entry((life, *node)).or_default();
            *known = until.max(*known);
        }
    }

    /// Until when what is sent there is held back.
    pub(super) fn held_until(&self, from: From, node: NodeId, now: u64) -> Option<u64> {
        let From::Lane(lane) = from else { return None };
        self.sticks.get(&(lane.life, node)).copied().filter(|until| now < *until)
    }

    /// A request would arrive, and is held back: it comes then, behind what was sent before it. `true`: it does not come now.
    pub(super) fn is_held_back(&mut self, id: CallId, hub: &mut Hub, queue: &mut Queue) -> bool {
        let Some(flight) = self.flights.get(&id) else { return false };
        let (from, node, number) = (flight.from, flight.node, flight.connection);
        let Some(until) = self.held_until(from, node, hub.now) else { return false };
        let connection = self.connections.get_mut(&(from, node)).filter(|newest| newest.number == number);
        let due = connection.map_or(until, |connection| connection.behind(until));
        if let Some(flight) = self.flights.get_mut(&id) {
            flight.held_back = true;
        }
        queue.at(due, &mut hub.rng, Event::Arrive(id));
        true
    }

    /// It was held back: who sends nothing more, and had not been answered on that connection, had not even sent it.
    pub(super) fn was_never_sent(flight: &Flight) -> bool {
        flight.held_back && flight.settled && flight.life.is_none()
    }
}

impl Connection {
    /// When something arrives that comes behind all that was sent before, and not before `until`.
    pub(super) fn behind(&mut self, until: u64) -> u64 {
        self.last_arrival = until.max(self.last_arrival + 1);
        self.last_arrival
    }
}
