//! `WriteInline`: writes content that stays inline.

use super::get_attr::attr_reply;
use super::size::content;
use super::xattr::kill_privileges;
use crate::ctx::{Ctx, Done};
use crate::fail::Fail;
use crate::key::{self, Table};
use crate::row::Inode;
use skep_types::limits::{FILE_SIZE_MAX, INLINE_MAX};
use skep_types::{Errno, Ino};
use skep_wire::Status;
use skep_wire::meta::WriteInline;

pub fn run(ctx: &mut Ctx<'_>, m: &WriteInline) -> Result<Done, Fail> {
    let mut inode = ctx.file(m.ino)?;
    require_inline(&inode)?;
    let offset = if m.append { inode.size } else { m.offset };
    let data = match m.within {
        // Another mount may have cut the file since its end was looked at.
        Some(true) => {
            let room = inode.size.saturating_sub(offset).min(m.data.0.len() as u64);
            &m.data.0[..room as usize]
        }
        _ => &m.data.0[..],
    };
    if put(ctx, m.ino, &mut inode, offset, data, m.kill_suidgid)? {
        inode.touch_content(ctx.scene.at);
        ctx.put_inode(m.ino, &inode);
    }
    Ok(Done::reply(&attr_reply(ctx, m.ino, &inode)?))
}

/// Content is written inline as long as it is there.
pub fn require_inline(inode: &Inode) -> Result<(), Fail> {
    if inode.layout.is_inline() { Ok(()) } else { Err(Status::STALE_GENERATION.into()) }
}

/// Writes into content that is inline; the inode row is written, and dated, by the caller. `false`: there was nothing to
/// write.
pub fn put(
    ctx: &mut Ctx<'_>,
    ino: Ino,
    inode: &mut Inode,
    offset: u64,
    data: &[u8],
    kill: bool,
) -> Result<bool, Fail> {
    let end = offset.saturating_add(data.len() as u64);
    if end > FILE_SIZE_MAX {
        return Err(Errno::EFBIG.into());
    }
    if data.is_empty() {
        return Ok(false);
    }
    if end > u64::from(ctx.inline_limit(inode).min(INLINE_MAX)) {
        return Err(Status::MUST_GROW.into());
    }
    let mut whole = content(ctx, ino, inode)?;
    let (from, end) = (offset as usize, end as usize);
    if whole.len() < end {
        whole.resize(end, 0);
    }
    whole[from..end].copy_from_slice(data);
    inode.inline_len = whole.len() as u32;
    inode.inline_version += 1;
    inode.size = inode.size.max(end as u64);
    kill_privileges(ctx, ino, inode, kill)?;
    ctx.txn.put(key::of_ino(Table::Inline, ino), whole);
    Ok(true)
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
        let wish = WriteInline {
            append: false,
            ino,
            offset: 0,
            data: Bytes(alloc::vec![1]),
            kill_suidgid: true,
            within: None,
        };
        assert_eq!(bed.call(ME, wish).unwrap().attr.mode, 0o775);
        bed.check();
    }

    /// Goal: zeros of a range that is punched make no file longer, whatever its end was when they were sent; what is
    /// left of them lands, and where nothing is left nothing changes.
    #[test]
    fn zeros_within_a_file_make_it_no_longer() {
        let mut bed = Bed::new();
        let ino = bed.create(ME, Ino::ROOT, "f");
        bed.write(ino, 0, &[7; 800]).unwrap();
        let punch = |bed: &mut Bed| {
            let data = Bytes(alloc::vec![0; 700]);
            let wish = WriteInline {
                append: false,
                ino,
                offset: 100,
                data,
                kill_suidgid: false,
                within: Some(true),
            };
            bed.call(ME, wish).unwrap().attr
        };
        bed.truncate(ME, ino, 150).unwrap();
        assert_eq!(punch(&mut bed).size, 150);
        // The log says it, too.
        bed.restart(&[]);
        assert_eq!(bed.attr(ino).unwrap().size, 150);
        let read = ReadInline { ino, short: alloc::vec::Vec::new(), trims: Default::default() };
        let content = bed.call(ME, read).unwrap().inline.unwrap().0;
        assert_eq!(content, [[7; 100].as_slice(), &[0; 50]].concat());
        for size in [100, 0] {
            let cut = bed.truncate(ME, ino, size).unwrap();
            assert_eq!(punch(&mut bed), cut, "nothing is left of it");
        }
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
