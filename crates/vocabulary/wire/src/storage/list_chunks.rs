//! `ListChunks`: lists chunk files (servers and administrators only).

use super::ListChunksReply;
use skep_types::{ChunkId, TargetId};

crate::message! {
    /// Lists chunk files (servers and administrators only).
    ListChunks = 0x030a -> ListChunksReply {
        /// The target.
        pub target: TargetId,
        /// Continue after this one.
        pub after: Option<ChunkId>,
        /// Most wanted.
        pub max: u32,
    }
}
