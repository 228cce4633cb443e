//! `RemoveNode`: an administrator takes a daemon out of the cluster.

use crate::Empty;
use skep_types::NodeId;

crate::message! {
    /// An administrator takes a daemon out of the cluster: one that is offline, without targets and
    /// shards. Its id is never given again.
    RemoveNode = 0x0114 -> Empty {
        /// The node.
        pub node: NodeId,
    }
}
