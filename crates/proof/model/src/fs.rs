//! The inode table: what every operation stands on.

use crate::content::{Content, PAGE};
use crate::lock::{Held, LockSpace};
use crate::setattr::SETID;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;
use skep_types::{Attr, Errno, Generation, Ino, Kind, Mode, Name, ProjectId, Timestamp};

/// An open file, by the number that its opener gave it. Several clients take disjoint ranges.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Handle(pub u32);

/// What a handle was opened for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Access {
    /// Reads are allowed.
    pub read: bool,
    /// Writes are allowed.
    pub write: bool,
    /// Every write goes to the end of the file (`O_APPEND`).
    pub append: bool,
}

/// Who calls, when, and which number a new inode takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call {
    /// The present.
    pub now: Timestamp,
    /// Number for the inode that the operation may create. It must never have been used before.
    pub ino: Ino,
    /// File-system user id of the caller.
    pub uid: u32,
    /// File-system group id of the caller.
    pub gid: u32,
}

/// The part of the attributes that every implementation must agree on: no inode number, no time, no
/// space in use, no size of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    pub kind: Kind,
    /// Permission bits.
    pub mode: Mode,
    /// Names; a directory: 2 + sub-directories; 0 once removed.
    pub nlink: u32,
    pub uid: u32,
    pub gid: u32,
    /// Device number of a device node, else 0.
    pub rdev: u32,
    /// Bytes; 0 for a directory.
    pub size: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Body {
    File(Content),
    Dir { parent: Ino, entries: BTreeMap<Name, Ino> },
    Symlink(Vec<u8>),
    Special { kind: Kind, rdev: u32 },
}

#[derive(Debug, Clone)]
pub(crate) struct Inode {
    pub mode: Mode,
    pub uid: u32,
    pub gid: u32,
    pub nlink: u32,
    pub opens: u32,
    pub atime: Timestamp,
    pub mtime: Timestamp,
    pub ctime: Timestamp,
    pub btime: Timestamp,
    pub change: u64,
    /// Made without a name, and may be given one (`O_TMPFILE`).
    pub linkable: bool,
    pub xattrs: BTreeMap<Vec<u8>, Arc<[u8]>>,
    pub body: Body,
}

impl Inode {
    pub fn new(body: Body, mode: Mode, uid: u32, gid: u32, now: Timestamp) -> Self {
        let nlink = if matches!(body, Body::Dir { .. }) { 2 } else { 1 };
        Self {
            mode,
            uid,
            gid,
            nlink,
            opens: 0,
            atime: now,
            mtime: now,
            ctime: now,
            btime: now,
            change: 1,
            linkable: false,
            xattrs: BTreeMap::new(),
            body,
        }
    }

    pub fn kind(&self) -> Kind {
        match &self.body {
            Body::File(_) => Kind::File,
            Body::Dir { .. } => Kind::Dir,
            Body::Symlink(_) => Kind::Symlink,
            Body::Special { kind, .. } => *kind,
        }
    }

    pub fn is_dir(&self) -> bool {
        matches!(self.body, Body::Dir { .. })
    }

    /// The content changed.
    pub fn content_moved(&mut self, now: Timestamp) {
        self.mtime = now;
        self.inode_moved(now);
    }

    /// Only the inode changed.
    pub fn inode_moved(&mut self, now: Timestamp) {
        self.ctime = now;
        self.change += 1;
    }

    pub fn size(&self) -> u64 {
        match &self.body {
            Body::File(content) => content.size(),
            Body::Symlink(target) => target.len() as u64,
            Body::Dir { .. } | Body::Special { .. } => 0,
        }
    }

    pub fn rdev(&self) -> u32 {
        if let Body::Special { rdev, .. } = self.body { rdev } else { 0 }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OpenFile {
    pub ino: Ino,
    pub access: Access,
}

/// A file system in memory. A clone shares what it can, so histories can be branched and replayed.
#[derive(Debug, Clone)]
pub struct Fs {
    pub(crate) inodes: BTreeMap<Ino, Arc<Inode>>,
    pub(crate) handles: BTreeMap<Handle, OpenFile>,
    pub(crate) locks: BTreeMap<(Ino, LockSpace), Vec<Held>>,
    /// Every number ever given, so that a reuse is seen.
    pub(crate) used: Arc<BTreeSet<Ino>>,
}

impl Fs {
    /// An empty root directory, number [`Ino::ROOT`].
    pub fn new(mode: Mode, uid: u32, gid: u32, now: Timestamp) -> Self {
        let body = Body::Dir { parent: Ino::ROOT, entries: BTreeMap::new() };
        Self {
            inodes: BTreeMap::from([(Ino::ROOT, Arc::new(Inode::new(body, mode, uid, gid, now)))]),
            handles: BTreeMap::new(),
            locks: BTreeMap::new(),
            used: Arc::new(BTreeSet::from([Ino::ROOT])),
        }
    }

    /// The inode that `name` leads to. ENOTDIR, ENOENT.
    pub fn lookup(&self, dir: Ino, name: &Name) -> Result<Ino, Errno> {
        self.entries(dir)?.get(name).copied().ok_or(Errno::ENOENT)
    }

    /// The directory above (the root is its own).
    pub fn parent(&self, dir: Ino) -> Result<Ino, Errno> {
        match &self.inode(dir)?.body {
            Body::Dir { parent, .. } => Ok(*parent),
            _ => Err(Errno::ENOTDIR),
        }
    }

    /// All attributes, as [`Call::now`] and [`Call::ino`] made them. Space in use counts the pages
    /// that are kept: not for comparison.
    pub fn getattr(&self, ino: Ino) -> Result<Attr, Errno> {
        let inode = self.inode(ino)?;
        let blocks = match &inode.body {
            Body::File(content) => content.pages() * (PAGE as u64 / 512),
            _ => 0,
        };
        Ok(Attr {
            ino,
            kind: inode.kind(),
            mode: inode.mode,
            nlink: inode.nlink,
            uid: inode.uid,
            gid: inode.gid,
            project: ProjectId(0),
            rdev: inode.rdev(),
            size: inode.size(),
            blocks,
            atime: inode.atime,
            mtime: inode.mtime,
            ctime: inode.ctime,
            btime: inode.btime,
            change: inode.change,
            generation: Generation(0),
            cuts: 0,
            time_sets: 0,
            flags: 0,
        })
    }

    /// The attributes that can be compared between implementations.
    pub fn stat(&self, ino: Ino) -> Result<Stat, Errno> {
        let inode = self.inode(ino)?;
        Ok(Stat {
            kind: inode.kind(),
            mode: inode.mode,
            nlink: inode.nlink,
            uid: inode.uid,
            gid: inode.gid,
            rdev: inode.rdev(),
            size: inode.size(),
        })
    }

    /// Names in a directory, without `.` and `..`.
    pub fn readdir(&self, dir: Ino) -> Result<BTreeMap<Name, Kind>, Errno> {
        let entries = self.entries(dir)?;
        entries.iter().map(|(name, ino)| Ok((name.clone(), self.inode(*ino)?.kind()))).collect()
    }

    /// The target of a symbolic link. EINVAL for anything else.
    pub fn readlink(&self, ino: Ino) -> Result<Vec<u8>, Errno> {
        match &self.inode(ino)?.body {
            Body::Symlink(target) => Ok(target.clone()),
            _ => Err(Errno::EINVAL),
        }
    }

    /// Every inode that exists: those with names, and those kept by an open handle.
    pub fn inodes(&self) -> impl Iterator<Item = Ino> + '_ {
        self.inodes.keys().copied()
    }

    /// Every name below the root, as the names that lead there, directories before their content.
    pub fn walk(&self) -> Vec<(Vec<Name>, Ino)> {
        let mut found: Vec<(Vec<Name>, Ino)> = Vec::new();
        let mut next = 0;
        let mut dir = (Vec::new(), Ino::ROOT);
        loop {
            if let Ok(entries) = self.entries(dir.1) {
                for (name, ino) in entries {
                    let mut path = dir.0.clone();
                    path.push(name.clone());
                    found.push((path, *ino));
                }
            }
            let Some(following) = found.get(next) else { return found };
            dir = following.clone();
            next += 1;
        }
    }

    pub(crate) fn inode(&self, ino: Ino) -> Result<&Inode, Errno> {
        self.inodes.get(&ino).map(|inode| &**inode).ok_or(Errno::ESTALE)
    }

    pub(crate) fn inode_mut(&mut self, ino: Ino) -> Result<&mut Inode, Errno> {
        self.inodes.get_mut(&ino).map(Arc::make_mut).ok_or(Errno::ESTALE)
    }

    /// In a directory that is gone there is no name.
    pub(crate) fn entries(&self, dir: Ino) -> Result<&BTreeMap<Name, Ino>, Errno> {
        match &self.inode(dir).map_err(|_| Errno::ENOENT)?.body {
            Body::Dir { entries, .. } => Ok(entries),
            _ => Err(Errno::ENOTDIR),
        }
    }

    pub(crate) fn entries_mut(&mut self, dir: Ino) -> Result<&mut BTreeMap<Name, Ino>, Errno> {
        match &mut self.inode_mut(dir).map_err(|_| Errno::ENOENT)?.body {
            Body::Dir { entries, .. } => Ok(entries),
            _ => Err(Errno::ENOTDIR),
        }
    }

    /// The bytes of a regular file; EISDIR for a directory, EINVAL for the rest.
    pub fn content(&self, ino: Ino) -> Result<&Content, Errno> {
        match &self.inode(ino)?.body {
            Body::File(content) => Ok(content),
            Body::Dir { .. } => Err(Errno::EISDIR),
            Body::Symlink(_) | Body::Special { .. } => Err(Errno::EINVAL),
        }
    }

    pub(crate) fn content_mut(&mut self, ino: Ino) -> Result<&mut Content, Errno> {
        self.content(ino)?;
        match &mut self.inode_mut(ino)?.body {
            Body::File(content) => Ok(content),
            _ => Err(Errno::EINVAL),
        }
    }

    /// The file has the content that it has in `other`, and the set-id bits, which writing clears; nothing else changes.
    pub fn take_content(&mut self, ino: Ino, other: &Self) {
        let (Ok(content), Ok(from)) = (other.content(ino), other.inode(ino)) else { return };
        let (content, bits) = (content.clone(), from.mode & SETID);
        let Ok(inode) = self.inode_mut(ino) else { return };
        (inode.mode, inode.body) = (inode.mode & !SETID | bits, Body::File(content));
    }

    /// Forgets an inode that has neither name nor handle.
    pub(crate) fn reap(&mut self, ino: Ino) {
        if self.inodes.get(&ino).is_some_and(|inode| inode.nlink == 0 && inode.opens == 0) {
            self.inodes.remove(&ino);
        }
    }
}
