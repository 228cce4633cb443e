//! What a mount knows of directories under their leases: attributes, names that are there and that are not, parts of listings,
//! and attributes of entries that the lease covers. See `docs/design/leases.md`, section 6.
//!
//! Whether a lease holds is for [`super::Leases`] to say: each call brings the number that it gave, and what was kept under
//! another one is nothing. All is bounded in bytes; what nobody used for longest goes first, its directory's lease with it.
//! Nothing here takes longer for more that is kept: what ends at once is freed little by little.

mod dir;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_random;

pub use dir::{Before, Line, Part};

use crate::limits::{DIRS_KEPT_MAX, Limits, OWN_CHANGES_KEPT_MAX};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use dir::{Dir, Gone};
use skep_types::{Attr, Ino, Kind, LogIndex, ShardId};

/// What one step looks at, to free it or to make room.
const STEPS: usize = 32;

/// What is known of a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// It leads to this inode, whose attributes are known if the directory's lease covers them.
    There(Ino, Kind, Option<Attr>),
    Absent,
    Unknown,
}

/// Attributes of an entry that the lease on its directory covers.
#[derive(Debug)]
struct Covered {
    dir: Ino,
    /// Of the directory, as long as it is kept.
    life: u64,
    index: LogIndex,
    attr: Attr,
    since: CoveredSince,
}

/// From when on without a break a lease covers something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CoveredSince {
    /// Tells it from all other such times.
    pub number: u64,
    /// What was said first of it is as of then.
    pub index: LogIndex,
}

/// What is kept of one shard.
#[derive(Debug, Default)]
struct Table {
    era: u64,
    dirs: BTreeMap<Ino, Dir>,
    covered: BTreeMap<Ino, Covered>,
    bytes: usize,
    /// This mount changed these directories as of then, or later, and what is older says nothing; and so of all others.
    floors: BTreeMap<Ino, LogIndex>,
    floor: LogIndex,
}

/// What is kept.
#[derive(Debug, Default)]
pub struct Names {
    most: usize,
    bytes: usize,
    clock: u64,
    /// Counts times for which something is covered.
    covers: u64,
    tables: BTreeMap<ShardId, Table>,
    /// Directories in them.
    count: usize,
    /// The directories in the order in which they were used last; also of shards that are to be freed.
    used: BTreeMap<u64, Ino>,
    /// Directories that went for want of room: their leases are to be given back.
    left: Vec<Ino>,
    /// To be freed: directories that ended one by one, and whole shards.
    dirs: Vec<(Option<ShardId>, Gone)>,
    shards: Vec<Table>,
    keeps_complete: bool,
}

impl Names {
    pub fn new(limits: &Limits) -> Self {
        Self { most: limits.cache_bytes, keeps_complete: limits.canary_keeps_complete, ..Self::default() }
    }

    /// Bytes in use.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Attributes of a directory.
    pub fn attr(&mut self, dir: Ino, era: u64) -> Option<Attr> {
        self.use_dir(dir, era)?.attr.as_ref().map(|(_, attr)| attr.clone())
    }

    /// What a name in `dir` leads to.
    pub fn find(&mut self, dir: Ino, era: u64, name: &[u8]) -> Found {
        let Some(known) = self.use_dir(dir, era) else { return Found::Unknown };
        let life = known.life;
        match known.find(name) {
            Some(Some((ino, kind))) => {
                let covered = self.tables.get(&dir.shard()).and_then(|table| table.covered.get(&ino));
                let covered = covered.filter(|covered| (covered.dir, covered.life) == (dir, life));
                Found::There(ino, kind, covered.map(|covered| covered.attr.clone()))
            }
            Some(None) => Found::Absent,
            None => Found::Unknown,
        }
    }

    /// Attributes of an entry, and the directory whose lease covers them.
    pub fn covered(&self, ino: Ino, era: u64) -> Option<(Ino, Attr)> {
        self.cover_of(ino, era).map(|covered| (covered.dir, covered.attr.clone()))
    }

    /// Since when a lease covers them.
    pub fn covered_since(&self, ino: Ino, era: u64) -> Option<CoveredSince> {
        self.cover_of(ino, era).map(|covered| covered.since)
    }

    /// The same, with the directory, and where it ends.
    pub fn covered_end(&self, ino: Ino, era: u64) -> Option<(Ino, CoveredSince, u64)> {
        self.cover_of(ino, era).map(|covered| (covered.dir, covered.since, covered.attr.size))
    }

    /// The directory whose lease covers it.
    pub fn covering_dir(&self, ino: Ino, era: u64) -> Option<Ino> {
        self.cover_of(ino, era).map(|covered| covered.dir)
    }

    fn cover_of(&self, ino: Ino, era: u64) -> Option<&Covered> {
        let table = self.tables.get(&ino.shard()).filter(|table| table.era == era)?;
        let covered = table.covered.get(&ino)?;
        table.dirs.get(&covered.dir).is_some_and(|dir| dir.life == covered.life).then_some(covered)
    }

    /// A part of the listing of a directory that is known completely: what follows `after`.
    pub fn part(&mut self, dir: Ino, era: u64, after: u64) -> Option<Arc<Part>> {
        let dir = self.use_dir(dir, era).filter(|dir| dir.complete)?;
        dir.parts.get(&after).cloned()
    }

    /// A name leads to this (`None`: to nothing), as of `index`.
    pub fn put_name(
        &mut self,
        (dir, era): (Ino, u64),
        name: &[u8],
        found: Option<(Ino, Kind)>,
        index: LogIndex,
    ) {
        self.change(dir, era, |dir| dir.put(name, found, index));
    }

    /// A directory has these attributes.
    pub fn put_attr(&mut self, era: u64, attr: &Attr, index: LogIndex) {
        self.change(attr.ino, era, |dir| {
            dir.put_attr(attr, index);
            None
        });
    }

    /// The entry of `dir` with this name has these attributes, and the lease on `dir` covers them.
    pub fn cover(&mut self, (dir, era): (Ino, u64), name: &[u8], attr: &Attr, index: LogIndex) {
        let Some(known) = self.use_dir(dir, era) else { return };
        if known.find(name) != Some(Some((attr.ino, attr.kind))) {
            return;
        }
        let life = known.life;
        self.covers += 1;
        let mut since = CoveredSince { number: self.covers, index };
        let Some(table) = self.tables.get_mut(&dir.shard()) else { return };
        if let Some(known) =
            table.covered.get(&attr.ino).filter(|known| (known.dir, known.life) == (dir, life))
        {
            if known.index > index {
                return;
            }
            since = known.since;
        }
        table.uncover(attr.ino, &mut self.bytes, None);
        table.covered.insert(attr.ino, Covered { dir, life, index, attr: attr.clone(), since });
        self.change(dir, era, |dir| {
            dir.bytes += dir::COVERED_BYTES;
            None
        });
    }

    /// This mount made a directory: nothing is in it.
    pub fn made(&mut self, era: u64, attr: &Attr, index: LogIndex) {
        self.forget_dir(attr.ino);
        self.change(attr.ino, era, |dir| {
            dir.complete = true;
            None
        });
        self.put_attr(era, attr, index);
    }

    /// Some lines of a listing.
    pub fn put_lines(&mut self, (dir, era): (Ino, u64), lines: &[Line], index: LogIndex) {
        for line in lines {
            self.change(dir, era, |dir| dir.put(&line.name, Some((line.ino, line.kind)), index));
        }
    }

    /// How far a directory is known whose listing is about to be asked for.
    pub fn before(&self, dir: Ino) -> Before {
        let table = self.tables.get(&dir.shard());
        table.and_then(|table| table.dirs.get(&dir)).map(Dir::before).unwrap_or_default()
    }

    /// A part of the listing of `dir` was told as of `index`, and its lines are known: what follows `after`.
    pub fn listed(
        &mut self,
        (dir, era): (Ino, u64),
        asked: Before,
        index: LogIndex,
        (after, part): (u64, Part),
    ) {
        self.change(dir, era, |dir| {
            dir.listed(asked, index, after, part);
            None
        });
    }

    /// What a name leads to is not known any more.
    pub fn forget_name(&mut self, dir: Ino, name: &[u8]) {
        let keeps_complete = self.keeps_complete;
        let Some(era) = self.era(dir) else { return };
        if self.knows(dir) {
            self.change(dir, era, |dir| dir.forget(name, LogIndex(0), keeps_complete));
        }
    }

    /// This mount changed a name, and was answered as of `index`: what it leads to is not known, and nothing older counts.
    pub fn changed(&mut self, (dir, era): (Ino, u64), name: &[u8], index: LogIndex) {
        self.table(dir.shard(), era).raise(dir, index);
        if self.knows(dir) {
            self.change(dir, era, |dir| dir.forget(name, index, false));
        }
    }

    /// This mount changed an inode other than by its names, or took it elsewhere: of its attributes nothing older than `index`
    /// counts.
    pub fn is_another(&mut self, (ino, era): (Ino, u64), index: LogIndex) {
        let table = self.table(ino.shard(), era);
        table.raise(ino, index);
        if let Some(dir) = table.dirs.get_mut(&ino) {
            dir.is_another(index);
        }
        self.forget_attr(ino);
    }

    /// The listing of a directory is not known any more, though its names are.
    pub fn forget_parts(&mut self, ino: Ino) {
        if let Some(era) = self.era(ino)
            && self.knows(ino)
        {
            self.change(ino, era, |dir| {
                dir.forget_parts();
                None
            });
        }
    }

    /// Nor attributes of this inode: a directory's own, or those that a lease on a directory covers.
    pub fn forget_attr(&mut self, ino: Ino) {
        let Some(table) = self.tables.get_mut(&ino.shard()) else { return };
        if let Some(dir) = table.dirs.get_mut(&ino) {
            dir.attr = None;
        }
        table.uncover(ino, &mut self.bytes, None);
    }

    /// Nor anything of this directory.
    pub fn forget_dir(&mut self, ino: Ino) {
        let Some(table) = self.tables.get_mut(&ino.shard()) else { return };
        if let Some(dir) = table.dirs.remove(&ino) {
            self.used.remove(&dir.used);
            self.count -= 1;
            table.bytes -= dir.bytes;
            self.bytes -= dir.bytes;
            self.dirs.push((Some(ino.shard()), dir.end()));
        }
    }

    /// Nor anything of this shard.
    pub fn forget_shard(&mut self, shard: ShardId) {
        if let Some(table) = self.tables.remove(&shard) {
            self.bytes -= table.bytes;
            self.count -= table.dirs.len();
            self.shards.push(table);
        }
    }

    /// Nor anything at all.
    pub fn forget_all(&mut self) {
        (self.bytes, self.count) = (0, 0);
        self.shards.extend(core::mem::take(&mut self.tables).into_values());
    }

    /// A directory that went for want of room.
    pub fn next_left(&mut self) -> Option<Ino> {
        self.left.pop()
    }

    /// Is anything of `dir` kept?
    pub fn knows(&self, dir: Ino) -> bool {
        self.tables.get(&dir.shard()).is_some_and(|table| table.dirs.contains_key(&dir))
    }

    fn table(&mut self, shard: ShardId, era: u64) -> &mut Table {
        if self.tables.get(&shard).is_some_and(|table| table.era != era) {
            self.forget_shard(shard);
        }
        self.tables.entry(shard).or_insert_with(|| Table { era, ..Table::default() })
    }

    fn era(&self, dir: Ino) -> Option<u64> {
        self.tables.get(&dir.shard()).map(|table| table.era)
    }

    fn use_dir(&mut self, ino: Ino, era: u64) -> Option<&mut Dir> {
        let table = self.tables.get_mut(&ino.shard()).filter(|table| table.era == era)?;
        let dir = table.dirs.get_mut(&ino)?;
        if dir.used != self.clock {
            self.used.remove(&dir.used);
            self.clock += 1;
            dir.used = self.clock;
            self.used.insert(self.clock, ino);
        }
        Some(dir)
    }

    /// Changes what is known of a directory, which is known from now on. `change` gives the inode that lost its name.
    fn change(&mut self, ino: Ino, era: u64, change: impl FnOnce(&mut Dir) -> Option<Ino>) {
        self.sweep();
        let next = self.clock + 1;
        let table = self.table(ino.shard(), era);
        if !table.dirs.contains_key(&ino) {
            let dir = Dir::new(next, table.floors.get(&ino).copied().unwrap_or(table.floor));
            table.bytes += dir.bytes;
            let bytes = dir.bytes;
            table.dirs.insert(ino, dir);
            self.used.insert(next, ino);
            self.count += 1;
            self.bytes += bytes;
            self.clock = next;
        }
        let Some(table) = self.tables.get_mut(&ino.shard()) else { return };
        let Some(dir) = table.dirs.get_mut(&ino) else { return };
        let (before, life) = (dir.bytes, dir.life);
        let lost = change(dir);
        dir.is_bounded(self.most);
        self.dirs.extend(dir.take_spent().map(|spent| (None, spent)));
        let after = dir.bytes;
        table.bytes = table.bytes + after - before;
        self.bytes = self.bytes + after - before;
        if let Some(lost) = lost {
            table.uncover(lost, &mut self.bytes, Some((ino, life)));
        }
        self.make_room();
    }

    /// Frees some of what has ended. `false`: nothing is left of it.
    pub fn sweep(&mut self) -> bool {
        for _ in 0..STEPS {
            if let Some((shard, gone)) = self.dirs.last_mut() {
                let table = shard.and_then(|shard| self.tables.get_mut(&shard));
                match gone.next() {
                    Some(ino) => {
                        // Of that directory, and not found by anybody.
                        if let (Some(ino), Some(table)) = (ino, table)
                            && table.covered.get(&ino).is_some_and(|covered| covered.life == gone.life)
                        {
                            table.covered.remove(&ino);
                        }
                    }
                    None => drop(self.dirs.pop()),
                }
            } else if let Some(table) = self.shards.last_mut() {
                if table.covered.pop_first().is_some() {
                    continue;
                }
                match table.dirs.pop_first() {
                    Some((_, dir)) => {
                        self.used.remove(&dir.used);
                        self.dirs.push((None, dir.end()));
                    }
                    None => drop(self.shards.pop()),
                }
            } else {
                return false;
            }
        }
        true
    }

    /// Directories and shards that are not freed.
    #[cfg(test)]
    pub fn spent(&self) -> usize {
        self.dirs.len() + self.shards.len()
    }

    #[cfg(test)]
    fn counted(&self) -> usize {
        assert_eq!(self.count, self.tables.values().map(|table| table.dirs.len()).sum::<usize>());
        let kept = self.tables.values().flat_map(|table| &table.dirs);
        assert!(kept.clone().all(|(ino, dir)| self.used.get(&dir.used) == Some(ino)));
        let spent = self.shards.iter().map(|table| table.dirs.len()).sum::<usize>();
        assert!(self.used.len() <= self.count + spent);
        let tables = self.tables.values();
        let dirs = tables.clone().flat_map(|table| table.dirs.values()).map(Dir::counted);
        let covered = |table: &Table| {
            let is_of =
                |covered: &&Covered| table.dirs.get(&covered.dir).is_some_and(|dir| dir.life == covered.life);
            table.covered.values().filter(is_of).count() * dir::COVERED_BYTES
        };
        dirs.sum::<usize>() + tables.map(covered).sum::<usize>()
    }

    /// Lets go of what was used longest ago, a part at a time.
    fn make_room(&mut self) {
        for _ in 0..STEPS {
            if self.bytes <= self.most && self.count <= DIRS_KEPT_MAX {
                return;
            }
            let Some((used, ino)) = self.used.first_key_value().map(|(used, ino)| (*used, *ino)) else {
                return;
            };
            let table = self.tables.get_mut(&ino.shard());
            let Some(table) = table.filter(|table| table.dirs.get(&ino).is_some_and(|dir| dir.used == used))
            else {
                // Of a shard that is to be freed.
                self.used.remove(&used);
                continue;
            };
            let Some(dir) = table.dirs.get_mut(&ino) else { return };
            let (before, life, is_last) = (dir.bytes, dir.life, used == self.clock);
            if self.count > DIRS_KEPT_MAX || !dir.shrink(is_last) {
                self.forget_dir(ino);
                self.left.push(ino);
                continue;
            }
            let (after, lost) = (dir.bytes, dir.lost.take());
            self.dirs.extend(dir.take_spent().map(|spent| (None, spent)));
            table.bytes = table.bytes + after - before;
            self.bytes = self.bytes + after - before;
            if let Some(lost) = lost {
                table.uncover(lost, &mut self.bytes, Some((ino, life)));
            }
        }
    }
}

impl Table {
    fn raise(&mut self, dir: Ino, index: LogIndex) {
        let floor = self.floors.entry(dir).or_insert(self.floor);
        *floor = index.max(*floor);
        if self.floors.len() > OWN_CHANGES_KEPT_MAX {
            let highest = core::mem::take(&mut self.floors).into_values().max();
            self.floor = self.floor.max(highest.unwrap_or_default());
        }
    }

    /// The attributes of an entry go; `of`: if they are of this directory.
    fn uncover(&mut self, ino: Ino, bytes: &mut usize, of: Option<(Ino, u64)>) {
        let Some(covered) = self.covered.get(&ino) else { return };
        let place = (covered.dir, covered.life);
        if of.is_some_and(|of| of != place) {
            return;
        }
        self.covered.remove(&ino);
        if let Some(dir) = self.dirs.get_mut(&place.0).filter(|dir| dir.life == place.1) {
            dir.bytes -= dir::COVERED_BYTES;
            self.bytes -= dir::COVERED_BYTES;
            *bytes -= dir::COVERED_BYTES;
        }
    }
}

/// A name, as a key.
pub(super) type Key = Box<[u8]>;
