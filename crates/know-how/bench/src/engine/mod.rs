//! Doing a job: a director, its crew of worker processes, and what they say to each other.
//!
//! The director ([`run`]) speaks to a [`Crew`]: processes of this machine ([`LocalCrew`]) or of many.
//! Each process serves a line protocol ([`serve`]) of [`Order`]s and [`Report`]s. Every phase begins
//! with all workers ready and a common starting time on the hosts' clocks, so that the start skew that
//! is reported is what the workers really had.

mod child;
mod clock;
mod crew;
mod director;
mod gather;
pub(crate) mod ground;
mod local;
mod made;
mod meter;
mod order;
mod permutation;
mod process;
mod step;
mod trouble;
mod volume;

pub use clock::now_ns;
pub use crew::{Crew, CrewError, Member};
pub use director::{Ends, Progress, RunError, Silent, Watch, run, run_until};
pub use local::LocalCrew;
pub use made::Made;
pub use meter::{Meter, Next, Side};
pub use order::{
    MAX_LINE, Order, PartReport, Report, SideReport, Start, WorkerReport, read_line, write_line,
};
pub use permutation::{Permutation, mix, unmix};
pub use process::serve;
pub use step::{Part, Step, StepKind, parts, steps};
pub use trouble::Trouble;
pub use volume::{TAKEN, clean, keeps};

pub(crate) use child::has_ended;
pub(crate) use made::Claims;
pub(crate) use process::{Load, Place};
pub(crate) use volume::entries;

use crate::job::{Job, Readers};

impl Job {
    /// Whether everybody was to have somebody else's data, and has its own again: a shift by all workers, or there is
    /// one worker only.
    pub fn reads_its_own_again(&self, readers: Readers, hosts: u32) -> bool {
        // A permutation leaves somebody where it is now and then.
        let moves = matches!(readers, Readers::Shift { .. } | Readers::ShiftNode { .. });
        moves && (0..self.workers.count()).all(|worker| reader_of(self, readers, worker, hosts, 0) == worker)
    }
}

/// Whose data a worker reads back, in a repetition.
pub fn reader_of(job: &Job, readers: Readers, worker: u32, hosts: u32, repetition: u32) -> u32 {
    let workers = job.workers.count().max(1);
    let shift = |by: u64| ((u64::from(worker) + by) % u64::from(workers)) as u32;
    match readers {
        Readers::Own => worker,
        Readers::Shift { workers: by } => shift(u64::from(by)),
        Readers::ShiftNode { nodes } => {
            let threads = job.workers.threads.max(1);
            let places = job.hosts_of(hosts);
            match on_host_further(&places, worker / threads, nodes) {
                Some(process) => process * threads + worker % threads,
                None if job.workers.processes == 1 => shift(u64::from(nodes)),
                None => shift(u64::from(threads) * u64::from(nodes)),
            }
        }
        Readers::Random { seed } => {
            let seed = mix(seed ^ mix(u64::from(repetition)));
            Permutation::new(u64::from(workers), seed).at(u64::from(worker)) as u32
        }
    }
}

/// The process so many hosts further, at the same place there. Hosts with fewer processes are read twice rather
/// than that anybody reads what its own host wrote. None: there is one host.
fn on_host_further(places: &[u32], process: u32, nodes: u32) -> Option<u32> {
    let used: std::collections::BTreeSet<u32> = places.iter().copied().collect();
    let host = *places.get(process as usize)?;
    if used.len() < 2 {
        return None;
    }
    let slot = places[..process as usize].iter().filter(|other| **other == host).count();
    let at = used.iter().position(|other| *other == host)?;
    let further = used.iter().nth((at + nodes as usize % used.len()) % used.len())?;
    let there: Vec<usize> = (0..places.len()).filter(|other| places[*other] == *further).collect();
    there.get(slot % there.len()).map(|process| *process as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::{IoJob, Placement, Work, Workers};

    /// Goal: who reads a host further never reads what its own host wrote, also where processes do not divide
    /// by hosts, and where a host file gives hosts different numbers of slots.
    #[test]
    fn further_hosts_are_others() {
        for (processes, hosts, slots) in [(3, 2, vec![]), (7, 3, vec![]), (4, 2, vec![3, 1]), (5, 4, vec![])]
        {
            for placement in [Placement::ByNode, Placement::BySlot] {
                let mut job = Job::new(Work::Io(IoJob::new("/tmp")));
                job.workers = Workers { processes, threads: 2, placement };
                job.slots.clone_from(&slots);
                let places = job.hosts_of(hosts);
                for worker in 0..processes * 2 {
                    let target = reader_of(&job, Readers::ShiftNode { nodes: 1 }, worker, hosts, 0);
                    let host = |worker: u32| places[worker as usize / 2];
                    assert_ne!(host(worker), host(target), "{processes} on {hosts} {placement:?}: {worker}");
                    assert_eq!(worker % 2, target % 2);
                }
            }
        }
    }

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
