//! `Prepare`: a participant holds itself ready for a transaction that another shard decides.

use super::create::Born;
use crate::choose::Conflict;
use crate::ctx::{Ctx, Done, Effect};
use crate::fail::{Fail, corrupt};
use crate::key;
use crate::limit::{TXN_OPS_MAX, TXN_REDO_BYTES_MAX, TXNS_SWEPT};
use crate::row::slot::Gate;
use crate::row::txn::{Floor, Prepared, Redo, RedoMakeDir};
use crate::row::{Inode, LinkRef};
use alloc::vec::Vec;
use skep_types::limits::XATTR_TOTAL_MAX;
use skep_types::{Decode, Encode, Errno, Kind};
use skep_wire::meta::{
    Prepare, PrepareReply, TxnId, TxnMade, TxnMakeDir, TxnOp, TxnPromise, TxnRefused, TxnRetireDir, Vote,
};
use skep_wire::{Empty, Refusal, Status};

pub fn run(ctx: &mut Ctx<'_>, m: &Prepare) -> Result<Done, Fail> {
    check(ctx, m)?;
    if !ctx.choose.takes_strays() && is_stray(ctx, m.txid)? {
        return Ok(vote(no(Errno::ESTALE)));
    }
    match ctx.prepared(m.txid)? {
        Some(Prepared { redo: Some(redo), .. }) => return Ok(vote(yes(&redo))),
        Some(_) => return Ok(vote(no(Errno::ESTALE))),
        None => {}
    }
    // Of locks nothing is in the rows of those who lose: it must be decided before anything is written.
    for op in &m.ops {
        let TxnOp::RetireDir(TxnRetireDir { ino, .. }) = op else { continue };
        match ctx.choose.conflict(*ino, m.age, m.txid) {
            Some(Conflict::Die) => return Ok(Done::reply(&PrepareReply { vote: Vote::Conflict(Empty {}) })),
            Some(Conflict::Wait) => return Err(busy("a younger transaction has not ended")),
            None => {}
        }
    }
    if ctx.choose.is_full() {
        return Err(busy("too many transactions are prepared"));
    }
    match m.ops.iter().map(|op| promise(ctx, op)).collect::<Result<Vec<Redo>, Fail>>() {
        Ok(redo) => {
            raise_floor(ctx, m.txid, m.floor)?;
            let inos = redo.iter().map(Redo::ino).collect();
            let done = vote(yes(&redo));
            ctx.put(key::prepared(ctx.scene.shard, m.txid), &Prepared { age: m.age, redo: Some(redo) });
            ctx.effects.push(Effect::Prepared(m.txid, m.age, inos));
            Ok(done)
        }
        Err(Fail::Refused(refusal)) if refusal.status.as_errno().is_some() => {
            Ok(vote(Vote::No(TxnRefused { errno: refusal.status.0 })))
        }
        Err(fail) => Err(fail),
    }
}

/// Where the disk is nearly full nothing is promised that would be made there.
pub fn no_room() -> Done {
    Done::reply(&PrepareReply { vote: no(Errno::ENOSPC) })
}

/// Of a shard of which its server has lost the rows, or withholds them, nothing is promised.
pub fn lost() -> PrepareReply {
    PrepareReply { vote: no(Errno::EIO) }
}

/// Is this what [`lost`] says? No operation is refused so by a shard that has its rows.
pub fn is_lost(refused: &TxnRefused) -> bool {
    refused.errno == Status::errno(Errno::EIO).0
}

fn busy(why: &str) -> Fail {
    Refusal::with(Status::BUSY, why).into()
}

/// Choices are recorded once in a command, and the size of one is bounded.
fn check(ctx: &Ctx<'_>, m: &Prepare) -> Result<(), Fail> {
    let made = m.ops.iter().filter(|op| matches!(op, TxnOp::MakeDir(_))).count();
    let is_short = m.ops.len() <= TXN_OPS_MAX && made <= 1 && m.ops.len() - made <= 1;
    let is_small = || m.ops.to_bytes().len() <= TXN_REDO_BYTES_MAX;
    if m.txid.shard != ctx.scene.shard && !m.ops.is_empty() && is_short && is_small() {
        return Ok(());
    }
    Err(Refusal::with(Status::MALFORMED, "too much for one transaction, or one of the shard itself").into())
}

fn no(errno: Errno) -> Vote {
    Vote::No(TxnRefused { errno: Status::errno(errno).0 })
}

fn yes(redo: &[Redo]) -> Vote {
    let made = redo.iter().find_map(|redo| match redo {
        Redo::MakeDir(redo) => Some(TxnMade { ino: redo.ino, attr: born(redo).inode.attr(redo.ino) }),
        Redo::RetireDir(_) => None,
    });
    Vote::Yes(TxnPromise { made })
}

/// A vote binds, so it leaves when its record is durable; the first one of a repeated request may still wait too.
fn vote(vote: Vote) -> Done {
    Done::gated(&PrepareReply { vote }, Gate::Durable)
}

/// The directory that was promised.
pub fn born(redo: &RedoMakeDir) -> Born {
    let new = &redo.new;
    let mut inode = Inode::new(Kind::Dir, new.mode, new.uid, new.gid, redo.at);
    (inode.project, inode.policy) = (new.project, new.policy);
    inode.links.push(LinkRef { parent: redo.parent, cookie: 0 });
    let value = |acl: &Option<skep_types::codec::Bytes>| acl.as_ref().map(|acl| acl.0.clone());
    Born { inode, access: value(&new.access_acl), default: value(&new.default_acl) }
}

// What a directory inherits has room beside it, or the question is too long: so a vote of ENOSPC says that there is little
// room here (or no inode number left), and nothing else.
const _: () = assert!(TXN_REDO_BYTES_MAX <= XATTR_TOTAL_MAX);

fn promise(ctx: &mut Ctx<'_>, op: &TxnOp) -> Result<Redo, Fail> {
    match op {
        TxnOp::MakeDir(TxnMakeDir { parent, new }) => {
            let ino = ctx.choose.ino()?;
            Ok(Redo::MakeDir(RedoMakeDir { ino, parent: *parent, new: new.clone(), at: ctx.scene.at }))
        }
        TxnOp::RetireDir(m) => {
            // One that went with an older copy of this shard, which was put back, has only a name left: that may go.
            if ctx.is_home(m.ino) && ctx.find_inode(m.ino)?.is_none() {
                return Ok(Redo::RetireDir(m.clone()));
            }
            let inode = ctx.dir(m.ino)?;
            if inode.parent() != m.parent {
                return Err(Errno::ESTALE.into());
            }
            if inode.entries > 0 {
                return Err(Errno::ENOTEMPTY.into());
            }
            Ok(Redo::RetireDir(m.clone()))
        }
    }
}

/// Is the transaction finished as far as its coordinator has told?
pub fn is_stray(ctx: &Ctx<'_>, txid: TxnId) -> Result<bool, Fail> {
    Ok(txid < floor(ctx, txid)?.txid)
}

fn floor(ctx: &Ctx<'_>, txid: TxnId) -> Result<Floor, Fail> {
    let row: Option<Floor> = ctx.row(&key::floor(ctx.scene.shard, txid.shard), "floor")?;
    Ok(row.unwrap_or(Floor { txid: TxnId { shard: txid.shard, ..TxnId::default() }, left: None }))
}

/// Nothing comes any more of what the coordinator has finished. What is still prepared below it was aborted. Where there is
/// more than one command should delete the rest stays until the floor is raised again: what is finished is in nobody's way,
/// and what is prepared is asked for. The search goes on where the last one ended: those before have deleted what lies in
/// front, and the store would go over all of that once more.
pub fn raise_floor(ctx: &mut Ctx<'_>, txid: TxnId, to: TxnId) -> Result<(), Fail> {
    // Whatever it says, the transaction that it comes with is not finished.
    let to = to.min(txid);
    let known = floor(ctx, txid)?;
    if to.shard != txid.shard || to <= known.txid {
        return Ok(());
    }
    let shard = ctx.scene.shard;
    let from = key::prepared(shard, known.left.unwrap_or(known.txid));
    let mut old = Vec::new();
    ctx.txn.scan(&from, &key::prepared(shard, to), &mut |key, bytes| {
        old.push((key.to_vec(), bytes.to_vec()));
        old.len() < TXNS_SWEPT
    })?;
    let last = old.get(TXNS_SWEPT - 1);
    let left = last.and_then(|(key, _)| key::prepared_of(key));
    ctx.put(key::floor(shard, to.shard), &Floor { txid: to, left });
    for (key, bytes) in old {
        let row = Prepared::from_bytes(&bytes).map_err(|e| corrupt("prepared row", e))?;
        let below = key::prepared_of(&key).filter(|_| row.redo.is_some());
        ctx.effects.extend(below.map(Effect::Released));
        ctx.txn.delete(key);
    }
    Ok(())
}
