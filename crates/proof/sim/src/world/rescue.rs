//! The newest rows of a shard are where they were given on by an order that mgmtd's backup does not know, and whoever they
//! were given to has none. An administrator who has read that stops the servers that could have newer ones, and has the shard
//! served from these: `docs/design/moves.md`.

use super::World;
use crate::hub::Hub;
use crate::metad::Metad;
use skep_types::{NodeId, ShardId};
use skep_wire::mgmt::ShardState;

/// It is given up after so many milliseconds.
const PATIENCE_MS: u64 = 60_000;
/// Stopped servers start again within so many.
const START_MS: u64 = 500;

#[derive(Debug)]
pub struct Rescue {
    shard: ShardId,
    /// Servers that are stopped meanwhile.
    stopped: Vec<NodeId>,
    /// To whom it is to be given, one after the other, once those count as offline. To node 0: who had it is gone.
    orders: Vec<NodeId>,
    until: u64,
}

impl World {
    /// All servers are up, and who has the newest rows has given them on.
    pub(super) fn begin_rescue(&mut self, shard: ShardId, hub: &mut Hub) {
        let entry = self.mgmtd.state().shards.iter().find(|entry| entry.shard == shard);
        let Some(source) = entry.and_then(|entry| entry.members.first()).copied() else { return };
        let Some(last) = self.metads.iter().max_by_key(|metad| metad.head_of(shard)) else { return };
        let Some(given_to) = given_to(last, shard) else { return };
        let last = last.node;
        let (stopped, orders) = if last == source {
            let others = self.metads.iter().map(|metad| metad.node);
            let Some(third) = others.filter(|node| *node != source && *node != given_to).last() else {
                return;
            };
            (vec![given_to], vec![source, third])
        } else {
            (vec![given_to, source], vec![NodeId(0), last])
        };
        for node in &stopped {
            self.kill_process(*node, false, hub);
        }
        hub.say(format_args!(
            "shard {shard} is to be served from the rows of node {last}: {stopped:?} are stopped"
        ));
        self.rescue = Some(Rescue { shard, stopped, orders, until: hub.now + PATIENCE_MS });
    }

    /// Gives the orders that are due; once the shard is served, what was stopped starts.
    pub(super) fn go_on_with_rescue(&mut self, hub: &mut Hub) {
        let Some(mut rescue) = self.rescue.take() else { return };
        let are_offline = rescue.stopped.iter().all(|node| self.mgmtd.is_offline(*node));
        while are_offline
            && let Some(order) = rescue.orders.first().copied()
            && self.mgmtd.give_shard(rescue.shard, order, hub)
        {
            rescue.orders.remove(0);
        }
        let mut shards = self.mgmtd.state().shards.iter();
        let is_active = shards.any(|entry| entry.shard == rescue.shard && entry.state == ShardState::Active);
        let is_over = rescue.orders.is_empty() && is_active;
        if is_over {
            hub.coverage.hit("a shard was served from rows that were given on");
        }
        if !is_over && hub.now < rescue.until {
            self.rescue = Some(rescue);
            return;
        }
        for node in rescue.stopped {
            self.start_again(node, hub.now + hub.rng.below(START_MS), hub);
        }
    }
}

/// To whom the server gave all rows of the shard.
pub fn given_to(metad: &Metad, shard: ShardId) -> Option<NodeId> {
    metad.server()?.given().find(|(of, _)| *of == shard).map(|(_, node)| node)
}
