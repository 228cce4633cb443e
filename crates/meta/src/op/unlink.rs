//! `Unlink`: removes the name of something that is no directory.

use crate::ctx::{Ctx, Done};
use crate::fail::Fail;
use crate::row::LinkRef;
use skep_types::{Errno, Ino, Kind};
use skep_wire::Empty;
use skep_wire::meta::Unlink;

/// Runs it.
pub fn run(ctx: &mut Ctx<'_>, m: &Unlink) -> Result<Done, Fail> {
    let mut parent = ctx.dir(m.parent)?;
    let place = ctx.place(m.parent, &m.name)?;
    if place.target.kind == Kind::Dir {
        return Err(Errno::EISDIR.into());
    }
    ctx.remove(&mut parent, &place)?;
    parent.touch_content(ctx.scene.at);
    ctx.put_inode(m.parent, &parent);
    drop_name(ctx, place.target.ino, place.link())?;
    Ok(Done::reply(&Empty {}))
}

/// An inode that is no directory loses one name.
pub fn drop_name(ctx: &mut Ctx<'_>, ino: Ino, link: LinkRef) -> Result<(), Fail> {
    let mut inode = ctx.inode(ino)?;
    if inode.nlink <= 1 {
        return ctx.bury(ino, &mut inode);
    }
    inode.nlink -= 1;
    inode.links.retain(|other| *other != link);
    inode.touch(ctx.scene.at);
    ctx.put_inode(ino, &inode);
    Ok(())
}
