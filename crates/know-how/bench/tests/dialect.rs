//! Every command line that the papers print, as they print it, with the job that it must come to. Lines that a page
//! broke are joined; what a shell would put in the place of variables stands in [`VARIABLES`].
#![allow(clippy::unwrap_used)]

use skep_bench::dialect::{Launch, Relative, Surroundings, Tool, Translation, relative, translate};
use skep_bench::job::{
    Fsync, IoJob, IoKind, IoPhase, Items, Job, Lookup, MetaJob, MetaPhase, Order, Placement, Readers, Share,
    Stonewall, Striping, SyncMode, Things, TreeShape, Work, Workers,
};

const G: u64 = 1 << 30;
const M: u64 = 1 << 20;
const CLIENTS: &str = "node1 /mnt/beegfs/bench /usr/bin/iozone\nnode2 /mnt/beegfs/bench /usr/bin/iozone\n";
const JOB_FILE: &str = "[global]\nbs=4k\nsize=1g\ndirectory=/mnt/t\n[a]\nrw=randread\nnumjobs=4\nruntime=30\ntime_based\n\
                        [b]\nstonewall\nrw=randwrite\nfsync=32\nunlink=1\n";

/// Longer names before those that they begin with.
const VARIABLES: [(&str, &str); 11] = [
    ("$((320/$numprocs))", "40"),
    ("${numprocs}", "8"),
    ("${filesperdir}", "1953"),
    ("$hostlist", "hosts"),
    ("$threads", "64"),
    ("$working_dir", "/mnt/work"),
    ("$file_size", "128g"),
    ("$record_size", "2m"),
    ("$Size", "8g"),
    ("$Thread", "512"),
    ("$Directories", "32"),
];

fn words(line: &str) -> Vec<String> {
    let line = VARIABLES.iter().fold(line.to_owned(), |line, (name, value)| line.replace(name, value));
    line.split_whitespace().map(str::to_owned).collect()
}

fn translated(tool: Tool, line: &str) -> Result<Translation, String> {
    let around = Surroundings {
        directory: "/mnt/here",
        read: &|path| match path {
            "/path/to/threadlist"
            | "~/2021Q2_BeePerf/15G-beeperf-08042021/15g-perf.backup/hosts.309571"
            | "~/netbenchRHEL/hosts.157606" => Ok(CLIENTS.to_owned()),
            "jobs.fio" => Ok(JOB_FILE.to_owned()),
            _ => Err("no such file".to_owned()),
        },
        is_dir: &|path| path == "/mnt/beegfs/testdir" || path == "/mnt/t",
        file_size: &|path| match path {
            "/mnt/t/there" => Some(G),
            "/mnt/t/short" => Some(5),
            _ => None,
        },
        hosts: &[],
        drawn: 4_711,
    };
    translate(tool, &words(line), &around).map_err(|error| error.to_string())
}

fn one(tool: Tool, line: &str) -> (Job, Launch) {
    let mut translation = translated(tool, line).unwrap_or_else(|error| panic!("{line}: {error}"));
    assert_eq!(translation.jobs.len(), 1, "{line}");
    (translation.jobs.remove(0), translation.launch)
}

fn io(job: &Job) -> &IoJob {
    match &job.work {
        Work::Io(io) => io,
        other => panic!("{other:?}"),
    }
}

fn meta(job: &Job) -> &MetaJob {
    match &job.work {
        Work::Meta(meta) => meta,
        other => panic!("{other:?}"),
    }
}

fn processes(processes: u32, placement: Placement) -> Workers {
    Workers { processes, threads: 1, placement }
}

/// What IOR does when nothing is said, in our words.
fn ior(directory: &str, name: &str) -> IoJob {
    IoJob {
        name: name.to_owned(),
        share: Share::Segmented,
        transfer: 256 << 10,
        block: M,
        time_open: true,
        fsync: Fsync::Never,
        ..IoJob::new(directory)
    }
}

/// Goal: IOR of the HP paper and of the BeeGFS course: bundles, attached values, a launcher.
#[test]
fn ior_of_the_first_papers() {
    let (job, launch) = one(
        Tool::Ior,
        "mpirun -hostfile /tmp/nodefile -np ${numprocs} /opt/ior/src/ior -wr -i5 -t512k -b $((320/$numprocs))g -F -g -e -o /scratch/ior/ior-file.dat",
    );
    let hp = IoJob {
        share: Share::PerWorker,
        transfer: 512 << 10,
        block: 40 * G,
        barriers: true,
        fsync: Fsync::AtEnd,
        ..ior("/scratch/ior", "ior-file.dat")
    };
    let expected = Job { workers: processes(8, Placement::ByNode), repetitions: 5, ..Job::new(Work::Io(hp)) };
    assert_eq!(job, expected);
    assert_eq!(launch.host_file.unwrap().to_str(), Some("/tmp/nodefile"));

    let (job, _) = one(
        Tool::Ior,
        "/usr/local/bin/IOR -N 2 -i 5 -g -e -F -C -b 320g -t 1g -w -r -o /mnt/beegfs/testfile",
    );
    let course = IoJob {
        share: Share::PerWorker,
        transfer: G,
        block: 320 * G,
        barriers: true,
        fsync: Fsync::AtEnd,
        readers: Readers::ShiftNode { nodes: 1 },
        ..ior("/mnt/beegfs", "testfile")
    };
    let expected =
        Job { workers: processes(2, Placement::ByNode), repetitions: 5, ..Job::new(Work::Io(course)) };
    assert_eq!(job, expected);

    let issue = "-w -r -i 3 -t 2m -b 128g -F -e -g -C -o /mnt/skep/f";
    let (job, _) = one(Tool::Ior, issue);
    assert_eq!((job.repetitions, io(&job).transfer, io(&job).block), (3, 2 * M, 128 * G));
}

/// Goal: IOR of the Dell papers: directives for striping, the later order of options, the appendix.
#[test]
fn ior_of_the_dell_papers() {
    let dell = "mpirun -machinefile $hostlist --map-by node -np $threads -mca btl openib,self ~/bin/ior -w -r -i 3 \
                -d 3 -e -O beegfsNumTargets=33,beegfsChunkSize=2M -o $working_dir/ior.out -s 1 -g -t 2M -b $file_size";
    let (job, _) = one(Tool::Ior, dell);
    let shared = IoJob {
        transfer: 2 * M,
        block: 128 * G,
        barriers: true,
        fsync: Fsync::AtEnd,
        striping: Some(Striping { chunk_size: Some(2 * M), targets: Some(33) }),
        ..ior("/mnt/work", "ior.out")
    };
    let expected = Job {
        workers: processes(64, Placement::ByNode),
        repetitions: 3,
        delay_ms: 3_000,
        ..Job::new(Work::Io(shared.clone()))
    };
    assert_eq!(job, expected);

    let later = "mpirun -machinefile $hostlist --map-by node -np $threads ~/bin/ior -C -w -r -i 3 -d 3 -e -o \
                 $working_dir/ior.out -s 1 -g -t 2M -b $file_size";
    let later_io = IoJob { striping: None, readers: Readers::ShiftNode { nodes: 1 }, ..shared.clone() };
    assert_eq!(one(Tool::Ior, later).0, Job { work: Work::Io(later_io), ..expected.clone() });
    let appendix = "mpirun -machinefile $hostlist --map-by node -np $threads -mca btl openib,self ~/bin/ior -w -r -i 3 \
                    -d 3 -e -o $working_dir/ior.out -s 1 -g -t $record_size -b $file_size";
    let appendix_io = IoJob { striping: None, ..shared };
    assert_eq!(one(Tool::Ior, appendix).0, Job { work: Work::Io(appendix_io), ..expected });
}

/// Goal: the ClusterStor lines, one of which calls the program `IOER`; neither -w nor -r means both.
#[test]
fn ior_of_clusterstor() {
    for (program, np, direct, transfer, block) in [
        ("IOR", 128, false, 1, 12),
        ("IOR", 128, false, 2, 12),
        ("IOR", 64, false, 8, 24),
        ("IOR", 256, true, 32, 12),
        ("IOR", 512, true, 32, 6),
        ("IOER", 128, true, 64, 12),
    ] {
        let b = if direct { "-B " } else { "" };
        let line = format!(
            "mpirun -machinefile machinefile.txt -np {np} --byslot ./IOR/src/C/{program} -v -F {b}-t {transfer}m -b {block}g -o /xyratex/test.0"
        );
        let (job, launch) = one(Tool::Ior, &line);
        let expected = IoJob {
            share: Share::PerWorker,
            direct,
            transfer: transfer * M,
            block: block * G,
            ..ior("/xyratex", "test.0")
        };
        let expected = Job { workers: processes(np, Placement::BySlot), ..Job::new(Work::Io(expected)) };
        assert_eq!(job, expected, "{line}");
        assert_eq!(launch.host_file.unwrap().to_str(), Some("machinefile.txt"));
    }
    let odd = translated(Tool::Ior, "./IOER -v -F -o /x/y").unwrap();
    assert!(odd.understood.iter().any(|line| line.meaning.contains("taken for ior")), "{:?}", odd.understood);
}

fn mdtest() -> MetaJob {
    MetaJob {
        name: "test-dir.0-0".to_owned(),
        tree: TreeShape { branching: 8, depth: 2, leaf_only: true },
        things: Things::Files,
        phases: vec![MetaPhase::Create, MetaPhase::Stat],
        own_tree: true,
        time_tree: true,
        lookup: Lookup::Path,
        ..MetaJob::new("/")
    }
}

/// Goal: mdtest's calls name full paths, and no other tool's line changes how items are named; a stonewall of 0 is none,
/// and is said to have no effect.
#[test]
fn mdtest_goes_by_full_path() {
    assert_eq!(meta(&one(Tool::Mdtest, "-n 5 -d /x").0).lookup, Lookup::Path);
    let elbencho = translated(Tool::Elbencho, "-t 2 -d -n 2 -w -N 3 -s 8k -b 4k -F -D /tmp").unwrap();
    assert_eq!(meta(&elbencho.jobs[0]).lookup, Lookup::Directory);
    for (line, wall) in [("-n 5 -W 0 -d /x", None), ("-n 5 -W 3 -d /x", Some(3_000))] {
        let found = translated(Tool::Mdtest, line).unwrap();
        assert_eq!(found.jobs[0].stonewall.map(|wall| wall.after_ms), wall);
        let said = found.understood.iter().find(|line| line.option.starts_with("-W")).unwrap();
        assert_eq!(said.meaning.starts_with("no effect"), wall.is_none(), "{}", said.meaning);
    }
}

/// Goal: mdtest of the HP paper and the course.
#[test]
fn mdtest_of_the_first_papers() {
    for (line, np, items, path) in [
        (
            "mpirun -hostfile /tmp/nodefile -np ${numprocs} /opt/mdtest/mdtest -C -T -d /scratch/mdtest -i 5 -I ${filesperdir} -z 2 -b 8 -L -u -F",
            8,
            1_953,
            "/scratch/mdtest",
        ),
        (
            "/opt/mdtest-1.9.3/mdtest -C -T -d /mnt/beegfs/mdtest -i 5 -I 122 -z 2 -b 8 -L -u -F",
            1,
            122,
            "/mnt/beegfs/mdtest",
        ),
    ] {
        let expected =
            MetaJob { items: Items::PerDirectory(items), paths: vec![path.to_owned()], ..mdtest() };
        let expected = Job {
            workers: processes(np, Placement::ByNode),
            repetitions: 5,
            keep: true,
            ..Job::new(Work::Meta(expected))
        };
        assert_eq!(one(Tool::Mdtest, line).0, expected, "{line}");
    }
}

/// Goal: mdtest of the Dell papers, which counts its files, and of the issue.
#[test]
fn mdtest_of_the_dell_papers() {
    let dell = "mpirun -machinefile $hostlist --map-by node -np $threads ~/bin/mdtest -i 3 -b $Directories -z 1 -L \
                -I 1024 -y -u -t -F";
    let all = [MetaPhase::Create, MetaPhase::Stat, MetaPhase::OpenRead, MetaPhase::Remove];
    let expected = MetaJob {
        items: Items::PerDirectory(1_024),
        tree: TreeShape { branching: 32, depth: 1, leaf_only: true },
        phases: all.to_vec(),
        paths: vec!["/mnt/here".to_owned()],
        ..mdtest()
    };
    let expected =
        Job { workers: processes(64, Placement::ByNode), repetitions: 3, ..Job::new(Work::Meta(expected)) };
    let translation = translated(Tool::Mdtest, dell).unwrap();
    assert_eq!(translation.jobs, [expected]);
    // 64 processes with 32 leaves of 1024 files: the 2,097,152 files of the paper's table.
    assert_eq!(meta(&translation.jobs[0]).items.per_worker(&meta(&translation.jobs[0]).tree) * 64, 2_097_152);
    assert!(translation.understood.iter().any(|line| line.option == "-y without -w"));

    let issue = "-C -T -r -F -L -z 1 -b 8 -I 1024 -u -d /mnt/skep";
    let expected = MetaJob {
        items: Items::PerDirectory(1_024),
        tree: TreeShape { branching: 8, depth: 1, leaf_only: true },
        phases: vec![MetaPhase::Create, MetaPhase::Stat, MetaPhase::Remove],
        paths: vec!["/mnt/skep".to_owned()],
        ..mdtest()
    };
    assert_eq!(one(Tool::Mdtest, issue).0, Job::new(Work::Meta(expected)));
}

/// Goal: of files that mdtest makes it reads as much as it wrote, of older ones as much as it is told.
#[test]
fn mdtest_reads_what_is_there() {
    for (line, existing, reads) in [
        ("-F -n 1 -C -E -w 8k -e 4k", false, 4096),
        ("-F -n 1 -E -e 4k", true, 4096),
        ("-F -n 1 -C -e 4k", false, 0),
        ("-F -n 1 -C -E", false, 0),
    ] {
        let job = one(Tool::Mdtest, line).0;
        assert_eq!((job.existing, meta(&job).read_of_each(job.existing)), (existing, reads), "{line}");
    }
}

/// What IOzone does with `-c -e -r -s`, in our words.
fn iozone(directory: &str, record: u64, size: u64) -> IoJob {
    IoJob {
        name: "iozone.DUMMY".to_owned(),
        transfer: record,
        block: size,
        fsync: Fsync::AtEnd,
        time_fsync: true,
        time_close: true,
        ..IoJob::new(directory)
    }
}

/// Goal: IOzone of the course and of the Dell papers: tests, no retest, cluster mode, O_DIRECT, sizes.
#[test]
fn iozone_of_the_papers() {
    let write = IoPhase::new(IoKind::Write);
    let read = IoPhase::new(IoKind::Read);

    let course = IoJob { phases: vec![write, read], ..iozone("/mnt/here", M, 40 * G) };
    let expected =
        Job { workers: processes(64, Placement::ByNode), keep: true, ..Job::new(Work::Io(course)) };
    assert_eq!(one(Tool::Iozone, "iozone -i 0 -i 1 -c -e -w -r 1m -s 40g -t 64 -+n").0, expected);

    for (line, phases, existing) in [
        (
            "iozone -i 0 -i 1 -c -e -w -r 1m -I -s $Size -t $Thread -+n -+m /path/to/threadlist",
            vec![write, read],
            false,
        ),
        (
            "~/2021Q2_BeePerf/15G-beeperf-08042021/15g-perf.backup/iozone3_492/src/current/iozone -i 0 -c -e -w -r 1m \
             -I -s 8g -t 512 -+n -+m ~/2021Q2_BeePerf/15G-beeperf-08042021/15g-perf.backup/hosts.309571",
            vec![write],
            false,
        ),
        (
            "~/netbenchRHEL/current/iozone -i 0 -c -e -w -r 1m -I -s 8g -t 512 -+n -+m ~/netbenchRHEL/hosts.157606",
            vec![write],
            false,
        ),
        ("iozone -i 0 -c -e -w -r 1m -I -s $Size -t $Thread -+n -+m /path/to/threadlist", vec![write], false),
        ("iozone -i 1 -c -e -w -r 1m -I -s $Size -t $Thread -+n -+m /path/to/threadlist", vec![read], true),
    ] {
        let direct = IoJob { phases, direct: true, ..iozone("/mnt/beegfs/bench", M, 8 * G) };
        let expected = Job {
            workers: processes(512, Placement::ByNode),
            keep: true,
            existing,
            ..Job::new(Work::Io(direct))
        };
        let (job, launch) = one(Tool::Iozone, line);
        assert_eq!(job, expected, "{line}");
        assert_eq!(launch.hosts, ["node1", "node2"]);
    }

    let line = "iozone -i 2 -w -c -O -I -r 4K -s $Size -t $Thread -+n -+m /path/to/threadlist";
    let random = IoJob {
        phases: vec![read.in_order(Order::Random), IoPhase::new(IoKind::Rewrite).in_order(Order::Random)],
        direct: true,
        time_fsync: false,
        ..iozone("/mnt/beegfs/bench", 4 << 10, 8 * G)
    };
    let expected = Job {
        workers: processes(512, Placement::ByNode),
        keep: true,
        existing: true,
        ..Job::new(Work::Io(random))
    };
    assert_eq!(one(Tool::Iozone, line).0, expected);

    let issue = one(Tool::Iozone, "-i 0 -i 1 -c -e -w -r 1m -s 8g -t 64 -I").0;
    let names: Vec<_> = io(&issue).phases.iter().map(IoPhase::name).collect();
    assert_eq!(names, ["write", "rewrite", "read", "reread"]);
}

/// Goal: fio of the course; a job file whose second job waits for the first.
#[test]
fn fio_of_the_course() {
    let (job, _) = one(Tool::Fio, "fio --rw=readwrite --name=test --size=1G --direct=1 --bs=128k");
    let expected = IoJob {
        name: "test".to_owned(),
        phases: vec![
            IoPhase::new(IoKind::Write).as_setup(),
            IoPhase::new(IoKind::Mixed { read_percent: 50 }),
        ],
        transfer: 128 << 10,
        block: G,
        direct: true,
        fsync: Fsync::Never,
        time_close: false,
        preallocate: true,
        invalidate: true,
        advise: true,
        fresh: false,
        ..IoJob::new("/mnt/here")
    };
    assert_eq!(job, Job { keep: true, ..Job::new(Work::Io(expected)) });

    let job = one(Tool::Fio, "--name=x --rw=read --size=1m --filename=/mnt/t/there").0;
    assert!(job.existing && io(&job).phases == [IoPhase::new(IoKind::Read)], "a file that is there is read");

    let jobs = translated(Tool::Fio, "fio jobs.fio --output-format=json").unwrap().jobs;
    assert_eq!(jobs.len(), 2);
    assert_eq!(jobs[0].workers, processes(4, Placement::ByNode));
    assert_eq!(jobs[0].stonewall, Some(Stonewall { after_ms: 30_000, wear_out: false, repeat: true }));
    assert_eq!(io(&jobs[0]).phases[1], IoPhase::new(IoKind::Read).in_order(Order::Random));
    assert_eq!(io(&jobs[1]).phases, [IoPhase::new(IoKind::Write).in_order(Order::Random)]);
    assert_eq!((io(&jobs[1]).fsync, jobs[1].keep), (Fsync::Every { transfers: 32 }, false));
    assert_eq!(io(&jobs[1]).paths, ["/mnt/t"]);
}

/// Goal: elbencho of the course; one shared file cut among threads.
#[test]
fn elbencho_of_the_course() {
    // In two pieces, for the home of one machine's administrator is no path for source code.
    let line =
        ["/root", "/bin/elbencho -t 2 -d -n 16 -w -N 10000 -s 512k -b 512k /mnt/beegfs/testdir"].concat();
    let (job, _) = one(Tool::Elbencho, &line);
    let expected = MetaJob {
        name: "skep-bench-elbencho".to_owned(),
        tree: TreeShape { branching: 16, depth: 1, leaf_only: true },
        items: Items::PerDirectory(10_000),
        things: Things::Files,
        phases: vec![MetaPhase::Create],
        write_bytes: 512 << 10,
        read_bytes: 512 << 10,
        transfer: 512 << 10,
        time_tree: true,
        ..MetaJob::new("/mnt/beegfs/testdir")
    };
    let workers = Workers { processes: 1, threads: 2, placement: Placement::ByNode };
    assert_eq!(job, Job { workers, keep: true, ..Job::new(Work::Meta(expected)) });
    // 2 threads x 16 directories x 10,000 files: the 320,000 files of the printed result.
    assert_eq!(meta(&job).items.per_worker(&meta(&job).tree) * 2, 320_000);

    let line = "--hosts h1,h2 -w -r --direct -b 1m -s 16g -t 4 /mnt/big";
    let (job, launch) = one(Tool::Elbencho, line);
    assert_eq!(launch.hosts, ["h1", "h2"]);
    assert_eq!((job.workers.processes, job.workers.threads), (2, 4));
    assert_eq!((io(&job).share, io(&job).block, io(&job).listed), (Share::Segmented, 2 * G, true));
}

/// Goal: lines for what other commands of this program do lead to them: StorageBench, NetBench and qperf of the
/// course, lists of BeeGFS, obdfilter-survey of the ClusterStor paper.
#[test]
fn relatives_of_the_papers() {
    let found = |line: &str| {
        let shell: Vec<String> = match line.split_once('"') {
            // What stands in quotes is one word.
            Some((before, quoted)) => {
                let mut all = words(before);
                all.push(quoted.trim_end_matches('"').to_owned());
                all
            }
            None => words(line),
        };
        relative(&shell).unwrap_or_else(|| panic!("{line}: is not known"))
    };
    for (line, command) in [
        (
            "beegfs-ctl --storagebench --write --blocksize=512K --size=640G --threads=4 --alltargets",
            "skep bench storage start --write --block 512KiB --size 640GiB --threads 4",
        ),
        (
            "beegfs-ctl --storagebench --read --blocksize=512K --size=640G --threads=4 --alltargets",
            "skep bench storage start --read --block 512KiB --size 640GiB --threads 4",
        ),
        ("beegfs-ctl --storagebench --status --alltargets", "skep bench storage status"),
        ("echo 1 > /proc/fs/beegfs/<clientID>/netbench_mode", "skep bench net mode"),
        ("echo 0 > /proc/fs/beegfs/<clientID>/netbench_mode", "skep bench net mode"),
        ("echo 1 > /proc/fs/beegfs/<client ID>/netbench_mode", "skep bench net mode"),
        ("qperf", "skep bench agent"),
        ("qperf beegfs002 tcp_bw tcp_lat", "skep bench net pairs"),
        ("beegfs-ctl --listnodes --nodetype=client --sysMgmtHost=10.140.63.10", "skep session list"),
        (
            "beegfs-ctl --getentryinfo --mount=/mnt/beegfs /mnt/beegfs/benchmark --verbose",
            "skep entry info /mnt/beegfs/benchmark",
        ),
        (
            "beegfs-ctl --getentryinfo /mnt/15g-perf/Benchmarks/ --cfgFile=/etc/beegfs/beegfs-client-15Gperf.conf",
            "skep entry info /mnt/15g-perf/Benchmarks/",
        ),
        ("beegfs-ctl --setpattern", "skep entry set PATH"),
        (
            "pdsh -g oss \"TERM=linux thrlo=256 thrhi=256 nobjlo=1 nobjhi=1 rsz=1024K size=32768 obdfilter-survey\"",
            "skep bench storage run --block 1MiB --size 128MiB --threads 256 --objects 1",
        ),
    ] {
        let Relative { instead, because, .. } = found(line).unwrap_or_else(|why| panic!("{line}: {why}"));
        assert_eq!(instead, command, "{line}");
        assert!(!because.is_empty());
    }
    let off = found("echo 0 > /proc/fs/beegfs/<clientID>/netbench_mode").unwrap();
    assert!(off.because.contains("nothing to switch off"));
    assert!(found("qperf beegfs002 rc_bi_bw").unwrap_err().contains("RDMA"));
}

/// Goal: more of each tool's options than the papers use, each with what it must become.
#[test]
fn further_options() {
    let of = |line: &str| one(Tool::Ior, line).0;
    let job = of("-w -W -R -D 30 -O stoneWallingWearOut=1 -k -s 16 -b 47008 -t 47008");
    assert_eq!(job.stonewall, Some(Stonewall { after_ms: 30_000, wear_out: true, repeat: false }));
    assert!(job.keep && io(&job).phases[1].verify && io(&job).phases[2].verify);
    assert_eq!(io(&job).segments, 16);
    assert_eq!(io(&of("-z -F")).phases[1].order, Order::Random);
    let job = of("-r -Z -X 7 -Y --posix.odirect -o /a/f@/b/f -F");
    assert_eq!((io(&job).readers, io(&job).direct), (Readers::Random { seed: 7 }, true));
    assert_eq!((io(&job).paths.len(), io(&job).fsync), (2, Fsync::Every { transfers: 1 }));
    assert!(job.existing && job.keep, "what a run did not write stays");
    let job = one(Tool::Mdtest, "-n 100 -N 1 -R17 -w 4k -e 4k -y -X -W 5 -p 2 -d /a@/b").0;
    assert_eq!(meta(&job).readers, Readers::Shift { workers: 1 });
    assert_eq!((meta(&job).items, meta(&job).things, job.seed), (Items::Total(100), Things::Both, 17));
    assert!(meta(&job).fsync && meta(&job).verify && meta(&job).random_order && !meta(&job).own_tree);
    assert_eq!((job.delay_ms, meta(&job).paths.len()), (2_000, 2));
    let job = one(Tool::Iozone, "-i0 -i1 -i5 -j 3 -+d -o -T -t 4 -F a b c d -s 64 -r 4").0;
    assert_eq!((job.workers.processes, job.workers.threads), (1, 4));
    assert_eq!((io(&job).sync, io(&job).listed, io(&job).block), (SyncMode::Full, true, 64 << 10));
    assert!(io(&job).phases.iter().all(|phase| phase.verify != phase.kind.writes()));
    let job = one(
        Tool::Fio,
        "--name=v --rw=write --size=4m --verify=crc32c --end_fsync=1 --filename=/mnt/t/v --numjobs=2 --thread",
    )
    .0;
    assert_eq!((io(&job).share, io(&job).fsync, job.workers.threads), (Share::Whole, Fsync::AtEnd, 2));
    assert!(io(&job).phases[1].verify);
}

/// Goal: an option that cannot be honoured is an error that names it and says what to do; so is an unknown one.
#[test]
fn what_cannot_be_honoured_is_named() {
    for (tool, line, option, says) in [
        (Tool::Ior, "-w -c", "-c", "POSIX calls only"),
        (Tool::Ior, "-a MPIIO", "ior: -a MPIIO cannot be honoured", "POSIX"),
        (Tool::Ior, "-w -O api=MPIIO", "ior: -O api=MPIIO cannot be honoured", "POSIX"),
        (Tool::Ior, "-w -O keepFile=1,api=MPIIO", "api=MPIIO cannot be honoured", "POSIX"),
        (Tool::Mdtest, "-n 1 -a MPIIO", "mdtest: -a MPIIO cannot be honoured", "POSIX"),
        (Tool::Ior, "-w -M 75%", "-M 75%", "no memory is hogged"),
        (Tool::Ior, "-w -O collective=1", "ior: -O collective=1 cannot be honoured", "POSIX"),
        (Tool::Ior, "-w -O nonsense=1", "nonsense", "does not document"),
        (Tool::Ior, "-w --nonsense", "--nonsense", "no option of ior"),
        (Tool::Ior, "-w -t 3m -b 4m", "-b", "no multiple"),
        (Tool::Ior, "-w file", "file", "belongs to no option"),
        (Tool::Ior, "-w -i 0", "the command line", "repetitions"),
        (Tool::Ior, "-w -z", "-z", "--shared segmented"),
        (Tool::Ior, "-w -z -C", "-z", "without -F"),
        (Tool::Ior, "-w -F -z -z", "-z -z", "-b larger than -t"),
        (Tool::Ior, "-w -r -F -W -C", "-W", "one node more than -Q"),
        (Tool::Ior, "-w -R -F -W -Z", "-W", "task's own data"),
        (Tool::Ior, "mdtest -C", "mdtest", "skep bench mdtest"),
        (Tool::Mdtest, "-n 1 -B", "-B", "phases are always apart"),
        (Tool::Mdtest, "-F -C", "-n or -I", "how many items"),
        (Tool::Mdtest, "-n 1 -I 1", "-n", "contradicts -I"),
        (Tool::Mdtest, "-n 1 -C -E -e 4k", "-e asks for 4096 bytes", "with 0, at which mdtest fails"),
        (Tool::Mdtest, "-n 1 -w 1k -e 4k", "-e asks for 4096 bytes", "with 1024, at which mdtest fails"),
        (Tool::Mdtest, "-n 1 -w 1k -X", "-X", "nothing without -e"),
        (Tool::Iozone, "-a", "-a", "not swept"),
        (Tool::Iozone, "-i 8 -t 4", "-i 8", "randrw"),
        (Tool::Iozone, "-i 0 -+p 50", "-+p 50", "use -i 2"),
        (Tool::Iozone, "-i 0 -+m nofile", "-+m nofile", "no such file"),
        (Tool::Iozone, "-i 0 ++m list", "++m", "belongs to no option"),
        (Tool::Fio, "--name=x --size=1m --rate=1m", "--rate=1m", "not held back"),
        (Tool::Fio, "--name=x --size=1m --ioengine=libaio --iodepth=4", "--iodepth=4", "use numjobs"),
        (Tool::Fio, "--name=a --size=1m --name=b --size=1m", "job b", "add stonewall"),
        (Tool::Fio, "--name=a", "job a", "needs size="),
        (Tool::Fio, "--name=a --size=1m --filename=/mnt/t/short", "job a", "has fewer than"),
        (Tool::Fio, "--name=a --size=1m --nonsense=1", "--nonsense=1", "no option of fio"),
        (Tool::Elbencho, "-w -s 1g --gpuids 0 /mnt/f", "--gpuids 0", "graphics"),
        (Tool::Elbencho, "-w -s 1g --iodepth 8 /mnt/f", "--iodepth 8", "more threads"),
        (Tool::Elbencho, "-w -s 1g -t 3 /mnt/f", "-s", "no multiple"),
        (Tool::Elbencho, "-w -s 1g", "the command line", "names no directory"),
    ] {
        let error = translated(tool, line).map(|t| format!("{:?}", t.jobs)).unwrap_err();
        assert!(error.contains(option) && error.contains(says), "{line}: {error}");
    }
}

/// Goal: no option is passed over in silence: every one of the line is explained.
#[test]
fn every_option_is_explained() {
    let line =
        "mpirun -np 4 --byslot ior -v -wr -i5 -t512k -b1m -F -C -g -e -o /a/b -O checkRead=1,keepFile=1";
    let understood = translated(Tool::Ior, line).unwrap().understood;
    let options: Vec<_> = understood.iter().map(|line| line.option.as_str()).collect();
    let expected = "-np 4|--byslot|-v|-w|-r|-i5|-t512k|-b1m|-F|-C|-g|-e|-o /a/b|-O checkRead=1,keepFile=1";
    assert_eq!(options, expected.split('|').collect::<Vec<_>>());
    assert!(understood.iter().all(|line| !line.meaning.is_empty()));
    assert!(understood[2].meaning.starts_with("no effect"));
}
