//! IOzone 3: `iozone -i 0 -i 1 -c -e -w -r 1m -s 8g -t 64 -I -+n -+m CLIENTS`.

use super::launch::host_file;
use super::size::{Units, bytes};
use super::words::{Given, Known, Syntax, Takes, ignored, number, refused, used};
use super::{Cause, Launch, Surroundings, Tool, Understood, no_rest, options};
use crate::job::{Fsync, IoJob, IoKind, IoPhase, Job, Order, Placement, Share, SyncMode, Work, Workers};

const TALK: &str = "concerns the tool's own output";
const AUTO: &str = "sizes are not swept: run it once for each, or use `skep survey`";
const MAPPED: &str = "no mapped memory: use it with IOzone itself";
const ASYNC: &str = "a worker has one call at a time: use more processes";
const CACHE: &str = "processor caches are not purged between tests";
const DEDUPE: &str = "what is written cannot be deduplicated or compressed";

const KNOWN: &[Known] = &[
    refused("a", "auto", Takes::Nothing, AUTO),
    refused("A", "auto-all", Takes::Nothing, AUTO),
    refused("b", "excel-file", Takes::Value, "use --output csv"),
    refused("B", "mmap", Takes::Nothing, MAPPED),
    used("c", "close", Takes::Nothing),
    ignored("C", "child-bytes", Takes::Nothing, "results show every worker anyway"),
    refused("d", "delay", Takes::Value, "all begin together; the skew is in the results"),
    refused("D", "msync-async", Takes::Nothing, MAPPED),
    used("e", "flush", Takes::Nothing),
    refused("E", "extended", Takes::Nothing, "name the tests by -i"),
    used("f", "file", Takes::Value),
    used("F", "files", Takes::List),
    refused("g", "max-size", Takes::Value, AUTO),
    refused("G", "msync", Takes::Nothing, MAPPED),
    refused("h", "help", Takes::Nothing, "see `skep bench iozone --help`"),
    refused("H", "async", Takes::Value, ASYNC),
    used("i", "test", Takes::Value),
    used("I", "direct", Takes::Nothing),
    used("j", "stride", Takes::Value),
    refused("J", "compute", Takes::Value, "workers do not compute between calls"),
    refused("k", "async-nocopy", Takes::Value, ASYNC),
    refused("K", "jitter", Takes::Nothing, "use -i 2 for random reads"),
    used("l", "least", Takes::Value),
    ignored("L", "line-size", Takes::Value, CACHE),
    ignored("m", "multi-buffer", Takes::Nothing, "each worker has a buffer of its own"),
    ignored("M", "uname", Takes::Nothing, TALK),
    refused("n", "min-size", Takes::Value, AUTO),
    ignored("N", "microseconds", Takes::Nothing, "results hold rates and latencies"),
    used("o", "sync", Takes::Nothing),
    ignored("O", "operations", Takes::Nothing, "results hold operations per second"),
    ignored("p", "purge", Takes::Nothing, CACHE),
    ignored("P", "bind", Takes::Value, "where a worker's processor is, is left to the kernel"),
    refused("q", "max-record", Takes::Value, AUTO),
    ignored("Q", "latency-files", Takes::Nothing, "results hold latency percentiles"),
    used("r", "record", Takes::Value),
    ignored("R", "excel", Takes::Nothing, TALK),
    used("s", "size", Takes::Value),
    ignored("S", "cache-size", Takes::Value, CACHE),
    used("t", "processes", Takes::Value),
    used("T", "threads", Takes::Nothing),
    used("u", "most", Takes::Value),
    refused("U", "remount", Takes::Value, "nothing is unmounted: use -I, or let other hosts read"),
    refused("v", "version", Takes::Nothing, "see `skep --version`"),
    used("V", "verify", Takes::Value),
    used("w", "keep", Takes::Nothing),
    refused("W", "lock", Takes::Nothing, "workers take no locks"),
    ignored(
        "x",
        "no-stonewall",
        Takes::Nothing,
        "results hold both figures: at the first worker's end and the whole",
    ),
    refused("X", "write-telemetry", Takes::Value, "offsets follow from the job"),
    refused("y", "min-record", Takes::Value, AUTO),
    refused("Y", "read-telemetry", Takes::Value, "offsets follow from the job"),
    refused("z", "all-records", Takes::Nothing, AUTO),
    refused("Z", "mixed-mmap", Takes::Nothing, MAPPED),
    used("+d", "diagnose", Takes::Nothing),
    used("+D", "dsync", Takes::Nothing),
    used("+E", "existing", Takes::Nothing),
    ignored("+h", "controller", Takes::Value, "agents are called, they do not call back"),
    refused("+k", "constant-aggregate", Takes::Nothing, "divide -s by -t yourself"),
    ignored("+l", "record-locks-off", Takes::Nothing, "workers take no locks"),
    used("+m", "clients", Takes::Value),
    used("+n", "no-retest", Takes::Nothing),
    refused("+N", "no-truncate", Takes::Nothing, "files are made anew: use -+E for existing ones"),
    refused("+p", "percent-read", Takes::Value, "use -i 2, or `skep bench fio -- --rw=randrw`"),
    refused("+q", "test-delay", Takes::Value, "tests follow one another at once"),
    used("+r", "rsync", Takes::Nothing),
    refused("+t", "network", Takes::Nothing, "use `skep bench net`"),
    ignored("+T", "timestamps", Takes::Nothing, TALK),
    ignored("+u", "cpu-use", Takes::Nothing, TALK),
    refused(
        "+V",
        "shared-file",
        Takes::Nothing,
        "use `skep bench io --shared segmented` for one file of all",
    ),
    refused("+w", "dedupe", Takes::Value, DEDUPE),
    refused("+y", "dedupe-inside", Takes::Value, DEDUPE),
    refused("+C", "compressible", Takes::Value, DEDUPE),
    refused("+A", "madvise", Takes::Value, MAPPED),
    ignored("+z", "histogram", Takes::Nothing, "results hold latency percentiles"),
];

const SYNTAX: Syntax = Syntax { tool: Tool::Iozone, known: KNOWN, single_dash_long: false, any_case: false };

/// IOzone's stride when `-j` is not given, in records.
const STRIDE: u64 = 17;

/// Tests that write.
const WRITING: [u32; 3] = [0, 2, 9];

struct Settings {
    job: Job,
    io: IoJob,
    tests: Vec<u32>,
    processes: Option<u32>,
    least: Option<u32>,
    most: Option<u32>,
    threads: bool,
    retest: bool,
    verify: bool,
    read_only: bool,
    stride: u64,
}

pub(super) fn translate(
    words: &[String],
    launch: &mut Launch,
    around: &Surroundings<'_>,
    understood: &mut Vec<Understood>,
) -> Result<Vec<Job>, Cause> {
    let io = IoJob {
        name: "iozone.DUMMY".to_owned(),
        transfer: 4 << 10,
        block: 512 << 10,
        time_fsync: false,
        time_close: false,
        fsync: Fsync::AtEnd,
        ..IoJob::new(&around.absolute("."))
    };
    let mut settings = Settings {
        job: Job::new(Work::Io(io.clone())),
        io,
        tests: Vec::new(),
        processes: None,
        least: None,
        most: None,
        threads: false,
        retest: true,
        verify: false,
        read_only: false,
        stride: STRIDE,
    };
    let rest = options(&SYNTAX, words, understood, |given| apply(given, &mut settings, launch, around))?;
    no_rest(&rest)?;
    finish(settings, launch, understood).map(|job| vec![job])
}

fn apply(
    given: &Given,
    s: &mut Settings,
    launch: &mut Launch,
    around: &Surroundings<'_>,
) -> Result<String, String> {
    let text = match given.name {
        "close" => {
            s.io.time_close = true;
            "close within the time"
        }
        "flush" => {
            s.io.time_fsync = true;
            "fsync within the time"
        }
        "direct" => {
            s.io.direct = true;
            "O_DIRECT"
        }
        "sync" | "rsync" => {
            s.io.sync = SyncMode::Full;
            "O_SYNC"
        }
        "dsync" => {
            s.io.sync = SyncMode::Data;
            "O_DSYNC"
        }
        "keep" => {
            s.job.keep = true;
            "the files stay"
        }
        "existing" => {
            s.read_only = true;
            "the files are there already: they are read only, and stay"
        }
        "threads" => {
            s.threads = true;
            "threads of one process"
        }
        "no-retest" => {
            s.retest = false;
            "each test once"
        }
        "diagnose" | "verify" => {
            s.verify = true;
            "every byte that is read is compared"
        }
        "files" => {
            s.io.paths = given.list.iter().map(|path| around.absolute(path)).collect();
            s.io.listed = true;
            "a named file for each worker"
        }
        "file" => {
            s.io.paths = vec![around.absolute(&given.value)];
            s.io.listed = true;
            "this file"
        }
        "clients" => return clients(&given.value, s, launch, around),
        _ => return apply_value(given.name, &given.value, s),
    };
    Ok(text.to_owned())
}

/// `-+m`: a line `host directory program` for each process.
fn clients(
    path: &str,
    s: &mut Settings,
    launch: &mut Launch,
    around: &Surroundings<'_>,
) -> Result<String, String> {
    let text = (around.read)(path)?;
    let lines: Vec<Vec<&str>> = text
        .lines()
        .map(|line| line.split('#').next().unwrap_or("").split_whitespace().collect())
        .filter(|words: &Vec<&str>| !words.is_empty())
        .collect();
    let Some(first) = lines.first() else {
        return Err(format!("{path} names no client; expected lines `host directory program`"));
    };
    let mut directories: Vec<String> =
        lines.iter().filter_map(|words| words.get(1)).map(|directory| around.absolute(directory)).collect();
    if directories.len() != lines.len() {
        return Err(format!("{path}: expected lines `host directory program`"));
    }
    if directories.iter().all(|directory| *directory == directories[0]) {
        directories.truncate(1);
    }
    s.io.paths = directories;
    launch.hosts = host_file(&text)?.into_iter().map(|slots| slots.host).collect();
    let together = lines.get(1).is_some_and(|second| second[0] == first[0]);
    launch.placement =
        Some(if together && launch.hosts.len() > 1 { Placement::BySlot } else { Placement::ByNode });
    Ok(format!("{} hosts; each must run `skep bench agent`", launch.hosts.len()))
}

fn apply_value(name: &str, value: &str, s: &mut Settings) -> Result<String, String> {
    Ok(match name {
        "test" => {
            let test = number(value)?;
            if let Some(why) = refused_test(test) {
                return Err(format!("cannot be honoured: {why}"));
            }
            s.tests.push(test);
            meaning_of_test(test).to_owned()
        }
        "record" => {
            s.io.transfer = bytes(value, Units::Kibibytes)?;
            format!("{} bytes at a call", s.io.transfer)
        }
        "size" => {
            s.io.block = bytes(value, Units::Kibibytes)?;
            format!("{} bytes of each worker", s.io.block)
        }
        "processes" => {
            s.processes = Some(number(value)?);
            format!("{value} workers")
        }
        "least" => {
            s.least = Some(number(value)?);
            "least number of workers".to_owned()
        }
        "most" => {
            s.most = Some(number(value)?);
            "largest number of workers".to_owned()
        }
        "stride" => {
            s.stride = number(value)?;
            format!("every {value}th record")
        }
        _ => return Err("is not understood".to_owned()),
    })
}

fn meaning_of_test(test: u32) -> &'static str {
    match test {
        0 | 9 => "write and rewrite",
        1 | 10 => "read and reread",
        2 => "random read and random write",
        3 => "read backwards",
        _ => "read with a stride",
    }
}

fn refused_test(test: u32) -> Option<&'static str> {
    match test {
        0..=3 | 5 | 9 | 10 => None,
        4 => Some("no record is written again and again: use -i 0"),
        6 | 7 => Some("no buffers of stdio: use -i 0 and -i 1"),
        8 => Some("it gives whole processes one role: use -i 2, or `skep bench fio -- --rw=randrw`"),
        11 | 12 => Some("no vectored calls: use -i 9 and -i 10"),
        _ => Some("IOzone documents the tests 0 to 12"),
    }
}

fn phases(s: &Settings) -> Vec<IoPhase> {
    let mut phases = Vec::new();
    let mut tests = s.tests.clone();
    tests.sort_unstable();
    tests.dedup();
    for test in tests {
        let of = |kind, order| IoPhase::new(kind).in_order(order);
        match test {
            0 | 9 => {
                phases.push(of(IoKind::Write, Order::Forward));
                phases.extend(s.retest.then(|| of(IoKind::Rewrite, Order::Forward)));
            }
            1 | 10 => {
                phases.push(of(IoKind::Read, Order::Forward));
                phases.extend(s.retest.then(|| of(IoKind::Reread, Order::Forward)));
            }
            2 => {
                phases.push(of(IoKind::Read, Order::Random));
                phases.push(of(IoKind::Rewrite, Order::Random));
            }
            3 => phases.push(of(IoKind::Read, Order::Backward)),
            _ => phases.push(of(IoKind::Read, Order::Stride { transfers: s.stride })),
        }
    }
    for phase in &mut phases {
        phase.verify = s.verify && matches!(phase.kind, IoKind::Read | IoKind::Reread);
    }
    phases
}

fn finish(mut s: Settings, launch: &mut Launch, understood: &mut Vec<Understood>) -> Result<Job, Cause> {
    let mut note = |option: &str, meaning: &str| understood.push(Understood::new(option, meaning));
    if s.tests.is_empty() {
        s.tests = if s.read_only { vec![1] } else { vec![0, 1] };
        note("no -i", if s.read_only { "read, reread" } else { "write, rewrite, read, reread" });
    }
    if s.read_only {
        if let Some(test) = s.tests.iter().find(|test| WRITING.contains(test)) {
            let why = "writes, and -+E only reads files that are there: use -i 1, 3, 5 or 10 with it";
            return Err(Cause::new(format!("-i {test}"), why));
        }
        if s.verify {
            let why = "with -+E compares with what somebody else wrote: leave it out";
            return Err(Cause::new("-+d or -V", why));
        }
        (s.job.existing, s.job.keep) = (true, true);
    }
    if s.io.transfer == 0 || !s.io.block.is_multiple_of(s.io.transfer) {
        return Err(Cause::new(
            "-s",
            "is no multiple of the record size -r: IOzone would leave the rest out",
        ));
    }
    match (s.least, s.most) {
        (None, None) => {}
        (Some(least), Some(most)) if least == most && s.processes.is_none() => s.processes = Some(least),
        _ => {
            return Err(Cause::new(
                "-l and -u",
                "sweep the number of processes, which is not done: use -t, or `skep survey`",
            ));
        }
    }
    if s.io.listed && s.processes.is_some_and(|processes| processes as usize != s.io.paths.len()) {
        return Err(Cause::new("-F", "must name as many files as -t has processes"));
    }
    s.io.phases = phases(&s);
    if s.io.phases.first().is_some_and(|phase| phase.kind.needs_data()) && !s.job.existing {
        // Files that are there are not this run's to remove, whatever IOzone does without -w.
        (s.job.existing, s.job.keep) = (true, true);
        note("no -i 0", "the files must be there, from a run with -i 0 -w");
    }
    s.io.share = Share::PerWorker;
    let workers = s.processes.unwrap_or(1);
    let (processes, threads) = if s.threads { (1, workers) } else { (workers, 1) };
    s.job.workers = Workers { processes, threads, placement: launch.placement.unwrap_or_default() };
    launch.processes = Some(processes);
    s.job.work = Work::Io(s.io);
    Ok(s.job)
}
