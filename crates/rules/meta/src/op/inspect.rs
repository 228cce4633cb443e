//! `Inspect`: everything an administrator wants to know of an inode.

use crate::ctx::Ctx;
use crate::fail::Fail;
use crate::row::inode::{POLICY_IS_OWN, SPREADS};
use alloc::vec::Vec;
use skep_types::Kind;
use skep_wire::meta::{Inspect, InspectReply};

/// Runs it; the open sessions and what was asked of the choosers are added by the server.
pub fn run(ctx: &mut Ctx<'_>, m: &Inspect) -> Result<InspectReply, Fail> {
    let inode = ctx.inode(m.ino)?;
    ctx.show(m.ino, &inode);
    let inline = inode.kind == Kind::File && inode.layout.is_inline();
    Ok(InspectReply {
        attr: inode.attr(m.ino),
        parent: inode.parent(),
        policy: inode.policy.unwrap_or_default(),
        policy_is_own: inode.flags & POLICY_IS_OWN != 0,
        spread: inode.flags & SPREADS != 0,
        inline_len: inline.then_some(u64::from(inode.inline_len)),
        sessions: Vec::new(),
        asked: ctx.choose.asked(&inode),
        entries: inode.entries,
        layout: inode.layout,
    })
}
