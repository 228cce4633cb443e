//! From the reports of all workers to the result of a step.

use super::{Member, Part, PartReport, Step, StepKind, WorkerReport};
use crate::histogram::Histogram;
use crate::job::{IoKind, Job};
use crate::result::{Cut, StepResult, WorkerResult};

/// The reports of one step, as they come in.
pub(super) struct Gathered {
    name: String,
    mixed: bool,
    repetition: u32,
    /// (host, its clock minus the director's), by process.
    members: Vec<(String, i64)>,
    threads: u32,
    seconds: f64,
    skew_ns: u64,
    data: Vec<WorkerReport>,
    histograms: [Histogram; 2],
    cut: Option<(f64, [u64; 2])>,
}

impl Gathered {
    pub fn new(job: &Job, step: &Step, repetition: u32, members: &[Member]) -> Self {
        let mixed = matches!(step.kind, StepKind::Io(phase) if matches!(phase.kind, IoKind::Mixed { .. }));
        Self {
            name: step.name.clone(),
            mixed,
            repetition,
            members: members.iter().map(|member| (member.host.clone(), member.clock_offset_ns)).collect(),
            threads: job.workers.threads.max(1),
            seconds: 0.0,
            skew_ns: 0,
            data: Vec::new(),
            histograms: [Histogram::new(), Histogram::new()],
            cut: None,
        }
    }

    fn member(&self, worker: u32) -> (&str, i64) {
        let member = self.members.get((worker / self.threads) as usize);
        member.map_or(("", 0), |(host, offset)| (host.as_str(), *offset))
    }

    /// A part is done; its reports come in the order of processes.
    pub fn add(&mut self, part: Part, reports: Vec<PartReport>) {
        let mut workers = Vec::new();
        for report in reports {
            for (side, pairs) in report.latencies.iter().take(2).enumerate() {
                self.histograms[side].add_pairs(pairs);
            }
            workers.extend(report.workers);
        }
        // All on the director's clock.
        for worker in &mut workers {
            let back = self.member(worker.worker).1.saturating_neg();
            worker.start_ns = worker.start_ns.saturating_add_signed(back);
            worker.end_ns = worker.end_ns.saturating_add_signed(back);
            for sample in &mut worker.timeline {
                sample.0 = sample.0.saturating_add_signed(back);
            }
        }
        let first = workers.iter().map(|worker| worker.start_ns).min().unwrap_or(0);
        let late = workers.iter().map(|worker| worker.start_ns).max().unwrap_or(0);
        let end = workers.iter().map(|worker| worker.end_ns).max().unwrap_or(0);
        let before = self.seconds;
        self.seconds += end.saturating_sub(first) as f64 / 1e9;
        if matches!(part, Part::All | Part::Transfer) {
            self.skew_ns = late - first;
            let wall = workers.iter().map(|worker| worker.end_ns).min().unwrap_or(0);
            let done = workers.iter().map(|worker| at(worker, wall));
            let done = done.fold([0, 0], |sum, each| [sum[0] + each[0], sum[1] + each[1]]);
            self.cut = Some((before + wall.saturating_sub(first) as f64 / 1e9, done));
            self.data = workers;
        }
    }

    /// How much of its data each worker made, in operations.
    pub fn reach(&self, workers: u32) -> Vec<u64> {
        let mut reach = vec![0; workers as usize];
        for report in &self.data {
            if let Some(reach) = reach.get_mut(report.worker as usize) {
                *reach = report.sides.iter().map(|side| side.ops).sum();
            }
        }
        reach
    }

    /// One result; two where reads and writes are told apart.
    pub fn finish(self) -> Vec<StepResult> {
        let first = self.data.iter().map(|worker| worker.start_ns).min().unwrap_or(0);
        let side_of =
            |worker: &WorkerReport, side: usize| worker.sides.get(side).copied().unwrap_or_default();
        let sides: &[usize] = if self.mixed { &[0, 1] } else { &[0] };
        let result = |side: &usize| {
            let workers: Vec<WorkerResult> = self
                .data
                .iter()
                .map(|worker| WorkerResult {
                    worker: worker.worker,
                    host: self.member(worker.worker).0.to_owned(),
                    start_us: worker.start_ns.saturating_sub(first) as f64 / 1e3,
                    seconds: worker.end_ns.saturating_sub(worker.start_ns) as f64 / 1e9,
                    bytes: side_of(worker, *side).bytes,
                    ops: side_of(worker, *side).ops,
                })
                .collect();
            let name = match (self.mixed, side) {
                (false, _) => self.name.clone(),
                (true, 0) => format!("{} read", self.name),
                (true, _) => format!("{} write", self.name),
            };
            let histogram = self.histograms[*side].clone();
            StepResult {
                phase: name,
                repetition: self.repetition + 1,
                bytes: workers.iter().map(|worker| worker.bytes).sum(),
                ops: workers.iter().map(|worker| worker.ops).sum(),
                seconds: self.seconds,
                start_skew_us: self.skew_ns as f64 / 1e3,
                latency: histogram.latency(),
                stonewall: self.cut.filter(|_| !self.mixed).map(|(seconds, [bytes, ops])| Cut {
                    seconds,
                    bytes,
                    ops,
                }),
                workers,
                histogram,
            }
        };
        sides.iter().map(result).collect()
    }
}

/// How far a worker was at a moment: (bytes, operations), between samples in proportion.
fn at(worker: &WorkerReport, moment: u64) -> [u64; 2] {
    let total = worker.sides.iter().fold((0, 0), |sum, side| (sum.0 + side.bytes, sum.1 + side.ops));
    if moment >= worker.end_ns {
        return [total.0, total.1];
    }
    let ends = (worker.end_ns, total.0, total.1);
    let mut before = (worker.start_ns, 0, 0);
    for sample in worker.timeline.iter().copied().chain([ends]) {
        if sample.0 > moment {
            let share = moment.saturating_sub(before.0) as f64 / (sample.0 - before.0).max(1) as f64;
            let between = |a: u64, b: u64| a + (b.saturating_sub(a) as f64 * share) as u64;
            return [between(before.1, sample.1), between(before.2, sample.2)];
        }
        before = sample;
    }
    [total.0, total.1]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{SideReport, steps};
    use crate::job::{IoJob, Work, Workers};

    fn report(worker: u32, start: u64, end: u64, ops: u64) -> PartReport {
        let sides = vec![SideReport { bytes: ops * 100, ops }];
        let timeline = vec![((start + end) / 2, ops * 50, ops / 2)];
        let workers = vec![WorkerReport { worker, start_ns: start, end_ns: end, sides, timeline }];
        PartReport { workers, latencies: vec![vec![(1000, ops)]] }
    }

    /// Goal: seconds run from the first start to the last end on one clock; the stonewall counts what
    /// all had done when the first was ready.
    #[test]
    fn clocks_and_stonewall() {
        let mut job = Job::new(Work::Io(IoJob::new("/tmp")));
        job.workers = Workers { processes: 2, ..Workers::default() };
        let member = |host: &str, offset: i64| Member {
            host: host.to_owned(),
            clock_offset_ns: offset,
            clock_error_ns: 0,
        };
        let members = [member("a", 0), member("b", 5_000_000_000)];
        let mut gathered = Gathered::new(&job, &steps(&job)[0], 0, &members);
        let s = 1_000_000_000;
        gathered.add(Part::All, vec![report(0, s, 3 * s, 100), report(1, 6 * s + 1000, 10 * s, 100)]);
        assert_eq!(gathered.reach(2), [100, 100]);
        let result = gathered.finish().remove(0);
        assert_eq!((result.bytes, result.ops, result.repetition), (20_000, 200, 1));
        assert!((result.seconds - 4.0).abs() < 1e-9);
        assert!((result.start_skew_us - 1.0).abs() < 1e-9);
        let cut = result.stonewall.unwrap();
        assert!((cut.seconds - 2.0).abs() < 1e-9);
        assert!((149..=150).contains(&cut.ops), "{}", cut.ops);
        assert_eq!(result.workers[1].host, "b");
        assert_eq!(result.latency.unwrap().count, 200);
    }

    /// Goal: parts with barriers between add up, waiting between them does not count.
    #[test]
    fn parts_add_up() {
        let job = Job::new(Work::Io(IoJob::new("/tmp")));
        let members = [Member { host: "a".to_owned(), clock_offset_ns: 0, clock_error_ns: 0 }];
        let mut gathered = Gathered::new(&job, &steps(&job)[0], 1, &members);
        let s = 1_000_000_000;
        gathered.add(Part::Open, vec![report(0, 0, s, 0)]);
        gathered.add(Part::Transfer, vec![report(0, 50 * s, 52 * s, 10)]);
        gathered.add(Part::Finish, vec![report(0, 90 * s, 91 * s, 0)]);
        let result = gathered.finish().remove(0);
        assert!((result.seconds - 4.0).abs() < 1e-9);
        assert_eq!((result.ops, result.repetition), (10, 2));
    }
}
