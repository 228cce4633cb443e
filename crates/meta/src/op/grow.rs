//! `Grow`: allots chunks.

use super::size::content;
use crate::ctx::{Ctx, Done, Effect};
use crate::fail::Fail;
use crate::key::{self, Table};
use crate::limit::{GROWTH_AGE_MAX_MS, GROWTH_AGE_MIN_MS};
use crate::row::Inode;
use crate::row::growth::Growth;
use crate::row::slot::Gate;
use skep_types::codec::Bytes;
use skep_types::limits::FILE_SIZE_MAX;
use skep_types::{ClientId, Errno, Generation, Ino, Layout, Slot, Timestamp};
use skep_wire::meta::{Grow, GrowReply, InlineCopy};
use skep_wire::{Refusal, Status};

/// Runs it.
pub fn run(ctx: &mut Ctx<'_>, m: &Grow) -> Result<Done, Fail> {
    let mut inode = ctx.file(m.ino)?;
    if m.end > FILE_SIZE_MAX {
        return Err(Errno::EFBIG.into());
    }
    if inode.layout.is_inline() { leave_inline(ctx, m, &mut inode) } else { extend(ctx, m, &mut inode) }
}

fn extend(ctx: &mut Ctx<'_>, m: &Grow, inode: &mut Inode) -> Result<Done, Fail> {
    if inode.layout.covered() < m.end {
        let generation = inode.layout.generation;
        let extents = ctx.choose.extents(m.ino, inode, generation, m.end)?;
        inode.layout.extents.extend(extents);
        check(&inode.layout, m.ino)?;
        ctx.put_inode(m.ino, inode);
        ctx.effects.push(Effect::Settling(m.ino));
        return Ok(Done::gated(&reply(m.ino, inode, inode.layout.clone(), None), Gate::Durable));
    }
    ctx.show(m.ino, inode);
    Ok(Done::reply(&reply(m.ino, inode, inode.layout.clone(), None)))
}

fn leave_inline(ctx: &mut Ctx<'_>, m: &Grow, inode: &mut Inode) -> Result<Done, Fail> {
    let (client, slot) = ctx.scene.caller.map_or((ClientId(0), Slot(0)), |c| (c.client, c.slot));
    if let Some(old) = ctx.growth(m.ino)? {
        let age = age_ms(old.since, ctx.scene.at);
        if (old.client, old.slot) != (client, slot) && age < GROWTH_AGE_MIN_MS && !ctx.scene.replay {
            return Err(Refusal::with(
                Status::BUSY,
                "another writer is moving this file out of the metadata",
            )
            .into());
        }
        ctx.cancel_growth(m.ino)?;
    }
    let generation = inode.next_generation;
    let next = generation.0.checked_add(1).ok_or_else(|| {
        Refusal::with(Status::errno(Errno::EFBIG), "this file was truncated too often; copy it to a new one")
    })?;
    inode.next_generation = Generation(next);
    let extents = ctx.choose.extents(m.ino, inode, generation, m.end.max(1))?;
    let layout = Layout { generation, extents };
    check(&layout, m.ino)?;
    if inode.inline_len == 0 {
        inode.inline_version += 1;
        inode.layout = layout.clone();
        ctx.put_inode(m.ino, inode);
        ctx.effects.push(Effect::Settling(m.ino));
        return Ok(Done::gated(&reply(m.ino, inode, layout, None), Gate::Durable));
    }
    let growth = Growth { layout: layout.clone(), client, slot, since: ctx.scene.at };
    ctx.put(key::of_ino(Table::Growth, m.ino), &growth);
    ctx.put_inode(m.ino, inode);
    ctx.effects.push(Effect::Growth(m.ino));
    let copy = InlineCopy { data: Bytes(content(ctx, m.ino, inode)?), version: inode.inline_version };
    Ok(Done::gated(&reply(m.ino, inode, layout, Some(copy)), Gate::Durable))
}

fn reply(ino: Ino, inode: &Inode, layout: Layout, copy: Option<InlineCopy>) -> GrowReply {
    GrowReply { attr: inode.attr(ino), layout, copy }
}

fn check(layout: &Layout, ino: Ino) -> Result<(), Fail> {
    if layout.is_valid() {
        return Ok(());
    }
    Err(Refusal::with(
        Status::errno(Errno::EIO),
        alloc::format!("file {ino} would get a layout that is not valid; its layout wish cannot be met"),
    )
    .into())
}

/// Milliseconds between two wall-clock times; a clock that went back counts as very old, so that
/// nobody waits for it.
pub fn age_ms(since: Timestamp, at: Timestamp) -> u64 {
    let ms = |t: Timestamp| t.secs.saturating_mul(1_000).saturating_add(i64::from(t.nanos / 1_000_000));
    u64::try_from(ms(at).saturating_sub(ms(since))).unwrap_or(GROWTH_AGE_MAX_MS)
}
