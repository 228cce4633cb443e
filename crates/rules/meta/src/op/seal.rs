//! Seals: an extent is being closed, and is closed. See `docs/design/seal.md`.

use crate::command::{SealBegun, Sealed};
use crate::ctx::{Ctx, Effect};
use crate::fail::Fail;
use crate::key::{self, Table};
use crate::row::seal::Seal;

/// Targets are to be told, once this is durable.
pub fn begun(ctx: &mut Ctx<'_>, m: &SealBegun) -> Result<(), Fail> {
    let Some(inode) = ctx.find_inode(m.ino)? else { return Ok(()) };
    let fits = inode.layout.generation == m.generation && inode.layout.extent(m.extent).is_some();
    if !fits || ctx.seal(m.ino)?.is_some() {
        return Ok(());
    }
    let id = ctx.next_id()?;
    let seal = Seal { id, generation: m.generation, extent: m.extent, stripes: m.stripes.clone() };
    ctx.put(key::of_ino(Table::Seal, m.ino), &seal);
    ctx.effects.push(Effect::Seal(m.ino));
    Ok(())
}

/// They have answered: what they have sealed is closed.
pub fn sealed(ctx: &mut Ctx<'_>, m: &Sealed) -> Result<(), Fail> {
    let Some(seal) = ctx.seal(m.ino)?.filter(|seal| seal.id == m.id) else { return Ok(()) };
    ctx.drop_seal(m.ino)?;
    let Some(mut inode) = ctx.find_inode(m.ino)? else { return Ok(()) };
    if inode.layout.generation == seal.generation && inode.layout.close(seal.extent, &m.limits, &seal.stripes)
    {
        // Whoever has older attributes than these has an older layout.
        inode.change += 1;
        ctx.put_inode(m.ino, &inode);
        ctx.effects.push(Effect::Settling(m.ino));
    }
    Ok(())
}
