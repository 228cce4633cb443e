//! Histories of the oracle by system calls, as `skep_model::Op` says how.

use crate::attributes::{self, Place};
use crate::{extended, locks};
use rustix::fs::{AtFlags, CWD, FallocateFlags, Mode, OFlags, RenameFlags, SeekFrom};
use rustix::io::{Errno, Result};
use rustix::process::Gid;
use rustix::thread::CapabilitySet;
use skep_model::{At, Handle, Op, OpenHow, Outcome, Path as Names, RenameHow, acl_value, xattr_name};
use skep_types::{Kind, Name, Timestamp};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Groups that histories give files to. Whoever is no member loses sgid in other places than the oracle.
const GROUPS: [u32; 3] = [0, 1000, 1001];

/// What is reported when a directory shows a name twice: no number of Linux.
const TWICE: skep_types::Errno = skep_types::Errno(u16::MAX);

/// Carries out a history below one directory. Needs root, and a thread of its own: `umask`, groups and
/// capabilities of the caller are changed.
#[derive(Debug)]
pub struct Driver {
    base: PathBuf,
    files: BTreeMap<Handle, OwnedFd>,
}

impl Driver {
    /// In `base`, which exists and is empty.
    pub fn new(base: impl Into<PathBuf>) -> Result<Self> {
        rustix::process::umask(Mode::empty());
        rustix::thread::set_thread_groups(&GROUPS.map(Gid::from_raw))?;
        Ok(Self { base: base.into(), files: BTreeMap::new() })
    }

    /// The directory.
    pub fn base(&self) -> &Path {
        &self.base
    }

    /// When an open handle was last changed: its content, and itself.
    pub fn times_of(&self, handle: Handle) -> Result<(Timestamp, Timestamp)> {
        let found = attributes::stat(Place::File(self.file(handle)?))?;
        Ok((found.mtime, found.ctime))
    }

    /// Handles that are open, so that both sides can close them.
    pub fn open_handles(&self) -> Vec<Handle> {
        self.files.keys().copied().collect()
    }

    /// Closes everything without waiting for anybody's opinion.
    pub fn forget_handles(&mut self) {
        self.files.clear();
    }

    /// Carries out one operation.
    pub fn apply(&mut self, op: &Op) -> Outcome {
        match *op {
            Op::Open { path, handle, how, mode, kill } => {
                outcome(self.open(&self.path(path), handle, how, (mode_of(mode), kill)))
            }
            Op::Close { handle } => match self.files.remove(&handle) {
                Some(file) => outcome(close(file)),
                None => outcome::<()>(Err(Errno::BADF)),
            },
            Op::OpenTemp { path, handle, mode, exclusive } => {
                outcome(self.open_temp(&self.path(path), handle, mode_of(mode), exclusive))
            }
            Op::List { path } => self.list(&self.path(path)),
            Op::Write { .. } | Op::Read { .. } | Op::Copy { .. } | Op::Seek { .. } | Op::Fsync { .. } => {
                self.data(op)
            }
            Op::Punch { .. } | Op::Allocate { .. } | Op::Zero { .. } => outcome(self.fallocate(op)),
            Op::Lock { handle, space, exclusive, start, last } => {
                outcome(self.file(handle).and_then(|file| locks::set(file, space, exclusive, (start, last))))
            }
            Op::TestLock { handle, exclusive, start, last } => {
                let found = self.file(handle).and_then(|file| locks::test(file, exclusive, (start, last)));
                found.map_or_else(|e| outcome::<()>(Err(e)), Outcome::Conflict)
            }
            Op::Stat { .. }
            | Op::Chmod { .. }
            | Op::Chown { .. }
            | Op::Utimens { .. }
            | Op::Truncate { .. } => self.attribute(op),
            Op::Setxattr { .. } | Op::Getxattr { .. } | Op::Listxattr { .. } | Op::Removexattr { .. } => {
                self.extended(op)
            }
            Op::SetAcl { .. } | Op::GetAcl { .. } | Op::RemoveAcl { .. } => self.acl(op),
            _ => self.name(op),
        }
    }

    fn path(&self, names: Names) -> PathBuf {
        names.names().fold(self.base.clone(), |path, name| path.join(OsStr::from_bytes(name)))
    }

    fn file(&self, handle: Handle) -> Result<BorrowedFd<'_>> {
        self.files.get(&handle).map(AsFd::as_fd).ok_or(Errno::BADF)
    }

    /// Calls `call` with the place that `at` names.
    fn at<T>(&self, at: At, call: impl FnOnce(Place<'_>) -> Result<T>) -> Result<T> {
        match at {
            At::Path(path) => call(Place::Path(&self.path(path))),
            At::Handle(handle) => call(Place::File(self.file(handle)?)),
        }
    }

    fn open(&mut self, path: &Path, handle: Handle, how: OpenHow, (mode, kill): (Mode, bool)) -> Result<()> {
        if self.files.contains_key(&handle) {
            return Err(Errno::MFILE);
        }
        let special = |kind| !matches!(kind, Kind::File | Kind::Dir | Kind::Symlink);
        let found = attributes::stat(Place::Path(path));
        if found.is_ok_and(|found| special(found.stat.kind)) && !(how.create && how.exclusive) {
            return Err(Errno::NXIO);
        }
        let access = match (how.read, how.write) {
            (_, false) => OFlags::RDONLY,
            (true, true) => OFlags::RDWR,
            (false, true) => OFlags::WRONLY,
        };
        let wanted = [
            (how.append, OFlags::APPEND),
            (how.truncate, OFlags::TRUNC),
            (how.create, OFlags::CREATE),
            (how.exclusive, OFlags::EXCL),
        ];
        let flags = access | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let flags = wanted.iter().filter(|(wanted, _)| *wanted).fold(flags, |flags, (_, flag)| flags | *flag);
        // Creating clears nothing: only the cut of a file that is there does.
        let file = as_caller(kill && how.truncate && found.is_ok(), || rustix::fs::open(path, flags, mode))?;
        self.files.insert(handle, file);
        Ok(())
    }

    fn open_temp(&mut self, path: &Path, handle: Handle, mode: Mode, exclusive: bool) -> Result<()> {
        if self.files.contains_key(&handle) {
            return Err(Errno::MFILE);
        }
        let mut flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        flags.set(OFlags::EXCL, exclusive);
        self.files.insert(handle, rustix::fs::open(path, flags, mode)?);
        Ok(())
    }

    fn name(&self, op: &Op) -> Outcome {
        match *op {
            Op::Mkdir { path, mode } => outcome(rustix::fs::mkdir(self.path(path), mode_of(mode))),
            Op::Mknod { path, kind, mode, rdev } => {
                let file_type = attributes::file_type(kind);
                outcome(rustix::fs::mknodat(CWD, self.path(path), file_type, mode_of(mode), rdev.into()))
            }
            Op::Symlink { path, len } => {
                outcome(rustix::fs::symlink(OsStr::from_bytes(&Op::symlink_target(len)), self.path(path)))
            }
            Op::Readlink { path } => {
                outcome(rustix::fs::readlink(self.path(path), Vec::new()).map(|target| target.into_bytes()))
            }
            Op::Link { from, to } => {
                outcome(rustix::fs::linkat(CWD, self.path(from), CWD, self.path(to), AtFlags::empty()))
            }
            Op::LinkHandle { handle, to } => outcome(self.file(handle).and_then(|file| {
                let source = format!("/proc/self/fd/{}", file.as_raw_fd());
                rustix::fs::linkat(CWD, source, CWD, self.path(to), AtFlags::SYMLINK_FOLLOW)
            })),
            Op::Unlink { path } => outcome(rustix::fs::unlink(self.path(path))),
            Op::Rmdir { path } => outcome(rustix::fs::rmdir(self.path(path))),
            Op::Rename { from, to, how } => {
                let flags = match how {
                    RenameHow::Replace => RenameFlags::empty(),
                    RenameHow::NoReplace => RenameFlags::NOREPLACE,
                    RenameHow::Exchange => RenameFlags::EXCHANGE,
                };
                outcome(rustix::fs::renameat_with(CWD, self.path(from), CWD, self.path(to), flags))
            }
            _ => outcome::<()>(Err(Errno::NOSYS)),
        }
    }

    fn list(&self, path: &Path) -> Outcome {
        match list(path) {
            Ok(Some(entries)) => entries.into(),
            Ok(None) => Outcome::Failed(TWICE),
            Err(e) => outcome::<()>(Err(Errno::from_io_error(&e).unwrap_or(Errno::PROTO))),
        }
    }

    fn data(&self, op: &Op) -> Outcome {
        match *op {
            Op::Write { handle, offset, fill, kill } => {
                let bytes = fill.bytes();
                outcome(
                    self.file(handle)
                        .and_then(|file| as_caller(kill, || rustix::io::pwrite(file, &bytes, offset))),
                )
            }
            Op::Read { handle, offset, len } => {
                let mut bytes = vec![0; len as usize];
                let read = self.file(handle).and_then(|file| rustix::io::pread(file, &mut *bytes, offset));
                outcome(read.map(|count| {
                    bytes.truncate(count);
                    bytes
                }))
            }
            Op::Copy { from, from_offset, to, offset, len, kill } => {
                outcome(as_caller(kill, || self.copy((from, from_offset), (to, offset), len as usize)))
            }
            Op::Seek { handle, offset, hole } => match self.seek(handle, offset, hole) {
                Ok(offset) => Outcome::Offset(offset),
                Err(e) => outcome::<()>(Err(e)),
            },
            Op::Fsync { handle } => outcome(self.file(handle).and_then(rustix::fs::fsync)),
            _ => outcome::<()>(Err(Errno::NOSYS)),
        }
    }

    fn fallocate(&self, op: &Op) -> Result<()> {
        let keep = |keep| if keep { FallocateFlags::KEEP_SIZE } else { FallocateFlags::empty() };
        let (flags, handle, offset, len, kill) = match *op {
            Op::Punch { handle, offset, len, kill } => {
                (FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, handle, offset, len, kill)
            }
            Op::Allocate { handle, offset, len, keep_size, kill } => {
                (keep(keep_size), handle, offset, len, kill)
            }
            Op::Zero { handle, offset, len, keep_size, kill } => {
                (FallocateFlags::ZERO_RANGE | keep(keep_size), handle, offset, len, kill)
            }
            _ => return Err(Errno::NOSYS),
        };
        let file = self.file(handle)?;
        as_caller(kill, || rustix::fs::fallocate(file, flags, offset, len))
    }

    /// Follows short answers to the end that the source had at first: a copy within a file makes it grow.
    fn copy(
        &self,
        (from, mut from_offset): (Handle, u64),
        (to, mut offset): (Handle, u64),
        len: usize,
    ) -> Result<usize> {
        let (source, copy) = (self.file(from)?, self.file(to)?);
        let size = attributes::stat(Place::File(source))?.stat.size;
        let has = size.saturating_sub(from_offset);
        let mut done = 0;
        loop {
            let left = len - done;
            match rustix::fs::copy_file_range(source, Some(&mut from_offset), copy, Some(&mut offset), left)?
            {
                0 => return Ok(done),
                part => done += part,
            }
            if done as u64 >= has.min(len as u64) {
                return Ok(done);
            }
        }
    }

    fn seek(&self, handle: Handle, offset: u64, hole: bool) -> Result<u64> {
        let file = self.file(handle)?;
        if attributes::stat(Place::File(file))?.stat.kind == Kind::Dir {
            return Err(Errno::ISDIR);
        }
        rustix::fs::seek(file, if hole { SeekFrom::Hole(offset) } else { SeekFrom::Data(offset) })
    }

    fn attribute(&self, op: &Op) -> Outcome {
        match *op {
            Op::Stat { at } => outcome(self.at(at, attributes::stat).map(|found| found.stat)),
            Op::Chmod { at, mode } => outcome(self.at(at, |place| attributes::chmod(place, mode_of(mode)))),
            Op::Chown { at, uid, gid } => outcome(self.at(at, |place| attributes::chown(place, uid, gid))),
            Op::Utimens { at, atime, mtime } => {
                outcome(self.at(at, |place| attributes::set_times(place, atime, mtime)))
            }
            Op::Truncate { at, size, kill } => {
                outcome(self.at(at, |place| as_caller(kill, || attributes::truncate(place, size))))
            }
            _ => outcome::<()>(Err(Errno::NOSYS)),
        }
    }

    fn extended(&self, op: &Op) -> Outcome {
        match *op {
            Op::Setxattr { at, name, value, how } => {
                outcome(self.at(at, |place| extended::set(place, &xattr_name(name), &value.bytes(), how)))
            }
            Op::Getxattr { at, name } => {
                outcome(self.at(at, |place| extended::get(place, &xattr_name(name))))
            }
            Op::Removexattr { at, name } => {
                outcome(self.at(at, |place| extended::remove(place, &xattr_name(name))))
            }
            Op::Listxattr { at } => outcome(self.at(at, extended::list)),
            _ => outcome::<()>(Err(Errno::NOSYS)),
        }
    }

    fn acl(&self, op: &Op) -> Outcome {
        use skep_model::XattrHow::Set;
        match *op {
            Op::SetAcl { at, default, value } => {
                outcome(self.at(at, |place| extended::set(place, acl_name(default), &acl_value(value), Set)))
            }
            Op::GetAcl { at, default } => {
                outcome(self.at(at, |place| extended::get(place, acl_name(default))))
            }
            Op::RemoveAcl { at, default } => {
                outcome(self.at(at, |place| extended::remove(place, acl_name(default))))
            }
            _ => outcome::<()>(Err(Errno::NOSYS)),
        }
    }
}

fn acl_name(default: bool) -> &'static [u8] {
    if default { b"system.posix_acl_default" } else { b"system.posix_acl_access" }
}

/// Runs `call` without the right to keep suid and sgid where `kill` says so.
fn as_caller<T>(kill: bool, call: impl FnOnce() -> Result<T>) -> Result<T> {
    if !kill {
        return call();
    }
    let all = rustix::thread::capabilities(None)?;
    let mut fewer = all;
    fewer.effective.remove(CapabilitySet::FSETID);
    rustix::thread::set_capabilities(None, fewer)?;
    let result = call();
    rustix::thread::set_capabilities(None, all)?;
    result
}

/// Errors of close are those of the last flush, which `OwnedFd` would swallow.
#[allow(unsafe_code)]
fn close(file: OwnedFd) -> Result<()> {
    use std::os::fd::IntoRawFd;
    // SAFETY: the descriptor was owned here alone, and is not used afterwards.
    let done = unsafe { libc::close(file.into_raw_fd()) };
    if done == 0 {
        return Ok(());
    }
    Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO))
}

fn mode_of(mode: skep_types::Mode) -> Mode {
    Mode::from_raw_mode(mode)
}

/// Names and kinds; `None` when a name is shown twice.
fn list(path: &Path) -> std::io::Result<Option<BTreeMap<Name, Kind>>> {
    let mut entries = BTreeMap::new();
    for entry in std::fs::read_dir(path)? {
        let entry = entry?;
        let name = Name::new(entry.file_name().as_bytes())
            .map_err(|_| std::io::Error::from(std::io::ErrorKind::InvalidData))?;
        if entries.insert(name, kind_of(entry.file_type()?)).is_some() {
            return Ok(None);
        }
    }
    Ok(Some(entries))
}

/// What a directory entry says of its kind.
fn kind_of(kind: std::fs::FileType) -> Kind {
    use std::os::unix::fs::FileTypeExt;
    match () {
        () if kind.is_file() => Kind::File,
        () if kind.is_dir() => Kind::Dir,
        () if kind.is_symlink() => Kind::Symlink,
        () if kind.is_fifo() => Kind::Fifo,
        () if kind.is_socket() => Kind::Socket,
        () if kind.is_char_device() => Kind::CharDev,
        () => Kind::BlockDev,
    }
}

fn outcome<T: Into<Outcome>>(result: Result<T>) -> Outcome {
    result.map_err(|errno| skep_types::Errno(errno.raw_os_error() as u16)).into()
}
