//! The directory of a cluster, held while a command works on it.

use rustix::fs::{FlockOperation, flock};
use skep_base::cluster_file::{ClusterFile, FILE, absolute};
use skep_base::{Failure, Outcome};
use std::fs::File;
use std::path::{Path, PathBuf};

/// Sub-directories.
const PARTS: [&str; 5] = ["etc", "log", "run", "state", "targets"];

pub struct Place {
    /// Absolute.
    pub dir: PathBuf,
    _lock: File,
}

impl Place {
    /// Makes the directory, or takes the one that is there.
    pub fn make(dir: &Path) -> Outcome<Self> {
        std::fs::create_dir_all(dir).map_err(|e| Failure::local(dir.display(), e))?;
        let dir = absolute(dir)?;
        let mut entries = std::fs::read_dir(&dir).map_err(|e| Failure::local(dir.display(), e))?.flatten();
        let strange = |entry: &std::fs::DirEntry| {
            let name = entry.file_name();
            !PARTS.iter().any(|part| *part == name)
                && !name.to_string_lossy().ends_with(".key")
                && name != "mnt"
        };
        if !dir.join(FILE).exists()
            && let Some(strange) = entries.find(strange)
        {
            let name = strange.file_name();
            return Err(Failure::new(format!(
                "{}: holds other things ({}); name an empty or a new directory",
                dir.display(),
                name.to_string_lossy()
            )));
        }
        for part in PARTS {
            let path = dir.join(part);
            std::fs::create_dir_all(&path).map_err(|e| Failure::local(path.display(), e))?;
        }
        Self::lock(dir)
    }

    /// Takes a directory that `skep up` made.
    pub fn open(dir: &Path) -> Outcome<(Self, ClusterFile)> {
        let file = ClusterFile::read(&dir.join(FILE))?;
        Ok((Self::lock(absolute(dir)?)?, file))
    }

    fn lock(dir: PathBuf) -> Outcome<Self> {
        let path = dir.join("run/lock");
        let lock = File::create(&path).map_err(|e| Failure::local(path.display(), e))?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(|_| {
            Failure::new(format!(
                "{}: another skep up or skep down is at work here; wait for it",
                dir.display()
            ))
        })?;
        Ok(Self { dir, _lock: lock })
    }

    /// What was made here, if anything was.
    pub fn cluster(&self) -> Outcome<Option<ClusterFile>> {
        let path = self.dir.join(FILE);
        if path.exists() { ClusterFile::read(&path).map(Some) } else { Ok(None) }
    }
}
