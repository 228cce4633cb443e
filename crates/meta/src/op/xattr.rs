//! `GetXattr`, `SetXattr`, `ListXattr`, `RemoveXattr`: extended attributes of users.

use crate::ctx::{Ctx, Done};
use crate::fail::Fail;
use crate::key::{self, Table};
use crate::row::Inode;
use alloc::vec::Vec;
use skep_types::codec::Bytes;
use skep_types::limits::{XATTR_NAME_MAX, XATTR_TOTAL_MAX, XATTR_VALUE_MAX};
use skep_types::{Errno, Kind};
use skep_wire::Empty;
use skep_wire::meta::{DataReply, GetXattr, ListXattr, RemoveXattr, SetXattr};

/// The only namespace that is kept.
const PREFIX: &[u8] = b"user.";

fn check_name(name: &[u8]) -> Result<(), Fail> {
    if name.len() > XATTR_NAME_MAX {
        return Err(Errno::ERANGE.into());
    }
    if !name.starts_with(PREFIX) {
        return Err(Errno::EOPNOTSUPP.into());
    }
    if name.len() == PREFIX.len() || name.contains(&0) {
        return Err(Errno::EINVAL.into());
    }
    Ok(())
}

fn check_kind(inode: &Inode) -> Result<(), Fail> {
    if matches!(inode.kind, Kind::File | Kind::Dir) { Ok(()) } else { Err(Errno::EPERM.into()) }
}

/// Reads one.
pub fn get(ctx: &mut Ctx<'_>, m: &GetXattr) -> Result<Done, Fail> {
    let inode = ctx.inode(m.ino)?;
    check_name(&m.name.0)?;
    if inode.xattr_bytes == 0 {
        return Err(Errno::ENODATA.into());
    }
    let data = ctx.txn.get(&key::xattr(m.ino, &m.name.0))?.ok_or(Errno::ENODATA)?;
    Ok(Done::reply(&DataReply { data: Bytes(data) }))
}

/// Sets one.
pub fn set(ctx: &mut Ctx<'_>, m: &SetXattr) -> Result<Done, Fail> {
    let mut inode = ctx.inode(m.ino)?;
    check_name(&m.name.0)?;
    check_kind(&inode)?;
    if m.value.0.len() > XATTR_VALUE_MAX {
        return Err(Errno::E2BIG.into());
    }
    let row = key::xattr(m.ino, &m.name.0);
    let old = ctx.txn.get(&row)?;
    if m.create && old.is_some() {
        return Err(Errno::EEXIST.into());
    }
    if m.replace && old.is_none() {
        return Err(Errno::ENODATA.into());
    }
    let freed = old.map_or(0, |value| m.name.0.len() + value.len());
    let total = inode.xattr_bytes as usize - freed.min(inode.xattr_bytes as usize);
    let total = total + m.name.0.len() + m.value.0.len();
    if total > XATTR_TOTAL_MAX {
        return Err(Errno::ENOSPC.into());
    }
    inode.xattr_bytes = total as u32;
    inode.touch(ctx.scene.at);
    ctx.txn.put(row, m.value.0.clone());
    ctx.put_inode(m.ino, &inode);
    Ok(Done::reply(&Empty {}))
}

/// Lists the names, each followed by NUL.
pub fn list(ctx: &mut Ctx<'_>, m: &ListXattr) -> Result<Done, Fail> {
    let inode = ctx.inode(m.ino)?;
    let mut data = Vec::new();
    if inode.xattr_bytes > 0 {
        let (from, until) = key::range_of_ino(Table::Xattr, m.ino);
        ctx.txn.scan(&from, &until, &mut |key, _| {
            data.extend_from_slice(key.get(from.len()..).unwrap_or_default());
            data.push(0);
            true
        })?;
    }
    Ok(Done::reply(&DataReply { data: Bytes(data) }))
}

/// Removes one.
pub fn remove(ctx: &mut Ctx<'_>, m: &RemoveXattr) -> Result<Done, Fail> {
    let mut inode = ctx.inode(m.ino)?;
    check_name(&m.name.0)?;
    check_kind(&inode)?;
    let row = key::xattr(m.ino, &m.name.0);
    let old = ctx.txn.get(&row)?.ok_or(Errno::ENODATA)?;
    inode.xattr_bytes = inode.xattr_bytes.saturating_sub((m.name.0.len() + old.len()) as u32);
    inode.touch(ctx.scene.at);
    ctx.txn.delete(row);
    ctx.put_inode(m.ino, &inode);
    Ok(Done::reply(&Empty {}))
}

#[cfg(test)]
mod tests {
    use crate::testing::*;
    use alloc::format;
    use skep_types::codec::Bytes;
    use skep_types::{Errno, Ino, Kind, limits};
    use skep_wire::Status;
    use skep_wire::meta::{GetXattr, ListXattr, RemoveXattr, SetXattr};

    fn wish(ino: Ino, text: &str, len: usize) -> SetXattr {
        let (name, value) = (Bytes(text.as_bytes().to_vec()), Bytes(alloc::vec![7; len]));
        SetXattr { kill_sgid: false, ino, name, value, create: false, replace: false }
    }

    fn set(bed: &mut Bed, m: SetXattr) -> Result<(), Status> {
        bed.call(ME, m).map(|_| ())
    }

    /// Goal: attributes are set, read, listed, replaced and removed; only ctime moves; they go
    /// with their inode.
    #[test]
    fn lives_of_attributes() {
        let mut bed = Bed::new();
        let ino = bed.create(ME, Ino::ROOT, "f");
        let before = bed.attr(ino).unwrap();
        set(&mut bed, wish(ino, "user.a", 3)).unwrap();
        set(&mut bed, wish(ino, "user.b", limits::XATTR_VALUE_MAX)).unwrap();
        set(&mut bed, wish(ino, "user.a", 0)).unwrap();
        let after = bed.attr(ino).unwrap();
        assert!(after.ctime > before.ctime && after.mtime == before.mtime);
        bed.check();
        let get = |text: &str| GetXattr { ino, name: Bytes(text.as_bytes().to_vec()) };
        assert_eq!(bed.call(ME, get("user.a")).unwrap().data.0.len(), 0);
        assert_eq!(bed.call(ME, get("user.c")).err(), Some(errno(Errno::ENODATA)));
        assert_eq!(bed.call(ME, ListXattr { ino }).unwrap().data.0, b"user.a\0user.b\0");
        let remove = RemoveXattr { ino, name: Bytes(b"user.a".to_vec()) };
        bed.call(ME, remove.clone()).unwrap();
        assert_eq!(bed.call(ME, remove).err(), Some(errno(Errno::ENODATA)));
        bed.check();
        bed.unlink(ME, Ino::ROOT, "f").unwrap();
        bed.check();
    }

    /// Goal: flags, namespaces, kinds and limits are kept to.
    #[test]
    fn refusals() {
        let mut bed = Bed::new();
        let ino = bed.create(ME, Ino::ROOT, "f");
        let fifo = bed.call(ME, node(Ino::ROOT, "p", Kind::Fifo)).unwrap().ino;
        let long = format!("user.{}", "x".repeat(limits::XATTR_NAME_MAX));
        let create = |m: SetXattr| SetXattr { create: true, ..m };
        let replace = |m: SetXattr| SetXattr { replace: true, ..m };
        set(&mut bed, create(wish(ino, "user.a", 1))).unwrap();
        for (m, expected) in [
            (create(wish(ino, "user.a", 1)), Errno::EEXIST),
            (replace(wish(ino, "user.b", 1)), Errno::ENODATA),
            (wish(ino, "trusted.a", 1), Errno::EOPNOTSUPP),
            (wish(ino, "user.", 1), Errno::EINVAL),
            (wish(ino, &long, 1), Errno::ERANGE),
            (wish(ino, "user.b", limits::XATTR_VALUE_MAX + 1), Errno::E2BIG),
            (wish(fifo, "user.a", 1), Errno::EPERM),
        ] {
            assert_eq!(set(&mut bed, m.clone()), Err(errno(expected)), "{:?}", m.name);
        }
        for n in 0..15 {
            set(&mut bed, wish(ino, &format!("user.big{n}"), limits::XATTR_VALUE_MAX)).unwrap();
        }
        let last = wish(ino, "user.last", limits::XATTR_VALUE_MAX);
        assert_eq!(set(&mut bed, last), Err(errno(Errno::ENOSPC)));
        bed.check();
    }
}
