//! The directory of a run: each test has one of its own in it.

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

/// Names begin so; the number of the run's process follows. Short: paths of sockets have 107 bytes.
const PREFIX: &str = "skep-t";

/// A directory that goes with its owner; what killed owners left goes with the next one.
pub struct Place {
    path: PathBuf,
    next: AtomicU32,
}

impl Place {
    /// A fresh one.
    pub fn new() -> Result<Self, String> {
        let base = std::env::temp_dir();
        for entry in std::fs::read_dir(&base).into_iter().flatten().flatten() {
            if is_abandoned(entry.file_name().to_str().unwrap_or_default()) {
                // Nothing is mounted in it any more: its mounts went with the namespaces of the run.
                let _ = std::fs::remove_dir_all(entry.path());
            }
        }
        let path = base.join(format!("{PREFIX}{}", std::process::id()));
        std::fs::create_dir_all(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        Ok(Self { path, next: AtomicU32::new(0) })
    }

    /// An empty directory of one test.
    pub fn directory(&self) -> Result<PathBuf, String> {
        let path = self.path.join(self.next.fetch_add(1, Ordering::Relaxed).to_string());
        std::fs::create_dir(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        Ok(path)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Err(e) = std::fs::remove_dir_all(&self.path) {
            eprintln!("{} is left behind: {e}", self.path.display());
        }
    }
}

/// Is this the directory of a run that is gone?
fn is_abandoned(name: &str) -> bool {
    let owner = name.strip_prefix(PREFIX).and_then(|digits| digits.parse().ok());
    owner.and_then(Pid::from_raw).is_some_and(|owner| test_kill_process(owner) == Err(Errno::SRCH))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: only directories of runs that are gone count as left.
    #[test]
    fn living_runs_keep_theirs() {
        // No process has this number: the kernel gives none above 2^22.
        assert!(is_abandoned(&format!("{PREFIX}{}", i32::MAX)));
        assert!(!is_abandoned(&format!("{PREFIX}{}", std::process::id())));
        assert!(!is_abandoned("skep-tune") && !is_abandoned("other"));
        let place = Place::new().unwrap();
        let (first, second) = (place.directory().unwrap(), place.directory().unwrap());
        assert!(first != second && first.is_dir());
        drop(place);
        assert!(!first.exists());
    }
}
