//! What the server itself decides, as commands.

use super::xattr::kill_privileges;
use super::{decide, seal};
use crate::command::{
    CancelGrowth, Deleted, Format, Internal, Place, Purge, Recovered, Serials, SessionGone, Trimmed, Unheld,
    Writers,
};
use crate::ctx::Ctx;
use crate::fail::Fail;
use crate::key::{self, Table};
use crate::limit::ERA_SERIALS;
use crate::row::Inode;
use crate::row::header::{FORMAT, Header, Terms};
use crate::row::inode::MAY_BE_HELD;
use alloc::vec::Vec;
use skep_types::{Ino, Kind, ShardId};

pub fn run(ctx: &mut Ctx<'_>, internal: &Internal) -> Result<(), Fail> {
    match internal {
        Internal::Format(m) => format(ctx, m),
        Internal::Serials(m) => serials(ctx, m),
        Internal::Place(m) => place(ctx, m),
        Internal::Deleted(m) => deleted(ctx, m),
        Internal::Trimmed(m) => trimmed(ctx, m),
        Internal::Purge(m) => purge(ctx, m),
        Internal::CancelGrowth(m) => cancel_growth(ctx, m),
        Internal::SessionGone(m) => session_gone(ctx, m),
        Internal::Holds(m) => {
            ctx.txn.put(key::holder(ctx.scene.shard, m.client), Vec::new());
            Ok(())
        }
        Internal::Recovered(m) => recovered(ctx, m),
        Internal::Finished(m) => decide::finished(ctx, m),
        Internal::Writers(m) => writers(ctx, m),
        Internal::SealBegun(m) => seal::begun(ctx, m),
        Internal::Sealed(m) => seal::sealed(ctx, m),
        Internal::EraTold(_) => era_told(ctx),
        Internal::Unheld(m) => unheld(ctx, m),
    }
}

fn format(ctx: &mut Ctx<'_>, m: &Format) -> Result<(), Fail> {
    let shard = ctx.scene.shard;
    let header = Header {
        format: FORMAT,
        shard,
        keys: m.keys,
        // Serial 0 names nothing, serial 1 of shard 0 is the root.
        serials_end: 2,
        next_id: 1,
        away: 0,
        epoch: m.epoch,
        level: m.level,
        era: m.era,
        era_untold: None,
        given: None,
    };
    ctx.put(key::header(shard), &header);
    // Its first term begins with its first record.
    let mut terms = Terms::default();
    terms.push(ctx.scene.term, ctx.scene.index);
    ctx.put(key::terms(shard), &terms);
    if shard == ShardId(0) {
        let mut root = Inode::new(Kind::Dir, 0o755, 0, 0, ctx.scene.at);
        root.links.push(crate::row::LinkRef { parent: Ino::ROOT, cookie: 0 });
        ctx.put_inode(Ino::ROOT, &root);
    }
    Ok(())
}

fn serials(ctx: &mut Ctx<'_>, m: &Serials) -> Result<(), Fail> {
    let mut header = ctx.header()?;
    header.serials_end = header.serials_end.max(m.end);
    ctx.put(key::header(ctx.scene.shard), &header);
    Ok(())
}

fn place(ctx: &mut Ctx<'_>, m: &Place) -> Result<(), Fail> {
    let mut header = ctx.header()?;
    let eras = u64::from(m.era.saturating_sub(header.era));
    header.serials_end = header.serials_end.saturating_add(eras * ERA_SERIALS).min(Ino::SERIAL_MAX);
    (header.epoch, header.level) = (m.epoch, m.level);
    header.era = header.era.max(m.era);
    if eras > 0 {
        // Who came since the copy was made has no row in it, and may have files open.
        header.era_untold = Some(true);
    }
    // It is this server's again, by who knows that it was given away.
    header.given = None;
    ctx.put(key::header(ctx.scene.shard), &header);
    Ok(())
}

fn era_told(ctx: &mut Ctx<'_>) -> Result<(), Fail> {
    let mut header = ctx.header()?;
    if header.era_untold.take().is_some() {
        ctx.put(key::header(ctx.scene.shard), &header);
    }
    Ok(())
}

/// Nothing but the flag: nobody is to ask again for what he knows.
fn unheld(ctx: &mut Ctx<'_>, m: &Unheld) -> Result<(), Fail> {
    for ino in &m.inos {
        if let Some(mut inode) = ctx.find_inode(*ino)?.filter(|inode| inode.flags & MAY_BE_HELD != 0) {
            inode.flags &= !MAY_BE_HELD;
            ctx.put_inode(*ino, &inode);
        }
    }
    Ok(())
}

fn deleted(ctx: &mut Ctx<'_>, m: &Deleted) -> Result<(), Fail> {
    for id in &m.ids {
        ctx.txn.delete(key::numbered(ctx.scene.shard, Table::Deletion, *id));
    }
    Ok(())
}

fn trimmed(ctx: &mut Ctx<'_>, m: &Trimmed) -> Result<(), Fail> {
    if ctx.trim(m.ino)?.is_none_or(|trim| trim.id != m.id) {
        return Ok(());
    }
    ctx.drop_trim(m.ino)?;
    let mut inode = ctx.inode(m.ino)?;
    inode.blocks = m.blocks;
    // From here on the targets tell only what was written after it.
    inode.cuts += 1;
    // Who looked at the chunk files while they were being cut has seen what may be gone.
    inode.layout.trims = ctx.record();
    ctx.put_inode(m.ino, &inode);
    Ok(())
}

fn purge(ctx: &mut Ctx<'_>, m: &Purge) -> Result<(), Fail> {
    for ino in &m.inos {
        let row = key::of_ino(Table::Orphan, *ino);
        if ctx.txn.get(&row)?.is_none() {
            continue;
        }
        ctx.txn.delete(row);
        if let Some(inode) = ctx.find_inode(*ino)? {
            ctx.erase(*ino, &inode)?;
        }
    }
    Ok(())
}

fn cancel_growth(ctx: &mut Ctx<'_>, m: &CancelGrowth) -> Result<(), Fail> {
    m.inos.iter().try_for_each(|ino| ctx.cancel_growth(*ino))?;
    m.over.map_or(Ok(()), |lane| ctx.lane_is_over(lane.client, lane.slot))
}

fn session_gone(ctx: &mut Ctx<'_>, m: &SessionGone) -> Result<(), Fail> {
    let (from, until) = key::slots_of(ctx.scene.shard, m.client);
    let mut keys = Vec::new();
    ctx.txn.scan(&from, &until, &mut |key, _| {
        keys.push(key.to_vec());
        true
    })?;
    let holder = key::holder(ctx.scene.shard, m.client);
    if ctx.txn.get(&holder)?.is_some() {
        keys.push(holder);
    }
    for key in keys {
        ctx.txn.delete(key);
    }
    Ok(())
}

fn writers(ctx: &mut Ctx<'_>, m: &Writers) -> Result<(), Fail> {
    for ino in &m.inos {
        if m.cease {
            ctx.remove_writer(*ino, m.client);
        } else if ctx.find_inode(*ino)?.is_some_and(|inode| !inode.layout.is_inline()) {
            if m.held == Some(true) {
                ctx.add_held_writer(*ino, m.client)?;
            } else {
                ctx.add_writers(*ino, &[m.client])?;
            }
        }
    }
    Ok(())
}

fn recovered(ctx: &mut Ctx<'_>, m: &Recovered) -> Result<(), Fail> {
    for client in &m.clients {
        ctx.remove_writer(m.ino, *client);
    }
    let Some(mut inode) = ctx.find_inode(m.ino)? else { return Ok(()) };
    if inode.layout.generation != m.generation || inode.layout.is_inline() {
        return Ok(());
    }
    // Whether an ordinary user wrote, and what, only the writer knew: also in the middle, which no length shows, and of which
    // kernels may have older pages.
    kill_privileges(ctx, m.ino, &mut inode, true)?;
    // What a trim leaves of the chunks shows when it has ended.
    let is_whole = ctx.trim(m.ino)?.is_none();
    if is_whole {
        inode.blocks = m.blocks;
    }
    if is_whole && m.size > inode.size {
        inode.size = m.size;
        inode.was_written(ctx.scene.at);
    } else {
        inode.touch(ctx.scene.at);
    }
    ctx.put_inode(m.ino, &inode);
    Ok(())
}
