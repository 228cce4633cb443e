//! Which threads serve which queues, and whether there can be rings at all.

use std::io;

use rustix::thread::CpuSet;
use skep_ring::Reactor;

use super::{ENTRIES_LIMIT, UringOptions};

/// Whether the kernel's FUSE offers rings.
const PARAMETER: &str = "/sys/module/fuse/parameters/enable_uring";
/// The CPUs that this machine can have, be they there or not.
const POSSIBLE: &str = "/sys/devices/system/cpu/possible";

/// One ring thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ThreadPlan {
    /// The CPUs it runs on.
    pub(crate) cpus: Vec<usize>,
    /// The queues it serves.
    pub(crate) queues: Vec<u16>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) threads: Vec<ThreadPlan>,
    pub(crate) queues: usize,
    pub(crate) depth: usize,
}

/// Plans for this machine, or says why it cannot be and what to do.
pub(crate) fn plan(options: &UringOptions) -> Result<Plan, String> {
    match std::fs::read_to_string(PARAMETER) {
        Ok(text) if text.trim() == "Y" => {}
        Ok(_) => return Err(format!("it is switched off in this kernel; echo Y > {PARAMETER}")),
        Err(_) => return Err("this kernel does not have it; run Linux 6.14 or newer".to_owned()),
    }
    // Seen now, a lack of rights is a reason to do without; seen later, it would be the end of the mount.
    Reactor::new(1).map_err(|error| no_ring(&error))?;
    let text = std::fs::read_to_string(POSSIBLE).map_err(|error| format!("{POSSIBLE}: {error}"))?;
    let queues = cpus(&text).ok_or_else(|| format!("{POSSIBLE}: \"{}\" is no list of CPUs", text.trim()))?;
    let allowed = rustix::thread::sched_getaffinity(None).map_err(|error| format!("CPUs: {error}"))?;
    let usable: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).collect();
    Ok(lay_out(queues.len(), &usable, options))
}

/// What to say of a ring that cannot be made.
pub(crate) fn no_ring(error: &io::Error) -> String {
    let hint = match error.raw_os_error().map(rustix::io::Errno::from_raw_os_error) {
        Some(rustix::io::Errno::PERM) => "; allow it: sysctl kernel.io_uring_disabled=0",
        Some(rustix::io::Errno::NOMEM) => "; raise the limit of locked memory (LimitMEMLOCK=)",
        _ => "",
    };
    format!("io_uring cannot be set up: {error}{hint}")
}

/// The CPUs of a list like `0-3,8`.
fn cpus(text: &str) -> Option<Vec<usize>> {
    let mut all = Vec::new();
    for part in text.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.parse::<usize>().ok()?, last.parse::<usize>().ok()?);
        // More than the kernel can number is no list.
        if last < first || last > usize::from(u16::MAX) {
            return None;
        }
        all.extend(first..=last);
    }
    Some(all)
}

/// Gives every queue to a thread: a CPU's own to the thread on it, in blocks where threads are fewer than CPUs,
/// those of absent or forbidden CPUs in turn.
fn lay_out(queues: usize, usable: &[usize], options: &UringOptions) -> Plan {
    let depth = options.depth.clamp(1, (ENTRIES_LIMIT / queues.max(1)).max(1));
    let count = usable.len().clamp(1, options.threads.max(1));
    let mut threads = vec![ThreadPlan { cpus: Vec::new(), queues: Vec::new() }; count];
    for (rank, cpu) in usable.iter().enumerate() {
        threads[rank * count / usable.len()].cpus.push(*cpu);
    }
    for queue in 0..queues {
        let thread = match usable.iter().position(|cpu| *cpu == queue) {
            Some(rank) => rank * count / usable.len(),
            None => queue % count,
        };
        threads[thread].queues.push(queue as u16);
    }
    // A CPU beyond the queues (numbers with gaps) leaves its thread without work.
    threads.retain(|thread| !thread.queues.is_empty());
    Plan { threads, queues, depth }
}

#[cfg(test)]
mod tests {
    use super::{Plan, ThreadPlan, cpus, lay_out};
    use crate::UringOptions;

    fn thread(cpus: &[usize], queues: &[u16]) -> ThreadPlan {
        ThreadPlan { cpus: cpus.to_vec(), queues: queues.to_vec() }
    }

    /// Goal: the kernel's lists are read, and nonsense is no list.
    #[test]
    fn lists() {
        assert_eq!(cpus("0-1\n"), Some(vec![0, 1]));
        assert_eq!(cpus("0,2-4"), Some(vec![0, 2, 3, 4]));
        assert_eq!([cpus(""), cpus("x"), cpus("4-2"), cpus("0-99999999")], [None, None, None, None]);
    }

    /// Goal: every queue has exactly one thread, its own CPU's if there is one; there are no more threads than
    /// allowed and not too many entries.
    #[test]
    fn layouts() {
        let options = UringOptions { depth: 32, threads: 64 };
        let pair = vec![thread(&[0], &[0]), thread(&[1], &[1])];
        assert_eq!(lay_out(2, &[0, 1], &options), Plan { threads: pair, queues: 2, depth: 32 });
        let pinned = vec![thread(&[1], &[0, 1])];
        assert_eq!(lay_out(2, &[1], &options).threads, pinned);
        let absent = vec![thread(&[0], &[0, 2]), thread(&[1], &[1, 3])];
        assert_eq!(lay_out(4, &[0, 1], &options).threads, absent);
        for (queues, usable, threads) in [(256, 256, 64), (256, 100, 7), (5, 3, 2), (1, 1, 1), (9, 0, 4)] {
            let usable: Vec<usize> = (0..usable).collect();
            let plan = lay_out(queues, &usable, &UringOptions { depth: 32, threads });
            assert!(plan.threads.len() <= threads && plan.depth * queues <= 4096);
            let mut served: Vec<u16> = plan.threads.iter().flat_map(|thread| thread.queues.clone()).collect();
            served.sort_unstable();
            assert_eq!(served, (0..queues as u16).collect::<Vec<_>>());
            for queue in &usable {
                let owner = plan.threads.iter().find(|thread| thread.queues.contains(&(*queue as u16)));
                assert!(owner.unwrap().cpus.contains(queue));
            }
        }
    }
}
