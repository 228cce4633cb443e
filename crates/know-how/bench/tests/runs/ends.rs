//! Phases and runs that end before they are through, and listings that end too soon.

use super::stage::{After, go, go_with, io, path, workers};
use skep_bench::engine::{
    Crew, CrewError, Ends, LocalCrew, Member, Order, Part, Report, Start, now_ns, run_until, steps,
};
use skep_bench::job::{
    FilesJob, FilesPhase, IoJob, IoKind, IoPhase, Items, Job, MetaJob, MetaPhase, Stonewall, Things,
    Training, TreeShape, Work,
};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Goal: a listing that misses an entry ends the run, in trees of their own and in shared ones; what other phases have
/// left beside the items is not taken for too many.
#[test]
fn listings_are_complete() {
    let dir = tempfile::tempdir().unwrap();
    for own_tree in [true, false] {
        let load = MetaJob {
            items: Items::Total(6),
            tree: TreeShape { branching: 2, depth: 1, leaf_only: true },
            things: Things::Both,
            phases: vec![MetaPhase::Create, MetaPhase::Readdir],
            own_tree,
            ..MetaJob::new(&path(&dir))
        };
        let mut job = Job::new(Work::Meta(load));
        job.workers = workers(3, 1);
        let result = go(&job).unwrap();
        assert_eq!(result.steps.len(), 4);
        let tree = if own_tree { "w00000001" } else { "shared" };
        let gone = dir.path().join("skep-bench-meta").join(tree).join("t1/f0.1.4");
        let mut lose = After(|phase: &str| {
            if phase == "file create" {
                std::fs::remove_file(&gone).unwrap();
            }
        });
        let error = go_with(&job, &mut lose).unwrap_err().to_string();
        let should = if own_tree { "2 of 3 entries" } else { "8 of 9 entries" };
        assert!(error.contains(should), "{error}");
        assert!(std::fs::read_dir(dir.path()).unwrap().next().is_none());
    }
}

/// Goal: a worker that is through before the clock tells how far it was, in every phase that the clock may end: the
/// others wait for that when they all wear out.
#[test]
fn the_early_tell() {
    let dir = tempfile::tempdir().unwrap();
    let samples = FilesJob {
        phases: vec![FilesPhase::Samples, FilesPhase::Train],
        training: Training { samples: 5, epochs: 2, ..Training::default() },
        ..FilesJob::new(&path(&dir))
    };
    let items = MetaJob {
        tree: TreeShape { branching: 2, depth: 1, leaf_only: true },
        items: Items::PerDirectory(3),
        ..MetaJob::new(&path(&dir))
    };
    let phases = vec![IoPhase::new(IoKind::Write), IoPhase::new(IoKind::Read)];
    let contents = IoJob { phases, ..io(&dir) };
    for (work, expected) in [
        (Work::Files(samples), vec![("train", 10)]),
        (Work::Io(contents), vec![("write", 16), ("read", 16)]),
        (
            Work::Meta(MetaJob { phases: vec![MetaPhase::Create, MetaPhase::Readdir], ..items }),
            vec![("file create", 6), ("file readdir", 2)],
        ),
    ] {
        let mut job = Job::new(work);
        job.stonewall = Some(Stonewall { after_ms: 3_600_000, wear_out: true, repeat: false });
        let mut crew = LocalCrew::in_process(1, "here").unwrap();
        let start = Start {
            job: job.clone(),
            process: 0,
            hosts: 1,
            host_processes: 1,
            first_on_host: true,
            progress_ms: 1_000,
            settled: false,
        };
        let mut told = Vec::new();
        // Answers to all that comes, until an order is done.
        let mut obey = |name: &str, order: Order| {
            crew.send(0, &order).unwrap();
            loop {
                match crew.receive(Duration::from_secs(120)).unwrap().expect("a report").1 {
                    Report::Ready { .. } | Report::Done(_) => return,
                    Report::Walled { ops } => {
                        told.push((name.to_owned(), ops));
                        crew.send(0, &Order::Level { ops }).unwrap();
                    }
                    Report::Failed { trouble, .. } => panic!("{name}: {trouble}"),
                    _ => {}
                }
            }
        };
        obey("start", Order::Start(Box::new(start)));
        for step in steps(&job) {
            obey(&step.name, Order::Prepare { step: step.index, repetition: 0, reach: Vec::new() });
            obey(&step.name, Order::Go { part: Part::All, start_ns: now_ns() });
        }
        let expected: Vec<(String, u64)> =
            expected.into_iter().map(|(name, ops)| (name.to_owned(), ops)).collect();
        assert_eq!(told, expected);
    }
}

/// Workers on a file system that hangs as soon as they shall remove something.
struct Hanging<'a> {
    crew: LocalCrew,
    leave: &'a AtomicBool,
}

impl Crew for Hanging<'_> {
    fn members(&self) -> &[Member] {
        self.crew.members()
    }
    fn send(&mut self, member: usize, order: &Order) -> Result<(), CrewError> {
        match order {
            // The user asks once more.
            Order::Clean { .. } => self.leave.store(true, Ordering::Relaxed),
            order => self.crew.send(member, order)?,
        }
        Ok(())
    }
    fn receive(&mut self, wait: Duration) -> Result<Option<(usize, Report)>, CrewError> {
        self.crew.receive(wait)
    }
    fn lead(&self) -> Duration {
        self.crew.lead()
    }
    fn end(&mut self) {
        self.crew.end();
    }
}

/// Goal: who asks for the end once more while removing hangs gets it at once, and is told by name what is left, also of
/// workers whose turn had not come.
#[test]
fn removing_is_given_up() {
    let dir = tempfile::tempdir().unwrap();
    let phases = vec![IoPhase::new(IoKind::Write), IoPhase::new(IoKind::Read)];
    let load = IoJob { phases, ..io(&dir) };
    let mut job = Job::new(Work::Io(load));
    job.workers = workers(2, 1);
    let (stop, leave) = (AtomicBool::new(false), AtomicBool::new(false));
    let mut crew = Hanging { crew: LocalCrew::in_process(2, "here").unwrap(), leave: &leave };
    let mut watch = After(|_: &str| stop.store(true, Ordering::Relaxed));
    let began = std::time::Instant::now();
    let ends = Ends { stop: &stop, leave: &leave };
    let error = run_until(&job, &mut crew, &mut watch, ends).unwrap_err();
    assert!(began.elapsed() < Duration::from_secs(120));
    assert!(error.stopped);
    let text = error.to_string();
    for name in ["skep-bench-io.00000000", "skep-bench-io.00000001"] {
        assert!(text.contains(name) && dir.path().join(name).exists(), "{text}");
    }
}
