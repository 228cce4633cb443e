//! What is mounted where, and taking it away.

use rustix::mount::{UnmountFlags, unmount};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// Every mount point at or below `dir`, the latest mounted first.
pub fn mounted_below(dir: &Path) -> Vec<PathBuf> {
    let table = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
    let mut found: Vec<PathBuf> = points(&table).filter(|point| point.starts_with(dir)).collect();
    found.reverse();
    found
}

/// Is `point` a mount point? Says so of a mount whose process died, too.
pub fn is_mounted(point: &Path) -> bool {
    mounted_below(point).iter().any(|mounted| mounted == point)
}

/// Takes every mount at or below `dir` away, busy or not, alive or not.
pub fn unmount_lazily(dir: &Path) {
    take_away(dir, UnmountFlags::DETACH);
}

/// The same at once for its programs as well: what waits for servers fails, and what was not written yet is lost.
pub fn unmount_by_force(dir: &Path) {
    take_away(dir, UnmountFlags::FORCE | UnmountFlags::DETACH);
}

fn take_away(dir: &Path, flags: UnmountFlags) {
    for point in mounted_below(dir) {
        if let Err(e) = unmount(&point, flags) {
            eprintln!("umount --lazy {}: {e}", point.display());
        }
    }
}

/// The fifth field of each line, its octal escapes undone.
fn points(table: &[u8]) -> impl Iterator<Item = PathBuf> + '_ {
    table
        .split(|byte| *byte == b'\n')
        .filter_map(|line| line.split(|byte| *byte == b' ').nth(4))
        .map(|field| PathBuf::from(OsString::from_vec(unescape(field))))
}

fn unescape(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, after)) = rest.split_first() {
        let code = after.get(..3).filter(|_| *first == b'\\').and_then(octal);
        out.push(code.unwrap_or(*first));
        rest = if code.is_some() { &after[3..] } else { after };
    }
    out
}

fn octal(digits: &[u8]) -> Option<u8> {
    u8::from_str_radix(core::str::from_utf8(digits).ok()?, 8).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: mount points are read from the kernel's table, spaces in names included.
    #[test]
    fn reads_the_table() {
        let table =
            b"22 1 0:21 / /proc rw - proc proc rw\n30 1 0:40 / /tmp/a\\040b\\134c rw - fuse.skep skep rw\n";
        let found: Vec<PathBuf> = points(table).collect();
        assert_eq!(found, [PathBuf::from("/proc"), PathBuf::from("/tmp/a b\\c")]);
        assert!(is_mounted(Path::new("/proc")));
        assert!(!is_mounted(Path::new("/proc/self")));
    }
}
