//! Carries a history out on a real file system, by the rules that stand at [`Op`].

use rustix::fs::{
    self as sys, AtFlags, FallocateFlags, FileType, Mode as SysMode, OFlags, RenameFlags, Timespec,
    Timestamps, UTIME_NOW, UTIME_OMIT, XattrFlags,
};
use rustix::io::Result as SysResult;
use rustix::thread::{CapabilitySet, capabilities, set_capabilities, set_thread_groups};
use skep_model::{At, Handle, Op, OpenHow, Outcome, Path, RenameHow, Stat, XattrHow, xattr_name};
use skep_types::{Errno, Kind, Name, SetTime};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// A directory of its own on a real file system. It is removed when dropped.
pub struct Host {
    /// The directory.
    pub root: PathBuf,
    handles: BTreeMap<Handle, OwnedFd>,
    buffer: Vec<u8>,
}

fn errno(e: rustix::io::Errno) -> Errno {
    Errno(e.raw_os_error() as u16)
}

/// True when this thread may do everything; it then joins the groups that histories use.
pub fn is_privileged() -> bool {
    if !rustix::process::geteuid().is_root() {
        return false;
    }
    let groups = [0, 1000, 1001].map(rustix::fs::Gid::from_raw);
    let wanted = CapabilitySet::FSETID | CapabilitySet::CHOWN | CapabilitySet::MKNOD;
    set_thread_groups(&groups).is_ok() && capabilities(None).is_ok_and(|sets| sets.effective.contains(wanted))
}

/// Runs `act` without `CAP_FSETID`, so that the kernel clears suid and sgid.
fn without_fsetid<T>(kill: bool, act: impl FnOnce() -> T) -> T {
    if !kill {
        return act();
    }
    let sets = capabilities(None).expect("capget of the own thread");
    let mut fewer = sets;
    fewer.effective.remove(CapabilitySet::FSETID);
    set_capabilities(None, fewer).expect("giving up a capability");
    let result = act();
    set_capabilities(None, sets).expect("taking it back");
    result
}

/// Attributes in the form of the model.
pub fn stat_of(stat: &sys::Stat) -> Stat {
    let kind = Kind::from_mode(stat.st_mode).expect("a kind that Linux has");
    let device = matches!(kind, Kind::CharDev | Kind::BlockDev);
    Stat {
        kind,
        mode: stat.st_mode & 0o7777,
        nlink: stat.st_nlink as u32,
        uid: stat.st_uid,
        gid: stat.st_gid,
        rdev: if device { stat.st_rdev as u32 } else { 0 },
        size: if kind == Kind::Dir { 0 } else { stat.st_size as u64 },
    }
}

fn timespec(time: Option<SetTime>) -> Timespec {
    match time {
        None => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        Some(SetTime::Now) => Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
        Some(SetTime::At(at)) => Timespec { tv_sec: at.secs, tv_nsec: at.nanos.into() },
    }
}

fn xattr_flags(how: XattrHow) -> XattrFlags {
    match how {
        XattrHow::Set => XattrFlags::empty(),
        XattrHow::Create => XattrFlags::CREATE,
        XattrHow::Replace => XattrFlags::REPLACE,
    }
}

impl Host {
    /// A new directory, named after the test, in `base`.
    pub fn new(base: &std::path::Path, name: &str) -> Self {
        rustix::process::umask(SysMode::empty());
        let root = base.join(format!("skep-model-{}-{name}", std::process::id()));
        std::fs::create_dir(&root).expect("a directory for the test");
        sys::chmod(&root, SysMode::from_raw_mode(0o755)).expect("its mode");
        Self { root, handles: BTreeMap::new(), buffer: vec![0; 128 * 1024] }
    }

    /// The path on the file system of the machine.
    pub fn path(&self, path: Path) -> PathBuf {
        match path.to_bytes() {
            bytes if bytes.is_empty() => self.root.clone(),
            bytes => self.root.join(OsStr::from_bytes(&bytes)),
        }
    }

    /// Attributes of an open handle.
    pub fn stat_handle(&self, handle: Handle) -> Option<sys::Stat> {
        self.handles.get(&handle).and_then(|fd| sys::fstat(fd).ok())
    }

    /// Carries out one operation.
    pub fn run(&mut self, op: &Op) -> Outcome {
        let result = match *op {
            Op::Open { path, handle, how, mode, kill } => self.open(path, handle, how, (mode, kill)),
            Op::Close { handle } => match self.handles.remove(&handle) {
                Some(_fd) => Ok(Outcome::Done),
                None => Err(rustix::io::Errno::BADF),
            },
            Op::Stat { .. }
            | Op::Chmod { .. }
            | Op::Chown { .. }
            | Op::Utimens { .. }
            | Op::Truncate { .. } => self.attributes(op),
            Op::Write { handle, .. }
            | Op::Read { handle, .. }
            | Op::Punch { handle, .. }
            | Op::Allocate { handle, .. }
            | Op::Fsync { handle } => match self.handles.get(&handle) {
                Some(fd) => data(fd, op),
                None => Err(rustix::io::Errno::BADF),
            },
            Op::Setxattr { at, .. }
            | Op::Getxattr { at, .. }
            | Op::Listxattr { at }
            | Op::Removexattr { at, .. } => self.xattr(op, at),
            _ => self.names(op),
        };
        result.unwrap_or_else(|e| Outcome::Failed(errno(e)))
    }

    fn open(
        &mut self,
        path: Path,
        handle: Handle,
        how: OpenHow,
        (mode, kill): (u32, bool),
    ) -> SysResult<Outcome> {
        if self.handles.contains_key(&handle) {
            return Err(rustix::io::Errno::MFILE);
        }
        let path = self.path(path);
        let exclusive = how.create && how.exclusive;
        if let (false, Ok(stat)) = (exclusive, sys::lstat(&path)) {
            let kind = FileType::from_raw_mode(stat.st_mode);
            if !matches!(kind, FileType::RegularFile | FileType::Directory | FileType::Symlink) {
                return Err(rustix::io::Errno::NXIO);
            }
        }
        let mut flags = match (how.read, how.write) {
            (true, true) => OFlags::RDWR,
            (false, true) => OFlags::WRONLY,
            _ => OFlags::RDONLY,
        };
        flags |= OFlags::NOFOLLOW | OFlags::CLOEXEC;
        flags.set(OFlags::APPEND, how.append);
        flags.set(OFlags::TRUNC, how.truncate);
        flags.set(OFlags::CREATE, how.create);
        flags.set(OFlags::EXCL, exclusive);
        let fd = without_fsetid(kill && how.truncate && sys::lstat(&path).is_ok(), || {
            sys::open(&path, flags, SysMode::from_raw_mode(mode))
        })?;
        self.handles.insert(handle, fd);
        Ok(Outcome::Done)
    }

    fn names(&mut self, op: &Op) -> SysResult<Outcome> {
        let mode_of = SysMode::from_raw_mode;
        match *op {
            Op::Mkdir { path, mode } => sys::mkdir(self.path(path), mode_of(mode))?,
            Op::Mknod { path, kind, mode, rdev } => {
                let kind = FileType::from_raw_mode(kind.mode_bits());
                sys::mknodat(sys::CWD, self.path(path), kind, mode_of(mode), rdev.into())?;
            }
            Op::Symlink { path, len } => {
                let target = Op::symlink_target(len);
                sys::symlink(OsStr::from_bytes(&target), self.path(path))?;
            }
            Op::Readlink { path } => {
                let target = sys::readlink(self.path(path), Vec::new())?;
                return Ok(Outcome::Bytes(target.into_bytes()));
            }
            Op::Link { from, to } => {
                sys::linkat(sys::CWD, self.path(from), sys::CWD, self.path(to), AtFlags::empty())?;
            }
            Op::Unlink { path } => sys::unlink(self.path(path))?,
            Op::Rmdir { path } => sys::rmdir(self.path(path))?,
            Op::Rename { from, to, how } => {
                let flags = match how {
                    RenameHow::Replace => RenameFlags::empty(),
                    RenameHow::NoReplace => RenameFlags::NOREPLACE,
                    RenameHow::Exchange => RenameFlags::EXCHANGE,
                };
                sys::renameat_with(sys::CWD, self.path(from), sys::CWD, self.path(to), flags)?;
            }
            Op::List { path } => return self.list(path),
            ref other => panic!("{other:?} is no operation on names"),
        }
        Ok(Outcome::Done)
    }

    fn list(&self, path: Path) -> SysResult<Outcome> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = sys::open(self.path(path), flags, SysMode::empty())?;
        let mut entries = BTreeMap::new();
        for entry in sys::Dir::new(fd)? {
            let entry = entry?;
            let kind = Kind::from_mode(entry.file_type().as_raw_mode()).expect("a kind that Linux has");
            if let Ok(name) = Name::new(entry.file_name().to_bytes()) {
                entries.insert(name, kind);
            }
        }
        Ok(Outcome::Entries(entries))
    }

    fn fd(&self, at: At) -> SysResult<Result<&OwnedFd, PathBuf>> {
        match at {
            At::Path(path) => Ok(Err(self.path(path))),
            At::Handle(handle) => self.handles.get(&handle).map(Ok).ok_or(rustix::io::Errno::BADF),
        }
    }

    fn attributes(&self, op: &Op) -> SysResult<Outcome> {
        match *op {
            Op::Stat { at } => {
                let stat = match self.fd(at)? {
                    Ok(fd) => sys::fstat(fd)?,
                    Err(path) => sys::lstat(path)?,
                };
                return Ok(Outcome::Stat(stat_of(&stat)));
            }
            Op::Chmod { at, mode } => match self.fd(at)? {
                Ok(fd) => sys::fchmod(fd, SysMode::from_raw_mode(mode))?,
                Err(path) => {
                    let link = FileType::from_raw_mode(sys::lstat(&path)?.st_mode) == FileType::Symlink;
                    if link {
                        return Err(rustix::io::Errno::OPNOTSUPP);
                    }
                    sys::chmod(path, SysMode::from_raw_mode(mode))?;
                }
            },
            Op::Chown { at, uid, gid } => {
                let (uid, gid) = (uid.map(sys::Uid::from_raw), gid.map(sys::Gid::from_raw));
                match self.fd(at)? {
                    Ok(fd) => sys::fchown(fd, uid, gid)?,
                    Err(path) => sys::chownat(sys::CWD, path, uid, gid, AtFlags::SYMLINK_NOFOLLOW)?,
                }
            }
            Op::Utimens { at, atime, mtime } => {
                let times = Timestamps { last_access: timespec(atime), last_modification: timespec(mtime) };
                match self.fd(at)? {
                    Ok(fd) => sys::futimens(fd, &times)?,
                    Err(path) => sys::utimensat(sys::CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)?,
                }
            }
            Op::Truncate { at, size, kill } => match self.fd(at)? {
                Ok(fd) => without_fsetid(kill, || sys::ftruncate(fd, size))?,
                Err(path) => without_fsetid(kill, || truncate(&path, size))?,
            },
            ref other => panic!("{other:?} is no operation on attributes"),
        }
        Ok(Outcome::Done)
    }

    fn xattr(&mut self, op: &Op, at: At) -> SysResult<Outcome> {
        let mut buffer = std::mem::take(&mut self.buffer);
        let result = self.xattr_into(op, at, &mut buffer);
        self.buffer = buffer;
        result
    }

    fn xattr_into(&self, op: &Op, at: At, buffer: &mut [u8]) -> SysResult<Outcome> {
        let at = self.fd(at)?;
        match *op {
            Op::Setxattr { name, value, how, .. } => {
                let (name, value, flags) = (xattr_name(name), value.bytes(), xattr_flags(how));
                match at {
                    Ok(fd) => sys::fsetxattr(fd, name.as_slice(), &value, flags)?,
                    Err(path) => sys::lsetxattr(path, name.as_slice(), &value, flags)?,
                }
                Ok(Outcome::Done)
            }
            Op::Getxattr { name, .. } => {
                let name = xattr_name(name);
                let len = match at {
                    Ok(fd) => sys::fgetxattr(fd, name.as_slice(), &mut *buffer)?,
                    Err(path) => sys::lgetxattr(path, name.as_slice(), &mut *buffer)?,
                };
                Ok(Outcome::Bytes(buffer[..len].to_vec()))
            }
            Op::Listxattr { .. } => {
                let len = match at {
                    Ok(fd) => sys::flistxattr(fd, &mut *buffer)?,
                    Err(path) => sys::llistxattr(path, &mut *buffer)?,
                };
                let names = buffer[..len].split(|byte| *byte == 0);
                let names: BTreeSet<Vec<u8>> =
                    names.filter(|name| name.starts_with(b"user.")).map(<[u8]>::to_vec).collect();
                Ok(Outcome::Xattrs(names))
            }
            Op::Removexattr { name, .. } => {
                let name = xattr_name(name);
                match at {
                    Ok(fd) => sys::fremovexattr(fd, name.as_slice())?,
                    Err(path) => sys::lremovexattr(path, name.as_slice())?,
                }
                Ok(Outcome::Done)
            }
            ref other => panic!("{other:?} is no operation on extended attributes"),
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.handles.clear();
        // Nothing more can be done about a directory that does not go away.
        let _removed = std::fs::remove_dir_all(&self.root);
    }
}

/// Stands in for `truncate(2)`, which no safe interface offers: the same results and errors.
fn truncate(path: &std::path::Path, size: u64) -> SysResult<()> {
    let kind = FileType::from_raw_mode(sys::lstat(path)?.st_mode);
    if !matches!(kind, FileType::RegularFile | FileType::Directory | FileType::Symlink) {
        return Err(rustix::io::Errno::INVAL);
    }
    sys::ftruncate(sys::open(path, OFlags::WRONLY | OFlags::CLOEXEC, SysMode::empty())?, size)
}

fn data(fd: &OwnedFd, op: &Op) -> SysResult<Outcome> {
    match *op {
        Op::Write { offset, fill, kill, .. } => {
            without_fsetid(kill, || rustix::io::pwrite(fd, &fill.bytes(), offset)).map(Outcome::Written)
        }
        Op::Read { offset, len, .. } => {
            let mut bytes = vec![0; len as usize];
            let count = rustix::io::pread(fd, &mut bytes, offset)?;
            bytes.truncate(count);
            Ok(Outcome::Bytes(bytes))
        }
        Op::Punch { offset, len, kill, .. } => {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            without_fsetid(kill, || sys::fallocate(fd, flags, offset, len)).map(|()| Outcome::Done)
        }
        Op::Allocate { offset, len, keep_size, kill, .. } => {
            let flags = if keep_size { FallocateFlags::KEEP_SIZE } else { FallocateFlags::empty() };
            without_fsetid(kill, || sys::fallocate(fd, flags, offset, len)).map(|()| Outcome::Done)
        }
        // What it changes cannot be seen here; some kinds of file have none.
        Op::Fsync { .. } => Ok(Outcome::Done),
        ref other => panic!("{other:?} is no operation on data"),
    }
}
