//! Outputs that real tools printed on the machine of a developer, shortened, read into rows: IOR 2.10.3, 3.0.1, 4.0.0
//! and a later one, mdtest 1.9.4-rc1, 3.3.0 and a later one (MPICH 4.0.2), IOzone 3.471, fio 3.33.

use super::{MIB, phases, read, row};
use skep_bench::dialect::Tool;
use skep_bench::foreign::parse;

pub const SAMPLES: &[(Tool, &str)] = &[
    (Tool::Ior, IOR_2_10),
    (Tool::Ior, IOR_2_10_VERBOSE),
    (Tool::Ior, IOR_3_0),
    (Tool::Ior, IOR_4_0),
    (Tool::Ior, IOR_4_1_TWO_TESTS),
    (Tool::Mdtest, MDTEST_1_9),
    (Tool::Mdtest, MDTEST_3_3),
    (Tool::Mdtest, MDTEST_4_1),
    (Tool::Iozone, IOZONE_3_471),
    (Tool::Iozone, IOZONE_OPERATIONS),
    (Tool::Iozone, IOZONE_SWEEP),
    (Tool::Fio, FIO_MIXED_GROUP),
];

const IOR_2_10: &str = "IOR-2.10.3: MPI Coordinated Test of Parallel I/O
Summary:
    api                = POSIX
    access             = file-per-process
    ordering in a file = sequential offsets
    ordering inter file=constant task offsets = 1
    clients            = 4 (4 per node)
    repetitions        = 3
    xfersize           = 65536 bytes
    blocksize          = 1 MiB
    aggregate filesize = 4 MiB
Operation  Max (MiB)  Min (MiB)  Mean (MiB)   Std Dev  Max (OPs)  Min (OPs)  Mean (OPs)   Std Dev  Mean (s)
---------  ---------  ---------  ----------   -------  ---------  ---------  ----------   -------  --------
write          99.93      52.66       79.74     19.91    1598.94     842.49     1275.78    318.49   0.05406   EXCEL
read           76.75      58.85       67.43      7.32    1227.97     941.65     1078.83    117.19   0.06002   EXCEL
Max Write: 99.93 MiB/sec (104.79 MB/sec)
Max Read:  76.75 MiB/sec (80.48 MB/sec)
";

const IOR_2_10_VERBOSE: &str = "IOR-2.10.3: MPI Coordinated Test of Parallel I/O
Summary:
    api                = POSIX
    access             = file-per-process
    pattern            = segmented (1 segment)
    ordering in a file = sequential offsets
    ordering inter file= no tasks offsets
    clients            = 4 (4 per node)
    repetitions        = 1
    xfersize           = 1 MiB
    blocksize          = 4 MiB
    aggregate filesize = 16 MiB
Operation  Max (MiB)  Min (MiB)  Mean (MiB)   Std Dev  Max (OPs)  Min (OPs)  Mean (OPs)   Std Dev  Mean (s)  Op grep #Tasks tPN reps  fPP reord reordoff reordrand seed segcnt blksiz xsize aggsize
---------  ---------  ---------  ----------   -------  ---------  ---------  ----------   -------  --------
write        1302.21    1302.21     1302.21      0.00    1302.21    1302.21     1302.21      0.00   0.01229   4 4 1 1 0 1 0 0 1 4194304 1048576 16777216 -1 POSIX EXCEL
read         1799.19    1799.19     1799.19      0.00    1799.19    1799.19     1799.19      0.00   0.00889   4 4 1 1 0 1 0 0 1 4194304 1048576 16777216 -1 POSIX EXCEL
Max Write: 1302.21 MiB/sec (1365.46 MB/sec)
Max Read:  1799.19 MiB/sec (1886.58 MB/sec)
";

const IOR_3_0: &str = "IOR-3.0.1: MPI Coordinated Test of Parallel I/O
Summary:
    api                = POSIX
    access             = file-per-process
    ordering in a file = sequential offsets
    ordering inter file= constant task offsets = 1
    clients            = 4 (4 per node)
    repetitions        = 3
    xfersize           = 65536 bytes
    blocksize          = 1 MiB
    aggregate filesize = 4 MiB
access    bw(MiB/s)  block(KiB) xfer(KiB)  open(s)    wr/rd(s)   close(s)   total(s)   iter
------    ---------  ---------- ---------  --------   --------   --------   --------   ----
write     76.88      1024.00    64.00      0.012160   0.019698   0.020064   0.052029   0
read      70.51      1024.00    64.00      0.003404   0.018531   0.005021   0.056730   0
remove    -          -          -          -          -          -          0.040090   0
Max Write: 76.88 MiB/sec (80.62 MB/sec)
Max Read:  80.75 MiB/sec (84.67 MB/sec)
Summary of all tests:
Operation   Max(MiB)   Min(MiB)  Mean(MiB)     StdDev    Mean(s) Test# #Tasks tPN reps fPP reord reordoff reordrand seed segcnt blksiz xsize aggsize API RefNum
write          76.88      43.47      59.04      13.74    0.07151 0 4 4 3 1 1 1 0 0 1 1048576 65536 4194304 POSIX 0
read           80.75      63.33      71.53       7.15    0.05648 0 4 4 3 1 1 1 0 0 1 1048576 65536 4194304 POSIX 0
";

const IOR_4_0: &str = "IOR-4.0.0: MPI Coordinated Test of Parallel I/O
Options:
api                 : POSIX
access              : single-shared-file
type                : independent
segments            : 1
ordering in a file  : sequential
ordering inter file : no tasks offsets
nodes               : 1
tasks               : 4
clients per node    : 4
repetitions         : 1
xfersize            : 65536 bytes
blocksize           : 1 MiB
aggregate filesize  : 4 MiB
stonewallingTime    : 1
stoneWallingWearOut : 1
Results:
access    bw(MiB/s)  IOPS       Latency(s)  block(KiB) xfer(KiB)  open(s)    wr/rd(s)   close(s)   total(s)   iter
------    ---------  ----       ----------  ---------- ---------  --------   --------   --------   --------   ----
stonewalling pairs accessed min: 16 max: 16 -- min data: 0.0 GiB mean data: 0.0 GiB time: 0.0s
write     100.05     1605.18    0.001495    1024.00    64.00      0.007965   0.039871   0.015957   0.039980   0
stonewalling pairs accessed min: 16 max: 16 -- min data: 0.0 GiB mean data: 0.0 GiB time: 0.0s
stonewalling pairs accessed min: 16 max: 16 -- min data: 0.0 GiB mean data: 0.0 GiB time: 0.0s
read      90.90      1455.27    0.001502    1024.00    64.00      0.016000   0.043978   0.019954   0.044006   0
Pairs deadlineForStonewallingaccessed: 16
Summary of all tests:
Operation   Max(MiB)   Min(MiB)  Mean(MiB)     StdDev   Max(OPs)   Min(OPs)  Mean(OPs)     StdDev    Mean(s) Stonewall(s) Stonewall(MiB) Test# #Tasks tPN reps fPP reord reordoff reordrand seed segcnt   blksiz    xsize aggs(MiB)   API RefNum
write         100.05     100.05     100.05       0.00    1600.80    1600.80    1600.80       0.00    0.03998       0.02         62.56     0      4   4    1   0     0        1         0    0      1  1048576    65536       4.0 POSIX      0
read           90.90      90.90      90.90       0.00    1454.35    1454.35    1454.35       0.00    0.04401       0.02         41.70     0      4   4    1   0     0        1         0    0      1  1048576    65536       4.0 POSIX      0
";

const IOR_4_1_TWO_TESTS: &str = "read      473.93     1899.81    0.000019    1024.00    256.00     0.004137   0.004211   0.004139   0.004220   0
Summary of all tests:
Operation   Max(MiB)   Min(MiB)  Mean(MiB)     StdDev   Max(OPs)   Min(OPs)  Mean(OPs)     StdDev    Mean(s) Stonewall(s) Stonewall(MiB) Test# #Tasks tPN reps fPP reord reordoff reordrand seed segcnt   blksiz    xsize aggs(MiB)   API RefNum
write        4725.98    4725.98    4725.98       0.00   75615.62   75615.62   75615.62       0.00    0.00042         NA            NA     0      2   2    1   1     0        1         0    0      1  1048576    65536       2.0 POSIX      0
read        19021.79   19021.79   19021.79       0.00  304348.59  304348.59  304348.59       0.00    0.00011         NA            NA     0      2   2    1   1     0        1         0    0      1  1048576    65536       2.0 POSIX      0
write        5540.69    5540.69    5540.69       0.00   22162.77   22162.77   22162.77       0.00    0.00036         NA            NA     1      2   2    1   1     0        1         0    0      1  1048576   262144       2.0 POSIX      0
read          473.93     473.93     473.93       0.00    1895.73    1895.73    1895.73       0.00    0.00422         NA            NA     1      2   2    1   1     0        1         0    0      1  1048576   262144       2.0 POSIX      0
";

const MDTEST_1_9: &str = "mdtest-1.9.4-rc1 was launched with 2 total task(s) on 2 node(s)
2 tasks, 48 files
SUMMARY: (of 2 iterations)
   Operation                      Max            Min           Mean        Std Dev
   ---------                      ---            ---           ----        -------
   File creation     :      70390.830       4621.757      37506.294      32884.537
   File stat         :    1353905.170     699076.635    1026490.903     327414.267
   File read         :          0.000          0.000          0.000          0.000
   File removal      :     413105.781     314551.960     363828.870      49276.911
   Tree creation     :      20759.091      18215.379      19487.235       1271.856
   Tree removal      :        250.079        130.607        190.343         59.736
";

const MDTEST_3_3: &str = "mdtest-3.3.0 was launched with 2 total task(s) on 1 node(s)
2 tasks, 40 files/directories
SUMMARY rate: (of 3 iterations)
   Operation                      Max            Min           Mean        Std Dev
   ---------                      ---            ---           ----        -------
   Directory creation        :      11977.805       3807.258       6952.184       3590.705
   Directory stat            :    1140836.231       9723.190     691713.356     386247.469
   Directory removal         :        301.980        263.169        279.010         12.431
   File creation             :      21650.106       3335.152       6788.179       6673.383
   File stat                 :     779165.127       3752.695     258922.802     356189.375
   File read                 :     548629.113       3334.071     316314.556     229828.708
   File removal              :     282523.785       3331.796     163891.431     117292.852
   Tree creation             :      14496.325         92.821       9647.234       6756.245
   Tree removal              :        528.782        197.732        325.666        145.230
";

const MDTEST_4_1: &str = "mdtest-4.1.0+dev was launched with 2 total task(s) on 1 node(s)
2 tasks, 40 files/directories
SUMMARY rate (in ops/sec): (of 3 iterations)
   Operation                     Max            Min           Mean        Std Dev
   ---------                     ---            ---           ----        -------
   Directory creation           3056.238       2154.129       2673.305        466.231
   Directory stat             798915.048     525931.536     698147.883     149862.399
   Directory rename           123817.092     108731.147     118277.052       8302.508
   Directory removal             291.131        271.128        280.980         10.005
   File creation                3333.840       2824.637       3046.589        260.806
   File stat                  769597.064     614550.037     695374.222      77734.024
   File read                  623688.327     555536.954     585916.657      34671.794
   File removal               285812.879     256532.355     266818.750      16468.326
   Tree creation                5949.367         83.878       2052.676       3374.696
   Tree removal                  268.161        157.657        231.184         63.676
SUMMARY time (in ms/op): (of 3 iterations)
   Operation                     Max            Min           Mean        Std Dev
   ---------                     ---            ---           ----        -------
   File creation                   0.014          0.012          0.013          0.001
   File stat                       0.000          0.000          0.000          0.000
   File read                       0.000          0.000          0.000          0.000
   File removal                    0.000          0.000          0.000          0.000
";

const IOZONE_3_471: &str = "    Iozone: Performance Test of File I/O
            Version $Revision: 3.471 $
    Output is in kBytes/sec
    Throughput test with 2 processes
    Each process writes a 4096 kByte file in 64 kByte records
    Children see throughput for  2 initial writers     = 7742845.50 kB/sec
    Parent sees throughput for  2 initial writers     =  105168.40 kB/sec
    Min throughput per process             =       0.00 kB/sec
    Max throughput per process             = 7742845.50 kB/sec
    Avg throughput per process             = 3871422.75 kB/sec
    Min xfer                     =       0.00 kB
    Children see throughput for  2 rewriters     = 12705380.50 kB/sec
    Children see throughput for  2 readers         = 8788530.00 kB/sec
    Children see throughput for 2 re-readers     = 10041976.00 kB/sec
    Children see throughput for 2 reverse readers     = 17399618.00 kB/sec
    Children see throughput for 2 stride readers     = 9823773.00 kB/sec
    Children see throughput for 2 random readers     = 15154131.00 kB/sec
    Children see throughput for 2 mixed workload     = 16005732.50 kB/sec
    Children see throughput for 2 random writers     = 13644716.00 kB/sec
";

const IOZONE_OPERATIONS: &str = "    Iozone: Performance Test of File I/O
            Version $Revision: 3.471 $
    OPS Mode. Output is in operations per second.
    O_DIRECT feature enabled
    No retest option selected
    Throughput test with 2 processes
    Each process writes a 1024 kByte file in 4 kByte records
    Children see throughput for  2 initial writers     =   21931.63 ops/sec
    Children see throughput for 2 random readers     =   17111.77 ops/sec
    Children see throughput for 2 random writers     =   34867.08 ops/sec
";

const IOZONE_SWEEP: &str = "    Iozone: Performance Test of File I/O
            Version $Revision: 3.471 $
    Output is in kBytes/sec
    Min process = 1
    Max process = 2
    Throughput test with 1 process
    Each process writes a 1024 kByte file in 64 kByte records
    Children see throughput for  1 initial writers     = 4079544.25 kB/sec
    Children see throughput for  1 rewriters     = 5175871.00 kB/sec
    Children see throughput for  1 readers         = 5593820.50 kB/sec
    Children see throughput for 1 re-readers     = 6609617.50 kB/sec
    Each process writes a 1024 kByte file in 64 kByte records
    Children see throughput for  2 initial writers     = 6591168.00 kB/sec
    Children see throughput for  2 rewriters     = 5347660.75 kB/sec
    Children see throughput for  2 readers         = 6819511.50 kB/sec
    Children see throughput for 2 re-readers     = 11282213.50 kB/sec
";

/// fio 3.33 with jobs of one group of which only the second has group_reporting.
const FIO_MIXED_GROUP: &str = r#"{
  "fio version" : "fio-3.33",
  "jobs" : [
    { "jobname" : "a", "error" : 0, "job options" : { "name" : "a", "numjobs" : "2", "rw" : "write" },
      "read" : { "io_bytes" : 0, "total_ios" : 0 }, "write" : { "io_bytes" : 1048576, "total_ios" : 256 } },
    { "jobname" : "a", "error" : 0, "job options" : { "name" : "b", "numjobs" : "3", "rw" : "randread" },
      "read" : { "io_bytes" : 3145728, "total_ios" : 768 }, "write" : { "io_bytes" : 1048576, "total_ios" : 256 } },
    { "groupid" : 0, "error" : 0,
      "read" : { "io_bytes" : 0, "total_ios" : 0 }, "write" : { "io_bytes" : 0, "total_ios" : 0 } }
  ]
}"#;

/// Goal: five releases of IOR: workers, amounts and rates from where each of them prints them.
#[test]
fn ior() {
    for (output, version, workers, repetitions, bytes, ops, mean) in [
        (IOR_2_10, "IOR-2.10.3", 4, 3, 4.0, 64.0, 79.74),
        (IOR_2_10_VERBOSE, "IOR-2.10.3", 4, 1, 16.0, 16.0, 1302.21),
        (IOR_3_0, "IOR-3.0.1", 4, 3, 4.0, 64.0, 59.04),
        (IOR_4_0, "IOR-4.0.0", 4, 1, 4.0, 64.0, 100.05),
    ] {
        let result = read(Tool::Ior, output);
        assert_eq!((result.version.as_deref(), result.workers), (Some(version), Some(workers)));
        assert_eq!(phases(&result), ["write", "read"], "{version}");
        let write = &result.rows[0];
        assert_eq!((write.repetitions, write.bytes, write.ops), (repetitions, bytes * MIB, ops), "{version}");
        assert!((write.bytes_per_second.mean / MIB - mean).abs() < 1e-9, "{version}");
    }
    let two = read(Tool::Ior, IOR_4_1_TWO_TESTS);
    assert_eq!(phases(&two), ["write", "read", "write 2", "read 2"]);
    assert_eq!((two.rows[1].ops, two.rows[3].ops, two.workers), (32.0, 8.0, Some(2)));
}

/// Goal: three generations of mdtest: with and without colons, with a table of times after that of rates.
#[test]
fn mdtest() {
    let first = read(Tool::Mdtest, MDTEST_1_9);
    assert_eq!(phases(&first), ["file create", "file stat", "file remove", "tree create", "tree remove"]);
    assert_eq!((first.rows[0].ops_per_second.max, first.rows[0].ops), (70_390.83, 48.0));
    assert_eq!((first.rows[0].repetitions, first.workers), (2, Some(2)));
    for (output, version, rows, create) in
        [(MDTEST_3_3, "mdtest-3.3.0", 9, 6_788.179), (MDTEST_4_1, "mdtest-4.1.0+dev", 10, 3_046.589)]
    {
        let result = read(Tool::Mdtest, output);
        assert_eq!((result.version.as_deref(), result.rows.len()), (Some(version), rows));
        let row = row(&result, "file create");
        assert_eq!((row.ops_per_second.mean, row.repetitions, row.ops), (create, 3, 40.0));
    }
}

/// Goal: IOzone in throughput mode, in kilobytes and in operations; a run over several numbers of processes has no one
/// answer.
#[test]
fn iozone() {
    let result = read(Tool::Iozone, IOZONE_3_471);
    let all = "write|rewrite|read|reread|backward read|stride read|random read|mixed workload|random rewrite";
    assert_eq!(phases(&result), all.split('|').collect::<Vec<_>>());
    assert_eq!((result.version.as_deref(), result.workers), (Some("iozone-3.471"), Some(2)));
    assert_eq!(result.rows[1].bytes_per_second.mean, 12_705_380.5 * 1024.0);
    let result = read(Tool::Iozone, IOZONE_OPERATIONS);
    let rates: Vec<f64> = result.rows.iter().map(|row| row.ops_per_second.mean).collect();
    assert_eq!(rates, [21_931.63, 17_111.77, 34_867.08]);
    let error = parse(Tool::Iozone, IOZONE_SWEEP).unwrap_err().why;
    assert!(error.contains("several numbers of processes"), "{error}");
}

/// Goal: what fio mixes up is not taken for results.
#[test]
fn fio() {
    let error = parse(Tool::Fio, FIO_MIXED_GROUP).unwrap_err().why;
    assert!(error.contains("group_reporting"), "{error}");
}
