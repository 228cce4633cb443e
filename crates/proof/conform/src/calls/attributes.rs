//! Calls on attributes: chmod, chown, utimensat, truncate, access, extended attributes, statfs.

use super::Handler;
use crate::scene::{Done, Fault, Path, Value, number, option, option_number, owner, path, text};
use crate::step::{Step, Word};
use crate::sys::{self, Arg};

const CWD: i64 = libc::AT_FDCWD as i64;
const NOFOLLOW: i64 = libc::AT_SYMLINK_NOFOLLOW as i64;

pub(super) const VERBS: &[(&str, Handler)] = &[
    ("chmod", |_, s| chmod(CWD, s, 0)),
    ("fchmodat", |c, s| chmod(c.fd(s, 0)?, s, 1)),
    ("fchmod", |c, s| plain(libc::SYS_fchmod, &mut [Arg::Int(c.fd(s, 0)?), Arg::Int(number(s, 1)?)])),
    ("chown", |_, s| chown(CWD, s, 0, 0)),
    ("lchown", |_, s| chown(CWD, s, 0, NOFOLLOW)),
    ("fchownat", |c, s| chown(c.fd(s, 0)?, s, 1, if s.words.len() > 4 { number(s, 4)? } else { 0 })),
    ("fchown", |c, s| {
        let ids = [owner(s, 1)?, owner(s, 2)?];
        plain(libc::SYS_fchown, &mut [Arg::Int(c.fd(s, 0)?), Arg::Int(ids[0]), Arg::Int(ids[1])])
    }),
    ("truncate", |_, s| plain(libc::SYS_truncate, &mut [path(s, 0)?.arg(), Arg::Int(number(s, 1)?)])),
    ("ftruncate", |c, s| plain(libc::SYS_ftruncate, &mut [Arg::Int(c.fd(s, 0)?), Arg::Int(number(s, 1)?)])),
    ("utimensat", |c, s| {
        let dir = c.fd(s, 0)?;
        utimens(dir, Some(path(s, 1)?), s, 2)
    }),
    ("futimens", |c, s| utimens(c.fd(s, 0)?, None, s, 1)),
    ("access", |_, s| {
        plain(libc::SYS_faccessat, &mut [Arg::Int(CWD), path(s, 0)?.arg(), Arg::Int(number(s, 1)?)])
    }),
    ("faccessat2", |c, s| {
        let dir = c.fd(s, 0)?;
        plain(
            libc::SYS_faccessat2,
            &mut [Arg::Int(dir), path(s, 1)?.arg(), Arg::Int(number(s, 2)?), Arg::Int(number(s, 3)?)],
        )
    }),
    ("setxattr", |_, s| setxattr(libc::SYS_setxattr, path(s, 0)?.arg(), s)),
    ("lsetxattr", |_, s| setxattr(libc::SYS_lsetxattr, path(s, 0)?.arg(), s)),
    ("fsetxattr", |c, s| setxattr(libc::SYS_fsetxattr, Arg::Int(c.fd(s, 0)?), s)),
    ("getxattr", |_, s| getxattr(libc::SYS_getxattr, path(s, 0)?.arg(), s)),
    ("lgetxattr", |_, s| getxattr(libc::SYS_lgetxattr, path(s, 0)?.arg(), s)),
    ("fgetxattr", |c, s| getxattr(libc::SYS_fgetxattr, Arg::Int(c.fd(s, 0)?), s)),
    ("listxattr", |_, s| listxattr(libc::SYS_listxattr, path(s, 0)?.arg(), s)),
    ("llistxattr", |_, s| listxattr(libc::SYS_llistxattr, path(s, 0)?.arg(), s)),
    ("flistxattr", |c, s| listxattr(libc::SYS_flistxattr, Arg::Int(c.fd(s, 0)?), s)),
    ("removexattr", |_, s| plain(libc::SYS_removexattr, &mut [path(s, 0)?.arg(), path(s, 1)?.arg()])),
    ("lremovexattr", |_, s| plain(libc::SYS_lremovexattr, &mut [path(s, 0)?.arg(), path(s, 1)?.arg()])),
    ("fremovexattr", |c, s| plain(libc::SYS_fremovexattr, &mut [Arg::Int(c.fd(s, 0)?), path(s, 1)?.arg()])),
    ("statfs", |_, s| {
        let p = path(s, 0)?;
        statfs(libc::SYS_statfs, p.arg())
    }),
    ("fstatfs", |c, s| statfs(libc::SYS_fstatfs, Arg::Int(c.fd(s, 0)?))),
];

fn plain(number: libc::c_long, args: &mut [Arg<'_>]) -> Done {
    sys::call(number, args)?;
    Ok(Value::Nothing)
}

fn chmod(dir: i64, step: &Step, at: usize) -> Done {
    let path = path(step, at)?;
    plain(libc::SYS_fchmodat, &mut [Arg::Int(dir), path.arg(), Arg::Int(number(step, at + 1)?)])
}

fn chown(dir: i64, step: &Step, at: usize, flags: i64) -> Done {
    let path = path(step, at)?;
    let (uid, gid) = (owner(step, at + 1)?, owner(step, at + 2)?);
    plain(libc::SYS_fchownat, &mut [Arg::Int(dir), path.arg(), Arg::Int(uid), Arg::Int(gid), Arg::Int(flags)])
}

/// One `timespec` as the kernel reads it: `now`, `omit`, or `SECONDS.NANOSECONDS` taken literally.
fn timespec(text: &str) -> Option<[i64; 2]> {
    match text {
        "now" => Some([0, libc::UTIME_NOW]),
        "omit" => Some([0, libc::UTIME_OMIT]),
        _ => {
            let (sec, nsec) = text.split_once('.')?;
            Some([sec.parse().ok()?, nsec.parse().ok()?])
        }
    }
}

fn utimens(dir: i64, path: Option<Path>, step: &Step, at: usize) -> Done {
    let flags = option_number(step, "flags")?.unwrap_or(0);
    let mut buf = Vec::new();
    let times = match crate::scene::word(step, at)? {
        Word::Bad => Arg::Bad,
        Word::Bytes(b) if b == b"null" => Arg::Null,
        Word::Bytes(_) => {
            for place in [at, at + 1] {
                let text = text(step, place)?;
                let pair = timespec(text).ok_or_else(|| Fault::Table(format!("{text:?} is no time")))?;
                buf.extend(pair.iter().flat_map(|v| v.to_ne_bytes()));
            }
            Arg::In(&buf)
        }
    };
    let path = path.as_ref().map_or(Arg::Null, Path::arg);
    plain(libc::SYS_utimensat, &mut [Arg::Int(dir), path, times, Arg::Int(flags)])
}

fn setxattr(call: libc::c_long, on: Arg<'_>, step: &Step) -> Done {
    let name = path(step, 1)?;
    let flags = if step.words.len() > 3 { number(step, 3)? } else { 0 };
    let (value, len) = match crate::scene::word(step, 2)? {
        // a bad address of no length would not be looked at
        Word::Bad => (Arg::Bad, 8),
        Word::Bytes(b) => (Arg::In(b), b.len() as i64),
    };
    plain(call, &mut [on, name.arg(), value, Arg::Int(len), Arg::Int(flags)])
}

/// Room for the largest attribute value Linux allows.
const XATTR_ROOM: i64 = 65_536;

fn getxattr(call: libc::c_long, on: Arg<'_>, step: &Step) -> Done {
    let name = path(step, 1)?;
    let size = option_number(step, "size")?.unwrap_or(XATTR_ROOM);
    let mut buf = vec![0u8; usize::try_from(size).unwrap_or(0)];
    let got = sys::call(call, &mut [on, name.arg(), Arg::Out(&mut buf), Arg::Int(size)])?;
    if size == 0 {
        return Ok(Value::Number(got));
    }
    buf.truncate(usize::try_from(got).unwrap_or(0));
    Ok(Value::Bytes(buf))
}

/// The `user.` names (or those that begin with `space=`), sorted and joined by commas: other namespaces are the
/// system's affair.
fn listxattr(call: libc::c_long, on: Arg<'_>, step: &Step) -> Done {
    let size = option_number(step, "size")?.unwrap_or(XATTR_ROOM);
    let mut buf = vec![0u8; usize::try_from(size).unwrap_or(0)];
    let got = sys::call(call, &mut [on, Arg::Out(&mut buf), Arg::Int(size)])?;
    buf.truncate(usize::try_from(got).unwrap_or(0));
    let space = option(step, "space")?.unwrap_or("user.").as_bytes();
    let mut names: Vec<&[u8]> = buf.split(|b| *b == 0).filter(|n| n.starts_with(space)).collect();
    names.sort_unstable();
    Ok(Value::Bytes(names.join(&b',')))
}

/// `statfs`, with the rules every file system keeps: sizes that add up and a name length that is true.
#[allow(unsafe_code)]
fn statfs(call: libc::c_long, on: Arg<'_>) -> Done {
    let mut buf = vec![0u8; size_of::<libc::statfs>()];
    sys::call(call, &mut [on, Arg::Out(&mut buf)])?;
    // SAFETY: the buffer has the size of `libc::statfs`, the kernel filled it, and every field is an integer
    // or an array of integers; `read_unaligned` puts no demand on the address.
    let s = unsafe { buf.as_ptr().cast::<libc::statfs>().read_unaligned() };
    let rules = [
        (s.f_bsize > 0, "f_bsize > 0"),
        (s.f_blocks > 0, "f_blocks > 0"),
        (s.f_bfree <= s.f_blocks, "f_bfree <= f_blocks"),
        (s.f_bavail <= s.f_bfree, "f_bavail <= f_bfree"),
        (s.f_ffree <= s.f_files, "f_ffree <= f_files"),
        (s.f_namelen == 255, "f_namelen == 255"),
    ];
    match rules.iter().find(|(holds, _)| !holds) {
        Some((_, rule)) => Err(Fault::Check(format!("{rule} does not hold"))),
        None => Ok(Value::Nothing),
    }
}
