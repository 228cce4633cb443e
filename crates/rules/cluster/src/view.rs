//! What the registry shows: the map for everybody, the status for administrators.

use crate::command::Target;
use crate::limits::EVICTION_LISTED_S;
use crate::registry::Registry;
use alloc::collections::BTreeMap;
use alloc::string::ToString;
use alloc::vec::Vec;
use skep_types::{Capacity, MapVersion, Millis, Reachability, TargetId};
use skep_wire::mgmt::{
    EvictionStatus, MapReply, NodeEntry, NodeStatus, PoolEntry, PoolStatus, SessionStatus, SpaceReply,
    StatusReply, TargetEntry, TargetSpace,
};

impl Registry {
    /// The map: what changed in it since the one that the asker holds, where that is known, else the whole.
    pub fn map(&mut self, known: MapVersion) -> MapReply {
        let version = self.map_version();
        let mut history = core::mem::take(&mut self.history);
        if history.version() != version {
            history.renew(MapReply {
                version,
                nodes: self.node_entries().collect(),
                targets: self.target_entries(&self.told),
                shards: self.state.shards.clone(),
                pools: self.pool_entries().collect(),
                ..MapReply::default()
            });
        }
        self.history = history;
        let (cluster, names, command_level) =
            (self.state.cluster, self.state.names, self.state.command_level);
        MapReply { cluster, names, command_level, ..self.history.since(known) }
    }

    /// What every target's daemon last told of its space.
    pub(crate) fn space(&self) -> SpaceReply {
        let of = |target: &Target| TargetSpace {
            target: target.id,
            capacity: self.capacities.get(&target.id).copied().unwrap_or(target.capacity),
        };
        SpaceReply { targets: self.state.targets.values().map(of).collect() }
    }

    pub(crate) fn status(&self, now: Millis) -> StatusReply {
        let nodes = self.node_entries().map(|node| {
            let pulse = self.nodes.get(&node.node);
            NodeStatus {
                silent_ms: pulse.filter(|pulse| pulse.seen).map(|pulse| now.since(pulse.heard)),
                capacity: pulse.map(|pulse| pulse.capacity).unwrap_or_default(),
                map: pulse.map(|pulse| pulse.map).unwrap_or_default(),
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
            pools: self
                .pool_entries()
                .zip(self.state.pools.values())
                .map(|(pool, known)| PoolStatus { pool, limits: known.limits })
                .collect(),
            cluster: self.state.cluster,
            map: self.map_version(),
            epoch: self.state.epoch,
            nodes: nodes.collect(),
            targets: self.target_entries(&self.capacities),
            shards: self.state.shards.clone(),
            sessions: sessions.collect(),
            evictions: self.evictions().collect(),
        }
    }

    fn evictions(&self) -> impl Iterator<Item = EvictionStatus> + '_ {
        let listed = self.state.evictions.iter().filter(|old| old.at + EVICTION_LISTED_S > self.clock);
        listed.map(|old| EvictionStatus {
            client: old.client,
            host: old.host.clone(),
            mount: old.mount.clone(),
            ago_ms: self.clock.saturating_sub(old.at) * 1_000,
            why: old.why.clone(),
        })
    }

    fn node_entries(&self) -> impl Iterator<Item = NodeEntry> + '_ {
        self.state.nodes.values().map(|node| NodeEntry {
            domain: match node.domain.is_empty() {
                true => node.machine.to_string(),
                false => node.domain.clone(),
            },
            node: node.id,
            service: node.service,
            alias: node.alias.clone(),
            addresses: node.addresses.clone(),
            machine: node.machine,
            reachability: self.nodes.get(&node.id).map_or(Reachability::Offline, |pulse| pulse.reachability),
            incarnation: node.incarnation,
        })
    }

    fn pool_entries(&self) -> impl Iterator<Item = PoolEntry> + '_ {
        self.state.pools.values().map(|pool| PoolEntry { pool: pool.id, alias: pool.alias.clone() })
    }

    fn target_entries(&self, capacities: &BTreeMap<TargetId, Capacity>) -> Vec<TargetEntry> {
        let entry = |target: &Target| TargetEntry {
            class: target.class,
            filesystem: target.filesystem,
            pool: target.pool,
            target: target.id,
            alias: target.alias.clone(),
            node: target.node,
            consistency: target.consistency,
            failures: target.failures,
            decisions: target.decisions,
            served: !self.unserved.contains(&target.id),
            capacity: capacities.get(&target.id).copied().unwrap_or(target.capacity),
        };
        self.state.targets.values().map(entry).collect()
    }
}
