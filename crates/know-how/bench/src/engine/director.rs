//! The director: takes a crew through a job, step by step, and gathers what came of it.

use super::gather::Gathered;
use super::{Crew, CrewError, Made, Order, Part, PartReport, Report, Start, Step, Trouble};
use super::{keeps, now_ns, parts, steps};
use crate::job::{Job, Work};
use crate::result::{HostResult, RunResult, StepResult};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A member that has work to do and says nothing for so long is lost.
const SILENCE: Duration = Duration::from_secs(30);
/// How long all have to come to rest when a run ends early.
const REST: Duration = Duration::from_secs(15);
/// How long cleaning up may say nothing.
const CLEANING: Duration = Duration::from_secs(3600);
/// How often the director looks whether it shall stop.
const LOOK: Duration = Duration::from_millis(100);
/// Things left behind that are named.
const NAMED: usize = 20;
/// How often workers report progress.
const PROGRESS_MS: u32 = 250;

/// How far the running step is.
#[derive(Debug, Clone, PartialEq)]
pub struct Progress<'a> {
    /// The step's name.
    pub phase: &'a str,
    /// From 1.
    pub repetition: u32,
    /// Of so many.
    pub repetitions: u32,
    /// Since its start.
    pub elapsed: Duration,
    /// Bytes moved so far.
    pub bytes: u64,
    /// Operations so far.
    pub ops: u64,
}

/// Who watches a run.
pub trait Watch {
    /// A sign of progress, some times a second.
    fn progress(&mut self, progress: &Progress<'_>);
    /// A step is done.
    fn step(&mut self, result: &StepResult);
    /// Something the user should know.
    fn warning(&mut self, text: &str);
}

/// Nobody watches.
pub struct Silent;

impl Watch for Silent {
    fn progress(&mut self, _progress: &Progress<'_>) {}
    fn step(&mut self, _result: &StepResult) {}
    fn warning(&mut self, _text: &str) {}
}

/// Why a run ended early.
#[derive(Debug, Clone)]
pub struct RunError {
    /// What happened, where, and what to do.
    pub reason: String,
    /// It was asked to.
    pub stopped: bool,
    /// What was made and could not be removed.
    pub left: Vec<String>,
    /// What was measured before.
    pub so_far: Box<RunResult>,
}

impl std::fmt::Display for RunError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.reason)?;
        if !self.left.is_empty() {
            let named = self.left.len().min(NAMED);
            write!(f, "; left behind: {}", self.left[..named].join(", "))?;
        }
        match self.left.len().saturating_sub(NAMED) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

impl std::error::Error for RunError {}

/// Does the job. The crew is at its end afterwards, and what was made is removed unless the job keeps it.
///
/// `stop`, set from elsewhere (a signal), ends the run early.
pub fn run(
    job: &Job,
    crew: &mut dyn Crew,
    watch: &mut dyn Watch,
    stop: &AtomicBool,
) -> Result<RunResult, RunError> {
    run_until(job, crew, watch, Ends { stop, leave: &AtomicBool::new(false) })
}

/// How a run is ended from elsewhere.
#[derive(Debug, Clone, Copy)]
pub struct Ends<'a> {
    /// Ends the run early; what was made is removed.
    pub stop: &'a AtomicBool,
    /// Waits for no worker any more, not even for one that removes: what is not removed by then is named.
    pub leave: &'a AtomicBool,
}

/// The same, with an end also to the cleaning up, which a file system that hangs would hold up.
pub fn run_until(
    job: &Job,
    crew: &mut dyn Crew,
    watch: &mut dyn Watch,
    ends: Ends<'_>,
) -> Result<RunResult, RunError> {
    let began = Instant::now();
    let mut result = RunResult::new(job.clone(), hosts(crew), unix_ms());
    let mut failure = match job.check() {
        Err(error) => Some(Failure::said(error.to_string())),
        Ok(()) if crew.members().len() != job.workers.processes as usize => {
            let have = crew.members().len();
            Some(Failure::said(format!(
                "the job wants {} processes, the crew has {have}",
                job.workers.processes
            )))
        }
        Ok(()) => None,
    };
    let mut left = Vec::new();
    if failure.is_none() {
        let alive = vec![true; crew.members().len()];
        let made = vec![Vec::new(); alive.len()];
        let reach = Vec::new();
        let mut director = Director { job, crew, watch, ends, alive, made, reach, result: &mut result };
        failure = director.drive().err();
        if let Some(failure) = &failure {
            if failure.stopped && !failure.before_any && !keeps(job) {
                let text = "stopping; what was made is being removed (asked once more, it is left and named)";
                director.watch.warning(text);
            }
            director.halt();
            left = if failure.before_any { Vec::new() } else { director.clean(true) };
        } else if !keeps(job) {
            left = director.clean(false);
        }
    }
    crew.end();
    result.seconds = began.elapsed().as_secs_f64();
    match failure {
        None if left.is_empty() => Ok(result),
        None => Err(RunError {
            reason: "the measurement is complete, but not all that was made could be removed".to_owned(),
            stopped: false,
            left,
            so_far: Box::new(result),
        }),
        Some(failure) => {
            let fate = match failure.stopped && !failure.before_any {
                true if keeps(job) => "; what was made stays, as the job says",
                true if left.is_empty() => "; what was made is removed",
                _ => "",
            };
            let reason = failure.reason + fate;
            Err(RunError { reason, stopped: failure.stopped, left, so_far: Box::new(result) })
        }
    }
}

fn unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

fn hosts(crew: &dyn Crew) -> Vec<HostResult> {
    let mut hosts: Vec<HostResult> = Vec::new();
    for member in crew.members() {
        match hosts.iter_mut().find(|host| host.name == member.host) {
            Some(host) => host.processes += 1,
            None => hosts.push(HostResult {
                name: member.host.clone(),
                processes: 1,
                clock_error_us: member.clock_error_ns as f64 / 1e3,
            }),
        }
    }
    hosts
}

struct Failure {
    reason: String,
    stopped: bool,
    /// Nothing was made yet, so nothing may be removed: what is there is somebody else's.
    before_any: bool,
}

impl Failure {
    fn said(reason: String) -> Self {
        Self { reason, stopped: false, before_any: true }
    }
}

impl From<CrewError> for Failure {
    fn from(error: CrewError) -> Self {
        Self { reason: error.0, stopped: false, before_any: false }
    }
}

struct Director<'a> {
    job: &'a Job,
    crew: &'a mut dyn Crew,
    watch: &'a mut dyn Watch,
    ends: Ends<'a>,
    alive: Vec<bool>,
    /// What each member said that it made.
    made: Vec<Vec<Made>>,
    reach: Vec<u64>,
    result: &'a mut RunResult,
}

impl Director<'_> {
    fn drive(&mut self) -> Result<(), Failure> {
        self.start().map_err(|failure| Failure { before_any: true, ..failure })?;
        let steps = steps(self.job);
        for repetition in 0..self.job.repetitions {
            if repetition > 0 {
                self.pause(Duration::from_millis(self.job.delay_ms))?;
            }
            self.reach.clear();
            for step in &steps {
                self.step(step, repetition)?;
            }
            self.all(&Order::Tidy { repetition })?;
            self.await_all("tidying up", None)?;
        }
        Ok(())
    }

    fn start(&mut self) -> Result<(), Failure> {
        let hosts: Vec<String> = self.crew.members().iter().map(|member| member.host.clone()).collect();
        for (process, host) in hosts.iter().enumerate() {
            let start = Start {
                job: self.job.clone(),
                process: process as u32,
                hosts: self.result.hosts.len() as u32,
                host_processes: hosts.iter().filter(|other| *other == host).count() as u32,
                first_on_host: hosts.iter().position(|other| other == host) == Some(process),
                progress_ms: PROGRESS_MS,
                settled: false,
            };
            self.crew.send(process, &Order::Start(Box::new(start)))?;
        }
        self.await_all("checking the places", None).map(drop)
    }

    fn pause(&mut self, delay: Duration) -> Result<(), Failure> {
        let until = Instant::now() + delay;
        while Instant::now() < until {
            self.look()?;
            std::thread::sleep(LOOK.min(until.saturating_duration_since(Instant::now())));
        }
        Ok(())
    }

    fn look(&self) -> Result<(), Failure> {
        if self.ends.stop.load(Ordering::Relaxed) {
            let reason = "stopped before the end".to_owned();
            return Err(Failure { reason, stopped: true, before_any: false });
        }
        Ok(())
    }

    fn all(&mut self, order: &Order) -> Result<(), Failure> {
        for member in 0..self.alive.len() {
            self.crew.send(member, order)?;
        }
        Ok(())
    }

    fn step(&mut self, step: &Step, repetition: u32) -> Result<(), Failure> {
        let reach = self.reach.clone();
        self.all(&Order::Prepare { step: step.index, repetition, reach })?;
        self.await_all(&step.name, None)?;
        let mut gathered = Gathered::new(self.job, step, repetition, self.crew.members());
        for part in parts(self.job, step) {
            let reports = self.part(step, *part, repetition)?;
            gathered.add(*part, reports);
        }
        if step.makes && step.walled && self.job.stonewall.is_some() {
            self.reach = gathered.reach(self.job.workers.count());
        }
        if step.shown {
            for result in gathered.finish() {
                self.watch.step(&result);
                self.result.steps.push(result);
            }
        }
        Ok(())
    }

    fn part(&mut self, step: &Step, part: Part, repetition: u32) -> Result<Vec<PartReport>, Failure> {
        let at = now_ns() + self.crew.lead().as_nanos() as u64;
        for member in 0..self.alive.len() {
            let offset = self.crew.members()[member].clock_offset_ns;
            let order = Order::Go { part, start_ns: at.saturating_add_signed(offset) };
            self.crew.send(member, &order)?;
        }
        let reports = self.await_all(&step.name, Some((step, repetition)))?;
        reports
            .into_iter()
            .map(|report| match report {
                Report::Done(report) => Ok(report),
                other => Err(self.confused(&step.name, &other)),
            })
            .collect()
    }

    fn confused(&self, doing: &str, report: &Report) -> Failure {
        let kind = format!("{report:?}");
        let kind = kind.split([' ', '{', '(']).next().unwrap_or_default().to_owned();
        let reason =
            format!("{doing}: a worker answered {kind} out of turn; are all hosts on the same release?");
        Failure { reason, stopped: false, before_any: false }
    }

    /// Waits until every member has answered.
    fn await_all(&mut self, doing: &str, shown: Option<(&Step, u32)>) -> Result<Vec<Report>, Failure> {
        let count = self.alive.len();
        let mut answers: Vec<Option<Report>> = vec![None; count];
        let mut heard = vec![Instant::now(); count];
        let mut progress = vec![(0, 0); count];
        let mut levels: Vec<Option<u64>> = vec![None; count];
        let began = Instant::now();
        while answers.iter().any(Option::is_none) {
            self.look()?;
            self.deaf(doing, &answers, &heard)?;
            let Some((member, report)) = self.crew.receive(LOOK)? else { continue };
            heard[member] = Instant::now();
            match report {
                Report::Progress { bytes, ops } => {
                    progress[member] = (bytes, ops);
                    let Some((step, repetition)) = shown.filter(|(step, _)| step.shown) else { continue };
                    self.watch.progress(&Progress {
                        phase: &step.name,
                        repetition: repetition + 1,
                        repetitions: self.job.repetitions,
                        elapsed: began.elapsed(),
                        bytes: progress.iter().map(|each| each.0).sum(),
                        ops: progress.iter().map(|each| each.1).sum(),
                    });
                }
                Report::Made(made) => self.noted(member, made),
                Report::Walled { ops } => {
                    levels[member] = Some(ops);
                    // Only when the slowest has told how far it was.
                    if let Some(all) = levels.iter().copied().collect::<Option<Vec<u64>>>() {
                        let ops = all.into_iter().max().unwrap_or(0);
                        self.all(&Order::Level { ops })?;
                    }
                }
                Report::Ready { warnings } => {
                    for warning in &warnings {
                        self.watch.warning(warning);
                    }
                    self.result.warnings.extend(warnings.iter().cloned());
                    answers[member] = Some(Report::Ready { warnings });
                }
                Report::Failed { worker, trouble } => {
                    return Err(self.failed(doing, member, worker, &trouble));
                }
                Report::Gone { reason } => return Err(self.gone(doing, member, &reason)),
                other => answers[member] = Some(other),
            }
        }
        Ok(answers.into_iter().flatten().collect())
    }

    fn deaf(&mut self, doing: &str, answers: &[Option<Report>], heard: &[Instant]) -> Result<(), Failure> {
        let silent = (0..answers.len()).find(|i| answers[*i].is_none() && heard[*i].elapsed() > SILENCE);
        let Some(member) = silent else { return Ok(()) };
        let seconds = SILENCE.as_secs();
        Err(self.gone(doing, member, &format!("no sign of life for {seconds} s")))
    }

    fn failed(&self, doing: &str, member: usize, worker: u32, trouble: &Trouble) -> Failure {
        let host = &self.crew.members()[member].host;
        let reason = format!("{doing}: worker {worker} on {host}: {trouble}");
        Failure { reason, stopped: false, before_any: false }
    }

    fn gone(&mut self, doing: &str, member: usize, reason: &str) -> Failure {
        self.alive[member] = false;
        let host = &self.crew.members()[member].host;
        let threads = self.job.workers.threads;
        let first = member as u32 * threads;
        let which = if threads == 1 {
            format!("worker {first}")
        } else {
            format!("workers {first} to {}", first + threads - 1)
        };
        let reason = format!("{doing}: process {member} ({which}) on {host} is gone: {reason}");
        Failure { reason, stopped: false, before_any: false }
    }

    /// Stops all and waits until they rest.
    fn halt(&mut self) {
        if self.all(&Order::Stop).is_err() {
            return;
        }
        let mut resting: Vec<bool> = self.alive.iter().map(|alive| !alive).collect();
        let deadline = Instant::now() + REST;
        while resting.iter().any(|rests| !rests) && Instant::now() < deadline && !self.leaves() {
            match self.crew.receive(LOOK) {
                Ok(Some((member, Report::Stopped))) => resting[member] = true,
                Ok(Some((member, Report::Gone { .. }))) => {
                    resting[member] = true;
                    self.alive[member] = false;
                }
                Ok(Some((member, Report::Made(made)))) => self.noted(member, made),
                Ok(_) => {}
                Err(_) => return,
            }
        }
        for (member, rests) in resting.iter().enumerate() {
            // Still in a system call: it must not make anything after the others have cleaned up.
            self.alive[member] &= rests;
        }
    }

    fn noted(&mut self, member: usize, made: Made) {
        let list = &mut self.made[member];
        list.retain(|other| other.path != made.path);
        list.push(made);
    }

    /// Has everything removed that the job made. Members that are gone are stood in for by one of the
    /// same host, or else by any; when nobody is left, by this process (right where it sees the same files).
    fn clean(&mut self, early: bool) -> Vec<String> {
        if early && keeps(self.job) {
            let text = "the run ended early; what it made is kept, as the job says";
            self.watch.warning(text);
            return Vec::new();
        }
        let members = self.alive.len();
        let mut tasks: Vec<Vec<Made>> = vec![Vec::new(); members];
        let mut mine = Vec::new();
        for member in (0..members).filter(|member| !self.alive[*member]).collect::<Vec<_>>() {
            let host = &self.crew.members()[member].host;
            let same = |other: &usize| self.alive[*other] && self.crew.members()[*other].host == *host;
            let mut orphans = self.made[member].clone();
            if let Some(stand_in) = (0..members).find(same) {
                tasks[stand_in].extend(orphans);
                continue;
            }
            // Other hosts number their file systems otherwise.
            orphans.iter_mut().for_each(|made| made.dev = 0);
            match self.alive.iter().position(|alive| *alive) {
                Some(stand_in) => tasks[stand_in].extend(orphans),
                None => mine.extend(orphans),
            }
        }
        let mut left = match self.leaves() {
            true => mine.iter().map(|made| made.path.clone()).collect(),
            false if mine.is_empty() => Vec::new(),
            false => super::clean(self.job, &mine),
        };
        // One after the other: all may share one directory. Who made that has to come once more at the end.
        let rounds = if matches!(self.job.work, Work::Io(_)) { 1 } else { 2 };
        for round in 0..rounds {
            for member in (0..members).filter(|member| self.alive[*member]).collect::<Vec<_>>() {
                let made = if round + 1 == rounds {
                    std::mem::take(&mut tasks[member])
                } else {
                    tasks[member].clone()
                };
                if !self.made[member].is_empty() || !made.is_empty() {
                    self.clean_by(member, made, &mut left);
                }
            }
        }
        left.sort();
        left.dedup();
        left
    }

    /// Nobody waits any more.
    fn leaves(&self) -> bool {
        self.ends.leave.load(Ordering::Relaxed)
    }

    /// Has a member remove what it made, and more. What it does not answer for is named.
    fn clean_by(&mut self, member: usize, made: Vec<Made>, left: &mut Vec<String>) {
        let all = self.made[member].iter().chain(&made);
        let unsaid: Vec<String> = all.map(|made| made.path.clone()).collect();
        match self.cleaned(member, made) {
            Some(more) => left.extend(more),
            None => {
                self.alive[member] = false;
                left.extend(unsaid);
            }
        }
    }

    /// What a member could not remove; None: it does not say.
    fn cleaned(&mut self, member: usize, made: Vec<Made>) -> Option<Vec<String>> {
        if self.leaves() {
            return None;
        }
        self.crew.send(member, &Order::Clean { made }).ok()?;
        let deadline = Instant::now() + CLEANING;
        while Instant::now() < deadline && !self.leaves() {
            match self.crew.receive(LOOK) {
                Ok(Some((from, Report::Cleaned { left }))) if from == member => return Some(left),
                Ok(Some((from, Report::Gone { .. }))) if from == member => return None,
                Ok(_) => {}
                Err(_) => return None,
            }
        }
        None
    }
}
