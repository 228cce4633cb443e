//! `GetXattr`, `SetXattr`, `ListXattr`, `RemoveXattr`: extended attributes, ACLs among them.

use crate::acl::{self, Acl};
use crate::ctx::{Ctx, Done};
use crate::fail::{Fail, corrupt};
use crate::key::{self, Table};
use crate::row::Inode;
use crate::row::inode::{HAS_ACCESS_ACL, HAS_CAPABILITY, HAS_DEFAULT_ACL};
use alloc::vec::Vec;
use skep_types::codec::Bytes;
use skep_types::limits::{XATTR_NAME_MAX, XATTR_TOTAL_MAX, XATTR_VALUE_MAX};
use skep_types::{DecodeError, Errno, Ino, Kind, Mode};
use skep_wire::Empty;
use skep_wire::meta::{DataReply, GetXattr, ListXattr, RemoveXattr, SetXattr};

/// Namespace of users, for files and directories only.
const USER: &[u8] = b"user.";
/// Namespaces that the kernel lets privileged programs write to.
const TRUSTED: &[u8] = b"trusted.";
const SECURITY: &[u8] = b"security.";
/// Privileges that a program file gives; a change of its content takes it away.
const CAPABILITY: &[u8] = b"security.capability";

fn check_name(name: &[u8]) -> Result<(), Fail> {
    if name.len() > XATTR_NAME_MAX {
        return Err(Errno::ERANGE.into());
    }
    if name == acl::ACCESS || name == acl::DEFAULT {
        return Ok(());
    }
    let Some(space) = [USER, TRUSTED, SECURITY].into_iter().find(|space| name.starts_with(space)) else {
        return Err(Errno::EOPNOTSUPP.into());
    };
    if name.len() == space.len() || name.contains(&0) {
        return Err(Errno::EINVAL.into());
    }
    Ok(())
}

fn check_kind(inode: &Inode, name: &[u8]) -> Result<(), Fail> {
    let holds = matches!(inode.kind, Kind::File | Kind::Dir);
    if name.starts_with(USER) && !holds {
        return Err(Errno::EPERM.into());
    }
    if name == acl::ACCESS && inode.kind == Kind::Symlink {
        return Err(Errno::EOPNOTSUPP.into());
    }
    if name == acl::DEFAULT && !inode.is_dir() {
        return Err(Errno::EACCES.into());
    }
    Ok(())
}

/// What the inode row remembers of an attribute, so that nobody has to look for it.
pub fn flag(name: &[u8]) -> u32 {
    match name {
        acl::ACCESS => HAS_ACCESS_ACL,
        acl::DEFAULT => HAS_DEFAULT_ACL,
        CAPABILITY => HAS_CAPABILITY,
        _ => 0,
    }
}

/// Writes an attribute and counts it; the inode row is written by the caller.
pub fn put(ctx: &mut Ctx<'_>, ino: Ino, inode: &mut Inode, name: &[u8], value: Vec<u8>) -> Result<(), Fail> {
    let row = key::xattr(ino, name);
    let old = if inode.xattr_bytes == 0 { None } else { ctx.txn.get(&row)? };
    let freed = old.map_or(0, |value| name.len() + value.len());
    let total = (inode.xattr_bytes as usize).saturating_sub(freed) + name.len() + value.len();
    if total > XATTR_TOTAL_MAX {
        return Err(Errno::ENOSPC.into());
    }
    inode.xattr_bytes = total as u32;
    inode.flags |= flag(name);
    ctx.txn.put(row, value);
    Ok(())
}

/// Takes an attribute away, if it is there; the inode row is written by the caller.
pub fn take(ctx: &mut Ctx<'_>, ino: Ino, inode: &mut Inode, name: &[u8]) -> Result<bool, Fail> {
    let row = key::xattr(ino, name);
    let old = if inode.xattr_bytes == 0 { None } else { ctx.txn.get(&row)? };
    let Some(old) = old else { return Ok(false) };
    inode.xattr_bytes = inode.xattr_bytes.saturating_sub((name.len() + old.len()) as u32);
    inode.flags &= !flag(name);
    ctx.txn.delete(row);
    Ok(true)
}

/// Content or owner of a file change: privileges that the file gives to whoever runs it go. suid and
/// sgid go when an ordinary user does it.
pub fn kill_privileges(ctx: &mut Ctx<'_>, ino: Ino, inode: &mut Inode, kill: bool) -> Result<bool, Fail> {
    let mut changed = kill && inode.kill_suidgid();
    if inode.flags & HAS_CAPABILITY != 0 {
        changed |= take(ctx, ino, inode, CAPABILITY)?;
    }
    Ok(changed)
}

/// The ACL of an inode whose flags say that there is one.
pub fn acl_of(ctx: &Ctx<'_>, ino: Ino, inode: &Inode, name: &[u8]) -> Result<Option<Acl>, Fail> {
    if inode.flags & flag(name) == 0 {
        return Ok(None);
    }
    let value = ctx.txn.get(&key::xattr(ino, name))?;
    let parse = |value: Vec<u8>| Acl::parse(&value).map_err(|_| corrupt("ACL", DecodeError::Invalid("ACL")));
    Ok(value.map(parse).transpose()?.flatten())
}

/// The permission bits of an inode become those of `mode`, in its ACL too.
pub fn chmod(ctx: &mut Ctx<'_>, ino: Ino, inode: &mut Inode, mode: Mode) -> Result<(), Fail> {
    inode.mode = mode & 0o7777;
    if let Some(mut acl) = acl_of(ctx, ino, inode, acl::ACCESS)? {
        acl.chmod(mode);
        put(ctx, ino, inode, acl::ACCESS, acl.to_value())?;
    }
    Ok(())
}

/// The inode, to show extended attributes of it. Who holds a file keeps none of them to itself, but for what chmod does to an
/// ACL, and writing to a capability.
fn shown_inode(ctx: &Ctx<'_>, ino: Ino) -> Result<Inode, Fail> {
    let inode = ctx.told_inode(ino)?;
    if inode.flags & (HAS_ACCESS_ACL | HAS_CAPABILITY) == 0 { Ok(inode) } else { ctx.inode(ino) }
}

/// Reads one.
pub fn get(ctx: &mut Ctx<'_>, m: &GetXattr) -> Result<Done, Fail> {
    let inode = shown_inode(ctx, m.ino)?;
    check_name(&m.name.0)?;
    if inode.xattr_bytes == 0 {
        return Err(Errno::ENODATA.into());
    }
    let data = ctx.txn.get(&key::xattr(m.ino, &m.name.0))?.ok_or(Errno::ENODATA)?;
    Ok(Done::reply(&DataReply { data: Bytes(data) }))
}

pub fn set(ctx: &mut Ctx<'_>, m: &SetXattr) -> Result<Done, Fail> {
    let mut inode = ctx.inode(m.ino)?;
    check_name(&m.name.0)?;
    check_kind(&inode, &m.name.0)?;
    if m.value.0.len() > XATTR_VALUE_MAX {
        return Err(Errno::E2BIG.into());
    }
    if m.create || m.replace {
        let there = inode.xattr_bytes > 0 && ctx.txn.get(&key::xattr(m.ino, &m.name.0))?.is_some();
        if m.create && there {
            return Err(Errno::EEXIST.into());
        }
        if m.replace && !there {
            return Err(Errno::ENODATA.into());
        }
    }
    if flag(&m.name.0) & (HAS_ACCESS_ACL | HAS_DEFAULT_ACL) == 0 {
        put(ctx, m.ino, &mut inode, &m.name.0, m.value.0.clone())?;
    } else {
        set_acl(ctx, m, &mut inode)?;
    }
    inode.touch(ctx.scene.at);
    ctx.put_inode(m.ino, &inode);
    Ok(Done::reply(&Empty {}))
}

/// An access ACL sets the mode too, and is not kept when the mode says all of it.
fn set_acl(ctx: &mut Ctx<'_>, m: &SetXattr, inode: &mut Inode) -> Result<(), Fail> {
    let acl = Acl::parse(&m.value.0)?;
    let is_access = m.name.0 == acl::ACCESS;
    if is_access && let Some(acl) = &acl {
        inode.mode = inode.mode & !0o777 | acl.mode();
        if m.kill_sgid {
            inode.mode &= !0o2000;
        }
    }
    match acl.filter(|acl| !(is_access && acl.is_minimal())) {
        Some(acl) => put(ctx, m.ino, inode, &m.name.0, acl.to_value()),
        None => take(ctx, m.ino, inode, &m.name.0).map(|_| ()),
    }
}

/// Lists the names, each followed by NUL.
pub fn list(ctx: &mut Ctx<'_>, m: &ListXattr) -> Result<Done, Fail> {
    let inode = shown_inode(ctx, m.ino)?;
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

pub fn remove(ctx: &mut Ctx<'_>, m: &RemoveXattr) -> Result<Done, Fail> {
    let mut inode = ctx.inode(m.ino)?;
    check_name(&m.name.0)?;
    check_kind(&inode, &m.name.0)?;
    if !take(ctx, m.ino, &mut inode, &m.name.0)? {
        return Err(Errno::ENODATA.into());
    }
    inode.touch(ctx.scene.at);
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
            (wish(ino, "system.a", 1), Errno::EOPNOTSUPP),
            (wish(ino, "trusted.", 1), Errno::EINVAL),
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
