//! `MakeSymlink`: makes a symbolic link.

use super::create::born_in;
use crate::ctx::{Ctx, Done};
use crate::fail::Fail;
use crate::tree::{Spot, target};
use skep_types::limits::SYMLINK_MAX;
use skep_types::{Errno, Kind};
use skep_wire::meta::{EntryReply, MakeSymlink};

/// Runs it.
pub fn run(ctx: &mut Ctx<'_>, m: &MakeSymlink) -> Result<Done, Fail> {
    if m.target.0.is_empty() {
        return Err(Errno::ENOENT.into());
    }
    if m.target.0.len() > SYMLINK_MAX {
        return Err(Errno::ENAMETOOLONG.into());
    }
    let mut parent = ctx.dir(m.parent)?;
    let Spot::Free(free) = ctx.find(m.parent, &m.name)? else { return Err(Errno::EEXIST.into()) };
    let mut inode = born_in(&parent, Kind::Symlink, 0o777, m.uid, m.gid, ctx);
    inode.size = m.target.0.len() as u64;
    inode.target = m.target.clone();
    let ino = ctx.choose.ino()?;
    let link = ctx.add(&mut parent, free, target(&m.name, ino, Kind::Symlink))?;
    inode.links.push(link);
    parent.touch_content(ctx.scene.at);
    ctx.put_inode(m.parent, &parent);
    ctx.put_inode(ino, &inode);
    Ok(Done::reply(&EntryReply { ino, kind: Kind::Symlink, attr: Some(inode.attr(ino)), live: None }))
}
