//! How a daemon hears that a connection has ended: requests of it that are still at work are not wanted any more, and
//! what it has not read of it never comes. Daemons that keep nobody waiting have nothing to hear of.

use super::{Connection, Flight, From, HELD_UP_MAX, Network, Sender};
use crate::hub::{CallId, Hub, Landed};
use crate::queue::{Event, Queue};
use skep_client::Outcome;
use skep_types::NodeId;

/// One connection of many between two.
pub type End = (From, NodeId, u64);

impl Network {
    /// The sender has ended a connection, of which the daemon hears some time later, or when there is a newer one.
    pub(super) fn announce(&self, end: End, hub: &mut Hub, queue: &mut Queue) {
        if hub.rng.percent(50) {
            let due = hub.now + 1 + hub.rng.below(HELD_UP_MAX);
            queue.at(due, &mut hub.rng, Event::Closed(end));
        }
    }

    /// The process of a sender is gone.
    pub(super) fn announce_all(&self, is_gone: impl Fn(From) -> bool, hub: &mut Hub, queue: &mut Queue) {
        let open = self.connections.iter().filter(|((from, _), _)| is_gone(*from));
        for ((from, to), connection) in open {
            self.announce((*from, *to, connection.number), hub, queue);
        }
    }

    /// The daemon hears that a connection has ended: what was at work. What it has not read it never reads.
    pub fn close(&mut self, end: End) -> Vec<CallId> {
        let is_of = |flight: &Flight| (flight.from, flight.node, flight.connection) == end;
        let at_work = self.take(|flight| is_of(flight) && flight.arrived);
        self.take(|flight| is_of(flight) && flight.deposed.is_none());
        at_work
    }

    /// The daemon has heard of a newer connection, so all older ones of its sender are over: what was at work.
    pub(super) fn supersede(&mut self, node: NodeId, sender: Sender, newest: (u64, u64)) -> Vec<CallId> {
        self.take(|flight| {
            let (by, rank) = flight.from.ranked(flight.connection);
            flight.arrived && flight.node == node && by == sender && rank < newest
        })
    }

    fn take(&mut self, is_over: impl Fn(&Flight) -> bool) -> Vec<CallId> {
        let ids: Vec<CallId> =
            self.flights.iter().filter(|(_, flight)| is_over(flight)).map(|(id, _)| *id).collect();
        for id in &ids {
            self.flights.remove(id);
        }
        ids
    }

    /// Clients with requests at work, and where.
    pub fn clients_at_work(&self) -> Vec<(u32, NodeId)> {
        let at_work = self.flights.values().filter(|flight| flight.arrived && !flight.settled);
        let client = |flight: &Flight| match flight.from {
            From::Lane(lane) => Some((lane.life, flight.node)),
            From::Node(..) => None,
        };
        at_work.filter_map(client).collect()
    }

    /// The connections of a client to a daemon end, all at once, and the daemon hears of it first.
    pub fn end_client(&mut self, life: u32, node: NodeId, hub: &mut Hub, queue: &mut Queue) -> Vec<CallId> {
        let of = |((from, to), connection): (&(From, NodeId), &mut Connection)| {
            let is_its = *to == node && matches!(from, From::Lane(lane) if lane.life == life);
            let ends = is_its && !connection.broken && connection.number > 0;
            connection.broken |= ends;
            ends.then_some((*from, *to, connection.number))
        };
        let ended: Vec<End> = self.connections.iter_mut().filter_map(of).collect();
        let mut at_work = Vec::new();
        for end in ended {
            self.lose_all(end, hub.now + 1, hub, queue);
            at_work.extend(self.close(end));
        }
        at_work
    }

    /// Everything in flight on a connection is lost for its sender.
    pub(super) fn lose_all(&mut self, (from, node, number): End, due: u64, hub: &mut Hub, queue: &mut Queue) {
        let same =
            self.flights.iter().filter(|(_, f)| (f.from, f.node, f.connection) == (from, node, number));
        let all: Vec<CallId> = same.filter(|(_, f)| !f.settled).map(|(id, _)| *id).collect();
        for id in all {
            self.settle(id, due, Landed { outcome: Outcome::Lost, payload: Vec::new() }, hub, queue);
        }
    }
}
