//! What one job kept is used by a later one, which compares what it finds.

use super::stage::{READ, WRITE, go, io, path, workers};
use skep_bench::job::{
    FilesJob, FilesPhase, IoJob, IoKind, IoPhase, Items, Job, MetaJob, MetaPhase, Order, SourceTree,
    Training, Work,
};
use skep_bench::transfers;
use std::collections::BTreeSet;
use std::os::unix::fs::FileExt;

/// Goal: files that a job kept after a pass over a part of them verify in a later one, whatever transfers it reads
/// them by; a byte that is wrong is found all the same.
#[test]
fn kept_files_of_several_passes() {
    let dir = tempfile::tempdir().unwrap();
    let mixed = IoPhase::new(IoKind::Mixed { read_percent: 50 }).in_order(Order::Random);
    let phases = vec![WRITE, mixed, READ];
    let load = IoJob { phases, ..io(&dir) };
    let mut job = Job::new(Work::Io(load));
    (job.workers, job.keep, job.repetitions) = (workers(2, 1), true, 2);
    go(&job).unwrap();
    (job.existing, job.repetitions) = (true, 1);
    let mut reading = |transfer: u64| {
        if let Work::Io(load) = &mut job.work {
            (load.phases, load.transfer) = (vec![READ.in_order(Order::Random)], transfer);
        }
        go(&job)
    };
    for transfer in [4096, 16 << 10, 1000, 47] {
        assert_eq!(reading(transfer).unwrap().steps[0].bytes, 2 * (64 << 10), "{transfer}");
    }
    let file = std::fs::OpenOptions::new().write(true).open(dir.path().join("skep-bench-io.00000001"));
    file.unwrap().write_all_at(&[0xee], 12_345).unwrap();
    let error = reading(4096).unwrap_err().to_string();
    assert!(error.contains("at byte 12345") && error.contains("skep-bench-io.00000001"), "{error}");
}

/// Goal: what is said of a job's transfers is what it does: with every block damaged a reader stops at the first of
/// them, when that is mended at the second, and so on.
#[test]
fn order_that_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let mut job = Job::new(Work::Io(IoJob { phases: vec![WRITE, READ], ..io(&dir) }));
    job.keep = true;
    go(&job).unwrap();
    job.existing = true;
    if let Work::Io(load) = &mut job.work {
        load.phases = vec![READ.in_order(Order::Random)];
    }
    let order = transfers(&job).unwrap();
    assert_eq!(order.iter().collect::<BTreeSet<_>>().len(), 16);
    assert!(!order.is_sorted());
    let file = dir.path().join("skep-bench-io.00000000");
    let right = std::fs::read(&file).unwrap();
    std::fs::write(&file, right.iter().map(|byte| !byte).collect::<Vec<_>>()).unwrap();
    let open = std::fs::OpenOptions::new().write(true).open(&file).unwrap();
    for (offset, length) in order {
        let error = go(&job).unwrap_err().to_string();
        assert!(error.contains(&format!("at byte {offset}:")), "{offset}: {error}");
        open.write_all_at(&right[offset as usize..][..length], offset).unwrap();
    }
    assert_eq!(go(&job).unwrap().steps[0].bytes, 64 << 10);
    job.workers = workers(2, 1);
    assert_eq!(transfers(&job), None);
}

/// Goal: a source tree that a job kept is searched, read and copied by a later one, which finds an entry that is gone
/// and a word that is missing.
#[test]
fn kept_source_trees() {
    let dir = tempfile::tempdir().unwrap();
    let load = FilesJob {
        phases: vec![FilesPhase::Untar],
        tree: SourceTree { files: 60, per_directory: 7, ..SourceTree::default() },
        ..FilesJob::new(&path(&dir))
    };
    let mut job = Job::new(Work::Files(load));
    (job.workers, job.keep, job.seed) = (workers(2, 1), true, 9);
    go(&job).unwrap();
    (job.existing, job.keep) = (true, false);
    let mut later = |phases: &[FilesPhase]| {
        if let Work::Files(load) = &mut job.work {
            load.phases = phases.to_vec();
        }
        go(&job)
    };
    let entries = 2 * (60 + 60u64.div_ceil(7));
    let both = later(&[FilesPhase::Find, FilesPhase::Grep]).unwrap();
    assert_eq!((both.steps[0].ops, both.steps[1].ops), (entries, 120));
    assert_eq!(later(&[FilesPhase::Grep]).unwrap().steps[0].ops, 120);
    assert_eq!(later(&[FilesPhase::Copy]).unwrap().steps[0].ops, entries);
    let tree = dir.path().join("skep-bench-files/w00000001/tree/dir0");
    let mut files = std::fs::read_dir(&tree).unwrap().map(|entry| entry.unwrap().path());
    let file =
        files.find(|path| path.is_file() && std::fs::read_to_string(path).unwrap().contains("lease_epoch"));
    let file = file.unwrap();
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replacen("lease_epoch", "lease epoch", 1)).unwrap();
    assert!(later(&[FilesPhase::Grep]).unwrap_err().to_string().contains("the word was found"));
    std::fs::remove_file(&file).unwrap();
    assert!(later(&[FilesPhase::Find]).unwrap_err().to_string().contains("entries were found"));
    std::fs::remove_dir_all(dir.path().join("skep-bench-files/w00000001/copy")).unwrap();
    std::fs::remove_dir_all(dir.path().join("skep-bench-files/w00000000/copy")).unwrap();
    assert!(later(&[FilesPhase::Copy]).unwrap_err().to_string().contains("entries were found"));
}

/// Goal: of small files that a job kept a later one reads as much as it says, and compares it; a file that is shorter
/// and a byte that is wrong end it.
#[test]
fn kept_small_files() {
    let dir = tempfile::tempdir().unwrap();
    let load = MetaJob {
        items: Items::Total(5),
        phases: vec![MetaPhase::Create],
        write_bytes: 5000,
        verify: true,
        ..MetaJob::new(&path(&dir))
    };
    let mut job = Job::new(Work::Meta(load));
    job.keep = true;
    go(&job).unwrap();
    (job.existing, job.keep) = (true, false);
    if let Work::Meta(load) = &mut job.work {
        (load.phases, load.write_bytes, load.read_bytes) = (vec![MetaPhase::OpenRead], 0, 5000);
    }
    assert_eq!(go(&job).unwrap().steps[0].bytes, 5 * 5000);
    let file = dir.path().join("skep-bench-meta/w00000000/f0.0.3");
    let bytes = std::fs::read(&file).unwrap();
    std::fs::write(&file, &bytes[..4999]).unwrap();
    assert!(go(&job).unwrap_err().to_string().contains("the file ends here"));
    std::fs::write(&file, [&bytes[..4999], &[bytes[4999] ^ 1]].concat()).unwrap();
    assert!(go(&job).unwrap_err().to_string().contains("is not what was written"));
}

/// Goal: with verification training compares every byte of a sample; without it the beginning of each call's.
#[test]
fn training_compares() {
    let dir = tempfile::tempdir().unwrap();
    let load = FilesJob {
        phases: vec![FilesPhase::Samples],
        training: Training { samples: 3, epochs: 1, ..Training::default() },
        ..FilesJob::new(&path(&dir))
    };
    let mut job = Job::new(Work::Files(load));
    job.keep = true;
    go(&job).unwrap();
    job.existing = true;
    let mut train = |verify: bool| {
        if let Work::Files(load) = &mut job.work {
            (load.phases, load.verify) = (vec![FilesPhase::Train], verify);
        }
        go(&job)
    };
    train(true).unwrap();
    let sample = dir.path().join("skep-bench-files/samples/000000/000000001.jpg");
    let sample = std::fs::OpenOptions::new().read(true).write(true).open(sample).unwrap();
    let mut byte = [0];
    sample.read_exact_at(&mut byte, 10_000).unwrap();
    sample.write_all_at(&[!byte[0]], 10_000).unwrap();
    train(false).unwrap();
    let error = train(true).unwrap_err().to_string();
    assert!(error.contains("000000001.jpg at byte 10000"), "{error}");
}
