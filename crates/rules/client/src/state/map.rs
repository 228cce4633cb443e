//! The cluster map as a mount uses it: where is a shard, where is a target, how do I reach a node.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use skep_types::{
    Capacity, ClusterId, Consistency, Incarnation, MapVersion, NodeId, PoolId, ServiceKind, ShardId, TargetId,
};
use skep_wire::mgmt::{MapReply, NodeEntry, PoolEntry, SpaceReply, TargetEntry};

/// The newest map that a mount knows.
#[derive(Debug, Default)]
pub struct ClusterMap {
    version: MapVersion,
    cluster: ClusterId,
    nodes: BTreeMap<NodeId, NodeEntry>,
    targets: BTreeMap<TargetId, TargetEntry>,
    shards: BTreeMap<ShardId, NodeId>,
    pools: Vec<PoolEntry>,
    /// Space of targets as it was told since: the map's own is older.
    space: BTreeMap<TargetId, Capacity>,
}

impl ClusterMap {
    /// Takes over a newer map; an equal or older one (or one without content) changes nothing.
    pub fn update(&mut self, reply: MapReply) -> bool {
        if reply.version <= self.version || reply.nodes.is_empty() {
            return false;
        }
        self.version = reply.version;
        self.cluster = reply.cluster;
        self.pools = reply.pools;
        self.nodes = reply.nodes.into_iter().map(|node| (node.node, node)).collect();
        self.targets = reply.targets.into_iter().map(|target| (target.target, target)).collect();
        self.shards = reply
            .shards
            .into_iter()
            .filter_map(|shard| Some((shard.shard, *shard.replicas.first()?)))
            .collect();
        true
    }

    /// Its version; 0 = none yet.
    pub fn version(&self) -> MapVersion {
        self.version
    }

    /// The cluster it describes.
    pub fn cluster(&self) -> ClusterId {
        self.cluster
    }

    /// A node's entry, with its addresses.
    pub fn node(&self, node: NodeId) -> Option<&NodeEntry> {
        self.nodes.get(&node)
    }

    /// All nodes.
    pub fn nodes(&self) -> impl Iterator<Item = &NodeEntry> {
        self.nodes.values()
    }

    /// A target's entry.
    pub fn target(&self, target: TargetId) -> Option<&TargetEntry> {
        self.targets.get(&target)
    }

    /// All targets.
    pub fn targets(&self) -> impl Iterator<Item = &TargetEntry> {
        self.targets.values()
    }

    /// All storage pools.
    pub fn pools(&self) -> &[PoolEntry] {
        &self.pools
    }

    /// The metadata server that leads `shard`.
    pub fn leader(&self, shard: ShardId) -> Option<NodeId> {
        self.shards.get(&shard).copied()
    }

    /// Every shard, and the metadata server that leads it.
    pub fn leaders(&self) -> impl Iterator<Item = (ShardId, NodeId)> + '_ {
        self.shards.iter().map(|(shard, leader)| (*shard, *leader))
    }

    /// The shards that `node` leads.
    pub fn shards_of(&self, node: NodeId) -> impl Iterator<Item = ShardId> + '_ {
        self.shards.iter().filter(move |(_, leader)| **leader == node).map(|(shard, _)| *shard)
    }

    /// Lives of the metadata servers, as mgmtd knows them.
    pub fn metad_lives(&self) -> impl Iterator<Item = (NodeId, Incarnation)> + '_ {
        self.nodes
            .values()
            .filter(|node| node.service == ServiceKind::Metad)
            .map(|node| (node.node, node.incarnation))
    }

    /// mgmtd told the space of every target.
    pub fn set_space(&mut self, reply: &SpaceReply) {
        self.space = reply.targets.iter().map(|entry| (entry.target, entry.capacity)).collect();
    }

    /// Space of all targets that are not broken; a file system that several of them share counts once. What is free
    /// counts where a new file could be put: not on a target without a pool, which is to be removed.
    pub fn capacity(&self) -> Capacity {
        let mut disks: BTreeMap<(u64, TargetId), (Capacity, bool)> = BTreeMap::new();
        for target in self.targets.values().filter(|target| target.consistency != Consistency::Bad) {
            // One whose daemon told no file system counts for itself.
            let alone = if target.filesystem == 0 { target.target } else { TargetId(0) };
            let capacity = self.space.get(&target.target).copied().unwrap_or(target.capacity);
            let disk = disks.entry((target.filesystem, alone)).or_insert((capacity, false));
            disk.1 |= target.pool != PoolId(0);
        }
        disks.values().fold(Capacity::default(), |sum, (one, takes_files)| {
            let free = |free: u64| if *takes_files { free } else { 0 };
            Capacity {
                bytes: sum.bytes.saturating_add(one.bytes),
                bytes_free: sum.bytes_free.saturating_add(free(one.bytes_free)),
                inodes: sum.inodes.saturating_add(one.inodes),
                inodes_free: sum.inodes_free.saturating_add(free(one.inodes_free)),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::String;
    use skep_types::CapacityClass;

    /// Goal: what is free on a target that takes nothing new is no space that anybody can have; a disk that it shares with
    /// another one counts, once.
    #[test]
    fn space_that_nobody_can_have_is_not_free() {
        let target = |id, pool, filesystem, consistency| TargetEntry {
            target: TargetId(id),
            alias: String::new(),
            node: NodeId(1),
            consistency,
            capacity: Capacity { bytes: 100, bytes_free: 40, inodes: 10, inodes_free: 4 },
            pool: PoolId(pool),
            class: CapacityClass::Normal,
            filesystem,
            failures: 0,
            decisions: 0,
            served: true,
        };
        let good = Consistency::Good;
        let free = |targets: &[TargetEntry]| {
            let targets = targets.iter().map(|target| (target.target, target.clone())).collect();
            let Capacity { bytes, bytes_free, inodes, inodes_free } =
                ClusterMap { targets, ..ClusterMap::default() }.capacity();
            (bytes, bytes_free, inodes, inodes_free)
        };
        let plain = target(1, 1, 0, good);
        assert_eq!(free(&[plain.clone(), target(2, 2, 0, good)]), (200, 80, 20, 8));
        assert_eq!(free(&[plain.clone(), target(2, 0, 0, good)]), (200, 40, 20, 4), "to be removed");
        assert_eq!(free(&[plain, target(2, 1, 0, Consistency::Bad)]), (100, 40, 10, 4));
        assert_eq!(free(&[target(1, 0, 7, good), target(2, 1, 7, good)]), (100, 40, 10, 4), "one disk");
    }
}
