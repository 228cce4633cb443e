//! `Link`: makes a hard link.

use super::lookup::entry_reply;
use crate::ctx::{Ctx, Done};
use crate::fail::Fail;
use crate::tree::{Spot, target};
use skep_types::Errno;
use skep_types::limits::LINKS_MAX;
use skep_wire::meta::Link;

/// Runs it.
pub fn run(ctx: &mut Ctx<'_>, m: &Link) -> Result<Done, Fail> {
    if m.ino.shard() != m.parent.shard() {
        return Err(Errno::EXDEV.into());
    }
    let mut parent = ctx.dir(m.parent)?;
    let Spot::Free(free) = ctx.find(m.parent, &m.name)? else { return Err(Errno::EEXIST.into()) };
    let mut inode = ctx.find_inode(m.ino)?.ok_or(Errno::ENOENT)?;
    if inode.is_dir() {
        return Err(Errno::EPERM.into());
    }
    if inode.nlink == 0 {
        return Err(Errno::ENOENT.into());
    }
    if inode.nlink >= LINKS_MAX {
        return Err(Errno::EMLINK.into());
    }
    let link = ctx.add(&mut parent, free, target(&m.name, m.ino, inode.kind))?;
    inode.nlink += 1;
    inode.links.push(link);
    inode.touch(ctx.scene.at);
    parent.touch_content(ctx.scene.at);
    ctx.put_inode(m.parent, &parent);
    ctx.put_inode(m.ino, &inode);
    Ok(Done::reply(&entry_reply(ctx, m.ino, inode.kind)?))
}
