//! `Create`: makes a regular file, or opens the one that is there.

use super::open::{open_reply, truncate};
use crate::ctx::{Ctx, Done};
use crate::fail::Fail;
use crate::row::Inode;
use crate::row::inode::POLICY_IS_OWN;
use crate::tree::{Place, Spot, target};
use skep_types::{Errno, Kind, Policy};
use skep_wire::meta::Create;

/// Runs it.
pub fn run(ctx: &mut Ctx<'_>, m: &Create) -> Result<Done, Fail> {
    let mut parent = ctx.dir(m.parent)?;
    let free = match ctx.find(m.parent, &m.name)? {
        Spot::Taken(place) => return existing(ctx, m, &place),
        Spot::Free(free) => free,
    };
    let mut inode = born_in(&parent, Kind::File, m.mode, m.uid, m.gid, ctx);
    if let Some(policy) = m.policy {
        super::set_policy::check(&policy)?;
        inode.policy = Some(policy);
        inode.flags |= POLICY_IS_OWN;
    }
    let ino = ctx.choose.ino()?;
    let link = ctx.add(&mut parent, free, target(&m.name, ino, Kind::File))?;
    inode.links.push(link);
    parent.touch_content(ctx.scene.at);
    ctx.put_inode(m.parent, &parent);
    ctx.put_inode(ino, &inode);
    let mut reply = open_reply(ctx, ino, &inode)?;
    reply.created = true;
    Ok(Done { opened: m.open.map(|_| ino), ..Done::reply(&reply) })
}

fn existing(ctx: &mut Ctx<'_>, m: &Create, place: &Place) -> Result<Done, Fail> {
    if m.exclusive || m.open.is_none() {
        return Err(Errno::EEXIST.into());
    }
    match place.target.kind {
        Kind::File => {}
        Kind::Dir => return Err(Errno::EISDIR.into()),
        // The client knew no such name and will look again.
        _ => return Err(Errno::ESTALE.into()),
    }
    let ino = place.target.ino;
    let mut inode = ctx.inode(ino)?;
    let gate = if m.truncate { truncate(ctx, ino, &mut inode, false)? } else { crate::row::slot::Gate::Open };
    let reply = open_reply(ctx, ino, &inode)?;
    Ok(Done { opened: Some(ino), ..Done::gated(&reply, gate) })
}

/// A new inode below `parent`: group and layout wish inherited as Linux and the policy demand.
pub fn born_in(parent: &Inode, kind: Kind, mode: u32, uid: u32, gid: u32, ctx: &Ctx<'_>) -> Inode {
    let setgid = parent.mode & 0o2000 != 0;
    let gid = if setgid { parent.gid } else { gid };
    let mode = if setgid && kind == Kind::Dir { mode | 0o2000 } else { mode };
    let mut inode = Inode::new(kind, mode, uid, gid, ctx.scene.at);
    inode.project = parent.project;
    if matches!(kind, Kind::File | Kind::Dir) {
        inode.policy = parent.policy.filter(|policy| *policy != Policy::default());
    }
    inode
}
