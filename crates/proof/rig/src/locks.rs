//! Locks by system calls, owned by the open file.
#![allow(unsafe_code)]

use rustix::fs::FlockOperation;
use rustix::io::{Errno, Result};
use skep_model::{LOCK_END, LockFound, LockSpace};
use std::os::fd::{AsRawFd, BorrowedFd};

/// Takes a lock, or gives it up, without waiting.
pub fn set(
    file: BorrowedFd<'_>,
    space: LockSpace,
    exclusive: Option<bool>,
    (start, last): (u64, u64),
) -> Result<()> {
    if space == LockSpace::Range {
        return range(file, libc::F_OFD_SETLK, exclusive, (start, last)).map(drop);
    }
    let operation = match exclusive {
        None => FlockOperation::Unlock,
        Some(true) => FlockOperation::NonBlockingLockExclusive,
        Some(false) => FlockOperation::NonBlockingLockShared,
    };
    rustix::fs::flock(file, operation)
}

/// The lock that stands in the way of one.
pub fn test(file: BorrowedFd<'_>, exclusive: bool, range_: (u64, u64)) -> Result<Option<LockFound>> {
    let found = range(file, libc::F_OFD_GETLK, Some(exclusive), range_)?;
    if found.l_type == libc::F_UNLCK as libc::c_short {
        return Ok(None);
    }
    let start = found.l_start as u64;
    let last = if found.l_len == 0 { LOCK_END } else { start + found.l_len as u64 - 1 };
    Ok(Some(LockFound { exclusive: found.l_type == libc::F_WRLCK as libc::c_short, start, last }))
}

fn range(
    file: BorrowedFd<'_>,
    command: libc::c_int,
    exclusive: Option<bool>,
    (start, last): (u64, u64),
) -> Result<libc::flock> {
    let kind = match exclusive {
        None => libc::F_UNLCK,
        Some(true) => libc::F_WRLCK,
        Some(false) => libc::F_RDLCK,
    };
    let len = if last >= LOCK_END { 0 } else { last - start + 1 };
    // SAFETY: all fields are numbers, for which zero is a value.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock.l_start = start as libc::off_t;
    lock.l_len = len as libc::off_t;
    // SAFETY: the descriptor is open for as long as it is borrowed, and the record outlives the call.
    let done = unsafe { libc::fcntl(file.as_raw_fd(), command, &raw mut lock) };
    if done == 0 {
        return Ok(lock);
    }
    Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO))
}
