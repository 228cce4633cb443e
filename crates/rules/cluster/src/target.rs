//! Targets: registered, reported, changed, removed.

use crate::age::{knows, missing};
use crate::alias::unknown;
use crate::capacity::first_class;
use crate::command::{DropTarget, SetConsistency, SetTarget, Target};
use crate::limits::{CAPACITY_EVERY_MS, CAPACITY_STEP};
use crate::registry::{Output, Registry};
use crate::state::DEFAULT_POOL;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use skep_types::{Consistency, Errno, Millis, NodeId, PoolId, Reachability, TargetId, Uuid};
use skep_wire::mgmt::{RegisterTarget, RegisterTargetReply, RemoveTarget, SetTargetState, TargetReport};
use skep_wire::{Empty, Refusal, Status};

impl Registry {
    pub(crate) fn register_target(
        &mut self,
        to: u64,
        m: RegisterTarget,
        out: &mut Output,
    ) -> Result<(), Refusal> {
        let refuse = |text: String| Err(Refusal::with(Status::errno(Errno::EINVAL), text));
        if m.uuid == Uuid::default() || !self.state.nodes.contains_key(&m.node) {
            return refuse("register the node first; a target needs a uuid".to_string());
        }
        if let Some(removed) = self.state.removed.iter().find(|removed| removed.uuid == m.uuid) {
            let text = format!(
                "target {} was removed from the cluster: take its directory out of `targets` of storaged.toml; \
                 to use the disk again, empty it and start with --init",
                removed.target
            );
            return Err(Refusal::with(Status::errno(Errno::ESTALE), text));
        }
        let by_uuid = self.state.targets.values().find(|target| target.uuid == m.uuid).cloned();
        let target = match by_uuid {
            Some(target) if m.target.0 != 0 && m.target != target.id => {
                return refuse(format!(
                    "the identity file says target {}, this cluster knows its uuid as target {}; was the file edited or copied?",
                    m.target, target.id
                ));
            }
            Some(target) => {
                self.check_move(&target, &m)?;
                Target { node: m.node, mark: m.mark, ..target }
            }
            // Registered after the copy of the registry was made that is used now.
            None if m.target.0 != 0 && self.state.restored && !self.state.targets.contains_key(&m.target) => {
                self.new_target(m.target, &m)?
            }
            None if m.target.0 != 0 => {
                return refuse(format!(
                    "target {} with this uuid is not registered here: another cluster's disk?",
                    m.target
                ));
            }
            None if self.state.targets.len() >= self.config.max_targets => {
                let max = self.config.max_targets;
                let text = format!("{max} targets are registered, the limit; raise max_targets of mgmtd");
                return Err(Refusal::with(Status::errno(Errno::ENOSPC), text));
            }
            None => {
                // Targets count from 101, so that nobody takes one for a node.
                self.new_target(TargetId(self.state.last_target.0.max(100) + 1), &m)?
            }
        };
        if self.state.targets.get(&target.id) != Some(&target) {
            self.commit(SetTarget { target: target.clone() }, out);
        }
        self.capacities.insert(target.id, m.capacity);
        self.told.insert(target.id, m.capacity);
        self.reported.insert(target.id);
        self.unclassified = true;
        self.map_changed();
        out.notes.push(format!("{} (target {}) registered by node {}", target.alias, target.id, m.node));
        self.unserved.remove(&target.id);
        self.target_changes += 1;
        let Target { id, uuid, alias, consistency, failures, decisions, .. } = target;
        out.body(to, &RegisterTargetReply { target: id, alias, uuid, consistency, failures, decisions });
        Ok(())
    }

    fn new_target(&self, id: TargetId, m: &RegisterTarget) -> Result<Target, Refusal> {
        let alias = self.free_alias(&m.alias, &format!("target-{id}"))?;
        let limits = self.state.pools.get(&DEFAULT_POOL).map(|pool| pool.limits).unwrap_or_default();
        Ok(Target {
            id,
            uuid: m.uuid,
            node: m.node,
            alias,
            consistency: Consistency::Good,
            capacity: m.capacity,
            pool: DEFAULT_POOL,
            class: first_class(&limits, &m.capacity),
            filesystem: 0,
            failures: 0,
            decisions: 0,
            mark: m.mark,
        })
    }

    /// May the directory that registers take the place of the one that is known? Not an older copy, and not a copy
    /// beside one that is served.
    fn check_move(&self, known: &Target, m: &RegisterTarget) -> Result<(), Refusal> {
        let name = &known.alias;
        if !m.restored && !knows(known.mark, (m.confirmed, m.mark)) {
            let text = format!(
                "{name} (target {}): the directory is an older copy, or its server was superseded: it was served since by \
                 a newer one. Put the newest back; if that is lost, and this is the newest copy that there is, run \
                 `skep storaged --restored` once (docs/admin/restore.md says what is lost)",
                known.id
            );
            return Err(Refusal::with(Status::errno(Errno::EINVAL), text));
        }
        let Some(pulse) = self.nodes.get(&known.node).filter(|_| known.node != m.node) else { return Ok(()) };
        let server = self.state.nodes.get(&known.node).map_or("?", |node| node.alias.as_str());
        match pulse.reachability {
            Reachability::Offline => Ok(()),
            _ if !pulse.seen => {
                let text = format!(
                    "{name}: mgmtd was just started and has not heard yet whether {server} serves it"
                );
                Err(Refusal::with(Status::NOT_READY, text))
            }
            _ if !self.unserved.contains(&known.id) => {
                let text = format!(
                    "{name} (target {}) is served by {server}, which is {}: is this directory a copy? To move it, take it \
                     out of `targets` there and restart that server, or stop it",
                    known.id,
                    pulse.reachability.as_str()
                );
                Err(Refusal::with(Status::errno(Errno::EBUSY), text))
            }
            _ => Ok(()),
        }
    }

    /// Moves the map when a target's space moved much, or a while after it moved at all.
    pub(crate) fn tell_capacities(&mut self, now: Millis) {
        let overdue = now.since(self.told_at) >= CAPACITY_EVERY_MS;
        let mut moved = false;
        for (target, is) in &self.capacities {
            let was = self.told.get(target).copied().unwrap_or_default();
            let much = was.bytes_free.abs_diff(is.bytes_free) > is.bytes / CAPACITY_STEP;
            // Those that moved little are not told with them: they would make the difference of two maps a whole one.
            if much || (overdue && was != *is) {
                self.told.insert(*target, *is);
                moved = true;
            }
        }
        if moved {
            self.told_at = if overdue { now } else { self.told_at };
            self.map_changed();
        }
    }

    pub(crate) fn set_target_state(
        &mut self,
        to: u64,
        m: SetTargetState,
        out: &mut Output,
    ) -> Result<(), Refusal> {
        let Some(known) = self.state.targets.get(&m.target) else {
            return Err(unknown("target", m.target.0, "target"));
        };
        // It answers the failures that were heard of: one that is on its way makes the target bad all the same.
        let (failures, decisions) = (known.failures, known.decisions + 1);
        let (target, consistency) = (m.target, m.consistency);
        self.commit(SetConsistency { target, consistency, failures, decisions }, out);
        self.map_changed();
        out.body(to, &Empty {});
        Ok(())
    }

    /// What a daemon reports of one of its targets.
    pub(crate) fn hear_target(&mut self, node: NodeId, report: &TargetReport, out: &mut Output) {
        let Some(target) = self.state.targets.get(&report.target).filter(|target| target.node == node) else {
            return;
        };
        let known = self.capacities.insert(report.target, report.capacity);
        if self.reported.insert(report.target) || known != Some(report.capacity) {
            self.unclassified = true;
        }
        let mut target = target.clone();
        if let Some(mark) = missing(target.mark, report.mark) {
            target.mark = mark;
            out.notes.push(format!(
                "{} (target {}): its newest directory is known again",
                target.alias, target.id
            ));
            self.commit(SetTarget { target: target.clone() }, out);
        }
        // A server may say that its disk failed; only an administrator says that it is good again. A failure that was
        // heard of before is no news, whatever was decided since: the server has not heard of that yet.
        if report.failures > target.failures {
            target.failures = report.failures;
            // One that was answered long ago (mgmtd was restored from an older copy) changes nothing else.
            if report.consistency == Consistency::Bad {
                target.consistency = Consistency::Bad;
                out.notes.push(format!("{} is bad: its disk failed", target.alias));
            }
            let Target { consistency, failures, decisions, .. } = target;
            self.commit(SetConsistency { target: target.id, consistency, failures, decisions }, out);
            self.map_changed();
        }
        if report.filesystem != 0 && report.filesystem != target.filesystem {
            target.filesystem = report.filesystem;
            self.commit(SetTarget { target }, out);
            self.map_changed();
        }
    }

    /// Whose daemon runs and does not list it is served by nobody: its disk was replaced, is not mounted, or was taken
    /// out of the daemon's configuration.
    pub(crate) fn hear_which_are_served(&mut self, node: NodeId, reports: &[TargetReport], out: &mut Output) {
        let mut listed: Vec<TargetId> = reports.iter().map(|report| report.target).collect();
        listed.sort_unstable();
        let said = (self.target_changes, listed);
        if self.listed.get(&node) == Some(&said) {
            return;
        }
        let own: Vec<_> = self.state.targets.values().filter(|target| target.node == node).collect();
        let mut changed = false;
        for target in own {
            let served = said.1.binary_search(&target.id).is_ok();
            let news = match served {
                true => self.unserved.remove(&target.id),
                false => self.unserved.insert(target.id),
            };
            if news {
                let how = if served {
                    "is served again"
                } else {
                    "is served by nobody: its daemon runs without it"
                };
                out.notes.push(format!("{} (target {}) {how}", target.alias, target.id));
                changed = true;
            }
        }
        if changed {
            self.unclassified = true;
            self.map_changed();
        }
        self.listed.insert(node, said);
    }

    pub(crate) fn remove_target(
        &mut self,
        to: u64,
        m: RemoveTarget,
        out: &mut Output,
    ) -> Result<(), Refusal> {
        let Some(target) = self.state.targets.get(&m.target) else {
            return Err(unknown("target", m.target.0, "target"));
        };
        if let Some(pool) = self.state.pools.get(&target.pool).filter(|_| !m.force) {
            let text = format!(
                "{} is in pool {}, so new files may be put on it at any moment: take it out first (`skep target \
                 remove` does), or force it",
                target.alias, pool.alias
            );
            return Err(Refusal::with(Status::errno(Errno::EBUSY), text));
        }
        let how = if m.force && target.pool != PoolId(0) { ", by force" } else { "" };
        out.notes.push(format!("{} (target {}) removed{how}", target.alias, m.target));
        self.capacities.remove(&m.target);
        self.told.remove(&m.target);
        self.reported.remove(&m.target);
        self.unserved.remove(&m.target);
        self.target_changes += 1;
        self.unclassified = true;
        self.commit(DropTarget { target: m.target }, out);
        self.map_changed();
        out.body(to, &Empty {});
        Ok(())
    }
}
