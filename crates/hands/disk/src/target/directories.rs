//! Which directories hold names that are not durable yet.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A directory of chunk files, by the two levels of its hash.
pub(super) type Directory = (u8, u8);

/// Directories that changed since they were last synced, each with how many are changing it at the moment.
#[derive(Default)]
pub(super) struct Directories(Mutex<BTreeMap<Directory, u32>>);

/// Held while a name is made or removed. Noted before, because whoever finds the new name and syncs must find the note;
/// kept until after, because a sync that runs meanwhile may have come too early for the name.
pub(super) struct Changing<'a> {
    directories: &'a Directories,
    directory: Directory,
}

impl Directories {
    /// A thread that panicked ends the process, so a poisoned lock holds sound data.
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Directory, u32>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A name in it is about to be made or removed.
    pub fn changing(&self, directory: Directory) -> Changing<'_> {
        *self.lock().entry(directory).or_insert(0) += 1;
        Changing { directories: self, directory }
    }

    /// Syncs those of `wanted` that need it. Whoever comes second must not return before the first has finished: they
    /// are locked meanwhile.
    pub fn sync<E>(
        &self,
        wanted: impl IntoIterator<Item = Directory>,
        sync: impl FnOnce(&[Directory]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut unsynced = self.lock();
        let mut due: Vec<_> = wanted.into_iter().filter(|one| unsynced.contains_key(one)).collect();
        due.sort_unstable();
        due.dedup();
        if due.is_empty() {
            return Ok(());
        }
        sync(&due)?;
        for directory in due {
            if unsynced.get(&directory) == Some(&0) {
                unsynced.remove(&directory);
            }
        }
        Ok(())
    }
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        if let Some(changing) = self.directories.lock().get_mut(&self.directory) {
            *changing -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn syncs(directories: &Directories) -> bool {
        let mut synced = false;
        let sync = |due: &[Directory]| {
            synced = due.contains(&(1, 2));
            Ok::<(), ()>(())
        };
        directories.sync([(1, 2), (3, 4)], sync).unwrap();
        synced
    }

    /// Goal: a name that one thread has made and not yet finished with is synced by another that uses it, and a sync
    /// that may have come too early for the name does not count for it.
    #[test]
    fn a_name_in_the_making_is_synced() {
        let directories = Directories::default();
        assert!(!syncs(&directories));
        let making = directories.changing((1, 2));
        assert!(syncs(&directories), "noted before it is made");
        assert!(syncs(&directories), "the sync may have been too early");
        drop(making);
        assert!(syncs(&directories), "the last one may have been too early, too");
        assert!(!syncs(&directories), "now it is durable");
    }

    /// Goal: a sync that fails leaves all as it was.
    #[test]
    fn a_failed_sync_is_none() {
        let directories = Directories::default();
        drop(directories.changing((1, 2)));
        assert!(directories.sync([(1, 2)], |_| Err(())).is_err());
        assert!(syncs(&directories));
    }
}
