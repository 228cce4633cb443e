//! What is not a run's own is never touched: user's files that are read, links, names that come in the way.

use super::stage::{After, WRITE, go, go_with, io, path, workers};
use skep_bench::engine::{Crew, LocalCrew, Order, Report, Start};
use skep_bench::job::{
    FilesJob, FilesPhase, IoJob, IoKind, IoPhase, Items, Job, MetaJob, MetaPhase, Share, SourceTree,
    Training, TreeShape, Work,
};
use std::path::Path;

fn all(dir: &Path) -> Vec<String> {
    let mut names = Vec::new();
    let mut todo = vec![dir.to_owned()];
    while let Some(here) = todo.pop() {
        for entry in std::fs::read_dir(here).unwrap().map(Result::unwrap) {
            names.push(path(entry.path().strip_prefix(dir).unwrap()));
            if entry.file_type().unwrap().is_dir() {
                todo.push(entry.path());
            }
        }
    }
    names.sort();
    names
}

/// Goal: a run that reads, rewrites or writes over files that were there removes none of them, whatever they are
/// called and how often it repeats, also when it fails; what it had to make itself goes.
#[test]
fn files_that_were_there_stay() {
    let kinds = [IoKind::Read, IoKind::Rewrite, IoKind::Write];
    for (kind, length, works) in
        [(kinds[0], 64, true), (kinds[1], 64, true), (kinds[2], 64, true), (kinds[0], 5, false)]
    {
        for share in [Share::PerWorker, Share::Segmented] {
            for listed in [true, false] {
                let dir = tempfile::tempdir().unwrap();
                let name = match (listed, share) {
                    (true, _) => "mydata",
                    (false, Share::PerWorker) => "skep-bench-io.00000000",
                    (false, _) => "skep-bench-io",
                };
                let file = dir.path().join(name);
                std::fs::write(&file, vec![7; length << 10]).unwrap();
                let place = if listed { &file } else { dir.path() };
                let mut job = Job::new(Work::Io(IoJob {
                    listed,
                    share,
                    phases: vec![IoPhase::new(kind)],
                    ..io(place)
                }));
                (job.existing, job.repetitions) = (true, 2);
                assert_eq!(go(&job).is_ok(), works, "{kind:?} {share:?} {listed}");
                assert_eq!(all(dir.path()), [name], "{kind:?} {share:?} {listed}");
                if kind == IoKind::Write {
                    std::fs::remove_file(&file).unwrap();
                    go(&job).unwrap();
                    assert_eq!(all(dir.path()), [""; 0], "what the run made itself");
                }
            }
        }
    }
}

/// Goal: in trees that were there before a run without a phase that removes touches nothing, also when it fails
/// and when it repeats; one that removes takes the names of such jobs only.
#[test]
fn trees_that_were_there_stay() {
    let dir = tempfile::tempdir().unwrap();
    let inside = ["shared/letter.odt", "shared/f0.0.0", "w00000000/thesis.pdf", "w00000000/tree/notes"];
    for (name, more) in [("skep-bench-meta", ""), ("skep-bench-files", "samples/000000/photo.jpg")] {
        for file in inside.iter().chain([&more]).filter(|file| !file.is_empty()) {
            let file = dir.path().join(name).join(file);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(&file, "mine").unwrap();
        }
    }
    let before = all(dir.path());
    for (phase, says) in [
        (FilesPhase::Find, "1 of 2143 entries were found"),
        (FilesPhase::Train, "samples/000000/00000"),
        (FilesPhase::Remove, "notes: it is not of this job"),
    ] {
        let phases = vec![phase];
        let mut job = Job::new(Work::Files(FilesJob { phases, ..FilesJob::new(&path(&dir)) }));
        (job.existing, job.repetitions) = (true, 2);
        let error = go(&job).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
        assert_eq!(all(dir.path()), before);
    }
    for phase in [MetaPhase::Stat, MetaPhase::Remove, MetaPhase::Readdir] {
        for own_tree in [true, false] {
            let items = Items::Total(3);
            let load = MetaJob { phases: vec![phase], own_tree, items, ..MetaJob::new(&path(&dir)) };
            let mut job = Job::new(Work::Meta(load));
            (job.existing, job.repetitions) = (true, 2);
            let _ = go(&job);
            let mut left = all(dir.path());
            if phase == MetaPhase::Remove || !left.contains(&"skep-bench-meta/shared/f0.0.0".to_owned()) {
                left.push("skep-bench-meta/shared/f0.0.0".to_owned());
                left.sort();
                left.dedup();
            }
            assert_eq!(left, before, "{phase:?} {own_tree}");
        }
    }
}

/// Goal: a link in place of a job's directory, of its tree or of a directory in it is refused, and what is behind
/// it stays as it is.
#[test]
fn links_are_not_followed() {
    for link in ["skep-bench-meta", "skep-bench-meta/w00000000", "skep-bench-meta/w00000000/t0"] {
        for phases in [vec![MetaPhase::Create], vec![MetaPhase::Remove], vec![MetaPhase::Readdir]] {
            let dir = tempfile::tempdir().unwrap();
            let behind = dir.path().join("behind");
            std::fs::create_dir(&behind).unwrap();
            for name in ["precious", "f0.0.0", "f0.0.1"] {
                std::fs::write(behind.join(name), "mine").unwrap();
            }
            let link = dir.path().join(link);
            std::fs::create_dir_all(link.parent().unwrap()).unwrap();
            std::os::unix::fs::symlink(&behind, &link).unwrap();
            let load = MetaJob {
                tree: TreeShape { branching: 1, depth: 1, leaf_only: true },
                items: Items::Total(2),
                phases,
                ..MetaJob::new(&path(&dir))
            };
            let mut job = Job::new(Work::Meta(load));
            job.existing = true;
            go(&job).unwrap_err();
            assert_eq!(all(&behind), ["f0.0.0", "f0.0.1", "precious"]);
            assert!(link.is_symlink());
        }
    }
}

/// Goal: what somebody else puts into a run's own trees meanwhile, or in place of its file, stays when the run
/// cleans up, and the run says so.
#[test]
fn what_others_put_there_stays() {
    let dir = tempfile::tempdir().unwrap();
    let files = FilesJob {
        phases: vec![FilesPhase::Samples, FilesPhase::Train],
        training: Training { samples: 5, ..Training::default() },
        tree: SourceTree { files: 5, ..SourceTree::default() },
        ..FilesJob::new(&path(&dir))
    };
    let note = dir.path().join("skep-bench-files/samples/note.txt");
    let mut put = After(|_: &str| std::fs::write(&note, "mine").unwrap());
    let error = go_with(&Job::new(Work::Files(files)), &mut put).unwrap_err().to_string();
    assert!(error.contains("note.txt") && error.contains("stays"), "{error}");
    assert_eq!(all(dir.path()).last().unwrap(), "skep-bench-files/samples/note.txt");
    assert_eq!(all(dir.path()).len(), 3);
    let dir = tempfile::tempdir().unwrap();
    let note = dir.path().join("skep-bench-meta/w00000000/report.ods");
    let mut put = After(|_: &str| std::fs::write(&note, "mine").unwrap());
    let load = MetaJob { phases: vec![MetaPhase::Create, MetaPhase::Stat], ..MetaJob::new(&path(&dir)) };
    let error = go_with(&Job::new(Work::Meta(load)), &mut put).unwrap_err().to_string();
    assert!(error.contains("skep-bench-meta"), "{error}");
    assert_eq!(all(dir.path()).last().unwrap(), "skep-bench-meta/w00000000/report.ods");
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("skep-bench-io.00000000");
    let other = dir.path().join("other");
    std::fs::write(&other, vec![1; 64 << 10]).unwrap();
    let mut put = After(|phase: &str| {
        if phase == "write" {
            std::fs::rename(&other, &file).unwrap();
        }
    });
    let load = io(&dir);
    let mut job = Job::new(Work::Io(load));
    job.workers = workers(2, 1);
    go_with(&job, &mut put).unwrap();
    assert_eq!(std::fs::read(&file).unwrap(), vec![1; 64 << 10]);
    assert_eq!(all(dir.path()), ["skep-bench-io.00000000"]);
}

/// Goal: a worker whose job was checked elsewhere follows no link that turns up in its paths since, at whatever
/// component; a job that was not checked may name a link.
#[test]
fn checked_paths_hold() {
    let dir = tempfile::tempdir().unwrap();
    let top = dir.path().canonicalize().unwrap();
    std::fs::create_dir_all(top.join("real/deep")).unwrap();
    std::os::unix::fs::symlink(top.join("real"), top.join("link")).unwrap();
    for settled in [true, false] {
        let load = IoJob { block: 4096, ..io(top.join("link/deep")) };
        let said = begin(Job::new(Work::Io(load)), settled, &mut || {});
        let refused = matches!(said.last(), Some(Report::Failed { .. }));
        assert_eq!(refused, settled, "{said:?}");
        assert_eq!(std::fs::read_dir(top.join("real/deep")).unwrap().count(), usize::from(!settled));
    }
}

/// Has one process check a job and prepare its first step, with something in between; its reports.
fn begin(job: Job, settled: bool, between: &mut dyn FnMut()) -> Vec<Report> {
    let start = Start {
        job,
        process: 0,
        hosts: 1,
        host_processes: 1,
        first_on_host: true,
        // A worker that hangs gives signs of life; one that is slow must not be taken for it.
        progress_ms: 30_000,
        settled,
    };
    let mut crew = LocalCrew::in_process(1, "here").unwrap();
    crew.send(0, &Order::Start(Box::new(start))).unwrap();
    let mut said = Vec::new();
    while said.len() < 2 {
        let report = crew.receive(std::time::Duration::from_secs(120)).unwrap().expect("a report").1;
        match &report {
            Report::Ready { .. } if said.is_empty() => {
                between();
                crew.send(0, &Order::Prepare { step: 0, repetition: 0, reach: Vec::new() }).unwrap();
                said.push(report);
            }
            Report::Ready { .. } | Report::Failed { .. } => said.push(report),
            // A worker that waits where it must not gives signs of life only.
            Report::Progress { .. } => {
                said.push(report);
                break;
            }
            _ => {}
        }
        if matches!(said.last(), Some(Report::Failed { .. })) {
            break;
        }
    }
    crew.end();
    said
}

/// Goal: between the check of names and the first write a directory that becomes a link leads no truncation elsewhere,
/// and a pipe or device in place of the file is refused without waiting at it.
#[test]
fn nothing_else_is_emptied() {
    for way in ["link", "pipe", "pipe that is read", "none"] {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().canonicalize().unwrap();
        for name in ["real", "behind"] {
            std::fs::create_dir(top.join(name)).unwrap();
            std::fs::write(top.join(name).join("skep-bench-io.00000000"), "mine").unwrap();
        }
        let load = IoJob { block: 4096, truncate: true, phases: vec![WRITE], ..io(top.join("real")) };
        let mut job = Job::new(Work::Io(load));
        job.existing = true;
        let (here, behind) = (top.join("real"), top.join("behind/skep-bench-io.00000000"));
        let pipe = here.join("skep-bench-io.00000000");
        let mut reader = None;
        let said = begin(job, true, &mut || match way {
            "link" => {
                std::fs::rename(&here, top.join("moved")).unwrap();
                std::os::unix::fs::symlink(top.join("behind"), &here).unwrap();
            }
            "none" => {}
            _ => {
                std::fs::remove_file(&pipe).unwrap();
                let mode = rustix::fs::Mode::from_raw_mode(0o600);
                rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
                let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::NONBLOCK;
                reader = (way != "pipe").then(|| rustix::fs::open(&pipe, flags, mode).unwrap());
            }
        });
        drop(reader);
        assert_eq!(std::fs::read(&behind).unwrap(), b"mine", "{way}: {said:?}");
        let told = format!("{said:?}").contains("which this job must not touch");
        assert_eq!(told, way == "pipe that is read", "{said:?}");
        match said.last() {
            Some(Report::Failed { trouble, .. }) => {
                assert!(way != "none" && trouble.doing == "empty", "{said:?}")
            }
            other => assert!(way == "none" && matches!(other, Some(Report::Ready { .. })), "{way}: {said:?}"),
        }
    }
}

/// Goal: a shared file that somebody else puts there after the check of names is not written over: the run ends, and the
/// file stays as it is.
#[test]
fn a_shared_file_is_this_runs() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("skep-bench-io");
    for threads in [1, 3] {
        let load = IoJob { block: 4096, share: Share::Strided, ..io(&dir) };
        let mut job = Job::new(Work::Io(load));
        job.workers.threads = threads;
        let said = begin(job.clone(), false, &mut || std::fs::write(&file, "mine").unwrap());
        let refused = |report: &Report| matches!(report, Report::Failed { worker: 0, trouble } if trouble.doing == "make");
        assert!(said.iter().any(refused), "{said:?}");
        assert_eq!(std::fs::read(&file).unwrap(), b"mine");
        std::fs::remove_file(&file).unwrap();
        (job.repetitions, job.workers.processes) = (3, 2);
        go(&job).unwrap();
        assert_eq!(all(dir.path()), [""; 0]);
    }
}
