//! Directories that this mount removed while a program is still in them.
//!
//! Linux lets a program stay in a removed directory: `fstat` works and shows no links. The shard has
//! forgotten it, so the mount answers. A removal names the directory by parent and name only; which
//! inode that was, the look-up just before it told.

use crate::limits::{DIRS_SEEN_MAX, GHOSTS_MAX};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use skep_types::{Attr, Ino, Kind};

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

    /// Goal: only a directory seen under the name becomes a ghost, it goes with the kernel's memory of
    /// it, and neither list grows without end.
    #[test]
    fn ghosts_come_and_go() {
        let mut ghosts = Ghosts::default();
        let dir = |ino| Attr { kind: Kind::Dir, ..attr(ino, 1, 0) };
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
}
