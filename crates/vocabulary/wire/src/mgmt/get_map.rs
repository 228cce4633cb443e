//! `GetMap`: fetches the cluster map.

use super::MapReply;
use skep_types::MapVersion;

crate::message! {
    /// Fetches the cluster map.
    GetMap = 0x0104 -> MapReply {
        /// Version the asker holds: an equal one is answered without content.
        pub known: MapVersion,
    }
}
