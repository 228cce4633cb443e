//! The cluster map: told whole or as a difference, kept whole.

use super::{NodeEntry, PoolEntry, ShardEntry, TargetEntry};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::fmt;
use skep_types::{ClusterId, MapVersion, NamesKey, NodeId, PoolId, ShardId, TargetId, record};

record! {
    /// What is in the map no more.
    #[derive(Debug, Clone, Default, PartialEq, Eq)]
    pub struct Gone {
        /// Daemons.
        pub nodes: Vec<NodeId>,
        /// Targets.
        pub targets: Vec<TargetId>,
        /// Shards.
        pub shards: Vec<ShardId>,
        /// Storage pools.
        pub pools: Vec<PoolId>,
    }
}

record! {
    /// The cluster map, or what changed in it since the one that the asker holds: see [`ClusterView`].
    #[derive(Debug, Clone, Default, PartialEq, Eq)]
    pub struct MapReply {
        /// Its version.
        pub version: MapVersion,
        /// The map that this is the difference to; 0 = it is whole.
        pub base: MapVersion,
        /// The cluster.
        pub cluster: ClusterId,
        /// Key of the routes of names: never changes.
        pub names: NamesKey,
        /// Nodes: all, or those that are new or changed.
        pub nodes: Vec<NodeEntry>,
        /// Targets, as the nodes.
        pub targets: Vec<TargetEntry>,
        /// Shards, as the nodes.
        pub shards: Vec<ShardEntry>,
        /// Storage pools, as the nodes.
        pub pools: Vec<PoolEntry>,
        /// Empty in a whole map.
        pub gone: Gone,
        /// Semantic version of commands that metadata servers may use.
        pub command_level: u16,
    }
}

impl MapReply {
    /// Does it say all there is?
    pub fn is_whole(&self) -> bool {
        self.base == MapVersion(0)
    }
}

/// A difference came to a map that is not held: the whole one is to be asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gap;

impl fmt::Display for Gap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the map came as a difference to one that is not held")
    }
}

impl core::error::Error for Gap {}

/// The newest map that somebody knows: always whole, each list in order of the ids.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClusterView(MapReply);

impl ClusterView {
    /// Takes over what mgmtd told. `false`: it is no newer than what is held. After a gap nothing is changed.
    pub fn take(&mut self, told: MapReply) -> Result<bool, Gap> {
        if told.version <= self.0.version {
            return Ok(false);
        }
        let mut map = match told.base {
            MapVersion(0) => MapReply::default(),
            base if base == self.0.version => core::mem::take(&mut self.0),
            _ => return Err(Gap),
        };
        merge(&mut map.nodes, told.nodes, &told.gone.nodes, |entry| entry.node);
        merge(&mut map.targets, told.targets, &told.gone.targets, |entry| entry.target);
        merge(&mut map.shards, told.shards, &told.gone.shards, |entry| entry.shard);
        merge(&mut map.pools, told.pools, &told.gone.pools, |entry| entry.pool);
        let MapReply { version, cluster, names, command_level, .. } = told;
        self.0 = MapReply { version, cluster, names, command_level, ..map };
        Ok(true)
    }

    /// All of it.
    pub fn map(&self) -> &MapReply {
        &self.0
    }

    /// Its version; 0 = none yet.
    pub fn version(&self) -> MapVersion {
        self.0.version
    }

    /// A daemon's entry.
    pub fn node(&self, node: NodeId) -> Option<&NodeEntry> {
        find(&self.0.nodes, &node, |entry| entry.node)
    }

    /// A target's entry.
    pub fn target(&self, target: TargetId) -> Option<&TargetEntry> {
        find(&self.0.targets, &target, |entry| entry.target)
    }

    /// A shard's entry.
    pub fn shard(&self, shard: ShardId) -> Option<&ShardEntry> {
        find(&self.0.shards, &shard, |entry| entry.shard)
    }
}

fn find<'a, T, K: Ord>(list: &'a [T], key: &K, key_of: impl Fn(&T) -> K) -> Option<&'a T> {
    list.binary_search_by_key(key, key_of).ok().and_then(|at| list.get(at))
}

/// What is gone goes first: one that came back is in both lists.
fn merge<T, K: Ord>(list: &mut Vec<T>, changed: Vec<T>, gone: &[K], key_of: impl Fn(&T) -> K) {
    if changed.is_empty() && gone.is_empty() {
        return;
    }
    let mut all: BTreeMap<K, T> = list.drain(..).map(|entry| (key_of(&entry), entry)).collect();
    gone.iter().for_each(|key| drop(all.remove(key)));
    all.extend(changed.into_iter().map(|entry| (key_of(&entry), entry)));
    list.extend(all.into_values());
}
