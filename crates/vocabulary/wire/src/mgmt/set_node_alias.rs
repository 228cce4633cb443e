//! `SetNodeAlias`: an administrator gives a node another alias.

use crate::Empty;
use alloc::string::String;
use skep_types::NodeId;

crate::message! {
    /// An administrator gives a node another alias. It holds until the daemon's
    /// configuration wishes for another one than so far.
    SetNodeAlias = 0x0111 -> Empty {
        /// The node.
        pub node: NodeId,
        /// Its new alias.
        pub alias: String,
    }
}
