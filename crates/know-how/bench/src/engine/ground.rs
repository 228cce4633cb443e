//! The way to files and directories: no link is followed on it, so that nothing but what a path names is
//! touched. The job's own paths are freed of links before ([`super::volume::settle`]).

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;
use std::cell::RefCell;
use std::ffi::OsStr;
use std::path::{Component, Path, PathBuf};
use std::rc::Rc;

const DIRECTORY: OFlags = OFlags::PATH.union(OFlags::DIRECTORY);

thread_local! {
    /// The directory that was worked in last: items come directory by directory.
    static LAST: RefCell<Option<(PathBuf, Rc<OwnedFd>)>> = const { RefCell::new(None) };
}

/// Forgets the directory that was worked in last; it may be another one by now.
pub(crate) fn forget() {
    LAST.with(|last| *last.borrow_mut() = None);
}

/// Opens; a link anywhere in the path is ELOOP.
pub(crate) fn open(path: &Path, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
    open_at(CWD, path, flags, mode)
}

/// The same from a directory on.
pub(crate) fn open_at(at: impl AsFd, path: &Path, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
    let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    // A mode without O_CREAT is EINVAL here.
    let mode = if flags.contains(OFlags::CREATE) { mode } else { Mode::empty() };
    match rustix::fs::openat2(&at, path, flags, mode, ResolveFlags::NO_SYMLINKS) {
        // Kernels before 5.6.
        Err(Errno::NOSYS) => step_by_step(at, path, flags, mode),
        other => other,
    }
}

fn step_by_step(at: impl AsFd, path: &Path, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
    let step = OFlags::NOFOLLOW | OFlags::CLOEXEC | DIRECTORY;
    let start = if path.is_absolute() { Path::new("/") } else { Path::new(".") };
    let mut here = rustix::fs::openat(at, start, step, Mode::empty())?;
    let mut names =
        path.components().filter(|part| matches!(part, Component::Normal(_) | Component::ParentDir));
    let mut name = names.next();
    while let Some(part) = name {
        name = names.next();
        match (part, name) {
            (Component::ParentDir, _) => return Err(Errno::INVAL),
            (part, None) => return rustix::fs::openat(&here, part.as_os_str(), flags, mode),
            (part, Some(_)) => here = rustix::fs::openat(&here, part.as_os_str(), step, Mode::empty())?,
        }
    }
    rustix::fs::openat(&here, ".", flags, mode)
}

/// The directory that holds it, and its name there.
pub(crate) fn parent(path: &Path) -> Result<(Rc<OwnedFd>, &OsStr), Errno> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Err(Errno::INVAL) };
    LAST.with(|last| {
        let mut last = last.borrow_mut();
        if let Some((known, fd)) = last.as_ref().filter(|(known, _)| known.as_os_str() == parent.as_os_str())
        {
            let _ = known;
            return Ok((Rc::clone(fd), name));
        }
        let fd = Rc::new(open(parent, DIRECTORY, Mode::empty())?);
        *last = Some((parent.to_owned(), Rc::clone(&fd)));
        Ok((fd, name))
    })
}

pub(crate) fn mkdir(path: &Path) -> Result<(), Errno> {
    let (dir, name) = parent(path)?;
    rustix::fs::mkdirat(dir, name, Mode::from_raw_mode(0o755))
}

pub(crate) fn rmdir(path: &Path) -> Result<(), Errno> {
    let (dir, name) = parent(path)?;
    rustix::fs::unlinkat(dir, name, AtFlags::REMOVEDIR)
}

pub(crate) fn unlink(path: &Path) -> Result<(), Errno> {
    let (dir, name) = parent(path)?;
    rustix::fs::unlinkat(dir, name, AtFlags::empty())
}

pub(crate) fn rename(from: &Path, to: &Path) -> Result<(), Errno> {
    let (from_dir, from) = parent(from)?;
    let (to_dir, to) = parent(to)?;
    rustix::fs::renameat(from_dir, from, to_dir, to)
}

/// lstat.
pub(crate) fn stat(path: &Path) -> Result<Stat, Errno> {
    let (dir, name) = parent(path)?;
    rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a link at the end of a path and one on its way are refused by every call, on new kernels and old.
    #[test]
    fn no_link_is_followed() {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().canonicalize().unwrap();
        std::fs::create_dir(top.join("real")).unwrap();
        std::fs::write(top.join("real/file"), "x").unwrap();
        std::os::unix::fs::symlink(top.join("real"), top.join("link")).unwrap();
        std::os::unix::fs::symlink(top.join("real/file"), top.join("file-link")).unwrap();
        open(&top.join("real/file"), OFlags::RDONLY, Mode::empty()).unwrap();
        let (read, none) = (OFlags::RDONLY, Mode::empty());
        step_by_step(CWD, &top.join("real/file"), read, none).unwrap();
        for path in ["link/file", "file-link"] {
            let path = top.join(path);
            assert_eq!(open(&path, read, none).unwrap_err(), Errno::LOOP);
            let flags = read | OFlags::NOFOLLOW;
            let error = step_by_step(CWD, &path, flags, none).unwrap_err();
            assert!(matches!(error, Errno::LOOP | Errno::NOTDIR), "{error}");
        }
        let through = top.join("link/file");
        let calls =
            [unlink(&through), rmdir(&through), mkdir(&top.join("link/new")), stat(&through).map(drop)];
        for call in calls {
            assert!(matches!(call, Err(Errno::LOOP | Errno::NOTDIR)), "{call:?}");
        }
        assert!(rename(&top.join("real/file"), &top.join("link/new")).is_err());
        assert!(top.join("real/file").exists());
    }
}
