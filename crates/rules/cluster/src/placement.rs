//! Which metadata server holds which shard.

use crate::command::{PlaceShards, Placed};
use crate::registry::{Output, Registry};
use alloc::format;
use alloc::vec::Vec;
use skep_types::{NodeId, ServiceKind, ShardId};

impl Registry {
    /// Spreads the shards of a new cluster evenly over its metadata servers, once all of them have registered: who comes later gets
    /// none, for formatted shards do not move by themselves.
    pub(crate) fn place_shards(&mut self, out: &mut Output) {
        let homeless = self.state.shards.iter().filter(|entry| entry.replicas.is_empty());
        let shards: Vec<ShardId> = homeless.map(|entry| entry.shard).collect();
        let metads = self.state.nodes.values().filter(|node| node.service == ServiceKind::Metad);
        let metads: Vec<NodeId> = metads.map(|node| node.id).collect();
        if shards.is_empty() || metads.len() < self.config.metas {
            return;
        }
        out.notes.push(format!("{} shards are spread over {} metadata servers", shards.len(), metads.len()));
        let places = shards.into_iter().zip(metads.iter().cycle());
        let places = places.map(|(shard, node)| Placed { shard, node: *node }).collect();
        self.commit(PlaceShards { places }, out);
        self.map_changed();
    }
}
