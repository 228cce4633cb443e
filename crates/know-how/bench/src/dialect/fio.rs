//! fio 3: `fio --name=test --rw=readwrite --size=1G --direct=1 --bs=128k`, and simple job files.

use super::fio_file::{Section, Sections};
use super::size::{Units, bytes};
use super::words::{number, switch};
use super::{Cause, Launch, Surroundings, Understood, found_or_laid_out};
use crate::job::{Fsync, IoJob, IoKind, IoPhase, Job, Order, Share, Stonewall, SyncMode, Work, Workers};

/// Changes nothing that is measured here.
const IGNORED: &[(&str, &str)] = &[
    ("group_reporting", "results are always of all workers together"),
    ("output", "redirect the output"),
    ("output-format", "use --output"),
    ("eta", "progress is shown on a terminal"),
    ("eta-newline", "progress is shown on a terminal"),
    ("eta-interval", "progress is shown on a terminal"),
    ("minimal", "use --output"),
    ("append-terse", "use --output"),
    ("max-jobs", "there is a limit of its own"),
    ("description", "words only"),
    ("percentile_list", "results hold latency percentiles"),
    ("lat_percentiles", "results hold latency percentiles"),
    ("clat_percentiles", "results hold latency percentiles"),
    ("slat_percentiles", "results hold latency percentiles"),
    ("disable_lat", "latencies are always taken"),
    ("disable_clat", "latencies are always taken"),
    ("disable_slat", "latencies are always taken"),
    ("gtod_reduce", "latencies are always taken"),
    ("random_generator", "the order is drawn by a generator of its own"),
    ("refill_buffers", "what is written cannot be compressed, and no block of it comes twice"),
    ("scramble_buffers", "no block that is written comes twice in any case"),
    ("randomize_buffers", "what is written cannot be compressed in any case"),
    ("iodepth_batch", "one call at a time"),
    ("iodepth_batch_submit", "one call at a time"),
    ("iodepth_batch_complete", "one call at a time"),
    ("iodepth_low", "one call at a time"),
    ("exitall", "all jobs end together"),
    ("exitall_on_error", "an error ends the run"),
    ("verify_fatal", "the run ends at the first wrong byte"),
    ("verify_dump", "the first wrong byte is told with its place"),
    ("openfiles", "every worker has one file open"),
    ("file_service_type", "every worker has one file"),
    ("allow_file_create", "files are made where the job says so"),
    ("disk_util", "see `skep survey` for the devices"),
];

/// Cannot be honoured.
const REFUSED: &[(&str, &str)] = &[
    ("rate", "workers are not held back"),
    ("rate_iops", "workers are not held back"),
    ("thinktime", "workers do not pause between calls"),
    ("ramp_time", "the whole phase counts: choose a longer one"),
    ("startdelay", "all begin together"),
    ("bsrange", "one transfer size at a time"),
    ("bssplit", "one transfer size at a time"),
    ("bs_unaligned", "one transfer size at a time"),
    ("nrfiles", "a file for each worker: use more workers"),
    ("offset_increment", "use `skep bench io --shared segmented`"),
    ("zonesize", "no zones"),
    ("zonemode", "no zones"),
    ("fdatasync", "use fsync="),
    ("sync_file_range", "use fsync="),
    ("write_barrier", "use fsync="),
    ("random_distribution", "every offset is as likely as any other"),
    ("percentage_random", "an order is random or it is not"),
    ("filename_format", "use filename= or directory="),
    ("opendir", "use filename="),
    ("numa_cpu_nodes", "where a worker's processor is, is left to the kernel"),
    ("cpus_allowed", "where a worker's processor is, is left to the kernel"),
    ("nice", "workers run as they were started"),
    ("cgroup", "workers run as they were started"),
    ("write_bw_log", "use --output json"),
    ("write_lat_log", "use --output json"),
    ("write_iops_log", "use --output json"),
    ("client", "use --hosts with `skep bench agent`"),
    ("server", "use `skep bench agent`"),
    ("showcmd", "use --explain"),
    ("parse-only", "use --explain"),
    ("create_only", "use --explain, or keep the files of a run"),
    ("trim_percentage", "nothing is trimmed"),
    ("dedupe_percentage", "what is written cannot be deduplicated"),
    ("buffer_compress_percentage", "what is written cannot be compressed"),
    ("zero_buffers", "zeros say nothing about a file system that may not store them"),
    ("buffer_pattern", "what is written names file and offset"),
    ("steadystate", "choose a runtime"),
    ("latency_target", "one call at a time"),
    ("verify_only", "keep the files of a run, and read them with verify="),
    ("exec_prerun", "no other programs are run"),
    ("exec_postrun", "no other programs are run"),
];

/// Options that mean 1 (or nothing) when no value follows as the next word.
const SWITCHES: &[&str] = &[
    "group_reporting",
    "time_based",
    "thread",
    "stonewall",
    "wait_for_previous",
    "norandommap",
    "exitall",
    "exitall_on_error",
    "minimal",
    "append-terse",
    "parse-only",
    "showcmd",
    "create_serialize",
];

pub(super) fn translate(
    words: &[String],
    launch: &mut Launch,
    around: &Surroundings<'_>,
    understood: &mut Vec<Understood>,
) -> Result<Vec<Job>, Cause> {
    let sections = sections(words, around)?;
    if sections.is_empty() {
        return Err(Cause::new("--name", "is needed: it begins a job"));
    }
    if launch.processes.is_some_and(|processes| processes > 1) {
        return Err(Cause::new(
            "the launcher",
            "starts several fio, which know nothing of each other: use --numjobs",
        ));
    }
    let mut jobs = Vec::new();
    for (at, section) in sections.iter().enumerate() {
        let (job, apart) = job(section, around, understood)?;
        if at > 0 && !apart {
            let why =
                "would run at the same time as the job before it: add stonewall, or run one command for each";
            return Err(Cause::new(format!("job {}", section.name), why));
        }
        jobs.push(job);
    }
    Ok(jobs)
}

fn sections(words: &[String], around: &Surroundings<'_>) -> Result<Vec<Section>, Cause> {
    let mut sections = Sections::default();
    let mut at = 0;
    while let Some(word) = words.get(at) {
        at += 1;
        let Some(option) = word.strip_prefix("--") else {
            if word.starts_with('-') {
                return Err(Cause::new(word, "is no option of fio: they begin with two dashes"));
            }
            let text = (around.read)(word).map_err(|why| Cause::new(word, why))?;
            sections.file(word, &text)?;
            continue;
        };
        let (name, mut value) = match option.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (option, None),
        };
        if value.is_none() && !SWITCHES.contains(&name) {
            value = words.get(at).filter(|next| !next.starts_with("--")).map(String::as_str);
            at += usize::from(value.is_some());
        }
        match (name, value) {
            ("name", Some(value)) => sections.begin(value)?,
            ("name", None) => return Err(Cause::new(word, "needs a value")),
            ("section", _) => {
                return Err(Cause::new(word, "is not understood: give a file with this section alone"));
            }
            _ => sections.option(name, value),
        }
    }
    Ok(sections.finish())
}

struct Settings {
    job: Job,
    io: IoJob,
    rw: String,
    read_percent: u8,
    size: Option<u64>,
    jobs: u32,
    thread: bool,
    apart: bool,
    verify: bool,
    do_verify: bool,
    norandommap: bool,
    repeatable: bool,
    seed: Option<u64>,
    unlink: bool,
    runtime_ms: u64,
    time_based: bool,
    engine: String,
    depth: u32,
    file: bool,
}

fn job(
    section: &Section,
    around: &Surroundings<'_>,
    understood: &mut Vec<Understood>,
) -> Result<(Job, bool), Cause> {
    // fio's defaults: files laid out by fallocate, its order told to the kernel, the cache dropped before.
    let io = IoJob {
        name: section.name.replace('/', "_"),
        transfer: 4 << 10,
        fsync: Fsync::Never,
        time_close: false,
        preallocate: true,
        invalidate: true,
        advise: true,
        ..IoJob::new(&around.absolute("."))
    };
    let mut settings = Settings {
        job: Job::new(Work::Io(io.clone())),
        io,
        rw: "read".to_owned(),
        read_percent: 50,
        size: None,
        jobs: 1,
        thread: false,
        apart: false,
        verify: false,
        do_verify: true,
        norandommap: false,
        repeatable: true,
        seed: None,
        unlink: false,
        runtime_ms: 0,
        time_based: false,
        engine: "psync".to_owned(),
        depth: 1,
        file: false,
    };
    understood.push(Understood::new(format!("--name={}", section.name), "a job of this name"));
    for (name, value) in &section.options {
        let shown = match value {
            Some(value) => format!("--{name}={value}"),
            None => format!("--{name}"),
        };
        let name = name.as_str();
        let text = value.as_deref();
        let meaning = if let Some((_, why)) = IGNORED.iter().find(|(known, _)| *known == name) {
            format!("no effect: {why}")
        } else if let Some((_, why)) = REFUSED.iter().find(|(known, _)| *known == name) {
            allowed_if_trivial(name, text)
                .ok_or_else(|| Cause::new(&shown, format!("cannot be honoured: {why}")))?
        } else {
            apply(name, text, &mut settings, around).map_err(|why| Cause::new(&shown, why))?
        };
        understood.push(Understood::new(shown, meaning));
    }
    finish(settings, &section.name, around, understood)
}

/// A refused option that asks for nothing: `nrfiles=1`, `ramp_time=0`.
fn allowed_if_trivial(name: &str, value: Option<&str>) -> Option<String> {
    let nothing = if name == "nrfiles" { "1" } else { "0" };
    (value == Some(nothing)).then(|| "as it is anyway".to_owned())
}

fn apply(
    name: &str,
    value: Option<&str>,
    s: &mut Settings,
    around: &Surroundings<'_>,
) -> Result<String, String> {
    let text = value.unwrap_or("");
    let size = || bytes(text, Units::Fio);
    let on = || switch(text);
    Ok(match name {
        "rw" | "readwrite" => {
            s.rw = text.to_owned();
            pattern(text)?;
            "the pattern".to_owned()
        }
        "rwmixread" | "rwmixwrite" => {
            let percent: u8 = number(text)?;
            let percent = Some(percent).filter(|p| *p <= 100).ok_or("is no percentage")?;
            s.read_percent = if name == "rwmixread" { percent } else { 100 - percent };
            format!("{} of 100 calls read", s.read_percent)
        }
        "bs" | "blocksize" => {
            let mut sizes = text.split(',').filter(|piece| !piece.is_empty());
            let first = sizes.next().ok_or("needs a size")?;
            if sizes.any(|other| other != first) || first.contains('-') {
                return Err("cannot be honoured: one transfer size at a time".to_owned());
            }
            s.io.transfer = bytes(first, Units::Fio)?;
            format!("{} bytes at a call", s.io.transfer)
        }
        "size" | "filesize" | "io_size" | "io_limit" => {
            let given = size()?;
            if s.size.is_some_and(|known| known != given) {
                return Err("cannot be honoured: size, filesize and io_size must be the same".to_owned());
            }
            s.size = Some(given);
            format!("{given} bytes of each worker")
        }
        "direct" => {
            s.io.direct = on()?;
            if s.io.direct { "O_DIRECT" } else { "through the page cache" }.to_owned()
        }
        "buffered" => {
            s.io.direct = !on()?;
            if s.io.direct { "O_DIRECT" } else { "through the page cache" }.to_owned()
        }
        "numjobs" => {
            s.jobs = number(text)?;
            format!("{text} workers")
        }
        "thread" => {
            s.thread = on()?;
            "threads of one process".to_owned()
        }
        "ioengine" => engine(text, s)?,
        "iodepth" => {
            s.depth = number(text)?;
            "calls in flight of each worker".to_owned()
        }
        "verify" | "sync" | "fsync" | "end_fsync" | "fsync_on_close" => durability(name, text, s)?,
        "randrepeat" | "allrandrepeat" => {
            s.repeatable = on()?;
            if s.repeatable { "the same order in every run" } else { "an order that is drawn for this run" }
                .to_owned()
        }
        "directory" => {
            s.io.paths = text.split(':').map(|path| around.absolute(path)).collect();
            format!("in {}", s.io.paths.join(", "))
        }
        "filename" => {
            s.io.paths = text.split(':').map(|path| around.absolute(path)).collect();
            s.file = true;
            "these files".to_owned()
        }
        _ => return apply_rest(name, text, s),
    })
}

fn apply_rest(name: &str, text: &str, s: &mut Settings) -> Result<String, String> {
    let on = || switch(text);
    Ok(match name {
        "runtime" => {
            s.runtime_ms = time_ms(text)?;
            format!("ends after {} ms", s.runtime_ms)
        }
        "time_based" => {
            s.time_based = on()?;
            "starts over until the time is up".to_owned()
        }
        "loops" => {
            s.job.repetitions = number(text)?;
            format!("{text} repetitions")
        }
        "do_verify" => {
            s.do_verify = on()?;
            if s.do_verify { "what verify says is done" } else { "nothing is read back after writing" }
                .to_owned()
        }
        "stonewall" | "wait_for_previous" => {
            s.apart = true;
            "after the jobs before it".to_owned()
        }
        "norandommap" => {
            s.norandommap = on()?;
            "offsets may come twice".to_owned()
        }
        "randseed" => {
            s.seed = Some(number(text)?);
            "the seed".to_owned()
        }
        "invalidate" => {
            s.io.invalidate = on()?;
            if s.io.invalidate { "cached pages are dropped before" } else { "cached pages stay" }.to_owned()
        }
        "fadvise_hint" => {
            s.io.advise = on()?;
            if s.io.advise { "the order is told to the kernel" } else { "the kernel is told nothing" }
                .to_owned()
        }
        "fallocate" => {
            s.io.preallocate = match text {
                "none" | "0" => false,
                "native" | "posix" | "1" => true,
                _ => return Err("cannot be honoured: use none or native".to_owned()),
            };
            if s.io.preallocate { "space is set aside first" } else { "no space is set aside" }.to_owned()
        }
        "unlink" => {
            s.unlink = on()?;
            if s.unlink { "the files are removed" } else { "the files stay" }.to_owned()
        }
        "overwrite" => {
            s.job.existing |= on()?;
            "existing files are written over".to_owned()
        }
        "create_on_open" | "create_serialize" | "create_fsync" | "pre_read" | "offset" | "startdelay" => {
            if !text.is_empty() && on()? && !name.starts_with("create_") {
                return Err("cannot be honoured".to_owned());
            }
            "as it is anyway".to_owned()
        }
        "kb_base" | "unit_base" if text == "1024" || text == "0" || text == "8" => {
            "as it is anyway".to_owned()
        }
        "kb_base" => return Err("cannot be honoured: units are powers of two".to_owned()),
        "nrfiles" => return Err("cannot be honoured: a file for each worker".to_owned()),
        _ => return Err("is no option of fio that is understood; see docs/admin/bench-tools.md".to_owned()),
    })
}

fn engine(text: &str, s: &mut Settings) -> Result<String, String> {
    s.engine = text.to_owned();
    match text {
        "psync" | "sync" | "pvsync" | "pvsync2" | "vsync" => Ok("one call at a time".to_owned()),
        "libaio" | "io_uring" | "posixaio" => Ok("the same calls, made one at a time".to_owned()),
        _ => Err("cannot be honoured: use psync".to_owned()),
    }
}

fn durability(name: &str, text: &str, s: &mut Settings) -> Result<String, String> {
    Ok(match name {
        "verify" => {
            s.verify = !matches!(text, "0" | "none" | "");
            if s.verify { "read back and compared after writing" } else { "nothing is compared" }.to_owned()
        }
        "sync" => {
            s.io.sync = match text {
                "0" | "none" => SyncMode::None,
                "1" | "sync" => SyncMode::Full,
                "dsync" => SyncMode::Data,
                _ => return Err("is none of none, sync, dsync".to_owned()),
            };
            "how files are opened".to_owned()
        }
        "fsync" => {
            let transfers = number(text)?;
            if transfers > 0 {
                s.io.fsync = Fsync::Every { transfers };
            }
            format!("fsync after {transfers} calls")
        }
        _ => {
            if switch(text)? && s.io.fsync == Fsync::Never {
                s.io.fsync = Fsync::AtEnd;
            }
            "fsync at the end".to_owned()
        }
    })
}

/// `runtime`: seconds, or with a unit.
fn time_ms(text: &str) -> Result<u64, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (count, unit) = text.split_at(digits);
    let count: u64 = number(count)?;
    let factor = match unit {
        "" | "s" => 1_000,
        "ms" => 1,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err(format!("\"{text}\" is no time")),
    };
    count.checked_mul(factor).ok_or_else(|| format!("\"{text}\" is too long"))
}

/// (writes, reads, random)
fn pattern(text: &str) -> Result<(bool, bool, bool), String> {
    Ok(match text {
        "read" => (false, true, false),
        "write" => (true, false, false),
        "randread" => (false, true, true),
        "randwrite" => (true, false, true),
        "rw" | "readwrite" => (true, true, false),
        "randrw" => (true, true, true),
        _ => return Err("cannot be honoured: use read, write, rw, randread, randwrite or randrw".to_owned()),
    })
}

/// What verify= adds to a pass.
fn phases(s: &Settings, kind: IoKind, order: Order) -> Vec<IoPhase> {
    let pass = IoPhase::new(kind).in_order(order);
    if !s.verify || (kind != IoKind::Read && !s.do_verify) {
        return vec![pass];
    }
    let read = IoPhase::new(IoKind::Read).verified();
    // fio keeps a log of the blocks that it wrote, nobody here does: over a file that is whole all can be compared.
    let left_out = order == Order::RandomRepeating || (order == Order::Random && s.runtime_ms > 0);
    match kind {
        IoKind::Read => vec![pass.verified()],
        IoKind::Write if left_out => vec![IoPhase::new(IoKind::Write).as_setup(), pass, read],
        _ => vec![pass, read],
    }
}

fn finish(
    mut s: Settings,
    name: &str,
    around: &Surroundings<'_>,
    understood: &mut Vec<Understood>,
) -> Result<(Job, bool), Cause> {
    let mut note = |option: &str, meaning: &str| understood.push(Understood::new(option, meaning));
    let size = s.size.ok_or_else(|| Cause::new(format!("job {name}"), "needs size="))?;
    if s.depth > 1 && matches!(s.engine.as_str(), "libaio" | "io_uring" | "posixaio") {
        return Err(Cause::new(
            format!("--iodepth={}", s.depth),
            "cannot be honoured: a worker has one call at a time; use numjobs for as many calls in flight",
        ));
    }
    let (writes, reads, random) = pattern(&s.rw).map_err(|why| Cause::new("--rw", why))?;
    // Every block comes once before any comes again, also where the clock lets several rounds go by: fio empties
    // its map of blocks when it is full.
    let order = match (random, s.norandommap) {
        (true, true) => Order::RandomRepeating,
        (true, false) => Order::Random,
        _ => Order::Forward,
    };
    let kind = match (writes, reads) {
        (true, true) => IoKind::Mixed { read_percent: s.read_percent },
        (true, false) => IoKind::Write,
        _ => IoKind::Read,
    };
    s.io.phases = phases(&s, kind, order);
    if kind == IoKind::Write && s.io.phases[0].setup {
        note("--verify", "all of the file is written first, untimed, so that every block can be compared");
    }
    s.io.block = size;
    s.io.share = Share::PerWorker;
    if s.file {
        s.io.listed = true;
        match (s.io.paths.len(), s.jobs) {
            (1, 1) => {}
            (1, _) => s.io.share = Share::Whole,
            _ => return Err(Cause::new("--filename", "names several files: use one, or directory=")),
        }
    }
    if s.time_based && s.runtime_ms == 0 {
        return Err(Cause::new("--time_based", "needs runtime="));
    }
    if s.runtime_ms > 0 {
        s.job.stonewall = Some(Stonewall { after_ms: s.runtime_ms, wear_out: false, repeat: s.time_based });
    }
    // fio uses what it finds, makes what it is to read, and leaves it.
    s.job.existing = match kind {
        IoKind::Write => true,
        _ => found_or_laid_out(&mut s.io, s.jobs, around)
            .map_err(|why| Cause::new(format!("job {name}"), why))?,
    };
    if kind != IoKind::Write && s.io.phases[0].setup {
        note("no such files", "they are laid out first, untimed");
    }
    s.job.keep = !s.unlink;
    s.io.fresh = false;
    if s.job.keep {
        note("no --unlink=1", "the files stay, as with fio");
    }
    s.job.seed = match (s.seed, s.repeatable) {
        (Some(seed), _) => seed,
        (None, true) => s.job.seed,
        (None, false) => around.drawn,
    };
    let (processes, threads) = if s.thread { (1, s.jobs) } else { (s.jobs, 1) };
    s.job.workers = Workers { processes, threads, ..Workers::default() };
    s.job.work = Work::Io(s.io);
    Ok((s.job, s.apart))
}
