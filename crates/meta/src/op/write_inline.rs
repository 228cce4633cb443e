//! `WriteInline`: writes content that stays inline.

use super::get_attr::attr_reply;
use super::size::content;
use crate::ctx::{Ctx, Done};
use crate::fail::Fail;
use crate::key::{self, Table};
use skep_types::Errno;
use skep_types::limits::{FILE_SIZE_MAX, INLINE_MAX};
use skep_wire::Status;
use skep_wire::meta::WriteInline;

/// Runs it.
pub fn run(ctx: &mut Ctx<'_>, m: &WriteInline) -> Result<Done, Fail> {
    let mut inode = ctx.file(m.ino)?;
    if !inode.layout.is_inline() {
        return Err(Status::STALE_GENERATION.into());
    }
    let end = m.offset.saturating_add(m.data.0.len() as u64);
    if end > FILE_SIZE_MAX {
        return Err(Errno::EFBIG.into());
    }
    if end > u64::from(ctx.inline_limit(&inode).min(INLINE_MAX)) {
        return Err(Status::MUST_GROW.into());
    }
    if m.data.0.is_empty() {
        return Ok(Done::reply(&attr_reply(ctx, m.ino, &inode)));
    }
    let mut data = content(ctx, m.ino, &inode)?;
    let (from, end) = (m.offset as usize, end as usize);
    if data.len() < end {
        data.resize(end, 0);
    }
    data[from..end].copy_from_slice(&m.data.0);
    inode.inline_len = data.len() as u32;
    inode.inline_version += 1;
    inode.size = inode.size.max(end as u64);
    if m.kill_suidgid {
        inode.kill_suidgid();
    }
    inode.touch_content(ctx.scene.at);
    ctx.txn.put(key::of_ino(Table::Inline, m.ino), data);
    ctx.put_inode(m.ino, &inode);
    Ok(Done::reply(&attr_reply(ctx, m.ino, &inode)))
}
