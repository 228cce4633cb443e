//! Changes of a file's size, shared by everything that truncates.

use crate::choose::CutBy;
use crate::ctx::{Ctx, Effect};
use crate::fail::{Fail, Need};
use crate::key::{self, Table};
use crate::row::Inode;
use crate::row::slot::{Gate, TrimGate};
use crate::row::trim::Trim;
use alloc::vec::Vec;
use skep_types::limits::FILE_SIZE_MAX;
use skep_types::{Errno, Ino, Layout};

/// Sets the size of a regular file; the inode row is written by the caller. Content that is cut
/// off is gone for ever: a file that grows again reads as zeros there. The cut counts when all
/// targets have made it: until then nothing may make the file longer.
pub fn set(ctx: &mut Ctx<'_>, ino: Ino, inode: &mut Inode, size: u64, by: CutBy) -> Result<Gate, Fail> {
    if size > FILE_SIZE_MAX {
        return Err(Errno::EFBIG.into());
    }
    if inode.layout.is_inline() {
        cut_inline(ctx, ino, inode, size)?;
        inode.size = size;
        inode.cuts += 1;
        return Ok(Gate::Open);
    }
    if size == 0 && ctx.choose.fresh(ino, by) {
        ctx.drop_trim(ino)?;
        ctx.drop_seal(ino)?;
        let old = core::mem::take(&mut inode.layout);
        ctx.queue_deletion(&[&old])?;
        ctx.remove_writers(ino)?;
        ctx.effects.push(Effect::Repaired(ino));
        inode.layout = Layout::default();
        (inode.size, inode.blocks, inode.inline_len) = (0, 0, 0);
        inode.inline_version += 1;
        inode.cuts += 1;
        return Ok(Gate::Open);
    }
    wait_for_trim(ctx, ino)?;
    // Also when the file grows: chunk files may hold more than was ever committed.
    let id = ctx.next_id()?;
    let longer = (size > inode.size).then_some(true);
    inode.size = size;
    // In this command, so that it is durable before a target is told.
    inode.layout.cut_floors(size);
    inode.layout.trims = ctx.record();
    let generation = inode.layout.generation;
    ctx.put(key::of_ino(Table::Trim, ino), &Trim { id, size, generation, longer });
    ctx.effects.push(Effect::Trim(ino));
    Ok(Gate::Trim(TrimGate { ino, id }))
}

/// The file is `size` long at least; content stays as it is. `true`: it was shorter.
pub fn grow(ctx: &Ctx<'_>, ino: Ino, inode: &mut Inode, size: u64) -> Result<bool, Fail> {
    if size > FILE_SIZE_MAX {
        return Err(Errno::EFBIG.into());
    }
    if size <= inode.size {
        return Ok(false);
    }
    wait_for_trim(ctx, ino)?;
    inode.size = size;
    Ok(true)
}

/// The inode as it is when the gate of a truncate opens, and its answer leaves.
pub fn behind(inode: &Inode, gate: Gate) -> Inode {
    let cut = matches!(gate, Gate::Trim(_));
    Inode { cuts: inode.cuts + u64::from(cut), ..inode.clone() }
}

/// A size must not grow while targets have not been told of a truncate: cut bytes would return.
pub fn wait_for_trim(ctx: &Ctx<'_>, ino: Ino) -> Result<(), Fail> {
    match ctx.trim(ino)? {
        Some(trim) => Err(Fail::Wait(Need::Gate(Gate::Trim(TrimGate { ino, id: trim.id })))),
        None => Ok(()),
    }
}

fn cut_inline(ctx: &mut Ctx<'_>, ino: Ino, inode: &mut Inode, size: u64) -> Result<(), Fail> {
    // A copy to chunks that is under way must not win over this.
    inode.inline_version += 1;
    if u64::from(inode.inline_len) <= size {
        return Ok(());
    }
    let row = key::of_ino(Table::Inline, ino);
    if size == 0 {
        ctx.txn.delete(row);
    } else {
        let mut data = content(ctx, ino, inode)?;
        data.truncate(size as usize);
        ctx.txn.put(row, data);
    }
    inode.inline_len = size as u32;
    Ok(())
}

/// The inline content (shorter than the file where that ends in zeros).
pub fn content(ctx: &Ctx<'_>, ino: Ino, inode: &Inode) -> Result<Vec<u8>, Fail> {
    if inode.inline_len == 0 {
        return Ok(Vec::new());
    }
    Ok(ctx.txn.get(&key::of_ino(Table::Inline, ino))?.unwrap_or_default())
}
