//! Jobs on files and directories as such: what mdtest does.

use super::{Footprint, JobError, MAX_TRANSFER, Readers, check_places, limit, refuse};
use crate::job::io::Striping;
use serde::{Deserialize, Serialize};

/// Depth of a tree.
pub const MAX_DEPTH: u32 = 64;
/// Directories of one tree.
pub const MAX_DIRECTORIES: u64 = 1 << 24;
/// Files or directories of one worker.
pub const MAX_ITEMS: u64 = 1 << 40;

/// Creates, stats, reads, lists, renames and removes files and directories.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct MetaJob {
    /// Directories that exist; worker w works below `paths[w % paths]`/`name`.
    pub paths: Vec<String>,
    /// The directory the job makes there.
    pub name: String,
    /// Directories that hold the items.
    #[serde(default)]
    pub tree: TreeShape,
    /// How many.
    pub items: Items,
    /// Files, directories, or first the one and then the other.
    #[serde(default)]
    pub things: Things,
    /// What is done with them, in this order, in each repetition. Items that the last phase leaves are
    /// removed, untimed, unless the job keeps them.
    pub phases: Vec<MetaPhase>,
    /// Every worker has a tree of its own; otherwise all work in the same directories.
    #[serde(default = "yes")]
    pub own_tree: bool,
    /// Bytes written to each file by create.
    #[serde(default)]
    pub write_bytes: u64,
    /// Bytes read by open-read: no more than create writes, but of files that were there before all of them.
    #[serde(default)]
    pub read_bytes: u64,
    /// Bytes of one call; 0: all at once.
    #[serde(default)]
    pub transfer: u64,
    /// O_DIRECT for contents.
    #[serde(default)]
    pub direct: bool,
    /// fsync of each file after it was written.
    #[serde(default)]
    pub fsync: bool,
    /// Compare what is read with what was written.
    #[serde(default)]
    pub verify: bool,
    /// Whose items a worker stats, opens, lists, renames and removes. Creates are its own.
    #[serde(default)]
    pub readers: Readers,
    /// The shift grows from phase to phase: once for stat, twice for open-read, three times for the others, so
    /// that nobody finds in its cache what the phase before brought there.
    #[serde(default)]
    pub readers_move_on: bool,
    /// The clock ends creates only.
    #[serde(default)]
    pub stonewall_creates: bool,
    /// Remove its own all the same.
    #[serde(default)]
    pub remove_own: bool,
    /// Stat, open-read and rename in random order, drawn from the job's seed.
    #[serde(default)]
    pub random_order: bool,
    /// The making and removing of the tree's directories are phases of the results as well.
    #[serde(default)]
    pub time_tree: bool,
    /// How calls name the items and the tree's directories.
    #[serde(default)]
    pub lookup: Lookup,
    /// How new files are striped, where the file system lets one say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub striping: Option<Striping>,
}

/// How calls name what they work on: it decides how many names a file system that caches none looks up for each call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Lookup {
    /// mkdir, stat, rename, unlink and rmdir go by the directory, which is held open: one name each. Opens go by the
    /// full path.
    #[default]
    Directory,
    /// Everything goes by the full path, as with mdtest: every name of the path, for every call. Files are made as mdtest
    /// makes them: open(O_CREAT|O_RDWR, 0664), without O_EXCL.
    Path,
}

fn yes() -> bool {
    true
}

/// The directories below each root: `depth` levels, `branching` children each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct TreeShape {
    /// Children of each directory.
    pub branching: u32,
    /// Levels below the root; 0: the root alone.
    pub depth: u32,
    /// Items lie in the lowest level only.
    #[serde(default)]
    pub leaf_only: bool,
}

impl Default for TreeShape {
    fn default() -> Self {
        Self { branching: 1, depth: 0, leaf_only: false }
    }
}

impl TreeShape {
    /// Directories of the tree, the root among them; none: more than a u64 holds.
    pub fn directories(&self) -> Option<u64> {
        let mut all = 1u64;
        let mut level = 1u64;
        for _ in 0..self.depth {
            level = level.checked_mul(u64::from(self.branching))?;
            all = all.checked_add(level)?;
        }
        Some(all)
    }

    /// Directories of the lowest level.
    pub fn leaves(&self) -> Option<u64> {
        u64::from(self.branching).checked_pow(self.depth)
    }

    /// Directories that hold items.
    pub fn holders(&self) -> Option<u64> {
        if self.leaf_only { self.leaves() } else { self.directories() }
    }
}

/// How many items a worker has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Items {
    /// In each directory that holds items.
    PerDirectory(u64),
    /// In all, spread evenly (the first directories hold one more where it does not divide).
    Total(u64),
}

impl Items {
    /// Items of one worker over a tree.
    pub fn per_worker(self, tree: &TreeShape) -> u64 {
        match self {
            Self::PerDirectory(items) => items.saturating_mul(tree.holders().unwrap_or(u64::MAX)),
            Self::Total(items) => items,
        }
    }
}

/// Files or directories.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Things {
    /// Files.
    #[default]
    Files,
    /// Directories.
    Directories,
    /// All phases with directories, then all phases with files.
    Both,
}

/// What is done with each item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum MetaPhase {
    /// Make it: open(O_CREAT|O_EXCL) (see [`Lookup`]), write, close; or mkdir.
    Create,
    /// stat.
    Stat,
    /// open, read, close. Of a directory: open, close.
    OpenRead,
    /// List every directory that holds items; counted in entries.
    Readdir,
    /// Rename within its directory.
    Rename,
    /// unlink or rmdir.
    Remove,
}

impl MetaPhase {
    /// Its name in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Stat => "stat",
            Self::OpenRead => "open-read",
            Self::Readdir => "readdir",
            Self::Rename => "rename",
            Self::Remove => "remove",
        }
    }
}

impl MetaJob {
    /// Thousand empty files per worker in a directory of its own: create, stat, open-read, list, rename,
    /// remove.
    pub fn new(dir: &str) -> Self {
        use MetaPhase::{Create, OpenRead, Readdir, Remove, Rename, Stat};
        Self {
            paths: vec![dir.to_owned()],
            name: "skep-bench-meta".to_owned(),
            tree: TreeShape::default(),
            items: Items::Total(1000),
            things: Things::Files,
            phases: vec![Create, Stat, OpenRead, Readdir, Rename, Remove],
            own_tree: true,
            write_bytes: 0,
            read_bytes: 0,
            transfer: 0,
            direct: false,
            fsync: false,
            verify: false,
            readers: Readers::Own,
            readers_move_on: false,
            stonewall_creates: false,
            remove_own: false,
            random_order: false,
            time_tree: false,
            lookup: Lookup::Directory,
            striping: None,
        }
    }

    /// Bytes that open-read reads of each file.
    pub fn read_of_each(&self, existing: bool) -> u64 {
        if existing { self.read_bytes } else { self.read_bytes.min(self.write_bytes) }
    }

    /// Memory that the paths of one worker's tree take at most, bytes.
    pub fn held_paths(&self) -> u64 {
        let longest = self.paths.iter().map(String::len).max().unwrap_or(0) + self.name.len();
        // Around the tree there are two more names, each level adds one: `/t<number>`.
        let level = 2 + self.tree.branching.checked_ilog10().unwrap_or(0) as usize + 1;
        let path = (longest + "//w00000000".len() + self.tree.depth as usize * level) as u64;
        self.tree.directories().unwrap_or(u64::MAX).saturating_mul(super::held(path))
    }

    /// Whose items a worker uses in a phase.
    pub fn readers_of(&self, phase: MetaPhase) -> Readers {
        let times = match phase {
            _ if !self.readers_move_on => 1,
            MetaPhase::Create | MetaPhase::Stat => 1,
            MetaPhase::OpenRead => 2,
            MetaPhase::Readdir | MetaPhase::Rename | MetaPhase::Remove => 3,
        };
        match (phase, self.readers) {
            (MetaPhase::Create, _) => Readers::Own,
            (MetaPhase::Remove, _) if self.remove_own => Readers::Own,
            (_, Readers::Shift { workers }) => Readers::Shift { workers: workers.saturating_mul(times) },
            (_, Readers::ShiftNode { nodes }) => Readers::ShiftNode { nodes: nodes.saturating_mul(times) },
            (_, readers) => readers,
        }
    }

    pub(super) fn check(&self) -> Result<(), JobError> {
        check_places(&self.paths, &self.name)?;
        limit("number of phases", self.phases.len() as u64, 1, super::io::MAX_PHASES as u64)?;
        limit("depth", u64::from(self.tree.depth), 0, u64::from(MAX_DEPTH))?;
        limit("branching", u64::from(self.tree.branching), 1, 1 << 20)?;
        match self.tree.directories() {
            Some(directories) if directories <= MAX_DIRECTORIES => {}
            _ => {
                return Err(JobError(format!(
                    "a tree {} levels deep with {} children each has more than {MAX_DIRECTORIES} directories; make it smaller",
                    self.tree.depth, self.tree.branching
                )));
            }
        }
        limit("items of a worker", self.items.per_worker(&self.tree), 1, MAX_ITEMS)?;
        limit("bytes per file", self.write_bytes.max(self.read_bytes), 0, MAX_TRANSFER)?;
        limit("transfer", self.transfer, 0, MAX_TRANSFER)?;
        let odd = |bytes: u64| !bytes.is_multiple_of(512);
        if self.direct && (odd(self.write_bytes) || odd(self.read_bytes) || odd(self.transfer)) {
            return refuse("direct: bytes per file and transfer must be multiples of 512");
        }
        Ok(())
    }

    pub(super) fn footprint(&self, workers: u64) -> Footprint {
        let items = self.items.per_worker(&self.tree).saturating_mul(workers);
        let trees = if self.own_tree { workers } else { 1 };
        let directories = self.tree.directories().unwrap_or(u64::MAX).saturating_mul(trees);
        let bytes = match self.things {
            Things::Directories => 0,
            Things::Files | Things::Both => items.saturating_mul(self.write_bytes),
        };
        Footprint { bytes, inodes: items.saturating_add(directories).saturating_add(1) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: trees count as mdtest counts them: depth 2, branching 8 has 64 leaves of 73 directories.
    #[test]
    fn shapes() {
        let tree = TreeShape { branching: 8, depth: 2, leaf_only: true };
        assert_eq!((tree.leaves(), tree.directories(), tree.holders()), (Some(64), Some(73), Some(64)));
        assert_eq!(Items::PerDirectory(122).per_worker(&tree), 7_808);
        let all = TreeShape { leaf_only: false, ..tree };
        assert_eq!(Items::PerDirectory(10).per_worker(&all), 730);
        assert_eq!(TreeShape::default().holders(), Some(1));
    }

    /// Goal: a tree that would fill the file system is refused.
    #[test]
    fn refusals() {
        let mut job = MetaJob::new("/tmp");
        job.tree = TreeShape { branching: 1 << 20, depth: 8, leaf_only: true };
        assert!(job.check().unwrap_err().0.contains("make it smaller"));
        job = MetaJob { items: Items::Total(0), ..MetaJob::new("/tmp") };
        assert!(job.check().unwrap_err().0.contains("items"));
    }
}
