//! unlink and rmdir.

use super::entry::name;
use crate::lane::Lane;
use crate::port::{Cell, Port};
use crate::state::Shared;
use skep_types::{Errno, Ino};
use skep_wire::meta::{RemoveDir, Unlink};

impl<P: Port, C: Cell<Shared>> Lane<P, C> {
    /// Removes the name of something that is no directory. An open file lives until its last close.
    pub async fn unlink(&self, parent: Ino, bytes: &[u8]) -> Result<(), Errno> {
        let result = async {
            let message = Unlink { parent, name: name(bytes)? };
            let closed = self.close_under(parent, bytes);
            let job = self.changing(parent, &message).naming(parent, bytes).closing(closed);
            self.shared.with(|s| s.holds.names_change());
            let (done, told) = self.settle_told(job).await;
            self.shared.with(|s| s.holds.names_change());
            if closed.is_some() {
                self.port.work_waits();
            }
            done?;
            self.made_name(parent, bytes, None, told.as_deref());
            Ok(())
        };
        self.errno(result.await)
    }

    /// Removes an empty directory.
    pub async fn rmdir(&self, parent: Ino, bytes: &[u8]) -> Result<(), Errno> {
        let result = async {
            let message = RemoveDir { parent, name: name(bytes)? };
            self.see(parent, bytes).await;
            let job = self.changing(parent, &message).naming(parent, bytes);
            let (done, told) = self.settle_told(job).await;
            done?;
            self.shared.with(|s| s.ghosts.removed(parent, bytes));
            self.moved_name([Some(parent), None], Some([bytes, bytes]), told.as_deref());
            Ok(())
        };
        self.errno(result.await)
    }
}
