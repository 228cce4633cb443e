//! `RemoteDir`: shard to shard: makes, retires or forgets a directory whose entry is on the asking shard.

use super::{NewDir, RemoteDirReply, RemoteStep};
use skep_types::{Ino, ShardId};

crate::message! {
    /// Shard to shard: makes, retires or forgets a directory whose entry is on the asking shard.
    RemoteDir = 0x021e -> RemoteDirReply {
        /// Number of the intent on the asking shard: repeated requests are one.
        pub txid: u64,
        /// The asking shard has finished all intents below this one: a message about them has strayed.
        pub floor: u64,
        /// The asking shard.
        pub from: ShardId,
        /// What to do.
        pub step: RemoteStep,
        /// The directory; 0 for a creation.
        pub ino: Ino,
        /// Its parent.
        pub parent: Ino,
        /// What it is to be like (a creation).
        pub new: Option<NewDir>,
    }
}
