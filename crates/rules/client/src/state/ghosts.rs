//! Directories that were removed, by this mount or another, while a program is still in them.
//!
//! Linux lets a program stay in a removed directory: `fstat` works and shows no links, and its mode, owner and times can be
//! set. The shard has forgotten it, so the mount answers. A removal names the directory by parent and name only; which
//! inode that was, the look-up before it told: the kernel's, or where that used the name without asking, the mount's own. That
//! another mount has removed one shows when the shard is asked about it.

use crate::limits::{DIRS_SEEN_MAX, GHOSTS_MAX};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use skep_types::{Attr, Ino, Kind, SetAttr, SetTime, Timestamp};

type Place = (Ino, Box<[u8]>);

/// Directories seen lately, and those removed since.
#[derive(Debug)]
pub struct Ghosts {
    seen: Newest<Place>,
    removed: Newest<Ino>,
}

impl Default for Ghosts {
    fn default() -> Self {
        Self { seen: Newest::of(DIRS_SEEN_MAX), removed: Newest::of(GHOSTS_MAX) }
    }
}

impl Ghosts {
    /// A look-up found `attr` under this name.
    pub fn seen(&mut self, parent: Ino, name: &[u8], attr: &Attr) {
        let place: Place = (parent, name.into());
        match attr.kind {
            Kind::Dir => self.seen.put(place, attr.clone()),
            _ => drop(self.seen.take(&place)),
        }
    }

    /// A listing shows `attr` under this name: it may be older than what a look-up found.
    pub fn listed(&mut self, parent: Ino, name: &[u8], attr: &Attr) {
        if self.was_seen(parent, name).is_none() {
            self.seen(parent, name, attr);
        }
    }

    /// The directory that was found under this name.
    pub fn was_seen(&self, parent: Ino, name: &[u8]) -> Option<Ino> {
        self.seen.entries.get(&(parent, name.into())).map(|(_, attr)| attr.ino)
    }

    /// What was under this name was removed, or replaced by a rename.
    pub fn removed(&mut self, parent: Ino, name: &[u8]) {
        if let Some(attr) = self.seen.take(&(parent, name.into())) {
            self.removed.put(attr.ino, Attr { nlink: 0, ..attr });
        }
    }

    /// A rename: what was under each name is under the other now, if anything was.
    pub fn moved(&mut self, one: (Ino, &[u8]), two: (Ino, &[u8])) {
        let places = [one, two].map(|(parent, name)| -> Place { (parent, name.into()) });
        let [moved, other] = [0, 1].map(|at| self.seen.take(&places[at]));
        let [one, two] = places;
        for (place, attr) in [(two, moved), (one, other)] {
            attr.into_iter().for_each(|attr| self.seen.put(place.clone(), attr));
        }
    }

    /// What is under this name is not known.
    pub fn unseen(&mut self, parent: Ino, name: &[u8]) {
        self.seen.take(&(parent, name.into()));
    }

    /// Attributes of a directory that the shard no longer knows.
    pub fn get(&self, ino: Ino) -> Option<&Attr> {
        self.removed.entries.get(&ino).map(|(_, attr)| attr)
    }

    /// The shard knows it no longer: whoever removed it, one that was seen here is a ghost.
    pub fn gone(&mut self, ino: Ino) {
        if self.get(ino).is_some() {
            return;
        }
        let mut seen = self.seen.entries.iter();
        if let Some((place, _)) = seen.find(|(_, (_, attr))| attr.ino == ino) {
            let (parent, name) = place.clone();
            self.removed(parent, &name);
        }
    }

    /// Sets some of them.
    pub fn set(&mut self, ino: Ino, set: &SetAttr, now: Timestamp) -> Option<Attr> {
        let (_, attr) = self.removed.entries.get_mut(&ino).filter(|_| set.size.is_none())?;
        let at = |time| if let SetTime::At(time) = time { time } else { now };
        attr.mode = set.mode.unwrap_or(attr.mode);
        attr.uid = set.uid.unwrap_or(attr.uid);
        attr.gid = set.gid.unwrap_or(attr.gid);
        attr.atime = set.atime.map_or(attr.atime, at);
        attr.mtime = set.mtime.map_or(attr.mtime, at);
        attr.ctime = now;
        attr.change += 1;
        Some(attr.clone())
    }

    /// The kernel has forgotten it too.
    pub fn forget(&mut self, ino: Ino) {
        self.removed.take(&ino);
    }
}

/// Attributes of those that were put in last, up to a number.
#[derive(Debug)]
struct Newest<K> {
    most: usize,
    entries: BTreeMap<K, (u64, Attr)>,
    order: BTreeMap<u64, K>,
    puts: u64,
}

impl<K: Ord + Clone> Newest<K> {
    fn of(most: usize) -> Self {
        Self { most, entries: BTreeMap::new(), order: BTreeMap::new(), puts: 0 }
    }

    fn put(&mut self, key: K, attr: Attr) {
        self.take(&key);
        self.puts += 1;
        self.order.insert(self.puts, key.clone());
        self.entries.insert(key, (self.puts, attr));
        if self.entries.len() > self.most
            && let Some((_, oldest)) = self.order.pop_first()
        {
            self.entries.remove(&oldest);
        }
    }

    fn take(&mut self, key: &K) -> Option<Attr> {
        let (number, attr) = self.entries.remove(key)?;
        self.order.remove(&number);
        Some(attr)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::attr;

    fn dir(ino: u64) -> Attr {
        Attr { kind: Kind::Dir, ..attr(ino, 1, 0) }
    }

    /// Goal: only a directory seen under the name becomes a ghost, it goes with the kernel's memory of
    /// it, and neither list grows without end.
    #[test]
    fn ghosts_come_and_go() {
        let mut ghosts = Ghosts::default();
        ghosts.seen(Ino(1), b"file", &attr(5, 1, 0));
        ghosts.removed(Ino(1), b"file");
        assert!(ghosts.get(Ino(5)).is_none());
        ghosts.seen(Ino(1), b"dir", &dir(6));
        ghosts.removed(Ino(1), b"other");
        assert!(ghosts.get(Ino(6)).is_none());
        ghosts.removed(Ino(1), b"dir");
        assert_eq!(ghosts.get(Ino(6)).map(|attr| attr.nlink), Some(0));
        ghosts.forget(Ino(6));
        assert!(ghosts.get(Ino(6)).is_none());
        for ino in 10..10 + 2 * GHOSTS_MAX as u64 {
            ghosts.seen(Ino(1), b"d", &dir(ino));
            ghosts.removed(Ino(1), b"d");
            assert!(ghosts.get(Ino(ino)).is_some());
            ghosts.seen(Ino(ino), b"kept", &dir(ino));
        }
        assert_eq!((ghosts.removed.entries.len(), ghosts.removed.order.len()), (GHOSTS_MAX, GHOSTS_MAX));
        assert_eq!((ghosts.seen.entries.len(), ghosts.seen.order.len()), (DIRS_SEEN_MAX, DIRS_SEEN_MAX));
        assert!(ghosts.get(Ino(10)).is_none(), "the oldest goes");
    }

    /// Goal: those that nobody is in take no place of those that somebody is in.
    #[test]
    fn ghosts_outlive_many_that_come_and_go() {
        let mut ghosts = Ghosts::default();
        for ino in 10..10 + 2 * GHOSTS_MAX as u64 {
            ghosts.seen(Ino(1), b"d", &dir(ino));
            ghosts.removed(Ino(1), b"d");
            assert!(ghosts.get(Ino(ino)).is_some());
            if ino != 10 {
                ghosts.forget(Ino(ino));
            }
        }
        assert!(ghosts.get(Ino(10)).is_some());
    }

    /// Goal: a directory that has another name, or whose name something else has, is no ghost when that is removed.
    #[test]
    fn a_directory_that_is_there_is_no_ghost() {
        let mut ghosts = Ghosts::default();
        ghosts.seen(Ino(1), b"a", &dir(5));
        ghosts.unseen(Ino(1), b"a");
        ghosts.seen(Ino(1), b"b", &dir(6));
        ghosts.seen(Ino(1), b"b", &attr(7, 1, 0));
        ghosts.removed(Ino(1), b"a");
        ghosts.removed(Ino(1), b"b");
        assert!([5, 6, 7].iter().all(|ino| ghosts.get(Ino(*ino)).is_none()));
        ghosts.seen(Ino(1), b"c", &dir(8));
        ghosts.moved((Ino(1), b"c"), (Ino(2), b"d"));
        ghosts.removed(Ino(1), b"c");
        assert!(ghosts.get(Ino(8)).is_none());
        ghosts.removed(Ino(2), b"d");
        assert!(ghosts.get(Ino(8)).is_some(), "by its new name");
    }

    /// Goal: it has the attributes that it had when it was seen last, and takes others.
    #[test]
    fn ghosts_have_attributes() {
        let mut ghosts = Ghosts::default();
        let now = Timestamp { secs: 7, nanos: 0 };
        ghosts.seen(Ino(1), b"a", &Attr { mode: 0o700, ..dir(5) });
        let mode = SetAttr { mode: Some(0o711), ..SetAttr::default() };
        assert!(ghosts.set(Ino(5), &mode, now).is_none(), "it is there");
        ghosts.removed(Ino(1), b"a");
        assert_eq!(ghosts.get(Ino(5)).map(|attr| (attr.mode, attr.nlink)), Some((0o700, 0)));
        let times = SetAttr { uid: Some(3), mtime: Some(SetTime::Now), ..mode };
        let set = ghosts.set(Ino(5), &times, now).unwrap();
        assert_eq!((set.mode, set.uid, set.gid, set.mtime, set.ctime), (0o711, 3, dir(5).gid, now, now));
        assert_eq!(ghosts.get(Ino(5)), Some(&set));
    }

    /// Goal: a directory that another mount removed is a ghost as well, if it was seen here; what was not seen is none.
    #[test]
    fn what_others_removed_is_a_ghost() {
        let mut ghosts = Ghosts::default();
        ghosts.listed(Ino(1), b"a", &dir(5));
        ghosts.listed(Ino(1), b"a", &dir(6));
        ghosts.gone(Ino(6));
        assert!(ghosts.get(Ino(5)).is_none() && ghosts.get(Ino(6)).is_none());
        ghosts.gone(Ino(5));
        ghosts.gone(Ino(5));
        assert_eq!(ghosts.get(Ino(5)).map(|attr| attr.nlink), Some(0));
        assert!(ghosts.was_seen(Ino(1), b"a").is_none());
    }
}
