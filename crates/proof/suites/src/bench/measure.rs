//! Phases, and the processes that run them.

use super::place::Place;
use super::system::System;
use super::worker::Work;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// After a run the daemons delete the chunks of what was removed; that must not cost the next one.
pub const SETTLE: Duration = Duration::from_millis(300);

/// One measured step.
pub struct Phase {
    /// Its name in the report.
    pub name: &'static str,
    /// What each process does.
    pub work: Work,
}

impl Phase {
    /// Does it move data in order?
    pub fn is_stream(&self) -> bool {
        matches!(self.work, Work::Write | Work::Read)
    }

    /// The same with a file per process, if this is the one with a shared file.
    pub fn own_twin(&self) -> Option<&'static str> {
        let what = self.name.strip_suffix(" (one shared file)")?;
        let all = GROUPS.iter().filter(|group| !group.shared).flat_map(|group| group.phases);
        all.map(|phase| phase.name).find(|name| name.strip_suffix(" (file per process)") == Some(what))
    }
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
    /// Where everything ran.
    pub place: Place,
    /// The round; what is compared is of one round.
    pub round: usize,
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
pub struct Worker {
    child: Child,
    tell: ChildStdin,
    hear: BufReader<ChildStdout>,
}

/// Where a load process works, and how much it does.
pub struct Order<'a> {
    /// Directory of the load.
    pub directory: &'a Path,
    /// The same through another mount.
    pub other: Option<&'a Path>,
    /// One directory or one file for all processes.
    pub shared: bool,
    /// Number of the process.
    pub index: usize,
    /// Files, records or MiB.
    pub count: u64,
    /// How many share a file in turn.
    pub processes: usize,
}

impl Worker {
    /// Starts it; it makes its directories before it takes orders.
    pub fn start(order: &Order<'_>) -> Result<Self, String> {
        let program = std::env::current_exe().map_err(|e| e.to_string())?;
        let mut command = Command::new(program);
        command.args(["bench-worker", "--directory"]).arg(order.directory);
        command.args(["--index", &order.index.to_string(), "--count", &order.count.to_string()]);
        command.args(["--processes", &order.processes.to_string()]);
        if order.shared {
            command.arg("--shared");
        }
        if let Some(other) = order.other {
            command.arg("--other").arg(other);
        }
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(|e| e.to_string())?;
        let (Some(tell), Some(hear)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("a load process has no pipes".to_owned());
        };
        Ok(Self { child, tell, hear: BufReader::new(hear) })
    }

    /// Tells it to end, and waits.
    pub fn end(self) -> Result<(), String> {
        let Self { mut child, tell, .. } = self;
        drop(tell);
        child.wait().map(drop).map_err(|e| e.to_string())
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

/// How much a run does.
#[derive(Clone, Copy)]
pub struct Amount {
    /// Processes at once.
    pub processes: usize,
    /// Files of each.
    pub files: u64,
    /// MiB of all together.
    pub mib: u64,
}

impl Amount {
    /// What one process is told to do.
    fn of_one(self, moves_data: bool) -> u64 {
        if moves_data { self.mib / self.processes as u64 } else { self.files }
    }
}

/// A load on one system: its processes, and the directory that they work in.
pub struct Load<'a> {
    system: &'a System,
    workers: Vec<Worker>,
}

impl<'a> Load<'a> {
    /// Starts the processes in a new directory.
    pub fn start(system: &'a System, shared: bool, moves_data: bool, amount: Amount) -> Result<Self, String> {
        let directory = system.directory.join("load");
        std::fs::create_dir(&directory).map_err(|e| format!("{}: {e}", directory.display()))?;
        let mut load = Self { system, workers: Vec::new() };
        for index in 0..amount.processes {
            let count = amount.of_one(moves_data);
            let (other, processes) = (None, amount.processes);
            let order = Order { directory: &directory, other, shared, index, count, processes };
            load.workers.push(Worker::start(&order)?);
        }
        Ok(load)
    }

    /// The ids of the processes.
    pub fn pids(&self) -> Vec<u32> {
        self.workers.iter().map(|worker| worker.child.id()).collect()
    }

    /// Runs one phase; gives operations and seconds.
    pub fn phase(&mut self, phase: &Phase) -> Result<(f64, f64), String> {
        timed(&mut self.workers, phase.work).map_err(|e| format!("{}, {}: {e}", self.system.name, phase.name))
    }

    /// Ends the processes and removes what they left.
    pub fn end(self) -> Result<(), String> {
        for worker in self.workers {
            worker.end()?;
        }
        let directory = self.system.directory.join("load");
        std::fs::remove_dir_all(&directory).map_err(|e| format!("{}: {e}", directory.display()))?;
        if self.system.works_on() {
            std::thread::sleep(SETTLE);
        }
        Ok(())
    }
}

/// Runs the phases of a group; a rate for each of them.
pub fn run(system: &System, group: &Group, amount: Amount) -> Result<Vec<(&'static str, f64)>, String> {
    let moves_data = group.phases.iter().any(|phase| phase.work.moves_data());
    let mut load = Load::start(system, group.shared, moves_data, amount)?;
    let mut rates = Vec::new();
    for phase in group.phases {
        let (operations, seconds) = load.phase(phase)?;
        rates.push((phase.name, operations / seconds));
    }
    load.end()?;
    Ok(rates)
}

/// Operations, and seconds from the moment all are told to start until the last one is done.
pub fn timed(workers: &mut [Worker], work: Work) -> Result<(f64, f64), String> {
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
    Ok((operations, start.elapsed().as_secs_f64()))
}
