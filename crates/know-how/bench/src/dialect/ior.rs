//! IOR 2.10 to 4.0: `ior -w -r -i 3 -t 2m -b 128g -F -e -g -C -o FILE -O key=value,...`.

use super::size::{Units, bytes};
use super::words::{Fate, Given, Known, Syntax, Takes, ignored, number, refused, switch, used};
use super::{Cause, Launch, Surroundings, Tool, Understood, no_rest, options};
use crate::job::{
    Fsync, IoJob, IoKind, IoPhase, Job, Order, Readers, Share, Stonewall, Striping, Work, Workers,
};

const MPI_IO: &str = "belongs to MPI-IO or HDF5; calls here are POSIX";
const ONLY_MPI: &str = "the file is moved by POSIX calls only: leave it out, or measure with IOR itself";
const TALK: &str = "concerns the tool's own output";

const KNOWN: &[Known] = &[
    used("a", "api", Takes::Value),
    ignored("A", "refNum", Takes::Value, TALK),
    used("b", "blockSize", Takes::Value),
    used("B", "useO_DIRECT", Takes::Nothing),
    used("", "posix.odirect", Takes::Nothing),
    refused("c", "collective", Takes::Nothing, ONLY_MPI),
    used("C", "reorderTasksConstant", Takes::Nothing),
    used("", "reorderTasks", Takes::Nothing),
    used("d", "interTestDelay", Takes::Value),
    used("D", "deadlineForStonewalling", Takes::Value),
    used("", "stoneWallingWearOut", Takes::Nothing),
    used("e", "fsync", Takes::Nothing),
    used("E", "useExistingTestFile", Takes::Nothing),
    refused(
        "f",
        "scriptFile",
        Takes::Value,
        "give the options on the command line, the script's directives by -O",
    ),
    used("F", "filePerProc", Takes::Nothing),
    used("g", "intraTestBarriers", Takes::Nothing),
    ignored("G", "setTimeStampSignature", Takes::Value, "what is written names file and offset, not a time"),
    refused("h", "showHelp", Takes::Nothing, "see `skep bench ior --help`"),
    ignored("H", "showHints", Takes::Nothing, MPI_IO),
    used("i", "repetitions", Takes::Value),
    ignored("I", "individualDataSets", Takes::Nothing, MPI_IO),
    ignored("j", "outlierThreshold", Takes::Value, "results show every worker's time anyway"),
    ignored("J", "setAlignment", Takes::Value, MPI_IO),
    used("k", "keepFile", Takes::Nothing),
    ignored(
        "K",
        "keepFileWithError",
        Takes::Nothing,
        "the run ends at the first wrong byte and says where it is",
    ),
    ignored(
        "l",
        "dataPacketType",
        Takes::Value,
        "what is written cannot be compressed, and no block of it comes twice",
    ),
    refused("m", "multiFile", Takes::Nothing, "every repetition writes the same names: run it once for each"),
    refused(
        "M",
        "memoryPerNode",
        Takes::Value,
        "no memory is hogged: use -B, -C or files larger than the memory",
    ),
    ignored("n", "noFill", Takes::Nothing, MPI_IO),
    used("N", "numTasks", Takes::Value),
    used("o", "testFile", Takes::Value),
    used("O", "directives", Takes::Value),
    ignored("p", "preallocate", Takes::Nothing, MPI_IO),
    refused("P", "useSharedFilePointer", Takes::Nothing, ONLY_MPI),
    ignored("q", "quitOnError", Takes::Nothing, "the run ends at the first wrong byte anyway"),
    used("Q", "taskPerNodeOffset", Takes::Value),
    used("r", "readFile", Takes::Nothing),
    used("R", "checkRead", Takes::Nothing),
    used("s", "segmentCount", Takes::Value),
    refused("S", "useStridedDatatype", Takes::Nothing, ONLY_MPI),
    used("t", "transferSize", Takes::Value),
    refused(
        "T",
        "maxTimeDuration",
        Takes::Value,
        "phases are not counted by the clock: use -D to stop each after a time",
    ),
    refused("u", "uniqueDir", Takes::Nothing, "name the directories in -o, separated by @"),
    refused("U", "hintsFileName", Takes::Value, ONLY_MPI),
    ignored("v", "verbose", Takes::Nothing, TALK),
    refused("V", "useFileView", Takes::Nothing, ONLY_MPI),
    used("w", "writeFile", Takes::Nothing),
    used("W", "checkWrite", Takes::Nothing),
    ignored("x", "singleXferAttempt", Takes::Nothing, "a transfer that comes short is continued"),
    used("X", "reorderTasksRandomSeed", Takes::Value),
    used("Y", "fsyncPerWrite", Takes::Nothing),
    refused(
        "y",
        "dualMount",
        Takes::Nothing,
        "one mount point at a time (an fsync of each transfer is -Y): name the directories in -o, separated by @",
    ),
    used("z", "randomOffset", Takes::Nothing),
    used("Z", "reorderTasksRandom", Takes::Nothing),
    used("", "beegfsNumTargets", Takes::Value),
    used("", "beegfsChunkSize", Takes::Value),
    used("", "lustreStripeCount", Takes::Value),
    used("", "lustreStripeSize", Takes::Value),
    refused("", "lustreStartOST", Takes::Value, "targets are chosen by the file system"),
    refused("", "lustreIgnoreLocks", Takes::Nothing, "there is no such lock to leave out"),
    refused("", "gpfsHintAccess", Takes::Nothing, "is a hint for another file system"),
    refused("", "gpfsReleaseToken", Takes::Nothing, "is a hint for another file system"),
    refused("", "memoryPerTask", Takes::Value, "no memory is hogged"),
    refused("", "summaryFile", Takes::Value, "use --output json and redirect it"),
    refused("", "summaryFormat", Takes::Value, "use --output"),
    ignored("", "summaryAlways", Takes::Nothing, TALK),
    ignored("", "warningAsErrors", Takes::Nothing, "warnings of this kind are errors already"),
];

const SYNTAX: Syntax = Syntax { tool: Tool::Ior, known: KNOWN, single_dash_long: false, any_case: true };

/// IOR's own defaults.
struct Settings {
    job: Job,
    io: IoJob,
    write: bool,
    read: bool,
    check_write: bool,
    check_read: bool,
    shift: bool,
    shuffle: bool,
    random: bool,
    overlapping: bool,
    nodes: u32,
    seed: u64,
    wear_out: bool,
    deadline: u64,
    fsync: bool,
    fsync_each: bool,
    tasks: Option<u32>,
}

impl Settings {
    fn new(directory: &str) -> Self {
        let mut io = IoJob::new(directory);
        io.name = "testFile".to_owned();
        io.share = Share::Segmented;
        io.transfer = 256 << 10;
        io.block = 1 << 20;
        // The rate that IOR prints counts from the first open to the last close.
        io.time_open = true;
        let job = Job::new(Work::Io(io.clone()));
        Self {
            job,
            io,
            write: false,
            read: false,
            check_write: false,
            check_read: false,
            shift: false,
            shuffle: false,
            random: false,
            overlapping: false,
            nodes: 1,
            seed: 0,
            wear_out: false,
            deadline: 0,
            fsync: false,
            fsync_each: false,
            tasks: None,
        }
    }
}

pub(super) fn translate(
    words: &[String],
    launch: &mut Launch,
    around: &Surroundings<'_>,
    understood: &mut Vec<Understood>,
) -> Result<Vec<Job>, Cause> {
    let mut settings = Settings::new(&around.absolute("."));
    let mut directives = Vec::new();
    let rest = options(&SYNTAX, words, understood, |given| {
        if given.name == "directives" {
            let lines = from_directives(&given.value, &mut settings, around)?;
            let meaning = lines.iter().map(|(key, meaning)| format!("{key}: {meaning}")).collect::<Vec<_>>();
            directives.extend(lines);
            return Ok(meaning.join("; "));
        }
        apply(given, &mut settings, around)
    })?;
    no_rest(&rest)?;
    finish(settings, launch, understood).map(|job| vec![job])
}

/// `-O key=value,key=value`: the long names of the options, in any case.
fn from_directives(
    text: &str,
    settings: &mut Settings,
    around: &Surroundings<'_>,
) -> Result<Vec<(String, String)>, String> {
    let mut lines = Vec::new();
    for piece in text.split(',').filter(|piece| !piece.trim().is_empty()) {
        let (key, value) = piece.split_once('=').ok_or_else(|| format!("\"{piece}\" is not key=value"))?;
        let (key, value) = (key.trim(), value.trim());
        let known = KNOWN
            .iter()
            .find(|known| known.long.eq_ignore_ascii_case(key) && known.long != "directives")
            .ok_or_else(|| format!("has the directive {key}, which IOR does not document"))?;
        let given = Given {
            name: known.long,
            written: piece.to_owned(),
            value: value.to_owned(),
            list: Vec::new(),
            fate: known.fate,
        };
        // The option itself is named already: one that is all of it is not named again.
        let named = |why: String| if piece == text { why } else { format!("{piece} {why}") };
        let meaning = match known.fate {
            Fate::Used => apply(&given, settings, around).map_err(named)?,
            Fate::Ignored(why) => format!("no effect: {why}"),
            // `key=0` asks for nothing.
            Fate::Refused(_) if matches!(switch(value), Ok(false)) => "off".to_owned(),
            Fate::Refused(why) => return Err(named(format!("cannot be honoured: {why}"))),
        };
        lines.push((known.long.to_owned(), meaning));
    }
    Ok(lines)
}

fn apply(given: &Given, s: &mut Settings, around: &Surroundings<'_>) -> Result<String, String> {
    let value = given.value.as_str();
    let flag = || switch(value);
    let said = |text: &str| Ok(text.to_owned());
    match given.name {
        "writeFile" => s.write = flag()?,
        "readFile" => s.read = flag()?,
        "checkWrite" => s.check_write = flag()?,
        "checkRead" => s.check_read = flag()?,
        "useO_DIRECT" | "posix.odirect" => s.io.direct = flag()?,
        "reorderTasksConstant" | "reorderTasks" => s.shift = flag()?,
        "reorderTasksRandom" => s.shuffle = flag()?,
        "randomOffset" => {
            // Said twice, offsets are drawn anew each time and overlap.
            s.overlapping = s.random && flag()?;
            s.random = flag()?;
        }
        "stoneWallingWearOut" => s.wear_out = flag()?,
        "fsync" => s.fsync = flag()?,
        "fsyncPerWrite" => s.fsync_each = flag()?,
        "intraTestBarriers" => s.io.barriers = flag()?,
        "keepFile" => s.job.keep = flag()?,
        "filePerProc" => s.io.share = if flag()? { Share::PerWorker } else { Share::Segmented },
        "useExistingTestFile" => {
            s.job.existing = flag()?;
            s.io.fresh = !s.job.existing;
        }
        _ => return apply_value(given.name, value, s, around),
    }
    said(match given.name {
        "writeFile" => "write",
        "readFile" => "read",
        "checkWrite" => "read back and compare after writing",
        "checkRead" => "compare what is read, within the timed pass",
        "useO_DIRECT" | "posix.odirect" => "O_DIRECT",
        "reorderTasksConstant" | "reorderTasks" => "read what a worker on the next host wrote",
        "reorderTasksRandom" => "read what a worker drawn at random wrote",
        "randomOffset" if s.overlapping => "offsets drawn anew each time: some come twice, some never",
        "randomOffset" => "transfers in random order",
        "stoneWallingWearOut" => "after the deadline all do as much as the fastest had",
        "fsync" => "fsync at the end, within the time",
        "fsyncPerWrite" => "fsync after each transfer",
        "intraTestBarriers" => "barriers between open, transfers and close",
        "keepFile" => "the files stay",
        "filePerProc" => "a file for each worker",
        _ => "existing files are written over",
    })
}

fn apply_value(
    name: &str,
    value: &str,
    s: &mut Settings,
    around: &Surroundings<'_>,
) -> Result<String, String> {
    Ok(match name {
        "api" if value.eq_ignore_ascii_case("POSIX") => "POSIX calls, as always".to_owned(),
        "api" => return Err("cannot be honoured: calls here are POSIX".to_owned()),
        "blockSize" => {
            s.io.block = bytes(value, Units::Bytes)?;
            format!("{} bytes in one piece for each worker", s.io.block)
        }
        "transferSize" => {
            s.io.transfer = bytes(value, Units::Bytes)?;
            format!("{} bytes at a call", s.io.transfer)
        }
        "segmentCount" => {
            s.io.segments = number(value)?;
            format!("{} such pieces for each worker", s.io.segments)
        }
        "repetitions" => {
            s.job.repetitions = number(value)?;
            format!("{} repetitions", s.job.repetitions)
        }
        "interTestDelay" => {
            s.job.delay_ms = number::<u64>(value)?.saturating_mul(1_000);
            format!("{value} s between repetitions")
        }
        "deadlineForStonewalling" => {
            s.deadline = number(value)?;
            format!("each phase ends after {value} s")
        }
        "numTasks" => {
            s.tasks = Some(number(value)?).filter(|tasks| *tasks > 0);
            format!("{value} worker processes")
        }
        "taskPerNodeOffset" => {
            s.nodes = number(value)?;
            format!("{value} hosts further")
        }
        "reorderTasksRandomSeed" => {
            s.seed = number::<i64>(value)?.unsigned_abs();
            format!("drawn with the seed {}", s.seed)
        }
        "beegfsNumTargets" | "lustreStripeCount" => {
            let targets = number(value)?;
            s.io.striping.get_or_insert_with(Striping::default).targets = Some(targets).filter(|t| *t > 0);
            format!("new files over {targets} targets, where the file system lets one say so")
        }
        "beegfsChunkSize" | "lustreStripeSize" => {
            let chunk = bytes(value, Units::Bytes)?;
            s.io.striping.get_or_insert_with(Striping::default).chunk_size = Some(chunk).filter(|c| *c > 0);
            format!("new files in chunks of {chunk} bytes, where the file system lets one say so")
        }
        "testFile" => {
            let places = value.split('@').map(|path| around.place(path)).collect::<Result<Vec<_>, _>>()?;
            let (_, name) = places.first().ok_or("names no file")?;
            if places.iter().any(|(_, other)| other != name) {
                return Err(
                    "the last components differ: give all files the same name, in several directories"
                        .to_owned(),
                );
            }
            s.io.name.clone_from(name);
            s.io.paths = places.into_iter().map(|(directory, _)| directory).collect();
            format!("the file {} in {}", s.io.name, s.io.paths.join(", "))
        }
        _ => return Err("is not understood".to_owned()),
    })
}

/// IOR shares the offsets of the whole file out among its tasks at random, and draws blocks where the option
/// stands twice; workers here stay within their own blocks, and draw transfers.
fn random_offsets(s: &Settings) -> Result<(), Cause> {
    if s.random && s.io.share != Share::PerWorker {
        let why = "cannot be honoured without -F: IOR deals the offsets of the whole shared file out to its tasks; \
                   use -F, or `skep bench io --shared segmented --phases random-write,random-read`, in which each \
                   worker keeps to its own blocks";
        return Err(Cause::new("-z", why));
    }
    if s.overlapping && s.io.block != s.io.transfer {
        let why = "cannot be honoured with -b larger than -t: IOR draws blocks and goes through each in order; \
                   use -b as large as -t and more segments (-s)";
        return Err(Cause::new("-z -z", why));
    }
    Ok(())
}

/// Whose data is read. A job has one answer for all its reads; IOR has another for the check after a write,
/// which goes one node further than the timed read, so that this finds no cache warm.
fn readers(s: &Settings) -> Result<Readers, Cause> {
    let reads = s.read || s.check_read;
    match (s.shift, s.shuffle) {
        (false, false) => Ok(Readers::Own),
        (shift, _) if s.check_write && reads => {
            let why = if shift {
                "cannot be honoured with -C and a read: IOR checks the data of one node more than -Q says, so that \
                 the read finds no cache warm"
            } else {
                "cannot be honoured with -Z and a read: IOR checks a task's own data, and reads another's"
            };
            Err(Cause::new("-W", format!("{why}; run -w -W -k first, then -r alone, or use -R to compare")))
        }
        (true, _) => {
            let further = u32::from(s.check_write);
            Ok(Readers::ShiftNode { nodes: s.nodes.saturating_add(further) })
        }
        (_, true) if s.check_write => Ok(Readers::Own),
        (_, true) => Ok(Readers::Random { seed: s.seed }),
    }
}

fn finish(mut s: Settings, launch: &mut Launch, understood: &mut Vec<Understood>) -> Result<Job, Cause> {
    let mut note = |option: &str, meaning: &str| understood.push(Understood::new(option, meaning));
    if !(s.write || s.read || s.check_write || s.check_read) {
        (s.write, s.read) = (true, true);
        note("neither -w nor -r", "both, as IOR does");
    }
    if !s.io.block.is_multiple_of(s.io.transfer.max(1)) {
        return Err(Cause::new("-b", "is no multiple of -t, which IOR refuses as well"));
    }
    if s.shift && s.shuffle {
        return Err(Cause::new("-Z", "contradicts -C: choose one"));
    }
    if s.shuffle && s.nodes != 1 {
        return Err(Cause::new("-Q", "cannot be honoured with -Z: use -C, or leave -Q out"));
    }
    if s.io.paths.len() > 1 && s.io.share != Share::PerWorker {
        return Err(Cause::new("-o", "names several files, which IOR uses with -F only"));
    }
    random_offsets(&s)?;
    s.io.readers = readers(&s)?;
    s.io.fsync = match (s.fsync_each, s.fsync) {
        (true, _) => Fsync::Every { transfers: 1 },
        (_, true) => Fsync::AtEnd,
        _ => Fsync::Never,
    };
    let order = match (s.random, s.overlapping) {
        (true, true) => Order::RandomRepeating,
        (true, false) => Order::Random,
        _ => Order::Forward,
    };
    let phase = |kind| IoPhase::new(kind).in_order(order);
    let mut phases = Vec::new();
    if s.write {
        phases.push(phase(IoKind::Write));
    }
    if s.check_write {
        phases.push(phase(if s.read { IoKind::Reread } else { IoKind::Read }).verified());
    }
    if s.read || s.check_read {
        let read = phase(IoKind::Read);
        phases.push(if s.check_read { read.verified() } else { read });
    }
    s.io.phases = phases;
    if !s.write {
        s.job.existing = true;
        s.job.keep = true;
        note("no -w", "the files must be there, and stay (IOR removes them without -k)");
    }
    if s.deadline > 0 {
        s.job.stonewall = Some(Stonewall {
            after_ms: s.deadline.saturating_mul(1_000),
            wear_out: s.wear_out,
            repeat: false,
        });
    }
    if let Some(tasks) = s.tasks {
        if launch.processes.is_some_and(|processes| processes < tasks) {
            return Err(Cause::new("-N", "asks for more tasks than the launcher starts"));
        }
        launch.processes = Some(tasks);
    }
    s.job.workers = Workers {
        processes: launch.processes.unwrap_or(1),
        threads: 1,
        placement: launch.placement.unwrap_or_default(),
    };
    s.job.work = Work::Io(s.io);
    Ok(s.job)
}
