//! Directories for loads on names, dealt out over the groups of shards of a cluster. All that is made below a directory lies
//! on one shard, so a load in one directory shows what one thread of one metadata server does, however many there are.

use crate::bench::scratch::{abandoned, own_name};
use skep_base::access::AccessArgs;
use skep_base::namespace::Namespace;
use skep_base::{Failure, Outcome};
use skep_types::{Ino, NodeId, ShardId};
use skep_wire::meta::{Inspect, SetPolicy};
use skep_wire::mgmt::{ShardEntry, ShardState};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Directories that are made at most; a cluster may have more shards.
const DIRECTORIES_MAX: usize = 1024;
/// Directories that [`Scratch`] makes have names that begin so.
const PREFIX: &str = "skep-bench-spread-";

/// Directories that are there, and how far they spread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dealt {
    /// In which workers take turns.
    pub dirs: Vec<PathBuf>,
    /// Groups that they lie on.
    pub groups: usize,
    /// Groups that the cluster's shards lie on.
    pub all: usize,
}

impl fmt::Display for Dealt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (dirs, groups, all) = (self.dirs.len(), self.groups, self.all);
        let noun = if dirs == 1 { "directory" } else { "directories" };
        write!(f, "{dirs} {noun} on {groups} of the {all} groups of shards")
    }
}

impl Dealt {
    /// Makes them in a directory that is the caller's own: one for each worker, as far as there are shards. Where one group
    /// has all shards, it is that directory itself.
    pub fn make(access: &AccessArgs, dir: &Path, workers: u32) -> Outcome<Self> {
        let mut namespace = Namespace::connect(access, dir)?;
        let led = led(&namespace.status.shards);
        let all = led.values().collect::<BTreeSet<_>>().len();
        if all < 2 {
            return Ok(Self { dirs: vec![dir.to_owned()], groups: all, all });
        }
        let ino = namespace.resolve(dir)?;
        let policy = namespace.ask(ino, &Inspect { ino })?.policy;
        namespace.ask(ino, &SetPolicy { ino, policy, spread: Some(true) })?;
        let count = (workers as usize).min(led.len()).clamp(1, DIRECTORIES_MAX);
        let dirs: Vec<PathBuf> = (0..count).map(|number| dir.join(number.to_string())).collect();
        let mut groups: BTreeSet<NodeId> = BTreeSet::new();
        for dir in &dirs {
            let failed = |e| Failure::local(dir.display(), e);
            std::fs::create_dir(dir).map_err(failed)?;
            let shard = Ino(std::fs::metadata(dir).map_err(failed)?.ino()).shard();
            groups.extend(led.get(&shard).copied());
        }
        Ok(Self { groups: groups.len(), dirs, all })
    }
}

/// Shards that are served, each with the group that serves it.
fn led(shards: &[ShardEntry]) -> BTreeMap<ShardId, NodeId> {
    let active = shards.iter().filter(|entry| entry.state == ShardState::Active);
    active.filter_map(|entry| Some((entry.shard, entry.led_by()?))).collect()
}

/// A directory with such directories in it, which goes when this does.
pub struct Scratch {
    dir: PathBuf,
    /// What is in it.
    pub dealt: Dealt,
}

impl Scratch {
    /// In `above`, on a mount of the cluster.
    pub fn below(access: &AccessArgs, above: &Path, workers: u32) -> Outcome<Self> {
        for left in abandoned(above, PREFIX) {
            remove(&left);
        }
        let dir = above.join(own_name(PREFIX));
        std::fs::create_dir(&dir).map_err(|e| Failure::local(dir.display(), e))?;
        let mut scratch = Self { dealt: Dealt { dirs: Vec::new(), groups: 0, all: 0 }, dir };
        scratch.dealt = Dealt::make(access, &scratch.dir, workers)?;
        Ok(scratch)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        remove(&self.dir);
    }
}

fn remove(dir: &Path) {
    if let Err(e) = std::fs::remove_dir_all(dir) {
        eprintln!("  note: {}: is left behind: {e}; remove it", dir.display());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: only shards that somebody serves count, each for the group that does.
    #[test]
    fn shards_that_are_served() {
        let entry = |shard: u16, leader: u32, state: ShardState| ShardEntry {
            shard: ShardId(shard),
            members: vec![NodeId(leader)],
            leader: NodeId(leader),
            epoch: 1,
            state,
            era: 0,
            newer_are_lost: None,
        };
        let shards = [
            entry(0, 2, ShardState::Active),
            entry(1, 3, ShardState::Active),
            entry(2, 2, ShardState::Active),
            entry(3, 4, ShardState::Retired),
            entry(4, 0, ShardState::Active),
            entry(5, 5, ShardState::New),
        ];
        let expected = [(0, 2), (1, 3), (2, 2)].map(|(shard, node)| (ShardId(shard), NodeId(node)));
        assert_eq!(led(&shards), BTreeMap::from(expected));
    }
}
