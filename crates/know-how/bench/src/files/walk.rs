//! A walk over a tree as find does it: a directory is listed, then its entries are visited.

use crate::engine::{Trouble, entries, ground};
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Directories deeper than this are not walked: each level holds a descriptor.
const MAX_DEPTH: usize = 200;

/// What was found: the directory that holds it, its name there and its path.
pub(super) enum Found<'a> {
    File(&'a OwnedFd, &'a CStr, &'a Path),
    /// A directory, before what is in it.
    Directory(&'a OwnedFd, &'a CStr, &'a Path),
    /// The same, after what is in it.
    Left(&'a OwnedFd, &'a CStr, &'a Path),
}

/// Walks over what is below a directory; nothing there: nothing to walk over.
pub(super) fn walk(
    top: &Path,
    visit: &mut dyn FnMut(Found<'_>) -> Result<(), Trouble>,
) -> Result<(), Trouble> {
    match ground::open(top, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()) {
        Ok(fd) => below(&fd, top, visit, 0),
        Err(rustix::io::Errno::NOENT) => Ok(()),
        Err(errno) => Err(Trouble::call("open", top, errno)),
    }
}

fn below(
    fd: &OwnedFd,
    here: &Path,
    visit: &mut dyn FnMut(Found<'_>) -> Result<(), Trouble>,
    depth: usize,
) -> Result<(), Trouble> {
    if depth > MAX_DEPTH {
        return Err(Trouble::found("walk", here, format!("deeper than {MAX_DEPTH} levels")));
    }
    for (name, kind) in entries(fd).map_err(|errno| Trouble::call("list", here, errno))? {
        let path = here.join(OsStr::from_bytes(name.to_bytes()));
        let kind = match kind {
            FileType::Unknown => {
                let stat = rustix::fs::statat(fd, &name, AtFlags::SYMLINK_NOFOLLOW)
                    .map_err(|errno| Trouble::call("stat", &path, errno))?;
                FileType::from_raw_mode(stat.st_mode)
            }
            kind => kind,
        };
        if kind != FileType::Directory {
            visit(Found::File(fd, &name, &path))?;
            continue;
        }
        visit(Found::Directory(fd, &name, &path))?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let child = rustix::fs::openat(fd, &name, flags, Mode::empty())
            .map_err(|errno| Trouble::call("open", &path, errno))?;
        below(&child, &path, visit, depth + 1)?;
        drop(child);
        visit(Found::Left(fd, &name, &path))?;
    }
    Ok(())
}
