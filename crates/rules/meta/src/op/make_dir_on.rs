//! `MakeDirOn` and the removal of what it made: operations over two shards, the asking side.
//!
//! The entry is marked at once and blocks only its own name. The intent row drives the rest: ask
//! the other shard, apply its answer, tell it to forget. Every step is a log record, and nothing
//! is asked before the record that wants it is durable.

use super::create::{Born, Wanted, born_in};
use super::make_node;
use crate::command::RemoteAnswer;
use crate::ctx::{Ctx, Done, Effect};
use crate::fail::Fail;
use crate::key::{self, Table};
use crate::row::LinkRef;
use crate::row::remote::{RemoteIntent, RemoteKind, RemotePhase};
use crate::row::slot::{Gate, Outcome, RemoteGate, SlotRow};
use crate::tree::{Place, Spot, target};
use skep_types::codec::Bytes;
use skep_types::{Encode, Errno, Ino, Kind};
use skep_wire::meta::{EntryReply, MakeDirOn, MakeNode, NewDir};
use skep_wire::{Empty, Refusal, Status};

/// Runs the first step.
pub fn run(ctx: &mut Ctx<'_>, m: &MakeDirOn) -> Result<Done, Fail> {
    let (mode, uid, gid) = (m.mode, m.uid, m.gid);
    if m.on == ctx.scene.shard {
        let (parent, name, kind, rdev) = (m.parent, m.name.clone(), Kind::Dir, 0);
        return make_node::run(ctx, &MakeNode { umask: m.umask, parent, name, kind, mode, uid, gid, rdev });
    }
    let mut parent = ctx.dir(m.parent)?;
    let Spot::Free(free) = ctx.find(m.parent, &m.name)? else { return Err(Errno::EEXIST.into()) };
    let wanted = Wanted { kind: Kind::Dir, mode, umask: m.umask, uid, gid };
    let Born { inode, access, default } = born_in(ctx, m.parent, &parent, &wanted)?;
    let new = NewDir {
        mode: inode.mode,
        uid: inode.uid,
        gid: inode.gid,
        project: inode.project,
        policy: inode.policy,
        access_acl: access.map(Bytes),
        default_acl: default.map(Bytes),
    };
    let txid = next_txid(ctx)?;
    let mut entry = target(&m.name, Ino(0), Kind::Dir);
    entry.pending = Some(txid);
    let link = ctx.add(&mut parent, free, entry)?;
    ctx.put_inode(m.parent, &parent);
    let intent = RemoteIntent {
        kind: RemoteKind::Make,
        phase: RemotePhase::Asking,
        on: m.on,
        parent: m.parent,
        cookie: link.cookie,
        ino: Ino(0),
        new: Some(new),
        caller: ctx.scene.caller,
    };
    start(ctx, txid, &intent)
}

/// Starts the removal of a directory whose inode is on another shard.
pub fn retire(ctx: &mut Ctx<'_>, place: &Place) -> Result<Done, Fail> {
    let txid = next_txid(ctx)?;
    let mut entry = place.target.clone();
    entry.pending = Some(txid);
    ctx.retarget(place, entry);
    let intent = RemoteIntent {
        kind: RemoteKind::Retire,
        phase: RemotePhase::Asking,
        on: place.target.ino.shard(),
        parent: place.dir,
        cookie: place.cookie,
        ino: place.target.ino,
        new: None,
        caller: ctx.scene.caller,
    };
    start(ctx, txid, &intent)
}

fn next_txid(ctx: &mut Ctx<'_>) -> Result<u64, Fail> {
    let mut header = ctx.header()?;
    let txid = header.next_txid;
    header.next_txid += 1;
    ctx.put(key::header(ctx.scene.shard), &header);
    Ok(txid)
}

fn start(ctx: &mut Ctx<'_>, txid: u64, intent: &RemoteIntent) -> Result<Done, Fail> {
    ctx.put(key::numbered(ctx.scene.shard, Table::RemoteIntent, txid), intent);
    ctx.effects.push(Effect::Remote(txid));
    let gate = Gate::Remote(RemoteGate { txid });
    Ok(Done { pending: true, ..Done::gated(&Empty {}, gate) })
}

/// Applies what the other shard answered.
pub fn answered(ctx: &mut Ctx<'_>, m: &RemoteAnswer) -> Result<(), Fail> {
    let row = key::numbered(ctx.scene.shard, Table::RemoteIntent, m.txid);
    let Some(mut intent) = ctx.remote_intent(m.txid)? else { return Ok(()) };
    if m.phase == RemotePhase::Forgetting {
        ctx.txn.delete(row);
        return Ok(());
    }
    if intent.phase == RemotePhase::Forgetting {
        return Ok(());
    }
    let link = LinkRef { parent: intent.parent, cookie: intent.cookie };
    let mut parent = ctx.inode(intent.parent)?;
    let place = ctx.place_at(link)?.filter(|place| place.target.pending == Some(m.txid));
    let Some(place) = place else {
        return Err(Fail::Store(crate::store::StoreError::Corrupt(alloc::format!(
            "transaction {} of shard {} has lost its entry; run skep fsck",
            m.txid,
            ctx.scene.shard
        ))));
    };
    let mut entry = place.target.clone();
    entry.pending = None;
    match (intent.kind, m.errno) {
        (RemoteKind::Make, 0) => {
            entry.ino = m.ino;
            ctx.retarget(&place, entry);
            parent.enter();
            parent.touch_content(ctx.scene.at);
        }
        (RemoteKind::Retire, 0) => {
            ctx.remove(&mut parent, &place)?;
            parent.leave();
            parent.touch_content(ctx.scene.at);
        }
        (RemoteKind::Make, _) => ctx.remove(&mut parent, &place)?,
        (RemoteKind::Retire, _) => ctx.retarget(&place, entry),
    }
    ctx.put_inode(intent.parent, &parent);
    settle(ctx, &intent, m)?;
    intent.phase = RemotePhase::Forgetting;
    ctx.put(row, &intent);
    ctx.effects.push(Effect::RemoteFreed(m.txid));
    ctx.effects.push(Effect::Remote(m.txid));
    Ok(())
}

/// Writes the answer into the lane of whoever asked, unless it has gone on.
fn settle(ctx: &mut Ctx<'_>, intent: &RemoteIntent, m: &RemoteAnswer) -> Result<(), Fail> {
    let Some(caller) = intent.caller else { return Ok(()) };
    let row = key::slot(ctx.scene.shard, caller.client, caller.slot);
    let slot: Option<SlotRow> = ctx.row(&row, "slot")?;
    let same = |slot: &SlotRow| (slot.incarnation, slot.seq) == (caller.incarnation, caller.seq);
    let Some(mut slot) = slot.filter(same) else { return Ok(()) };
    slot.outcome = if m.errno != 0 {
        Outcome::Refused(Refusal::new(Status(m.errno)))
    } else if intent.kind == RemoteKind::Make {
        let reply = EntryReply { ino: m.ino, kind: Kind::Dir, attr: m.attr.clone(), live: None };
        Outcome::Done(Bytes(reply.to_bytes()))
    } else {
        Outcome::Done(Bytes(Empty {}.to_bytes()))
    };
    slot.gate = Gate::Open;
    (slot.term, slot.index) = (ctx.scene.term, ctx.scene.index);
    ctx.put(row, &slot);
    Ok(())
}
