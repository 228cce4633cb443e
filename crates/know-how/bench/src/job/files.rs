//! Jobs on many small files: what people do with source trees, and training with its samples.

use super::{Footprint, JobError, check_places, limit, refuse};
use serde::{Deserialize, Serialize};

/// Files of one synthetic tree.
pub const MAX_TREE_FILES: u64 = 1 << 24;
/// Bytes of one file of a tree or of one sample.
pub const MAX_FILE_BYTES: u64 = 1 << 30;

/// Work with a tree of small files. Every worker has its own copy; training samples are shared.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct FilesJob {
    /// Directories that exist; worker w works below `paths[w % paths]`/`name`.
    pub paths: Vec<String>,
    /// The directory the job makes there.
    pub name: String,
    /// What is done, in this order, in each repetition.
    pub phases: Vec<FilesPhase>,
    /// The tree.
    #[serde(default)]
    pub tree: SourceTree,
    /// The samples.
    #[serde(default)]
    pub training: Training,
    /// Training compares every byte it reads; otherwise the beginning of each call's.
    #[serde(default)]
    pub verify: bool,
}

/// A synthetic source tree. The same seed (of the job) makes the same tree, byte by byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct SourceTree {
    /// Files.
    pub files: u64,
    /// Files of a directory, on average.
    pub per_directory: u64,
    /// Half of the files are smaller than this, bytes. Sizes are log-normal, as in source trees.
    pub median_bytes: u64,
    /// None is larger.
    pub largest_bytes: u64,
}

impl Default for SourceTree {
    /// The proportions of a kernel source tree, a fortieth of its size.
    fn default() -> Self {
        Self { files: 2_000, per_directory: 14, median_bytes: 4_300, largest_bytes: 1 << 20 }
    }
}

impl SourceTree {
    /// Directories that hold files.
    pub fn directories(&self) -> u64 {
        self.files.div_ceil(self.per_directory.max(1)).max(1)
    }
}

/// A set of samples that several workers read in random order, each sample once per epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Training {
    /// Samples, one file each.
    pub samples: u64,
    /// Bytes of the smallest.
    pub smallest_bytes: u64,
    /// Bytes of the largest.
    pub largest_bytes: u64,
    /// How often each is read; every epoch has an order of its own.
    pub epochs: u32,
}

impl Default for Training {
    /// Images of about 110 KiB, as a well-known set has them.
    fn default() -> Self {
        Self { samples: 1_000, smallest_bytes: 20 << 10, largest_bytes: 200 << 10, epochs: 2 }
    }
}

/// One thing done with the whole tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum FilesPhase {
    /// Make it as tar does: mkdir, create, write, set times and mode, close.
    Untar,
    /// Walk it and stat every entry.
    Find,
    /// Read every byte and look for a word.
    Grep,
    /// Copy it beside itself.
    Copy,
    /// Remove it, and the copy.
    Remove,
    /// Make the samples (each worker its part).
    Samples,
    /// Read the samples in random order, `epochs` times.
    Train,
}

impl FilesPhase {
    /// Its name in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Untar => "untar",
            Self::Find => "find",
            Self::Grep => "grep",
            Self::Copy => "copy",
            Self::Remove => "remove",
            Self::Samples => "samples",
            Self::Train => "train",
        }
    }
}

impl FilesJob {
    /// The whole life of a tree.
    pub fn new(dir: &str) -> Self {
        use FilesPhase::{Copy, Find, Grep, Remove, Untar};
        Self {
            paths: vec![dir.to_owned()],
            name: "skep-bench-files".to_owned(),
            phases: vec![Untar, Find, Grep, Copy, Remove],
            tree: SourceTree::default(),
            training: Training::default(),
            verify: false,
        }
    }

    /// Whether it needs the tree, the samples.
    pub fn needs(&self) -> (bool, bool) {
        let samples = |phase: &FilesPhase| matches!(phase, FilesPhase::Samples | FilesPhase::Train);
        (self.phases.iter().any(|phase| !samples(phase)), self.phases.iter().any(samples))
    }

    /// Memory that the paths of one worker's tree take at most, bytes.
    pub fn held_paths(&self) -> u64 {
        let directories = self.tree.directories();
        // Four children each: `/dir<number>` on every level.
        let levels = 1 + u64::from(directories.max(1).ilog(4));
        let path = levels * (4 + 1 + u64::from(directories.max(1).ilog10()));
        // A walk lists a directory before it goes through it.
        let listed = self.tree.files.min(self.tree.per_directory).saturating_mul(super::held(16));
        directories.saturating_mul(super::held(path)).saturating_add(listed)
    }

    /// Which phases the clock can end.
    pub(super) fn check_wall(&self) -> Result<(), JobError> {
        let whole =
            self.phases.iter().find(|phase| !matches!(phase, FilesPhase::Samples | FilesPhase::Train));
        match whole {
            Some(phase) => Err(JobError(format!(
                "stonewall: the clock ends train only, and {} is always done as a whole; leave the stonewall out",
                phase.name()
            ))),
            None if !self.phases.contains(&FilesPhase::Train) => refuse(
                "stonewall: the clock ends train only, and there is no such phase; leave the stonewall out",
            ),
            None => Ok(()),
        }
    }

    pub(super) fn check(&self) -> Result<(), JobError> {
        check_places(&self.paths, &self.name)?;
        if self.verify && !self.phases.contains(&FilesPhase::Train) {
            return refuse(
                "verify: train compares what it reads, and there is no such phase; leave verify out",
            );
        }
        limit("number of phases", self.phases.len() as u64, 1, super::io::MAX_PHASES as u64)?;
        limit("files of the tree", self.tree.files, 1, MAX_TREE_FILES)?;
        limit("files of a directory", self.tree.per_directory, 1, MAX_TREE_FILES)?;
        limit("median file size", self.tree.median_bytes, 1, MAX_FILE_BYTES)?;
        limit("largest file", self.tree.largest_bytes, self.tree.median_bytes, MAX_FILE_BYTES)?;
        limit("samples", self.training.samples, 1, MAX_TREE_FILES)?;
        limit("smallest sample", self.training.smallest_bytes, 1, MAX_FILE_BYTES)?;
        limit("largest sample", self.training.largest_bytes, self.training.smallest_bytes, MAX_FILE_BYTES)?;
        limit("epochs", u64::from(self.training.epochs), 1, 1_000)
    }

    pub(super) fn footprint(&self, workers: u64) -> Footprint {
        let (tree, samples) = self.needs();
        let mut footprint = Footprint { bytes: 0, inodes: 1 };
        if tree {
            // The mean of the sizes is about three times their median; a copy doubles it.
            let copies = workers * (1 + u64::from(self.phases.contains(&FilesPhase::Copy)));
            let mean = self.tree.median_bytes.saturating_mul(3).min(self.tree.largest_bytes);
            footprint.bytes += self.tree.files.saturating_mul(mean).saturating_mul(copies);
            footprint.inodes += (self.tree.files + self.tree.directories() * 2).saturating_mul(copies);
        }
        if samples {
            let mean = self.training.smallest_bytes.midpoint(self.training.largest_bytes);
            footprint.bytes += self.training.samples.saturating_mul(mean);
            footprint.inodes += self.training.samples + 1;
        }
        footprint
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a clock that would be passed over, and a comparison that would not take place, are refused by name.
    #[test]
    fn refusals() {
        use crate::job::{Job, Stonewall, Work};
        let says = |phases: &[FilesPhase], verify: bool, walled: bool| {
            let files = FilesJob { phases: phases.to_vec(), verify, ..FilesJob::new("/tmp") };
            let mut job = Job::new(Work::Files(files));
            job.stonewall = walled.then_some(Stonewall { after_ms: 5, wear_out: false, repeat: false });
            job.check().map_err(|error| error.0)
        };
        let (samples, train) = (FilesPhase::Samples, FilesPhase::Train);
        for phase in [FilesPhase::Untar, FilesPhase::Find, FilesPhase::Grep, FilesPhase::Copy] {
            assert!(says(&[phase], false, true).unwrap_err().contains(phase.name()));
        }
        assert!(says(&[samples], false, true).unwrap_err().contains("no such phase"));
        assert!(says(&[FilesPhase::Grep], true, false).unwrap_err().contains("verify"));
        says(&[samples, train], true, true).unwrap();
    }

    /// Goal: what a worker is said to hold of a tree's paths is no less than their text.
    #[test]
    fn memory() {
        for files in [1, 100, 30_000] {
            let tree = SourceTree { files, per_directory: 3, ..SourceTree::default() };
            let job = FilesJob { tree, ..FilesJob::new("/tmp") };
            let source = crate::files::Source::new(&tree, 1);
            let text: usize = source.directories().iter().map(|path| path.len() + size_of::<String>()).sum();
            assert!(text as u64 <= job.held_paths(), "{files}");
        }
    }

    /// Goal: what a job needs counts copies and samples only where its phases make them.
    #[test]
    fn footprint() {
        let mut job = FilesJob::new("/tmp");
        let with_copy = job.footprint(2);
        job.phases.retain(|phase| *phase != FilesPhase::Copy);
        let without = job.footprint(2);
        assert_eq!(with_copy.bytes, 2 * without.bytes);
        job.phases = vec![FilesPhase::Samples, FilesPhase::Train];
        assert_eq!(job.footprint(2), Footprint { bytes: 1_000 * 110 * 1024, inodes: 1_002 });
    }
}
