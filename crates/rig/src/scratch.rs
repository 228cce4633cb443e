//! A directory that goes away with its owner.

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
