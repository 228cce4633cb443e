//! rename.

use super::entry::name;
use crate::lane::Lane;
use crate::port::{Cell, Port};
use crate::state::Shared;
use alloc::string::String;
use skep_types::{Errno, Ino, ShardId};
use skep_wire::Refusal;
use skep_wire::meta::Rename;

/// Pairs of shards of which the log says that names cannot be moved between them.
const PAIRS_TOLD: usize = 1_024;

/// Flags of a rename.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RenameHow {
    /// An existing target is EEXIST.
    pub no_replace: bool,
    /// Swap the two.
    pub exchange: bool,
}

impl<P: Port, C: Cell<Shared>> Lane<P, C> {
    /// Moves a name. Between two shards: EXDEV, so that `mv` copies.
    pub async fn rename(
        &self,
        parent: Ino,
        from: &[u8],
        to_parent: Ino,
        to: &[u8],
        how: RenameHow,
    ) -> Result<(), Errno> {
        let result = async {
            if how.no_replace && how.exchange {
                return Err(Errno::EINVAL.into());
            }
            let (name, to_name) = (name(from)?, name(to)?);
            if parent.shard() != to_parent.shard() {
                return Err(self.too_far("rename", parent.shard(), to_parent.shard()));
            }
            // What comes in the place of another file is whole: whoever finds it there later finds what was in it now.
            if let Some(ino) = self.shared.with(|s| s.held_under(parent, from, self.port.boot())) {
                self.tell_first(ino).await?;
            }
            self.see(parent, from).await;
            self.see(to_parent, to).await;
            let RenameHow { no_replace, exchange } = how;
            let message = Rename { parent, name, to_parent, to_name, no_replace, exchange };
            let job = self.changing(parent, &message).and_of(to_parent);
            let closed = if exchange { None } else { self.close_under(to_parent, to) };
            let job = job.naming(parent, from).naming(to_parent, to).closing(closed);
            self.shared.with(|s| s.holds.names_change());
            let (done, told) = self.settle_told(job).await;
            self.shared.with(|s| s.holds.names_change());
            if closed.is_some() {
                self.port.work_waits();
            }
            done.map_err(|refusal| self.explain("rename", parent.shard(), refusal))?;
            let names = (!exchange).then_some([from, to]);
            self.moved_name([Some(parent), Some(to_parent)], names, told.as_deref());
            self.shared.with(|s| {
                if !exchange {
                    s.ghosts.removed(to_parent, to);
                }
                s.ghosts.moved((parent, from), (to_parent, to));
            });
            Ok(())
        };
        self.errno(result.await)
    }

    /// EXDEV for what would change two shards. Programs copy instead, and nobody asks why it is slow: the log of the mount
    /// says it, once for each two shards.
    pub(crate) fn too_far(&self, what: &str, from: ShardId, to: ShardId) -> Refusal {
        let (new, servers) = self.shared.with(|s| {
            let pair = (from.min(to), from.max(to));
            let new = s.told_apart.len() < PAIRS_TOLD && s.told_apart.insert(pair);
            (new, [s.map.leader(from), s.map.leader(to)])
        });
        if new {
            let [one, other] =
                servers.map(|node| node.map_or_else(|| String::from("?"), |node| self.name_of(node)));
            self.port.log(format_args!(
                "{what} between shard {from} ({one}) and shard {to} ({other}) gives EXDEV (mv copies instead, ln \
                 cannot): a directory in the root, or in one with `--placement spread`, has a shard of its own"
            ));
        }
        Errno::EXDEV.into()
    }

    /// The same when a shard finds that an inode of the operation is another shard's.
    fn explain(&self, what: &str, shard: ShardId, refusal: Refusal) -> Refusal {
        if refusal.status.as_errno() == Some(Errno::EXDEV)
            && self.shared.with(|s| s.told_apart.len() < PAIRS_TOLD && s.told_apart.insert((shard, shard)))
        {
            self.port.log(format_args!(
                "{what} of a directory whose contents are on another shard than its name (shard {shard}) gives EXDEV \
                 (mv copies instead)"
            ));
        }
        refusal
    }
}
