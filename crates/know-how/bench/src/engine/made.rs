//! What a run made: remembered when it was made, with what tells it from anything that comes to bear its name.
//! Nothing else is ever removed.

use super::{Trouble, ground, volume};
use crate::job::Job;
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags, Stat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A file or directory that a worker of this run made itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Made {
    pub path: String,
    /// File system, as the host numbers it; 0 where another host made it.
    pub dev: u64,
    pub ino: u64,
}

impl Made {
    fn new(path: &Path, stat: &Stat) -> Self {
        Self { path: path.display().to_string(), dev: stat.st_dev, ino: stat.st_ino }
    }

    /// Is it the same still?
    pub(super) fn is(&self, stat: &Stat) -> bool {
        self.ino == stat.st_ino && (self.dev == 0 || self.dev == stat.st_dev)
    }
}

type Tell = Arc<dyn Fn(Made) + Send + Sync>;

/// What the workers of this process have made.
#[derive(Clone, Default)]
pub(crate) struct Claims {
    list: Arc<Mutex<Vec<Made>>>,
    tell: Option<Tell>,
}

impl std::fmt::Debug for Claims {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.list().fmt(f)
    }
}

impl Claims {
    /// Claims of which others are told at once, so that they can clean up if this process dies.
    pub fn told(tell: Tell) -> Self {
        Self { list: Arc::default(), tell: Some(tell) }
    }

    fn list(&self) -> MutexGuard<'_, Vec<Made>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, made: Made) {
        let mut list = self.list();
        list.retain(|other| other.path != made.path);
        list.push(made.clone());
        drop(list);
        if let Some(tell) = &self.tell {
            tell(made);
        }
    }

    /// Makes a directory; what is there already is EEXIST, and nobody's of this process.
    pub fn directory(&self, path: &Path) -> Result<(), Errno> {
        ground::mkdir(path)?;
        let fd = ground::open(path, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())?;
        self.add(Made::new(path, &rustix::fs::fstat(&fd)?));
        Ok(())
    }

    /// Makes a file; what is there already is EEXIST.
    pub fn file(&self, path: &Path, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
        let fd = ground::open(path, flags | OFlags::CREATE | OFlags::EXCL, mode)?;
        self.add(Made::new(path, &rustix::fs::fstat(&fd)?));
        Ok(fd)
    }

    /// Removes what was made at that path by this process, if anything was.
    pub fn remove(&self, job: &Job, path: &Path) -> Result<(), Trouble> {
        let name = path.display().to_string();
        let made: Vec<Made> = {
            let mut list = self.list();
            let (gone, stays) = list.drain(..).partition(|made| made.path == name);
            *list = stays;
            gone
        };
        match volume::clean(job, &made).into_iter().next() {
            Some(left) => Err(Trouble::found("remove", path, left)),
            None => Ok(()),
        }
    }

    /// Removes all that is left of it; what could not be removed is told.
    pub fn clean(&self, job: &Job, more: &[Made]) -> Vec<String> {
        // Kept in the list: what was not empty is tried again when others have cleaned up.
        let mut all = self.list().clone();
        all.extend_from_slice(more);
        volume::clean(job, &all)
    }

    /// Whether a directory around trees is still there, because others have not removed theirs yet.
    pub fn waits(&self, job: &Job) -> bool {
        self.list().iter().any(|made| volume::waits(job, made))
    }
}
