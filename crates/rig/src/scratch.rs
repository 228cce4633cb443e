//! Directories, and disks in memory, that go away with their owner.

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A fresh directory, removed when dropped.
#[derive(Debug)]
pub struct Scratch(PathBuf);

impl Scratch {
    /// Below `base`, or where temporary files of this machine go.
    pub fn new(base: Option<&Path>) -> Result<Self, String> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let base = base.map_or_else(std::env::temp_dir, Path::to_path_buf);
        loop {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            // The trailing slash's absence matters: `skep-rig-7-1` is no prefix of a sibling's `-7-1-`.
            let path = base.join(format!("skep-rig-{}-{number}-", std::process::id()));
            match std::fs::create_dir(&path) {
                Ok(()) => return Ok(Self(path)),
                Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(format!("{}: {e}", path.display())),
            }
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
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
