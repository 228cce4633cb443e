//! The inodes of the empty file system.

use std::collections::{BTreeMap, HashMap};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::abi::ROOT;
use crate::{Attr, Errno, FileKind, Time};

/// One inode.
pub(super) struct Node {
    pub(super) attr: Attr,
    pub(super) generation: u64,
    pub(super) target: Box<[u8]>,
    pub(super) xattrs: BTreeMap<Box<[u8]>, Box<[u8]>>,
    /// Names of a directory.
    names: HashMap<Box<[u8]>, (u64, u64)>,
    /// The same names by cookie, in the order they were made: a listing goes on where it stopped.
    order: BTreeMap<u64, (Box<[u8]>, u64)>,
    next_cookie: u64,
    parent: u64,
    lookups: u64,
}

/// All inodes: a slab indexed by node id, entries of gone inodes re-used with another generation.
pub(super) struct Tree {
    nodes: Vec<Option<Node>>,
    free: Vec<u64>,
    generation: u64,
}

/// "." and ".." take the cookies below.
pub(super) const FIRST_COOKIE: u64 = 3;

pub(super) fn now() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time { seconds: i64::try_from(since.as_secs()).unwrap_or(i64::MAX), nanos: since.subsec_nanos() }
}

impl Node {
    pub(super) fn is_directory(&self) -> bool {
        FileKind::from_mode(self.attr.mode) == Some(FileKind::Directory)
    }

    pub(super) fn parent(&self) -> u64 {
        self.parent
    }

    pub(super) fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Names from `cookie` on: (the cookie that continues behind it, name, inode).
    pub(super) fn names_from(&self, cookie: u64) -> impl Iterator<Item = (u64, &[u8], u64)> {
        self.order.range(cookie.max(FIRST_COOKIE)..).map(|(cookie, (name, ino))| (cookie + 1, &**name, *ino))
    }

    fn insert(&mut self, name: &[u8], ino: u64) {
        let cookie = self.next_cookie;
        self.next_cookie += 1;
        self.names.insert(name.into(), (ino, cookie));
        self.order.insert(cookie, (name.into(), ino));
        self.changed();
    }

    fn remove(&mut self, name: &[u8]) {
        if let Some((_, cookie)) = self.names.remove(name) {
            self.order.remove(&cookie);
        }
        self.changed();
    }

    fn changed(&mut self) {
        self.attr.mtime = now();
        self.attr.ctime = self.attr.mtime;
    }
}

impl Tree {
    pub(super) fn new() -> Tree {
        let mut tree = Tree { nodes: vec![None], free: Vec::new(), generation: 0 };
        let root = tree.make(0o040_755, 0, 0, 0, ROOT);
        debug_assert_eq!(root, ROOT);
        tree
    }

    pub(super) fn node(&self, ino: u64) -> Result<&Node, Errno> {
        let index = usize::try_from(ino).map_err(|_| Errno::ESTALE)?;
        self.nodes.get(index).and_then(Option::as_ref).ok_or(Errno::ESTALE)
    }

    pub(super) fn node_mut(&mut self, ino: u64) -> Result<&mut Node, Errno> {
        let index = usize::try_from(ino).map_err(|_| Errno::ESTALE)?;
        self.nodes.get_mut(index).and_then(Option::as_mut).ok_or(Errno::ESTALE)
    }

    pub(super) fn directory(&self, ino: u64) -> Result<&Node, Errno> {
        let node = self.node(ino)?;
        if node.is_directory() { Ok(node) } else { Err(Errno::ENOTDIR) }
    }

    /// The inode of a name; "." and ".." are the directory and its parent.
    pub(super) fn find(&self, parent: u64, name: &[u8]) -> Result<Option<u64>, Errno> {
        let directory = self.directory(parent)?;
        Ok(match name {
            b"." => Some(parent),
            b".." => Some(directory.parent),
            _ => directory.names.get(name).map(|(ino, _)| *ino),
        })
    }

    /// Counts a lookup.
    pub(super) fn looked_up(&mut self, ino: u64) {
        if let Ok(node) = self.node_mut(ino) {
            node.lookups += 1;
        }
    }

    pub(super) fn forget(&mut self, ino: u64, lookups: u64) {
        if let Ok(node) = self.node_mut(ino) {
            node.lookups = node.lookups.saturating_sub(lookups);
            self.drop_if_gone(ino);
        }
    }

    fn make(&mut self, mode: u32, uid: u32, gid: u32, rdev: u32, parent: u64) -> u64 {
        let ino = self.free.pop().unwrap_or(self.nodes.len() as u64);
        let directory = FileKind::from_mode(mode) == Some(FileKind::Directory);
        let time = now();
        self.generation += 1;
        let attr = Attr {
            ino,
            atime: time,
            mtime: time,
            ctime: time,
            mode,
            nlink: if directory { 2 } else { 1 },
            uid,
            gid,
            rdev,
            blksize: 1 << 20,
            ..Attr::default()
        };
        let node = Node {
            attr,
            generation: self.generation,
            target: Box::default(),
            xattrs: BTreeMap::new(),
            names: HashMap::new(),
            order: BTreeMap::new(),
            next_cookie: FIRST_COOKIE,
            parent,
            lookups: 0,
        };
        match self.nodes.get_mut(ino as usize) {
            Some(place) => *place = Some(node),
            None => self.nodes.push(Some(node)),
        }
        ino
    }

    /// Makes an inode under a new name.
    pub(super) fn create(
        &mut self,
        parent: u64,
        name: &[u8],
        mode: u32,
        owner: (u32, u32),
        rdev: u32,
    ) -> Result<u64, Errno> {
        if self.find(parent, name)?.is_some() {
            return Err(Errno::EEXIST);
        }
        if self.directory(parent)?.attr.nlink == 0 {
            return Err(Errno::ENOENT);
        }
        let ino = self.make(mode, owner.0, owner.1, rdev, parent);
        let directory = FileKind::from_mode(mode) == Some(FileKind::Directory);
        let above = self.node_mut(parent)?;
        above.insert(name, ino);
        above.attr.nlink += u32::from(directory);
        Ok(ino)
    }

    pub(super) fn link(&mut self, ino: u64, parent: u64, name: &[u8]) -> Result<(), Errno> {
        if self.node(ino)?.is_directory() {
            return Err(Errno::EPERM);
        }
        if self.find(parent, name)?.is_some() {
            return Err(Errno::EEXIST);
        }
        self.node_mut(parent)?.insert(name, ino);
        let node = self.node_mut(ino)?;
        node.attr.nlink += 1;
        node.attr.ctime = now();
        Ok(())
    }

    /// Removes a name, of a directory or of anything else.
    pub(super) fn remove(&mut self, parent: u64, name: &[u8], directory: bool) -> Result<(), Errno> {
        let ino = self.find(parent, name)?.ok_or(Errno::ENOENT)?;
        let node = self.node(ino)?;
        match (directory, node.is_directory()) {
            (true, false) => return Err(Errno::ENOTDIR),
            (false, true) => return Err(Errno::EISDIR),
            (true, true) if !node.is_empty() => return Err(Errno::ENOTEMPTY),
            _ => {}
        }
        let above = self.node_mut(parent)?;
        above.remove(name);
        above.attr.nlink -= u32::from(directory);
        let node = self.node_mut(ino)?;
        node.attr.nlink = if directory { 0 } else { node.attr.nlink.saturating_sub(1) };
        node.attr.ctime = now();
        self.drop_if_gone(ino);
        Ok(())
    }

    /// An inode without names that the kernel does not know is gone.
    fn drop_if_gone(&mut self, ino: u64) {
        let gone = self.node(ino).is_ok_and(|node| node.attr.nlink == 0 && node.lookups == 0 && ino != ROOT);
        if gone && let Some(place) = self.nodes.get_mut(ino as usize) {
            *place = None;
            self.free.push(ino);
        }
    }

    /// Renames, replacing what is there unless `keep`.
    pub(super) fn rename(&mut self, from: (u64, &[u8]), to: (u64, &[u8]), keep: bool) -> Result<(), Errno> {
        let ino = self.find(from.0, from.1)?.ok_or(Errno::ENOENT)?;
        let directory = self.node(ino)?.is_directory();
        self.refuse_cycle(ino, to.0)?;
        match self.find(to.0, to.1)? {
            Some(old) if old == ino => return Ok(()),
            Some(_) if keep => return Err(Errno::EEXIST),
            Some(_) => self.remove(to.0, to.1, directory)?,
            None => {}
        }
        let above = self.node_mut(from.0)?;
        above.remove(from.1);
        above.attr.nlink -= u32::from(directory);
        let above = self.node_mut(to.0)?;
        above.insert(to.1, ino);
        above.attr.nlink += u32::from(directory);
        let node = self.node_mut(ino)?;
        node.attr.ctime = now();
        if directory {
            node.parent = to.0;
        }
        Ok(())
    }

    /// Swaps two names.
    pub(super) fn exchange(&mut self, from: (u64, &[u8]), to: (u64, &[u8])) -> Result<(), Errno> {
        let first = self.find(from.0, from.1)?.ok_or(Errno::ENOENT)?;
        let second = self.find(to.0, to.1)?.ok_or(Errno::ENOENT)?;
        self.refuse_cycle(first, to.0)?;
        self.refuse_cycle(second, from.0)?;
        for ((parent, name), old, new) in [(from, first, second), (to, second, first)] {
            let was = u32::from(self.node(old)?.is_directory());
            let becomes = u32::from(self.node(new)?.is_directory());
            let above = self.node_mut(parent)?;
            above.remove(name);
            above.insert(name, new);
            above.attr.nlink = above.attr.nlink + becomes - was;
            let node = self.node_mut(new)?;
            node.attr.ctime = now();
            if becomes == 1 {
                node.parent = parent;
            }
        }
        Ok(())
    }

    /// A directory cannot move below itself.
    fn refuse_cycle(&self, moved: u64, into: u64) -> Result<(), Errno> {
        let mut at = into;
        while at != ROOT {
            if at == moved {
                return Err(Errno::EINVAL);
            }
            at = self.node(at)?.parent;
        }
        Ok(())
    }

    /// Inodes in use.
    pub(super) fn count(&self) -> u64 {
        (self.nodes.len() - 1 - self.free.len()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::Tree;
    use crate::Errno;
    use crate::abi::ROOT;

    /// Goal: an unlinked inode stays while the kernel knows it and is re-used, with another generation, afterwards.
    #[test]
    fn life_of_an_inode() {
        let mut tree = Tree::new();
        let ino = tree.create(ROOT, b"a", 0o100_644, (0, 0), 0).unwrap();
        tree.looked_up(ino);
        let generation = tree.node(ino).unwrap().generation;
        tree.remove(ROOT, b"a", false).unwrap();
        assert_eq!(tree.node(ino).unwrap().attr.nlink, 0);
        tree.forget(ino, 1);
        assert!(tree.node(ino).is_err());
        assert_eq!(tree.create(ROOT, b"b", 0o100_644, (0, 0), 0), Ok(ino));
        assert_ne!(tree.node(ino).unwrap().generation, generation);
    }

    /// Goal: moves keep link counts and refuse cycles and full directories.
    #[test]
    fn moves() {
        let mut tree = Tree::new();
        let upper = tree.create(ROOT, b"upper", 0o040_755, (0, 0), 0).unwrap();
        let lower = tree.create(upper, b"lower", 0o040_755, (0, 0), 0).unwrap();
        assert_eq!(tree.rename((ROOT, b"upper"), (lower, b"x"), false), Err(Errno::EINVAL));
        tree.create(ROOT, b"file", 0o100_644, (0, 0), 0).unwrap();
        assert_eq!(tree.rename((ROOT, b"file"), (ROOT, b"upper"), false), Err(Errno::EISDIR));
        assert_eq!(tree.exchange((ROOT, b"file"), (upper, b"lower")), Ok(()));
        assert_eq!(tree.node(ROOT).unwrap().attr.nlink, 4);
        assert_eq!(tree.node(upper).unwrap().attr.nlink, 2);
        assert_eq!(tree.node(lower).unwrap().parent(), ROOT);
        assert_eq!(tree.remove(ROOT, b"upper", true), Err(Errno::ENOTEMPTY));
    }

    /// Goal: a listing continues behind the last cookie whatever was removed meanwhile.
    #[test]
    fn listing_is_stable() {
        let mut tree = Tree::new();
        for name in [b"a", b"b", b"c"] {
            tree.create(ROOT, name, 0o100_644, (0, 0), 0).unwrap();
        }
        let (next, name, _) = tree.node(ROOT).unwrap().names_from(0).next().unwrap();
        assert_eq!(name, b"a");
        tree.remove(ROOT, b"a", false).unwrap();
        tree.create(ROOT, b"a", 0o100_644, (0, 0), 0).unwrap();
        let rest: Vec<_> =
            tree.node(ROOT).unwrap().names_from(next).map(|(_, name, _)| name.to_vec()).collect();
        assert_eq!(rest, [b"b", b"c", b"a"]);
    }
}
