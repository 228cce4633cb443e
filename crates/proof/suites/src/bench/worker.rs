//! A load process: prepares a phase when it is named, runs it when told to go, says how many
//! operations it did.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

/// Size of a transfer in the sequential phases.
const MIB: usize = 1 << 20;
/// Size of a transfer in the random phases.
const SMALL: usize = 4_096;
/// Size of the smallest records.
const TINY: usize = 512;
/// Bytes of a record that fits no page and no chunk, as in the hard part of IO500.
pub const STRIDE: usize = 47_008;
/// Transfers at once where many are in flight.
const IN_FLIGHT: u64 = 16;
/// Files that are written in turn.
const IN_TURN: u64 = 1_000;
/// So long.
const IN_TURN_FOR: Duration = Duration::from_secs(4);
/// Between two listings beside that.
const LISTING_EVERY: Duration = Duration::from_secs(1);
/// Bytes of one append.
const APPENDED: usize = 100;
/// Random transfers of one phase for each MiB of the file.
const SMALL_PER_MIB: u64 = 32;
/// What is repeated goes on for at least so long: caches answer so quickly that one pass is too short to be timed.
/// Shorter than the second for which other file systems keep attributes.
const AGAIN: Duration = Duration::from_millis(200);
/// Longest time until a name is seen through another mount.
const SEEN_LIMIT: Duration = Duration::from_secs(5);

/// What a process does in a phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// `open(O_CREAT | O_EXCL)` and `close`.
    Create,
    /// `stat`.
    Stat,
    /// `open`, `read`, `close`.
    OpenRead,
    /// `unlink`.
    Remove,
    /// 1 MiB writes in order.
    Write,
    /// 1 MiB reads in order.
    Read,
    /// 4 KiB writes in random order.
    RandomWrite,
    /// 4 KiB reads in random order.
    RandomRead,
    /// `stat`, pass after pass.
    StatAgain,
    /// `open`, `read`, `close`, pass after pass.
    OpenReadAgain,
    /// Records of so many bytes written in order, to a new file.
    WriteRecords(usize),
    /// The same read.
    ReadRecords(usize),
    /// Appends to one file.
    Append,
    /// Creates; a second thread looks at each name through the other mount, as soon as it is made.
    MakeAndSee,
    /// Records of [`STRIDE`] bytes written to the shared file, each process in its turn.
    WriteStrides,
    /// The same read.
    ReadStrides,
    /// 4 KiB writes in random order, many at once.
    ManyWrites,
    /// 4 KiB reads in random order, many at once.
    ManyReads,
    /// Creates, each with so many bytes that are synced.
    SyncFiles(usize),
    /// Writes 4 KiB to one open file of many after the other.
    InTurn,
    /// The same beside a listing of them through the other mount once a second.
    InTurnListed,
}

const ALL: [Work; 24] = [
    Work::Create,
    Work::Stat,
    Work::OpenRead,
    Work::Remove,
    Work::Write,
    Work::Read,
    Work::RandomWrite,
    Work::RandomRead,
    Work::StatAgain,
    Work::OpenReadAgain,
    Work::WriteRecords(TINY),
    Work::ReadRecords(TINY),
    Work::WriteRecords(SMALL),
    Work::ReadRecords(SMALL),
    Work::Append,
    Work::MakeAndSee,
    Work::WriteStrides,
    Work::ReadStrides,
    Work::ManyWrites,
    Work::ManyReads,
    Work::SyncFiles(SMALL),
    Work::SyncFiles(16 * SMALL),
    Work::InTurn,
    Work::InTurnListed,
];

impl Work {
    /// Its name between coordinator and worker.
    pub fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Stat => "stat",
            Self::OpenRead => "open-read",
            Self::Remove => "remove",
            Self::Write => "write",
            Self::Read => "read",
            Self::RandomWrite => "random-write",
            Self::RandomRead => "random-read",
            Self::StatAgain => "stat-again",
            Self::OpenReadAgain => "open-read-again",
            Self::WriteRecords(TINY) => "write-tiny",
            Self::WriteRecords(_) => "write-small",
            Self::ReadRecords(TINY) => "read-tiny",
            Self::ReadRecords(_) => "read-small",
            Self::Append => "append",
            Self::MakeAndSee => "make-and-see",
            Self::WriteStrides => "write-strides",
            Self::ReadStrides => "read-strides",
            Self::ManyWrites => "many-writes",
            Self::ManyReads => "many-reads",
            Self::SyncFiles(SMALL) => "sync-small",
            Self::SyncFiles(_) => "sync-large",
            Self::InTurn => "in-turn",
            Self::InTurnListed => "in-turn-listed",
        }
    }

    /// Does it count MiB (or transfers of a file that must be large)?
    pub fn moves_data(self) -> bool {
        matches!(self, Self::Write | Self::Read | Self::RandomWrite | Self::RandomRead)
    }

    /// Is one file open for all of it?
    fn has_file(self) -> bool {
        let in_order = matches!(self, Self::WriteRecords(_) | Self::ReadRecords(_) | Self::Append);
        let strides = matches!(self, Self::WriteStrides | Self::ReadStrides);
        self.moves_data() || in_order || strides || matches!(self, Self::ManyWrites | Self::ManyReads)
    }
}

/// Given by the coordinator.
#[derive(clap::Args)]
pub struct WorkerArguments {
    /// Directory of the load.
    #[arg(long)]
    directory: PathBuf,
    /// Number of this process.
    #[arg(long)]
    index: u64,
    /// Files, or MiB.
    #[arg(long)]
    count: u64,
    /// How many processes share a file in turn.
    #[arg(long, default_value_t = 1)]
    processes: u64,
    /// One directory or one file for all processes.
    #[arg(long)]
    shared: bool,
    /// The same directory through another mount.
    #[arg(long)]
    other: Option<PathBuf>,
}

/// Serves the coordinator until it hangs up.
pub fn run(arguments: &WorkerArguments) -> Result<(), String> {
    let mut worker = Worker::new(arguments)?;
    let (input, mut output) = (std::io::stdin().lock(), std::io::stdout().lock());
    let mut named = None;
    for line in input.lines() {
        let line = line.map_err(|e| e.to_string())?;
        let answer = match (line.as_str(), named) {
            ("go", Some(work)) => match worker.work(work) {
                Ok(operations) => operations.to_string(),
                Err(e) => format!("error: {e}"),
            },
            (name, _) => {
                named = ALL.into_iter().find(|work| work.name() == name);
                match named.map(|work| worker.prepare(work)) {
                    Some(Ok(())) => "ready".to_owned(),
                    Some(Err(e)) => format!("error: {e}"),
                    None => format!("error: unknown work {name}"),
                }
            }
        };
        writeln!(output, "{answer}").and_then(|()| output.flush()).map_err(|e| e.to_string())?;
    }
    Ok(())
}

fn create(path: &Path) -> std::io::Result<()> {
    OpenOptions::new().write(true).create_new(true).open(path).map(drop)
}

fn open_read(path: &Path) -> std::io::Result<()> {
    let mut byte = [0; 1];
    File::open(path)?.read(&mut byte).map(drop)
}

fn synced(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// xorshift64
fn drawn(mut last: u64) -> u64 {
    last ^= last << 13;
    last ^= last >> 7;
    last ^ last << 17
}

fn joined(thread: ScopedJoinHandle<'_, std::io::Result<()>>) -> std::io::Result<()> {
    thread.join().map_err(|_| std::io::Error::other("a thread failed"))?
}

/// So many files may be open at once, if the machine lets them.
fn allow_files(count: u64) -> std::io::Result<()> {
    let limit = getrlimit(Resource::Nofile);
    let wanted = Rlimit { current: Some(limit.maximum.map_or(count, |most| most.min(count))), ..limit };
    setrlimit(Resource::Nofile, wanted).map_err(Into::into)
}

/// Looks at a name until it is there.
fn see(path: &Path) -> std::io::Result<()> {
    let start = Instant::now();
    loop {
        match fs::metadata(path) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound && start.elapsed() < SEEN_LIMIT => {
                std::thread::yield_now();
            }
            seen => return seen.map(drop),
        }
    }
}

struct Worker {
    files: PathBuf,
    /// `files` through the other mount.
    other: PathBuf,
    data: PathBuf,
    index: u64,
    count: u64,
    processes: u64,
    first: u64,
    open: Option<File>,
    buffer: Vec<u8>,
    draw: u64,
}

impl Worker {
    fn new(arguments: &WorkerArguments) -> Result<Self, String> {
        let WorkerArguments { directory, index, count, processes, shared, other } = arguments;
        let name = if *shared { "all".to_owned() } else { format!("own-{index}") };
        let files = directory.join(&name);
        let other = other.as_ref().unwrap_or(directory).join(&name);
        fs::create_dir_all(&files).map_err(|e| format!("{}: {e}", files.display()))?;
        let data = if *shared { directory.join("data") } else { directory.join(format!("data-{index}")) };
        let first = if *shared { index * count } else { 0 };
        let buffer = (0..MIB).map(|i| (i * 7 + 3) as u8).collect();
        Ok(Self {
            files,
            other,
            data,
            index: *index,
            count: *count,
            processes: *processes,
            first,
            open: None,
            buffer,
            draw: index + 88_172_645,
        })
    }

    fn prepare(&mut self, work: Work) -> std::io::Result<()> {
        let mut how = OpenOptions::new();
        match work {
            Work::WriteRecords(_) => how.write(true).create(true).truncate(true),
            Work::ReadRecords(_) => how.read(true),
            Work::Append => how.append(true).create(true),
            _ => how.read(true).write(true).create(true).truncate(false),
        };
        self.open = None;
        if work.has_file() {
            self.open = Some(how.open(&self.data)?);
        }
        Ok(())
    }

    fn name(&self, number: u64) -> PathBuf {
        self.name_in(&self.files, number)
    }

    fn name_in(&self, directory: &Path, number: u64) -> PathBuf {
        directory.join(format!("file.{}.{number}", self.index))
    }

    fn work(&mut self, work: Work) -> std::io::Result<u64> {
        match work {
            Work::Create => self.each(|path| create(&path)),
            Work::Stat => self.each(|path| fs::metadata(path).map(drop)),
            Work::OpenRead => self.each(|path| open_read(&path)),
            Work::Remove => self.each(fs::remove_file),
            Work::StatAgain => self.again(|path| fs::metadata(path).map(drop)),
            Work::OpenReadAgain => self.again(|path| open_read(&path)),
            Work::WriteRecords(bytes) | Work::ReadRecords(bytes) => self.records(work, bytes),
            Work::Append => self.records(work, APPENDED),
            Work::MakeAndSee => self.make_and_see(),
            Work::Write | Work::Read => self.stream(work),
            Work::RandomWrite | Work::RandomRead => self.random(work),
            Work::WriteStrides | Work::ReadStrides => self.strides(work),
            Work::ManyWrites | Work::ManyReads => self.many(work),
            Work::SyncFiles(bytes) => self.each(|path| synced(&path, &self.buffer[..bytes])),
            Work::InTurn => self.in_turn(),
            Work::InTurnListed => self.in_turn_listed(),
        }
    }

    fn each(&self, operation: impl Fn(PathBuf) -> std::io::Result<()>) -> std::io::Result<u64> {
        for number in 0..self.count {
            operation(self.name(number))?;
        }
        Ok(self.count)
    }

    fn again(&self, operation: impl Fn(PathBuf) -> std::io::Result<()>) -> std::io::Result<u64> {
        let (start, mut done) = (Instant::now(), 0);
        while done == 0 || start.elapsed() < AGAIN {
            done += self.each(&operation)?;
        }
        Ok(done)
    }

    fn records(&mut self, work: Work, bytes: usize) -> std::io::Result<u64> {
        let mut file = self.open.take().ok_or(std::io::ErrorKind::NotFound)?;
        for _ in 0..self.count {
            match work {
                Work::ReadRecords(_) => file.read_exact(&mut self.buffer[..bytes])?,
                _ => file.write_all(&self.buffer[..bytes])?,
            }
        }
        Ok(self.count)
    }

    /// The writer does not wait for the reader.
    fn make_and_see(&self) -> std::io::Result<u64> {
        let (tell, hear) = mpsc::channel();
        std::thread::scope(|scope| {
            let reader =
                scope.spawn(move || hear.into_iter().try_for_each(|n| see(&self.name_in(&self.other, n))));
            for number in 0..self.count {
                create(&self.name(number))?;
                // The reader hangs up only with an error, which is told below.
                let _ = tell.send(number);
            }
            drop(tell);
            joined(reader)
        })?;
        Ok(self.count)
    }

    fn stream(&mut self, work: Work) -> std::io::Result<u64> {
        let file = self.open.as_ref().ok_or(std::io::ErrorKind::NotFound)?;
        for number in 0..self.count {
            let at = (self.first + number) * MIB as u64;
            match work {
                Work::Write => file.write_all_at(&self.buffer, at)?,
                _ => file.read_exact_at(&mut self.buffer, at)?,
            }
        }
        // The writer's cost includes what close makes of it.
        self.open = None;
        Ok(self.count)
    }

    fn strides(&mut self, work: Work) -> std::io::Result<u64> {
        let file = self.open.take().ok_or(std::io::ErrorKind::NotFound)?;
        let records = self.count * MIB as u64 / STRIDE as u64;
        for number in 0..records {
            let at = (number * self.processes + self.index) * STRIDE as u64;
            match work {
                Work::WriteStrides => file.write_all_at(&self.buffer[..STRIDE], at)?,
                _ => file.read_exact_at(&mut self.buffer[..STRIDE], at)?,
            }
        }
        Ok(records)
    }

    /// Each thread has an equal part of the transfers, anywhere in the file.
    fn many(&mut self, work: Work) -> std::io::Result<u64> {
        let file = self.open.take().ok_or(std::io::ErrorKind::NotFound)?;
        let places = self.count * (MIB / SMALL) as u64;
        let each = self.count * SMALL_PER_MIB / IN_FLIGHT;
        let one = |thread: u64| -> std::io::Result<()> {
            let (mut draw, mut buffer) = (self.draw + thread, [5; SMALL]);
            for _ in 0..each {
                draw = drawn(draw);
                let at = draw % places * SMALL as u64;
                match work {
                    Work::ManyWrites => file.write_all_at(&buffer, at)?,
                    _ => file.read_exact_at(&mut buffer, at)?,
                }
            }
            Ok(())
        };
        let one = &one;
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..IN_FLIGHT).map(|thread| scope.spawn(move || one(thread))).collect();
            threads.into_iter().try_for_each(joined)
        })?;
        Ok(each * IN_FLIGHT)
    }

    fn in_turn(&self) -> std::io::Result<u64> {
        let path = |number: u64| self.files.join(format!("turn.{number}"));
        let mut how = OpenOptions::new();
        how.write(true).create(true).truncate(false);
        allow_files(2 * IN_TURN)?;
        let files = (0..IN_TURN).map(|number| how.open(path(number))).collect::<Result<Vec<File>, _>>()?;
        let (start, mut done) = (Instant::now(), 0);
        while start.elapsed() < IN_TURN_FOR {
            // They grow by one piece in each turn.
            let at = done / IN_TURN * SMALL as u64;
            files[(done % IN_TURN) as usize].write_all_at(&self.buffer[..SMALL], at)?;
            done += 1;
        }
        Ok(done)
    }

    /// The writer does not wait for the listings, but for the last one.
    fn in_turn_listed(&self) -> std::io::Result<u64> {
        let (end, ended) = mpsc::channel::<()>();
        std::thread::scope(|scope| {
            let lister = scope.spawn(move || -> std::io::Result<()> {
                while ended.recv_timeout(LISTING_EVERY) == Err(mpsc::RecvTimeoutError::Timeout) {
                    let status =
                        Command::new("ls").arg("-l").arg(&self.other).stdout(Stdio::null()).status()?;
                    if !status.success() {
                        return Err(std::io::Error::other("ls has failed"));
                    }
                }
                Ok(())
            });
            let done = self.in_turn();
            drop(end);
            joined(lister)?;
            done
        })
    }

    fn random(&mut self, work: Work) -> std::io::Result<u64> {
        let file = self.open.as_ref().ok_or(std::io::ErrorKind::NotFound)?;
        let places = self.count * (MIB / SMALL) as u64;
        let transfers = self.count * SMALL_PER_MIB;
        for _ in 0..transfers {
            self.draw = drawn(self.draw);
            let at = self.first * MIB as u64 + self.draw % places * SMALL as u64;
            match work {
                Work::RandomWrite => file.write_all_at(&self.buffer[..SMALL], at)?,
                _ => file.read_exact_at(&mut self.buffer[..SMALL], at)?,
            }
        }
        self.open = None;
        Ok(transfers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the name of every work leads back to it; the coordinator sends nothing else.
    #[test]
    fn names_are_told_apart() {
        for work in ALL {
            assert_eq!(ALL.into_iter().find(|one| one.name() == work.name()), Some(work));
        }
    }
}
