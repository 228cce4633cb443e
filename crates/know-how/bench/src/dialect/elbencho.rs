//! elbencho: `elbencho -t 2 -d -n 16 -w -N 10000 -s 512k -b 512k DIRECTORY`, or files instead of directories.

use super::launch::host_file;
use super::size::{Units, bytes};
use super::words::{Given, Known, Syntax, Takes, ignored, number, refused, used};
use super::{Cause, Launch, Surroundings, Tool, Understood, found_or_laid_out, options};
use crate::job::{
    Fsync, IoJob, IoKind, IoPhase, Items, Job, MetaJob, MetaPhase, Order, Share, Stonewall, Things,
    TreeShape, Work, Workers,
};

const TALK: &str = "concerns the tool's own output";
const LATENCY: &str = "results hold latency percentiles";
const RESULTS: &str = "use --output json or csv and redirect it";
const GPU: &str = "no graphics processors take part";
const SERVICE: &str = "use `skep bench agent`";
const OBJECTS: &str = "files and directories only";

const KNOWN: &[Known] = &[
    used("b", "block", Takes::Value),
    used("d", "mkdirs", Takes::Nothing),
    used("w", "write", Takes::Nothing),
    used("r", "read", Takes::Nothing),
    used("", "stat", Takes::Nothing),
    used("F", "delfiles", Takes::Nothing),
    used("D", "deldirs", Takes::Nothing),
    used("t", "threads", Takes::Value),
    used("n", "dirs", Takes::Value),
    used("N", "files", Takes::Value),
    used("s", "size", Takes::Value),
    used("i", "iterations", Takes::Value),
    used("", "direct", Takes::Nothing),
    used("", "iodepth", Takes::Value),
    used("", "rand", Takes::Nothing),
    used("", "randamount", Takes::Value),
    ignored("", "randalign", Takes::Nothing, "offsets are multiples of the block size anyway"),
    refused("", "norandalign", Takes::Nothing, "offsets are multiples of the block size"),
    ignored("", "randalgo", Takes::Value, "the order is drawn by a generator of its own"),
    used("", "backward", Takes::Nothing),
    used("", "rwmixpct", Takes::Value),
    refused("", "rwmixthr", Takes::Value, "workers have no roles: use --rwmixpct"),
    used("", "verify", Takes::Value),
    ignored("", "verifydirect", Takes::Nothing, "what is written is read back after the write phase"),
    used("", "dirsharing", Takes::Nothing),
    used("", "timelimit", Takes::Value),
    used("", "infloop", Takes::Nothing),
    used("", "hosts", Takes::Value),
    used("", "hostsfile", Takes::Value),
    used("", "sync", Takes::Nothing),
    refused("", "dropcache", Takes::Nothing, "the machine's caches are left alone: use --direct"),
    used("", "preallocfile", Takes::Nothing),
    used("", "trunc", Takes::Nothing),
    refused("", "trunctosize", Takes::Nothing, "files grow as they are written"),
    ignored(
        "",
        "blockvarpct",
        Takes::Value,
        "what is written cannot be compressed, and no block of it comes twice",
    ),
    ignored(
        "",
        "blockvaralgo",
        Takes::Value,
        "what is written cannot be compressed, and no block of it comes twice",
    ),
    ignored("", "lat", Takes::Nothing, LATENCY),
    ignored("", "lathisto", Takes::Nothing, LATENCY),
    ignored("", "latpercent", Takes::Nothing, LATENCY),
    ignored("", "latpercent9s", Takes::Value, LATENCY),
    ignored("", "allelapsed", Takes::Nothing, "results hold every worker's time"),
    ignored("", "svcelapsed", Takes::Nothing, "results hold every worker's time"),
    ignored("", "cpu", Takes::Nothing, TALK),
    ignored("", "dirstats", Takes::Nothing, TALK),
    ignored("", "label", Takes::Value, TALK),
    ignored("", "log", Takes::Value, TALK),
    ignored("", "live1", Takes::Nothing, TALK),
    ignored("", "live1n", Takes::Nothing, TALK),
    ignored("", "liveint", Takes::Value, TALK),
    ignored("", "nolive", Takes::Nothing, TALK),
    ignored("", "no0usecerr", Takes::Nothing, "short phases are shown"),
    ignored("", "nodiocheck", Takes::Nothing, "what O_DIRECT needs is checked by the kernel"),
    ignored("", "nopathexp", Takes::Nothing, "brackets in paths are taken as they are"),
    ignored("", "nofdsharing", Takes::Nothing, "every worker opens its files itself"),
    refused("", "csvfile", Takes::Value, RESULTS),
    refused("", "resfile", Takes::Value, RESULTS),
    refused("", "jsonfile", Takes::Value, RESULTS),
    refused("", "livecsv", Takes::Value, RESULTS),
    refused("", "opslog", Takes::Value, RESULTS),
    refused("c", "configfile", Takes::Value, "give the options on the command line"),
    refused(
        "",
        "nosvcshare",
        Takes::Nothing,
        "all hosts see the same files; without it run each host for itself",
    ),
    refused("", "nodelerr", Takes::Nothing, "a missing file is an error"),
    refused("", "phasedelay", Takes::Value, "phases follow one another at once"),
    refused("", "limitread", Takes::Value, "workers are not held back"),
    refused("", "limitwrite", Takes::Value, "workers are not held back"),
    refused("", "readinline", Takes::Nothing, "use -r for a phase of its own"),
    refused("", "statinline", Takes::Nothing, "use --stat for a phase of its own"),
    refused("", "mmap", Takes::Nothing, "no mapped memory"),
    refused("", "madv", Takes::Value, "no mapped memory"),
    refused(
        "",
        "fadv",
        Takes::Value,
        "nothing is told to the kernel: use `skep bench fio -- --fadvise_hint=1`",
    ),
    refused("", "cores", Takes::Value, "where a worker's processor is, is left to the kernel"),
    refused("", "zones", Takes::Value, "where a worker's processor is, is left to the kernel"),
    refused("", "treefile", Takes::Value, "use `skep bench files` for a tree"),
    refused("", "rankoffset", Takes::Value, "workers are numbered from 0"),
    refused("", "start", Takes::Value, "all begin when the agents are ready"),
    refused("", "service", Takes::Nothing, SERVICE),
    refused("", "quit", Takes::Nothing, SERVICE),
    refused("", "interrupt", Takes::Nothing, SERVICE),
    refused("", "port", Takes::Value, SERVICE),
    refused("", "netbench", Takes::Nothing, "use `skep bench net`"),
    refused("", "dryrun", Takes::Nothing, "use --explain"),
    refused("", "gpuids", Takes::Value, GPU),
    refused("", "cufile", Takes::Nothing, GPU),
    refused("", "gds", Takes::Nothing, GPU),
    refused("", "hdfs", Takes::Nothing, OBJECTS),
    refused("", "s3endpoints", Takes::Value, OBJECTS),
    refused("", "s3key", Takes::Value, OBJECTS),
    refused("", "s3secret", Takes::Value, OBJECTS),
    refused("h", "help", Takes::Nothing, "see `skep bench elbencho --help`"),
];

const SYNTAX: Syntax =
    Syntax { tool: Tool::Elbencho, known: KNOWN, single_dash_long: false, any_case: false };

#[derive(Default)]
struct Settings {
    threads: Option<u32>,
    dirs: Option<u32>,
    files: Option<u64>,
    size: u64,
    block: Option<u64>,
    iterations: Option<u32>,
    mkdirs: bool,
    write: bool,
    read: bool,
    stat: bool,
    delfiles: bool,
    deldirs: bool,
    direct: bool,
    random: bool,
    amount: Option<u64>,
    backward: bool,
    mix: Option<u8>,
    verify: bool,
    sharing: bool,
    limit_s: u64,
    endless: bool,
    sync: bool,
    preallocate: bool,
    truncate: bool,
}

/// elbencho's own default.
const BLOCK: u64 = 1 << 20;

pub(super) fn translate(
    words: &[String],
    launch: &mut Launch,
    around: &Surroundings<'_>,
    understood: &mut Vec<Understood>,
) -> Result<Vec<Job>, Cause> {
    let mut settings = Settings::default();
    let paths = options(&SYNTAX, words, understood, |given| apply(given, &mut settings, launch, around))?;
    if !around.hosts.is_empty() {
        launch.hosts = around.hosts.to_vec();
    }
    if paths.is_empty() {
        return Err(Cause::new("the command line", "names no directory or file"));
    }
    let paths: Vec<String> = paths.iter().map(|path| around.absolute(path)).collect();
    for path in &paths {
        understood.push(Understood::new(path, "worked on"));
    }
    let s = settings;
    let on_directories = s.mkdirs || s.deldirs || s.dirs.is_some() || s.files.is_some() || s.stat;
    let mut laid_out = None;
    let work = if on_directories || paths.iter().all(|path| (around.is_dir)(path)) {
        Work::Meta(trees(&s, paths)?)
    } else {
        let mut io = large_files(&s, paths, launch)?;
        if s.write && s.mix.is_some() {
            let workers = s.threads.unwrap_or(1).saturating_mul((launch.hosts.len() as u32).max(1));
            let found = found_or_laid_out(&mut io, workers, around);
            laid_out = Some(found.map_err(|why| Cause::new("--rwmixpct", why))?);
        }
        Work::Io(io)
    };
    let mut job = Job::new(work);
    job.repetitions = s.iterations.unwrap_or(1);
    // elbencho writes over what it finds.
    job.existing = laid_out.unwrap_or(!s.write || matches!(job.work, Work::Io(_)));
    job.keep = !s.delfiles;
    if job.keep {
        understood.push(Understood::new("no -F", "the files stay"));
    }
    if s.limit_s > 0 {
        job.stonewall =
            Some(Stonewall { after_ms: s.limit_s.saturating_mul(1_000), wear_out: false, repeat: s.endless });
    } else if s.endless {
        return Err(Cause::new("--infloop", "needs --timelimit, or it would never end"));
    }
    // Every host of elbencho has the threads that -t says.
    let processes = u32::try_from(launch.hosts.len()).unwrap_or(u32::MAX).max(1);
    job.workers = Workers { processes, threads: s.threads.unwrap_or(1), ..Workers::default() };
    launch.processes = Some(processes);
    Ok(vec![job])
}

fn apply(
    given: &Given,
    s: &mut Settings,
    launch: &mut Launch,
    around: &Surroundings<'_>,
) -> Result<String, String> {
    let text = match given.name {
        "mkdirs" => {
            s.mkdirs = true;
            "make the directories"
        }
        "write" => {
            s.write = true;
            "write"
        }
        "read" => {
            s.read = true;
            "read"
        }
        "stat" => {
            s.stat = true;
            "stat the files"
        }
        "delfiles" => {
            s.delfiles = true;
            "remove the files"
        }
        "deldirs" => {
            s.deldirs = true;
            "remove the directories"
        }
        "direct" => {
            s.direct = true;
            "O_DIRECT"
        }
        "rand" => {
            s.random = true;
            "random order"
        }
        "backward" => {
            s.backward = true;
            "from back to front"
        }
        "dirsharing" => {
            s.sharing = true;
            "all workers in the same directories"
        }
        "infloop" => {
            s.endless = true;
            "starts over until the time is up"
        }
        "sync" => {
            s.sync = true;
            "fsync after writing, outside the time"
        }
        "trunc" => {
            s.truncate = true;
            "files that are there are emptied before they are written"
        }
        "preallocfile" => {
            s.preallocate = true;
            "space is set aside first"
        }
        _ => return apply_value(given.name, &given.value, s, launch, around),
    };
    Ok(text.to_owned())
}

fn apply_value(
    name: &str,
    value: &str,
    s: &mut Settings,
    launch: &mut Launch,
    around: &Surroundings<'_>,
) -> Result<String, String> {
    Ok(match name {
        "threads" => {
            s.threads = Some(number(value)?);
            format!("{value} threads on each host")
        }
        "dirs" => {
            s.dirs = Some(number(value)?);
            format!("{value} directories of each worker")
        }
        "files" => {
            s.files = Some(number(value)?);
            format!("{value} files in each directory")
        }
        "size" => {
            s.size = bytes(value, Units::Bytes)?;
            format!("{} bytes of each file", s.size)
        }
        "block" => {
            let block = bytes(value, Units::Bytes)?;
            s.block = Some(block);
            format!("{block} bytes at a call")
        }
        "iterations" => {
            s.iterations = Some(number(value)?);
            format!("{value} repetitions")
        }
        "iodepth" if value == "1" => "one call at a time".to_owned(),
        "iodepth" => {
            return Err("cannot be honoured: a worker has one call at a time; use more threads".to_owned());
        }
        "randamount" => {
            s.amount = Some(bytes(value, Units::Bytes)?);
            "bytes of all workers".to_owned()
        }
        "rwmixpct" => {
            let percent: u8 = number(value)?;
            s.mix = Some(percent).filter(|p| *p <= 100);
            if s.mix.is_none() {
                return Err("is no percentage".to_owned());
            }
            format!("{percent} of 100 calls read")
        }
        "verify" => {
            s.verify = value != "0";
            "what was written is compared".to_owned()
        }
        "timelimit" => {
            s.limit_s = number(value)?;
            format!("each phase ends after {value} s")
        }
        "hosts" => {
            launch.hosts = value.split([',', ' ']).filter(|h| !h.is_empty()).map(str::to_owned).collect();
            "these hosts; each must run `skep bench agent`".to_owned()
        }
        "hostsfile" => {
            let hosts = host_file(&(around.read)(value)?)?;
            launch.hosts = hosts.into_iter().map(|slots| slots.host).collect();
            format!("{} hosts; each must run `skep bench agent`", launch.hosts.len())
        }
        _ => return Err("is not understood".to_owned()),
    })
}

/// Many files in directories.
fn trees(s: &Settings, paths: Vec<String>) -> Result<MetaJob, Cause> {
    for (given, option) in [
        (s.random, "--rand"),
        (s.backward, "--backward"),
        (s.mix.is_some(), "--rwmixpct"),
        (s.sync, "--sync"),
        (s.preallocate, "--preallocfile"),
    ] {
        if given {
            return Err(Cause::new(option, "cannot be honoured in directories: name large files instead"));
        }
    }
    let mut phases = Vec::new();
    phases.extend(s.write.then_some(MetaPhase::Create));
    phases.extend(s.stat.then_some(MetaPhase::Stat));
    phases.extend(s.read.then_some(MetaPhase::OpenRead));
    phases.extend(s.delfiles.then_some(MetaPhase::Remove));
    if s.mkdirs && !s.write {
        return Err(Cause::new(
            "-d",
            "without -w makes directories only: use `skep bench meta` for them, or add -w",
        ));
    }
    if phases.is_empty() {
        return Err(Cause::new("the command line", "asks for no phase on files: use -w, --stat, -r or -F"));
    }
    let dirs = s.dirs.unwrap_or(1);
    let tree = if dirs == 0 {
        TreeShape::default()
    } else {
        TreeShape { branching: dirs, depth: 1, leaf_only: true }
    };
    Ok(MetaJob {
        paths,
        name: "skep-bench-elbencho".to_owned(),
        tree,
        items: Items::PerDirectory(s.files.unwrap_or(1)),
        things: Things::Files,
        phases,
        own_tree: !s.sharing && dirs > 0,
        write_bytes: s.size,
        read_bytes: s.size,
        transfer: s.block.unwrap_or(BLOCK).min(s.size),
        direct: s.direct,
        verify: s.verify,
        time_tree: s.mkdirs || s.deldirs,
        ..MetaJob::new("/")
    })
}

/// Large files that all workers share, or one for each.
fn large_files(s: &Settings, paths: Vec<String>, launch: &Launch) -> Result<IoJob, Cause> {
    let workers = u64::from(s.threads.unwrap_or(1)) * (launch.hosts.len() as u64).max(1);
    if workers == 0 {
        return Err(Cause::new("-t", "must be at least 1"));
    }
    let files = paths.len() as u64;
    let (share, block) = match (files, s.random, s.amount) {
        (1, true, Some(amount)) if workers > 1 && amount == s.size.saturating_mul(workers) => {
            (Share::Whole, s.size)
        }
        (1, true, _) if workers > 1 => {
            let why =
                "with several threads reads all of the file at random: add --randamount of size x threads";
            return Err(Cause::new("--rand", why));
        }
        (1, _, _) if workers == 1 => (Share::PerWorker, s.size),
        (1, ..) if s.size.is_multiple_of(workers) => (Share::Segmented, s.size / workers),
        (1, ..) => {
            return Err(Cause::new("-s", "is no multiple of the number of threads: choose one that is"));
        }
        (_, true, _) if files > 1 => {
            return Err(Cause::new("--rand", "over several files cannot be honoured: name one file"));
        }
        _ if files == workers => (Share::PerWorker, s.size),
        _ => return Err(Cause::new("-t", "must be the number of files, or name one file")),
    };
    if s.amount.is_some_and(|amount| amount != block.saturating_mul(workers)) {
        return Err(Cause::new("--randamount", "must be the size of the file, or size x threads"));
    }
    let order = match (s.random, s.backward) {
        (true, _) if share == Share::Whole => Order::RandomRepeating,
        (true, _) => Order::Random,
        (_, true) => Order::Backward,
        _ => Order::Forward,
    };
    let mut phases = Vec::new();
    if s.write {
        phases.push(s.mix.map_or(IoKind::Write, |read_percent| IoKind::Mixed { read_percent }));
    }
    phases.extend(s.read.then_some(IoKind::Read));
    let mut phases: Vec<_> = phases.into_iter().map(|kind| IoPhase::new(kind).in_order(order)).collect();
    phases.iter_mut().for_each(|phase| phase.verify = s.verify && phase.kind == IoKind::Read);
    if phases.is_empty() {
        return Err(Cause::new("the command line", "asks for no phase: use -w or -r"));
    }
    Ok(IoJob {
        paths,
        listed: true,
        share,
        phases,
        transfer: s.block.unwrap_or(BLOCK).min(block.max(1)),
        block,
        direct: s.direct,
        fsync: if s.sync { Fsync::AtEnd } else { Fsync::Never },
        time_fsync: false,
        time_close: false,
        preallocate: s.preallocate,
        truncate: s.truncate,
        fresh: false,
        ..IoJob::new("/")
    })
}
