//! Attributes by system calls: stat, chmod, chown, times, size.

use rustix::fs::{AtFlags, CWD, FileType, Mode, Timespec, Timestamps};
use rustix::io::{Errno, Result};
use rustix::process::{Gid, Uid};
use skep_model::Stat;
use skep_types::{Kind, SetTime, Timestamp};
use std::os::fd::BorrowedFd;
use std::path::Path;

/// A name, never followed, or an open file.
#[derive(Debug, Clone, Copy)]
pub enum Place<'a> {
    Path(&'a Path),
    File(BorrowedFd<'a>),
}

/// What the kernel tells, in the oracle's words, and what the oracle does not know.
#[derive(Debug, Clone, Copy)]
pub struct Found {
    pub stat: Stat,
    pub ino: u64,
    pub mtime: Timestamp,
    pub ctime: Timestamp,
}

pub fn stat(place: Place<'_>) -> Result<Found> {
    let raw = match place {
        Place::Path(path) => rustix::fs::statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW)?,
        Place::File(fd) => rustix::fs::fstat(fd)?,
    };
    let kind = kind_of(FileType::from_raw_mode(raw.st_mode))?;
    let device = matches!(kind, Kind::CharDev | Kind::BlockDev);
    let sized = matches!(kind, Kind::File | Kind::Symlink);
    Ok(Found {
        stat: Stat {
            kind,
            mode: (raw.st_mode & 0o7777) as _,
            nlink: raw.st_nlink as u32,
            uid: raw.st_uid,
            gid: raw.st_gid,
            rdev: if device { raw.st_rdev as u32 } else { 0 },
            size: if sized { raw.st_size as u64 } else { 0 },
        },
        ino: raw.st_ino,
        mtime: Timestamp { secs: raw.st_mtime, nanos: raw.st_mtime_nsec as u32 },
        ctime: Timestamp { secs: raw.st_ctime, nanos: raw.st_ctime_nsec as u32 },
    })
}

pub fn kind_of(file_type: FileType) -> Result<Kind> {
    Ok(match file_type {
        FileType::RegularFile => Kind::File,
        FileType::Directory => Kind::Dir,
        FileType::Symlink => Kind::Symlink,
        FileType::Fifo => Kind::Fifo,
        FileType::Socket => Kind::Socket,
        FileType::CharacterDevice => Kind::CharDev,
        FileType::BlockDevice => Kind::BlockDev,
        FileType::Unknown => return Err(Errno::PROTO),
    })
}

pub fn file_type(kind: Kind) -> FileType {
    match kind {
        Kind::File => FileType::RegularFile,
        Kind::Dir => FileType::Directory,
        Kind::Symlink => FileType::Symlink,
        Kind::Fifo => FileType::Fifo,
        Kind::Socket => FileType::Socket,
        Kind::CharDev => FileType::CharacterDevice,
        Kind::BlockDev => FileType::BlockDevice,
    }
}

pub fn chmod(place: Place<'_>, mode: Mode) -> Result<()> {
    match place {
        Place::File(fd) => rustix::fs::fchmod(fd, mode),
        // The kernel has no chmod that does not follow; what it would answer for a link is known.
        Place::Path(path) => match stat(place)?.stat.kind {
            Kind::Symlink => Err(Errno::OPNOTSUPP),
            _ => rustix::fs::chmod(path, mode),
        },
    }
}

pub fn chown(place: Place<'_>, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
    let (uid, gid) = (uid.map(Uid::from_raw), gid.map(Gid::from_raw));
    match place {
        Place::File(fd) => rustix::fs::fchown(fd, uid, gid),
        Place::Path(path) => rustix::fs::chownat(CWD, path, uid, gid, AtFlags::SYMLINK_NOFOLLOW),
    }
}

pub fn set_times(place: Place<'_>, atime: Option<SetTime>, mtime: Option<SetTime>) -> Result<()> {
    let spec = |time: Option<SetTime>| match time {
        None => Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT as _ },
        Some(SetTime::Now) => Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_NOW as _ },
        Some(SetTime::At(at)) => Timespec { tv_sec: at.secs, tv_nsec: at.nanos.into() },
    };
    let times = Timestamps { last_access: spec(atime), last_modification: spec(mtime) };
    match place {
        Place::File(fd) => rustix::fs::futimens(fd, &times),
        Place::Path(path) => rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW),
    }
}

pub fn truncate(place: Place<'_>, size: u64) -> Result<()> {
    match place {
        Place::File(fd) => rustix::fs::ftruncate(fd, size),
        Place::Path(path) => truncate_path(path, size),
    }
}

// rustix has no `truncate`, and opening first is another call with other effects on mtime.
#[allow(unsafe_code)]
fn truncate_path(path: &Path, size: u64) -> Result<()> {
    use std::os::unix::ffi::OsStrExt;
    let path = std::ffi::CString::new(path.as_os_str().as_bytes()).map_err(|_| Errno::INVAL)?;
    // SAFETY: the path is a C string that lives until the call returns.
    let done = unsafe { libc::truncate(path.as_ptr(), size as libc::off_t) };
    if done == 0 {
        return Ok(());
    }
    let error = std::io::Error::last_os_error();
    Err(Errno::from_io_error(&error).unwrap_or(Errno::IO))
}
