//! `WriteInline`: writes content that stays inline.

use super::get_attr::attr_reply;
use super::size::content;
use super::xattr::kill_privileges;
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
    let offset = if m.append { inode.size } else { m.offset };
    let end = offset.saturating_add(m.data.0.len() as u64);
    if end > FILE_SIZE_MAX {
        return Err(Errno::EFBIG.into());
    }
    if end > u64::from(ctx.inline_limit(&inode).min(INLINE_MAX)) {
        return Err(Status::MUST_GROW.into());
    }
    if m.data.0.is_empty() {
        return Ok(Done::reply(&attr_reply(ctx, m.ino, &inode)?));
    }
    let mut data = content(ctx, m.ino, &inode)?;
    let (from, end) = (offset as usize, end as usize);
    if data.len() < end {
        data.resize(end, 0);
    }
    data[from..end].copy_from_slice(&m.data.0);
    inode.inline_len = data.len() as u32;
    inode.inline_version += 1;
    inode.size = inode.size.max(end as u64);
    kill_privileges(ctx, m.ino, &mut inode, m.kill_suidgid)?;
    inode.touch_content(ctx.scene.at);
    ctx.txn.put(key::of_ino(Table::Inline, m.ino), data);
    ctx.put_inode(m.ino, &inode);
    Ok(Done::reply(&attr_reply(ctx, m.ino, &inode)?))
}

#[cfg(test)]
mod tests {
    use crate::testing::*;
    use skep_types::codec::Bytes;
    use skep_types::{Errno, Ino, SetAttr};
    use skep_wire::Status;
    use skep_wire::meta::{ChangeAttr, ReadInline, WriteInline};

    /// Goal: writes land where they should with zeros between; times, versions and blocks move.
    #[test]
    fn writes_land() {
        let mut bed = Bed::new();
        let ino = bed.create(ME, Ino::ROOT, "f");
        let before = bed.attr(ino).unwrap();
        bed.write(ino, 4, b"efgh").unwrap();
        let attr = bed.write(ino, 1, b"bc").unwrap();
        assert_eq!((attr.size, attr.blocks), (8, 1));
        assert!(attr.mtime > before.mtime && attr.change > before.change);
        assert_eq!(
            bed.call(ME, ReadInline { ino, short: alloc::vec::Vec::new(), trims: Default::default() })
                .unwrap()
                .inline
                .unwrap()
                .0,
            b"\0bc\0efgh"
        );
        bed.call(ME, ChangeAttr { ino, set: SetAttr { mode: Some(0o6775), ..SetAttr::default() } }).unwrap();
        let wish =
            WriteInline { append: false, ino, offset: 0, data: Bytes(alloc::vec![1]), kill_suidgid: true };
        assert_eq!(bed.call(ME, wish).unwrap().attr.mode, 0o775);
        bed.check();
    }

    /// Goal: what does not fit must grow; what is in chunks is not written inline; no content for
    /// directories.
    #[test]
    fn refusals() {
        let mut bed = Bed::new();
        let ino = bed.create(ME, Ino::ROOT, "f");
        assert!(bed.write(ino, 8_191, b"x").is_ok(), "the last byte below the limit");
        assert_eq!(bed.write(ino, 8_192, b"x").err(), Some(Status::MUST_GROW));
        assert_eq!(bed.write(ino, i64::MAX as u64, b"x").err(), Some(errno(Errno::EFBIG)));
        assert_eq!(bed.write(ino, u64::MAX, b"x").err(), Some(errno(Errno::EFBIG)));
        let (grown, _) = bed.grown("g", 5);
        assert_eq!(bed.write(grown, 0, b"x").err(), Some(Status::STALE_GENERATION));
        assert_eq!(bed.write(Ino::ROOT, 0, b"x").err(), Some(errno(Errno::EISDIR)));
    }
}
