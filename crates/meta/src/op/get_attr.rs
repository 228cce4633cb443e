//! `GetAttr`: reads the attributes of an inode.

use crate::ctx::{Ctx, Done};
use crate::fail::Fail;
use crate::row::Inode;
use skep_types::Ino;
use skep_wire::meta::{AttrReply, GetAttr};

/// Runs it.
pub fn run(ctx: &mut Ctx<'_>, m: &GetAttr) -> Result<Done, Fail> {
    let inode = ctx.inode(m.ino)?;
    Ok(Done::reply(&attr_reply(ctx, m.ino, &inode)))
}

/// Attributes, with the layout when others write to the file.
pub fn attr_reply(ctx: &mut Ctx<'_>, ino: Ino, inode: &Inode) -> AttrReply {
    let live = ctx.live(ino, inode);
    AttrReply { attr: inode.attr(ino), live }
}
