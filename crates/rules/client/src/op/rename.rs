//! rename.

use super::entry::name;
use crate::lane::Lane;
use crate::port::{Cell, Port};
use crate::state::Shared;
use skep_types::{Errno, Ino};
use skep_wire::meta::Rename;

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
                return Err(Errno::EXDEV.into());
            }
            self.stays_inside(parent, &name, to_parent).await?;
            if how.exchange {
                self.stays_inside(to_parent, &to_name, parent).await?;
            }
            let RenameHow { no_replace, exchange } = how;
            let message = Rename { parent, name, to_parent, to_name, no_replace, exchange };
            let job = self.changing(parent, &message).and_of(to_parent);
            self.settle(job).await?;
            self.shared.with(|s| {
                s.ghosts.moved(parent, from);
                match exchange {
                    true => s.ghosts.moved(to_parent, to),
                    false => s.ghosts.removed(to_parent, to),
                }
            });
            Ok(())
        };
        self.errno(result.await)
    }
}
