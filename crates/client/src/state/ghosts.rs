//! Directories that this mount removed while a program is still in them.
//!
//! Linux lets a program stay in a removed directory: `fstat` works and shows no links, and its mode, owner and times can be
//! set. The shard has forgotten it, so the mount answers. A removal names the directory by parent and name only; which
//! inode that was, the look-up, or the change of names, just before it told.

use crate::limits::{DIRS_SEEN_MAX, GHOSTS_MAX};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use skep_types::{Attr, Ino, Kind, SetAttr, SetTime, Timestamp};

type Place = (Ino, Box<[u8]>);

/// Directories seen lately, and those removed since.
#[derive(Debug, Default)]
pub struct Ghosts {
    seen: BTreeMap<Place, Ino>,
    order: VecDeque<Place>,
    /// Of those seen. A directory has one place only.
    known: BTreeMap<Ino, Attr>,
    removed: BTreeMap<Ino, Attr>,
    removed_order: VecDeque<Ino>,
}

impl Ghosts {
    /// `attr` is under this name.
    pub fn seen(&mut self, parent: Ino, name: &[u8], attr: &Attr) {
        if attr.kind != Kind::Dir {
            return;
        }
        self.known.insert(attr.ino, attr.clone());
        self.put((parent, name.into()), attr.ino);
    }

    fn put(&mut self, place: Place, ino: Ino) {
        match self.seen.insert(place.clone(), ino) {
            Some(other) if other != ino => drop(self.known.remove(&other)),
            Some(_) => {}
            None => self.order.push_back(place),
        }
        while self.order.len() > DIRS_SEEN_MAX {
            let Some(oldest) = self.order.pop_front() else { break };
            self.take(&oldest);
        }
    }

    fn take(&mut self, place: &Place) -> Option<Attr> {
        self.seen.remove(place).and_then(|ino| self.known.remove(&ino))
    }

    /// Newer attributes of one that may have been seen.
    pub fn learn(&mut self, attr: &Attr) {
        if let Some(known) = self.known.get_mut(&attr.ino) {
            known.clone_from(attr);
        }
    }

    /// What was under this name was removed.
    pub fn removed(&mut self, parent: Ino, name: &[u8]) {
        let Some(mut attr) = self.take(&(parent, name.into())) else { return };
        attr.nlink = 0;
        if self.removed.insert(attr.ino, attr.clone()).is_none() {
            self.removed_order.push_back(attr.ino);
        }
        while self.removed_order.len() > GHOSTS_MAX {
            let Some(oldest) = self.removed_order.pop_front() else { break };
            self.removed.remove(&oldest);
        }
    }

    /// What was under the first name is under the second, where it replaced what was there, or changed places with it.
    pub fn moved(&mut self, from: (Ino, &[u8]), to: (Ino, &[u8]), exchange: bool) {
        if from == to {
            return;
        }
        if !exchange {
            self.removed(to.0, to.1);
        }
        let [from, to] = [from, to].map(|(parent, name)| (parent, Box::from(name)));
        let (one, other) = (self.take(&from), self.take(&to));
        for (attr, place) in [(one, to), (other, from)] {
            if let Some(attr) = attr {
                self.seen(place.0, &place.1, &attr);
            }
        }
    }

    /// Attributes of a directory that the shard no longer knows.
    pub fn get(&self, ino: Ino) -> Option<&Attr> {
        self.removed.get(&ino)
    }

    /// Sets some of them.
    pub fn set(&mut self, ino: Ino, set: &SetAttr, now: Timestamp) -> Option<Attr> {
        let attr = self.removed.get_mut(&ino).filter(|_| set.size.is_none())?;
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
        self.removed.remove(&ino);
        if self.removed.is_empty() {
            self.removed_order.clear();
        }
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
            ghosts.seen(Ino(ino), b"kept", &dir(ino));
            ghosts.seen(Ino(1), b"replaced", &dir(1_000_000 + ino));
        }
        assert!(ghosts.removed.len() <= GHOSTS_MAX && ghosts.seen.len() <= DIRS_SEEN_MAX);
        assert!(ghosts.order.len() <= DIRS_SEEN_MAX && ghosts.known.len() <= DIRS_SEEN_MAX);
    }

    /// Goal: a directory is followed to its new name, also when two change places; what a rename replaced is a ghost.
    #[test]
    fn ghosts_follow_renames() {
        let mut ghosts = Ghosts::default();
        ghosts.seen(Ino(1), b"a", &dir(5));
        ghosts.seen(Ino(1), b"b", &dir(6));
        ghosts.moved((Ino(1), b"a"), (Ino(1), b"b"), true);
        ghosts.moved((Ino(1), b"b"), (Ino(1), b"b"), false);
        ghosts.removed(Ino(1), b"b");
        assert!(ghosts.get(Ino(5)).is_some() && ghosts.get(Ino(6)).is_none());
        ghosts.seen(Ino(2), b"c", &dir(7));
        ghosts.moved((Ino(1), b"a"), (Ino(2), b"c"), false);
        assert!(ghosts.get(Ino(7)).is_some() && ghosts.get(Ino(6)).is_none());
        ghosts.removed(Ino(2), b"c");
        assert!(ghosts.get(Ino(6)).is_some());
    }

    /// Goal: it has the attributes that it had last, and takes others.
    #[test]
    fn ghosts_have_attributes() {
        let mut ghosts = Ghosts::default();
        let now = Timestamp { secs: 7, nanos: 0 };
        ghosts.seen(Ino(1), b"a", &dir(5));
        ghosts.learn(&Attr { mode: 0o700, ..dir(5) });
        ghosts.learn(&dir(6));
        let mode = SetAttr { mode: Some(0o711), ..SetAttr::default() };
        assert!(ghosts.set(Ino(5), &mode, now).is_none(), "it is there");
        ghosts.removed(Ino(1), b"a");
        assert_eq!(ghosts.get(Ino(5)).map(|attr| (attr.mode, attr.nlink)), Some((0o700, 0)));
        let times = SetAttr { uid: Some(3), mtime: Some(SetTime::Now), ..mode };
        let set = ghosts.set(Ino(5), &times, now).unwrap();
        assert_eq!((set.mode, set.uid, set.gid, set.mtime, set.ctime), (0o711, 3, dir(5).gid, now, now));
        assert_eq!(ghosts.get(Ino(5)), Some(&set));
    }
}
