//! What to do: a job, as data. It is all a worker needs to know, so it travels as JSON.
//!
//! One [`Job`] is one kind of load ([`Work`]) done by a number of workers, a number of times. The
//! command lines of other load generators are translated into it, so it can say what they can say
//! as far as it means the same thing.

mod coverage;
mod files;
mod io;
mod meta;
mod names;
mod size;

pub use files::{FilesJob, FilesPhase, SourceTree, Training};
pub use io::{Fsync, IoJob, IoKind, IoPhase, MAX_PHASES, Order, Share, Striping, SyncMode};
pub use meta::{Items, Lookup, MetaJob, MetaPhase, Things, TreeShape};
pub use names::{io_file, root};
pub use size::{format_size, parse_size};

use serde::{Deserialize, Serialize};

/// Processes of one job over all hosts.
pub const MAX_PROCESSES: u32 = 16_384;
/// Threads of one process.
pub const MAX_THREADS: u32 = 1_024;
/// Repetitions of one job.
pub const MAX_REPETITIONS: u32 = 10_000;
/// Bytes of one transfer: each thread holds one buffer of this size (two when it verifies).
pub const MAX_TRANSFER: u64 = 1 << 30;
/// Bytes of a name given by the user for what a job makes.
pub const MAX_NAME: usize = 200;
/// Paths one job may name.
pub const MAX_PATHS: usize = 65_536;

/// One load, done by several workers, several times.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Job {
    /// Who does it.
    #[serde(default)]
    pub workers: Workers,
    /// How often all phases are done.
    #[serde(default = "one")]
    pub repetitions: u32,
    /// Pause between two repetitions, milliseconds.
    #[serde(default)]
    pub delay_ms: u64,
    /// Everything drawn at random (orders, contents, tree) follows from this.
    #[serde(default)]
    pub seed: u64,
    /// Leave what was made.
    #[serde(default)]
    pub keep: bool,
    /// What the job would make may be there already (a job before it kept it): use it. Otherwise
    /// existing files are refused.
    #[serde(default)]
    pub existing: bool,
    /// Processes that each host takes, in the order of hosts, where a host file says so; empty: as many on
    /// each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub slots: Vec<u32>,
    /// Stop each phase by the clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stonewall: Option<Stonewall>,
    /// The load.
    pub work: Work,
}

fn one() -> u32 {
    1
}

/// How many workers. A worker is one thread of one process; they are numbered from 0 over all
/// processes: worker = process x threads + thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Workers {
    /// Processes over all hosts.
    pub processes: u32,
    /// Threads in each process.
    pub threads: u32,
    /// Which host a process goes to, where there are several.
    #[serde(default)]
    pub placement: Placement,
}

impl Default for Workers {
    fn default() -> Self {
        Self { processes: 1, threads: 1, placement: Placement::ByNode }
    }
}

impl Workers {
    pub fn count(&self) -> u32 {
        self.processes.saturating_mul(self.threads)
    }
}

/// Which host the next process goes to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Placement {
    /// Round robin: process 0 to the first host, 1 to the second, ...
    #[default]
    ByNode,
    /// Fill up the first host's slots before the second.
    BySlot,
}

impl Placement {
    /// The host of a process; every host has the same number of slots, just enough for all.
    pub fn host(self, process: u32, processes: u32, hosts: u32) -> u32 {
        let hosts = hosts.max(1);
        match self {
            Self::ByNode => process % hosts,
            Self::BySlot => process / processes.div_ceil(hosts).max(1),
        }
    }
}

/// An end by the clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Stonewall {
    /// After this long each worker stops, milliseconds.
    pub after_ms: u64,
    /// Then all go on until each has done as much as the fastest had at that moment.
    #[serde(default)]
    pub wear_out: bool,
    /// A worker that has done everything before the time starts over (writers write the same range
    /// again), so that the phase lasts as long as asked. For contents only: what is made once cannot be
    /// made again.
    #[serde(default)]
    pub repeat: bool,
}

/// Whose data a worker reads, stats, renames back: not its own, so that no cache of its own answers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Readers {
    /// Each its own.
    #[default]
    Own,
    /// That of the worker so many numbers further.
    Shift {
        /// Worker numbers.
        workers: u32,
    },
    /// That of a worker so many hosts further, at the same place there. On one host: of the next process.
    ShiftNode {
        /// Hosts.
        nodes: u32,
    },
    /// A permutation drawn from this seed (and the repetition).
    Random {
        /// Draws it.
        seed: u64,
    },
}

/// The load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Work {
    /// Contents of few large files.
    Io(IoJob),
    /// Files and directories as such.
    Meta(MetaJob),
    /// What people do with a source tree, and what training does with its samples.
    Files(FilesJob),
}

/// Why a job cannot be done as it stands: which field, and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobError(pub String);

impl core::fmt::Display for JobError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for JobError {}

/// What a job puts on the file system at its fullest moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Footprint {
    /// Bytes of contents.
    pub bytes: u64,
    /// Files and directories.
    pub inodes: u64,
}

impl Job {
    /// A job of one worker, once.
    pub fn new(work: Work) -> Self {
        Self {
            workers: Workers::default(),
            repetitions: 1,
            delay_ms: 0,
            seed: 0,
            keep: false,
            existing: false,
            slots: Vec::new(),
            stonewall: None,
            work,
        }
    }

    /// Whether it can be done: every limit, and fields that contradict each other.
    pub fn check(&self) -> Result<(), JobError> {
        let workers = self.workers;
        limit("processes", u64::from(workers.processes), 1, u64::from(MAX_PROCESSES))?;
        limit("threads", u64::from(workers.threads), 1, u64::from(MAX_THREADS))?;
        limit("repetitions", u64::from(self.repetitions), 1, u64::from(MAX_REPETITIONS))?;
        limit("hosts with slots", self.slots.len() as u64, 0, u64::from(MAX_PROCESSES))?;
        if let Some(wall) = self.stonewall {
            limit("stonewall", wall.after_ms, 1, 7 * 24 * 3_600_000)?;
            if wall.repeat && wall.wear_out {
                return refuse("stonewall: repeat and wear-out contradict each other; choose one");
            }
        }
        let cut = self.stonewall.is_some_and(|wall| !wall.repeat);
        match &self.work {
            Work::Io(io) => {
                io.check(workers.count())?;
                coverage::check(self, io)
            }
            Work::Meta(_) | Work::Files(_) if self.stonewall.is_some_and(|wall| wall.repeat) => {
                refuse("stonewall: repeat is for contents (io) only; take more items")
            }
            Work::Meta(meta) => {
                let rename = meta.phases.iter().position(|phase| *phase == MetaPhase::Rename);
                if cut && !meta.stonewall_creates && rename.is_some_and(|at| at + 1 < meta.phases.len()) {
                    return refuse("stonewall: a rename that is cut short must be the last phase");
                }
                meta.check()
            }
            Work::Files(files) => {
                if self.stonewall.is_some() {
                    files.check_wall()?;
                }
                files.check()
            }
        }
    }

    /// The host of each process. Slots are filled before any host takes more; then they begin again.
    pub fn hosts_of(&self, hosts: u32) -> Vec<u32> {
        let Workers { processes, placement, .. } = self.workers;
        if self.slots.iter().all(|slots| *slots == 0) {
            return (0..processes).map(|process| placement.host(process, processes, hosts)).collect();
        }
        let mut placed = Vec::with_capacity(processes as usize);
        let mut left = Vec::new();
        while placed.len() < processes as usize {
            if left.iter().all(|slots| *slots == 0) {
                left.clone_from(&self.slots);
            }
            for (host, left) in left.iter_mut().enumerate() {
                let fill = if placement == Placement::BySlot { *left } else { (*left).min(1) };
                let fill = fill.min(processes - placed.len() as u32);
                placed.extend(std::iter::repeat_n(host as u32, fill as usize));
                *left -= fill;
            }
        }
        placed
    }

    /// What it needs on the file system.
    pub fn footprint(&self) -> Footprint {
        let workers = u64::from(self.workers.count());
        match &self.work {
            Work::Io(io) => io.footprint(workers),
            Work::Meta(meta) => meta.footprint(workers),
            Work::Files(files) => files.footprint(workers),
        }
    }

    /// The paths it names, to check them before anything is made.
    pub fn paths(&self) -> &[String] {
        match &self.work {
            Work::Io(io) => &io.paths,
            Work::Meta(meta) => &meta.paths,
            Work::Files(files) => &files.paths,
        }
    }
}

/// Memory that a path of this length takes in a list, at most: its text and its place, which both grow by
/// doubling, and what the allocator adds.
fn held(path: u64) -> u64 {
    2 * path + 2 * size_of::<String>() as u64 + 32
}

/// A number within its limits.
pub(crate) fn limit(field: &str, value: u64, least: u64, most: u64) -> Result<(), JobError> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(JobError(format!("{field} is {value}; it must lie between {least} and {most}")))
}

pub(crate) fn refuse<T>(text: &str) -> Result<T, JobError> {
    Err(JobError(text.to_owned()))
}

/// Checks the paths and the name of what a job makes.
pub(crate) fn check_places(paths: &[String], name: &str) -> Result<(), JobError> {
    limit("number of paths", paths.len() as u64, 1, MAX_PATHS as u64)?;
    if let Some(path) = paths.iter().find(|path| !path.starts_with('/') || path.contains('\0')) {
        return Err(JobError(format!("path {path:?}: give it from the root (/...)")));
    }
    if name.is_empty() || name.len() > MAX_NAME || name.contains(['/', '\0']) || name == "." || name == ".." {
        return Err(JobError(format!(
            "name {name:?}: give one component of at most {MAX_NAME} bytes for what the job makes"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a job survives the way to a worker and back unchanged, and unknown fields are refused.
    #[test]
    fn travels() {
        let mut job = Job::new(Work::Io(IoJob::new("/tmp")));
        job.stonewall = Some(Stonewall { after_ms: 1000, wear_out: true, repeat: false });
        job.workers = Workers { processes: 3, threads: 2, placement: Placement::BySlot };
        let mut meta = MetaJob::new("/tmp");
        meta.phases.retain(|phase| *phase != MetaPhase::Rename);
        for work in [Work::Io(IoJob::new("/tmp")), Work::Meta(meta), Work::Files(FilesJob::new("/tmp"))] {
            // The clock ends no phase of that.
            job.stonewall = job.stonewall.filter(|_| !matches!(work, Work::Files(_)));
            job.work = work;
            job.check().unwrap();
            let text = serde_json::to_string(&job).unwrap();
            assert_eq!(serde_json::from_str::<Job>(&text).unwrap(), job);
            let spoiled = text.replacen("\"seed\"", "\"sead\"", 1);
            assert!(serde_json::from_str::<Job>(&spoiled).is_err());
        }
    }

    /// Goal: what cannot be done is refused with the field's name.
    #[test]
    fn refusals() {
        let good = Job::new(Work::Io(IoJob::new("/tmp")));
        type Case = (&'static str, fn(&mut Job));
        let cases: [Case; 4] = [
            ("processes", |job| job.workers.processes = 0),
            ("threads", |job| job.workers.threads = MAX_THREADS + 1),
            ("repetitions", |job| job.repetitions = 0),
            ("stonewall", |job| {
                job.stonewall = Some(Stonewall { after_ms: 5, wear_out: true, repeat: true });
            }),
        ];
        for (field, spoil) in cases {
            let mut job = good.clone();
            spoil(&mut job);
            let error = job.check().unwrap_err().0;
            assert!(error.contains(field), "{error}");
        }
        let relative = Job::new(Work::Meta(MetaJob::new("here")));
        assert!(relative.check().unwrap_err().0.contains("from the root"));
    }

    /// Goal: processes are placed round robin or host by host.
    #[test]
    fn placement() {
        let by = |placement: Placement| (0..5).map(|p| placement.host(p, 5, 2)).collect::<Vec<_>>();
        assert_eq!(by(Placement::ByNode), [0, 1, 0, 1, 0]);
        assert_eq!(by(Placement::BySlot), [0, 0, 0, 1, 1]);
        let mut job = Job::new(Work::Io(IoJob::new("/tmp")));
        job.slots = vec![3, 1];
        let mut with = |processes: u32, placement: Placement| {
            job.workers = Workers { processes, threads: 1, placement };
            job.hosts_of(2)
        };
        assert_eq!(with(4, Placement::BySlot), [0, 0, 0, 1]);
        assert_eq!(with(4, Placement::ByNode), [0, 1, 0, 0]);
        assert_eq!(with(6, Placement::BySlot), [0, 0, 0, 1, 0, 0]);
        assert_eq!(with(2, Placement::BySlot), [0, 0]);
    }
}
