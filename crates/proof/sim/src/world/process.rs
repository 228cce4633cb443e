//! Daemons start and die. The groups of shards of one process do so together, whatever befalls one of them; what each of
//! them has on its disk is its own.

use super::World;
use crate::hub::{Cut, Hub};
use crate::queue::Event;
use skep_client::MGMTD;
use skep_types::{Incarnation, Millis, NodeId};

/// From one life of a daemon to the next: they are counted in nanoseconds.
const LIFE_STEP: u64 = 1 << 32;
/// Rows that were missing are there again so many milliseconds after their server has ended.
const PUT_BACK_MS: u64 = 200;
/// How far apart groups of one process start, at most: each reads its own log.
const APART_MS: u64 = 300;
/// Processes of so many groups of shards: by the place of each group, the process that it is in.
const PROCESSES: [&[&[usize]]; 3] =
    [&[&[0]], &[&[0, 0], &[0, 1], &[0, 1]], &[&[0, 0, 0], &[0, 0, 1], &[0, 1, 1], &[0, 1, 2], &[0, 1, 2]]];

/// Deals so many groups of shards to processes.
pub(super) fn deal(groups: usize, hub: &mut Hub) -> Vec<usize> {
    hub.rng.pick(PROCESSES[groups - 1]).to_vec()
}

impl World {
    /// The groups of shards that live and die with a daemon, itself among them.
    pub(super) fn process_of(&self, node: NodeId) -> Vec<NodeId> {
        let Some(at) = self.metad_at(node) else { return vec![node] };
        let process = self.metads[at].process;
        self.metads.iter().filter(|metad| metad.process == process).map(|metad| metad.node).collect()
    }

    /// Starts a daemon, in a new life.
    pub(super) fn start_daemon(&mut self, node: NodeId) {
        if self.network.life(node).is_some() {
            return;
        }
        self.last_life += LIFE_STEP;
        let life = self.last_life;
        self.network.set_up(node, life);
        self.hub.borrow_mut().say(format_args!("node {node} starts, life {life}"));
        if node == MGMTD {
            self.mgmtd.restart(&mut self.hub.borrow_mut());
        } else {
            self.renew_upkeep(node);
        }
        if let Some(at) = self.metad_at(node) {
            self.hub.borrow_mut().fields.metad_lives += 1;
            if self.metads[at].start(Incarnation(life), &mut self.hub.borrow_mut()) {
                self.hub.borrow_mut().metad_terms.insert(node, self.metads[at].root_term());
            }
        }
        self.after(1, Event::Tick(node, life));
    }

    /// The process of a daemon is gone, with or without the power of its machine, and is started again then.
    pub(super) fn strike(&mut self, node: NodeId, power: bool) {
        self.kill_daemon(node, power);
        let hub = self.hub.clone();
        let hub = &mut *hub.borrow_mut();
        let due = hub.now + 20 + hub.rng.below(1_500);
        self.start_again(node, due, hub);
    }

    /// The process of a daemon is gone.
    pub(super) fn kill_daemon(&mut self, node: NodeId, power: bool) {
        let hub = self.hub.clone();
        self.kill_process(node, power, &mut hub.borrow_mut());
    }

    /// As [`World::kill_daemon`].
    pub(super) fn kill_process(&mut self, node: NodeId, power: bool, hub: &mut Hub) {
        let all = self.process_of(node);
        let lives = |node: &&NodeId| self.network.life(**node).is_some();
        if all.iter().filter(lives).count() > 1 {
            hub.coverage.hit(match power {
                true => "groups of one machine lost their power together",
                false => "groups of one process were killed together",
            });
        }
        for node in all {
            if self.network.life(node).is_some() {
                self.end_daemon(node, power, hub);
            } else if power {
                self.cut_dead(node, hub);
            }
        }
    }

    /// It was killed before, and what it had not synced then goes with the power of its machine.
    fn cut_dead(&mut self, node: NodeId, hub: &mut Hub) {
        let Some(at) = self.metad_at(node) else { return };
        if self.metads[at].durable() < self.metads[at].last() {
            hub.say(format_args!("node {node}, which is dead, loses its power"));
            hub.coverage.hit("a dead metad lost its power");
            self.cut_metad(at, hub);
        }
    }

    /// The daemons of a process start, each by itself.
    pub(super) fn start_again(&mut self, node: NodeId, due: u64, hub: &mut Hub) {
        let all = self.process_of(node);
        let apart = if all.len() > 1 { APART_MS } else { 1 };
        for node in all {
            let later = hub.rng.below(apart);
            self.queue.at(due + later, &mut hub.rng, Event::Restart(node));
        }
    }

    fn end_daemon(&mut self, node: NodeId, power: bool, hub: &mut Hub) {
        hub.say(format_args!("node {node} {}", if power { "loses its power" } else { "is killed" }));
        self.network.set_down(node, hub, &mut self.queue);
        if node == MGMTD {
            hub.coverage.hit("mgmtd was killed");
        } else if let Some(at) = self.metad_at(node) {
            hub.metad_terms.remove(&node);
            if self.mood.deposes {
                self.network.depose(node, hub, &mut self.queue);
            }
            if power {
                self.cut_metad(at, hub);
            } else {
                hub.coverage.hit("metad was killed");
                self.metads[at].kill(hub);
            }
        } else if let Some(storaged) = self.storageds.iter_mut().find(|storaged| storaged.node == node) {
            if power {
                hub.coverage.hit("a power cut of storaged");
                storaged.lose_power(hub);
                hub.cuts.push(Cut::Storaged);
                hub.shared.doubt();
            } else {
                hub.coverage.hit("storaged was killed");
                storaged.restart(Millis(hub.now));
            }
        }
    }

    /// Another server goes on with the shards of a metadata server at once, and does not ask whether it lives.
    pub(super) fn deposed(&mut self, node: NodeId) {
        self.kill_daemon(node, false);
        let hub = self.hub.clone();
        let hub = &mut *hub.borrow_mut();
        let due = hub.now + 1;
        self.start_again(node, due, hub);
    }

    fn cut_metad(&mut self, at: usize, hub: &mut Hub) {
        let left = self.metads[at].lose_power(hub);
        hub.say(format_args!("the log had {} records and has {}", left.had, left.has));
        if left.has == left.had {
            hub.coverage.hit("a power cut took nothing");
        }
        if let Some((index, what)) = hub.promised.get(&at).filter(|(index, _)| left.has < *index).cloned() {
            hub.fail(format!(
                "{what} was answered, but its record {index} is lost: the log ends at {}",
                left.has
            ));
        }
        hub.cut_log(self.metads[at].at(left.has));
    }

    /// An administrator has found the rows that a metadata server missed.
    pub(super) fn put_back(&mut self, node: NodeId) {
        if node == MGMTD {
            self.put_mgmtd_right();
        } else if self.metad_at(node).is_some_and(|at| self.metads[at].lacks_rows()) {
            self.kill_daemon(node, false);
            let hub = self.hub.clone();
            let hub = &mut *hub.borrow_mut();
            let due = hub.now + PUT_BACK_MS;
            self.start_again(node, due, hub);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: of every number of groups some seeds have all in one process and some each in its own.
    #[test]
    fn groups_are_dealt_in_every_way() {
        for groups in 1..=crate::hub::METADS_MAX {
            let ways = PROCESSES[groups - 1];
            assert!(
                ways.iter().all(|way| way.len() == groups && way.iter().all(|process| *process < groups))
            );
            let apart: Vec<usize> = (0..groups).collect();
            assert!(ways.contains(&&vec![0; groups][..]) && ways.contains(&&apart[..]));
        }
    }
}
