//! `Decide`: a participant hears how a transaction ended. And the end of that at the coordinator.

use super::prepare::{born, is_stray, raise_floor};
use crate::command::Finished;
use crate::ctx::{Ctx, Done, Effect};
use crate::fail::Fail;
use crate::key;
use crate::row::slot::Gate;
use crate::row::txn::{Prepared, Redo};
use skep_types::Errno;
use skep_wire::meta::Decide;
use skep_wire::{Empty, Refusal, Status};

pub fn run(ctx: &mut Ctx<'_>, m: &Decide) -> Result<Done, Fail> {
    // What it confirms may have been done by a record that is not durable yet.
    let confirmed = Done::gated(&Empty {}, Gate::Durable);
    let is_stray = is_stray(ctx, m.txid)?;
    raise_floor(ctx, m.txid, m.floor)?;
    let row = key::prepared(ctx.scene.shard, m.txid);
    match ctx.prepared(m.txid)? {
        Some(Prepared { redo: Some(_), .. }) if !m.commit => ctx.txn.delete(row),
        Some(Prepared { age, redo: Some(redo) }) => {
            redo.iter().try_for_each(|redo| carry_out(ctx, redo))?;
            ctx.put(row, &Prepared { age, redo: None });
        }
        // An older copy of the shard was put back since: what it promised is gone with all else that was changed then, and the
        // coordinator is not to wait for it.
        None if m.commit && !is_stray && ctx.header()?.era > 0 => {
            ctx.put(row, &Prepared { age: ctx.scene.at, redo: None });
            ctx.effects.push(Effect::PromiseLost(m.txid));
            return Ok(confirmed);
        }
        None if m.commit && !is_stray => {
            let text = "the transaction is committed, and this shard has lost what it promised: was its server put back \
                        from a backup? Then start it once with --restored";
            return Err(Refusal::with(Status::errno(Errno::EIO), text).into());
        }
        _ => return Ok(confirmed),
    }
    ctx.effects.push(Effect::Released(m.txid));
    Ok(confirmed)
}

fn carry_out(ctx: &mut Ctx<'_>, redo: &Redo) -> Result<(), Fail> {
    match redo {
        Redo::MakeDir(redo) => born(redo).put(ctx, redo.ino),
        Redo::RetireDir(redo) => match ctx.find_inode(redo.ino)? {
            Some(mut inode) => ctx.bury(redo.ino, &mut inode),
            None => Ok(()),
        },
    }
}

/// Every participant knows.
pub fn finished(ctx: &mut Ctx<'_>, m: &Finished) -> Result<(), Fail> {
    ctx.txn.delete(key::decision(m.txid));
    ctx.effects.push(Effect::Finished(m.txid));
    Ok(())
}
