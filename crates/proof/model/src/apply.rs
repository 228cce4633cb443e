//! Operations by path and handle: what the kernel does above the file system, so that a history can be
//! compared with real system calls.

use crate::acl::acl_value;
use crate::file::checked;
use crate::fs::{Access, Call, Fs, Handle};
use crate::lock::{LOCK_END, LockSpace};
use crate::op::{At, Op, OpenHow, Outcome, Path, xattr_name};
use crate::xattr::check_args;
use skep_types::{Errno, Ino, Kind, Mode, Name, SetAttr, Timestamp};

impl Fs {
    /// Carries out `op` and says what came of it, as Linux would for a caller who may do everything.
    pub fn apply(&mut self, op: &Op, call: Call) -> Outcome {
        match *op {
            Op::Open { path, handle, how, mode, kill } => {
                self.open_path(path, handle, (how, mode, kill), call).into()
            }
            Op::Close { handle } => self.close(handle).into(),
            Op::OpenTemp { path, handle, mode, exclusive } => {
                self.open_temp(path, handle, (mode, exclusive), call).into()
            }
            Op::Write { .. }
            | Op::Read { .. }
            | Op::Punch { .. }
            | Op::Allocate { .. }
            | Op::Zero { .. }
            | Op::Copy { .. }
            | Op::Seek { .. }
            | Op::Fsync { .. } => self.apply_data(op, call.now),
            Op::Lock { handle, space, exclusive, start, last } => {
                self.lock_handle(handle, space, exclusive, (start, last)).into()
            }
            Op::TestLock { handle, exclusive, start, last } => {
                self.test_lock(handle, exclusive, (start, last))
            }
            Op::SetAcl { .. } | Op::GetAcl { .. } | Op::RemoveAcl { .. } => self.apply_acl(op, call.now),
            Op::Stat { at } => self.at(at).and_then(|ino| self.stat(ino)).into(),
            Op::Chmod { .. } | Op::Chown { .. } | Op::Utimens { .. } => {
                self.apply_setattr(op, call.now).into()
            }
            Op::Truncate { at: At::Path(path), size, kill } => {
                self.follow(path).and_then(|ino| self.cut(ino, size, kill, call.now)).into()
            }
            Op::Truncate { at: At::Handle(handle), size, kill } => {
                self.truncate_handle(handle, size, kill, call.now).into()
            }
            Op::Setxattr { .. } | Op::Getxattr { .. } | Op::Listxattr { .. } | Op::Removexattr { .. } => {
                self.apply_xattr(op, call.now)
            }
            Op::List { path } => self.follow(path).and_then(|ino| self.readdir(ino)).into(),
            Op::Readlink { path } => self.resolve(path).and_then(|ino| self.readlink(ino)).into(),
            _ => self.apply_name(op, call).into(),
        }
    }

    fn apply_name(&mut self, op: &Op, call: Call) -> Result<(), Errno> {
        match *op {
            Op::Mkdir { path, mode } => {
                let (dir, name) = self.parent_of(path)?;
                self.mkdir(dir, &name, mode, call).map(drop)
            }
            Op::Mknod { path, kind, mode, rdev } => {
                let (dir, name) = self.parent_of(path)?;
                self.mknod(dir, &name, kind, mode, rdev, call).map(drop)
            }
            Op::Symlink { path, len } => {
                let target = Op::symlink_target(len);
                // Linux reads the target before it walks the path.
                match target.len() {
                    0 => return Err(Errno::ENOENT),
                    len if len > skep_types::limits::SYMLINK_MAX => return Err(Errno::ENAMETOOLONG),
                    _ => {}
                }
                let (dir, name) = self.parent_of(path)?;
                self.symlink(dir, &name, &target, call).map(drop)
            }
            Op::Link { from, to } => {
                let ino = self.resolve(from)?;
                let (dir, name) = self.parent_of(to)?;
                self.link(ino, dir, &name, call.now)
            }
            Op::LinkHandle { handle, to } => {
                let (ino, _) = self.handle(handle)?;
                let (dir, name) = self.parent_of(to)?;
                self.link(ino, dir, &name, call.now)
            }
            Op::Unlink { path } => {
                let (dir, name) = self.parent_of(path)?;
                self.unlink(dir, &name, call.now)
            }
            Op::Rmdir { path } => {
                let (dir, name) = self.parent_of(path)?;
                self.rmdir(dir, &name, call.now)
            }
            Op::Rename { from, to, how } => {
                let (from_dir, from) = self.parent_of(from)?;
                let (to_dir, to) = self.parent_of(to)?;
                self.rename((from_dir, &from), (to_dir, &to), how, call.now)
            }
            _ => Err(Errno::ENOSYS),
        }
    }

    fn apply_data(&mut self, op: &Op, now: Timestamp) -> Outcome {
        match *op {
            Op::Write { handle, offset, fill, kill } => {
                self.write_handle(handle, offset, &fill.bytes(), kill, now).into()
            }
            Op::Read { handle, offset, len } => {
                self.handle(handle)
                    .and_then(|(ino, access)| {
                        if access.read { self.read(ino, offset, len as usize) } else { Err(Errno::EBADF) }
                    })
                    .into()
            }
            Op::Punch { handle, offset, len, kill } => {
                self.writable(handle, len).and_then(|ino| self.punch(ino, offset, len, kill, now)).into()
            }
            Op::Allocate { handle, offset, len, keep_size, kill } => self
                .writable(handle, len)
                .and_then(|ino| self.allocate(ino, (offset, len), keep_size, kill, now))
                .into(),
            Op::Zero { handle, offset, len, keep_size, kill } => self
                .writable(handle, len)
                .and_then(|ino| self.zero(ino, (offset, len), keep_size, kill, now))
                .into(),
            Op::Copy { from, from_offset, to, offset, len, kill } => {
                self.copy_handles((from, from_offset), (to, offset), len, kill, now).into()
            }
            Op::Seek { handle, offset, hole } => {
                match self.handle(handle).and_then(|(ino, _)| self.content(ino)) {
                    Ok(content) => Outcome::Seek { from: offset, hole, content: content.clone() },
                    Err(errno) => Outcome::Failed(errno),
                }
            }
            Op::Fsync { handle } => self.handle(handle).map(|_| ()).into(),
            _ => Outcome::Failed(Errno::ENOSYS),
        }
    }

    fn apply_setattr(&mut self, op: &Op, now: Timestamp) -> Result<(), Errno> {
        let none = SetAttr::default();
        let (at, set) = match *op {
            Op::Chmod { at, mode } => (at, SetAttr { mode: Some(mode), ..none }),
            Op::Chown { at, uid, gid } => (at, SetAttr { uid, gid, ..none }),
            Op::Utimens { at, atime, mtime } => (at, SetAttr { atime, mtime, ..none }),
            _ => return Err(Errno::ENOSYS),
        };
        // Linux answers before it walks the path when there is nothing to set.
        if matches!(at, At::Path(_)) && set == none {
            return Ok(());
        }
        let ino = self.at(at)?;
        self.setattr(ino, &set, now)
    }

    fn apply_xattr(&mut self, op: &Op, now: Timestamp) -> Outcome {
        match *op {
            Op::Setxattr { at, name, value, how } => {
                let name = xattr_name(name);
                self.at_after(at, &name, value.len as usize)
                    .and_then(|ino| self.setxattr(ino, &name, &value.bytes(), how, now))
                    .into()
            }
            Op::Getxattr { at, name } => {
                let name = xattr_name(name);
                self.at_after(at, &name, 0).and_then(|ino| self.getxattr(ino, &name)).into()
            }
            Op::Removexattr { at, name } => {
                let name = xattr_name(name);
                self.at_after(at, &name, 0).and_then(|ino| self.removexattr(ino, &name, now)).into()
            }
            Op::Listxattr { at } => self.at(at).and_then(|ino| self.listxattr(ino)).into(),
            _ => Outcome::Failed(Errno::ENOSYS),
        }
    }

    fn apply_acl(&mut self, op: &Op, now: Timestamp) -> Outcome {
        match *op {
            Op::SetAcl { at, default, value } => {
                self.at(at).and_then(|ino| self.set_acl(ino, default, &acl_value(value), now)).into()
            }
            Op::GetAcl { at, default } => self.at(at).and_then(|ino| self.get_acl(ino, default)).into(),
            Op::RemoveAcl { at, default } => {
                // A list of no entries.
                let none = acl_value(5);
                self.at(at).and_then(|ino| self.set_acl(ino, default, &none, now)).into()
            }
            _ => Outcome::Failed(Errno::ENOSYS),
        }
    }

    fn open_temp(
        &mut self,
        path: Path,
        handle: Handle,
        (mode, exclusive): (Mode, bool),
        call: Call,
    ) -> Result<(), Errno> {
        if self.handles.contains_key(&handle) {
            return Err(Errno::EMFILE);
        }
        let dir = self.follow(path)?;
        let access = Access { read: true, write: true, append: false };
        self.create_temp(dir, handle, access, (mode, !exclusive), call).map(drop)
    }

    fn copy_handles(
        &mut self,
        (from, from_offset): (Handle, u64),
        (to, offset): (Handle, u64),
        len: u32,
        kill: bool,
        now: Timestamp,
    ) -> Result<usize, Errno> {
        let ((source, reads), (copy, writes)) = (self.handle(from)?, self.handle(to)?);
        if self.inode(source)?.is_dir() || self.inode(copy)?.is_dir() {
            return Err(Errno::EISDIR);
        }
        if !reads.read || !writes.write || writes.append {
            return Err(Errno::EBADF);
        }
        self.copy((source, from_offset), (copy, offset), len as usize, kill, now)
    }

    fn lock_handle(
        &mut self,
        handle: Handle,
        space: LockSpace,
        exclusive: Option<bool>,
        range: (u64, u64),
    ) -> Result<(), Errno> {
        let (ino, access) = self.handle(handle)?;
        let range = if space == LockSpace::Whole { (0, LOCK_END) } else { range };
        match (space, exclusive) {
            (LockSpace::Range, Some(true)) if !access.write => return Err(Errno::EBADF),
            (LockSpace::Range, Some(false)) if !access.read => return Err(Errno::EBADF),
            _ => {}
        }
        self.set_lock((ino, space), handle.0.into(), exclusive, range)
    }

    fn test_lock(&self, handle: Handle, exclusive: bool, range: (u64, u64)) -> Outcome {
        match self.handle(handle) {
            Ok((ino, _)) => {
                let place = (ino, LockSpace::Range);
                Outcome::Conflicts(self.lock_conflicts(place, handle.0.into(), exclusive, range))
            }
            Err(errno) => Outcome::Failed(errno),
        }
    }

    fn open_path(
        &mut self,
        path: Path,
        handle: Handle,
        (how, mode, kill): (OpenHow, Mode, bool),
        call: Call,
    ) -> Result<(), Errno> {
        if self.handles.contains_key(&handle) {
            return Err(Errno::EMFILE);
        }
        let access = Access { read: how.read, write: how.write, append: how.append };
        let ino = match self.resolve(path) {
            Ok(_) if how.create && how.exclusive => return Err(Errno::EEXIST),
            Ok(ino) => ino,
            Err(Errno::ENOENT) if how.create => {
                let (dir, name) = self.parent_of(path)?;
                let ino = self.create(dir, &name, mode, call)?;
                return self.open(handle, ino, access);
            }
            Err(errno) => return Err(errno),
        };
        match self.stat(ino)?.kind {
            Kind::File => {}
            Kind::Dir if how.create || how.write || how.truncate => return Err(Errno::EISDIR),
            Kind::Dir => {}
            Kind::Symlink => return Err(Errno::ELOOP),
            Kind::Fifo | Kind::Socket | Kind::CharDev | Kind::BlockDev => return Err(Errno::ENXIO),
        }
        if how.truncate {
            self.cut(ino, 0, kill, call.now)?;
        }
        self.open(handle, ino, access)
    }

    fn cut(&mut self, ino: Ino, size: u64, kill: bool, now: Timestamp) -> Result<(), Errno> {
        let set = SetAttr { size: Some(size), kill_suidgid: kill, ..SetAttr::default() };
        self.setattr(ino, &set, now)
    }

    fn truncate_handle(
        &mut self,
        handle: Handle,
        size: u64,
        kill: bool,
        now: Timestamp,
    ) -> Result<(), Errno> {
        let (ino, access) = self.handle(handle)?;
        if access.write { self.cut(ino, size, kill, now) } else { Err(Errno::EINVAL) }
    }

    fn write_handle(
        &mut self,
        handle: Handle,
        offset: u64,
        data: &[u8],
        kill: bool,
        now: Timestamp,
    ) -> Result<usize, Errno> {
        let (ino, access) = self.handle(handle)?;
        if !access.write {
            return Err(Errno::EBADF);
        }
        // Linux looks at the offset first, though it will not be used.
        checked(offset, data.len())?;
        if access.append {
            self.append(ino, data, kill, now)
        } else {
            self.write(ino, offset, data, kill, now)
        }
    }

    /// The inode of a handle that `fallocate` may use; an empty range is found first.
    fn writable(&self, handle: Handle, len: u64) -> Result<Ino, Errno> {
        let (ino, access) = self.handle(handle)?;
        match (len, access.write) {
            (0, _) => Err(Errno::EINVAL),
            (_, false) => Err(Errno::EBADF),
            _ => Ok(ino),
        }
    }

    fn at(&self, at: At) -> Result<Ino, Errno> {
        match at {
            At::Path(path) => self.resolve(path),
            At::Handle(handle) => Ok(self.handle(handle)?.0),
        }
    }

    /// As [`Fs::at`], after the arguments of an extended-attribute call were looked at. (A handle that
    /// is not open comes first: the driver cannot make the call.)
    fn at_after(&self, at: At, name: &[u8], value_len: usize) -> Result<Ino, Errno> {
        if let At::Handle(handle) = at {
            self.handle(handle)?;
        }
        check_args(name, value_len)?;
        self.at(at)
    }

    /// The inode of a path, its last name not followed.
    pub fn resolve(&self, path: Path) -> Result<Ino, Errno> {
        let mut at = Ino::ROOT;
        for name in path.names() {
            at = self.step(at, &Name::new(name)?)?;
        }
        Ok(at)
    }

    /// The inode of a path, followed: every symbolic link of a history leads nowhere.
    fn follow(&self, path: Path) -> Result<Ino, Errno> {
        let ino = self.resolve(path)?;
        if self.inode(ino)?.kind() == Kind::Symlink { Err(Errno::ENOENT) } else { Ok(ino) }
    }

    /// The directory of a path and its last name. EBUSY for the root, which has none.
    fn parent_of(&self, path: Path) -> Result<(Ino, Name), Errno> {
        let mut dir = Ino::ROOT;
        let mut last: Option<Name> = None;
        for name in path.names() {
            if let Some(name) = last {
                dir = self.step(dir, &name)?;
            }
            last = Some(Name::new(name)?);
        }
        match self.inode(dir)?.kind() {
            Kind::Dir => Ok((dir, last.ok_or(Errno::EBUSY)?)),
            Kind::Symlink => Err(Errno::ENOENT),
            _ => Err(Errno::ENOTDIR),
        }
    }

    fn step(&self, dir: Ino, name: &Name) -> Result<Ino, Errno> {
        match self.inode(dir)?.kind() {
            Kind::Symlink => Err(Errno::ENOENT),
            _ => self.lookup(dir, name),
        }
    }
}
