//! Changes of this mount. The shard recalls nothing for them, and they run beside questions of the same mount: what was
//! asked before one was answered may be from before it or from behind it.

use crate::limits::{DOUBTS_MAX, OWN_CHANGES_KEPT_MAX};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
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
    /// It is a rename, and the kernel would not be told these of its names.
    pub untold: [bool; 2],
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

    /// Those of which it changes something.
    fn shards(&self) -> impl Iterator<Item = ShardId> {
        let dirs = self.names.iter().flatten().map(|(dir, _)| dir.shard());
        dirs.chain(self.all_inos().map(Ino::shard)).chain(self.some_dir_of)
    }
}

/// What a lane has given up after it was sent to a shard. Until its next change there has been answered that may still be made.
#[derive(Debug)]
enum Doubts {
    These(Vec<Change>),
    /// There were too many: it may be anything of these shards.
    AllOf(BTreeSet<ShardId>),
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
    doubts: BTreeMap<(Slot, ShardId), Doubts>,
    /// By how many lanes all of a shard is in doubt.
    doubted: BTreeMap<ShardId, u32>,
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
            doubted: BTreeMap::new(),
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
    pub fn is_in_doubt(&mut self, lane: (Slot, ShardId), change: Change, serial: u64) {
        let doubts = match self.doubts.remove(&lane) {
            None => Doubts::These(Vec::from([change])),
            Some(Doubts::These(mut these)) => {
                these.push(change);
                match these.len() > DOUBTS_MAX {
                    true => Doubts::AllOf(self.all_in_doubt(BTreeSet::new(), these, serial)),
                    false => Doubts::These(these),
                }
            }
            Some(Doubts::AllOf(shards)) => {
                Doubts::AllOf(self.all_in_doubt(shards, Vec::from([change]), serial))
            }
        };
        self.doubts.insert(lane, doubts);
    }

    /// Instead of these all of their shards are in doubt, as those of `shards` already are.
    fn all_in_doubt(
        &mut self,
        mut shards: BTreeSet<ShardId>,
        changes: Vec<Change>,
        serial: u64,
    ) -> BTreeSet<ShardId> {
        for change in changes {
            for shard in change.shards().filter(|shard| shards.insert(*shard)) {
                *self.doubted.entry(shard).or_default() += 1;
            }
            self.ends(&change, serial);
        }
        shards
    }

    /// The lane's next change on the shard was answered: those before it are not made any more.
    pub fn is_settled(&mut self, lane: (Slot, ShardId), serial: u64) {
        match self.doubts.remove(&lane) {
            None => {}
            Some(Doubts::These(these)) => these.iter().for_each(|change| self.ends(change, serial)),
            Some(Doubts::AllOf(shards)) => {
                shards.iter().for_each(|shard| lower(&mut self.doubted, shard));
                self.all_is_old(serial);
            }
        }
    }

    /// Nothing of the old session is done any more.
    pub fn session_ended(&mut self, serial: u64) {
        while let Some(lane) = self.doubts.keys().next().copied() {
            self.is_settled(lane, serial);
        }
    }

    /// Changes that are kept because they may still be made.
    #[cfg(test)]
    pub fn doubts(&self) -> usize {
        let kept = |doubts: &Doubts| if let Doubts::These(these) = doubts { these.len() } else { 0 };
        self.doubts.values().map(kept).sum()
    }

    /// Was the question `serial` asked after every change of `ino` had been answered?
    pub fn is_fresh(&self, ino: Ino, serial: u64) -> bool {
        let answered = self.answered.get(&ino).copied().unwrap_or(self.floor);
        self.is_free(ino) && serial > answered
    }

    /// Is no change of `ino` under way?
    pub fn is_free(&self, ino: Ino) -> bool {
        let shard = ino.shard();
        let is_in_doubt = self.some_dirs.contains_key(&shard) || self.doubted.contains_key(&shard);
        !self.inos.contains_key(&ino) && !is_in_doubt
    }

    /// Is one change of this name under way, and no other?
    pub fn is_only_change(&self, dir: Ino, name: &[u8]) -> bool {
        let changing = self.names.get(&dir).and_then(|names| names.get(name));
        changing == Some(&1) && !self.doubted.contains_key(&dir.shard())
    }

    /// Is no change of this name under way?
    pub fn is_name_free(&self, dir: Ino, name: &[u8]) -> bool {
        let is_changing = self.names.get(&dir).is_some_and(|names| names.contains_key(name));
        !is_changing && !self.doubted.contains_key(&dir.shard())
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
