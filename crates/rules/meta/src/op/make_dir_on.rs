//! `MakeDirOn` and the removal of what it made: transactions with the shard of the inode, the deciding side. Each runs
//! twice: the first time it ends where it asks what was promised, the second time it does its own part.

use super::create::{Born, Wanted, born_in};
use super::make_node;
use crate::choose::Plan;
use crate::ctx::{Ctx, Done};
use crate::fail::Fail;
use crate::row::Inode;
use crate::row::slot::Gate;
use crate::tree::{Place, Spot, target};
use alloc::vec;
use skep_types::codec::Bytes;
use skep_types::{Errno, Kind};
use skep_wire::Empty;
use skep_wire::meta::{
    EntryReply, MakeDirOn, MakeNode, NewDir, RemoveDir, TxnMade, TxnMakeDir, TxnOp, TxnRetireDir,
};

pub fn run(ctx: &mut Ctx<'_>, m: &MakeDirOn) -> Result<Done, Fail> {
    let (mode, uid, gid) = (m.mode, m.uid, m.gid);
    if m.on == ctx.scene.shard {
        let (parent, name, kind, rdev) = (m.parent, m.name.clone(), Kind::Dir, 0);
        return make_node::run(ctx, &MakeNode { umask: m.umask, parent, name, kind, mode, uid, gid, rdev });
    }
    let mut parent = ctx.dir(m.parent)?;
    let Spot::Free(free) = ctx.find(m.parent, &m.name)? else { return Err(Errno::EEXIST.into()) };
    free.require_room(&m.name)?;
    let wanted = Wanted { kind: Kind::Dir, mode, umask: m.umask, uid, gid };
    let new = as_told(born_in(ctx, m.parent, &parent, &wanted)?);
    let op = TxnOp::MakeDir(TxnMakeDir { parent: m.parent, new });
    let plan = Plan { names: vec![(m.parent, m.name.clone())], parts: vec![(m.on, vec![op])] };
    let decided = ctx.decide(plan)?;
    let made = decided.promises.into_iter().next().and_then(|promise| promise.made);
    // A vote that does not say what it is for comes of a faulty server: nothing of this one is at fault.
    let TxnMade { ino, attr } = made.filter(|made| made.ino.shard() == m.on).ok_or(Errno::EIO)?;
    ctx.add(&mut parent, free, target(&m.name, ino, Kind::Dir))?;
    parent.enter();
    parent.touch_content(ctx.scene.at);
    ctx.put_inode(m.parent, &parent);
    ctx.count_away(|away| away.saturating_add(1))?;
    // Whoever syncs the directory asks its own shard, which knows of it by this record only.
    let reply = EntryReply { ino, kind: Kind::Dir, attr: Some(attr), live: None };
    Ok(Done::gated(&reply, Gate::Durable))
}

/// Everything that a new directory inherits is worked out here.
fn as_told(born: Born) -> NewDir {
    let Born { inode, access, default } = born;
    NewDir {
        mode: inode.mode,
        uid: inode.uid,
        gid: inode.gid,
        project: inode.project,
        policy: inode.policy,
        access_acl: access.map(Bytes),
        default_acl: default.map(Bytes),
    }
}

/// Removes a directory whose inode is on another shard.
pub fn retire(ctx: &mut Ctx<'_>, m: &RemoveDir, parent: &mut Inode, place: &Place) -> Result<Done, Fail> {
    let ino = place.target.ino;
    let op = TxnOp::RetireDir(TxnRetireDir { ino, parent: m.parent });
    let plan = Plan { names: vec![(m.parent, m.name.clone())], parts: vec![(ino.shard(), vec![op])] };
    ctx.decide(plan)?;
    ctx.remove(parent, place)?;
    parent.leave();
    parent.touch_content(ctx.scene.at);
    ctx.put_inode(m.parent, parent);
    ctx.count_away(|away| away.saturating_sub(1))?;
    Ok(Done::reply(&Empty {}))
}
