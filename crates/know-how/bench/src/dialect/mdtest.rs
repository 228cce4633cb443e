//! mdtest 1.9 to 4.0: `mdtest -C -T -r -F -L -z 2 -b 8 -I 122 -u -i 5 -d DIR`.

use super::size::{Units, bytes};
use super::words::{Given, Known, Syntax, Takes, ignored, number, refused, used};
use super::{Cause, Launch, Surroundings, Tool, Understood, no_rest, options};
use crate::job::{
    Items, Job, Lookup, MetaJob, MetaPhase, Placement, Readers, Stonewall, Things, Work, Workers,
};

const TALK: &str = "concerns the tool's own output";

const KNOWN: &[Known] = &[
    used("a", "api", Takes::Value),
    used("b", "branching", Takes::Value),
    refused("B", "no-barriers", Takes::Nothing, "phases are always apart, or their rates would mean nothing"),
    refused("c", "collective", Takes::Nothing, "every worker makes its own files: run it with one process"),
    used("C", "create", Takes::Nothing),
    used("d", "directory", Takes::Value),
    used("D", "directories-only", Takes::Nothing),
    used("e", "read-bytes", Takes::Value),
    used("E", "read", Takes::Nothing),
    refused("f", "first", Takes::Value, "run it once for each number of processes"),
    used("F", "files-only", Takes::Nothing),
    ignored("g", "default-striping", Takes::Nothing, "concerns Lustre"),
    ignored("G", "random-buffer", Takes::Value, "what is written follows from the file's name"),
    refused("h", "help", Takes::Nothing, "see `skep bench mdtest --help`"),
    used("i", "iterations", Takes::Value),
    used("I", "items-per-directory", Takes::Value),
    refused("k", "mknod", Takes::Nothing, "files are made by open(O_CREAT)"),
    refused("l", "last", Takes::Value, "run it once for each number of processes"),
    used("L", "leaf-only", Takes::Nothing),
    refused("M", "rank-stat", Takes::Nothing, "every worker's time is in the results"),
    used("n", "items", Takes::Value),
    used("N", "stride", Takes::Value),
    used("p", "delay", Takes::Value),
    ignored("P", "rate-and-time", Takes::Nothing, TALK),
    used("r", "remove", Takes::Nothing),
    used("R", "random", Takes::Attached),
    refused("s", "task-stride", Takes::Value, "run it once for each number of processes"),
    refused("S", "shared-file", Takes::Nothing, "every item is a file of its own"),
    used("t", "time-unique", Takes::Nothing),
    used("T", "stat", Takes::Nothing),
    used("u", "unique", Takes::Nothing),
    used("U", "rename-dirs", Takes::Nothing),
    ignored("v", "verbose", Takes::Nothing, TALK),
    ignored("V", "verbosity", Takes::Value, TALK),
    used("w", "write-bytes", Takes::Value),
    used("W", "stonewall", Takes::Value),
    refused("x", "stonewall-file", Takes::Value, "run all phases in one command: they share the stonewall"),
    used("X", "verify-read", Takes::Nothing),
    used("y", "fsync", Takes::Nothing),
    refused("Y", "sync", Takes::Nothing, "sync(2) flushes what others wrote too: use -y with -w"),
    used("z", "depth", Takes::Value),
    ignored("Z", "print-time", Takes::Nothing, "results hold rates and times"),
    used("", "posix.odirect", Takes::Nothing),
    refused("", "run-cmd-before-phase", Takes::Value, "no other programs are run"),
    refused("", "run-cmd-after-phase", Takes::Value, "no other programs are run"),
    refused("", "saveRankPerformanceDetails", Takes::Value, "use --output json"),
    refused("", "savePerOpDataCSV", Takes::Value, "use --output csv"),
    ignored("", "warningAsErrors", Takes::Nothing, TALK),
    ignored("", "showRankStatistics", Takes::Nothing, "results show every worker's time anyway"),
];

const SYNTAX: Syntax = Syntax { tool: Tool::Mdtest, known: KNOWN, single_dash_long: false, any_case: true };

/// The name of the directory that mdtest makes below `-d`.
const DIRECTORY: &str = "test-dir.0-0";

struct Settings {
    job: Job,
    meta: MetaJob,
    phases: [bool; 4],
    things: [bool; 2],
    per_directory: Option<u64>,
    total: Option<u64>,
    stride: u32,
    rename: bool,
    sync: bool,
}

pub(super) fn translate(
    words: &[String],
    launch: &mut Launch,
    around: &Surroundings<'_>,
    understood: &mut Vec<Understood>,
) -> Result<Vec<Job>, Cause> {
    let meta = MetaJob {
        name: DIRECTORY.to_owned(),
        own_tree: false,
        // mdtest prints the rates of the tree in any case.
        time_tree: true,
        lookup: Lookup::Path,
        paths: Vec::new(),
        ..MetaJob::new("/")
    };
    let mut settings = Settings {
        job: Job::new(Work::Meta(meta.clone())),
        meta,
        phases: [false; 4],
        things: [false; 2],
        per_directory: None,
        total: None,
        stride: 0,
        rename: false,
        sync: false,
    };
    let rest = options(&SYNTAX, words, understood, |given| apply(given, &mut settings, around))?;
    no_rest(&rest)?;
    finish(settings, launch, around, understood).map(|job| vec![job])
}

fn apply(given: &Given, s: &mut Settings, around: &Surroundings<'_>) -> Result<String, String> {
    let value = given.value.as_str();
    let meta = &mut s.meta;
    let text = match given.name {
        "create" => {
            s.phases[0] = true;
            "create"
        }
        "stat" => {
            s.phases[1] = true;
            "stat"
        }
        "read" => {
            s.phases[2] = true;
            "open, read, close"
        }
        "remove" => {
            s.phases[3] = true;
            "remove"
        }
        "directories-only" => {
            s.things[0] = true;
            "directories only"
        }
        "files-only" => {
            s.things[1] = true;
            "files only"
        }
        "leaf-only" => {
            meta.tree.leaf_only = true;
            "items in the lowest level only"
        }
        "unique" => {
            meta.own_tree = true;
            "a tree of its own for each worker"
        }
        "time-unique" => "the tree's own directories are timed, which they are anyway",
        "verify-read" => {
            meta.verify = true;
            "what is read is compared"
        }
        "rename-dirs" => {
            s.rename = true;
            "directories are renamed before they are removed"
        }
        "fsync" => {
            s.sync = true;
            "fsync of each file that was written"
        }
        "posix.odirect" => {
            meta.direct = true;
            "O_DIRECT"
        }
        _ => return apply_value(given.name, value, s, around),
    };
    Ok(text.to_owned())
}

fn apply_value(
    name: &str,
    value: &str,
    s: &mut Settings,
    around: &Surroundings<'_>,
) -> Result<String, String> {
    let meta = &mut s.meta;
    Ok(match name {
        "api" if value.eq_ignore_ascii_case("POSIX") => "POSIX calls, as always".to_owned(),
        "api" => return Err("cannot be honoured: calls here are POSIX".to_owned()),
        "branching" => {
            meta.tree.branching = number(value)?;
            format!("{value} directories below each")
        }
        "depth" => {
            meta.tree.depth = number(value)?;
            format!("{value} levels below the root")
        }
        "directory" => {
            meta.paths = value.split('@').map(|path| around.absolute(path)).collect();
            format!("below {}", meta.paths.join(", "))
        }
        "items-per-directory" => {
            s.per_directory = Some(number(value)?);
            format!("{value} items in each directory")
        }
        "items" => {
            s.total = Some(number(value)?);
            format!("{value} items of each worker")
        }
        "iterations" => {
            s.job.repetitions = number(value)?;
            format!("{value} repetitions")
        }
        "delay" => {
            s.job.delay_ms = number::<u64>(value)?.saturating_mul(1_000);
            format!("{value} s between repetitions")
        }
        "stride" => {
            s.stride = number(value)?;
            format!(
                "stat uses the items of the worker {value} further, read twice and remove three times so far"
            )
        }
        "random" => {
            meta.random_order = true;
            if !value.is_empty() {
                s.job.seed = number(value)?;
            }
            "stat in random order".to_owned()
        }
        "write-bytes" => {
            meta.write_bytes = bytes(value, Units::Bytes)?;
            format!("{} bytes written to each file", meta.write_bytes)
        }
        "read-bytes" => {
            meta.read_bytes = bytes(value, Units::Bytes)?;
            format!("{} bytes read from each file", meta.read_bytes)
        }
        "stonewall" => {
            let seconds: u64 = number(value)?;
            if seconds == 0 {
                return Ok("no effect: with mdtest, 0 means that no clock ends anything".to_owned());
            }
            let after_ms = seconds.saturating_mul(1_000);
            s.job.stonewall = Some(Stonewall { after_ms, wear_out: true, repeat: false });
            format!("create ends after {value} s, then all do as much as the fastest had")
        }
        _ => return Err("is not understood".to_owned()),
    })
}

/// What mdtest refuses itself, or fails at file by file: more read than was written, and a comparison of nothing.
fn check_reads(create: bool, read: bool, meta: &MetaJob) -> Result<(), Cause> {
    let (wrote, reads) = (meta.write_bytes, meta.read_bytes);
    if create && read && reads > wrote {
        let text = format!(
            "asks for {reads} bytes of files that -C makes with {wrote}, at which mdtest fails: write as many by -w, or \
             leave -C out to read files that an earlier run kept"
        );
        return Err(Cause::new("-e", text));
    }
    if meta.verify && read && reads == 0 {
        return Err(Cause::new("-X", "compares nothing without -e: say how many bytes to read"));
    }
    Ok(())
}

fn finish(
    mut s: Settings,
    launch: &Launch,
    around: &Surroundings<'_>,
    understood: &mut Vec<Understood>,
) -> Result<Job, Cause> {
    let mut note = |option: &str, meaning: String| understood.push(Understood::new(option, meaning));
    if s.phases == [false; 4] {
        s.phases = [true; 4];
        note("none of -C -T -E -r", "all four phases, as mdtest does".to_owned());
    }
    if s.meta.paths.is_empty() {
        s.meta.paths = vec![around.absolute(".")];
        note("no -d", format!("below {}", s.meta.paths[0]));
    }
    s.meta.items = match (s.per_directory, s.total) {
        (Some(_), Some(_)) => {
            return Err(Cause::new("-n", "contradicts -I: give one of them, as mdtest demands"));
        }
        (Some(items), None) => Items::PerDirectory(items),
        (None, Some(items)) => Items::Total(items),
        (None, None) => return Err(Cause::new("-n or -I", "is needed: how many items?")),
    };
    s.meta.things = match s.things {
        [true, true] => {
            return Err(Cause::new("-D", "contradicts -F: leave both out for files and directories"));
        }
        [true, false] => Things::Directories,
        [false, true] => Things::Files,
        [false, false] => Things::Both,
    };
    if s.stride > 0 {
        // Where workers fill one host after the other, mdtest multiplies the stride by the workers of a host.
        s.meta.readers = match launch.placement {
            Some(Placement::BySlot) => Readers::ShiftNode { nodes: s.stride },
            _ => Readers::Shift { workers: s.stride },
        };
        s.meta.readers_move_on = true;
    }
    s.meta.fsync = s.sync && s.meta.write_bytes > 0;
    if s.sync && !s.meta.fsync {
        note(
            "-y without -w",
            "no effect: mdtest calls fsync after a write, and the files are empty".to_owned(),
        );
    }
    if s.rename && s.meta.things == Things::Both {
        return Err(Cause::new("-U", "renames directories only: run -D and -F apart, -U with -D"));
    }
    if s.rename && s.meta.things == Things::Files {
        note("-U with -F", "no effect: only directories are renamed".to_owned());
        s.rename = false;
    }
    let order = [MetaPhase::Create, MetaPhase::Stat, MetaPhase::OpenRead, MetaPhase::Remove];
    s.meta.phases = order.into_iter().zip(s.phases).filter(|(_, on)| *on).map(|(phase, _)| phase).collect();
    if s.rename {
        let at = s.meta.phases.iter().position(|phase| *phase == MetaPhase::Remove);
        s.meta.phases.insert(at.unwrap_or(s.meta.phases.len()), MetaPhase::Rename);
    }
    s.meta.stonewall_creates = s.job.stonewall.is_some();
    let [create, _, read, remove] = s.phases;
    check_reads(create, read, &s.meta)?;
    s.job.existing = !create;
    s.job.keep = !remove;
    if s.job.keep {
        note("no -r", "the items stay".to_owned());
    }
    s.job.workers = Workers {
        processes: launch.processes.unwrap_or(1),
        threads: 1,
        placement: launch.placement.unwrap_or_default(),
    };
    s.job.work = Work::Meta(s.meta);
    Ok(s.job)
}
