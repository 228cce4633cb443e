//! Directories, and disks in memory, that go away with their owner; or with the next one, if the owner was killed.

use crate::daemon::Daemon;
use crate::mounts::unmount_lazily;
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use rustix::process::{Pid, test_kill_process};
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

/// Names begin so; then follow the owner's namespace of processes, the owner in it, and a number.
const PREFIX: &str = "skep-rig";

/// A fresh directory, removed when dropped.
#[derive(Debug)]
pub struct Scratch(PathBuf);

impl Scratch {
    /// Below `base`, or where temporary files of this machine go.
    pub fn new(base: Option<&Path>) -> Result<Self, String> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        static SWEPT: Once = Once::new();
        let namespace = own_namespace()?;
        SWEPT.call_once(|| sweep(&std::env::temp_dir(), &namespace));
        let base = base.map_or_else(std::env::temp_dir, Path::to_path_buf);
        loop {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            // The last dash matters: without it one name would begin a sibling's, as `-7-1` begins `-7-11`.
            let path = base.join(format!("{PREFIX}-{namespace}-{}-{number}-", std::process::id()));
            match std::fs::create_dir(&path) {
                Ok(()) => return Ok(Self(path)),
                Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(format!("{}: {e}", path.display())),
            }
        }
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

/// The namespace of processes in which this process has its number, such as `4026531836`.
fn own_namespace() -> Result<String, String> {
    let link = "/proc/self/ns/pid";
    let target = std::fs::read_link(link).map_err(|e| format!("{link}: {e}"))?;
    Ok(target.to_string_lossy().chars().filter(char::is_ascii_digit).collect())
}

/// Takes away what owners that were killed have left: their clusters' processes, mounts, files. A dead mount would
/// otherwise stay on this machine, and what looks at all mounts would find it.
fn sweep(base: &Path, namespace: &str) {
    for left in abandoned(base, namespace) {
        take_down(&left);
        eprintln!("{}: left by a test that was killed; removed", left.display());
        let _ = std::fs::remove_dir_all(&left);
    }
}

/// Ends every process of a cluster below `dir`, and takes every mount there away.
pub(crate) fn take_down(dir: &Path) {
    unmount_lazily(dir);
    // Servers first: a mount that lost its directory ends by itself, and needs nobody for it.
    for daemon in Daemon::all(dir) {
        if let Err(e) = daemon.kill()
            && daemon.is_alive()
        {
            eprintln!("{e}");
        }
    }
    unmount_lazily(dir);
}

/// Directories whose owner is gone. Owners in other namespaces cannot be seen from here: theirs stay.
fn abandoned(base: &Path, namespace: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(base).into_iter().flatten().flatten();
    let prefix = format!("{PREFIX}-{namespace}-");
    let gone = |entry: std::fs::DirEntry| {
        let name = entry.file_name();
        let owner = name.to_str()?.strip_prefix(&prefix)?.split('-').next()?;
        let owner = Pid::from_raw(owner.parse().ok()?)?;
        (test_kill_process(owner) == Err(Errno::SRCH)).then(|| entry.path())
    };
    entries.filter_map(gone).collect()
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What is still mounted below must not be emptied through the mount.
        let mounted = super::mounts::mounted_below(&self.0);
        if !mounted.is_empty() {
            eprintln!("{} is left behind, something is mounted in it: {mounted:?}", self.0.display());
        } else if let Err(e) = std::fs::remove_dir_all(&self.0) {
            eprintln!("{} is left behind: {e}", self.0.display());
        }
    }
}

/// A file system in memory, for what must not depend on how full the disk of this machine is. Memory is
/// taken as files are written.
#[derive(Debug)]
pub struct MemoryDisk(Scratch);

impl MemoryDisk {
    /// An empty one of this size.
    pub fn new(mebibytes: u32) -> Result<Self, String> {
        let scratch = Scratch::new(None)?;
        let size = std::ffi::CString::new(format!("size={mebibytes}m")).map_err(|e| e.to_string())?;
        mount("skep-test", scratch.path(), "tmpfs", MountFlags::empty(), Some(size.as_c_str()))
            .map_err(|e| format!("tmpfs at {}: {e}; mounting needs root", scratch.path().display()))?;
        Ok(Self(scratch))
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for MemoryDisk {
    fn drop(&mut self) {
        if let Err(e) = unmount(self.path(), UnmountFlags::DETACH) {
            eprintln!("umount --lazy {}: {e}", self.path().display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what a killed owner has left goes, its dead mount first; what belongs to the living, or to owners that
    /// cannot be seen from here, stays.
    #[test]
    fn what_the_killed_left_goes() {
        let base = Scratch::new(None).unwrap();
        let namespace = own_namespace().unwrap();
        // No process has this number: the kernel gives none above 2^22.
        let (dead, own) = (i32::MAX, std::process::id());
        let made = |name: String| {
            let path = base.path().join(name);
            std::fs::create_dir_all(path.join("cluster")).unwrap();
            path
        };
        let left = made(format!("{PREFIX}-{namespace}-{dead}-3-"));
        let others = [
            made(format!("{PREFIX}-{namespace}-{own}-3-")),
            made(format!("{PREFIX}-1{namespace}-{dead}-3-")),
            made(format!("{PREFIX}-{dead}-3-")),
            made(format!("{PREFIX}-{namespace}-x-3-")),
        ];
        mount("skep-test", left.join("cluster"), "tmpfs", MountFlags::empty(), None).unwrap();
        sweep(base.path(), &namespace);
        assert!(!left.exists() && super::super::mounts::mounted_below(base.path()).is_empty());
        assert!(others.iter().all(|other| other.join("cluster").is_dir()), "{others:?}");
    }
}
