//! `Open`: opens a file (or a directory, to pin it).

use super::size;
use crate::ctx::{Ctx, Done};
use crate::fail::Fail;
use crate::row::Inode;
use crate::row::slot::Gate;
use skep_types::codec::Bytes;
use skep_types::{Errno, Ino, Kind};
use skep_wire::meta::{Open, OpenReply};

/// Runs it. Who has what open is not in rows: the server notes it.
pub fn run(ctx: &mut Ctx<'_>, m: &Open) -> Result<Done, Fail> {
    let mut inode = ctx.inode(m.ino)?;
    if inode.is_dir() && (m.mode.writes() || m.truncate) {
        return Err(Errno::EISDIR.into());
    }
    let mut gate = Gate::Open;
    if m.truncate {
        if inode.kind != Kind::File {
            return Err(Errno::EINVAL.into());
        }
        gate = truncate(ctx, m.ino, &mut inode, m.kill_suidgid)?;
    }
    let reply = open_reply(ctx, m.ino, &inode)?;
    Ok(Done { opened: Some(m.ino), ..Done::gated(&reply, gate) })
}

/// Cuts to 0 at open.
pub fn truncate(ctx: &mut Ctx<'_>, ino: Ino, inode: &mut Inode, kill: bool) -> Result<Gate, Fail> {
    let gate = size::set(ctx, ino, inode, 0)?;
    if kill {
        inode.kill_suidgid();
    }
    inode.touch_content(ctx.scene.at);
    ctx.put_inode(ino, inode);
    Ok(gate)
}

/// The answer: attributes, layout, inline content.
pub fn open_reply(ctx: &mut Ctx<'_>, ino: Ino, inode: &Inode) -> Result<OpenReply, Fail> {
    ctx.show(ino, inode);
    let inline = inode.kind == Kind::File && inode.layout.is_inline();
    let inline = if inline { Some(Bytes(size::content(ctx, ino, inode)?)) } else { None };
    let live = ctx.choose.live(ino);
    Ok(OpenReply { attr: inode.attr(ino), layout: inode.layout.clone(), inline, live, created: false })
}
