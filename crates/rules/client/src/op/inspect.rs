//! What administrators ask: everything about an inode, layout wishes, directories on a given shard.

use super::entry::name;
use crate::lane::Lane;
use crate::port::{Cell, Port};
use crate::state::Shared;
use skep_types::{Errno, Ino, Mode, Policy, ShardId};
use skep_wire::meta::{EntryReply, Inspect, InspectReply, MakeDirOn, SetPolicy};

impl<P: Port, C: Cell<Shared>> Lane<P, C> {
    /// Everything about an inode.
    pub async fn inspect(&self, ino: Ino) -> Result<InspectReply, Errno> {
        self.errno(self.ask(ino.shard(), &Inspect { ino }).await)
    }

    /// Sets the layout wish of a directory or an empty file.
    pub async fn set_policy(&self, ino: Ino, policy: Policy) -> Result<(), Errno> {
        self.errno(self.change(ino, &SetPolicy { ino, policy, spread: None }).await).map(|_| ())
    }

    /// Makes a directory whose inode and all below it live on shard `on` (administrators only).
    pub async fn make_dir_on(
        &self,
        parent: Ino,
        bytes: &[u8],
        mode: Mode,
        owner: (u32, u32),
        on: ShardId,
    ) -> Result<EntryReply, Errno> {
        let result = async {
            let (uid, gid) = owner;
            let message = MakeDirOn { parent, name: name(bytes)?, mode, umask: 0, uid, gid, on };
            self.settle(self.changing(parent, &message).naming(parent, bytes)).await?.read()
        };
        self.errno(result.await)
    }
}
