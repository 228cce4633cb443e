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
    }
}
