//! The directory of a target in which measurements have their files.

use super::super::question::{Direction, Path as Way, StorageTest};
use super::super::service::BenchTarget;
use skep_base::output::human;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

/// Its name, beside `chunks`.
const NAME: &str = "bench";

pub struct Area {
    path: PathBuf,
}

impl Area {
    /// Of this target.
    pub fn of(target: &BenchTarget) -> Self {
        Self { path: target.path.join(NAME) }
    }

    /// Where files of this set and way are.
    pub fn place(&self, set: &str, way: Way) -> PathBuf {
        self.path.join(set).join(match way {
            Way::Raw => "raw",
            Way::Target => "target",
        })
    }

    /// Removes everything; gives the number of files. Symbolic links are removed, never followed.
    pub fn remove(&self) -> Result<u64, String> {
        remove(&self.path)
    }

    /// [`Self::remove`] of one set.
    pub fn remove_set(&self, set: &str) -> Result<u64, String> {
        let files = remove(&self.path.join(set))?;
        // Not when there are others.
        let _ = std::fs::remove_dir(&self.path);
        Ok(files)
    }

    /// Every set, the newest first.
    fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.path).into_iter().flatten().flatten();
        let made = |entry: &std::fs::DirEntry| entry.metadata().and_then(|meta| meta.modified()).ok();
        let mut all: Vec<_> = entries
            .filter_map(|entry| Some((made(&entry)?, entry.file_name().into_string().ok()?)))
            .collect();
        all.sort_by(|a, b| b.cmp(a));
        all.into_iter().map(|(_, name)| name).collect()
    }

    /// Every set with its files and bytes.
    pub fn sets(&self) -> Vec<(String, u64, u64)> {
        let size = |set: String| {
            let (mut files, mut bytes) = (0, 0);
            // What is removed meanwhile does not count.
            let _ = walk(&self.path.join(&set), &mut |meta| {
                files += 1;
                bytes += meta.len();
            });
            (set, files, bytes)
        };
        self.names().into_iter().map(size).collect()
    }

    /// Where files that `fit` lie: in this set, else in the newest one that has them.
    pub fn find(&self, set: &str, way: Way, fit: impl Fn(&Path) -> bool) -> Option<PathBuf> {
        let others = self.names().into_iter();
        let places = std::iter::once(set.to_owned()).chain(others).map(|set| self.place(&set, way));
        places.into_iter().find(|place| fit(place))
    }

    /// Bytes that files of this set take.
    fn bytes(&self, set: &str, way: Way) -> u64 {
        let mut sum = 0;
        // What cannot be read is not there to be written over.
        let _ = walk(&self.place(set, way), &mut |meta| sum += meta.len());
        sum
    }
}

fn remove(path: &Path) -> Result<u64, String> {
    let removed = count(path).and_then(|files| {
        std::fs::remove_dir_all(path)?;
        Ok(files)
    });
    match removed {
        Ok(files) => Ok(files),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(0),
        Err(e) => Err(format!("{}: {e}", path.display())),
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

/// Targets whose file systems have no room for a write, each with the reason: it would go into the reserve, or fill
/// the file system, which several targets may share.
pub fn full(targets: &[&BenchTarget], test: &StorageTest) -> Result<BTreeMap<u32, String>, String> {
    if test.direction == Direction::Read {
        return Ok(BTreeMap::new());
    }
    let each = test.size.saturating_mul(u64::from(test.threads));
    // What each device would take, and has: the least that one of its targets may fill.
    let mut devices: BTreeMap<u64, (u64, u64, usize)> = BTreeMap::new();
    let mut of = Vec::new();
    for target in targets {
        let failed =
            |e: rustix::io::Errno| format!("target {} at {}: {e}", target.target, target.path.display());
        let device = rustix::fs::stat(&target.path).map_err(failed)?.st_dev;
        let space = rustix::fs::statvfs(&target.path).map_err(failed)?;
        let free = (space.f_bavail * space.f_frsize).saturating_sub(target.reserve);
        // Old files are removed first, or written over.
        let old = Area::of(target).bytes(&test.set, test.path);
        let (wanted, least, shared) = devices.entry(device).or_insert((0, u64::MAX, 0));
        *wanted = wanted.saturating_add(each.saturating_sub(old));
        *least = free.min(*least);
        *shared += 1;
        of.push((target.target.0, device));
    }
    let reason = |(target, device): (u32, u64)| {
        let (wanted, free, shared) = devices.get(&device)?;
        let on = if *shared > 1 { format!(" by the {shared} targets on it") } else { String::new() };
        (wanted > free).then(|| {
            let text = format!(
                "{} would be written to its file system{on}, {} are free above the reserve: take a smaller size or \
                 fewer threads",
                human(*wanted),
                human(*free)
            );
            (target, text)
        })
    };
    Ok(of.into_iter().filter_map(reason).collect())
}
