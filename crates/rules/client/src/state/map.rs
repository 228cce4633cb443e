//! The cluster map as a mount uses it: where is a shard, where is a target, how do I reach a node.

use alloc::collections::BTreeMap;
use skep_types::{
    Capacity, ClusterId, Consistency, Incarnation, MapVersion, NodeId, PoolId, ServiceKind, ShardId, TargetId,
};
use skep_wire::mgmt::{
    ClusterView, Gap, MapReply, NodeEntry, PoolEntry, ShardState, SpaceReply, TargetEntry,
};
use skep_wire::{Lead, View};

/// The newest map that a mount knows.
#[derive(Debug, Default)]
pub struct ClusterMap {
    view: ClusterView,
    /// Leaders that servers named, of epochs that the map does not have yet.
    hints: BTreeMap<ShardId, Lead>,
    /// A server knows more than this map says.
    is_behind: bool,
    /// Space of targets as it was told since: the map's own is older.
    space: BTreeMap<TargetId, Capacity>,
}

impl ClusterMap {
    /// Takes over what mgmtd told. `false`: nothing newer. What servers said of leaders holds until the map says as much.
    pub fn update(&mut self, reply: MapReply) -> Result<bool, Gap> {
        let is_newer = self.view.take(reply)?;
        self.is_behind = false;
        let view = &self.view;
        self.hints.retain(|shard, hint| view.shard(*shard).is_some_and(|entry| hint.epoch > entry.epoch));
        Ok(is_newer)
    }

    /// Its version; 0 = none yet.
    pub fn version(&self) -> MapVersion {
        self.view.version()
    }

    /// The cluster it describes.
    pub fn cluster(&self) -> ClusterId {
        self.view.map().cluster
    }

    /// A node's entry, with its addresses.
    pub fn node(&self, node: NodeId) -> Option<&NodeEntry> {
        self.view.node(node)
    }

    pub fn nodes(&self) -> impl Iterator<Item = &NodeEntry> {
        self.view.map().nodes.iter()
    }

    /// A target's entry.
    pub fn target(&self, target: TargetId) -> Option<&TargetEntry> {
        self.view.target(target)
    }

    pub fn targets(&self) -> impl Iterator<Item = &TargetEntry> {
        self.view.map().targets.iter()
    }

    /// All storage pools.
    pub fn pools(&self) -> &[PoolEntry] {
        &self.view.map().pools
    }

    /// The metadata server that leads `shard`.
    pub fn leader(&self, shard: ShardId) -> Option<NodeId> {
        let entry = self.view.shard(shard)?;
        let hint = self.hints.get(&shard).filter(|_| entry.state != ShardState::Retired);
        hint.map(|hint| hint.node).or_else(|| entry.led_by())
    }

    /// The newest epoch of `shard` that is known; 0 = none.
    pub fn epoch(&self, shard: ShardId) -> u64 {
        let told = self.view.shard(shard).map_or(0, |entry| entry.epoch);
        self.hints.get(&shard).map_or(told, |hint| hint.epoch.max(told))
    }

    /// Will nobody ever answer for `shard` again?
    pub fn is_retired(&self, shard: ShardId) -> bool {
        self.view.shard(shard).is_some_and(|entry| entry.state == ShardState::Retired)
    }

    /// A server says who leads `shard`. `true`: that is news, and where to ask next. Of a server that the map does not
    /// know nobody knows the addresses.
    pub fn hint(&mut self, shard: ShardId, lead: Lead) -> bool {
        if lead.epoch <= self.epoch(shard) {
            return false;
        }
        self.is_behind = true;
        let is_known = self.node(lead.node).is_some() && self.view.shard(shard).is_some();
        if is_known {
            self.hints.insert(shard, lead);
        }
        is_known
    }

    /// `node`, which was asked for `shard`, does not answer for it, or not at all: nobody is sent there by a word of
    /// another server any more.
    pub fn is_misled(&mut self, shard: ShardId, node: NodeId) {
        if self.hints.get(&shard).is_some_and(|hint| hint.node == node) {
            self.hints.remove(&shard);
        }
    }

    /// A server knows this much: is it more than this map has? It is to be fetched then.
    pub fn is_older_than(&mut self, view: Option<&View>) -> bool {
        let is_older = view.is_none_or(|view| view.map > self.version());
        self.is_behind |= is_older;
        is_older
    }

    /// A server does not answer as it says: it is to be fetched again.
    pub fn may_be_behind(&mut self) {
        self.is_behind = true;
    }

    /// Is there more to know than it says?
    pub fn is_behind(&self) -> bool {
        self.is_behind
    }

    /// Every shard that has a leader, with it.
    pub fn leaders(&self) -> impl Iterator<Item = (ShardId, NodeId)> + '_ {
        let shards = self.view.map().shards.iter();
        shards.filter_map(|entry| Some((entry.shard, self.leader(entry.shard)?)))
    }

    /// The shards that `node` leads.
    pub fn shards_of(&self, node: NodeId) -> impl Iterator<Item = ShardId> + '_ {
        self.leaders().filter(move |(_, leader)| *leader == node).map(|(shard, _)| shard)
    }

    /// Does `node` lead a shard or serve a target?
    pub fn is_asked(&self, node: NodeId) -> bool {
        self.shards_of(node).next().is_some() || self.targets().any(|target| target.node == node)
    }

    /// Lives of the metadata servers, as mgmtd knows them.
    pub fn metad_lives(&self) -> impl Iterator<Item = (NodeId, Incarnation)> + '_ {
        self.nodes()
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
        for target in self.targets().filter(|target| target.consistency != Consistency::Bad) {
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
    use skep_wire::mgmt::ShardEntry;

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
            let (targets, version) = (targets.to_vec(), MapVersion(1));
            let mut map = ClusterMap::default();
            map.update(MapReply { targets, version, ..MapReply::default() }).unwrap();
            let Capacity { bytes, bytes_free, inodes, inodes_free } = map.capacity();
            (bytes, bytes_free, inodes, inodes_free)
        };
        let plain = target(1, 1, 0, good);
        assert_eq!(free(&[plain.clone(), target(2, 2, 0, good)]), (200, 80, 20, 8));
        assert_eq!(free(&[plain.clone(), target(2, 0, 0, good)]), (200, 40, 20, 4), "to be removed");
        assert_eq!(free(&[plain, target(2, 1, 0, Consistency::Bad)]), (100, 40, 10, 4));
        assert_eq!(free(&[target(1, 0, 7, good), target(2, 1, 7, good)]), (100, 40, 10, 4), "one disk");
    }

    /// Goal: what a server says of a leader holds while the map knows less, and no longer; it is forgotten when the one that
    /// it names does not answer; of a retired shard there is no leader, whatever anybody said.
    #[test]
    fn hints_hold_until_the_map_knows() {
        let entry = |node| NodeEntry {
            node: NodeId(node),
            service: ServiceKind::Metad,
            alias: String::new(),
            addresses: alloc::vec![],
            machine: skep_types::Uuid::default(),
            reachability: skep_types::Reachability::Online,
            incarnation: Incarnation(1),
            domain: String::new(),
        };
        let told = |version, leader, epoch, state| MapReply {
            version: MapVersion(version),
            nodes: [1, 2, 3].map(entry).to_vec(),
            shards: alloc::vec![ShardEntry {
                shard: ShardId(0),
                members: alloc::vec![NodeId(leader)],
                leader: NodeId(leader),
                epoch,
                state,
                era: 0,
                newer_are_lost: None,
            }],
            ..MapReply::default()
        };
        let lead = |node, epoch| Lead { node: NodeId(node), epoch };
        let is = |map: &ClusterMap| (map.leader(ShardId(0)).map(|node| node.0), map.epoch(ShardId(0)));
        let mut map = ClusterMap::default();
        assert_eq!(is(&map), (None, 0));
        map.update(told(1, 1, 4, ShardState::Active)).unwrap();
        assert!(!map.hint(ShardId(0), lead(2, 4)) && !map.is_behind(), "no newer than the map");
        assert!(map.hint(ShardId(0), lead(2, 6)) && map.is_behind());
        assert_eq!(is(&map), (Some(2), 6));
        assert!(!map.hint(ShardId(0), lead(3, 5)), "older than what was said");
        assert!(!map.hint(ShardId(0), lead(9, 7)) && !map.hint(ShardId(7), lead(2, 7)), "not known");
        map.update(told(2, 1, 5, ShardState::Active)).unwrap();
        assert_eq!((is(&map), map.is_behind()), ((Some(2), 6), false));
        assert_eq!(map.shards_of(NodeId(2)).collect::<alloc::vec::Vec<_>>(), [ShardId(0)]);
        map.is_misled(ShardId(0), NodeId(1));
        assert_eq!(is(&map), (Some(2), 6));
        map.is_misled(ShardId(0), NodeId(2));
        assert_eq!(is(&map), (Some(1), 5));
        assert!(map.hint(ShardId(0), lead(2, 6)));
        map.update(told(3, 3, 6, ShardState::Moving)).unwrap();
        assert_eq!(is(&map), (Some(3), 6), "the map knows as much");
        map.update(told(4, 3, 7, ShardState::Retired)).unwrap();
        assert!(map.is_retired(ShardId(0)) && map.hint(ShardId(0), lead(2, 8)));
        assert_eq!((is(&map), map.leaders().count()), ((None, 8), 0));
    }
}
