//! `GiveShard`: a shard moves to another metadata server.

use crate::Empty;
use skep_types::{NodeId, ShardId};

crate::message! {
    /// Orders that a shard moves to another metadata server, or back while it is on its way.
    GiveShard = 0x0116 -> Empty {
        /// The shard.
        pub shard: ShardId,
        /// The server. 0: none for now, because who has its rows is gone for good; who is given it next serves the copy that
        /// it has itself.
        pub node: NodeId,
    } tags {
        /// Newer rows than those that this order has served are lost, as an administrator said: what servers have noted of
        /// others that may have newer ones does not count.
        1 => pub newer_are_lost: Option<bool>,
    }
}

impl GiveShard {
    /// To a server that is to have its newest rows.
    pub fn to(shard: ShardId, node: NodeId) -> Self {
        Self { shard, node, newer_are_lost: None }
    }
}
