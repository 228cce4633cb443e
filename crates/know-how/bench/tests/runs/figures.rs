//! Figures must be of what was asked for: what is verified, what is written, who reads whose data, and other
//! tools' options that are easily taken for something else.

use super::stage::{READ, WRITE, go, io, path};
use skep_bench::dialect::{Surroundings, Tool, Translation, translate};
use skep_bench::engine::steps;
use skep_bench::job::{
    Fsync, IoJob, IoKind, IoPhase, Items, Job, MetaJob, MetaPhase, Order, Readers, Share, Stonewall, Work,
};
use std::collections::BTreeSet;

fn translated(tool: Tool, line: &str) -> Result<Translation, String> {
    let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    let around = Surroundings {
        directory: "/mnt/here",
        read: &|_| Err("no such file".to_owned()),
        is_dir: &|path| path == "/mnt/t",
        file_size: &|path| path.ends_with("there").then_some(1 << 30),
        hosts: &[],
        drawn: 4_711,
    };
    translate(tool, &words, &around).map_err(|error| error.to_string())
}

fn job_of(tool: Tool, line: &str) -> Job {
    translated(tool, line).unwrap_or_else(|error| panic!("{line}: {error}")).jobs.remove(0)
}

fn io_of(job: &Job) -> &IoJob {
    match &job.work {
        Work::Io(io) => io,
        other => panic!("{other:?}"),
    }
}

/// Goal: IOzone's -+E reads somebody's file and nothing else: it is whole afterwards, and tests that write are
/// refused.
#[test]
fn existing_files_are_read_only() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("userdata");
    std::fs::write(&data, vec![7; 64 << 10]).unwrap();
    let job = job_of(Tool::Iozone, &format!("-i 1 -+E -r 4k -s 64k -f {}", data.display()));
    assert!(job.existing && job.keep);
    go(&job).unwrap();
    assert_eq!(std::fs::read(&data).unwrap(), vec![7; 64 << 10]);
    for test in [0, 2, 9] {
        let error = translated(Tool::Iozone, &format!("-i {test} -+E -f /mnt/there")).unwrap_err();
        assert!(error.contains("only reads"), "{error}");
    }
    let reads = job_of(Tool::Iozone, "-+E -f /mnt/there");
    assert!(io_of(&reads).phases.iter().all(|phase| !phase.kind.writes()));
    assert!(job_of(Tool::Iozone, "-i 1").keep, "what a run did not write stays");
}

/// Goal: where the clock ends writes, and where writes go over others, verification finds no damage that is not
/// there; where nobody could tell, the job is refused.
#[test]
fn verification_knows_what_was_written() {
    let dir = tempfile::tempdir().unwrap();
    let random = WRITE.in_order(Order::Random);
    let repeating = WRITE.in_order(Order::RandomRepeating);
    for phases in [
        vec![WRITE.as_setup(), random, READ],
        vec![WRITE, random, READ],
        vec![WRITE.as_setup(), repeating, READ],
        vec![WRITE, IoPhase::new(IoKind::Rewrite).in_order(Order::Random), READ],
    ] {
        for repeat in [false, true] {
            let mut load = io(&dir);
            load.block = 8 << 20;
            load.phases.clone_from(&phases);
            load.readers = Readers::Shift { workers: 1 };
            let mut job = Job::new(Work::Io(load));
            (job.workers.processes, job.repetitions) = (2, 2);
            job.stonewall = Some(Stonewall { after_ms: 1, wear_out: false, repeat });
            go(&job).unwrap_or_else(|error| panic!("{phases:?} repeat {repeat}: {error}"));
        }
    }
    let mut load = io(&dir);
    load.phases = vec![repeating, READ];
    assert!(go(&Job::new(Work::Io(load))).unwrap_err().to_string().contains("leaves some transfers out"));
}

/// Goal: fio's randwrite with verify and a clock, or with blocks that may come twice, compares and finds
/// no damage: what the random write leaves out was written before, untimed. Without verify nothing is added.
#[test]
fn random_writes_of_fio_are_compared() {
    let dir = tempfile::tempdir().unwrap();
    let whole = 1_048_576.0;
    // What is compared at least. The clock ends the comparison, too: after a moment it may not have begun.
    for (option, order, least) in [
        ("--runtime=1ms", Order::Random, 0.0),
        ("--runtime=60s", Order::Random, whole),
        ("--time_based --runtime=500ms", Order::Random, 1.0),
        ("--norandommap=1", Order::RandomRepeating, whole),
    ] {
        let line =
            format!("--name=x --rw=randwrite --size=1m --unlink=1 --directory={}", dir.path().display());
        let job = job_of(Tool::Fio, &format!("{line} --verify=crc32c {option}"));
        let write = WRITE.in_order(order);
        assert_eq!(io_of(&job).phases, [WRITE.as_setup(), write, READ], "{option}");
        let result = go(&job).unwrap_or_else(|error| panic!("{option}: {error}"));
        let read = result.summary().into_iter().find(|row| row.phase == "read").unwrap();
        assert!(read.bytes >= least && (least < whole || read.bytes == whole), "{option}: {}", read.bytes);
        assert_eq!(io_of(&job_of(Tool::Fio, &format!("{line} {option}"))).phases, [write]);
    }
    let whole = job_of(Tool::Fio, "--name=x --rw=randwrite --size=1m --verify=crc32c");
    assert_eq!(io_of(&whole).phases, [WRITE.in_order(Order::Random), READ]);
}

/// Goal: fio keeps its map of blocks when it starts over: every block comes once in each round; only norandommap
/// lets blocks come twice. Its order is the same in every run unless randrepeat=0 or a seed says otherwise.
#[test]
fn random_order_of_fio() {
    let line = "--name=x --rw=randread --size=1m --filename=/mnt/there";
    let of = |options: &str| job_of(Tool::Fio, &format!("{line} {options}"));
    let order = |options: &str| io_of(&of(options)).phases[0].order;
    assert_eq!(order("--time_based --runtime=1"), Order::Random);
    assert_eq!(
        of("--time_based --runtime=1").stonewall.unwrap(),
        Stonewall { after_ms: 1_000, wear_out: false, repeat: true }
    );
    assert_eq!(order("--norandommap"), Order::RandomRepeating);
    for (options, seed) in [
        ("", 0),
        ("--randrepeat=1", 0),
        ("--randrepeat=0", 4_711),
        ("--randrepeat=0 --randseed=17", 17),
        ("--randseed=17 --randrepeat=1", 17),
    ] {
        assert_eq!(of(options).seed, seed, "{options}");
    }
}

/// Goal: IOR's check after a write goes one node further than -Q says, and with -Z it is of a task's own data.
#[test]
fn whose_data_ior_checks() {
    let readers = |line: &str| io_of(&job_of(Tool::Ior, line)).readers;
    assert_eq!(readers("-w -W -F -C"), Readers::ShiftNode { nodes: 2 });
    assert_eq!(readers("-w -W -F -C -Q 3"), Readers::ShiftNode { nodes: 4 });
    assert_eq!(readers("-w -r -F -C -Q 3"), Readers::ShiftNode { nodes: 3 });
    assert_eq!(readers("-w -W -F -Z"), Readers::Own);
    assert_eq!(readers("-w -W -r -F"), Readers::Own);
}

/// Goal: no block of 512 bytes that a run writes comes twice, in any file or pass.
#[test]
fn what_is_written_does_not_repeat() {
    let dir = tempfile::tempdir().unwrap();
    let mut load = io(&dir);
    (load.phases, load.block) = (vec![WRITE], 4 << 20);
    let mut job = Job::new(Work::Io(load));
    (job.workers.processes, job.keep) = (3, true);
    go(&job).unwrap();
    let (mut seen, mut blocks) = (BTreeSet::new(), 0);
    for worker in 0..3 {
        let bytes = std::fs::read(dir.path().join(format!("skep-bench-io.{worker:08}"))).unwrap();
        for block in bytes.chunks(512) {
            seen.insert(block.to_vec());
            blocks += 1;
        }
    }
    assert_eq!((seen.len(), blocks), (3 * 8192, 3 * 8192));
}

/// Goal: small files resemble each other in no block of 512 bytes, whether they are written by one call or by several,
/// and also where they are verified.
#[test]
fn small_files_do_not_repeat() {
    for (transfer, verify) in [(0, false), (1024, false), (0, true)] {
        let dir = tempfile::tempdir().unwrap();
        let load = MetaJob {
            items: Items::Total(20),
            phases: vec![MetaPhase::Create],
            write_bytes: 4096,
            transfer,
            verify,
            ..MetaJob::new(&path(&dir))
        };
        let mut job = Job::new(Work::Meta(load));
        (job.workers.processes, job.keep) = (3, true);
        go(&job).unwrap();
        let mut seen = BTreeSet::new();
        for (worker, item) in (0..3).flat_map(|worker| (0..20).map(move |item| (worker, item))) {
            let file = format!("skep-bench-meta/w{worker:08}/f0.{worker}.{item}");
            let bytes = std::fs::read(dir.path().join(file)).unwrap();
            seen.extend(bytes.chunks(512).map(<[u8]>::to_vec));
        }
        assert_eq!(seen.len(), 3 * 20 * 8, "transfer {transfer} verify {verify}");
    }
}

/// Goal: a link where a shared file should be is not followed.
#[test]
fn links_are_not_followed() {
    let dir = tempfile::tempdir().unwrap();
    let victim = dir.path().join("victim");
    std::fs::write(&victim, "mine").unwrap();
    std::os::unix::fs::symlink(&victim, dir.path().join("skep-bench-io")).unwrap();
    for share in [Share::Segmented, Share::Strided, Share::Whole] {
        let mut job = Job::new(Work::Io(IoJob { share, ..io(&dir) }));
        job.existing = true;
        go(&job).unwrap_err();
        assert_eq!(std::fs::read(&victim).unwrap(), b"mine");
    }
}

/// Goal: options that mean something else than they seem to are refused or do what they say.
#[test]
fn options_mean_what_the_tools_say() {
    assert!(translated(Tool::Ior, "-w -y").unwrap_err().contains("-Y"));
    assert_eq!(io_of(&job_of(Tool::Ior, "-w -Y")).fsync, Fsync::Every { transfers: 1 });
    let drawn = job_of(Tool::Ior, "-w -z -z -F -t 4k -b 4k -s 16");
    assert_eq!(io_of(&drawn).phases[0].order, Order::RandomRepeating);
    let line = "--name=x --rw=write --size=1m --verify=crc32c --do_verify=0";
    assert_eq!(io_of(&job_of(Tool::Fio, line)).phases.len(), 1);
    assert!(io_of(&job_of(Tool::Elbencho, "-w --trunc -s 1m /mnt/f")).truncate);
}

/// Goal: --trunc empties what is there before it is written.
#[test]
fn truncation() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("skep-bench-io.00000000");
    for (truncate, length) in [(false, 100_000), (true, 65_536)] {
        std::fs::write(&file, vec![1; 100_000]).unwrap();
        let mut job = Job::new(Work::Io(IoJob { phases: vec![WRITE], truncate, ..io(&dir) }));
        (job.existing, job.keep) = (true, true);
        go(&job).unwrap();
        assert_eq!(std::fs::metadata(&file).unwrap().len(), length);
    }
}

/// Goal: mdtest's -N shifts further from phase to phase, by hosts where workers fill them one by one; its -W ends
/// the create phase only; -U renames directories.
#[test]
fn mdtest_shifts_and_stops() {
    let meta = |line: &str| match job_of(Tool::Mdtest, line).work {
        Work::Meta(meta) => meta,
        other => panic!("{other:?}"),
    };
    let shifted = meta("-n 10 -N 2 -F");
    let by = |phase| shifted.readers_of(phase);
    let shift = |workers| Readers::Shift { workers };
    assert_eq!(by(MetaPhase::Create), Readers::Own);
    assert_eq!((by(MetaPhase::Stat), by(MetaPhase::OpenRead)), (shift(2), shift(4)));
    assert_eq!(by(MetaPhase::Remove), shift(6));
    let by_slot = meta("mpirun -np 4 --map-by slot mdtest -n 10 -N 1 -F");
    assert_eq!(by_slot.readers_of(MetaPhase::Remove), Readers::ShiftNode { nodes: 3 });
    let job = job_of(Tool::Mdtest, "-n 10 -W 5 -F");
    let walled: Vec<String> =
        steps(&job).into_iter().filter(|step| step.walled).map(|step| step.name).collect();
    assert_eq!(walled, ["file create"]);
    let renaming = meta("-n 10 -U -D");
    assert_eq!(renaming.phases[renaming.phases.len() - 2..], [MetaPhase::Rename, MetaPhase::Remove]);
    assert!(!meta("-n 10 -U -F").phases.contains(&MetaPhase::Rename));
    assert!(translated(Tool::Mdtest, "-n 10 -U").unwrap_err().contains("-U with -D"));
}
