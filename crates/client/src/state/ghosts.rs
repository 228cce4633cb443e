//! Directories that this mount removed while a program is still in them.
//!
//! Linux lets a program stay in a removed directory: `fstat` works and shows no links, and its mode, owner and times can be
//! set. The shard has forgotten it, so the mount answers. A removal names the directory by parent and name only; which
//! inode that was, the look-up just before it told: names are not kept by the kernel, so there always is one.

use crate::limits::{DIRS_SEEN_MAX, GHOSTS_MAX};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use skep_types::{Attr, Ino, Kind, SetAttr, SetTime, Timestamp};

type Place = (Ino, Box<[u8]>);

/// Directories seen lately, and those removed since.
#[derive(Debug, Default)]
pub struct Ghosts {
    seen: BTreeMap<Place, Attr>,
    order: VecDeque<Place>,
    removed: BTreeMap<Ino, Attr>,
    removed_order: VecDeque<Ino>,
}

impl Ghosts {
    /// A look-up found `attr` under this name.
    pub fn seen(&mut self, parent: Ino, name: &[u8], attr: &Attr) {
        if attr.kind != Kind::Dir {
            return;
        }
        let place: Place = (parent, name.into());
        if self.seen.insert(place.clone(), attr.clone()).is_some() {
            return;
        }
        self.order.push_back(place);
        while self.order.len() > DIRS_SEEN_MAX {
            let Some(oldest) = self.order.pop_front() else { break };
            self.seen.remove(&oldest);
        }
    }

    /// What was under this name was removed, or replaced by a rename.
    pub fn removed(&mut self, parent: Ino, name: &[u8]) {
        let Some(mut attr) = self.seen.remove(&(parent, name.into())) else { return };
        attr.nlink = 0;
        if self.removed.insert(attr.ino, attr.clone()).is_none() {
            self.removed_order.push_back(attr.ino);
        }
        while self.removed_order.len() > GHOSTS_MAX {
            let Some(oldest) = self.removed_order.pop_front() else { break };
            self.removed.remove(&oldest);
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
        if self.removed.remove(&ino).is_some() {
            self.removed_order.retain(|removed| *removed != ino);
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
        }
        assert!(ghosts.removed.len() <= GHOSTS_MAX && ghosts.seen.len() <= DIRS_SEEN_MAX);
        assert!(ghosts.order.len() <= DIRS_SEEN_MAX);
    }

    /// Goal: those that nobody is in take no place of those that somebody is in.
    #[test]
    fn ghosts_outlive_many_that_come_and_go() {
        let mut ghosts = Ghosts::default();
        for ino in 10..10 + 2 * GHOSTS_MAX as u64 {
            ghosts.seen(Ino(1), b"d", &dir(ino));
            ghosts.removed(Ino(1), b"d");
            if ino != 10 {
                ghosts.forget(Ino(ino));
            }
        }
        assert!(ghosts.get(Ino(10)).is_some());
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
}
