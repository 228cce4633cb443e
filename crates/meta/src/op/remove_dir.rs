//! `RemoveDir`: removes an empty directory.

use crate::ctx::{Ctx, Done};
use crate::fail::Fail;
use skep_types::{Errno, Kind};
use skep_wire::Empty;
use skep_wire::meta::RemoveDir;

/// Runs it.
pub fn run(ctx: &mut Ctx<'_>, m: &RemoveDir) -> Result<Done, Fail> {
    let mut parent = ctx.dir(m.parent)?;
    let place = ctx.place(m.parent, &m.name)?;
    if place.target.kind != Kind::Dir {
        return Err(Errno::ENOTDIR.into());
    }
    let ino = place.target.ino;
    if !ctx.is_home(ino) {
        return super::make_dir_on::retire(ctx, &place);
    }
    let mut inode = ctx.inode(ino)?;
    if inode.entries > 0 {
        return Err(Errno::ENOTEMPTY.into());
    }
    ctx.remove(&mut parent, &place)?;
    parent.leave();
    parent.touch_content(ctx.scene.at);
    ctx.put_inode(m.parent, &parent);
    ctx.bury(ino, &mut inode)?;
    Ok(Done::reply(&Empty {}))
}
