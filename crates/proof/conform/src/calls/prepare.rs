//! Preparation: what a case needs to stand before the call under test.

use super::Handler;
use crate::scene::{Done, Fault, Path, Scene, Value, number, option, option_number, path, text};
use crate::step::{Step, Word};
use crate::symbols;
use crate::sys::{self, Arg};
use crate::users;

const CWD: i64 = libc::AT_FDCWD as i64;

pub(super) const VERBS: &[(&str, Handler)] = &[
    ("make", |_, s| make(s, text(s, 0)?, 1)),
    ("file", |_, s| make(s, "file", 0)),
    ("dir", |_, s| make(s, "dir", 0)),
    ("chain", chain),
    ("pass", |_, _| Ok(Value::Nothing)),
    ("mark", |c: &mut Scene, _| {
        c.mark_again().map(|()| Value::Nothing).map_err(|m| Fault::Check(m.happened))
    }),
];

/// `make KIND PATH [mode=] [own=USER:GROUP] [data=] [size=]`.
fn make(step: &Step, kind: &str, at: usize) -> Done {
    let path = path(step, at)?;
    let default = if kind == "dir" { 0o755 } else { 0o644 };
    let mode = option_number(step, "mode")?.unwrap_or(default);
    let bits = symbols::kind(kind).ok_or_else(|| Fault::Table(format!("{kind:?} is no file kind")))?;
    create(bits, &path)?;
    if bits == libc::S_IFREG {
        fill(step, &path)?;
    }
    if let Some(own) = option(step, "own")? {
        let (user, group) = own.split_once(':').unwrap_or((own, own));
        let ids = (users::id(user), users::id(group));
        let (Some(uid), Some(gid)) = ids else {
            return Err(Fault::Table(format!("own={own}: not USER:GROUP")));
        };
        sys::call(
            libc::SYS_fchownat,
            &mut [
                Arg::Int(CWD),
                path.arg(),
                Arg::Int(uid.into()),
                Arg::Int(gid.into()),
                Arg::Int(libc::AT_SYMLINK_NOFOLLOW.into()),
            ],
        )?;
    }
    // after the owner: a change of owner clears the set-id bits
    if bits != libc::S_IFLNK {
        sys::call(libc::SYS_fchmodat, &mut [Arg::Int(CWD), path.arg(), Arg::Int(mode)])?;
    }
    Ok(Value::Nothing)
}

fn create(bits: u32, path: &Path) -> Result<(), Fault> {
    const DEVICE: i64 = 0x0103; // 1:3, the null device
    match bits {
        libc::S_IFDIR => sys::call(libc::SYS_mkdirat, &mut [Arg::Int(CWD), path.arg(), Arg::Int(0o755)])?,
        libc::S_IFLNK => {
            let target = c"nowhere".to_owned();
            sys::call(libc::SYS_symlinkat, &mut [Arg::Text(&target), Arg::Int(CWD), path.arg()])?
        }
        _ => {
            let device = if bits == libc::S_IFCHR || bits == libc::S_IFBLK { DEVICE } else { 0 };
            sys::call(
                libc::SYS_mknodat,
                &mut [Arg::Int(CWD), path.arg(), Arg::Int((bits | 0o644).into()), Arg::Int(device)],
            )?
        }
    };
    Ok(())
}

fn fill(step: &Step, path: &Path) -> Result<(), Fault> {
    let Path::Text(name) = path else {
        return Err(Fault::Table("a file cannot be made at <bad>".to_owned()));
    };
    let name =
        std::path::Path::new(<std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(name.to_bytes()));
    let errno = |e: std::io::Error| crate::errno::Errno(e.raw_os_error().unwrap_or(0));
    if let Some(Word::Bytes(data)) = step.options.get("data") {
        std::fs::write(name, data).map_err(errno)?;
    }
    if let Some(size) = option_number(step, "size")? {
        let size = u64::try_from(size).map_err(|_| Fault::Table("size= is negative".to_owned()))?;
        std::fs::OpenOptions::new().write(true).open(name).and_then(|f| f.set_len(size)).map_err(errno)?;
    }
    Ok(())
}

/// `chain BASE COUNT TARGET`: symbolic links BASE1 -> BASE2 -> ... -> BASE<COUNT> -> TARGET.
fn chain(_: &mut Scene, step: &Step) -> Done {
    let (base, count, target) = (text(step, 0)?, number(step, 1)?, text(step, 2)?);
    for at in 1..=count {
        let next = if at == count { target.to_owned() } else { format!("{base}{}", at + 1) };
        std::os::unix::fs::symlink(next, format!("{base}{at}"))
            .map_err(|e| crate::errno::Errno(e.raw_os_error().unwrap_or(0)))?;
    }
    Ok(Value::Nothing)
}
