//! Older copies of directories: that of mgmtd put in the place of the newest one by mistake; that of mgmtd, or of a
//! metadata server, put back on purpose.

use super::{World, rescue};
use crate::hub::Hub;
use crate::metad::Metad;
use crate::queue::Event;
use skep_client::MGMTD;
use skep_types::{NodeId, ShardId};
use skep_wire::mgmt::{RegistryAge, ShardState};

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
        if self.needs_a_third() {
            return;
        }
        let hub = self.hub.clone();
        let hub = &mut *hub.borrow_mut();
        if self.mgmtd.restore(hub) {
            hub.say(format_args!("mgmtd goes on from a backup, which is all there is"));
            hub.coverage.hit("mgmtd was put back from a backup");
            self.restart_mgmtd(hub);
        }
    }

    /// A server was told all rows of a shard and has none, and who has them cannot be told from who may have newer ones by
    /// stopping servers (`rescue`): there is no third one, or groups of one process are in each other's way.
    pub(super) fn needs_a_third(&self) -> bool {
        let lacks =
            |shard, node| self.metad_at(node).is_none_or(|at| self.metads[at].head_of(shard).is_none());
        let may_lack = |metad: &Metad| {
            metad.lacks_rows()
                || metad.server().is_none_or(|server| server.given().any(|(shard, node)| lacks(shard, node)))
        };
        let is_alone = |metad: &Metad| self.process_of(metad.node).len() == 1;
        let can_be_stopped = self.metads.len() >= 3 && self.metads.iter().all(is_alone);
        !can_be_stopped && self.metads.iter().any(may_lack)
    }

    /// An administrator reads what servers say of shards that they cannot serve by a map of mgmtd's backup, and does it. Whom
    /// a server names that withholds one is asked first as often as not: it may have given the shard on.
    pub(super) fn give_what_is_not_served(&mut self) {
        let hub = self.hub.clone();
        let hub = &mut *hub.borrow_mut();
        if !hub.calm || self.mgmtd.is_a_copy() || self.rescue.is_some() {
            return;
        }
        let version = self.mgmtd.map_version();
        let servers = || self.metads.iter().filter(|metad| !metad.lacks_rows());
        let knowing =
            || servers().filter(|metad| metad.server().is_some_and(|server| server.map_version() == version));
        let withheld = knowing().filter_map(Metad::server).flat_map(skep_meta::Group::withheld);
        let (mut gifts, mut unclear) = (Vec::new(), Vec::new());
        for (shard, named) in withheld {
            let node = if hub.rng.percent(50) { Some(named) } else { self.who_is_to_have(shard) };
            unclear.extend(node.is_none().then_some(shard));
            gifts.extend(node.map(|node| (shard, node, "a withheld shard was given to who has it")));
        }
        for metad in knowing() {
            for shard in metad.server().into_iter().flat_map(skep_meta::Group::refused) {
                let node = self.who_is_to_have(shard);
                unclear.extend(node.is_none().then_some(shard));
                gifts.extend(
                    node.map(|node| (shard, node, "a shard that did not come was given to another metad")),
                );
            }
        }
        for entry in self.mgmtd.state().shards.iter().filter(|entry| entry.state == ShardState::Active) {
            let holds = |metad: &&Metad| {
                metad.server().is_some_and(|server| server.shards().any(|shard| shard == entry.shard))
            };
            let is_bare = knowing().any(|metad| entry.is_led_by(metad.node) && !holds(&metad));
            let newest = |metad: &&Metad| metad.head_of(entry.shard);
            if let Some(holder) = servers().filter(holds).max_by_key(newest).filter(|_| is_bare) {
                gifts.push((entry.shard, holder.node, "a shard without rows was given to who has them"));
            }
        }
        let all_run = self.metads.iter().all(|metad| metad.server().is_some() && !metad.lacks_rows());
        let unclear = unclear.first().copied().filter(|_| all_run);
        for (shard, node, what) in gifts {
            if self.mgmtd.give_shard(shard, node, hub) {
                hub.coverage.hit(what);
            }
        }
        if let Some(shard) = unclear {
            self.begin_rescue(shard, hub);
        }
    }

    /// Who had it last, as servers know when all of them are up: its rows are the newest, it gave them to nobody, and mgmtd does
    /// not know that it has them.
    fn who_is_to_have(&self, shard: ShardId) -> Option<NodeId> {
        if self.metads.iter().any(|metad| metad.server().is_none() || metad.lacks_rows()) {
            return None;
        }
        let entry = self.mgmtd.state().shards.iter().find(|entry| entry.shard == shard)?;
        let newest = self.metads.iter().map(|metad| metad.head_of(shard)).max()?;
        let is_last =
            |metad: &&Metad| metad.head_of(shard) == newest && rescue::given_to(metad, shard).is_none();
        let last = self.metads.iter().filter(is_last).map(|metad| metad.node);
        last.filter(|node| entry.members.first() != Some(node)).min()
    }

    /// Would an administrator move the shard there? mgmtd that was put back may not know where its newest rows are: whoever is
    /// to move it has read what servers say of that, and is not to move older ones. While a server is down nobody knows.
    pub(super) fn may_give(&self, shard: ShardId, node: NodeId) -> bool {
        if !self.mgmtd.was_restored() {
            return true;
        }
        let head = |metad: &Metad| (!metad.lacks_rows()).then(|| (metad.head_of(shard), metad.node));
        let heads = self.metads.iter().map(|metad| metad.server().and_then(|_| head(metad)));
        let Some(heads) = heads.collect::<Option<Vec<_>>>() else { return false };
        let newest = heads.iter().map(|(head, _)| *head).max().flatten();
        let entry = self.mgmtd.state().shards.iter().find(|entry| entry.shard == shard);
        let source = entry.and_then(|entry| entry.members.first());
        let has_newest = |node: NodeId| heads.contains(&(newest, node));
        has_newest(node) || source.is_some_and(|source| has_newest(*source))
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
