//! The directory of a target in which measurements have their files.

use super::super::question::{Direction, Path as Way, StorageTest};
use super::super::service::BenchTarget;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

/// Its name, beside `chunks`.
const NAME: &str = "bench";

/// See the module.
pub struct Area {
    path: PathBuf,
}

impl Area {
    /// Of this target.
    pub fn of(target: &BenchTarget) -> Self {
        Self { path: target.path.join(NAME) }
    }

    /// Where files of this way are.
    pub fn place(&self, way: Way) -> PathBuf {
        self.path.join(match way {
            Way::Raw => "raw",
            Way::Target => "target",
        })
    }

    /// Removes everything; gives the number of files. Symbolic links are removed, never followed.
    pub fn remove(&self) -> Result<u64, String> {
        let removed = count(&self.path).and_then(|files| {
            std::fs::remove_dir_all(&self.path)?;
            Ok(files)
        });
        match removed {
            Ok(files) => Ok(files),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(0),
            Err(e) => Err(format!("{}: {e}", self.path.display())),
        }
    }

    /// Bytes that its files take.
    fn bytes(&self, way: Way) -> u64 {
        let mut sum = 0;
        // What cannot be read is not there to be written over.
        let _ = walk(&self.place(way), &mut |meta| sum += meta.len());
        sum
    }
}

fn count(path: &Path) -> io::Result<u64> {
    let mut files = 0;
    walk(path, &mut |_| files += 1)?;
    Ok(files)
}

fn walk(path: &Path, each: &mut dyn FnMut(&std::fs::Metadata)) -> io::Result<()> {
    for entry in std::fs::read_dir(path)? {
        let entry = entry?;
        let meta = entry.metadata()?;
        match meta.is_dir() {
            true => walk(&entry.path(), each)?,
            false => each(&meta),
        }
    }
    Ok(())
}

/// Refuses a write that would go into the reserve of a target, or more than fill its file system: several targets
/// may share one.
pub fn require_space(targets: &[&BenchTarget], test: &StorageTest) -> Result<(), String> {
    if test.direction == Direction::Read {
        return Ok(());
    }
    let each = test.size.saturating_mul(u64::from(test.threads));
    let mut wanted: BTreeMap<u64, u64> = BTreeMap::new();
    for target in targets {
        let failed =
            |e: rustix::io::Errno| format!("target {} at {}: {e}", target.target, target.path.display());
        let device = rustix::fs::stat(&target.path).map_err(failed)?.st_dev;
        let space = rustix::fs::statvfs(&target.path).map_err(failed)?;
        let free = (space.f_bavail * space.f_frsize).saturating_sub(target.reserve);
        // Old files are removed first, or written over.
        let old = Area::of(target).bytes(test.path);
        let sum = wanted.entry(device).or_default();
        *sum = sum.saturating_add(each.saturating_sub(old));
        if *sum > free {
            return Err(format!(
                "target {}: {} bytes would be written to its file system, {free} are free (the reserve taken off): \
                 take a smaller size or fewer threads",
                target.target, *sum
            ));
        }
    }
    Ok(())
}
