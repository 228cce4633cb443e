//! What one run may take of an agent's machine.

use skep_bench::job::{Job, Work, format_size};

/// Threads of all worker processes of a run.
pub const THREADS_MAX: u64 = 16_384;
/// Memory of a run unless told otherwise, percent of the machine's.
const MEMORY_PERCENT: u64 = 50;
/// Where the machine does not tell how much it has.
const MEMORY_UNKNOWN: u64 = 1 << 30;
/// Memory of a worker process beside its threads'.
const OF_PROCESS: u64 = 8 << 20;
/// Memory of a worker thread beside its transfers': stack, report, and bytes to be written.
const OF_THREAD: u64 = 10 << 20;

#[derive(Debug, Clone, Copy)]
pub struct Budget {
    /// Worker processes.
    pub processes: u32,
    /// Bytes of all of them.
    pub memory: u64,
}

impl Budget {
    /// As the command line says, or else a share of this machine.
    pub fn new(processes: u32, memory: Option<u64>) -> Self {
        let memory =
            memory.unwrap_or_else(|| machine().map_or(MEMORY_UNKNOWN, |all| all / 100 * MEMORY_PERCENT));
        Self { processes, memory }
    }

    /// May a run of this job take place here with these processes? How many they are.
    pub fn check(&self, job: &Job, processes: &[u32]) -> Result<u32, String> {
        let count = u32::try_from(processes.len()).unwrap_or(u32::MAX);
        if count == 0 || count > self.processes {
            return Err(format!(
                "{count} processes are asked for; this agent starts 1 to {} (--processes-max)",
                self.processes
            ));
        }
        let mut sorted = processes.to_vec();
        sorted.sort_unstable();
        if sorted.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err("the same process is asked for twice".to_owned());
        }
        if sorted.last().is_some_and(|last| *last >= job.workers.processes) {
            return Err(format!(
                "the job has processes 0 to {} only",
                job.workers.processes.saturating_sub(1)
            ));
        }
        let threads = u64::from(count).saturating_mul(u64::from(job.workers.threads));
        if threads > THREADS_MAX {
            return Err(format!("{threads} threads are asked for; an agent starts at most {THREADS_MAX}"));
        }
        let need = memory(job, u64::from(count), threads);
        if need > self.memory {
            let whole = |bytes: u64| format_size(bytes.next_multiple_of(1 << 20));
            return Err(format!(
                "{count} processes of {} threads need {} of memory here, this agent gives {} (--memory-max): take fewer of them, or smaller transfers",
                job.workers.threads,
                whole(need),
                whole(self.memory)
            ));
        }
        Ok(count)
    }
}

/// What the workers hold, at most.
fn memory(job: &Job, processes: u64, threads: u64) -> u64 {
    let each = match &job.work {
        // One transfer to read into, one to write from.
        Work::Io(io) => io.transfer.saturating_mul(2),
        Work::Meta(meta) => {
            let bytes = meta.write_bytes.max(meta.read_bytes);
            let call = if meta.transfer == 0 { bytes } else { bytes.min(meta.transfer) };
            call.saturating_add(meta.held_paths())
        }
        Work::Files(files) => {
            let contents = files.tree.largest_bytes.saturating_add(files.training.largest_bytes);
            contents.saturating_add(files.held_paths())
        }
    };
    // Every process has the job, and reads it from a line as long.
    let paths: u64 = job.paths().iter().map(|path| 2 * (path.len() as u64 + 64)).sum();
    let of_threads = threads.saturating_mul(each.saturating_add(OF_THREAD));
    processes.saturating_mul(OF_PROCESS + paths).saturating_add(of_threads)
}

fn machine() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1_024)
}

#[cfg(test)]
mod tests {
    use super::*;
    use skep_bench::job::{IoJob, MetaJob, TreeShape};

    /// Goal: a run that would take more of the machine than it is given is refused with the limit's name, and so
    /// is a process that comes twice or that the job does not have.
    #[test]
    fn limits() {
        let budget = Budget { processes: 8, memory: 1 << 30 };
        let mut job = Job::new(Work::Io(IoJob::new("/tmp")));
        (job.workers.processes, job.workers.threads) = (4, 2);
        assert_eq!(budget.check(&job, &[0, 3]), Ok(2));
        for (processes, words) in [
            (&[0, 1, 0][..], "twice"),
            (&[4], "0 to 3"),
            (&[], "--processes-max"),
            (&[0; 9], "--processes-max"),
        ] {
            assert!(budget.check(&job, processes).unwrap_err().contains(words), "{words}");
        }
        let mut large = job.clone();
        if let Work::Io(io) = &mut large.work {
            (io.transfer, io.block) = (1 << 30, 1 << 30);
        }
        assert!(budget.check(&large, &[0]).unwrap_err().contains("--memory-max"));
        (large.workers.processes, large.workers.threads) = (32, 1_024);
        let all: Vec<u32> = (0..32).collect();
        let wide = Budget { processes: 64, memory: u64::MAX };
        assert!(wide.check(&large, &all).unwrap_err().contains("16384"));
        let tree = TreeShape { branching: 4_000_000, depth: 1, leaf_only: true };
        let trees = Job::new(Work::Meta(MetaJob { tree, ..MetaJob::new("/tmp") }));
        assert!(
            budget.check(&Job { workers: job.workers, ..trees }, &[0]).unwrap_err().contains("--memory-max")
        );
        // The same tree takes more where its paths are long.
        let tree = TreeShape { branching: 1_000, depth: 2, leaf_only: true };
        let below = |dir: &str| {
            let trees = Job::new(Work::Meta(MetaJob { tree, ..MetaJob::new(dir) }));
            budget.check(&Job { workers: job.workers, ..trees }, &[0])
        };
        below("/tmp").unwrap();
        assert!(below(&format!("/{}", "long/".repeat(400))).unwrap_err().contains("--memory-max"));
        assert!(machine().is_some_and(|all| all > 1 << 20));
    }
}
