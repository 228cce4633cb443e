//! Events in the order of their time; equal times in an order drawn from the seed.

use crate::hub::{CallId, Landed, LaneId};
use crate::network::End;
use skep_meta::Read;
use skep_model::Rng;
use skep_types::{LogSeq, NodeId};
use skep_wire::Refusal;
use std::collections::BTreeMap;

/// Something that happens.
#[derive(Debug)]
pub enum Event {
    /// A lane may have something to do.
    Wake(LaneId),
    /// A request reaches its node.
    Arrive(CallId),
    /// A daemon hears that a connection has ended.
    Closed(End),
    /// The outcome of a call reaches its lane.
    Land(CallId, LaneId, Landed),
    /// The answer to a server's own call, or that there is none.
    LandAtNode(CallId, Result<Vec<u8>, Refusal>),
    /// metad's courier knows no server for that task.
    NoServer(u64, u64),
    /// A node's clock, in that life of it.
    Tick(NodeId, u64),
    /// Something that metad waits for is due.
    Deadline(u64),
    /// A started sync of metad's log has ended: everything up to there is durable.
    Synced(u64, LogSeq),
    /// metad syncs its log.
    Sync(u64),
    /// The disk of a metad has given rows.
    RowsRead(u64, Read),
    /// Records that a canary acknowledged before they were in the log.
    AppendLate(u64),
    /// A daemon is started again.
    Restart(NodeId),
    /// Another metadata server takes over.
    Deposed(NodeId),
    /// A metadata server ended for want of rows: they are put back.
    PutBack(NodeId),
    /// The next mishap.
    Mishap,
    /// A client's connections end, when it hurts; so many looks are left.
    EndConnections(u32),
    /// metad loses its power, when it hurts.
    Provoked,
    /// Chaos ends.
    Calm,
    /// A host may go on.
    GoOn(usize),
    /// A new mount takes over from a client that was killed.
    TakeOver(usize),
    /// Is anything left over?
    Look,
}

#[derive(Debug, Default)]
pub struct Queue {
    events: BTreeMap<(u64, u64, u64), Event>,
    serial: u64,
}

impl Queue {
    /// At `time`.
    pub fn at(&mut self, time: u64, rng: &mut Rng, event: Event) {
        self.serial += 1;
        // Two draws in 2^32 are equal seldom, and then the order of insertion decides.
        self.events.insert((time, rng.next_u64() >> 32, self.serial), event);
    }

    /// The next event with its time.
    pub fn pop(&mut self) -> Option<(u64, Event)> {
        let ((time, ..), event) = self.events.pop_first()?;
        Some((time, event))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: time decides; among equals the seed does, and it does so again in the same way.
    #[test]
    fn order_comes_from_time_and_seed() {
        let order = |seed| {
            let (mut queue, mut rng) = (Queue::default(), Rng::new(seed));
            for number in 0..20 {
                queue.at(5, &mut rng, Event::Arrive(number));
            }
            queue.at(1, &mut rng, Event::Mishap);
            assert!(matches!(queue.pop(), Some((1, Event::Mishap))));
            let mut seen = Vec::new();
            while let Some((5, Event::Arrive(number))) = queue.pop() {
                seen.push(number);
            }
            seen
        };
        assert_eq!(order(1), order(1));
        assert_ne!(order(1), order(2));
        assert_eq!(order(1).len(), 20);
    }
}
