//! A shard goes to a second server, and from there to a third, while the first is down and still has its rows; then mgmtd goes
//! on from a backup of before both.

use super::World;
use crate::hub::Hub;
use skep_client::MGMTD;
use skep_types::{NodeId, ShardId};
use skep_wire::mgmt::ShardState;

/// It is given up after so many milliseconds.
const PATIENCE_MS: u64 = 6_000;
/// The first server is down for so long.
const AWAY_MS: u64 = 4_000;

#[derive(Debug)]
pub struct Detour {
    shard: ShardId,
    from: NodeId,
    /// Where it goes. It is at the last when there is nothing left.
    stops: Vec<NodeId>,
    until: u64,
}

impl World {
    /// Sends a shard on its way. `false`: not now.
    pub(super) fn begin_detour(&mut self) -> bool {
        let shard = ShardId(self.draw(self.mgmtd.state().shards.len() as u64) as u16);
        let hub = self.hub.clone();
        let hub = &mut *hub.borrow_mut();
        let entry = self.mgmtd.state().shards.iter().find(|entry| entry.shard == shard);
        let active = entry.filter(|entry| entry.state == ShardState::Active);
        let Some(from) = active.and_then(|entry| entry.led_by()) else { return false };
        let beside = self.process_of(from);
        let mut stops: Vec<NodeId> = self.metads.iter().map(|metad| metad.node).collect();
        stops.retain(|node| !beside.contains(node));
        let all_run = self.metads.iter().all(|metad| metad.server().is_some());
        if self.detour.is_some() || stops.len() < 2 || !all_run || self.mgmtd.was_restored() {
            return false;
        }
        self.mgmtd.set_aside();
        let is_given = self.mgmtd.give_shard(shard, stops[0], hub);
        self.detour = is_given.then(|| Detour { shard, from, stops, until: hub.now + PATIENCE_MS });
        is_given
    }

    /// Once it is at one stop it goes to the next.
    pub(super) fn go_on_detour(&mut self, hub: &mut Hub) {
        let Some(mut detour) = self.detour.take().filter(|detour| hub.now < detour.until && !hub.calm) else {
            return;
        };
        let entry = self.mgmtd.state().shards.iter().find(|entry| entry.shard == detour.shard);
        let is_at = |node: &NodeId| {
            entry.is_some_and(|entry| entry.state == ShardState::Active && entry.is_led_by(*node))
        };
        match detour.stops[..] {
            [second, third] if is_at(&second) => {
                if self.network.life(detour.from).is_some() {
                    self.kill_process(detour.from, false, hub);
                    self.start_again(detour.from, hub.now + AWAY_MS, hub);
                }
                if self.mgmtd.give_shard(detour.shard, third, hub) {
                    detour.stops.remove(0);
                }
            }
            [third] if is_at(&third) => {
                if self.network.life(MGMTD).is_some() && self.mgmtd.put_aside_back(hub) {
                    hub.say(format_args!(
                        "mgmtd goes on from a backup of before two moves of shard {}",
                        detour.shard
                    ));
                    hub.coverage.hit("mgmtd was put back from before two moves of a shard");
                    self.restart_mgmtd(hub);
                }
                return;
            }
            _ => {}
        }
        self.detour = Some(detour);
    }
}
