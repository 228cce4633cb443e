//! Names come and go: create, mkdir, mknod, symlink, link, unlink, rmdir.

use crate::acl::inherit;
use crate::content::Content;
use crate::fs::{Body, Call, Fs, Inode};
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use skep_types::limits::{LINKS_MAX, SYMLINK_MAX};
use skep_types::{Errno, Ino, Kind, Mode, Name, Timestamp};

const S_ISGID: Mode = 0o2000;
/// What `mkdir` takes from the mode that it is given (Linux drops suid and sgid).
const MKDIR_BITS: Mode = 0o1777;
const MODE_BITS: Mode = 0o7777;

impl Fs {
    /// An empty regular file. EEXIST also for a symbolic link: opening what is there is the caller's
    /// choice.
    pub fn create(&mut self, dir: Ino, name: &Name, mode: Mode, call: Call) -> Result<Ino, Errno> {
        self.add(dir, name, Body::File(Content::default()), mode & MODE_BITS, call)
    }

    /// An empty directory. Suid and sgid of `mode` are dropped; sgid is inherited.
    pub fn mkdir(&mut self, dir: Ino, name: &Name, mode: Mode, call: Call) -> Result<Ino, Errno> {
        let body = Body::Dir { parent: dir, entries: BTreeMap::new() };
        self.add(dir, name, body, mode & MKDIR_BITS, call)
    }

    /// Any inode but a directory (EPERM) or a symbolic link (EINVAL). `rdev` counts for devices only.
    pub fn mknod(
        &mut self,
        dir: Ino,
        name: &Name,
        kind: Kind,
        mode: Mode,
        rdev: u32,
        call: Call,
    ) -> Result<Ino, Errno> {
        let body = match kind {
            Kind::Dir => return Err(Errno::EPERM),
            Kind::Symlink => return Err(Errno::EINVAL),
            Kind::File => Body::File(Content::default()),
            Kind::CharDev | Kind::BlockDev => Body::Special { kind, rdev },
            Kind::Fifo | Kind::Socket => Body::Special { kind, rdev: 0 },
        };
        self.add(dir, name, body, mode & MODE_BITS, call)
    }

    /// A symbolic link. ENOENT when `target` is empty, ENAMETOOLONG above [`SYMLINK_MAX`].
    pub fn symlink(&mut self, dir: Ino, name: &Name, target: &[u8], call: Call) -> Result<Ino, Errno> {
        if target.is_empty() {
            return Err(Errno::ENOENT);
        }
        if target.len() > SYMLINK_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        self.add(dir, name, Body::Symlink(target.into()), 0o777, call)
    }

    /// One more name for `ino`. EEXIST, then EPERM for a directory, ENOENT for one without a name,
    /// EMLINK at [`LINKS_MAX`].
    pub fn link(&mut self, ino: Ino, dir: Ino, name: &Name, now: Timestamp) -> Result<(), Errno> {
        let inode = self.inode(ino)?;
        let (is_dir, nlink, linkable) = (inode.is_dir(), inode.nlink, inode.linkable);
        self.vacant(dir, name)?;
        if is_dir {
            return Err(Errno::EPERM);
        }
        match nlink {
            0 if !linkable => return Err(Errno::ENOENT),
            LINKS_MAX.. => return Err(Errno::EMLINK),
            _ => {}
        }
        let inode = self.inode_mut(ino)?;
        inode.nlink += 1;
        inode.linkable = false;
        inode.inode_moved(now);
        self.entries_mut(dir)?.insert(name.clone(), ino);
        self.inode_mut(dir)?.content_moved(now);
        Ok(())
    }

    /// Takes a name away. EISDIR for a directory. Without names and handles the inode is gone.
    pub fn unlink(&mut self, dir: Ino, name: &Name, now: Timestamp) -> Result<(), Errno> {
        let ino = self.lookup(dir, name)?;
        if self.inode(ino)?.is_dir() {
            return Err(Errno::EISDIR);
        }
        self.entries_mut(dir)?.remove(name);
        self.inode_mut(dir)?.content_moved(now);
        self.drop_name(ino, now)
    }

    /// Takes an empty directory away. ENOTDIR, ENOTEMPTY.
    pub fn rmdir(&mut self, dir: Ino, name: &Name, now: Timestamp) -> Result<(), Errno> {
        let ino = self.lookup(dir, name)?;
        if !self.entries(ino)?.is_empty() {
            return Err(Errno::ENOTEMPTY);
        }
        self.entries_mut(dir)?.remove(name);
        let parent = self.inode_mut(dir)?;
        parent.nlink -= 1;
        parent.content_moved(now);
        self.drop_name(ino, now)
    }

    /// `dir` is a directory that still has a name, so that it can take entries.
    pub(crate) fn living_dir(&self, dir: Ino) -> Result<(), Errno> {
        self.entries(dir)?;
        if self.inode(dir)?.nlink == 0 { Err(Errno::ENOENT) } else { Ok(()) }
    }

    fn vacant(&self, dir: Ino, name: &Name) -> Result<(), Errno> {
        self.living_dir(dir)?;
        if self.entries(dir)?.contains_key(name) { Err(Errno::EEXIST) } else { Ok(()) }
    }

    /// A new inode with what it inherits from its directory. EIO when the number was used before: the caller broke
    /// the promise that numbers are never reused, and a history that does so must fail loudly.
    pub(crate) fn heir(&mut self, dir: Ino, body: Body, mode: Mode, call: Call) -> Result<Inode, Errno> {
        if !Arc::make_mut(&mut self.used).insert(call.ino) {
            return Err(Errno::EIO);
        }
        let mut inode = Inode::new(body, mode, call.uid, call.gid, call.now);
        let parent = self.inode(dir)?;
        if parent.mode & S_ISGID != 0 {
            inode.gid = parent.gid;
            if inode.is_dir() {
                inode.mode |= S_ISGID;
            }
        }
        inherit(parent, &mut inode);
        Ok(inode)
    }

    fn add(&mut self, dir: Ino, name: &Name, body: Body, mode: Mode, call: Call) -> Result<Ino, Errno> {
        self.vacant(dir, name)?;
        let inode = self.heir(dir, body, mode, call)?;
        let parent = self.inode_mut(dir)?;
        if inode.is_dir() {
            parent.nlink += 1;
        }
        parent.content_moved(call.now);
        self.entries_mut(dir)?.insert(name.clone(), call.ino);
        self.inodes.insert(call.ino, Arc::new(inode));
        Ok(call.ino)
    }

    /// An inode lost a name; a directory loses its only one.
    pub(crate) fn drop_name(&mut self, ino: Ino, now: Timestamp) -> Result<(), Errno> {
        let inode = self.inode_mut(ino)?;
        inode.nlink = if inode.is_dir() { 0 } else { inode.nlink - 1 };
        inode.inode_moved(now);
        self.reap(ino);
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod tests;
