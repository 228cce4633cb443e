//! `Switch`: makes the chunks authoritative after the inline content was copied to them.

use crate::ctx::{Ctx, Done, Effect};
use crate::fail::Fail;
use crate::key::{self, Table};
use skep_wire::Status;
use skep_wire::meta::{LayoutReply, Switch};

pub fn run(ctx: &mut Ctx<'_>, m: &Switch) -> Result<Done, Fail> {
    let mut inode = ctx.file(m.ino)?;
    let growth = ctx.growth(m.ino)?.filter(|growth| growth.layout.generation == m.generation);
    let Some(growth) = growth else { return Err(Status::STALE_GENERATION.into()) };
    if inode.inline_version != m.inline_version {
        return Err(Status::STALE_GENERATION.into());
    }
    ctx.txn.delete(key::of_ino(Table::Growth, m.ino));
    ctx.txn.delete(key::of_ino(Table::Inline, m.ino));
    ctx.effects.push(Effect::GrowthGone(m.ino));
    let copied = m.copied.min(u64::from(inode.inline_len));
    inode.blocks = u64::from(inode.inline_len).div_ceil(512);
    inode.inline_len = 0;
    inode.inline_version += 1;
    inode.layout = growth.layout;
    inode.layout.raise_floors_to(copied);
    let writers = ctx.choose.writers(m.ino, true);
    ctx.add_writers(m.ino, &writers)?;
    ctx.put_inode(m.ino, &inode);
    Ok(Done::reply(&LayoutReply { attr: inode.attr(m.ino), layout: inode.layout }))
}
