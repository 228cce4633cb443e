//! What real tools print, read into rows. The samples follow the documented layouts; numbers of the papers'
//! excerpts stand where the papers print them.

use super::{MIB, near, phases, read, row};
use skep_bench::dialect::Tool;
use skep_bench::foreign::{Drive, find, fio_arguments, parse};
use skep_bench::job::{IoJob, IoKind, IoPhase};
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

pub const SAMPLES: &[(Tool, &str)] = &[
    (Tool::Ior, IOR_2),
    (Tool::Ior, IOR_3),
    (Tool::Mdtest, MDTEST_1),
    (Tool::Mdtest, MDTEST_4),
    (Tool::Iozone, IOZONE),
    (Tool::Fio, FIO),
    (Tool::Elbencho, ELBENCHO),
    (Tool::Elbencho, ELBENCHO_3),
];

const IOR_2: &str = "IOR-2.10.3: MPI Coordinated Test of Parallel I/O

Summary:
        api                = POSIX
        test filename      = /mnt/beegfs/testfile
        access             = file-per-process
        clients            = 64 (32 per node)
        repetitions        = 5
        xfersize           = 1 GiB
        blocksize          = 320 GiB
        aggregate filesize = 640 GiB

Operation  Max (MiB)  Min (MiB)  Mean (MiB)   Std Dev  Max (OPs)  Min (OPs)  Mean (OPs)   Std Dev  Mean (s)
---------  ---------  ---------  ----------   -------  ---------  ---------  ----------   -------  --------
write        6088.56    4977.01     6034.04     43.03       5.95       4.86        5.89      0.04 108.61118
read         6190.62    4957.82     6099.51     78.67       6.05       4.84        5.96      0.08 107.44535

Max Write: 6088.56 MiB/sec (6384.32 MB/sec)
Max Read:  6190.62 MiB/sec (6491.34 MB/sec)
";

const IOR_3: &str = "IOR-3.3.0: MPI Coordinated Test of Parallel I/O
Options:
api                 : POSIX
tasks               : 16
repetitions         : 2
Results:
access    bw(MiB/s)  IOPS       Latency(s)  block(KiB) xfer(KiB)  open(s)    wr/rd(s)   close(s)   total(s)   iter
------    ---------  ----       ----------  ---------- ---------  --------   --------   --------   --------   ----
write     143.22     572.95     0.000120    1024.00    256.00     0.085481   0.086161   0.108553   0.111720   0
remove    -          -          -           -          -          -          -          -          0.002378   0
Max Write: 143.22 MiB/sec (150.17 MB/sec)
Summary of all tests:
Operation   Max(MiB)   Min(MiB)  Mean(MiB)     StdDev   Max(OPs)   Min(OPs)  Mean(OPs)     StdDev    Mean(s) Stonewall(s) Stonewall(MiB) Test# #Tasks tPN reps fPP reord reordoff reordrand seed segcnt   blksiz    xsize aggs(MiB)   API RefNum
write         143.22     141.20     142.21       1.01     572.95     564.80     568.85       4.05    0.11251         NA            NA     0     16   8    2   0     0        1         0    0      1  1048576   262144      16.0 POSIX      0
read         9049.20    9000.00    9024.60      24.60   36196.80   36000.00   36098.40      98.40    0.00177         NA            NA     0     16   8    2   0     0        1         0    0      1  1048576   262144      16.0 POSIX      0
Finished            : Fri Mar 22 12:28:11 2019
";

/// Goal: both generations of IOR's table, the course's numbers among them.
#[test]
fn ior() {
    let old = read(Tool::Ior, IOR_2);
    let write = row(&old, "write").bytes_per_second;
    assert!(
        near(write.max, 6088.56 * MIB) && near(write.min, 4977.01 * MIB) && near(write.stddev, 43.03 * MIB)
    );
    assert!(near(row(&old, "read").bytes_per_second.mean, 6099.51 * MIB));
    assert_eq!((row(&old, "read").repetitions, old.workers), (5, Some(64)));
    assert_eq!(old.version.as_deref(), Some("IOR-2.10.3"));
    assert!(near(row(&old, "write").seconds.mean, 108.61118));

    let new = read(Tool::Ior, IOR_3);
    let write = row(&new, "write");
    assert!(near(write.bytes_per_second.mean, 142.21 * MIB) && near(write.ops_per_second.max, 572.95));
    assert_eq!((write.repetitions, new.workers, write.bytes, write.ops), (2, Some(16), 16.0 * MIB, 64.0));
    assert!(near(row(&new, "read").seconds.mean, 0.00177));
    assert_eq!(new.rows.len(), 2);
}

const MDTEST_1: &str = "-- started at 03/04/2020 10:00:00 --

mdtest-1.9.3 was launched with 128 total task(s) on 4 node(s)
Command line used: /opt/mdtest-1.9.3/mdtest -C -T -d /mnt/beegfs/mdtest -i 5 -I 122 -z 2 -b 8 -L -u -F
Path: /mnt/beegfs
FS: 218.2 TiB   Used FS: 0.6%   Inodes: 0.0 Mi   Used Inodes: nan%
128 tasks, 1139968 files

SUMMARY: (of 5 iterations)
   Operation                      Max            Min           Mean        Std Dev
   ---------                      ---            ---           ----        -------
   File creation     :      53987.685      51374.199      52808.687        838.825
   File stat         :     180607.210     172831.261     175919.093       2615.747
   File read         :          0.000          0.000          0.000          0.000
   File removal      :          0.000          0.000          0.000          0.000
   Tree creation     :        120.841         87.121        109.578         12.101
   Tree removal      :          0.000          0.000          0.000          0.000

-- finished at 03/04/2020 10:33:00 --
";

const MDTEST_4: &str = "mdtest-4.0.0 was launched with 10 total task(s) on 2 node(s)
10 tasks, 33340 files/directories

SUMMARY rate: (of 3 iterations)
   Operation                     Max            Min           Mean        Std Dev
   ---------                     ---            ---           ----        -------
   Directory creation          15679.290      15600.000      15640.000         40.000
   Directory rename            14000.000      13000.000      13500.000        500.000
   File creation                2568.636       2500.000       2534.000         30.000
   File read                  306151.314     306151.314     306151.314          0.000
   Tree removal                   36.595         36.595         36.595          0.000
SUMMARY time: (of 3 iterations)
   Operation                     Max            Min           Mean        Std Dev
   ---------                     ---            ---           ----        -------
   File creation                   1.000          1.000          1.000          0.000
-- finished at 03/19/2026 17:55:20 --
";

/// Goal: the course's table with its colons, and the later one without; phases that did not run are no rows.
#[test]
fn mdtest() {
    let old = read(Tool::Mdtest, MDTEST_1);
    let create = row(&old, "file create");
    assert_eq!((create.ops_per_second.max, create.ops_per_second.stddev), (53_987.685, 838.825));
    assert_eq!((create.repetitions, old.workers, create.ops), (5, Some(128), 1_139_968.0));
    assert_eq!(row(&old, "file stat").ops_per_second.mean, 175_919.093);
    assert_eq!(row(&old, "tree create").ops_per_second.min, 87.121);
    assert_eq!(old.rows.len(), 3);

    let new = read(Tool::Mdtest, MDTEST_4);
    assert_eq!(
        phases(&new),
        ["directory create", "directory rename", "file create", "file open-read", "tree remove"]
    );
    assert_eq!((row(&new, "file create").ops_per_second.mean, new.workers), (2_534.0, Some(10)));
}

const IOZONE: &str = "        Iozone: Performance Test of File I/O
                Version $Revision: 3.492 $
        Throughput test with 512 processes
        Each process writes a 8388608 kByte file in 1024 kByte records

        Children see throughput for 512 initial writers      =
123460328.84 kB/sec
        Min throughput per process                      =  167061.00 kB/sec
        Max throughput per process                      =  304901.41 kB/sec
        Avg throughput per process                      =  241133.45 kB/sec
        Min xfer                                        = 7742464.00 kB

        Children see throughput for 512 readers         = 5242248.32 kB/sec
        Parent sees throughput for 512 readers          = 5333933.23 kB/sec
        Children see throughput for 512 re-readers      = 5242248.00 kB/sec
        Children see throughput for 512 random readers  = 1557497.38 kB/sec
        Children see throughput for 512 random writers  =  984428.69 kB/sec
";

/// Goal: the NetBench excerpt, whose line is broken; every kind of test has its row; operations with -O.
#[test]
fn iozone() {
    let result = read(Tool::Iozone, IOZONE);
    assert!(near(row(&result, "write").bytes_per_second.mean, 123_460_328.84 * 1024.0));
    assert!(near(row(&result, "read").bytes_per_second.mean, 5_242_248.32 * 1024.0));
    assert_eq!((result.rows.len(), result.workers), (5, Some(512)));
    assert!(row(&result, "random rewrite").bytes_per_second.mean > 0.0);
    assert_eq!(result.version.as_deref(), Some("iozone-3.492"));
    // The course prints the older unit and no "initial".
    let course = "Children see throughput for 32 writers = 7310362.51 kB/s\nParent sees ...";
    let result = read(Tool::Iozone, course);
    assert!(near(row(&result, "write").bytes_per_second.mean, 7_310_362.51 * 1024.0));
    let operations = "Children see throughput for  4 random readers = 3500.00 ops/sec";
    let result = read(Tool::Iozone, operations);
    assert_eq!(row(&result, "random read").ops_per_second.mean, 3_500.0);
}

const FIO: &str = r#"fio: this job uses the page cache
{
  "fio version" : "fio-3.33",
  "global options" : { "bs" : "128k" },
  "jobs" : [
    { "jobname" : "test", "error" : 0, "job options" : { "rw" : "readwrite" },
      "read" : { "io_bytes" : 530579456, "bw_bytes" : 13440000, "bw" : 13125, "iops" : 102.5, "runtime" : 39476,
        "total_ios" : 4048, "lat_ns" : { "min" : 2091000, "max" : 65069000, "mean" : 3957880.0, "N" : 4048 },
        "clat_ns" : { "percentile" : { "50.000000" : 2999000, "90.000000" : 6063000, "99.000000" : 12649000, "99.900000" : 53216000 } } },
      "write" : { "io_bytes" : 543162368, "bw_bytes" : 13759000, "iops" : 104.9, "runtime" : 39476, "total_ios" : 4144,
        "lat_ns" : { "min" : 1, "max" : 2, "mean" : 1.5, "N" : 4144 } },
      "trim" : { "io_bytes" : 0 } },
    { "jobname" : "test", "error" : 0, "job options" : { "rw" : "readwrite" },
      "read" : { "io_bytes" : 1000, "bw_bytes" : 1000, "iops" : 1, "runtime" : 50000, "total_ios" : 1,
        "lat_ns" : { "min" : 1000000, "max" : 1000000, "mean" : 1000000.0, "N" : 1 } },
      "write" : { "io_bytes" : 0, "total_ios" : 0 } }
  ]
}
trailing words"#;

/// Goal: fio's document with words around it; its processes add up; a job that failed is an error.
#[test]
fn fio() {
    let result = read(Tool::Fio, FIO);
    let reads = row(&result, "read");
    assert_eq!((reads.bytes, reads.ops, reads.seconds.max), (530_580_456.0, 4_049.0, 50.0));
    assert_eq!((reads.bytes_per_second.mean, reads.ops_per_second.mean), (13_441_000.0, 103.5));
    let latency = reads.latency.unwrap();
    assert_eq!((latency.min_us, latency.p99_us, latency.max_us), (1_000.0, 12_649.0, 65_069.0));
    assert_eq!((result.workers, result.rows.len()), (Some(2), 2));
    let failed = FIO.replacen("\"error\" : 0", "\"error\" : 28", 1);
    assert!(parse(Tool::Fio, &failed).unwrap_err().why.contains("No space left"));
    let random = FIO.replace("readwrite", "randrw");
    assert_eq!(row(&read(Tool::Fio, &random), "random read").ops, 4_049.0);
}

const ELBENCHO: &str = "OPERATION RESULT TYPE        FIRST DONE  LAST DONE
========= ================   ==========  =========
MKDIRS    Elapsed ms       :          2          6
          Dirs/s           :       7076       4732
          Total dirs       :         16         32
---
WRITE     Elapsed ms       :     135292     135528
          Files/s          :       2361       2361
          Throughput MiB/s :       1180       1180
          Total files      :     319521     320000
          Total MiB        :     159761     160000
---
";

const ELBENCHO_3: &str = "OPERATION   RESULT TYPE         FIRST DONE   LAST DONE
=========== ================    ==========   =========
WRITE       Elapsed time     :    2m3.241s    2m5.755s
            IOPS             :       33395       33352
            Throughput MiB/s :       33395       33352
            Total MiB        :     4115703     4194304
            IO latency       : [ min=108us avg=469us max=14.5ms ]
            IO lat hist      : [ 256: 500, 512: 4000 ]
---
WRITE       Elapsed time     :     30.140s     30.196s
            IOPS             :         291         291
            Throughput MiB/s :          36          36
            Total MiB        :        1101        1101
---
";

/// Goal: the course's table in milliseconds, the later one with times; repetitions make one row.
#[test]
fn elbencho() {
    let old = read(Tool::Elbencho, ELBENCHO);
    let write = row(&old, "write");
    assert_eq!((write.ops, write.bytes, write.seconds.mean), (320_000.0, 160_000.0 * MIB, 135.528));
    assert_eq!((write.ops_per_second.mean, write.bytes_per_second.mean), (2_361.0, 1_180.0 * MIB));
    let tree = row(&old, "tree create");
    assert_eq!((tree.ops, tree.stonewall_ops_per_second.unwrap().mean), (32.0, 7_076.0));

    let new = read(Tool::Elbencho, ELBENCHO_3);
    let write = row(&new, "write");
    assert_eq!((new.rows.len(), write.repetitions), (1, 2));
    assert_eq!((write.bytes_per_second.max, write.bytes_per_second.min), (33_352.0 * MIB, 36.0 * MIB));
    assert!(near(write.seconds.max, 125.755));
    let latency = row(&read(Tool::Elbencho, ELBENCHO_3.split("---").next().unwrap()), "write").latency;
    assert!(near(latency.unwrap().max_us, 14_500.0));
}

/// Goal: an output without results, of a table that is not read, or cut in the middle, is an error with a hint.
#[test]
fn nothing_is_made_up() {
    for (tool, output, says) in [
        (Tool::Ior, "mpirun: command failed", "no result"),
        (Tool::Ior, "Operation Max(MiB) Min(MiB) Mean(MiB) StdDev\nwrite 1.0 2.0", "is cut"),
        (Tool::Mdtest, "SUMMARY time: (of 1 iterations)\n File creation 1.0 1.0 1.0 0.0", "leave -Z out"),
        (Tool::Iozone, "   kB  reclen    write  rewrite\n 512 4 1 2", "run it with -t"),
        (Tool::Iozone, "Children see throughput for 4 readers = 3 msec/op", "no unit"),
        (Tool::Fio, "READ: bw=12.8MiB/s", "output-format=json"),
        (Tool::Fio, "{\"jobs\": [", "cannot be understood"),
        (Tool::Fio, "{\"jobs\": []}", "no result"),
        (Tool::Elbencho, "OPERATION\nWRITE Elapsed ms : x y", "cannot be understood"),
        (Tool::Elbencho, "", "no result"),
    ] {
        let error = parse(tool, output).unwrap_err().to_string();
        assert!(error.contains(says), "{output}: {error}");
    }
}

/// Held by tests that start programs: until it runs its own, a new process has every file open that its maker has, and a
/// script that is open for writing cannot be run.
static STARTING: Mutex<()> = Mutex::new(());

/// Goal: a tool is found on the PATH, run, and read; one that hangs is ended; one that fails says why.
/// The tool is a script, so that nothing has to be installed.
#[test]
fn driven() {
    let _alone = STARTING.lock();
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("mdtest");
    let body = format!(
        "#!/bin/sh\n[ \"$1\" = hang ] && exec sleep 60\n[ \"$1\" = fail ] && echo no room >&2 && exit 1\n\
         [ \"$1\" = family ] && trap '' TERM && (sleep 60 & echo $! >child; wait)\n\
         [ \"$1\" = orphan ] && (sleep 60 & echo $! >child)\ncat <<'END'\n{MDTEST_1}END\n"
    );
    std::fs::write(&script, body).unwrap();
    std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let path = format!("relative:/nonexistent:{}", dir.path().display());
    assert_eq!(find(Tool::Ior, &path), None);
    let found = find(Tool::Mdtest, &path).unwrap();
    let stop = AtomicBool::new(false);
    let run = |word: &str, limit: u64| {
        let arguments = [word.to_owned()];
        let limit = Duration::from_millis(limit);
        found.run(&Drive { arguments: &arguments, launcher: &[], directory: dir.path(), limit, stop: &stop })
    };
    assert_eq!(run("-F", 60_000).unwrap().rows.len(), 3);
    assert!(run("fail", 60_000).unwrap_err().why.contains("no room"));
    assert!(run("hang", 200).unwrap_err().why.contains("ended after"));
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    assert!(run("hang", 60_000).unwrap_err().why.contains("asked to"));

    // Its children end with it, whether it is ended or ends by itself, though they hold its output open; also when
    // they do not listen to SIGTERM.
    for (word, limit, stopped) in
        [("family", 10_000, false), ("family", 60_000, true), ("orphan", 60_000, false)]
    {
        stop.store(stopped, std::sync::atomic::Ordering::Relaxed);
        let _ = std::fs::remove_file(dir.path().join("child"));
        let since = std::time::Instant::now();
        assert_eq!(run(word, limit).is_ok(), word == "orphan", "{word}");
        assert!(since.elapsed() < Duration::from_secs(50), "{word}: {:?}", since.elapsed());
        // Stopped at once it may not have come so far.
        let child = std::fs::read_to_string(dir.path().join("child")).unwrap_or_default();
        if child.is_empty() {
            assert!(stopped, "{word} has started no child");
            continue;
        }
        assert!(gone(child.trim()), "{word}: {child} still runs");
    }
}

/// Whether a process ends within a few seconds; one that nobody has reaped yet has ended.
fn gone(pid: &str) -> bool {
    let since = std::time::Instant::now();
    while since.elapsed() < Duration::from_secs(10) {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let state = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().next());
        if matches!(state, None | Some("Z" | "X")) {
            return true;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    false
}

/// Goal: the real fio, where it is installed, does the same work as a job of ours and is read.
#[test]
fn driven_fio() {
    let Some(found) = find(Tool::Fio, &std::env::var("PATH").unwrap_or_default()) else {
        eprintln!("fio is not installed: only its samples were read");
        return;
    };
    let _alone = STARTING.lock();
    let dir = tempfile::tempdir().unwrap();
    let job = IoJob {
        block: 1 << 20,
        transfer: 64 << 10,
        phases: vec![IoPhase::new(IoKind::Write)],
        ..IoJob::new(&dir.path().to_string_lossy())
    };
    let arguments = fio_arguments(&job, 2, 0).unwrap();
    let stop = AtomicBool::new(false);
    let limit = Duration::from_secs(60);
    let result = found
        .run(&Drive { arguments: &arguments, launcher: &[], directory: dir.path(), limit, stop: &stop })
        .unwrap();
    let write = row(&result, "write");
    assert_eq!((write.bytes, write.ops, result.workers), (2.0 * MIB, 32.0, Some(2)));
    assert!(write.latency.unwrap().count == 32 && result.version.unwrap().starts_with("fio-"));
}
