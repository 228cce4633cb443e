//! `Repair`: gives up what is missing of chunk files.

use super::size::wait_for_trim;
use crate::ctx::{Ctx, Done, Effect};
use crate::fail::Fail;
use crate::row::slot::Gate;
use skep_wire::Status;
use skep_wire::meta::{LayoutReply, Repair};

/// Runs it. Who may ask is decided by the asker: the owner of the file, or an administrator.
pub fn run(ctx: &mut Ctx<'_>, m: &Repair) -> Result<Done, Fail> {
    let mut inode = ctx.file(m.ino)?;
    if inode.layout.is_inline() || inode.layout.generation != m.generation {
        return Err(Status::STALE_GENERATION.into());
    }
    wait_for_trim(ctx, m.ino)?;
    if inode.layout.trims != m.trims {
        return Err(Status::CUT_SINCE.into());
    }
    // Synced since, or given up by somebody else: the asker looks again.
    if m.found.iter().any(|found| inode.layout.floor(&found.chunk) != found.floor) {
        return Err(Status::CUT_SINCE.into());
    }
    let mut given_up = false;
    for found in &m.found {
        given_up |= inode.layout.lower_floor(&found.chunk, found.size);
    }
    if given_up {
        // Bytes that programs could not read are zeros now.
        inode.touch_content(ctx.scene.at);
        ctx.put_inode(m.ino, &inode);
        ctx.effects.push(Effect::Repaired(m.ino));
    }
    let reply = LayoutReply { attr: inode.attr(m.ino), layout: inode.layout };
    Ok(Done::gated(&reply, Gate::Durable))
}
