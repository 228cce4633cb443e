//! `ReadInline`: reads content that is inline, or learns the layout when it no longer is.

use super::open::open_reply;
use crate::ctx::{Ctx, Done};
use crate::fail::Fail;
use skep_wire::meta::ReadInline;

/// Runs it.
pub fn run(ctx: &mut Ctx<'_>, m: &ReadInline) -> Result<Done, Fail> {
    let inode = ctx.file(m.ino)?;
    Ok(Done::reply(&open_reply(ctx, m.ino, &inode)?))
}
