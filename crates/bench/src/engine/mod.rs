//! Doing a job: a director, its crew of worker processes, and what they say to each other.
//!
//! The director ([`run`]) speaks to a [`Crew`]: processes of this machine ([`LocalCrew`]) or of many.
//! Each process serves a line protocol ([`serve`]) of [`Order`]s and [`Report`]s. Every phase begins
//! with all workers ready and a common starting time on the hosts' clocks, so that the start skew that
//! is reported is what the workers really had.

mod clock;
mod crew;
mod director;
mod gather;
mod local;
mod meter;
mod order;
mod permutation;
mod process;
mod step;
mod trouble;
mod volume;

pub use clock::now_ns;
pub use crew::{Crew, CrewError, Member};
pub use director::{Progress, RunError, Silent, Watch, run};
pub use local::LocalCrew;
pub use meter::{Meter, Next, Side};
pub use order::{
    MAX_LINE, Order, PartReport, Report, SideReport, Start, WorkerReport, read_line, write_line,
};
pub use permutation::{Permutation, mix, unmix};
pub use process::serve;
pub use step::{Part, Step, StepKind, parts, steps};
pub use trouble::Trouble;
pub use volume::clean;

pub(crate) use process::{Load, Place};
pub(crate) use volume::{remove_tree, unlink_regular};

use crate::job::{Job, Placement, Readers};

/// Whose data a worker reads back, in a repetition.
pub fn reader_of(job: &Job, readers: Readers, worker: u32, hosts: u32, repetition: u32) -> u32 {
    let workers = job.workers.count().max(1);
    let shift = |by: u64| ((u64::from(worker) + by) % u64::from(workers)) as u32;
    match readers {
        Readers::Own => worker,
        Readers::Shift { workers: by } => shift(u64::from(by)),
        Readers::ShiftNode { nodes } => {
            let threads = u64::from(job.workers.threads);
            let one_host = match job.workers.placement {
                _ if job.workers.processes == 1 => 1,
                Placement::BySlot if hosts > 1 => u64::from(job.workers.processes.div_ceil(hosts)) * threads,
                Placement::ByNode | Placement::BySlot => threads,
            };
            shift(one_host * u64::from(nodes))
        }
        Readers::Random { seed } => {
            let seed = mix(seed ^ mix(u64::from(repetition)));
            Permutation::new(u64::from(workers), seed).at(u64::from(worker)) as u32
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::{IoJob, Work, Workers};

    /// Goal: each worker's data is read by exactly one worker, and shifted readers are not its own.
    #[test]
    fn readers_are_a_permutation() {
        let mut job = Job::new(Work::Io(IoJob::new("/tmp")));
        job.workers = Workers { processes: 6, threads: 2, placement: Placement::BySlot };
        for readers in [
            Readers::Own,
            Readers::Shift { workers: 5 },
            Readers::ShiftNode { nodes: 1 },
            Readers::Random { seed: 7 },
        ] {
            for hosts in [1, 3] {
                let mut seen: Vec<u32> = (0..12).map(|w| reader_of(&job, readers, w, hosts, 1)).collect();
                if matches!(readers, Readers::ShiftNode { .. }) {
                    let first = if hosts == 3 { 4 } else { 2 };
                    assert_eq!(seen[0], first);
                }
                seen.sort_unstable();
                assert_eq!(seen, (0..12).collect::<Vec<_>>());
            }
        }
    }
}
