//! The operations of the empty file system.

use std::sync::{MutexGuard, PoisonError};

use super::tree::{FIRST_COOKIE, Tree, now};
use super::{EmptyWorker, O_APPEND};
use crate::{
    Attr, AttrReply, Context, CreateRequest, DirSink, Entry, Errno, FallocateRequest, FileKind, Filesystem,
    Forgets, NAME_MAX, OpenRequest, Opened, ReadRequest, SetAttr, SetTime, StatFs, Time, WriteRequest,
};

const RENAME_NOREPLACE: u32 = 1;
const RENAME_EXCHANGE: u32 = 2;
const FALLOC_KEEP_SIZE: u32 = 1;
const O_TRUNC: u32 = 0o1000;
/// Room that statfs pretends to have, in blocks of 4 KiB.
const PRETENDED_BLOCKS: u64 = 1 << 40;
/// Inodes that statfs pretends to have.
const PRETENDED_INODES: u64 = 1 << 32;
/// Largest size, as on Linux.
const SIZE_MAX: u64 = i64::MAX as u64;

impl EmptyWorker {
    fn tree(&self) -> MutexGuard<'_, Tree> {
        self.shared.tree.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The entry of an inode, counted as a lookup.
    fn entry(&self, tree: &mut Tree, ino: u64) -> Result<Entry, Errno> {
        tree.looked_up(ino);
        self.entry_uncounted(tree, ino)
    }

    fn entry_uncounted(&self, tree: &Tree, ino: u64) -> Result<Entry, Errno> {
        let (node, config) = (tree.node(ino)?, &self.shared.config);
        let (entry_valid, attr_valid) = (config.names, config.attributes);
        Ok(Entry { ino, generation: node.generation, attr: node.attr, entry_valid, attr_valid })
    }

    /// The entry of an inode that was just made, or got another name.
    fn made(&self, tree: &mut Tree, ino: u64) -> Result<Entry, Errno> {
        Ok(Entry { attr_valid: self.shared.config.attributes_changed, ..self.entry(tree, ino)? })
    }

    fn make(&self, cx: &Context<'_>, parent: u64, name: &[u8], mode: u32, rdev: u32) -> Result<Entry, Errno> {
        let mut tree = self.tree();
        let ino = tree.create(parent, name, mode & !(cx.umask & 0o777), (cx.uid, cx.gid), rdev)?;
        self.made(&mut tree, ino)
    }

    fn list(&self, ino: u64, offset: u64, sink: &mut DirSink<'_>, plus: bool) -> Result<(), Errno> {
        let mut tree = self.tree();
        let directory = tree.directory(ino)?;
        let mut counted = Vec::new();
        for (at, name, dot) in [(1, &b"."[..], ino), (2, b"..", directory.parent())] {
            if offset < at && sink.add(dot, at, FileKind::Directory, name).is_err() {
                return Ok(());
            }
        }
        for (next, name, child) in directory.names_from(offset.max(FIRST_COOKIE)) {
            let entry = self.entry_uncounted(&tree, child)?;
            if sink.add_plus(&entry, next, name).is_err() {
                break;
            }
            if plus {
                counted.push(child);
            }
        }
        counted.into_iter().for_each(|child| tree.looked_up(child));
        Ok(())
    }
}

fn resize(attr: &mut Attr, size: u64) {
    attr.size = size;
    attr.blocks = size.div_ceil(512);
    attr.mtime = now();
    attr.ctime = attr.mtime;
}

fn clear_suidgid(attr: &mut Attr) {
    attr.mode &= !0o4000;
    if attr.mode & 0o010 != 0 {
        attr.mode &= !0o2000;
    }
}

fn time_of(set: SetTime) -> Time {
    match set {
        SetTime::Now => now(),
        SetTime::At(time) => time,
    }
}

/// Copies a value for the xattr calls, which want the length whether it fits or not.
fn give(value: &[u8], out: &mut [u8]) -> usize {
    if let Some(place) = out.get_mut(..value.len()) {
        place.copy_from_slice(value);
    }
    value.len()
}

impl Filesystem for EmptyWorker {
    async fn lookup(&self, _cx: &Context<'_>, parent: u64, name: &[u8]) -> Result<Entry, Errno> {
        let mut tree = self.tree();
        match tree.find(parent, name)? {
            Some(ino) => self.entry(&mut tree, ino),
            None => Err(Errno::ENOENT),
        }
    }

    async fn flush(&self, _cx: &Context<'_>, _ino: u64, _fh: u64, _lock_owner: u64) -> Result<(), Errno> {
        if self.shared.config.flush { Ok(()) } else { Err(Errno::ENOSYS) }
    }

    async fn forget(&self, forgets: Forgets<'_>) {
        let mut tree = self.tree();
        forgets.for_each(|(ino, lookups)| tree.forget(ino, lookups));
    }

    async fn getattr(&self, _cx: &Context<'_>, ino: u64, _fh: Option<u64>) -> Result<AttrReply, Errno> {
        Ok(AttrReply { attr: self.tree().node(ino)?.attr, attr_valid: self.shared.config.attributes })
    }

    async fn setattr(&self, _cx: &Context<'_>, ino: u64, set: &SetAttr) -> Result<AttrReply, Errno> {
        let mut tree = self.tree();
        let node = tree.node_mut(ino)?;
        let attr = &mut node.attr;
        if let Some(size) = set.size {
            resize(attr, size);
        }
        if let Some(mode) = set.mode {
            attr.mode = attr.mode & !0o7777 | mode & 0o7777;
        }
        if set.kill_suidgid {
            clear_suidgid(attr);
        }
        attr.uid = set.uid.unwrap_or(attr.uid);
        attr.gid = set.gid.unwrap_or(attr.gid);
        attr.atime = set.atime.map_or(attr.atime, time_of);
        attr.mtime = set.mtime.map_or(attr.mtime, time_of);
        attr.ctime = now();
        Ok(AttrReply { attr: node.attr, attr_valid: self.shared.config.attributes_changed })
    }

    async fn readlink(&self, _cx: &Context<'_>, ino: u64, out: &mut [u8]) -> Result<usize, Errno> {
        Ok(give(&self.tree().node(ino)?.target, out))
    }

    async fn mknod(
        &self,
        cx: &Context<'_>,
        parent: u64,
        name: &[u8],
        mode: u32,
        rdev: u32,
    ) -> Result<Entry, Errno> {
        let kind = FileKind::from_mode(mode).ok_or(Errno::EINVAL)?;
        self.make(cx, parent, name, kind.mode_bits() | mode & 0o7777, rdev)
    }

    async fn mkdir(&self, cx: &Context<'_>, parent: u64, name: &[u8], mode: u32) -> Result<Entry, Errno> {
        self.make(cx, parent, name, FileKind::Directory.mode_bits() | mode & 0o7777, 0)
    }

    async fn unlink(&self, _cx: &Context<'_>, parent: u64, name: &[u8]) -> Result<(), Errno> {
        self.tree().remove(parent, name, false)
    }

    async fn rmdir(&self, _cx: &Context<'_>, parent: u64, name: &[u8]) -> Result<(), Errno> {
        self.tree().remove(parent, name, true)
    }

    async fn symlink(
        &self,
        cx: &Context<'_>,
        parent: u64,
        name: &[u8],
        target: &[u8],
    ) -> Result<Entry, Errno> {
        let mut tree = self.tree();
        let mode = FileKind::Symlink.mode_bits() | 0o777;
        let ino = tree.create(parent, name, mode, (cx.uid, cx.gid), 0)?;
        let node = tree.node_mut(ino)?;
        node.target = target.into();
        node.attr.size = target.len() as u64;
        self.made(&mut tree, ino)
    }

    async fn rename(
        &self,
        _cx: &Context<'_>,
        from: (u64, &[u8]),
        to: (u64, &[u8]),
        flags: u32,
    ) -> Result<(), Errno> {
        let mut tree = self.tree();
        match flags {
            RENAME_EXCHANGE => tree.exchange(from, to),
            0 | RENAME_NOREPLACE => tree.rename(from, to, flags == RENAME_NOREPLACE),
            _ => Err(Errno::EINVAL),
        }
    }

    async fn link(&self, _cx: &Context<'_>, ino: u64, parent: u64, name: &[u8]) -> Result<Entry, Errno> {
        let mut tree = self.tree();
        tree.link(ino, parent, name)?;
        self.made(&mut tree, ino)
    }

    async fn open(&self, _cx: &Context<'_>, ino: u64, request: &OpenRequest) -> Result<Opened, Errno> {
        let mut tree = self.tree();
        let node = tree.node_mut(ino)?;
        if request.flags & O_TRUNC != 0 {
            resize(&mut node.attr, 0);
            if request.kill_suidgid {
                clear_suidgid(&mut node.attr);
            }
        }
        let flags = self.shared.config.opened(node.attr.size, request.flags);
        Ok(Opened { fh: ino, flags })
    }

    async fn create(
        &self,
        cx: &Context<'_>,
        parent: u64,
        name: &[u8],
        request: &CreateRequest,
    ) -> Result<(Entry, Opened), Errno> {
        let entry = self.make(cx, parent, name, FileKind::Regular.mode_bits() | request.mode & 0o7777, 0)?;
        Ok((entry, Opened { fh: entry.ino, flags: self.shared.config.open_flags }))
    }

    async fn read(
        &self,
        _cx: &Context<'_>,
        ino: u64,
        request: &ReadRequest,
        out: &mut [u8],
    ) -> Result<usize, Errno> {
        let size = self.tree().node(ino)?.attr.size;
        let left = usize::try_from(size.saturating_sub(request.offset)).unwrap_or(usize::MAX);
        let length = left.min(out.len());
        out[..length].fill(0);
        Ok(length)
    }

    async fn write(
        &self,
        _cx: &Context<'_>,
        ino: u64,
        request: &WriteRequest,
        data: &[u8],
    ) -> Result<usize, Errno> {
        let mut tree = self.tree();
        let attr = &mut tree.node_mut(ino)?.attr;
        let append = request.flags & O_APPEND != 0 && !request.from_cache;
        let start = if append { attr.size } else { request.offset };
        let end = start.checked_add(data.len() as u64).filter(|end| *end <= SIZE_MAX).ok_or(Errno::EFBIG)?;
        let size = attr.size.max(end);
        resize(attr, size);
        if request.kill_suidgid {
            clear_suidgid(attr);
        }
        Ok(data.len())
    }

    async fn readdir(
        &self,
        _cx: &Context<'_>,
        ino: u64,
        _fh: u64,
        offset: u64,
        sink: &mut DirSink<'_>,
    ) -> Result<(), Errno> {
        self.list(ino, offset, sink, false)
    }

    async fn readdirplus(
        &self,
        _cx: &Context<'_>,
        ino: u64,
        _fh: u64,
        offset: u64,
        sink: &mut DirSink<'_>,
    ) -> Result<(), Errno> {
        self.list(ino, offset, sink, true)
    }

    async fn statfs(&self, _cx: &Context<'_>, _ino: u64) -> Result<StatFs, Errno> {
        let files = PRETENDED_INODES;
        Ok(StatFs {
            blocks: PRETENDED_BLOCKS,
            bfree: PRETENDED_BLOCKS,
            bavail: PRETENDED_BLOCKS,
            files,
            ffree: files.saturating_sub(self.tree().count()),
            bsize: 4096,
            namelen: NAME_MAX as u32,
            frsize: 4096,
        })
    }

    async fn setxattr(
        &self,
        _cx: &Context<'_>,
        ino: u64,
        name: &[u8],
        value: &[u8],
        flags: u32,
        _kill_sgid: bool,
    ) -> Result<(), Errno> {
        let mut tree = self.tree();
        let xattrs = &mut tree.node_mut(ino)?.xattrs;
        match (flags, xattrs.contains_key(name)) {
            (1, true) => return Err(Errno::EEXIST),
            (2, false) => return Err(Errno::ENODATA),
            _ => {}
        }
        xattrs.insert(name.into(), value.into());
        Ok(())
    }

    async fn getxattr(
        &self,
        _cx: &Context<'_>,
        ino: u64,
        name: &[u8],
        out: &mut [u8],
    ) -> Result<usize, Errno> {
        let tree = self.tree();
        Ok(give(tree.node(ino)?.xattrs.get(name).ok_or(Errno::ENODATA)?, out))
    }

    async fn listxattr(&self, _cx: &Context<'_>, ino: u64, out: &mut [u8]) -> Result<usize, Errno> {
        let tree = self.tree();
        let names = tree.node(ino)?.xattrs.keys();
        let list = names.fold(Vec::new(), |mut list, name| {
            list.extend_from_slice(name);
            list.push(0);
            list
        });
        Ok(give(&list, out))
    }

    async fn removexattr(&self, _cx: &Context<'_>, ino: u64, name: &[u8]) -> Result<(), Errno> {
        self.tree().node_mut(ino)?.xattrs.remove(name).map(drop).ok_or(Errno::ENODATA)
    }

    async fn fallocate(&self, _cx: &Context<'_>, ino: u64, request: &FallocateRequest) -> Result<(), Errno> {
        let mut tree = self.tree();
        let attr = &mut tree.node_mut(ino)?.attr;
        let end =
            request.offset.checked_add(request.length).filter(|end| *end <= SIZE_MAX).ok_or(Errno::EFBIG)?;
        if request.mode & FALLOC_KEEP_SIZE == 0 {
            let size = attr.size.max(end);
            resize(attr, size);
        }
        Ok(())
    }
}
