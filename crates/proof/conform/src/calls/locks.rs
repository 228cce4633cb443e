//! Locks: fcntl (of processes and of open files) and flock. All without waiting; what waits is a script.
#![allow(unsafe_code)]

use super::Handler;
use crate::errno::Errno;
use crate::scene::{Done, Fault, Value, number, option_number, text};
use crate::step::Step;
use crate::sys::{self, Arg};

pub(super) const VERBS: &[(&str, Handler)] = &[
    ("setlk", |c, s| set(c.fd(s, 0)?, libc::F_SETLK, s)),
    ("getlk", |c, s| get(c.fd(s, 0)?, libc::F_GETLK, s)),
    ("ofd-setlk", |c, s| set(c.fd(s, 0)?, libc::F_OFD_SETLK, s)),
    ("ofd-getlk", |c, s| get(c.fd(s, 0)?, libc::F_OFD_GETLK, s)),
    ("flock", |c, s| {
        sys::call(libc::SYS_flock, &mut [Arg::Int(c.fd(s, 0)?), Arg::Int(number(s, 1)?)])?;
        Ok(Value::Nothing)
    }),
];

/// A lock as `fcntl` takes it.
pub fn record(kind: i32, start: i64, len: i64) -> libc::flock {
    // SAFETY: all fields are numbers, for which zero is a value.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as libc::c_short;
    lock.l_start = start;
    lock.l_len = len;
    lock
}

/// `fcntl` with a lock, which it may fill.
pub fn fcntl(fd: i64, command: i32, lock: &mut libc::flock) -> Result<(), Errno> {
    // SAFETY: the record lives through the call; a number that is no descriptor is refused by the kernel.
    let done = unsafe { libc::fcntl(fd as i32, command, std::ptr::from_mut(lock)) };
    if done == 0 { Ok(()) } else { Err(sys::last()) }
}

/// `VERB FD read|write|none START LEN [whence=]`.
fn parse(step: &Step) -> Result<libc::flock, Fault> {
    let kind = match text(step, 1)? {
        "read" => libc::F_RDLCK,
        "write" => libc::F_WRLCK,
        "none" => libc::F_UNLCK,
        other => return Err(Fault::Table(format!("{other:?} is no kind of lock"))),
    };
    let mut lock = record(kind, number(step, 2)?, number(step, 3)?);
    lock.l_whence = option_number(step, "whence")?.unwrap_or(0) as libc::c_short;
    Ok(lock)
}

fn set(fd: i64, command: i32, step: &Step) -> Done {
    fcntl(fd, command, &mut parse(step)?)?;
    Ok(Value::Nothing)
}

/// `none`, or the lock in the way as `KIND:START:LEN`.
fn get(fd: i64, command: i32, step: &Step) -> Done {
    let mut lock = parse(step)?;
    fcntl(fd, command, &mut lock)?;
    let kind = match i32::from(lock.l_type) {
        libc::F_UNLCK => return Ok(Value::Bytes(b"none".to_vec())),
        libc::F_RDLCK => "read",
        _ => "write",
    };
    Ok(Value::Bytes(format!("{kind}:{}:{}", lock.l_start, lock.l_len).into_bytes()))
}
