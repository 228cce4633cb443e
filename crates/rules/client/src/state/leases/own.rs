//! Changes of this mount. The shard recalls nothing for them, and they run beside questions of the same mount: what was
//! asked before one was answered may be from before it or from behind it.

use crate::limits::OWN_CHANGES_KEPT_MAX;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use skep_types::{Ino, ShardId, Slot};

/// What a request changes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Change {
    pub inos: [Option<Ino>; 2],
    /// Names, with their directories.
    pub names: [Option<(Ino, Box<[u8]>)>; 2],
    /// What the names lead to, as far as that is known.
    pub found: [Option<Ino>; 2],
    /// A directory of this shard goes, or moves, and it is not known which.
    pub some_dir_of: Option<ShardId>,
}

/// What became of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Became {
    /// Its shard has answered: what the lane sent there before is not done any more.
    Settled,
    /// It is over, which says nothing of others: it was never sent, or has no place in the lane.
    Over,
    /// It was given up, and may still be made.
    InDoubt,
}

impl Change {
    fn all_inos(&self) -> impl Iterator<Item = Ino> {
        self.inos.into_iter().chain(self.found).flatten()
    }
}

/// Those under way, and when the last of each inode was answered.
#[derive(Debug)]
pub struct OwnChanges {
    /// Inodes of which that is known.
    most: usize,
    inos: BTreeMap<Ino, u32>,
    names: BTreeMap<Ino, BTreeMap<Box<[u8]>, u32>>,
    /// Those of some directory, nobody knows of which.
    some_dirs: BTreeMap<ShardId, u32>,
    /// The request that was sent last before the answer came.
    answered: BTreeMap<Ino, u64>,
    /// The same of all those that are not there.
    floor: u64,
    /// Given up after they were sent. Until the lane's next change has been answered they may still be made.
    doubts: BTreeMap<(Slot, ShardId), Vec<Change>>,
}

impl Default for OwnChanges {
    fn default() -> Self {
        Self::new(OWN_CHANGES_KEPT_MAX)
    }
}

impl OwnChanges {
    pub fn new(most: usize) -> Self {
        Self {
            most,
            inos: BTreeMap::new(),
            names: BTreeMap::new(),
            some_dirs: BTreeMap::new(),
            answered: BTreeMap::new(),
            floor: 0,
            doubts: BTreeMap::new(),
        }
    }

    /// A change is about to be sent.
    pub fn begins(&mut self, change: &Change) {
        for ino in change.all_inos() {
            *self.inos.entry(ino).or_default() += 1;
        }
        if let Some(shard) = change.some_dir_of {
            *self.some_dirs.entry(shard).or_default() += 1;
        }
        for (dir, name) in change.names.iter().flatten() {
            *self.names.entry(*dir).or_default().entry(name.clone()).or_default() += 1;
        }
    }

    /// It was answered, or certainly not sent; `serial` is the newest request.
    pub fn ends(&mut self, change: &Change, serial: u64) {
        for ino in change.all_inos() {
            lower(&mut self.inos, &ino);
            self.answered.insert(ino, serial);
        }
        if let Some(shard) = change.some_dir_of {
            lower(&mut self.some_dirs, &shard);
            self.all_is_old(serial);
        }
        for (dir, name) in change.names.iter().flatten() {
            if let Some(names) = self.names.get_mut(dir) {
                lower(names, name);
                if names.is_empty() {
                    self.names.remove(dir);
                }
            }
        }
        if self.answered.len() > self.most {
            self.all_is_old(serial);
        }
    }

    /// What was asked of `ino` up to the request `serial` is not kept.
    pub fn is_old(&mut self, ino: Ino, serial: u64) {
        self.answered.insert(ino, serial);
    }

    /// The same of everything.
    pub fn all_is_old(&mut self, serial: u64) {
        self.answered.clear();
        self.floor = serial;
    }

    /// It was given up, and may still be made.
    pub fn is_in_doubt(&mut self, lane: (Slot, ShardId), change: Change) {
        self.doubts.entry(lane).or_default().push(change);
    }

    /// The lane's next change on the shard was answered: those before it are not made any more.
    pub fn is_settled(&mut self, lane: (Slot, ShardId), serial: u64) {
        for change in self.doubts.remove(&lane).unwrap_or_default() {
            self.ends(&change, serial);
        }
    }

    /// Nothing of the old session is done any more.
    pub fn session_ended(&mut self, serial: u64) {
        for change in core::mem::take(&mut self.doubts).into_values().flatten() {
            self.ends(&change, serial);
        }
    }

    /// Was the question `serial` asked after every change of `ino` had been answered?
    pub fn is_fresh(&self, ino: Ino, serial: u64) -> bool {
        let answered = self.answered.get(&ino).copied().unwrap_or(self.floor);
        self.is_free(ino) && serial > answered
    }

    /// Is no change of `ino` under way?
    pub fn is_free(&self, ino: Ino) -> bool {
        !self.inos.contains_key(&ino) && !self.some_dirs.contains_key(&ino.shard())
    }

    /// Is no change of this name under way?
    pub fn is_name_free(&self, dir: Ino, name: &[u8]) -> bool {
        self.names.get(&dir).is_none_or(|names| !names.contains_key(name))
    }
}

fn lower<K: Ord>(counts: &mut BTreeMap<K, u32>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}
