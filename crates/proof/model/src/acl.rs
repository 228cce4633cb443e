//! POSIX access control lists, in the form in which Linux keeps them as extended attributes.

use crate::fs::{Fs, Inode};
use alloc::sync::Arc;
use alloc::vec::Vec;
use skep_types::{Errno, Ino, Kind, Mode, Timestamp};

const ACCESS: &[u8] = b"system.posix_acl_access";
const DEFAULT: &[u8] = b"system.posix_acl_default";
const VERSION: u32 = 2;
const NO_ID: u32 = u32::MAX;
const USER_OBJ: u16 = 1;
const USER: u16 = 2;
const GROUP_OBJ: u16 = 4;
const GROUP: u16 = 8;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    tag: u16,
    perm: u16,
    id: u32,
}

type Acl = Vec<Entry>;

/// Values that histories set, by number: the first are in order, the others are not. None lets a group or others
/// write, as none of the modes does (see the generator).
pub const ACLS: u8 = 11;

/// Name of the attribute of the access or the default list.
pub(crate) fn acl_name(default: bool) -> &'static [u8] {
    if default { DEFAULT } else { ACCESS }
}

/// The value number `index`.
pub fn acl_value(index: u8) -> Vec<u8> {
    let entry = |tag, perm, id| Entry { tag, perm, id };
    let (u, g, o) =
        (|p| entry(USER_OBJ, p, NO_ID), |p| entry(GROUP_OBJ, p, NO_ID), |p| entry(OTHER, p, NO_ID));
    let m = |p| entry(MASK, p, NO_ID);
    let acl: Acl = match index {
        0 => [u(7), g(5), o(4)].into(),
        1 => [u(6), entry(USER, 6, 1000), g(4), m(4), o(0)].into(),
        2 => [u(7), g(7), entry(GROUP, 1, 1001), m(5), o(5)].into(),
        3 => {
            [u(4), entry(USER, 7, 1000), entry(USER, 2, 1001), g(0), entry(GROUP, 4, 1000), m(5), o(1)].into()
        }
        4 => [u(0), g(0), m(0), o(0)].into(),
        5 => Vec::new(),
        6 => [u(6), entry(USER, 6, 1000), g(4), o(0)].into(),
        7 => [u(6), g(4)].into(),
        _ => [g(4), u(6), o(0)].into(),
    };
    let mut bytes = to_bytes(&acl);
    match index {
        9 => bytes[0] = 3,
        10 => bytes.truncate(17),
        _ => {}
    }
    bytes
}

fn to_bytes(acl: &[Entry]) -> Vec<u8> {
    let mut bytes = VERSION.to_le_bytes().to_vec();
    for entry in acl {
        bytes.extend(entry.tag.to_le_bytes());
        bytes.extend(entry.perm.to_le_bytes());
        bytes.extend(entry.id.to_le_bytes());
    }
    bytes
}

/// `None`: no entries, which takes the list away.
fn from_bytes(bytes: &[u8]) -> Result<Option<Acl>, Errno> {
    let (version, rest) = bytes.split_first_chunk::<4>().ok_or(Errno::EINVAL)?;
    if u32::from_le_bytes(*version) != VERSION {
        return Err(Errno::EOPNOTSUPP);
    }
    let (chunks, left) = rest.as_chunks::<8>();
    if !left.is_empty() {
        return Err(Errno::EINVAL);
    }
    let entry = |c: &[u8; 8]| {
        let (tag, perm) = (u16::from_le_bytes([c[0], c[1]]), u16::from_le_bytes([c[2], c[3]]));
        let id = u32::from_le_bytes([c[4], c[5], c[6], c[7]]);
        Entry { tag, perm, id: if matches!(tag, USER | GROUP) { id } else { NO_ID } }
    };
    let acl: Acl = chunks.iter().map(entry).collect();
    Ok((!acl.is_empty()).then_some(acl))
}

fn check(acl: &[Entry]) -> Result<(), Errno> {
    let order = [USER_OBJ, USER, GROUP_OBJ, GROUP, MASK, OTHER];
    let place = |entry: &Entry| order.iter().position(|tag| *tag == entry.tag);
    let places: Option<Vec<usize>> = acl.iter().map(place).collect();
    let places = places.ok_or(Errno::EINVAL)?;
    let count = |tag| acl.iter().filter(|entry| entry.tag == tag).count();
    let named = count(USER) + count(GROUP) > 0;
    let complete = [USER_OBJ, GROUP_OBJ, OTHER].iter().all(|tag| count(*tag) == 1);
    let masked = if named { count(MASK) == 1 } else { count(MASK) <= 1 };
    let ids = acl.iter().all(|entry| !matches!(entry.tag, USER | GROUP) || entry.id != NO_ID);
    let sound = places.is_sorted() && complete && masked && ids && acl.iter().all(|entry| entry.perm <= 7);
    if sound { Ok(()) } else { Err(Errno::EINVAL) }
}

/// Is there more in it than a mode can say?
fn is_extended(acl: &[Entry]) -> bool {
    acl.iter().any(|entry| matches!(entry.tag, USER | GROUP | MASK))
}

/// The entry that the group bits of the mode stand for.
fn group_class(acl: &[Entry]) -> u16 {
    if acl.iter().any(|entry| entry.tag == MASK) { MASK } else { GROUP_OBJ }
}

fn perm(acl: &[Entry], tag: u16) -> Mode {
    acl.iter().find(|entry| entry.tag == tag).map_or(0, |entry| Mode::from(entry.perm))
}

fn mode_of(acl: &[Entry]) -> Mode {
    perm(acl, USER_OBJ) << 6 | perm(acl, group_class(acl)) << 3 | perm(acl, OTHER)
}

fn set_perms(acl: &mut [Entry], mode: Mode) {
    let class = group_class(acl);
    for entry in acl {
        match entry.tag {
            USER_OBJ => entry.perm = (mode >> 6 & 7) as u16,
            OTHER => entry.perm = (mode & 7) as u16,
            tag if tag == class => entry.perm = (mode >> 3 & 7) as u16,
            _ => {}
        }
    }
}

fn stored(inode: &Inode, name: &[u8]) -> Option<Acl> {
    inode.xattrs.get(name).and_then(|bytes| from_bytes(bytes).ok().flatten())
}

/// A new inode of mode `mode` in `dir`: a default list there replaces the umask.
pub(crate) fn inherit(dir: &Inode, new: &mut Inode) {
    let Some(default) = stored(dir, DEFAULT) else { return };
    if new.kind() == Kind::Symlink {
        return;
    }
    let mut acl = default.clone();
    set_perms(&mut acl, mode_of(&default) & new.mode);
    new.mode = new.mode & !0o777 | mode_of(&acl);
    if is_extended(&acl) {
        new.xattrs.insert(ACCESS.into(), Arc::from(to_bytes(&acl)));
    }
    if new.is_dir() {
        new.xattrs.insert(DEFAULT.into(), Arc::from(to_bytes(&default)));
    }
}

/// The mode was set: the list follows.
pub(crate) fn follow_mode(inode: &mut Inode) {
    if let Some(mut acl) = stored(inode, ACCESS) {
        set_perms(&mut acl, inode.mode);
        inode.xattrs.insert(ACCESS.into(), Arc::from(to_bytes(&acl)));
    }
}

impl Fs {
    /// Sets the access or the default list; a list of no entries takes it away. EINVAL or EOPNOTSUPP (version) for
    /// a bad value, EOPNOTSUPP on a symbolic link, EACCES for a default list on anything but a directory.
    pub fn set_acl(&mut self, ino: Ino, default: bool, value: &[u8], now: Timestamp) -> Result<(), Errno> {
        let acl = from_bytes(value)?;
        let kind = self.inode(ino)?.kind();
        if kind == Kind::Symlink {
            return Err(Errno::EOPNOTSUPP);
        }
        if default && kind != Kind::Dir {
            return if acl.is_some() { Err(Errno::EACCES) } else { Ok(()) };
        }
        if let Some(acl) = &acl {
            check(acl)?;
        }
        let inode = self.inode_mut(ino)?;
        if let (Some(acl), false) = (&acl, default) {
            inode.mode = inode.mode & !0o777 | mode_of(acl);
        }
        match acl.filter(|acl| default || is_extended(acl)) {
            Some(acl) => inode.xattrs.insert(acl_name(default).into(), Arc::from(to_bytes(&acl))),
            None => inode.xattrs.remove(acl_name(default)),
        };
        inode.inode_moved(now);
        Ok(())
    }

    /// The access or the default list. ENODATA when there is none, or the mode says it all.
    pub fn get_acl(&self, ino: Ino, default: bool) -> Result<Vec<u8>, Errno> {
        let inode = self.inode(ino)?;
        if inode.kind() == Kind::Symlink {
            return Err(Errno::EOPNOTSUPP);
        }
        inode.xattrs.get(acl_name(default)).map(|value| value.to_vec()).ok_or(Errno::ENODATA)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::namespace::tests::{call, name, root, time};
    use skep_types::SetAttr;

    /// Goal: numbers of values are what they say: five good ones, one that takes away, the rest refused.
    #[test]
    fn values() {
        let mut fs = root();
        for index in 0..ACLS {
            let told = fs.set_acl(Ino::ROOT, true, &acl_value(index), time(1));
            let expected = match index {
                0..=5 => Ok(()),
                9 => Err(Errno::EOPNOTSUPP),
                _ => Err(Errno::EINVAL),
            };
            assert_eq!(told, expected, "value {index}");
        }
        assert_eq!(fs.get_acl(Ino::ROOT, true), Err(Errno::ENODATA), "the sixth took it away");
    }

    /// Goal: the example of POSIX.1e: mask and mode are one, a default list is inherited and cut by the mode.
    #[test]
    fn masks_and_inheritance() {
        let mut fs = root();
        fs.set_acl(Ino::ROOT, true, &acl_value(2), time(1)).unwrap();
        let file = fs.create(Ino::ROOT, &name("f"), 0o640, call(2)).unwrap();
        assert_eq!(fs.stat(file).unwrap().mode, 0o640);
        let acl = from_bytes(&fs.get_acl(file, false).unwrap()).unwrap().unwrap();
        assert_eq!((perm(&acl, GROUP_OBJ), perm(&acl, MASK), perm(&acl, OTHER)), (7, 4, 0));
        let set = SetAttr { mode: Some(0o711), ..SetAttr::default() };
        fs.setattr(file, &set, time(2)).unwrap();
        let acl = from_bytes(&fs.get_acl(file, false).unwrap()).unwrap().unwrap();
        assert_eq!((perm(&acl, GROUP_OBJ), perm(&acl, MASK), perm(&acl, OTHER)), (7, 1, 1));
        fs.set_acl(file, false, &acl_value(0), time(3)).unwrap();
        assert_eq!((fs.stat(file).unwrap().mode, fs.get_acl(file, false)), (0o754, Err(Errno::ENODATA)));
        let dir = fs.mkdir(Ino::ROOT, &name("d"), 0o777, call(3)).unwrap();
        assert_eq!(fs.get_acl(dir, true), fs.get_acl(Ino::ROOT, true));
        assert_eq!(fs.set_acl(file, true, &acl_value(0), time(4)), Err(Errno::EACCES));
    }
}
