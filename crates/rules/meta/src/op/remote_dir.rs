//! `RemoteDir`: shard to shard, the asked side. Repeated requests of one transaction are one:
//! the answer is remembered in the same command that has the effect, refusals too.

use super::create::Born;
use crate::ctx::{Ctx, Done};
use crate::fail::Fail;
use crate::key;
use crate::row::remote::{RemoteFloor, RemoteMemory};
use crate::row::slot::Gate;
use crate::row::{Inode, LinkRef};
use skep_types::codec::Bytes;
use skep_types::{Errno, Ino, Kind};
use skep_wire::Status;
use skep_wire::meta::{RemoteDir, RemoteDirReply, RemoteStep};

/// Runs it.
pub fn run(ctx: &mut Ctx<'_>, m: &RemoteDir) -> Result<Done, Fail> {
    if m.txid < raise_floor(ctx, m)? {
        let errno = if m.step == RemoteStep::Forget { 0 } else { Status::errno(Errno::ESTALE).0 };
        return Ok(Done::reply(&RemoteDirReply { ino: m.ino, errno, attr: None }));
    }
    let memory = ctx.remote_memory(m.from, m.txid)?;
    if m.step == RemoteStep::Forget {
        return forget(ctx, m, memory);
    }
    if let Some(memory) = memory {
        // The first answer may still wait for its log record: so must this one.
        return Ok(Done::gated(&answer(&memory), Gate::Durable));
    }
    let done = match m.step {
        RemoteStep::Make => make(ctx, m),
        _ => retire(ctx, m),
    };
    let memory = match done {
        Ok(memory) => memory,
        Err(Fail::Refused(refusal)) if refusal.status.as_errno().is_some() => {
            RemoteMemory { ino: m.ino, errno: refusal.status.0, attr: None, forgotten: false }
        }
        Err(fail) => return Err(fail),
    };
    ctx.put(key::memory(ctx.scene.shard, m.from, m.txid), &memory);
    Ok(Done::gated(&answer(&memory), Gate::Durable))
}

/// Forgets what the asking shard has finished; everything below the answer has strayed.
fn raise_floor(ctx: &mut Ctx<'_>, m: &RemoteDir) -> Result<u64, Fail> {
    let shard = ctx.scene.shard;
    let row = key::remote_floor(shard, m.from);
    let floor: RemoteFloor = ctx.row(&row, "remote floor")?.unwrap_or_default();
    if m.floor <= floor.txid {
        return Ok(floor.txid);
    }
    ctx.put(row, &RemoteFloor { txid: m.floor });
    let mut old = alloc::vec::Vec::new();
    let (from, until) = (key::memory(shard, m.from, 0), key::memory(shard, m.from, m.floor));
    ctx.txn.scan(&from, &until, &mut |key, _| {
        old.push(key.to_vec());
        true
    })?;
    for key in old {
        ctx.txn.delete(key);
    }
    Ok(m.floor)
}

fn answer(memory: &RemoteMemory) -> RemoteDirReply {
    // What was forgotten can only be asked for again by a message that strayed.
    let errno = if memory.forgotten { Status::errno(Errno::ESTALE).0 } else { memory.errno };
    RemoteDirReply { ino: memory.ino, errno, attr: memory.attr.clone() }
}

fn make(ctx: &mut Ctx<'_>, m: &RemoteDir) -> Result<RemoteMemory, Fail> {
    let new = m.new.as_ref().ok_or(Status::MALFORMED)?;
    let ino = ctx.choose.ino()?;
    let mut inode = Inode::new(Kind::Dir, new.mode, new.uid, new.gid, ctx.scene.at);
    (inode.project, inode.policy) = (new.project, new.policy);
    inode.links.push(LinkRef { parent: m.parent, cookie: 0 });
    let value = |acl: &Option<Bytes>| acl.as_ref().map(|acl| acl.0.clone());
    let mut born = Born { inode, access: value(&new.access_acl), default: value(&new.default_acl) };
    born.put(ctx, ino)?;
    Ok(RemoteMemory { ino, errno: 0, attr: Some(born.inode.attr(ino)), forgotten: false })
}

fn retire(ctx: &mut Ctx<'_>, m: &RemoteDir) -> Result<RemoteMemory, Fail> {
    let mut inode = ctx.dir(m.ino)?;
    if inode.parent() != m.parent {
        return Err(Errno::ESTALE.into());
    }
    if inode.entries > 0 {
        return Err(Errno::ENOTEMPTY.into());
    }
    ctx.bury(m.ino, &mut inode)?;
    Ok(RemoteMemory { ino: m.ino, errno: 0, attr: None, forgotten: false })
}

fn forget(ctx: &mut Ctx<'_>, m: &RemoteDir, memory: Option<RemoteMemory>) -> Result<Done, Fail> {
    let reply = RemoteDirReply { ino: Ino(0), errno: 0, attr: None };
    let shard = ctx.scene.shard;
    if let Some(memory) = memory.filter(|memory| !memory.forgotten) {
        let memory = RemoteMemory { forgotten: true, attr: None, ..memory };
        ctx.put(key::memory(shard, m.from, m.txid), &memory);
    }
    Ok(Done::reply(&reply))
}
