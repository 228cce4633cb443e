//! `MakeNode`: makes a directory or a special file.

use super::create::born_in;
use crate::ctx::{Ctx, Done};
use crate::fail::Fail;
use crate::tree::{Spot, target};
use skep_types::{Errno, Kind};
use skep_wire::meta::{EntryReply, MakeNode};

/// Runs it.
pub fn run(ctx: &mut Ctx<'_>, m: &MakeNode) -> Result<Done, Fail> {
    let mut parent = ctx.dir(m.parent)?;
    let Spot::Free(free) = ctx.find(m.parent, &m.name)? else { return Err(Errno::EEXIST.into()) };
    if matches!(m.kind, Kind::File | Kind::Symlink) {
        return Err(Errno::EINVAL.into());
    }
    let mut inode = born_in(&parent, m.kind, m.mode, m.uid, m.gid, ctx);
    if matches!(m.kind, Kind::CharDev | Kind::BlockDev) {
        inode.rdev = m.rdev;
    }
    let ino = ctx.choose.ino()?;
    let link = ctx.add(&mut parent, free, target(&m.name, ino, m.kind))?;
    inode.links.push(link);
    if m.kind == Kind::Dir {
        parent.enter();
    }
    parent.touch_content(ctx.scene.at);
    ctx.put_inode(m.parent, &parent);
    ctx.put_inode(ino, &inode);
    Ok(Done::reply(&EntryReply { ino, kind: m.kind, attr: Some(inode.attr(ino)), live: None }))
}
