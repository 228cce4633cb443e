//! The engine at work on a directory: every kind of job, damage that must be noticed, ends that come early.

use super::stage::{READ, WRITE, go, go_with, io, path, workers};
use skep_bench::engine::{Crew, LocalCrew, Made, Order as Command, Report, Silent, Watch, clean, run, serve};
use skep_bench::job::{
    FilesJob, FilesPhase, Fsync, IoJob, IoKind, IoPhase, Items, Job, MetaJob, MetaPhase, Order, Readers,
    Share, SourceTree, Stonewall, SyncMode, Things, Training, TreeShape, Work,
};
use skep_bench::result::StepResult;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

fn place() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

fn left(dir: &Path) -> Vec<String> {
    let names =
        std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.collect()
}

/// Goal: every phase in every order on every kind of sharing moves exactly the bytes it should, all of
/// them verified, and leaves nothing behind.
#[test]
fn contents() {
    let dir = place();
    for share in [Share::PerWorker, Share::Segmented, Share::Strided, Share::Whole] {
        for readers in [Readers::Own, Readers::Shift { workers: 1 }, Readers::Random { seed: 3 }] {
            let mut load = io(&dir);
            load.share = share;
            load.readers = readers;
            load.segments = 3;
            load.phases = vec![
                WRITE,
                READ,
                IoPhase::new(IoKind::Rewrite),
                READ.in_order(Order::Backward),
                READ.in_order(Order::Random),
                READ.in_order(Order::RandomRepeating),
                READ.in_order(Order::Stride { transfers: 5 }),
                IoPhase::new(IoKind::Rewrite).in_order(Order::Random),
                IoPhase::new(IoKind::Reread).verified(),
                IoPhase::new(IoKind::Mixed { read_percent: 70 }).in_order(Order::Random).verified(),
            ];
            let mut job = Job::new(Work::Io(load));
            job.workers = workers(2, 2);
            job.repetitions = 2;
            let result = go(&job).unwrap();
            assert_eq!(result.steps.len(), 2 * 11);
            let whole = 4 * 3 * (64 << 10);
            for step in &result.steps {
                if !step.phase.contains("mixed") {
                    assert_eq!((step.bytes, step.ops), (whole, whole / 4096), "{share:?} {}", step.phase);
                }
                assert!(step.seconds > 0.0 && step.latency.is_some_and(|l| l.count == step.ops));
                assert_eq!(step.workers.len(), 4);
            }
            let mixed: Vec<&StepResult> = result.steps.iter().filter(|s| s.phase.contains("mixed")).collect();
            assert_eq!(mixed[0].bytes + mixed[1].bytes, whole);
            let reads = mixed[0].ops as f64 / (whole / 4096) as f64;
            assert!((0.5..0.9).contains(&reads), "{reads}");
            assert_eq!(left(dir.path()), [""; 0], "{share:?}");
        }
    }
}

/// Goal: records that align with nothing, fsync and close in and out of the timing, barriers, O_SYNC and
/// preparation phases all run and verify.
#[test]
fn ways_to_write() {
    let dir = place();
    let changes: [fn(&mut IoJob); 7] = [
        |io| (io.transfer, io.block) = (47, 1000),
        |io| (io.time_fsync, io.time_close, io.time_open) = (false, false, true),
        |io| (io.barriers, io.time_open) = (true, true),
        |io| io.sync = SyncMode::Full,
        |io| (io.fsync, io.preallocate) = (Fsync::Every { transfers: 3 }, true),
        |io| (io.fsync, io.invalidate, io.advise) = (Fsync::Never, true, true),
        |io| (io.fresh, io.sync) = (false, SyncMode::Data),
    ];
    for change in changes {
        let mut load = io(&dir);
        load.share = Share::Segmented;
        load.segments = 2;
        load.phases = vec![WRITE.as_setup(), IoPhase::new(IoKind::Rewrite), READ];
        change(&mut load);
        let mut job = Job::new(Work::Io(load));
        (job.workers, job.repetitions, job.delay_ms) = (workers(3, 1), 2, 1);
        let result = go(&job).unwrap();
        let names: Vec<&str> = result.steps.iter().map(|step| step.phase.as_str()).collect();
        assert_eq!(names, ["rewrite", "read", "rewrite", "read"]);
        assert_eq!(left(dir.path()), [""; 0]);
    }
}

/// Does something after the first pass and after the second.
struct Between<A, B>(A, B);

impl<A: FnMut(), B: FnMut()> Watch for Between<A, B> {
    fn progress(&mut self, _: &skep_bench::engine::Progress<'_>) {}
    fn step(&mut self, result: &StepResult) {
        match result.phase.as_str() {
            "write" => (self.0)(),
            "rewrite" => (self.1)(),
            _ => {}
        }
    }
    fn warning(&mut self, _: &str) {}
}

/// Goal: one wrong byte, a block in the wrong place, a lost block and a stale one are each found by the
/// reader, and the report names the file and the place.
#[test]
fn damage_is_found() {
    let dir = place();
    let file = dir.path().join("skep-bench-io.00000001");
    let copy = |from: u64, to: u64| {
        let file = std::fs::OpenOptions::new().read(true).write(true).open(&file).unwrap();
        let mut block = vec![0; 4096];
        file.read_exact_at(&mut block, from).unwrap();
        file.write_all_at(&block, to).unwrap();
    };
    let write = |bytes: &[u8], at: u64| {
        let file = std::fs::OpenOptions::new().write(true).open(&file).unwrap();
        file.write_all_at(bytes, at).unwrap();
    };
    let old = std::cell::RefCell::new(vec![0; 4096]);
    let keep = || {
        std::fs::File::open(&file).unwrap().read_exact_at(&mut old.borrow_mut(), 8192).unwrap();
    };
    type Damage<'a> = (&'a str, Box<dyn FnMut() + 'a>, &'a str, &'a str);
    let cases: [Damage; 4] = [
        ("byte", Box::new(|| write(&[0xee], 12_345)), "at byte 12345", "instead of"),
        ("shifted", Box::new(|| copy(0, 20_480)), "at byte 20480", "belongs to byte 0 of this file"),
        ("lost", Box::new(|| write(&[0; 4096], 40_960)), "at byte 40960", "zeros"),
        ("stale", Box::new(|| write(&old.borrow(), 8192)), "at byte 8192", "stale"),
    ];
    for (name, mut by, place, words) in cases {
        let mut load = io(&dir);
        load.phases = vec![WRITE, IoPhase::new(IoKind::Rewrite), READ];
        let mut job = Job::new(Work::Io(load));
        job.workers = workers(2, 1);
        // What the first pass wrote is kept aside for the stale case.
        let error = go_with(&job, &mut Between(keep, &mut by)).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("verify") && text.contains("skep-bench-io.00000001"), "{name}: {text}");
        assert!(text.contains(place) && text.contains(words), "{name}: {text}");
        assert!(text.contains("worker 1 on here"), "{name}: {text}");
        assert_eq!(error.so_far.steps.len(), 2);
        assert_eq!(left(dir.path()), [""; 0], "{name}: not cleaned up");
    }
}

/// Goal: O_DIRECT works where the file system has it, and is refused in words where it has not.
#[test]
fn direct() {
    let dir = place();
    let mut load = io(&dir);
    load.direct = true;
    load.phases = vec![WRITE, READ];
    match go(&Job::new(Work::Io(load))) {
        Ok(result) => assert_eq!(result.steps[1].bytes, 64 << 10),
        Err(error) => assert!(error.to_string().contains("O_DIRECT"), "{error}"),
    }
}

/// The cut counts what was done until the first worker was ready: that worker's all, of the others no more than
/// theirs, in the time that worker took.
fn cut_adds_up(step: &StepResult, transfer: u64) {
    let cut = step.stonewall.unwrap();
    let end = |worker: &skep_bench::result::WorkerResult| worker.start_us / 1e6 + worker.seconds;
    let first = step.workers.iter().min_by(|a, b| end(a).total_cmp(&end(b))).unwrap();
    assert!((cut.seconds - end(first)).abs() < 1e-6, "{cut:?} {first:?}");
    assert!(cut.seconds <= step.seconds + 1e-9);
    assert!(cut.ops >= first.ops && cut.ops <= step.ops, "{cut:?} of {}", step.ops);
    // Samples are cut in proportion, bytes and operations each rounded down for each worker.
    let slack = transfer * step.workers.len() as u64;
    assert!(cut.bytes.abs_diff(cut.ops * transfer) <= slack, "{cut:?}");
}

/// A stonewall of the tests below: a busy machine lets workers miss the common start, from which it counts, by some
/// ten milliseconds, a slow one by more.
const WALL_MS: u64 = 400;

/// Goal: a stonewall ends every worker in time; what it cut short is read back only as far as it came;
/// with wear-out all workers do as much as the fastest.
#[test]
fn stonewalls() {
    let dir = place();
    let mut load = io(&dir);
    load.block = 1 << 50;
    load.fsync = Fsync::Never;
    load.phases = vec![WRITE, READ];
    let mut job = Job::new(Work::Io(load));
    job.workers = workers(2, 1);
    job.stonewall = Some(Stonewall { after_ms: WALL_MS, wear_out: false, repeat: false });
    // The whole would never fit: the room is checked, so a stonewalled job says what it may write at most.
    assert!(go(&job).unwrap_err().to_string().contains("make room"));
    // Eight million calls last longer than the wall lets them, and leave the disk almost empty.
    let (transfer, block) = (4, 32 << 20);
    if let Work::Io(load) = &mut job.work {
        (load.transfer, load.block) = (transfer, block);
    }
    let result = go(&job).unwrap();
    let (wrote, read) = (&result.steps[0], &result.steps[1]);
    assert!(wrote.ops > 0 && wrote.ops < 2 * block / transfer, "{}", wrote.ops);
    assert!(wrote.seconds >= WALL_MS as f64 / 4e3, "{}", wrote.seconds);
    assert!(read.ops <= wrote.ops);
    for step in &result.steps {
        cut_adds_up(step, transfer);
    }
    job.stonewall = Some(Stonewall { after_ms: WALL_MS, wear_out: true, repeat: false });
    let result = go(&job).unwrap();
    let ops: Vec<u64> = result.steps[0].workers.iter().map(|worker| worker.ops).collect();
    assert_eq!(ops[0], ops[1]);
    for step in &result.steps {
        cut_adds_up(step, transfer);
    }
    job.stonewall = Some(Stonewall { after_ms: WALL_MS, wear_out: false, repeat: true });
    if let Work::Io(load) = &mut job.work {
        (load.transfer, load.block) = (4096, 16 << 10);
    }
    let result = go(&job).unwrap();
    // Both files hold eight.
    assert!(result.steps.iter().all(|step| step.ops > 8 && step.seconds >= WALL_MS as f64 / 4e3));
}

/// Goal: all phases on files and directories, in trees of their own and shared ones, shifted and in random
/// order, count what they should and leave nothing.
#[test]
fn metadata() {
    use MetaPhase::{Create, OpenRead, Readdir, Remove, Rename, Stat};
    let dir = place();
    for (own_tree, leaf_only, items) in [
        (true, true, Items::PerDirectory(5)),
        (false, true, Items::PerDirectory(5)),
        (true, false, Items::Total(31)),
        (false, false, Items::Total(31)),
    ] {
        let tree = TreeShape { branching: 3, depth: 2, leaf_only };
        let load = MetaJob {
            tree,
            items,
            things: Things::Both,
            phases: vec![Create, Stat, OpenRead, Readdir, Rename, Stat, Rename, Remove],
            own_tree,
            write_bytes: 5000,
            read_bytes: 5000,
            transfer: 1024,
            fsync: true,
            verify: true,
            readers: Readers::Shift { workers: 1 },
            random_order: true,
            time_tree: true,
            ..MetaJob::new(&path(&dir))
        };
        let each = items.per_worker(&tree);
        let mut job = Job::new(Work::Meta(load));
        (job.workers, job.repetitions) = (workers(2, 2), 2);
        let result = go(&job).unwrap();
        assert_eq!(result.steps.len(), 2 * (2 * 8 + 2));
        for step in &result.steps {
            let should = match step.phase.as_str() {
                "tree create" | "tree remove" => 13 * if own_tree { 4 } else { 1 },
                name if name.contains("readdir") => continue,
                _ => 4 * each,
            };
            assert_eq!(step.ops, should, "{} own {own_tree}", step.phase);
        }
        let read = result.steps.iter().find(|step| step.phase == "file open-read").unwrap();
        assert_eq!(read.bytes, 4 * each * 5000);
        assert_eq!(left(dir.path()), [""; 0]);
    }
}

/// Goal: kept trees can be used by a later job and removed by one that does nothing else.
#[test]
fn kept_trees() {
    let dir = place();
    let mut load = MetaJob::new(&path(&dir));
    load.items = Items::Total(7);
    load.phases = vec![MetaPhase::Create, MetaPhase::Stat];
    let mut job = Job::new(Work::Meta(load));
    (job.keep, job.repetitions) = (true, 2);
    go(&job).unwrap();
    assert_eq!(left(&dir.path().join("skep-bench-meta/w00000000")).len(), 7);
    let refused = go(&job).unwrap_err().to_string();
    assert!(refused.contains("exists already"), "{refused}");
    assert_eq!(left(&dir.path().join("skep-bench-meta/w00000000")).len(), 7, "a refusal removes nothing");
    (job.keep, job.existing, job.repetitions) = (false, true, 1);
    if let Work::Meta(load) = &mut job.work {
        load.phases = vec![MetaPhase::Stat, MetaPhase::Remove];
    }
    assert_eq!(go(&job).unwrap().steps[1].ops, 7);
    assert_eq!(left(dir.path()), [""; 0]);
}

/// Goal: the life of a source tree and an epoch of training: every entry is found, every word, every sample.
#[test]
fn small_files() {
    let dir = place();
    let load = FilesJob {
        phases: vec![
            FilesPhase::Untar,
            FilesPhase::Find,
            FilesPhase::Grep,
            FilesPhase::Copy,
            FilesPhase::Remove,
            FilesPhase::Samples,
            FilesPhase::Train,
        ],
        tree: SourceTree { files: 120, per_directory: 7, ..SourceTree::default() },
        training: Training { samples: 50, epochs: 3, ..Training::default() },
        ..FilesJob::new(&path(&dir))
    };
    let mut job = Job::new(Work::Files(load));
    (job.workers, job.repetitions) = (workers(1, 3), 2);
    let result = go(&job).unwrap();
    let ops = |name: &str| result.steps.iter().find(|step| step.phase == name).unwrap().ops;
    let entries = 3 * (120 + 120u64.div_ceil(7));
    assert_eq!((ops("untar"), ops("find"), ops("copy")), (entries, entries, entries));
    assert_eq!((ops("grep"), ops("remove")), (3 * 120, 2 * entries));
    assert_eq!((ops("samples"), ops("train")), (50, 150));
    let bytes = |name: &str| result.steps.iter().find(|step| step.phase == name).unwrap().bytes;
    assert_eq!(bytes("train"), 3 * bytes("samples"));
    assert_eq!(bytes("untar"), bytes("grep"));
    assert_eq!(left(dir.path()), [""; 0]);
}

/// Goal: somebody else's file with the same name is never touched, and the refusal names it.
#[test]
fn foreign_files() {
    let dir = place();
    let file = dir.path().join("skep-bench-io.00000001");
    std::fs::write(&file, "mine").unwrap();
    let mut job = Job::new(Work::Io(io(&dir)));
    job.workers = workers(2, 1);
    let error = go(&job).unwrap_err().to_string();
    assert!(error.contains("skep-bench-io.00000001") && error.contains("exists already"), "{error}");
    assert_eq!(std::fs::read(&file).unwrap(), b"mine");
    assert_eq!(left(dir.path()).len(), 1);
}

/// Goal: a job that cannot fit, a directory that is not there and a job that reads what nobody wrote are
/// refused before anything is made.
#[test]
fn refusals() {
    let dir = place();
    let mut cases = Vec::new();
    let mut large = io(&dir);
    large.block = 1 << 50;
    cases.push((large, "make room"));
    let mut nowhere = io(&dir);
    nowhere.paths = vec![format!("{}/no", path(&dir))];
    cases.push((nowhere, "make it first"));
    let mut unread = io(&dir);
    unread.phases = vec![READ];
    cases.push((unread, "write first"));
    let mut wrong = io(&dir);
    wrong.transfer = 0;
    cases.push((wrong, "transfer is 0"));
    for (load, words) in cases {
        let error = go(&Job::new(Work::Io(load))).unwrap_err().to_string();
        assert!(error.contains(words), "{words}: {error}");
        assert_eq!(left(dir.path()), [""; 0]);
    }
}

/// Goal: files one job kept are read and verified by another, which leaves them where they are.
#[test]
fn kept_files() {
    let dir = place();
    let mut load = io(&dir);
    load.phases = vec![WRITE, READ];
    let mut job = Job::new(Work::Io(load));
    (job.keep, job.repetitions) = (true, 3);
    go(&job).unwrap();
    (job.keep, job.existing, job.repetitions) = (false, true, 1);
    if let Work::Io(load) = &mut job.work {
        load.phases = vec![READ.in_order(Order::Random)];
    }
    assert_eq!(go(&job).unwrap().steps[0].bytes, 64 << 10);
    assert_eq!(left(dir.path()), ["skep-bench-io.00000000"]);
}

/// Goal: a run that is stopped ends soon, says so and cleans up.
#[test]
fn stopped() {
    let dir = place();
    let mut load = io(&dir);
    (load.block, load.phases) = (1 << 20, vec![WRITE]);
    let mut job = Job::new(Work::Io(load));
    job.stonewall = Some(Stonewall { after_ms: 3_600_000, wear_out: false, repeat: true });
    let stop = std::sync::Arc::new(AtomicBool::new(false));
    struct StopAtProgress(std::sync::Arc<AtomicBool>);
    impl Watch for StopAtProgress {
        fn progress(&mut self, progress: &skep_bench::engine::Progress<'_>) {
            // A machine that is slow has nothing to tell at first.
            if progress.bytes > 0 || progress.elapsed > Duration::from_secs(60) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        fn step(&mut self, _: &StepResult) {}
        fn warning(&mut self, _: &str) {}
    }
    let mut crew = LocalCrew::in_process(1, "here").unwrap();
    let began = std::time::Instant::now();
    let error = run(&job, &mut crew, &mut StopAtProgress(stop.clone()), &stop).unwrap_err();
    assert!(error.stopped, "{error}");
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
    assert_eq!(left(dir.path()), [""; 0]);
}

/// Not a test of its own: the worker process of the tests below, which run this program again.
#[test]
fn worker_process() {
    if std::env::var_os("SKEP_BENCH_TEST_WORKER").is_none() {
        return;
    }
    // Standard output carries the test harness's words; descriptor 3 is the report's way.
    let output = std::fs::OpenOptions::new().write(true).open("/proc/self/fd/3").unwrap();
    let _ = serve(std::io::BufReader::new(std::io::stdin()), output);
}

fn processes(count: u32) -> LocalCrew {
    LocalCrew::spawn(count, "here", |_| {
        let mut command = std::process::Command::new("sh");
        let program = std::env::current_exe().unwrap();
        let script = "exec \"$0\" --exact engine::worker_process --nocapture 3>&1 1>/dev/null 2>/dev/null";
        command.arg("-c").arg(script).arg(program).env("SKEP_BENCH_TEST_WORKER", "1");
        command
    })
    .unwrap()
}

/// Goal: workers in processes of their own start together: the skew is reported and small beside the phase.
#[test]
fn real_processes() {
    let dir = place();
    let mut load = io(&dir);
    load.phases = vec![WRITE, READ];
    load.readers = Readers::ShiftNode { nodes: 1 };
    let mut job = Job::new(Work::Io(load));
    job.workers = workers(3, 2);
    let result = run(&job, &mut processes(3), &mut Silent, &AtomicBool::new(false)).unwrap();
    assert_eq!(result.hosts.len(), 1);
    assert_eq!(result.hosts[0].processes, 3);
    assert!(result.steps.iter().all(|step| step.workers.len() == 6));
    // Of the steps one at least: a process that others keep from the processor starts late.
    assert!(result.steps.iter().any(|step| step.start_skew_us < 1e6));
    assert!(result.steps.iter().any(|step| step.start_skew_us > 0.0));
    assert_eq!(left(dir.path()), [""; 0]);
}

/// Kills a process at the first sign of progress.
struct Kill(Vec<u32>);

impl Watch for Kill {
    fn progress(&mut self, _: &skep_bench::engine::Progress<'_>) {
        for pid in self.0.drain(..) {
            let pid = rustix::process::Pid::from_raw(pid as i32).unwrap();
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        }
    }
    fn step(&mut self, _: &StepResult) {}
    fn warning(&mut self, _: &str) {}
}

/// Goal: a worker killed in the middle ends the run with its number and the signal, the others stop, and
/// the dead one's files are removed as well.
#[test]
fn killed_worker() {
    let dir = place();
    let mut load = io(&dir);
    (load.block, load.phases) = (1 << 20, vec![WRITE]);
    let mut job = Job::new(Work::Io(load));
    job.workers = workers(2, 1);
    job.stonewall = Some(Stonewall { after_ms: 60_000, wear_out: false, repeat: true });
    let mut crew = processes(2);
    let mut kill = Kill(vec![crew.pids()[1]]);
    let began = std::time::Instant::now();
    let error = run(&job, &mut crew, &mut kill, &AtomicBool::new(false)).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("process 1 (worker 1) on here is gone"), "{text}");
    assert!(text.contains("signal: 9"), "{text}");
    assert!(began.elapsed() < Duration::from_secs(50));
    assert_eq!(left(dir.path()), [""; 0]);
}

/// Goal: a worker whose director goes away without a word stops and cleans up after itself.
#[test]
fn abandoned_worker() {
    let dir = place();
    let mut load = io(&dir);
    (load.block, load.phases) = (1 << 20, vec![WRITE]);
    let mut job = Job::new(Work::Io(load));
    job.stonewall = Some(Stonewall { after_ms: 60_000, wear_out: false, repeat: true });
    let start = skep_bench::engine::Start {
        job,
        process: 0,
        hosts: 1,
        host_processes: 1,
        first_on_host: true,
        progress_ms: 20,
        settled: false,
    };
    let mut crew = LocalCrew::in_process(1, "here").unwrap();
    let wait_for = |crew: &mut LocalCrew, wanted: fn(&Report) -> bool| {
        loop {
            let (_, report) = crew.receive(Duration::from_secs(120)).unwrap().expect("a report");
            if wanted(&report) {
                return;
            }
        }
    };
    crew.send(0, &Command::Start(Box::new(start))).unwrap();
    wait_for(&mut crew, |report| matches!(report, Report::Ready { .. }));
    crew.send(0, &Command::Prepare { step: 0, repetition: 0, reach: Vec::new() }).unwrap();
    wait_for(&mut crew, |report| matches!(report, Report::Ready { .. }));
    crew.send(
        0,
        &Command::Go { part: skep_bench::engine::Part::All, start_ns: skep_bench::engine::now_ns() },
    )
    .unwrap();
    wait_for(&mut crew, |report| matches!(report, Report::Progress { bytes, .. } if *bytes > 0));
    assert_eq!(left(dir.path()).len(), 1);
    crew.hang_up(0);
    wait_for(&mut crew, |report| matches!(report, Report::Gone { .. }));
    assert_eq!(left(dir.path()), [""; 0]);
}

/// Goal: cleaning after nothing was made is no error, and an order to remove something that is not there any
/// more, is another one by now or lies where the job makes nothing removes nothing.
#[test]
fn cleaning_nothing() {
    let dir = place();
    for work in
        [Work::Io(io(&dir)), Work::Meta(MetaJob::new(&path(&dir))), Work::Files(FilesJob::new(&path(&dir)))]
    {
        assert_eq!(clean(&Job::new(work), &[]), [""; 0]);
    }
    let job = Job::new(Work::Io(io(&dir)));
    let made = |name: &str, ino: u64| {
        let path = dir.path().canonicalize().unwrap().join(name);
        Made { path: path.to_str().unwrap().to_owned(), dev: 0, ino }
    };
    let file = dir.path().join("skep-bench-io.00000000");
    assert_eq!(clean(&job, &[made("skep-bench-io.00000000", 1)]), [""; 0]);
    std::fs::write(&file, "mine").unwrap();
    let ino = std::os::unix::fs::MetadataExt::ino(&file.metadata().unwrap());
    assert_eq!(clean(&job, &[made("skep-bench-io.00000000", ino + 1)]), [""; 0]);
    std::fs::hard_link(&file, dir.path().join("data")).unwrap();
    assert!(clean(&job, &[made("data", ino)])[0].contains("not a place of this job"));
    assert_eq!(left(dir.path()).len(), 2);
    assert_eq!(clean(&job, &[made("skep-bench-io.00000000", ino)]), [""; 0]);
    assert_eq!(left(dir.path()), ["data"]);
}
