//! `List`: lists a directory.

use super::lookup::entry_reply;
use crate::ctx::{Ctx, Done};
use crate::fail::{Fail, corrupt};
use crate::key;
use crate::limit::LIST_BYTES_MAX;
use crate::row::entry::{Entry, Target};
use crate::store::StoreError;
use alloc::vec::Vec;
use skep_types::limits::READDIR_MAX;
use skep_types::{Decode, Encode, Errno, Ino};
use skep_wire::meta::{DirEntry, List, ListReply};

/// Runs it.
pub fn run(ctx: &mut Ctx<'_>, m: &List) -> Result<Done, Fail> {
    let dir = ctx.inode(m.dir)?;
    if !dir.is_dir() {
        return Err(Errno::ENOTDIR.into());
    }
    let max = m.max.clamp(1, READDIR_MAX) as usize;
    let (found, mut end) = read(ctx, m.dir, m.after, max)?;
    let mut entries = Vec::with_capacity(found.len());
    let mut bytes = 0;
    for (cookie, target) in found {
        let (attr, live) = if m.with_attr {
            let reply = entry_reply(ctx, target.ino, target.kind)?;
            (reply.attr, reply.live)
        } else {
            (None, None)
        };
        let entry = DirEntry { cookie, name: target.name, ino: target.ino, kind: target.kind, attr, live };
        bytes += entry.to_bytes().len();
        if bytes > LIST_BYTES_MAX {
            end = false;
            break;
        }
        entries.push(entry);
    }
    Ok(Done::reply(&ListReply { entries, end, parent: dir.parent() }))
}

/// Up to `max` names behind the cookie `after`, and whether that is the end.
fn read(ctx: &Ctx<'_>, dir: Ino, after: u64, max: usize) -> Result<(Vec<(u64, Target)>, bool), Fail> {
    let from = key::entry(dir, after.saturating_add(1));
    let (_, until) = key::range_of_ino(key::Table::Entry, dir);
    let mut found = Vec::new();
    let mut end = true;
    let mut failed: Option<StoreError> = None;
    ctx.txn.scan(&from, &until, &mut |key, bytes| {
        if found.len() >= max {
            end = false;
            return false;
        }
        match Entry::from_bytes(bytes) {
            Ok(Entry { target: Some(target), .. }) => {
                // A name that another shard is still making is not there yet.
                if target.ino != Ino(0) {
                    found.push((key::last_u64(key), target));
                }
                true
            }
            Ok(_) => true,
            Err(e) => {
                failed = Some(corrupt("entry", e));
                false
            }
        }
    })?;
    match failed {
        Some(e) => Err(e.into()),
        None => Ok((found, end)),
    }
}
