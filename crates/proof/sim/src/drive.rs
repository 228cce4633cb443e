//! Carries out an operation of a history through a client, as programs and the kernel above the
//! client would: path by path, name by name.

mod second;

use crate::port::{SharedRef, SimPort};
use skep_client::{Allocate, CreateHow, Lane, Listed, NewNode, OpenHow, RenameHow, WriteHow};
use skep_model::{At, Handle, Op, Outcome, Path, Stat, XattrHow, xattr_name};
use skep_types::limits::{SYMLINK_MAX, XATTR_NAME_MAX, XATTR_VALUE_MAX};
use skep_types::{Attr, Errno, Ino, Kind, Mode, Name, SetAttr};
use skep_wire::meta::OpenMode;
use std::collections::{BTreeMap, BTreeSet};

/// The client's lane type here.
pub type SimLane = Lane<SimPort, SharedRef>;

/// Bits that the kernel lets through in `mkdir`.
const MKDIR_BITS: Mode = 0o1777;
/// Suid and sgid.
const SETID: Mode = 0o6000;

/// An open file or directory.
#[derive(Debug, Clone, Copy)]
pub struct Open {
    /// The client's handle.
    pub handle: u64,
    /// On the server.
    pub ino: Ino,
    pub dir: bool,
    read: bool,
    write: bool,
    append: bool,
    /// It has no name, and may get one.
    linkable: bool,
}

/// A program below its directory.
pub struct Driver<'a> {
    /// Its way to the cluster.
    pub lane: &'a SimLane,
    pub root: Ino,
    /// What it has open.
    pub opens: &'a mut BTreeMap<Handle, Open>,
}

/// What can be compared of attributes.
pub fn stat_of(attr: &Attr) -> Stat {
    let Attr { kind, mode, nlink, uid, gid, rdev, size, .. } = *attr;
    Stat { kind, mode, nlink, uid, gid, rdev, size: if kind == Kind::Dir { 0 } else { size } }
}

impl Driver<'_> {
    pub async fn carry_out(&mut self, op: &Op) -> Outcome {
        match *op {
            Op::Open { path, handle, how, mode, kill } => {
                self.open(path, handle, (how, mode, kill)).await.into()
            }
            Op::Close { handle } => self.close(handle).await.into(),
            Op::OpenTemp { path, handle, mode, exclusive } => {
                self.open_temp(path, handle, mode, exclusive).await.into()
            }
            Op::LinkHandle { handle, to } => self.link_handle(handle, to).await.into(),
            Op::Write { .. }
            | Op::Read { .. }
            | Op::Punch { .. }
            | Op::Allocate { .. }
            | Op::Zero { .. }
            | Op::Fsync { .. } => self.data(op).await,
            Op::Copy { from, from_offset, to, offset, len, kill } => {
                self.copy((from, from_offset), (to, offset), len, kill).await.into()
            }
            Op::Seek { handle, offset, hole } => self.seek(handle, offset, hole).await,
            Op::SetAcl { .. } | Op::GetAcl { .. } | Op::RemoveAcl { .. } => self.acl(op).await,
            Op::Stat { at } => self.at(at).await.map(|attr| stat_of(&attr)).into(),
            Op::Chmod { .. } | Op::Chown { .. } | Op::Utimens { .. } | Op::Truncate { .. } => {
                self.set(op).await.into()
            }
            Op::Setxattr { .. } | Op::Getxattr { .. } | Op::Listxattr { .. } | Op::Removexattr { .. } => {
                self.xattr(op).await
            }
            Op::List { path } => match self.follow(path).await {
                Ok(attr) => list(self.lane, &attr).await.into(),
                Err(errno) => Outcome::Failed(errno),
            },
            Op::Readlink { path } => match self.resolve(path).await {
                Ok(attr) if attr.kind == Kind::Symlink => self.lane.readlink(attr.ino).await.into(),
                Ok(_) => Outcome::Failed(Errno::EINVAL),
                Err(errno) => Outcome::Failed(errno),
            },
            _ => self.name(op).await.into(),
        }
    }

    async fn step(&self, at: &Attr, name: &[u8]) -> Result<Attr, Errno> {
        match at.kind {
            Kind::Symlink => Err(Errno::ENOENT),
            Kind::Dir => self.lane.lookup(at.ino, name).await,
            _ => Err(Errno::ENOTDIR),
        }
    }

    /// The inode of a path, its last name not followed.
    async fn resolve(&self, path: Path) -> Result<Attr, Errno> {
        let mut at = self.lane.getattr(self.root).await?;
        for name in path.names() {
            at = self.step(&at, name).await?;
        }
        Ok(at)
    }

    async fn follow(&self, path: Path) -> Result<Attr, Errno> {
        let attr = self.resolve(path).await?;
        if attr.kind == Kind::Symlink { Err(Errno::ENOENT) } else { Ok(attr) }
    }

    /// The directory of a path and its last name.
    async fn parent_of(&self, path: Path) -> Result<(Ino, &'static [u8]), Errno> {
        let names: Vec<&'static [u8]> = path.names().collect();
        let Some((last, above)) = names.split_last() else { return Err(Errno::EBUSY) };
        let mut dir = self.lane.getattr(self.root).await?;
        for name in above {
            dir = self.step(&dir, name).await?;
        }
        match dir.kind {
            Kind::Dir => Ok((dir.ino, last)),
            Kind::Symlink => Err(Errno::ENOENT),
            _ => Err(Errno::ENOTDIR),
        }
    }

    fn handle(&self, handle: Handle) -> Result<Open, Errno> {
        self.opens.get(&handle).copied().ok_or(Errno::EBADF)
    }

    async fn at(&self, at: At) -> Result<Attr, Errno> {
        match at {
            At::Path(path) => self.resolve(path).await,
            At::Handle(handle) => self.lane.getattr(self.handle(handle)?.ino).await,
        }
    }

    async fn open(
        &mut self,
        path: Path,
        handle: Handle,
        (how, mode, kill): (skep_model::OpenHow, Mode, bool),
    ) -> Result<(), Errno> {
        if self.opens.contains_key(&handle) {
            return Err(Errno::EMFILE);
        }
        let wanted = match (how.read, how.write) {
            (true, true) => OpenMode::ReadWrite,
            (false, true) => OpenMode::Write,
            _ => OpenMode::Read,
        };
        let open = OpenHow { mode: wanted, truncate: how.truncate, sync: false, kill_suidgid: kill };
        let make = |client, ino, dir| Open {
            handle: client,
            ino,
            dir,
            read: how.read,
            write: how.write,
            append: how.append,
            linkable: false,
        };
        let opened = match self.resolve(path).await {
            Ok(_) if how.create && how.exclusive => return Err(Errno::EEXIST),
            Ok(attr) => match attr.kind {
                Kind::File => make(self.lane.open(attr.ino, open).await?.handle, attr.ino, false),
                Kind::Dir if how.create || how.write || how.truncate => return Err(Errno::EISDIR),
                Kind::Dir => make(self.lane.opendir(attr.ino)?, attr.ino, true),
                Kind::Symlink => return Err(Errno::ELOOP),
                _ => return Err(Errno::ENXIO),
            },
            Err(Errno::ENOENT) if how.create => {
                let (dir, name) = self.parent_of(path).await?;
                let create =
                    CreateHow { mode, umask: 0, uid: 0, gid: 0, exclusive: how.exclusive, policy: None };
                let opened = self.lane.create(dir, name, create, open).await?;
                make(opened.handle, opened.attr.ino, false)
            }
            Err(errno) => return Err(errno),
        };
        self.opens.insert(handle, opened);
        Ok(())
    }

    pub async fn close(&mut self, handle: Handle) -> Result<(), Errno> {
        let open = self.opens.remove(&handle).ok_or(Errno::EBADF)?;
        if open.dir {
            self.lane.releasedir(open.handle);
            return Ok(());
        }
        let flushed = self.lane.flush(open.handle, 0).await;
        self.lane.release(open.handle).await;
        flushed
    }

    /// Makes what is open durable.
    pub async fn fsync(&self, handle: Handle) -> Result<(), Errno> {
        let open = self.handle(handle)?;
        if open.dir { self.lane.fsyncdir(open.handle).await } else { self.lane.fsync(open.handle).await }
    }

    async fn data(&mut self, op: &Op) -> Outcome {
        match *op {
            Op::Fsync { handle } => self.fsync(handle).await.into(),
            Op::Read { handle, offset, len } => match self.handle(handle) {
                Ok(open) if !open.read => Outcome::Failed(Errno::EBADF),
                Ok(_) if is_beyond(offset, len as usize) => Outcome::Failed(Errno::EINVAL),
                Ok(open) if open.dir => Outcome::Failed(Errno::EISDIR),
                Ok(open) => read(self.lane, open.handle, offset, len as usize).await.into(),
                Err(errno) => Outcome::Failed(errno),
            },
            Op::Write { handle, offset, fill, kill } => {
                self.write(handle, offset, &fill.bytes(), kill).await.into()
            }
            Op::Punch { handle, offset, len, kill } => {
                self.allocate(handle, Allocate::Punch, (offset, len), kill).await.into()
            }
            Op::Allocate { handle, offset, len, keep_size, kill } => {
                let what = if keep_size { Allocate::KeepSize } else { Allocate::Extend };
                self.allocate(handle, what, (offset, len), kill).await.into()
            }
            Op::Zero { handle, offset, len, keep_size, kill } => {
                let what = if keep_size { Allocate::ZeroKeepSize } else { Allocate::Zero };
                self.allocate(handle, what, (offset, len), kill).await.into()
            }
            _ => Outcome::Failed(Errno::ENOSYS),
        }
    }

    async fn write(&self, handle: Handle, offset: u64, data: &[u8], kill: bool) -> Result<usize, Errno> {
        let open = self.handle(handle)?;
        if !open.write {
            return Err(Errno::EBADF);
        }
        if is_beyond(offset, data.len()) {
            return Err(Errno::EINVAL);
        }
        let room = match open.append {
            // The kernel cuts what would go beyond the highest offset.
            true => skep_types::limits::FILE_SIZE_MAX - self.lane.getattr(open.ino).await?.size,
            false => u64::MAX,
        };
        if room == 0 && !data.is_empty() {
            return Err(Errno::EFBIG);
        }
        let data = &data[..room.min(data.len() as u64) as usize];
        let how = WriteHow { kill_suidgid: kill, append: open.append, ..WriteHow::default() };
        self.lane.write(open.handle, offset, data, how).await
    }

    async fn allocate(
        &self,
        handle: Handle,
        what: Allocate,
        (offset, len): (u64, u64),
        kill: bool,
    ) -> Result<(), Errno> {
        let open = self.handle(handle)?;
        match (len, open.write) {
            (0, _) => return Err(Errno::EINVAL),
            (_, false) => return Err(Errno::EBADF),
            _ => {}
        }
        if offset.checked_add(len).is_none_or(|end| end > skep_types::limits::FILE_SIZE_MAX) {
            return Err(Errno::EFBIG);
        }
        if kill && self.lane.getattr(open.ino).await?.mode & SETID != 0 {
            let set = SetAttr { kill_suidgid: true, ..SetAttr::default() };
            self.lane.setattr(open.ino, set).await?;
        }
        self.lane.fallocate(open.handle, what, offset, len).await
    }

    async fn set(&mut self, op: &Op) -> Result<(), Errno> {
        let none = SetAttr::default();
        let (at, set) = match *op {
            Op::Chmod { at, mode } => (at, SetAttr { mode: Some(mode), ..none }),
            Op::Chown { at, uid, gid } => (at, SetAttr { uid, gid, ..none }),
            Op::Utimens { at, atime, mtime } => (at, SetAttr { atime, mtime, ..none }),
            Op::Truncate { at, size, kill } => (at, SetAttr { size: Some(size), kill_suidgid: kill, ..none }),
            _ => return Err(Errno::ENOSYS),
        };
        if set == SetAttr::default() {
            return if let At::Handle(handle) = at { self.handle(handle).map(drop) } else { Ok(()) };
        }
        let attr = match at {
            At::Path(path) if set.size.is_some() => self.follow(path).await?,
            At::Handle(handle) if set.size.is_some() && !self.handle(handle)?.write => {
                return Err(Errno::EINVAL);
            }
            at => self.at(at).await?,
        };
        match (attr.kind, set.mode, set.size) {
            (Kind::Symlink, Some(_), _) => return Err(Errno::EOPNOTSUPP),
            (Kind::File, _, _) | (_, _, None) => {}
            (Kind::Dir, _, _) => return Err(Errno::EISDIR),
            _ => return Err(Errno::EINVAL),
        }
        self.lane.setattr(attr.ino, set).await.map(drop)
    }

    async fn name(&mut self, op: &Op) -> Result<(), Errno> {
        match *op {
            Op::Mkdir { path, mode } => {
                let (dir, name) = self.parent_of(path).await?;
                self.make(dir, name, Kind::Dir, mode & MKDIR_BITS, 0).await
            }
            Op::Mknod { path, kind, mode, rdev } => {
                let (dir, name) = self.parent_of(path).await?;
                self.make(dir, name, kind, mode, rdev).await
            }
            Op::Symlink { path, len } => {
                let target = Op::symlink_target(len);
                match target.len() {
                    0 => return Err(Errno::ENOENT),
                    len if len > SYMLINK_MAX => return Err(Errno::ENAMETOOLONG),
                    _ => {}
                }
                let (dir, name) = self.parent_of(path).await?;
                self.lane.symlink(dir, name, &target, 0, 0).await.map(drop)
            }
            Op::Link { from, to } => {
                let from = self.resolve(from).await?;
                let (dir, name) = self.parent_of(to).await?;
                match self.lane.lookup(dir, name).await {
                    Ok(_) => return Err(Errno::EEXIST),
                    Err(Errno::ENOENT) if from.kind == Kind::Dir => return Err(Errno::EPERM),
                    Err(Errno::ENOENT) => {}
                    Err(errno) => return Err(errno),
                }
                self.lane.link(from.ino, dir, name).await.map(drop)
            }
            Op::Unlink { path } => {
                let (dir, name) = self.parent_of(path).await?;
                self.lane.unlink(dir, name).await
            }
            Op::Rmdir { path } => {
                let (dir, name) = self.parent_of(path).await?;
                self.look(dir, name).await;
                self.lane.rmdir(dir, name).await
            }
            Op::Rename { from, to, how } => {
                let (from_dir, from) = self.parent_of(from).await?;
                let (to_dir, to) = self.parent_of(to).await?;
                self.look(from_dir, from).await;
                self.look(to_dir, to).await;
                let how = RenameHow {
                    no_replace: how == skep_model::RenameHow::NoReplace,
                    exchange: how == skep_model::RenameHow::Exchange,
                };
                self.lane.rename(from_dir, from, to_dir, to, how).await
            }
            _ => Err(Errno::ENOSYS),
        }
    }

    /// The kernel looks a name up before it removes or moves it.
    async fn look(&self, dir: Ino, name: &[u8]) {
        let _ = self.lane.lookup(dir, name).await;
    }

    async fn make(&self, dir: Ino, name: &[u8], kind: Kind, mode: Mode, rdev: u32) -> Result<(), Errno> {
        self.lane.make_node(dir, name, NewNode { kind, mode, umask: 0, uid: 0, gid: 0, rdev }).await.map(drop)
    }

    async fn xattr(&self, op: &Op) -> Outcome {
        match *op {
            Op::Setxattr { at, name, value, how } => {
                let name = xattr_name(name);
                let attr = self.at_after(at, &name, value.len as usize, Errno::EPERM).await;
                let (create, replace) = (how == XattrHow::Create, how == XattrHow::Replace);
                match attr {
                    Ok(ino) => {
                        let how = skep_client::XattrHow { create, replace, kill_sgid: false };
                        self.lane.setxattr(ino, &name, &value.bytes(), how).await.into()
                    }
                    Err(errno) => Outcome::Failed(errno),
                }
            }
            Op::Getxattr { at, name } => {
                let name = xattr_name(name);
                match self.at_after(at, &name, 0, Errno::ENODATA).await {
                    Ok(ino) => self.lane.getxattr(ino, &name).await.into(),
                    Err(errno) => Outcome::Failed(errno),
                }
            }
            Op::Removexattr { at, name } => {
                let name = xattr_name(name);
                match self.at_after(at, &name, 0, Errno::EPERM).await {
                    Ok(ino) => self.lane.removexattr(ino, &name).await.into(),
                    Err(errno) => Outcome::Failed(errno),
                }
            }
            Op::Listxattr { at } => match self.at(at).await {
                Ok(attr) => xattr_names(self.lane, attr.ino).await.into(),
                Err(errno) => Outcome::Failed(errno),
            },
            _ => Outcome::Failed(Errno::ENOSYS),
        }
    }

    /// As the kernel does it: arguments first, then the path, then whether such an inode may have any.
    async fn at_after(&self, at: At, name: &[u8], len: usize, other_kind: Errno) -> Result<Ino, Errno> {
        if let At::Handle(handle) = at {
            self.handle(handle)?;
        }
        if name.len() > XATTR_NAME_MAX {
            return Err(Errno::ERANGE);
        }
        if len > XATTR_VALUE_MAX {
            return Err(Errno::E2BIG);
        }
        let attr = self.at(at).await?;
        let anywhere = !name.starts_with(b"user.");
        if anywhere || matches!(attr.kind, Kind::File | Kind::Dir) { Ok(attr.ino) } else { Err(other_kind) }
    }
}

/// The kernel lets nothing through that ends beyond the highest offset.
fn is_beyond(offset: u64, len: usize) -> bool {
    offset.checked_add(len as u64).is_none_or(|end| end > skep_types::limits::FILE_SIZE_MAX)
}

/// Reads until `len` bytes or the end.
pub async fn read(lane: &SimLane, handle: u64, offset: u64, len: usize) -> Result<Vec<u8>, Errno> {
    let mut bytes = vec![0xee; len];
    let got = lane.read(handle, offset, &mut bytes).await?;
    bytes.truncate(got);
    Ok(bytes)
}

/// Names and kinds in a directory.
pub async fn list(lane: &SimLane, dir: &Attr) -> Result<BTreeMap<Name, Kind>, Errno> {
    if dir.kind != Kind::Dir {
        return Err(Errno::ENOTDIR);
    }
    let handle = lane.opendir(dir.ino)?;
    let mut seen = BTreeMap::new();
    let mut twice = false;
    let mut sink = |line: Listed<'_>| {
        if let Ok(name) = Name::new(line.name) {
            twice |= seen.insert(name, line.kind).is_some();
        }
        true
    };
    let result = lane.readdir(handle, 0, false, &mut sink).await;
    lane.releasedir(handle);
    result?;
    // No error of a directory is like this one: a name that was listed twice must stand out.
    if twice { Err(Errno::ERANGE) } else { Ok(seen) }
}

/// Names of extended attributes.
pub async fn xattr_names(lane: &SimLane, ino: Ino) -> Result<BTreeSet<Vec<u8>>, Errno> {
    let bytes = lane.listxattr(ino).await?;
    Ok(bytes.split(|byte| *byte == 0).filter(|name| !name.is_empty()).map(<[u8]>::to_vec).collect())
}
