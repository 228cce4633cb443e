//! What a search tries: its axes, and what one place on them sets.

use crate::survey::load::doublings;
use skep_bench::job::{IoJob, Job, Readers, Share, Striping, Work, format_size};
use skep_survey::search::{Axis, Place as At};

/// A mebibyte.
pub const MIB: u64 = 1 << 20;
/// Chunk sizes that are tried.
const CHUNKS: [u64; 5] = [256 << 10, 512 << 10, MIB, 2 * MIB, 4 * MIB];
// The axes, in the order in which they are searched.

/// Its place in that order.
pub const PROCESSES: usize = 0;
/// Its place in that order.
pub const TRANSFER: usize = 1;
/// Its place in that order.
pub const DIRECT: usize = 2;
/// Its place in that order.
pub const CHUNK: usize = 3;
/// Its place in that order.
pub const TARGETS: usize = 4;

/// What one measurement is made with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setting {
    /// Processes of all hosts.
    pub processes: u64,
    /// Bytes of a transfer.
    pub transfer: u64,
    /// Past the page cache.
    pub direct: bool,
    /// Chunk size and targets, where the file system has them.
    pub striping: Option<(u64, u64)>,
}

impl Setting {
    /// What a place on the axes sets.
    pub fn at(axes: &[Axis], place: &At) -> Self {
        let value =
            |axis: usize| place.get(axis).and_then(|at| axes.get(axis)?.values.get(*at)).map(|v| *v as u64);
        Self {
            processes: value(PROCESSES).unwrap_or(1),
            transfer: value(TRANSFER).unwrap_or(MIB),
            direct: value(DIRECT) == Some(1),
            striping: value(CHUNK).zip(value(TARGETS)),
        }
    }

    /// What it sets, in words, in the order of the axes.
    fn words(&self) -> Vec<String> {
        let mut words = vec![
            format!("{} processes", self.processes),
            format!("transfers of {}", format_size(self.transfer)),
            if self.direct { "O_DIRECT" } else { "buffered" }.to_owned(),
        ];
        if let Some((chunk, targets)) = self.striping {
            words.extend([format!("chunks of {}", format_size(chunk)), format!("on {targets} targets")]);
        }
        words
    }

    pub fn describe(&self) -> String {
        self.words().join(", ")
    }

    /// All but what one axis sets: what stays the same along it.
    pub fn beside(&self, axis: usize) -> String {
        let others = self.words().into_iter().enumerate().filter(|(other, _)| *other != axis);
        others.map(|(_, words)| words).collect::<Vec<String>>().join(", ")
    }

    /// The load that measures it.
    pub fn job(&self, dir: &str, size: u64, shared: bool) -> Job {
        let mut job = Job::new(Work::Io(IoJob {
            share: if shared { Share::Segmented } else { Share::PerWorker },
            transfer: self.transfer,
            block: size / self.processes,
            direct: self.direct,
            invalidate: true,
            readers: Readers::Shift { workers: 1 },
            striping: self
                .striping
                .map(|(chunk, targets)| Striping { chunk_size: Some(chunk), targets: Some(targets as u32) }),
            ..IoJob::new(dir)
        }));
        job.workers.processes = self.processes as u32;
        job
    }
}

/// The axes of a file system; without targets there is no striping.
pub fn axes(processes: u32, transfers: &[u64], targets: usize) -> Vec<Axis> {
    let axis = |name: &str, values: Vec<f64>| Axis { name: name.to_owned(), values };
    let numbers = |values: &[u64]| values.iter().map(|v| *v as f64).collect::<Vec<f64>>();
    let mut all = vec![
        axis("processes", numbers(&doublings(processes))),
        axis("transfer size (bytes)", numbers(transfers)),
        axis("past the page cache (0 no, 1 yes)", vec![0.0, 1.0]),
    ];
    if targets > 0 {
        let mut counts = doublings(targets as u32);
        if counts.last() != Some(&(targets as u64)) {
            counts.push(targets as u64);
        }
        all.push(axis("chunk size (bytes)", numbers(&CHUNKS)));
        all.push(axis("targets of a file", numbers(&counts)));
    }
    all
}

/// Few processes, transfers of 1 MiB, buffered, chunks of 1 MiB on all targets: a usual setting.
pub fn start(axes: &[Axis]) -> At {
    let at = |(axis, one): (usize, &Axis)| match axis {
        PROCESSES => 1.min(one.values.len() - 1),
        CHUNK => 2,
        TARGETS => one.values.len() - 1,
        _ => 0,
    };
    axes.iter().enumerate().map(at).collect()
}
