//! Daemons: registered, heard, silent, removed.

use crate::age::{missing, superseded};
use crate::alias::unknown;
use crate::command::{DropNode, Node, SetIndex, SetNode, SetOffline, SetShards};
use crate::limits::DOMAIN_MAX;
use crate::pool::some;
use crate::registry::{NodePulse, Output, Registry};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use skep_types::limits::ADDRESSES_MAX;
use skep_types::{
    Capacity, Errno, LogSeq, MapVersion, Millis, NodeId, Reachability, ServiceKind, ShardId, Uuid,
};
use skep_wire::mgmt::{
    Heartbeat, HeartbeatReply, RegisterNode, RegisterNodeReply, RegistryAge, RemoveNode, ShardAt, ShardEntry,
    ShardState,
};
use skep_wire::{Empty, Refusal, Status};

impl Registry {
    pub(crate) fn register_node(
        &mut self,
        now: Millis,
        to: u64,
        m: RegisterNode,
        out: &mut Output,
    ) -> Result<(), Refusal> {
        if m.uuid == Uuid::default() || m.addresses.is_empty() || m.addresses.len() > ADDRESSES_MAX {
            return Err(Refusal::with(
                Status::errno(Errno::EINVAL),
                "a node needs a uuid and 1 to 32 addresses",
            ));
        }
        check_domain(&m.domain)?;
        let who = if m.alias.is_empty() { m.service.as_str() } else { m.alias.as_str() };
        self.check_registry(m.registry, who, out)?;
        let known = self.state.nodes.values().find(|node| node.uuid == m.uuid).cloned();
        let id = self.id_of(known.as_ref(), m.service)?;
        let alias = match &known {
            Some(node) if m.alias.is_empty() || m.alias == node.alias || m.alias == node.wish => {
                node.alias.clone()
            }
            _ => self.free_alias(&m.alias, &format!("{}-{id}", m.service.as_str()))?,
        };
        if let Some(known) = &known {
            self.check_node(known, &m)?;
            if m.restored {
                self.node_restored(known, out)?;
            }
        }
        let node = Node {
            index: m.index.max(known.as_ref().filter(|_| !m.restored).map_or(LogSeq(0), |known| known.index)),
            id,
            uuid: m.uuid,
            service: m.service,
            alias: alias.clone(),
            addresses: m.addresses,
            machine: m.machine,
            incarnation: m.incarnation,
            domain: m.domain,
            wish: m.alias,
            mark: m.mark,
        };
        if known.as_ref() != Some(&node) {
            self.commit(SetNode { node }, out);
            self.map_changed();
        }
        if m.service == ServiceKind::Metad {
            self.place_shards(out);
        }
        if m.restored
            && let Some(pulse) = self.nodes.get_mut(&id)
        {
            pulse.index = m.index;
        }
        self.hear(now, id, m.registry, (Capacity::default(), MapVersion(0), m.index), out);
        out.notes.push(format!("{alias} (node {id}) registered"));
        let (cluster, epoch, registry) = (self.state.cluster, self.state.epoch, self.age_for(m.registry));
        out.body(to, &RegisterNodeReply { node: id, alias, cluster, epoch, registry });
        Ok(())
    }

    /// The id that a directory has, or will have.
    fn id_of(&self, known: Option<&Node>, service: ServiceKind) -> Result<NodeId, Refusal> {
        match known {
            Some(node) if node.service != service => {
                let text =
                    format!("the state directory belongs to {}, a {}", node.alias, node.service.as_str());
                Err(Refusal::with(Status::errno(Errno::EINVAL), text))
            }
            Some(node) => Ok(node.id),
            None if self.state.nodes.len() >= self.config.max_nodes => {
                let max = self.config.max_nodes;
                let text = format!("{max} nodes are registered, the limit; raise max_nodes of mgmtd");
                Err(Refusal::with(Status::errno(Errno::ENOSPC), text))
            }
            None => Ok(NodeId(self.state.last_node.0 + 1)),
        }
    }

    pub(crate) fn heartbeat(
        &mut self,
        now: Millis,
        to: u64,
        m: Heartbeat,
        out: &mut Output,
    ) -> Result<(), Refusal> {
        self.check_registry(m.registry, &format!("node {}", m.node), out)?;
        let unknown = |text| Err(Refusal::with(Status::errno(Errno::ENOENT), text));
        let Some(node) = self.state.nodes.get(&m.node) else {
            return unknown(format!("node {} is not registered", m.node));
        };
        if m.incarnation < node.incarnation {
            return Err(superseded(node));
        }
        if m.incarnation > node.incarnation {
            return unknown(format!("this life of {} is not registered", node.alias));
        }
        if let Some(mark) = missing(node.mark, m.mark) {
            out.notes.push(format!("{} (node {}): its newest directory is known again", node.alias, node.id));
            self.commit(SetNode { node: Node { mark, ..node.clone() } }, out);
        }
        self.shards_are_formatted(m.node, &m.formatted, out);
        for report in &m.targets {
            self.hear_target(m.node, report, out);
        }
        // Who signs off serves nothing any more: the node is offline with all its targets.
        if !m.leaving {
            self.hear_which_are_served(m.node, &m.targets, out);
        }
        if m.leaving {
            // The last word on its directory.
            if self.state.nodes.get(&m.node).is_some_and(|node| m.index > node.index) {
                self.commit(SetIndex { node: m.node, index: m.index }, out);
            }
            self.set_reachability(m.node, Reachability::Offline, out);
        } else {
            self.hear(now, m.node, m.registry, (m.capacity, m.map, m.index), out);
        }
        self.tell_capacities(now);
        let registry = self.age_for(m.registry);
        out.body(to, &HeartbeatReply { registry, ..self.pulse() });
        Ok(())
    }

    pub(crate) fn hear(
        &mut self,
        now: Millis,
        node: NodeId,
        seen: RegistryAge,
        (capacity, map, index): (Capacity, MapVersion, LogSeq),
        out: &mut Output,
    ) {
        let known = self.nodes.get(&node);
        let reachability = known.map_or(Reachability::Online, |pulse| pulse.reachability);
        let index = index.max(known.map_or(LogSeq(0), |pulse| pulse.index));
        let knows_start = seen.start == self.state.age().start;
        // Who is known was registered before the start, or has been heard since.
        let is_newborn = known.map_or(seen == RegistryAge::default(), |pulse| pulse.is_newborn);
        let (heard, seen) = (now, true);
        let pulse = NodePulse { heard, seen, knows_start, is_newborn, reachability, capacity, map, index };
        self.nodes.insert(node, pulse);
        self.set_reachability(node, Reachability::Online, out);
    }

    /// Its server says so: from now on these shards are never formatted again, and are nowhere else.
    fn shards_are_formatted(&mut self, node: NodeId, formatted: &[ShardAt], out: &mut Output) {
        let is_new = |entry: &&ShardEntry| {
            let at = ShardAt { shard: entry.shard, epoch: entry.epoch };
            let awaits_word = matches!(entry.state, ShardState::New | ShardState::Moving);
            awaits_word && entry.is_led_by(node) && formatted.contains(&at)
        };
        let shards: Vec<ShardId> = self.state.shards.iter().filter(is_new).map(|entry| entry.shard).collect();
        if !shards.is_empty() {
            self.commit(SetShards { shards, state: ShardState::Active }, out);
            self.map_changed();
        }
    }

    pub(crate) fn set_reachability(&mut self, node: NodeId, reachability: Reachability, out: &mut Output) {
        let Some(pulse) = self.nodes.get_mut(&node) else { return };
        if pulse.reachability == reachability {
            return;
        }
        pulse.reachability = reachability;
        let alias = self.state.nodes.get(&node).map_or("?", |node| node.alias.as_str());
        out.notes.push(format!("{alias} is {}", reachability.as_str()));
        let offline = reachability == Reachability::Offline;
        if offline != self.state.offline.contains(&node) {
            self.commit(SetOffline { node, offline }, out);
        }
        // Who can be reached takes part in the dynamic limits of its pool.
        self.unclassified = true;
        self.map_changed();
    }

    pub(crate) fn watch_nodes(&mut self, now: Millis, out: &mut Output) {
        let silent: Vec<_> =
            self.nodes.iter().map(|(id, pulse)| (*id, now.since(pulse.heard), pulse.reachability)).collect();
        for (id, silence, is) in silent {
            let becomes = if silence >= self.config.offline_ms {
                Reachability::Offline
            } else if silence >= self.config.probably_offline_ms {
                Reachability::ProbablyOffline
            } else {
                continue;
            };
            // Silence never makes anybody look more alive (one that signed off stays offline).
            if becomes > is {
                self.set_reachability(id, becomes, out);
            }
        }
    }

    pub(crate) fn remove_node(&mut self, to: u64, m: RemoveNode, out: &mut Output) -> Result<(), Refusal> {
        let Some(node) = self.state.nodes.get(&m.node) else {
            return Err(unknown("node", m.node.0, "node"));
        };
        let busy = |text: String| Err(Refusal::with(Status::errno(Errno::EBUSY), text));
        let alias = node.alias.clone();
        let targets = self.state.targets.values().filter(|target| target.node == m.node);
        let targets: Vec<&str> = targets.map(|target| target.alias.as_str()).collect();
        if !targets.is_empty() {
            let named = some(&targets);
            return busy(format!(
                "{alias} has {} targets ({named}): remove them first, `skep target remove`, or let another \
                 storage server take their disks over",
                targets.len()
            ));
        }
        let has = |shard: &&ShardEntry| shard.members.contains(&m.node) || shard.is_led_by(m.node);
        let shards = self.state.shards.iter().filter(has).count();
        if shards > 0 {
            return busy(format!(
                "{alias} holds {shards} metadata shards: start it again, with the same state directory, and give \
                 them to another server first, `skep shard give`; if it is gone for good, and another one has a copy: \
                 `skep shard give SHARD NODE --source-is-gone`"
            ));
        }
        let reachability = self.nodes.get(&m.node).map(|pulse| pulse.reachability);
        if node.service == ServiceKind::Mgmtd || reachability.is_some_and(|is| is != Reachability::Offline) {
            let is = reachability.unwrap_or(Reachability::Offline).as_str();
            return busy(format!("{alias} is {is}: stop it first, and wait until it is offline"));
        }
        out.notes.push(format!("{alias} (node {}) removed", m.node));
        self.nodes.remove(&m.node);
        self.listed.remove(&m.node);
        self.commit(DropNode { node: m.node }, out);
        self.map_changed();
        out.body(to, &Empty {});
        Ok(())
    }
}

/// A failure domain is a word, such as `rack-7` or `dc1/row3`.
fn check_domain(domain: &str) -> Result<(), Refusal> {
    if domain.len() <= DOMAIN_MAX && domain.bytes().all(|b| b.is_ascii_graphic()) {
        return Ok(());
    }
    let text = format!(
        "domain \"{domain}\": use up to {DOMAIN_MAX} letters, digits and signs without spaces, such as rack-7"
    );
    Err(Refusal::with(Status::errno(Errno::EINVAL), text))
}
