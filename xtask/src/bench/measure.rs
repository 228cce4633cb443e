//! Phases, and the processes that run them.

use super::system::System;
use super::worker::Work;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

/// One measured step.
pub struct Phase {
    /// Its name in the report.
    pub name: &'static str,
    /// What each process does.
    pub work: Work,
}

/// Phases that build on one another; every group starts with an empty directory.
pub struct Group {
    /// All processes work in one directory or one file.
    pub shared: bool,
    /// In order.
    pub phases: &'static [Phase],
}

/// Everything that is measured.
pub const GROUPS: &[Group] = &[
    Group {
        shared: false,
        phases: &[
            Phase { name: "create (own directory)", work: Work::Create },
            Phase { name: "stat (own directory)", work: Work::Stat },
            Phase { name: "open-read (own directory)", work: Work::OpenRead },
            Phase { name: "remove (own directory)", work: Work::Remove },
        ],
    },
    Group {
        shared: true,
        phases: &[
            Phase { name: "create (shared directory)", work: Work::Create },
            Phase { name: "stat (shared directory)", work: Work::Stat },
            Phase { name: "open-read (shared directory)", work: Work::OpenRead },
            Phase { name: "remove (shared directory)", work: Work::Remove },
        ],
    },
    Group {
        shared: false,
        phases: &[
            Phase { name: "write 1 MiB (file per process)", work: Work::Write },
            Phase { name: "overwrite 1 MiB (file per process)", work: Work::Write },
            Phase { name: "read 1 MiB (file per process)", work: Work::Read },
            Phase { name: "random write 4 KiB (file per process)", work: Work::RandomWrite },
            Phase { name: "random read 4 KiB (file per process)", work: Work::RandomRead },
        ],
    },
    Group {
        shared: true,
        phases: &[
            Phase { name: "write 1 MiB (one shared file)", work: Work::Write },
            Phase { name: "overwrite 1 MiB (one shared file)", work: Work::Write },
            Phase { name: "read 1 MiB (one shared file)", work: Work::Read },
        ],
    },
];

/// One measured rate.
pub struct Sample {
    /// Which system.
    pub system: &'static str,
    /// Which phase.
    pub phase: String,
    /// How many processes.
    pub processes: usize,
    /// Operations (or MiB) per second.
    pub rate: f64,
}

/// A load process waiting for its next phase.
struct Worker {
    child: Child,
    tell: ChildStdin,
    hear: BufReader<ChildStdout>,
}

impl Worker {
    fn start(system: &System, shared: bool, index: usize, count: u64) -> Result<Self, String> {
        let program = std::env::current_exe().map_err(|e| e.to_string())?;
        let mut command = Command::new(program);
        command.args(["bench-worker", "--directory"]).arg(system.directory.join("load"));
        command.args(["--index", &index.to_string(), "--count", &count.to_string()]);
        if shared {
            command.arg("--shared");
        }
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(|e| e.to_string())?;
        let (Some(tell), Some(hear)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("a load process has no pipes".to_owned());
        };
        Ok(Self { child, tell, hear: BufReader::new(hear) })
    }

    fn say(&mut self, text: &str) -> Result<(), String> {
        writeln!(self.tell, "{text}").map_err(|e| format!("a load process is gone: {e}"))
    }

    /// One line; an `error` line or the end of the process is an error.
    fn listen(&mut self) -> Result<String, String> {
        let mut line = String::new();
        self.hear.read_line(&mut line).map_err(|e| e.to_string())?;
        match line.trim_end() {
            "" => Err("a load process ended early".to_owned()),
            line if line.starts_with("error") => Err(line.to_owned()),
            line => Ok(line.to_owned()),
        }
    }
}

/// Runs the phases of a group.
pub fn run(
    system: &System,
    group: &Group,
    processes: usize,
    files: u64,
    mib: u64,
) -> Result<Vec<Sample>, String> {
    let load = system.directory.join("load");
    std::fs::create_dir(&load).map_err(|e| format!("{}: {e}", load.display()))?;
    let moves_data = group.phases.iter().any(|phase| phase.work.moves_data());
    let count = if moves_data { mib / processes as u64 } else { files };
    let mut workers = Vec::new();
    for index in 0..processes {
        workers.push(Worker::start(system, group.shared, index, count)?);
    }
    let mut samples = Vec::new();
    for phase in group.phases {
        let rate =
            timed(&mut workers, phase.work).map_err(|e| format!("{}, {}: {e}", system.name, phase.name))?;
        samples.push(Sample { system: system.name, phase: phase.name.to_owned(), processes, rate });
    }
    for worker in workers {
        let Worker { mut child, tell, .. } = worker;
        drop(tell);
        child.wait().map_err(|e| e.to_string())?;
    }
    std::fs::remove_dir_all(&load).map_err(|e| format!("{}: {e}", load.display()))?;
    Ok(samples)
}

/// Operations per second from the moment all are told to start until the last one is done.
fn timed(workers: &mut [Worker], work: Work) -> Result<f64, String> {
    for worker in workers.iter_mut() {
        worker.say(work.name())?;
        worker.listen()?;
    }
    let start = Instant::now();
    for worker in workers.iter_mut() {
        worker.say("go")?;
    }
    let mut operations = 0.0;
    for worker in workers.iter_mut() {
        let line = worker.listen()?;
        operations += line.parse::<f64>().map_err(|_| format!("unexpected answer \"{line}\""))?;
    }
    Ok(operations / start.elapsed().as_secs_f64())
}
