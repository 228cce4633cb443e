//! What a reader of the figures must know about how they came about.

use super::RunResult;
use crate::engine::reader_of;
use crate::job::{IoJob, IoKind, Job, Readers, Work};

/// Sentences about a run; empty: the figures are what they seem.
pub(super) fn remarks(run: &RunResult) -> Vec<String> {
    let hosts = run.hosts.len().max(1) as u32;
    let mut remarks = Vec::new();
    if let Work::Io(io) = &run.job.work {
        remarks.extend(own_cache(&run.job, io, hosts));
    }
    remarks.extend(uneven(&run.job, hosts));
    remarks
}

/// Reads that the page cache of the host that reads may have answered.
fn own_cache(job: &Job, io: &IoJob, hosts: u32) -> Option<String> {
    if io.direct || io.invalidate {
        return None;
    }
    let reads: Vec<String> = io
        .phases
        .iter()
        .filter(|phase| !phase.setup)
        .filter(|phase| matches!(phase.kind, IoKind::Read | IoKind::Reread | IoKind::Mixed { .. }))
        .map(|phase| phase.name())
        .collect();
    let first = reads.first()?;
    // What another host wrote is in no cache here, until it is read once more.
    let again = reads.len() > 1
        || (job.repetitions > 1 && !io.fresh)
        || job.stonewall.is_some_and(|wall| wall.repeat)
        || io.share.is_shared() && matches!(io.share, crate::job::Share::Whole);
    if !again && others_only(job, io.readers, hosts) {
        return None;
    }
    let all = if reads.len() > 1 { reads.join(", ") } else { first.clone() };
    Some(format!(
        "{all} may come from this machine's page cache, where data stays that was written or read before: use \
         --direct, --invalidate, or --readers shift:N over several hosts"
    ))
}

/// Whether everybody reads only what other hosts wrote.
fn others_only(job: &Job, readers: Readers, hosts: u32) -> bool {
    let places = job.hosts_of(hosts);
    let threads = job.workers.threads.max(1);
    let host = |worker: u32| places.get((worker / threads) as usize);
    (0..job.workers.count()).all(|worker| {
        (0..job.repetitions.min(4))
            .all(|repetition| host(worker) != host(reader_of(job, readers, worker, hosts, repetition)))
    })
}

/// Hosts with different numbers of processes: reading a host further, some data is read twice.
fn uneven(job: &Job, hosts: u32) -> Option<String> {
    let readers = match &job.work {
        Work::Io(io) => io.readers,
        Work::Meta(meta) => meta.readers,
        Work::Files(_) => return None,
    };
    if !matches!(readers, Readers::ShiftNode { .. }) || hosts < 2 {
        return None;
    }
    let places = job.hosts_of(hosts);
    let mut counts = std::collections::BTreeMap::new();
    places.iter().for_each(|host| *counts.entry(host).or_insert(0u32) += 1);
    let (least, most) = (counts.values().min()?, counts.values().max()?);
    (least != most).then(|| {
        format!(
            "hosts have {least} to {most} processes each, so some data was read by two of them and may come from a \
             cache the second time: take as many processes on each host"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::{IoPhase, Workers};
    use crate::result::HostResult;

    fn remarks_of(hosts: usize, change: impl Fn(&mut Job, &mut IoJob)) -> Vec<String> {
        let mut io = IoJob::new("/tmp");
        let mut job = Job::new(Work::Io(io.clone()));
        job.workers = Workers { processes: hosts as u32, ..Workers::default() };
        change(&mut job, &mut io);
        job.work = Work::Io(io);
        let host = |at| HostResult { name: format!("h{at}"), processes: 1, clock_error_us: 0.0 };
        RunResult::new(job, (0..hosts).map(host).collect(), 0).remarks()
    }

    /// Goal: reads that a cache may have answered are remarked on, others are not.
    #[test]
    fn page_cache() {
        assert!(remarks_of(1, |_, _| {})[0].contains("page cache"));
        assert!(remarks_of(1, |_, io| io.invalidate = true).is_empty());
        assert!(remarks_of(1, |_, io| io.direct = true).is_empty());
        assert!(remarks_of(1, |_, io| io.phases.truncate(1)).is_empty());
        assert_eq!(remarks_of(1, |_, io| io.readers = Readers::Shift { workers: 1 }).len(), 1);
        assert!(remarks_of(2, |_, io| io.readers = Readers::Shift { workers: 1 }).is_empty());
        let twice = |_: &mut Job, io: &mut IoJob| {
            io.readers = Readers::Shift { workers: 1 };
            io.phases.push(IoPhase::new(IoKind::Reread));
        };
        assert_eq!(remarks_of(2, twice).len(), 1);
        let uneven = remarks_of(2, |job, io| {
            job.workers.processes = 3;
            io.readers = Readers::ShiftNode { nodes: 1 };
        });
        assert!(uneven.len() == 1 && uneven[0].contains("1 to 2 processes"), "{uneven:?}");
    }
}
