//! Older copies of directories: that of mgmtd put in the place of the newest one by mistake; that of mgmtd, or of a
//! metadata server, put back on purpose.

use super::World;
use crate::hub::Hub;
use crate::metad::Metad;
use crate::queue::Event;
use skep_client::MGMTD;
use skep_types::{NodeId, ShardId};
use skep_wire::mgmt::{GiveShard, RegistryAge, ShardState};

/// Somebody notices the mistake after so many milliseconds, if nobody else does: before servers count as away that have not
/// been heard, for what only they know is not waited for then.
const MIXED_UP_MS: u64 = 4_500;

impl World {
    /// What a daemon has heard of the age of mgmtd's registry in this life of it. Its disk keeps what it heard last of each
    /// start.
    pub(super) fn heard_age(&mut self, node: NodeId, age: RegistryAge, is_registered: bool) {
        let Some(upkeep) = self.upkeep.get_mut(&node) else { return };
        let is_new_start = age.start != upkeep.age.start;
        if !is_registered && !is_new_start && age.changes <= upkeep.age.changes {
            return;
        }
        upkeep.age = age;
        if is_registered || is_new_start {
            self.ages.insert(node, age);
        }
    }

    /// mgmtd is killed and started on an older copy of its directory, by mistake.
    pub(super) fn mix_up_mgmtd(&mut self) {
        let seen = |node: NodeId| self.ages.get(&node).map(|age| (node, *age));
        let seen: Vec<_> = self.metads.iter().filter_map(|metad| seen(metad.node)).collect();
        let hub = self.hub.clone();
        let hub = &mut *hub.borrow_mut();
        if !self.mgmtd.mix_up(&seen, hub) {
            return;
        }
        hub.say(format_args!("mgmtd is to go on with an older copy of its directory, by mistake"));
        hub.coverage.hit("mgmtd was started on an older copy");
        self.restart_mgmtd(hub);
        self.queue.at(hub.now + MIXED_UP_MS, &mut hub.rng, Event::PutBack(MGMTD));
    }

    /// mgmtd was told that it is an older copy: it ends without an answer, and perhaps its supervisor starts it again.
    pub(super) fn found_out(&mut self, hub: &mut Hub) {
        hub.coverage.hit("mgmtd was told that it is an older copy");
        if hub.rng.percent(50) {
            self.mgmtd.put_right();
        }
        self.restart_mgmtd(hub);
    }

    /// The newest directory of mgmtd is in its place again.
    pub(super) fn put_mgmtd_right(&mut self) {
        if !self.mgmtd.is_a_copy() {
            return;
        }
        let hub = self.hub.clone();
        let hub = &mut *hub.borrow_mut();
        self.mgmtd.put_right();
        self.restart_mgmtd(hub);
    }

    /// mgmtd's directory is lost, and a backup is put back on purpose.
    pub(super) fn restore_mgmtd(&mut self) {
        let hub = self.hub.clone();
        let hub = &mut *hub.borrow_mut();
        if self.mgmtd.restore(hub) {
            hub.say(format_args!("mgmtd goes on from a backup, which is all there is"));
            hub.coverage.hit("mgmtd was put back from a backup");
            self.restart_mgmtd(hub);
        }
    }

    /// An administrator reads what servers say of shards that they cannot serve by a map of mgmtd's backup, and does it. Whom
    /// a server names that withholds one is asked first as often as not: it may have given the shard on.
    pub(super) fn give_what_is_not_served(&mut self) {
        let hub = self.hub.clone();
        let hub = &mut *hub.borrow_mut();
        if !hub.calm || self.mgmtd.is_a_copy() {
            return;
        }
        let version = self.mgmtd.map_version();
        let servers = || self.metads.iter().filter(|metad| !metad.lacks_rows());
        let knowing =
            || servers().filter(|metad| metad.server().is_some_and(|server| server.map_version() == version));
        let withheld = knowing().filter_map(Metad::server).flat_map(skep_meta::Group::withheld);
        let mut orders = Vec::new();
        for (shard, named) in withheld {
            let order =
                if hub.rng.percent(50) { Some(GiveShard::to(shard, named)) } else { self.newest(shard, hub) };
            orders.extend(order.map(|order| (order, "a withheld shard was given to who has it")));
        }
        let refused = knowing().filter_map(Metad::server).flat_map(skep_meta::Group::refused);
        for shard in refused {
            let order = self.newest(shard, hub);
            orders.extend(order.map(|order| (order, "a shard that did not come was given to another metad")));
        }
        for entry in self.mgmtd.state().shards.iter().filter(|entry| entry.state == ShardState::Active) {
            let holds = |metad: &&Metad| {
                metad.server().is_some_and(|server| server.shards().any(|shard| shard == entry.shard))
            };
            if knowing().any(|metad| entry.is_led_by(metad.node) && !holds(&metad)) {
                let order = self.newest(entry.shard, hub);
                orders.extend(order.map(|order| (order, "a shard without rows was given to who has them")));
            }
        }
        for (order, what) in orders {
            if self.mgmtd.order(&order, hub) {
                hub.coverage.hit(what);
                if order.newer_are_lost.is_some() {
                    hub.coverage.hit("newer rows of a shard were said to be lost");
                }
            }
        }
    }

    /// The shard is to go to who had it last, as servers know when all of them are up: its rows are the newest, and it gave
    /// them to nobody. If all who have them gave them on, there are no newer ones: one of them is to serve them, or another
    /// server is to fetch them.
    fn newest(&self, shard: ShardId, hub: &mut Hub) -> Option<GiveShard> {
        if self.metads.iter().any(|metad| metad.server().is_none() || metad.lacks_rows()) {
            return None;
        }
        let entry = self.mgmtd.state().shards.iter().find(|entry| entry.shard == shard)?;
        let newest = self.metads.iter().filter_map(|metad| metad.head_of(shard)).max()?;
        let given =
            |metad: &Metad| metad.server().is_some_and(|server| server.given().any(|(of, _)| of == shard));
        let having = self.metads.iter().filter(|metad| metad.head_of(shard) == Some(newest));
        let (gave, last): (Vec<&Metad>, Vec<&Metad>) = having.partition(|metad| given(metad));
        if let Some(last) = last.first() {
            let is_known = entry.members.first() == Some(&last.node);
            return (!is_known).then(|| GiveShard::to(shard, last.node));
        }
        let one = gave[hub.rng.below(gave.len() as u64) as usize].node;
        let fetches = entry.members.first() == Some(&one) && hub.rng.percent(50);
        let any = self.metads[hub.rng.below(self.metads.len() as u64) as usize].node;
        let node = if fetches { any } else { one };
        Some(GiveShard { newer_are_lost: Some(true), ..GiveShard::to(shard, node) })
    }

    /// Would an administrator move the shard there? Not while a server runs without rows that it should have: by mgmtd's map
    /// from a backup it may have had the newest, and who is given a shard of which its source has none takes what it has.
    pub(super) fn may_give(&self) -> bool {
        !self.mgmtd.was_restored() || !self.metads.iter().any(Metad::lacks_rows)
    }

    /// An administrator says of the groups of a metadata server that they are older copies (nothing is lost here, for
    /// nothing that was promised could be asked for).
    pub(super) fn restore_a_metad(&mut self) {
        let node = self.some_metad();
        let groups = self.process_of(node);
        self.restored.extend(groups);
        self.strike(node, false);
    }

    pub(super) fn restart_mgmtd(&mut self, hub: &mut Hub) {
        self.kill_process(MGMTD, false, hub);
        let due = hub.now + 20 + hub.rng.below(500);
        self.start_again(MGMTD, due, hub);
    }
}
