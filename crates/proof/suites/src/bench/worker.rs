//! A load process: prepares a phase when it is named, runs it when told to go, says how many
//! operations it did.

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// Size of a transfer in the sequential phases.
const MIB: usize = 1 << 20;
/// Size of a transfer in the random phases.
const SMALL: usize = 4_096;
/// Random transfers of one phase for each MiB of the file.
const SMALL_PER_MIB: u64 = 32;

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
}

const ALL: [Work; 8] = [
    Work::Create,
    Work::Stat,
    Work::OpenRead,
    Work::Remove,
    Work::Write,
    Work::Read,
    Work::RandomWrite,
    Work::RandomRead,
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
        }
    }

    /// Does it count MiB (or transfers of a file that must be large)?
    pub fn moves_data(self) -> bool {
        matches!(self, Self::Write | Self::Read | Self::RandomWrite | Self::RandomRead)
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
    /// One directory or one file for all processes.
    #[arg(long)]
    shared: bool,
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

struct Worker {
    files: PathBuf,
    data: PathBuf,
    index: u64,
    count: u64,
    first: u64,
    open: Option<File>,
    buffer: Vec<u8>,
    draw: u64,
}

impl Worker {
    fn new(arguments: &WorkerArguments) -> Result<Self, String> {
        let WorkerArguments { directory, index, count, shared } = arguments;
        let files = if *shared { directory.join("all") } else { directory.join(format!("own-{index}")) };
        fs::create_dir_all(&files).map_err(|e| format!("{}: {e}", files.display()))?;
        let data = if *shared { directory.join("data") } else { directory.join(format!("data-{index}")) };
        let first = if *shared { index * count } else { 0 };
        let buffer = (0..MIB).map(|i| (i * 7 + 3) as u8).collect();
        Ok(Self {
            files,
            data,
            index: *index,
            count: *count,
            first,
            open: None,
            buffer,
            draw: index + 88_172_645,
        })
    }

    fn prepare(&mut self, work: Work) -> std::io::Result<()> {
        self.open = None;
        if work.moves_data() {
            let file =
                OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&self.data)?;
            self.open = Some(file);
        }
        Ok(())
    }

    fn name(&self, number: u64) -> PathBuf {
        self.files.join(format!("file.{}.{number}", self.index))
    }

    fn work(&mut self, work: Work) -> std::io::Result<u64> {
        match work {
            Work::Create => {
                self.each(|path| OpenOptions::new().write(true).create_new(true).open(path).map(drop))
            }
            Work::Stat => self.each(|path| fs::metadata(path).map(drop)),
            Work::OpenRead => self.each(|path| {
                let mut byte = [0; 1];
                File::open(path)?.read(&mut byte).map(drop)
            }),
            Work::Remove => self.each(fs::remove_file),
            Work::Write | Work::Read => self.stream(work),
            Work::RandomWrite | Work::RandomRead => self.random(work),
        }
    }

    fn each(&self, operation: impl Fn(PathBuf) -> std::io::Result<()>) -> std::io::Result<u64> {
        for number in 0..self.count {
            operation(self.name(number))?;
        }
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

    fn random(&mut self, work: Work) -> std::io::Result<u64> {
        let file = self.open.as_ref().ok_or(std::io::ErrorKind::NotFound)?;
        let places = self.count * (MIB / SMALL) as u64;
        let transfers = self.count * SMALL_PER_MIB;
        for _ in 0..transfers {
            // xorshift64
            self.draw ^= self.draw << 13;
            self.draw ^= self.draw >> 7;
            self.draw ^= self.draw << 17;
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
