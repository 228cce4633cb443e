//! `Commit`: commits size and time after writes to chunks.

use super::get_attr::attr_reply;
use super::size::wait_for_trim;
use crate::ctx::{Ctx, Done};
use crate::fail::Fail;
use skep_types::Errno;
use skep_types::limits::FILE_SIZE_MAX;
use skep_wire::Status;
use skep_wire::meta::Commit;

/// Runs it.
pub fn run(ctx: &mut Ctx<'_>, m: &Commit) -> Result<Done, Fail> {
    let mut inode = ctx.file(m.ino)?;
    if inode.layout.is_inline() || inode.layout.generation != m.generation {
        return Err(Status::STALE_GENERATION.into());
    }
    if m.size > FILE_SIZE_MAX {
        return Err(Errno::EFBIG.into());
    }
    let mut changed = inode.mtime != m.mtime;
    if m.size > inode.size {
        wait_for_trim(ctx, m.ino)?;
        inode.size = m.size;
        changed = true;
    }
    if let Some(blocks) = m.blocks {
        changed |= inode.blocks != blocks;
        inode.blocks = blocks;
    }
    changed |= m.kill_suidgid && inode.kill_suidgid();
    if changed {
        inode.touch(ctx.scene.at);
        inode.mtime = m.mtime;
        ctx.put_inode(m.ino, &inode);
    }
    Ok(Done::reply(&attr_reply(ctx, m.ino, &inode)))
}
