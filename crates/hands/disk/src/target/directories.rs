//! Which directories hold names that are not durable yet, and their syncs.

use rustix::fs::{Mode, mkdirat};
use rustix::io::Errno;
use skep_storage::{ChunkName, DiskError};
use skep_types::ChunkId;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// A directory of a target that chunk files are found by: two levels of their ids' hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Directory {
    Root,
    Chunks,
    First(u8),
    Second(u8, u8),
}

impl Directory {
    /// Where the files of a chunk are.
    pub fn of(chunk: &ChunkId) -> Self {
        let (a, b) = ChunkName(*chunk).directory();
        Self::Second(a, b)
    }

    fn parent(self) -> Option<Self> {
        match self {
            Self::Root => None,
            Self::Chunks => Some(Self::Root),
            Self::First(_) => Some(Self::Chunks),
            Self::Second(a, _) => Some(Self::First(a)),
        }
    }

    /// Makes it and what is missing above it.
    pub fn make(self, root: &OwnedFd, directories: &Directories) -> rustix::io::Result<()> {
        let Some(parent) = self.parent() else { return Ok(()) };
        let _changing = directories.changing(parent);
        let make = || match mkdirat(root, self.to_string().as_str(), Mode::from_raw_mode(0o700)) {
            Err(Errno::EXIST) => Ok(()),
            made => made,
        };
        match make() {
            Err(Errno::NOENT) => {
                parent.make(root, directories)?;
                make()
            }
            made => made,
        }
    }
}

/// Its path below the target's directory.
impl fmt::Display for Directory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => f.write_str("."),
            Self::Chunks => f.write_str("chunks"),
            Self::First(a) => write!(f, "chunks/{a:02x}"),
            Self::Second(a, b) => write!(f, "chunks/{a:02x}/{b:02x}"),
        }
    }
}

/// Directories that changed since they were last synced. One sync runs at a time and without the lock: who makes a name
/// never waits for it, and who wants a sync meanwhile shares the next one with all others who do.
#[derive(Default)]
pub(super) struct Directories {
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Default)]
struct State {
    /// Each with how many are changing it at the moment.
    unsynced: BTreeMap<Directory, u32>,
    /// What the sync under way will have made durable.
    syncing: BTreeSet<Directory>,
    /// What the next sync is of.
    next: BTreeSet<Directory>,
    /// Syncs that began, and that ended.
    begun: u64,
    ended: u64,
    /// The last sync that failed.
    failed: Option<(u64, DiskError)>,
}

/// Held while a name is made or removed. Noted before, because whoever finds the new name and syncs must find the note;
/// kept until after, because a sync that runs meanwhile may have come too early for the name.
pub(super) struct Changing<'a> {
    directories: &'a Directories,
    directory: Directory,
}

impl Directories {
    /// A thread that panicked ends the process, so a poisoned lock holds sound data.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A name in it is about to be made or removed.
    pub fn changing(&self, directory: Directory) -> Changing<'_> {
        *self.lock().unsynced.entry(directory).or_insert(0) += 1;
        Changing { directories: self, directory }
    }

    /// Returns when what was noted of these directories, and of those above them, is durable: by `sync`, or by the sync
    /// of somebody else. All who count on a sync that fails are told. (Only the last failure is known: who wakes late may
    /// hear of one behind his own sync, and asks again.)
    pub fn sync(
        &self,
        wanted: impl IntoIterator<Item = Directory>,
        sync: impl FnOnce(&BTreeSet<Directory>) -> Result<(), DiskError>,
    ) -> Result<(), DiskError> {
        let mut state = self.lock();
        let Some((first, last)) = state.wish(wanted) else { return Ok(()) };
        while state.ended < last {
            if state.begun > state.ended {
                state = self.ended.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let due = state.begin();
            drop(state);
            let synced = sync(&due);
            state = self.lock();
            state.end(synced);
            self.ended.notify_all();
            break;
        }
        match &state.failed {
            Some((failed, e)) if *failed >= first => Err(e.clone()),
            _ => Ok(()),
        }
    }
}

impl State {
    /// The first and the last sync that together will have made all of it durable, unless it is: the one under way, the
    /// next, or both.
    fn wish(&mut self, wanted: impl IntoIterator<Item = Directory>) -> Option<(u64, u64)> {
        let mut counts_on = BTreeSet::new();
        for lowest in wanted {
            for directory in std::iter::successors(Some(lowest), |one| one.parent()) {
                if self.syncing.contains(&directory) {
                    counts_on.insert(self.begun);
                }
                if self.unsynced.contains_key(&directory) {
                    self.next.insert(directory);
                    counts_on.insert(self.begun + 1);
                }
            }
        }
        Some((*counts_on.first()?, *counts_on.last()?))
    }

    /// What is changed at the moment stays unsynced.
    fn begin(&mut self) -> BTreeSet<Directory> {
        self.begun += 1;
        let due = std::mem::take(&mut self.next);
        for directory in &due {
            if self.unsynced.get(directory) == Some(&0) {
                self.unsynced.remove(directory);
                self.syncing.insert(*directory);
            }
        }
        due
    }

    fn end(&mut self, synced: Result<(), DiskError>) {
        self.ended = self.begun;
        let syncing = std::mem::take(&mut self.syncing);
        if let Err(e) = synced {
            self.failed = Some((self.ended, e));
            for directory in syncing {
                self.unsynced.entry(directory).or_insert(0);
            }
        }
    }
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        if let Some(changing) = self.directories.lock().unsynced.get_mut(&self.directory) {
            *changing -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::TargetDir;
    use skep_storage::{ChunkStore, PieceName};
    use skep_types::{Generation, Ino, Uuid};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
    use std::time::{Duration, Instant};

    /// Nobody waits longer for another thread.
    const LIMIT: Duration = Duration::from_secs(60);

    const HERE: Directory = Directory::Second(1, 2);
    const THERE: Directory = Directory::Second(3, 4);

    fn syncs(directories: &Directories) -> bool {
        let mut synced = false;
        let sync = |due: &BTreeSet<Directory>| {
            synced = due.contains(&HERE);
            Ok(())
        };
        directories.sync([HERE, THERE], sync).unwrap();
        synced
    }

    /// Goal: a target notes each directory in which it makes or removes a name, and a sync of a chunk file is of those.
    #[test]
    fn a_target_notes_what_it_changes() {
        let scratch = tempfile::tempdir().unwrap();
        let (cluster, target) = (Uuid([1; 16]), Some(Uuid([2; 16])));
        let target = TargetDir::open(scratch.path(), cluster, target, 0).unwrap();
        let chunk = ChunkId { ino: Ino(7), generation: Generation(1), extent: 0, stripe: 0 };
        let piece = PieceName::first(chunk);
        let noted =
            || -> Vec<Directory> { target.unsynced_directories.lock().unsynced.keys().copied().collect() };
        let here = Directory::of(&chunk);
        target.write(&piece, 0, b"x").unwrap();
        assert_eq!(noted(), [Directory::Chunks, here.parent().unwrap(), here]);
        target.sync(&[piece]).unwrap();
        assert_eq!(noted(), []);
        target.write(&piece, 0, b"y").unwrap();
        assert_eq!(noted(), [], "no name was made");
        target.remove(&piece).unwrap();
        assert_eq!(noted(), [here]);
        target.sync(&[piece]).unwrap();
        assert_eq!(noted(), []);
    }

    /// Goal: a name that one thread has made and not yet finished with is synced by another that uses it, and a sync
    /// that may have come too early for the name does not count for it.
    #[test]
    fn a_name_in_the_making_is_synced() {
        let directories = Directories::default();
        assert!(!syncs(&directories));
        let making = directories.changing(HERE);
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
        drop(directories.changing(HERE));
        assert_eq!(directories.sync([HERE], |_| Err(DiskError::Busy)), Err(DiskError::Busy));
        assert!(syncs(&directories));
        assert!(!syncs(&directories));
    }

    /// Goal: a sync is of the directories above as well, where names were made in them, and only there; also for who finds
    /// that somebody else has just made them.
    #[test]
    fn directories_above_are_synced_when_they_changed() {
        let scratch = tempfile::tempdir().unwrap();
        let root = OwnedFd::from(std::fs::File::open(scratch.path()).unwrap());
        let directories = Directories::default();
        let synced_for = |directories: &Directories, directory: Directory| {
            let mut synced: Vec<Directory> = Vec::new();
            let _changing = directories.changing(directory);
            let sync = |due: &BTreeSet<Directory>| {
                synced.extend(due.iter().copied());
                Ok(())
            };
            directories.sync([directory], sync).unwrap();
            synced
        };
        HERE.make(&root, &directories).unwrap();
        let all = [Directory::Root, Directory::Chunks, Directory::First(1), HERE];
        assert_eq!(synced_for(&directories, HERE), all);
        assert_eq!(synced_for(&directories, HERE), [HERE]);
        let beside = Directory::Second(1, 9);
        beside.make(&root, &directories).unwrap();
        assert_eq!(synced_for(&directories, beside), [Directory::First(1), beside]);
        assert!(scratch.path().join(beside.to_string()).is_dir());
        let late = Directories::default();
        beside.make(&root, &late).unwrap();
        assert_eq!(synced_for(&late, beside), [Directory::First(1), beside]);
    }

    /// Goal: who makes a name does not wait for a sync, and that name is not taken for durable by it.
    #[test]
    fn names_are_made_beside_a_sync() {
        let directories = Arc::new(Directories::default());
        drop(directories.changing(HERE));
        let beside = directories.clone();
        let synced = directories.sync([HERE], |_| {
            let (made, is_made) = std::sync::mpsc::channel();
            std::thread::spawn(move || {
                drop(beside.changing(HERE));
                made.send(())
            });
            is_made.recv_timeout(LIMIT).map_err(|_| DiskError::Busy)
        });
        assert_eq!(synced, Ok(()));
        assert!(syncs(&directories));
    }

    /// Goal: those who come while a sync runs wait for its end, share the next one, and all hear of its failure.
    /// Method: four threads find the first sync at work, which goes on when all of them wait.
    #[test]
    fn who_comes_meanwhile_shares_the_next_sync() {
        let directories = Directories::default();
        drop(directories.changing(HERE));
        let (syncs, most) = (AtomicU32::new(0), AtomicU32::new(0));
        std::thread::scope(|scope| {
            let mut others = Vec::new();
            let first = directories.sync([HERE], |_| {
                for n in 0..4 {
                    let (directories, syncs, most) = (&directories, &syncs, &most);
                    others.push(scope.spawn(move || {
                        let directory = Directory::Second(n, n);
                        drop(directories.changing(directory));
                        directories.sync([directory], |due| {
                            syncs.fetch_add(1, SeqCst);
                            most.fetch_max(due.len() as u32, SeqCst);
                            Err(DiskError::Busy)
                        })
                    }));
                }
                let begun = Instant::now();
                while directories.lock().next.len() < 4 && begun.elapsed() < LIMIT {
                    std::thread::sleep(Duration::from_millis(1));
                }
                Ok(())
            });
            assert_eq!(first, Ok(()));
            for other in others {
                assert_eq!(other.join().unwrap(), Err(DiskError::Busy));
            }
        });
        assert_eq!((syncs.into_inner(), most.into_inner()), (1, 4));
    }

    /// Goal: a name that the sync under way makes durable is not taken for durable before that sync has ended well.
    #[test]
    fn a_sync_under_way_is_waited_for() {
        let mut state = State::default();
        state.unsynced.insert(HERE, 0);
        for (result, then) in [(Err(DiskError::Busy), Some((2, 2))), (Ok(()), None)] {
            let mine = state.wish([HERE]);
            assert!(mine.is_some());
            assert_eq!(state.begin(), BTreeSet::from([HERE]));
            assert_eq!(state.wish([HERE]), mine, "it waits for this one");
            state.end(result);
            assert_eq!(state.wish([HERE]), then);
        }
    }

    /// Goal: who needs the sync under way and the next one waits for both, and hears of a failure of either.
    #[test]
    fn both_syncs_are_counted_on() {
        for wanted in [[HERE, THERE], [THERE, HERE]] {
            let mut state = State::default();
            state.unsynced.insert(HERE, 0);
            assert_eq!(state.wish([HERE]), Some((1, 1)));
            state.begin();
            state.unsynced.insert(THERE, 0);
            assert_eq!(state.wish(wanted), Some((1, 2)));
        }
        let directories = Directories::default();
        drop(directories.changing(HERE));
        std::thread::scope(|scope| {
            let mut other = None;
            let first = directories.sync([HERE], |_| {
                let directories = &directories;
                other = Some(scope.spawn(move || {
                    drop(directories.changing(THERE));
                    directories.sync([HERE, THERE], |_| Ok(()))
                }));
                let begun = Instant::now();
                while directories.lock().next.is_empty() && begun.elapsed() < LIMIT {
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err(DiskError::Busy)
            });
            assert_eq!(first, Err(DiskError::Busy));
            assert_eq!(other.unwrap().join().unwrap(), Err(DiskError::Busy), "the next one was good");
        });
    }
}
