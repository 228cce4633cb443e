//! `GetMap`: fetches the cluster map.

use super::MapReply;
use skep_types::MapVersion;

crate::message! {
    /// Fetches the cluster map, or what changed in it.
    GetMap = 0x0104 -> MapReply {
        /// Version that the asker holds; 0 = none, or it wants the whole.
        pub known: MapVersion,
    }
}
