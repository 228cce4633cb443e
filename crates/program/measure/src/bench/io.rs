//! `skep bench io`: contents of few large files.

use super::load::{LoadArgs, absolute, readers, size};
use clap::Args;
use skep_base::{Failure, Outcome};
use skep_bench::job::{Fsync, IoJob, IoKind, IoPhase, Order, Readers, Share, Striping, SyncMode, Work};
use std::io::Write;
use std::path::PathBuf;

/// `skep bench io DIR...`
#[derive(Debug, Args)]
pub struct IoArgs {
    /// Directories; workers take turns. With --files: the files themselves
    #[arg(required = true, value_name = "DIR")]
    paths: Vec<PathBuf>,
    /// What is done, in this order: write, rewrite, read, reread, mixed:PERCENT-OF-READS, each also as
    /// random-..., repeating-... (random, some twice), backward-..., stride:N-...; +verify, +setup after it
    #[arg(long, value_delimiter = ',', default_value = "write,read", value_name = "PHASES", value_parser = phase)]
    phases: Vec<IoPhase>,
    /// Compare every byte that is read with what was written; where nothing is read, write what can be compared later
    #[arg(long)]
    verify: bool,
    /// A file per worker, or one for all: blocks one after the other, transfers interleaved, or everybody on
    /// all of it
    #[arg(long, default_value = "no", value_name = "no|segmented|strided|whole", value_parser = share)]
    shared: Share,
    /// Bytes of one call
    #[arg(long, short = 't', default_value = "1m", value_name = "SIZE", value_parser = size)]
    transfer: u64,
    /// Bytes of a worker's contiguous piece
    #[arg(long, short = 'b', default_value = "64m", value_name = "SIZE", value_parser = size)]
    block: u64,
    /// How many such pieces each worker has
    #[arg(long, short = 's', default_value_t = 1, value_name = "N")]
    segments: u64,
    /// O_DIRECT: past the page cache
    #[arg(long)]
    direct: bool,
    /// Open with O_DSYNC or O_SYNC
    #[arg(long, default_value = "none", value_name = "none|data|full", value_parser = sync)]
    sync: SyncMode,
    /// When a writer calls fsync
    #[arg(long, default_value = "end", value_name = "never|end|EVERY-N", value_parser = fsync)]
    fsync: Fsync,
    /// What counts besides the transfers
    #[arg(long, value_delimiter = ',', default_value = "fsync,close", value_name = "open,fsync,close")]
    time: Vec<String>,
    /// All wait for all between open, transfers and close
    #[arg(long)]
    barriers: bool,
    /// Whose data is read: own, shift:WORKERS, node:HOSTS, random
    #[arg(long, default_value = "own", value_name = "WHOSE", value_parser = readers)]
    readers: Readers,
    /// Set room aside before the first write
    #[arg(long)]
    preallocate: bool,
    /// Drop this host's cached pages before each phase that reads; this is done anyway without --cached
    #[arg(long, conflicts_with = "cached")]
    invalidate: bool,
    /// Leave cached pages: reads may then measure this host's memory
    #[arg(long)]
    cached: bool,
    /// Tell the kernel whether the order is sequential or random
    #[arg(long)]
    advise: bool,
    /// Write over the first repetition's files, instead of making new ones each time
    #[arg(long)]
    reuse: bool,
    /// Chunk size of new files (Skep only)
    #[arg(long, value_name = "SIZE", value_parser = size)]
    chunk_size: Option<u64>,
    /// Targets of new files (Skep only)
    #[arg(long, value_name = "N")]
    targets: Option<u32>,
    /// Name of the files that are made
    #[arg(long, default_value = "skep-bench-io", value_name = "NAME")]
    name: String,
    /// DIR... are the files: one for each worker, or the shared one
    #[arg(long)]
    files: bool,
    /// How it is done.
    #[command(flatten)]
    load: LoadArgs,
}

impl IoArgs {
    /// The load these arguments mean.
    fn work(&self) -> Result<IoJob, Failure> {
        let mut io = IoJob::new("/");
        for word in &self.time {
            if !matches!(word.as_str(), "open" | "fsync" | "close" | "") {
                return Err(Failure::usage(format!("--time {word}: write some of open,fsync,close")));
            }
        }
        let timed = |part: &str| self.time.iter().any(|word| word == part);
        io.paths = absolute(&self.paths)?;
        io.name.clone_from(&self.name);
        io.listed = self.files;
        io.share = self.shared;
        io.phases.clone_from(&self.phases);
        if self.verify {
            let reads = |phase: &IoPhase| !matches!(phase.kind, IoKind::Write | IoKind::Rewrite);
            // A run that only writes leaves something to compare for a later one.
            let writes_only = !io.phases.iter().any(reads);
            io.phases.iter_mut().for_each(|phase| phase.verify |= writes_only || reads(phase));
        }
        (io.transfer, io.block, io.segments) = (self.transfer, self.block, self.segments);
        (io.direct, io.sync, io.fsync) = (self.direct, self.sync, self.fsync);
        (io.time_open, io.time_fsync, io.time_close) = (timed("open"), timed("fsync"), timed("close"));
        (io.barriers, io.readers) = (self.barriers, self.readers);
        (io.preallocate, io.advise) = (self.preallocate, self.advise);
        io.invalidate = self.invalidate || !self.cached;
        io.fresh = !self.reuse;
        if self.chunk_size.is_some() || self.targets.is_some() {
            io.striping = Some(Striping { chunk_size: self.chunk_size, targets: self.targets });
        }
        Ok(io)
    }
}

pub fn run(args: &IoArgs, out: &mut dyn Write) -> Outcome {
    args.load.perform(Work::Io(args.work()?), out)
}

/// A phase as written on the command line.
fn phase(text: &str) -> Result<IoPhase, String> {
    let mut words = text.split('+');
    let name = words.next().unwrap_or_default();
    let wrong =
        || format!("{text:?} is no phase; write for example write, random-read, mixed:70, stride:16-read");
    let (order, kind) = match name.rsplit_once('-') {
        None => (Order::Forward, name),
        Some(("random", kind)) => (Order::Random, kind),
        Some(("repeating", kind)) => (Order::RandomRepeating, kind),
        Some(("backward", kind)) => (Order::Backward, kind),
        Some((stride, kind)) => {
            let number = stride.strip_prefix("stride:").ok_or_else(wrong)?;
            (Order::Stride { transfers: number.parse().map_err(|_| wrong())? }, kind)
        }
    };
    let kind = match kind {
        "write" => IoKind::Write,
        "rewrite" => IoKind::Rewrite,
        "read" => IoKind::Read,
        "reread" => IoKind::Reread,
        other => {
            let percent = other.strip_prefix("mixed:").and_then(|percent| percent.parse().ok());
            IoKind::Mixed { read_percent: percent.ok_or_else(wrong)? }
        }
    };
    let mut phase = IoPhase::new(kind).in_order(order);
    for word in words {
        phase = match word {
            "verify" => phase.verified(),
            "setup" => phase.as_setup(),
            _ => return Err(wrong()),
        };
    }
    Ok(phase)
}

fn share(text: &str) -> Result<Share, String> {
    match text {
        "no" => Ok(Share::PerWorker),
        "segmented" => Ok(Share::Segmented),
        "strided" => Ok(Share::Strided),
        "whole" => Ok(Share::Whole),
        _ => Err("write no, segmented, strided or whole".to_owned()),
    }
}

fn sync(text: &str) -> Result<SyncMode, String> {
    match text {
        "none" => Ok(SyncMode::None),
        "data" => Ok(SyncMode::Data),
        "full" => Ok(SyncMode::Full),
        _ => Err("write none, data or full".to_owned()),
    }
}

fn fsync(text: &str) -> Result<Fsync, String> {
    match text {
        "never" => Ok(Fsync::Never),
        "end" => Ok(Fsync::AtEnd),
        number => number
            .parse()
            .map(|transfers| Fsync::Every { transfers })
            .map_err(|_| "write never, end or a number of transfers".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        io: IoArgs,
    }

    fn job(words: &[&str]) -> IoJob {
        Line::try_parse_from([&["io", "/d"], words].concat()).unwrap().io.work().unwrap()
    }

    /// Goal: the command line reaches every field of the job.
    #[test]
    fn fields() {
        let plain = job(&[]);
        assert_eq!(plain, IoJob { invalidate: true, ..IoJob::new("/d") });
        assert!(!job(&["--cached"]).invalidate);
        let full = job(&[
            "--phases",
            "write+setup,stride:8-read,mixed:70,random-rewrite,backward-read+verify",
            "--shared",
            "strided",
            "-t",
            "4k",
            "-b",
            "64k",
            "-s",
            "3",
            "--direct",
            "--sync",
            "data",
            "--fsync",
            "7",
            "--time",
            "open",
            "--barriers",
            "--readers",
            "shift:2",
            "--preallocate",
            "--invalidate",
            "--advise",
            "--reuse",
            "--chunk-size",
            "1m",
            "--targets",
            "4",
            "--name",
            "x",
        ]);
        let names: Vec<String> = full.phases.iter().map(IoPhase::name).collect();
        assert_eq!(names, ["write", "stride read", "mixed 70/30", "random rewrite", "backward read"]);
        assert!(full.phases[0].setup && full.phases[4].verify && !full.phases[1].verify);
        assert_eq!((full.share, full.transfer, full.block, full.segments), (Share::Strided, 4096, 65_536, 3));
        assert_eq!(
            (full.time_open, full.time_fsync, full.time_close, full.fresh),
            (true, false, false, false)
        );
        assert_eq!(full.fsync, Fsync::Every { transfers: 7 });
        assert_eq!(full.striping, Some(Striping { chunk_size: Some(1 << 20), targets: Some(4) }));
        assert!(job(&["--verify"]).phases[1].verify && !job(&["--verify"]).phases[0].verify);
        assert!(job(&["--verify", "--phases", "write"]).verifies());
    }

    /// Goal: a phase that is none is refused with examples.
    #[test]
    fn wrong_phases() {
        for text in
            ["", "scan", "mixed", "mixed:x", "stride:-read", "random-scan", "write+fast", "stride-read"]
        {
            assert!(phase(text).is_err(), "{text}");
        }
    }
}
