//! What the registry shows: the map for everybody, the status for administrators.

use crate::registry::Registry;
use alloc::string::String;
use alloc::vec::Vec;
use skep_types::{MapVersion, Millis, Reachability};
use skep_wire::mgmt::{MapReply, NodeEntry, NodeStatus, SessionStatus, StatusReply, TargetEntry};

impl Registry {
    /// The map; without content when the asker holds it already.
    pub fn map(&self, known: MapVersion) -> MapReply {
        let version = self.map_version();
        let current = known == version;
        MapReply {
            pools: Vec::new(),
            version,
            cluster: self.state.cluster,
            nodes: if current { Vec::new() } else { self.node_entries().collect() },
            targets: if current { Vec::new() } else { self.target_entries(&self.told) },
            shards: if current { Vec::new() } else { self.state.shards.clone() },
            command_level: self.state.command_level,
        }
    }

    pub(crate) fn status(&self, now: Millis) -> StatusReply {
        let nodes = self.node_entries().map(|node| {
            let pulse = self.nodes.get(&node.node);
            NodeStatus {
                silent_ms: pulse.filter(|pulse| pulse.seen).map(|pulse| now.since(pulse.heard)),
                capacity: pulse.map(|pulse| pulse.capacity).unwrap_or_default(),
                node,
            }
        });
        let sessions = self.state.sessions.values().map(|session| {
            let pulse = self.sessions.get(&session.client);
            SessionStatus {
                client: session.client,
                host: session.host.clone(),
                mount: session.mount.clone(),
                silent_ms: pulse.filter(|pulse| pulse.seen).map(|pulse| now.since(pulse.heard)),
            }
        });
        StatusReply {
            pools: Vec::new(),
            cluster: self.state.cluster,
            map: self.map_version(),
            epoch: self.state.epoch,
            nodes: nodes.collect(),
            targets: self.target_entries(&self.capacities),
            shards: self.state.shards.clone(),
            sessions: sessions.collect(),
        }
    }

    fn node_entries(&self) -> impl Iterator<Item = NodeEntry> + '_ {
        self.state.nodes.values().map(|node| NodeEntry {
            domain: String::new(),
            node: node.id,
            service: node.service,
            alias: node.alias.clone(),
            addresses: node.addresses.clone(),
            machine: node.machine,
            reachability: self.nodes.get(&node.id).map_or(Reachability::Offline, |pulse| pulse.reachability),
            incarnation: node.incarnation,
        })
    }

    fn target_entries(
        &self,
        capacities: &alloc::collections::BTreeMap<skep_types::TargetId, skep_types::Capacity>,
    ) -> Vec<TargetEntry> {
        let entry = |target: &crate::command::Target| TargetEntry {
            class: skep_types::CapacityClass::Normal,
            filesystem: 0,
            pool: skep_types::PoolId(1),
            target: target.id,
            alias: String::clone(&target.alias),
            node: target.node,
            consistency: target.consistency,
            capacity: capacities.get(&target.id).copied().unwrap_or(target.capacity),
        };
        self.state.targets.values().map(entry).collect()
    }
}
