//! Calls on names: mkdir, mknod, link, unlink, rename, symlink, readlink, open, close, getdents, chdir, exec.

use super::Handler;
use crate::scene::{Done, Fault, Scene, Value, number, option, option_number, path, text};
use crate::step::Step;
use crate::symbols;
use crate::sys::{self, Arg};
use std::os::fd::{FromRawFd, OwnedFd};

pub(super) const VERBS: &[(&str, Handler)] = &[
    ("mkdir", |_, s| mkdir(libc::AT_FDCWD.into(), s, 0)),
    ("mkdirat", |c, s| mkdir(c.fd(s, 0)?, s, 1)),
    ("mkfifo", |_, s| mknod(libc::AT_FDCWD.into(), s, 0, libc::S_IFIFO | mode(s, 1)?)),
    ("mknod", |_, s| mknod(libc::AT_FDCWD.into(), s, 0, typed(s, 1)? | mode(s, 2)?)),
    ("mknodat", |c, s| mknod(c.fd(s, 0)?, s, 1, typed(s, 2)? | mode(s, 3)?)),
    ("link", |_, s| link(libc::AT_FDCWD.into(), path(s, 0), libc::AT_FDCWD.into(), path(s, 1), 0)),
    ("linkat", |c, s| link(c.fd(s, 0)?, path(s, 1), c.fd(s, 2)?, path(s, 3), number(s, 4)?)),
    ("unlink", |_, s| unlink(libc::AT_FDCWD.into(), path(s, 0), 0)),
    ("rmdir", |_, s| unlink(libc::AT_FDCWD.into(), path(s, 0), libc::AT_REMOVEDIR.into())),
    ("unlinkat", |c, s| unlink(c.fd(s, 0)?, path(s, 1), number(s, 2)?)),
    ("rename", |_, s| rename(libc::AT_FDCWD.into(), path(s, 0), libc::AT_FDCWD.into(), path(s, 1), 0)),
    ("renameat", |c, s| rename(c.fd(s, 0)?, path(s, 1), c.fd(s, 2)?, path(s, 3), 0)),
    ("renameat2", |_, s| {
        rename(libc::AT_FDCWD.into(), path(s, 0), libc::AT_FDCWD.into(), path(s, 1), number(s, 2)?)
    }),
    ("symlink", |_, s| symlink(libc::AT_FDCWD.into(), path(s, 0), path(s, 1))),
    ("symlinkat", |c, s| symlink(c.fd(s, 1)?, path(s, 0), path(s, 2))),
    ("readlink", |_, s| readlink(libc::AT_FDCWD.into(), s, 0)),
    ("readlinkat", |c, s| readlink(c.fd(s, 0)?, s, 1)),
    ("open", |c, s| open(c, libc::AT_FDCWD.into(), s, 0)),
    ("openat", |c, s| {
        let dir = c.fd(s, 0)?;
        open(c, dir, s, 1)
    }),
    ("close", close),
    ("chdir", |_, s| Ok(Value::Number(sys::call(libc::SYS_chdir, &mut [path(s, 0)?.arg()])?))),
    ("getdents", getdents),
    ("umask", |_, s| Ok(Value::Number(sys::call(libc::SYS_umask, &mut [Arg::Int(number(s, 0)?)])?))),
    ("exec", exec),
];

type PathArgument = Result<crate::scene::Path, Fault>;

fn mode(step: &Step, at: usize) -> Result<u32, Fault> {
    u32::try_from(number(step, at)?).map_err(|_| Fault::Table(format!("{:?}: mode out of range", step.text)))
}

fn typed(step: &Step, at: usize) -> Result<u32, Fault> {
    let name = text(step, at)?;
    symbols::kind(name).ok_or_else(|| Fault::Table(format!("{name:?} is no file kind")))
}

fn mkdir(dir: i64, step: &Step, at: usize) -> Done {
    let path = path(step, at)?;
    sys::call(libc::SYS_mkdirat, &mut [Arg::Int(dir), path.arg(), Arg::Int(number(step, at + 1)?)])?;
    Ok(Value::Nothing)
}

fn mknod(dir: i64, step: &Step, at: usize, mode: u32) -> Done {
    let device = match option(step, "dev")? {
        None => 0,
        Some(text) => {
            device_number(text).ok_or_else(|| Fault::Table(format!("dev={text}: not MAJOR:MINOR")))?
        }
    };
    let path = path(step, at)?;
    sys::call(libc::SYS_mknodat, &mut [Arg::Int(dir), path.arg(), Arg::Int(mode.into()), Arg::Int(device)])?;
    Ok(Value::Nothing)
}

/// `MAJOR:MINOR` in the kernel's encoding.
pub(super) fn device_number(text: &str) -> Option<i64> {
    let (major, minor) = text.split_once(':')?;
    let (major, minor) = (major.parse().ok()?, minor.parse().ok()?);
    i64::try_from(libc::makedev(major, minor)).ok()
}

fn link(from_dir: i64, from: PathArgument, to_dir: i64, to: PathArgument, flags: i64) -> Done {
    let (from, to) = (from?, to?);
    sys::call(
        libc::SYS_linkat,
        &mut [Arg::Int(from_dir), from.arg(), Arg::Int(to_dir), to.arg(), Arg::Int(flags)],
    )?;
    Ok(Value::Nothing)
}

fn unlink(dir: i64, path: PathArgument, flags: i64) -> Done {
    sys::call(libc::SYS_unlinkat, &mut [Arg::Int(dir), path?.arg(), Arg::Int(flags)])?;
    Ok(Value::Nothing)
}

fn rename(from_dir: i64, from: PathArgument, to_dir: i64, to: PathArgument, flags: i64) -> Done {
    let (from, to) = (from?, to?);
    sys::call(
        libc::SYS_renameat2,
        &mut [Arg::Int(from_dir), from.arg(), Arg::Int(to_dir), to.arg(), Arg::Int(flags)],
    )?;
    Ok(Value::Nothing)
}

fn symlink(dir: i64, target: PathArgument, path: PathArgument) -> Done {
    let (target, path) = (target?, path?);
    sys::call(libc::SYS_symlinkat, &mut [target.arg(), Arg::Int(dir), path.arg()])?;
    Ok(Value::Nothing)
}

fn readlink(dir: i64, step: &Step, at: usize) -> Done {
    const ROOM: i64 = 8192;
    let path = path(step, at)?;
    let size = option_number(step, "size")?.unwrap_or(ROOM);
    let mut buf = vec![0u8; usize::try_from(size).unwrap_or(0)];
    let got = sys::call(
        libc::SYS_readlinkat,
        &mut [Arg::Int(dir), path.arg(), Arg::Out(&mut buf), Arg::Int(size)],
    )?;
    buf.truncate(usize::try_from(got).unwrap_or(0));
    Ok(Value::Bytes(buf))
}

#[allow(unsafe_code)]
fn open(scene: &mut Scene, dir: i64, step: &Step, at: usize) -> Done {
    let path = path(step, at)?;
    let mode = if step.words.len() > at + 2 { number(step, at + 2)? } else { 0 };
    let flags = number(step, at + 1)? | i64::from(libc::O_CLOEXEC);
    let got = sys::call(libc::SYS_openat, &mut [Arg::Int(dir), path.arg(), Arg::Int(flags), Arg::Int(mode)])?;
    let raw = i32::try_from(got).map_err(|_| Fault::Check(format!("descriptor {got} out of range")))?;
    // SAFETY: the kernel has just returned this descriptor to us and nobody else knows it.
    let fd = unsafe { OwnedFd::from_raw_fd(raw) };
    if let Some(name) = option(step, "as")? {
        scene.fds.insert(name.to_owned(), fd);
    }
    Ok(Value::Nothing)
}

fn close(scene: &mut Scene, step: &Step) -> Done {
    let name = text(step, 0)?;
    if let Some(fd) = scene.fds.remove(name) {
        use std::os::fd::IntoRawFd;
        let raw = fd.into_raw_fd();
        sys::call(libc::SYS_close, &mut [Arg::Int(raw.into())])?;
        return Ok(Value::Nothing);
    }
    let raw = scene.fd(step, 0)?;
    sys::call(libc::SYS_close, &mut [Arg::Int(raw)])?;
    Ok(Value::Nothing)
}

fn getdents(scene: &mut Scene, step: &Step) -> Done {
    const ROOM: i64 = 32 << 10;
    let size = option_number(step, "size")?.unwrap_or(ROOM);
    let mut buf = vec![0u8; usize::try_from(size).unwrap_or(0)];
    let fd = scene.fd(step, 0)?;
    let got = sys::call(libc::SYS_getdents64, &mut [Arg::Int(fd), Arg::Out(&mut buf), Arg::Int(size)])?;
    Ok(Value::Number(got))
}

/// Starts a program file and waits for it; the value is its exit status, an errno is that of `execve`.
fn exec(_: &mut Scene, step: &Step) -> Done {
    let name = format!("./{}", text(step, 0)?);
    let status = std::process::Command::new(name).status();
    match status {
        Ok(status) => Ok(Value::Number(status.code().unwrap_or(-1).into())),
        Err(e) => Err(Fault::Errno(crate::errno::Errno(e.raw_os_error().unwrap_or(0)))),
    }
}
