//! What a reader of the figures must know about how they came about.

use super::RunResult;
use crate::engine::reader_of;
use crate::job::{FilesJob, FilesPhase, IoJob, IoKind, IoPhase, Job, MetaJob, MetaPhase};
use crate::job::{Order, Readers, Share, Things, Work};

/// Sentences about a run; empty: the figures are what they seem.
pub(super) fn remarks(run: &RunResult) -> Vec<String> {
    let hosts = run.hosts.len().max(1) as u32;
    let mut remarks = Vec::new();
    match &run.job.work {
        Work::Io(io) => {
            remarks.extend(read_twice(&run.job, io, hosts));
            remarks.extend(own_cache(&run.job, io, hosts));
        }
        Work::Meta(meta) => remarks.extend(small_files(&run.job, meta, hosts)),
        Work::Files(files) => remarks.extend(trees(files)),
    }
    remarks.extend(uneven(&run.job, hosts));
    remarks.extend(own_again(&run.job, hosts));
    remarks
}

/// Phases in which everybody was to use somebody else's data, and had its own again.
fn own_again(job: &Job, hosts: u32) -> Option<String> {
    let used: Vec<(String, Readers)> = match &job.work {
        Work::Io(io) => reads(io).map(|phase| (phase.name(), io.readers)).collect(),
        Work::Meta(meta) => {
            let others = meta.phases.iter().filter(|phase| **phase != MetaPhase::Create);
            others.map(|phase| (phase.name().to_owned(), meta.readers_of(*phase))).collect()
        }
        Work::Files(_) => return None,
    };
    let mut phases: Vec<String> = used
        .into_iter()
        .filter(|(_, readers)| job.reads_its_own_again(*readers, hosts))
        .map(|(name, _)| name)
        .collect();
    phases.dedup();
    let workers = job.workers.count();
    (!phases.is_empty()).then(|| {
        format!(
            "{}: every worker used its own data, though others' were asked for: so many further of {workers} workers is \
             each itself again; take more workers, or another distance",
            phases.join(", ")
        )
    })
}

fn reads(io: &IoJob) -> impl Iterator<Item = &IoPhase> {
    let kinds = |phase: &&IoPhase| matches!(phase.kind, IoKind::Read | IoKind::Reread | IoKind::Mixed { .. });
    io.phases.iter().filter(|phase| !phase.setup).filter(kinds)
}

/// Reads that come to the same place twice within one phase: what was dropped from the cache before it is back.
fn read_twice(job: &Job, io: &IoJob, hosts: u32) -> Option<String> {
    if io.direct {
        return None;
    }
    let laps = job.stonewall.is_some_and(|wall| wall.repeat);
    let together = io.share == Share::Whole && some_host_has_two(job, hosts);
    let mut phases: Vec<String> = Vec::new();
    let mut why: Vec<&str> = Vec::new();
    for phase in reads(io) {
        // What a lap wrote is not dropped before the next.
        let lapped = laps && matches!(phase.kind, IoKind::Mixed { .. });
        let reasons = [
            (together, "all workers read the same blocks"),
            (phase.order == Order::RandomRepeating, "a repeating order comes to some blocks twice"),
            (lapped, "laps read what those before wrote"),
        ];
        let reasons: Vec<&str> = reasons.iter().filter(|(is, _)| *is).map(|(_, why)| *why).collect();
        if !reasons.is_empty() {
            phases.push(phase.name());
            why.extend(reasons);
        }
    }
    why.dedup();
    (!phases.is_empty()).then(|| {
        format!(
            "part of {} may come from this machine's page cache, also where its pages were dropped before ({}): use \
             --direct",
            phases.join(", "),
            why.join("; ")
        )
    })
}

fn some_host_has_two(job: &Job, hosts: u32) -> bool {
    let places = job.hosts_of(hosts);
    let mut known = std::collections::BTreeSet::new();
    job.workers.threads > 1 || !places.iter().all(|host| known.insert(*host))
}

/// Reads that the page cache of the host that reads may have answered.
fn own_cache(job: &Job, io: &IoJob, hosts: u32) -> Option<String> {
    if io.direct || io.invalidate {
        return None;
    }
    let reads: Vec<String> = reads(io).map(IoPhase::name).collect();
    if reads.is_empty() {
        return None;
    }
    // What another host wrote is in no cache here, until it is read once more.
    let again = reads.len() > 1
        || (job.repetitions > 1 && !io.fresh)
        || job.stonewall.is_some_and(|wall| wall.repeat)
        || io.share == Share::Whole;
    if !again && others_only(job, io.readers, hosts) {
        return None;
    }
    let text = cached(&reads.join(", "));
    Some(format!(
        "{text}: `skep bench io` avoids it by --direct, --invalidate, or --readers shift:N over several hosts"
    ))
}

fn cached(phases: &str) -> String {
    format!(
        "{phases} may come from this machine's page cache, where data stays that was written or read before"
    )
}

/// Contents of small files, whose pages nobody drops.
fn small_files(job: &Job, meta: &MetaJob, hosts: u32) -> Option<String> {
    let passes = meta.phases.iter().filter(|phase| **phase == MetaPhase::OpenRead).count();
    let contents = meta.things != Things::Directories && meta.read_of_each(job.existing) > 0;
    if passes == 0 || !contents || meta.direct {
        return None;
    }
    let again = passes > 1 || (job.repetitions > 1 && job.existing);
    if !again && others_only(job, meta.readers_of(MetaPhase::OpenRead), hosts) {
        return None;
    }
    Some(format!(
        "{}: `skep bench meta` avoids it by --direct, or --readers shift:N over several hosts",
        cached("file open-read")
    ))
}

/// Source trees are each worker's own, samples are partly: both were written or read here before.
fn trees(files: &FilesJob) -> Option<String> {
    let reads = [FilesPhase::Grep, FilesPhase::Copy, FilesPhase::Train];
    let names: Vec<&str> =
        reads.iter().filter(|phase| files.phases.contains(phase)).map(|phase| phase.name()).collect();
    (!names.is_empty()).then(|| {
        format!(
            "{}: write with --keep, drop the caches (mount anew), and read with --existing and one epoch",
            cached(&names.join(", "))
        )
    })
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
    use crate::job::Workers;
    use crate::result::HostResult;

    fn remarks_of(hosts: usize, change: impl Fn(&mut Job, &mut IoJob)) -> Vec<String> {
        let mut io = IoJob::new("/tmp");
        let mut job = Job::new(Work::Io(io.clone()));
        job.workers = Workers { processes: hosts as u32, ..Workers::default() };
        change(&mut job, &mut io);
        job.work = Work::Io(io);
        remarks_on(job, hosts)
    }

    fn remarks_on(job: Job, hosts: usize) -> Vec<String> {
        let host = |at| HostResult { name: format!("h{at}"), processes: 1, clock_error_us: 0.0 };
        RunResult::new(job, (0..hosts).map(host).collect(), 0).remarks()
    }

    /// Goal: dropping pages before a phase does not hide that it reads the same place twice: several workers on all of
    /// a file, a repeating order, laps over what was just written.
    #[test]
    fn the_same_place_twice() {
        let one = |change: fn(&mut Job, &mut IoJob)| {
            let remarks = remarks_of(1, |job, io| {
                io.invalidate = true;
                job.workers.processes = 2;
                change(job, io);
            });
            assert!(remarks.len() < 2, "{remarks:?}");
            remarks.into_iter().next().unwrap_or_default()
        };
        let read = |order: Order| IoPhase::new(IoKind::Read).in_order(order);
        assert_eq!(one(|_, _| {}), "");
        assert!(one(|_, io| io.share = Share::Whole).contains("the same blocks"));
        assert_eq!(one(|_, io| (io.share, io.direct) = (Share::Whole, true)), "");
        let alone = one(|job, io| (io.share, job.workers.processes) = (Share::Whole, 1));
        assert_eq!(alone, "");
        assert!(remarks_of(2, |_, io| (io.share, io.invalidate) = (Share::Whole, true)).is_empty());
        let repeating = remarks_of(1, |_, io| {
            (io.invalidate, io.phases) = (true, vec![read(Order::RandomRepeating), read(Order::Forward)]);
        });
        assert!(repeating.len() == 1 && repeating[0].starts_with("part of random read may"), "{repeating:?}");
        let laps = one(|job, io| {
            io.phases = vec![IoPhase::new(IoKind::Write), IoPhase::new(IoKind::Mixed { read_percent: 50 })];
            job.stonewall = Some(crate::job::Stonewall { after_ms: 5, wear_out: false, repeat: true });
        });
        assert!(laps.contains("mixed 50/50") && laps.contains("laps"), "{laps}");
    }

    /// Goal: where a shift leads everybody back to itself, in one phase or in all, it is said; where it does not, nothing.
    #[test]
    fn own_data_again() {
        let io = |workers: u32, by: u32| {
            let remarks = remarks_of(1, |job, io| {
                (job.workers.processes, io.invalidate) = (workers, true);
                io.readers = Readers::Shift { workers: by };
            });
            remarks.concat()
        };
        assert!(
            io(2, 2).starts_with("read: every worker used its own data") && io(2, 2).contains("of 2 workers")
        );
        assert_eq!((io(2, 1).as_str(), io(3, 2).as_str(), io(4, 2).as_str()), ("", "", ""));
        let mut meta = MetaJob { readers: Readers::Shift { workers: 1 }, ..MetaJob::new("/tmp") };
        meta.readers_move_on = true;
        let mut job = Job::new(Work::Meta(meta));
        job.workers = Workers { processes: 2, ..Workers::default() };
        let told = remarks_on(job, 1);
        assert!(told.len() == 1 && told[0].starts_with("open-read: every worker"), "{told:?}");
    }

    /// Goal: contents of small files, source trees and samples are remarked on; what reads none is not, nor what only
    /// other hosts wrote.
    #[test]
    fn small_files() {
        let meta = |hosts: usize, change: fn(&mut Job, &mut MetaJob)| {
            let mut meta = MetaJob { write_bytes: 4096, read_bytes: 4096, ..MetaJob::new("/tmp") };
            let mut job = Job::new(Work::Meta(meta.clone()));
            job.workers = Workers { processes: hosts as u32, ..Workers::default() };
            change(&mut job, &mut meta);
            job.work = Work::Meta(meta);
            remarks_on(job, hosts)
        };
        assert!(meta(1, |_, _| {})[0].contains("open-read may come from"));
        assert!(meta(1, |_, meta| meta.direct = true).is_empty());
        assert!(meta(1, |_, meta| meta.read_bytes = 0).is_empty());
        assert!(meta(1, |_, meta| meta.write_bytes = 0).is_empty());
        assert_eq!(meta(1, |job, meta| (job.existing, meta.write_bytes) = (true, 0)).len(), 1);
        let shift = |_: &mut Job, meta: &mut MetaJob| meta.readers = Readers::Shift { workers: 1 };
        assert!(meta(2, shift).is_empty());
        let alone = meta(1, shift);
        assert!(alone.len() == 2 && alone[1].starts_with("stat, open-read"), "{alone:?}");
        let files = |phases: &[FilesPhase]| {
            let files = FilesJob { phases: phases.to_vec(), ..FilesJob::new("/tmp") };
            remarks_on(Job::new(Work::Files(files)), 1)
        };
        use FilesPhase::{Find, Grep, Samples, Train, Untar};
        assert!(files(&[Untar, Find, Grep])[0].starts_with("grep may"));
        assert!(files(&[Samples, Train])[0].starts_with("train may"));
        assert!(files(&[Untar, Find]).is_empty());
    }

    /// Goal: reads that a cache may have answered are remarked on, others are not.
    #[test]
    fn page_cache() {
        assert!(remarks_of(1, |_, _| {})[0].contains("page cache"));
        assert!(remarks_of(1, |_, io| io.invalidate = true).is_empty());
        assert!(remarks_of(1, |_, io| io.direct = true).is_empty());
        assert!(remarks_of(1, |_, io| io.phases.truncate(1)).is_empty());
        let alone = remarks_of(1, |_, io| io.readers = Readers::Shift { workers: 1 });
        assert!(alone.len() == 2 && alone[1].contains("its own data"), "{alone:?}");
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
