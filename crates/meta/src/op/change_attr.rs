//! `ChangeAttr`: changes attributes of an inode (chmod, chown, truncate, utimensat).

use super::{get_attr::attr_reply, size};
use crate::ctx::{Ctx, Done};
use crate::fail::Fail;
use crate::row::Inode;
use crate::row::slot::Gate;
use skep_types::{Errno, Kind, SetAttr, SetTime, Timestamp};
use skep_wire::meta::ChangeAttr;

/// Runs it.
pub fn run(ctx: &mut Ctx<'_>, m: &ChangeAttr) -> Result<Done, Fail> {
    let mut inode = ctx.inode(m.ino)?;
    let set = &m.set;
    let mut gate = Gate::Open;
    let mut changed = owner_and_mode(&mut inode, set);
    if let Some(size) = set.size {
        match inode.kind {
            Kind::File => {}
            Kind::Dir => return Err(Errno::EISDIR.into()),
            _ => return Err(Errno::EINVAL.into()),
        }
        gate = size::set(ctx, m.ino, &mut inode, size)?;
        inode.mtime = ctx.scene.at;
        changed = true;
    }
    changed |= times(&mut inode, set, ctx.scene.at);
    if changed {
        inode.touch(ctx.scene.at);
        ctx.put_inode(m.ino, &inode);
    }
    let reply = attr_reply(ctx, m.ino, &inode);
    Ok(Done::gated(&reply, gate))
}

fn owner_and_mode(inode: &mut Inode, set: &SetAttr) -> bool {
    let mut changed = set.kill_suidgid && inode.kill_suidgid();
    if set.uid.is_some() || set.gid.is_some() {
        inode.uid = set.uid.unwrap_or(inode.uid);
        inode.gid = set.gid.unwrap_or(inode.gid);
        if !inode.is_dir() {
            inode.kill_suidgid();
        }
        changed = true;
    }
    if let Some(mode) = set.mode {
        inode.mode = mode & 0o7777;
        changed = true;
    }
    changed
}

fn times(inode: &mut Inode, set: &SetAttr, at: Timestamp) -> bool {
    let value = |time: SetTime| match time {
        SetTime::Now => at,
        SetTime::At(time) => time,
    };
    if let Some(time) = set.atime {
        inode.atime = value(time);
    }
    if let Some(time) = set.mtime {
        inode.mtime = value(time);
    }
    set.atime.is_some() || set.mtime.is_some()
}
