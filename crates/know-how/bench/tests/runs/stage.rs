//! What all of these tests need: small jobs, and how they are run.

use skep_bench::engine::{LocalCrew, Progress, RunError, Silent, Watch, run};
use skep_bench::job::{IoJob, IoKind, IoPhase, Job, Order, Workers};
use skep_bench::result::{RunResult, StepResult};
use std::path::Path;
use std::sync::atomic::AtomicBool;

pub const READ: IoPhase = IoPhase { kind: IoKind::Read, order: Order::Forward, verify: true, setup: false };
pub const WRITE: IoPhase =
    IoPhase { kind: IoKind::Write, order: Order::Forward, verify: false, setup: false };

/// As jobs name it.
pub fn path(dir: impl AsRef<Path>) -> String {
    dir.as_ref().to_str().unwrap().to_owned()
}

/// Sixteen transfers of 4 KiB for each worker.
pub fn io(dir: impl AsRef<Path>) -> IoJob {
    IoJob { transfer: 4096, block: 64 << 10, ..IoJob::new(&path(dir)) }
}

pub fn workers(processes: u32, threads: u32) -> Workers {
    Workers { processes, threads, ..Workers::default() }
}

pub fn go(job: &Job) -> Result<RunResult, RunError> {
    go_with(job, &mut Silent)
}

pub fn go_with(job: &Job, watch: &mut dyn Watch) -> Result<RunResult, RunError> {
    let mut crew = LocalCrew::in_process(job.workers.processes, "here").unwrap();
    run(job, &mut crew, watch, &AtomicBool::new(false))
}

/// Does something when a phase, whose name it is given, has ended.
pub struct After<F>(pub F);

impl<F: FnMut(&str)> Watch for After<F> {
    fn progress(&mut self, _: &Progress<'_>) {}
    fn step(&mut self, result: &StepResult) {
        (self.0)(&result.phase);
    }
    fn warning(&mut self, _: &str) {}
}
