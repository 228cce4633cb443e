//! Assertions: what must hold after the call under test.

use super::Handler;
use crate::errno::Errno;
use crate::scene::{Done, Fault, Scene, Value, bytes, lstat, option, path, text};
use crate::step::{Step, Word, show};
use crate::symbols;
use crate::sys::{self, Arg, Stat, Time};
use crate::users;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

const CWD: i64 = libc::AT_FDCWD as i64;

pub(super) const VERBS: &[(&str, Handler)] = &[
    ("stat", |_, s| compare(s, &sys::statx(CWD, path(s, 0)?.arg(), 0)?)),
    ("lstat", |_, s| compare(s, &sys::statx(CWD, path(s, 0)?.arg(), libc::AT_SYMLINK_NOFOLLOW)?)),
    ("fstat", |c, s| compare(s, &fstat(c.fd(s, 0)?)?)),
    ("fstatat", |c, s| {
        let dir = c.fd(s, 0)?;
        let flags = i32::try_from(crate::scene::number(s, 2)?).unwrap_or(0);
        compare(s, &sys::statx(dir, path(s, 1)?.arg(), flags)?)
    }),
    ("moved", |c, s| stamps(c, s, true)),
    ("kept", |c, s| stamps(c, s, false)),
    ("list", list),
    ("content", content),
    ("absent", absent),
    ("same", |_, s| identity(s, true)),
    ("differ", |_, s| identity(s, false)),
    ("near-now", near_now),
];

fn fstat(fd: i64) -> Result<Stat, Errno> {
    let empty = c"".to_owned();
    sys::statx(fd, Arg::Text(&empty), libc::AT_EMPTY_PATH)
}

/// Compares the fields that the step names: `type mode uid gid size nlink rdev blocks mtime atime`.
fn compare(step: &Step, stat: &Stat) -> Done {
    for key in step.options.keys() {
        let want = option(step, key)?.unwrap_or_default();
        let wrong = || Fault::Table(format!("{key}={want} in {:?}", step.text));
        let id = || users::id(want).map(u64::from).ok_or_else(wrong);
        let count = || symbols::number(want).and_then(|n| u64::try_from(n).ok()).ok_or_else(wrong);
        let (holds, found) = match key.as_str() {
            "type" => {
                let name = symbols::kind_name(stat.mode);
                (name == want, name.to_owned())
            }
            "mode" => {
                let bits = stat.mode & 0o7777;
                (u64::from(bits) == count()?, format!("{bits:05o}"))
            }
            "uid" => (u64::from(stat.uid) == id()?, stat.uid.to_string()),
            "gid" => (u64::from(stat.gid) == id()?, stat.gid.to_string()),
            "size" => (stat.size == count()?, stat.size.to_string()),
            "nlink" => (u64::from(stat.nlink) == count()?, stat.nlink.to_string()),
            "blocks" => (stat.blocks == count()?, stat.blocks.to_string()),
            "maxblocks" => (stat.blocks <= count()?, stat.blocks.to_string()),
            "minblocks" => (stat.blocks >= count()?, stat.blocks.to_string()),
            "rdev" => {
                let found = format!("{}:{}", stat.rdev.0, stat.rdev.1);
                (found == want, found)
            }
            "mtime" => (time(want).ok_or_else(wrong)? == stat.mtime, format!("{:?}", stat.mtime)),
            "atime" => (time(want).ok_or_else(wrong)? == stat.atime, format!("{:?}", stat.atime)),
            _ => return Err(wrong()),
        };
        if !holds {
            return Err(Fault::Check(format!("{key} is {found}, not {want}")));
        }
    }
    Ok(Value::Nothing)
}

fn time(text: &str) -> Option<Time> {
    let (sec, nsec) = text.split_once('.')?;
    Some(Time { sec: sec.parse().ok()?, nsec: nsec.parse().ok()? })
}

fn stamp(stat: &Stat, name: &str) -> Option<Time> {
    match name {
        "atime" => Some(stat.atime),
        "mtime" => Some(stat.mtime),
        "ctime" => Some(stat.ctime),
        _ => None,
    }
}

fn stamps(scene: &Scene, step: &Step, moved: bool) -> Done {
    let path = bytes(step, 0)?;
    let now = lstat(path)?;
    let before = scene
        .before
        .get(path)
        .ok_or_else(|| Fault::Table(format!("{} did not stand before the call", show(path))))?;
    for at in 1..step.words.len() {
        let name = text(step, at)?;
        let (Some(was), Some(is)) = (stamp(before, name), stamp(&now, name)) else {
            return Err(Fault::Table(format!("{name:?} is no time stamp")));
        };
        if moved && is <= was {
            return Err(Fault::Check(format!("{name} did not move forward: {was:?}, then {is:?}")));
        }
        if !moved && is != was {
            return Err(Fault::Check(format!("{name} moved: {was:?}, then {is:?}")));
        }
    }
    Ok(Value::Nothing)
}

/// `near-now PATH atime mtime`: the stamps lie within ten seconds of this machine's clock.
fn near_now(_: &mut Scene, step: &Step) -> Done {
    const SLACK: u64 = 10;
    let stat = lstat(bytes(step, 0)?)?;
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime).tv_sec;
    for at in 1..step.words.len() {
        let name = text(step, at)?;
        let is = stamp(&stat, name).ok_or_else(|| Fault::Table(format!("{name:?} is no time stamp")))?;
        if is.sec.abs_diff(now) > SLACK {
            return Err(Fault::Check(format!("{name} is {is:?}, the clock says {now} s")));
        }
    }
    Ok(Value::Nothing)
}

/// `list DIR NAME...`: exactly these names, each once, beside `.` and `..`.
fn list(_: &mut Scene, step: &Step) -> Done {
    let dir = std::ffi::OsStr::from_bytes(bytes(step, 0)?);
    let errno = |e: std::io::Error| Fault::Errno(Errno(e.raw_os_error().unwrap_or(0)));
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(errno)? {
        found.push(entry.map_err(errno)?.file_name().into_vec());
    }
    found.sort();
    let mut want: Vec<Vec<u8>> = Vec::new();
    for word in &step.words[1..] {
        if let Word::Bytes(b) = word {
            want.push(b.clone());
        }
    }
    want.sort();
    if found == want {
        return Ok(Value::Nothing);
    }
    let names = found.iter().map(|n| show(n)).collect::<Vec<_>>().join(" ");
    Err(Fault::Check(format!("the directory lists {names}")))
}

/// `content PATH DATA`: the whole content, zero bytes written as the digit 0.
fn content(_: &mut Scene, step: &Step) -> Done {
    let name = std::ffi::OsStr::from_bytes(bytes(step, 0)?);
    let want = bytes(step, 1)?;
    let mut found = std::fs::read(name).map_err(|e| Errno(e.raw_os_error().unwrap_or(0)))?;
    for byte in found.iter_mut().filter(|b| **b == 0) {
        *byte = b'0';
    }
    if found == want {
        return Ok(Value::Nothing);
    }
    let differs = found.iter().zip(want).position(|(a, b)| a != b).unwrap_or(found.len().min(want.len()));
    Err(Fault::Check(format!("content is {}, differs from byte {differs} on", show(&found))))
}

fn absent(_: &mut Scene, step: &Step) -> Done {
    match lstat(bytes(step, 0)?) {
        Err(Errno(libc::ENOENT)) => Ok(Value::Nothing),
        Err(other) => Err(Fault::Errno(other)),
        Ok(stat) => Err(Fault::Check(format!("there is a {}", symbols::kind_name(stat.mode)))),
    }
}

fn identity(step: &Step, same: bool) -> Done {
    let (a, b) = (lstat(bytes(step, 0)?)?, lstat(bytes(step, 1)?)?);
    if (a.ino == b.ino) == same {
        Ok(Value::Nothing)
    } else {
        Err(Fault::Check(format!("inode numbers are {} and {}", a.ino, b.ino)))
    }
}
