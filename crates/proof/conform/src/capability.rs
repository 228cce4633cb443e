//! What a file system may lack without breaking POSIX: probed on the spot, never assumed.
//!
//! A lacking capability is always reported; with `--require-all` it fails the cases that need it.

use crate::errno::Errno;
use crate::sys::{self, Arg};
use std::collections::BTreeSet;
use std::ffi::{CStr, CString};
use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

type Probe = fn(&Path) -> bool;

/// Every capability with its probe.
const ALL: &[(&str, Probe)] = &[
    ("huge-offset", huge_offset),
    ("xattr", |d| xattr(d, 16)),
    ("xattr-64k", |d| xattr(d, 65_536)),
    ("dir-nlink", dir_nlink),
    ("exec", exec),
    ("keep-size", |d| fallocate(d, libc::FALLOC_FL_KEEP_SIZE)),
    ("punch-hole", |d| fallocate(d, libc::FALLOC_FL_KEEP_SIZE | libc::FALLOC_FL_PUNCH_HOLE)),
    ("zero-range", |d| fallocate(d, libc::FALLOC_FL_ZERO_RANGE)),
    ("copy-range", copy_range),
    ("tmpfile", tmpfile),
    ("acl", acl),
    ("xattr-of-root", |d| attribute(d, c"trusted.probe", b"v")),
    ("seek-hole", seek_hole),
    ("deep-holes", deep_holes),
];

/// Whether the table may ask for it.
pub fn known(name: &str) -> bool {
    ALL.iter().any(|(n, _)| *n == name)
}

/// The capabilities that the file system at `dir` lacks.
pub fn lacking(dir: &Path) -> Result<BTreeSet<&'static str>, String> {
    let mut lacking = BTreeSet::new();
    for (name, probe) in ALL {
        let place = dir.join(format!("probe-{name}"));
        fs::create_dir(&place).map_err(|e| format!("cannot create {}: {e}", place.display()))?;
        if !probe(&place) {
            lacking.insert(*name);
        }
        fs::remove_dir_all(&place).map_err(|e| format!("cannot remove {}: {e}", place.display()))?;
    }
    Ok(lacking)
}

fn fresh(dir: &Path) -> std::io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(true).open(dir.join("f"))
}

/// One byte at 2^63 - 2: the last one a file of signed 64-bit length can have.
fn huge_offset(dir: &Path) -> bool {
    const LAST: u64 = (1 << 63) - 2;
    let mut back = [0u8];
    fresh(dir)
        .and_then(|f| f.write_all_at(b"x", LAST).and_then(|()| f.read_exact_at(&mut back, LAST)))
        .is_ok()
        && back == *b"x"
}

/// A file of 8 TiB, which ext4 with 4 KiB blocks and everything larger can hold.
fn deep_holes(dir: &Path) -> bool {
    fresh(dir).and_then(|f| f.set_len(8 << 40)).is_ok()
}

fn xattr(dir: &Path, len: usize) -> bool {
    attribute(dir, c"user.probe", &vec![b'v'; len])
}

fn attribute(dir: &Path, name: &CStr, value: &[u8]) -> bool {
    let Ok(file) = fresh(dir) else { return false };
    let name = CString::from(name);
    let mut args = [
        Arg::Int(file.as_raw_fd().into()),
        Arg::Text(&name),
        Arg::In(value),
        Arg::Int(value.len() as i64),
        Arg::Int(0),
    ];
    sys::call(libc::SYS_fsetxattr, &mut args).is_ok()
}

/// An access control list with a mask: more than a mode can say.
fn acl(dir: &Path) -> bool {
    let value = [2, 0, 0, 0]
        .into_iter()
        .chain([1u8, 4, 0x10, 0x20].into_iter().flat_map(|tag| [tag, 0, 4, 0, 255, 255, 255, 255]))
        .collect::<Vec<u8>>();
    attribute(dir, c"system.posix_acl_access", &value)
}

fn tmpfile(dir: &Path) -> bool {
    use rustix::fs::{Mode, OFlags, open};
    open(dir, OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC, Mode::RUSR).is_ok()
}

fn copy_range(dir: &Path) -> bool {
    let (Ok(from), Ok(to)) = (fresh(dir), File::create(dir.join("g"))) else { return false };
    from.write_all_at(b"x", 0).is_ok()
        && rustix::fs::copy_file_range(from, Some(&mut 0), to, Some(&mut 0), 1) == Ok(1)
}

fn dir_nlink(dir: &Path) -> bool {
    let links = || fs::metadata(dir).map(|m| m.nlink()).unwrap_or(0);
    links() == 2 && fs::create_dir(dir.join("sub")).is_ok() && links() == 3
}

fn exec(dir: &Path) -> bool {
    let program = dir.join("true");
    fs::copy("/bin/true", &program).is_ok()
        && std::process::Command::new(&program).status().is_ok_and(|s| s.success())
}

fn fallocate(dir: &Path, mode: i32) -> bool {
    let Ok(file) = fresh(dir) else { return false };
    let mut args = [Arg::Int(file.as_raw_fd().into()), Arg::Int(mode.into()), Arg::Int(0), Arg::Int(65_536)];
    match sys::call(libc::SYS_fallocate, &mut args) {
        Ok(_) => true,
        Err(Errno(_)) => false,
    }
}

/// A file system may answer SEEK_HOLE with the end of the file; then there is nothing to check about holes.
fn seek_hole(dir: &Path) -> bool {
    let Ok(file) = fresh(dir) else { return false };
    let mut args = [Arg::Int(file.as_raw_fd().into()), Arg::Int(0), Arg::Int(libc::SEEK_HOLE.into())];
    file.set_len(1 << 20).is_ok() && sys::call(libc::SYS_lseek, &mut args) == Ok(0)
}
