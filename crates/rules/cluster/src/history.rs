//! What of the map changed when, for those who hold an older one.
//!
//! The map is looked at when somebody asks for it, and compared with what it was when somebody asked before: so nothing
//! that changes an entry has to say so here, and nothing can be forgotten.

use crate::limits::GONE_MAX;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use skep_types::{MapVersion, NodeId, PoolId, ShardId, TargetId};
use skep_wire::mgmt::{Gone, MapReply, NodeEntry, PoolEntry, ShardEntry, TargetEntry};

/// Entries of one kind, each with the version in which it was first told as it is.
type Entries<K, T> = BTreeMap<K, (T, MapVersion)>;

#[derive(Debug, Default)]
pub(crate) struct History {
    version: MapVersion,
    /// Differences to this one and later ones are known.
    oldest: MapVersion,
    nodes: Entries<NodeId, NodeEntry>,
    targets: Entries<TargetId, TargetEntry>,
    shards: Entries<ShardId, ShardEntry>,
    pools: Entries<PoolId, PoolEntry>,
    /// What is in the map no more, oldest first, each with the first version without it.
    gone: VecDeque<(MapVersion, Id)>,
}

#[derive(Debug, Clone, Copy)]
enum Id {
    Node(NodeId),
    Target(TargetId),
    Shard(ShardId),
    Pool(PoolId),
}

impl History {
    /// The newest map that was looked at.
    pub fn version(&self) -> MapVersion {
        self.version
    }

    /// The map is this now.
    pub fn renew(&mut self, map: MapReply) {
        let version = map.version;
        if self.version == MapVersion(0) {
            self.oldest = version;
        }
        self.version = version;
        let nodes = renew(&mut self.nodes, map.nodes, version, |entry| entry.node);
        let targets = renew(&mut self.targets, map.targets, version, |entry| entry.target);
        let shards = renew(&mut self.shards, map.shards, version, |entry| entry.shard);
        let pools = renew(&mut self.pools, map.pools, version, |entry| entry.pool);
        let gone = nodes.into_iter().map(Id::Node).chain(targets.into_iter().map(Id::Target));
        let gone = gone.chain(shards.into_iter().map(Id::Shard)).chain(pools.into_iter().map(Id::Pool));
        self.gone.extend(gone.map(|id| (version, id)));
        while self.gone.len() > GONE_MAX
            && let Some((forgotten, _)) = self.gone.pop_front()
        {
            self.oldest = self.oldest.max(forgotten);
        }
    }

    /// What changed since `known`, or the whole. Another start of this service counts its versions from behind all earlier
    /// ones, and knows none of those.
    pub fn since(&self, known: MapVersion) -> MapReply {
        let base = if (self.oldest..=self.version).contains(&known) { known } else { MapVersion(0) };
        let mut gone = Gone::default();
        for (_, id) in self.gone.iter().filter(|(version, _)| base != MapVersion(0) && *version > base) {
            match *id {
                Id::Node(node) => gone.nodes.push(node),
                Id::Target(target) => gone.targets.push(target),
                Id::Shard(shard) => gone.shards.push(shard),
                Id::Pool(pool) => gone.pools.push(pool),
            }
        }
        MapReply {
            version: self.version,
            base,
            nodes: since(&self.nodes, base),
            targets: since(&self.targets, base),
            shards: since(&self.shards, base),
            pools: since(&self.pools, base),
            gone,
            ..MapReply::default()
        }
    }
}

fn since<K, T: Clone>(entries: &Entries<K, T>, base: MapVersion) -> Vec<T> {
    entries.values().filter(|(_, version)| *version > base).map(|(entry, _)| entry.clone()).collect()
}

/// Gives back what is there no more.
fn renew<K: Ord + Copy, T: PartialEq>(
    known: &mut Entries<K, T>,
    now: Vec<T>,
    version: MapVersion,
    key_of: impl Fn(&T) -> K,
) -> Vec<K> {
    let mut before = core::mem::take(known);
    for entry in now {
        let key = key_of(&entry);
        let same = before.remove(&key).filter(|(was, _)| *was == entry);
        known.insert(key, same.unwrap_or((entry, version)));
    }
    before.into_keys().collect()
}
