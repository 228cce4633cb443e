//! A worker process: takes orders from its input, has its threads do them, reports on its output.

use super::clock::sleep_until;
use super::meter::{Gauge, Wall};
use super::order::{Order, PartReport, Report, Start, WorkerReport, read_line, write_line};
use super::{Claims, Made, Meter, Part, Step, Trouble, ground, steps, volume};
use crate::histogram::Histogram;
use crate::job::{Job, Work};
use std::io::{BufRead, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

/// How long threads have to come to rest after the director is gone, before the process cleans up.
const REST: Duration = Duration::from_secs(10);
/// How long the process that made the directory around all trees waits for the others to empty it.
const OTHERS: Duration = Duration::from_secs(5);
/// Threads of a worker process need little: their buffers are on the heap.
const STACK: usize = 512 << 10;

/// A kind of load, as one thread does it.
pub(crate) trait Load: Send {
    /// Gets ready for a step: opens files, draws orders. Not timed.
    fn prepare(&mut self, step: &Step, repetition: u32, reach: &[u64]) -> Result<(), Trouble>;
    /// Does a part of the prepared step.
    fn part(&mut self, step: &Step, part: Part, meter: &mut Meter) -> Result<(), Trouble>;
    /// A repetition is over. Returns warnings.
    fn tidy(&mut self, repetition: u32) -> Result<Vec<String>, Trouble>;
}

/// One thread's place in the run.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    pub job: Arc<Job>,
    pub worker: u32,
    pub hosts: u32,
    pub claims: Claims,
}

fn load(place: &Place) -> Result<Box<dyn Load>, Trouble> {
    Ok(match &place.job.work {
        Work::Io(io) => Box::new(crate::io::IoLoad::new(place, io)?),
        Work::Meta(meta) => Box::new(crate::meta::MetaLoad::new(place, meta)),
        Work::Files(files) => Box::new(crate::files::FilesLoad::new(place, files)),
    })
}

enum Task {
    Prepare { step: u32, repetition: u32, reach: Arc<Vec<u64>> },
    Part { part: Part, start_ns: u64 },
    Tidy { repetition: u32 },
}

enum Answer {
    Ready(Vec<String>),
    Done(WorkerReport, Vec<Histogram>),
    Walled(u64),
    Failed(Trouble),
}

enum Event {
    Order(Order),
    Hangup(String),
    Thread(usize, Answer),
    Made(Made),
}

struct Hand {
    tasks: Sender<Task>,
    levels: Sender<Option<u64>>,
    gauge: Arc<Gauge>,
}

/// Serves until the input ends or says so. A director that goes away without a word stops the work, and
/// what was made is removed unless the job keeps it.
pub fn serve(input: impl BufRead + Send + 'static, output: impl Write) -> Result<(), String> {
    let (events, inbox) = mpsc::channel();
    let reader = events.clone();
    let maker = events.clone();
    // Whoever no longer listens has the list itself.
    let claims = Claims::told(Arc::new(move |made| drop(maker.send(Event::Made(made)))));
    let mut input = input;
    // Ends with the input; not joined, as a blocked read cannot be called back.
    let spawned = std::thread::Builder::new().name("orders".to_owned()).spawn(move || {
        loop {
            let event = match read_line(&mut input) {
                Ok(Some(order)) => Event::Order(order),
                Ok(None) => Event::Hangup("the director is gone".to_owned()),
                Err(error) => Event::Hangup(format!("cannot read an order: {error}")),
            };
            let last = matches!(event, Event::Hangup(_));
            if reader.send(event).is_err() || last {
                return;
            }
        }
    });
    spawned.map_err(|error| format!("cannot start a thread: {error}"))?;
    let mut process = Process {
        output,
        events,
        inbox,
        stop: Arc::default(),
        start: None,
        claims,
        hands: Vec::new(),
        pending: 0,
        walled: 0,
        level: 0,
        report: PartReport::default(),
        merged: Vec::new(),
        warnings: Vec::new(),
        stopping: false,
    };
    let ended = process.serve();
    process.leave(ended.is_err());
    ended
}

struct Process<W> {
    output: W,
    events: Sender<Event>,
    inbox: Receiver<Event>,
    stop: Arc<AtomicBool>,
    start: Option<Arc<Start>>,
    claims: Claims,
    hands: Vec<Hand>,
    /// Threads that have not answered yet.
    pending: usize,
    walled: usize,
    level: u64,
    report: PartReport,
    merged: Vec<Histogram>,
    /// To be told with the next answer.
    warnings: Vec<String>,
    stopping: bool,
}

impl<W: Write> Process<W> {
    fn serve(&mut self) -> Result<(), String> {
        loop {
            let rhythm = self.start.as_ref().map_or(1_000, |start| start.progress_ms.max(10));
            match self.inbox.recv_timeout(Duration::from_millis(u64::from(rhythm))) {
                Ok(Event::Order(Order::End)) => return Ok(()),
                Ok(Event::Order(order)) => self.obey(order)?,
                Ok(Event::Hangup(reason)) => return Err(reason),
                Ok(Event::Thread(thread, answer)) => self.answered(thread, answer)?,
                Ok(Event::Made(made)) => self.say(&Report::Made(made))?,
                Err(RecvTimeoutError::Timeout) if self.pending > 0 => self.progress()?,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err("all threads are gone".to_owned()),
            }
        }
    }

    fn say(&mut self, report: &Report) -> Result<(), String> {
        write_line(&mut self.output, report).map_err(|error| format!("cannot report: {error}"))
    }

    fn progress(&mut self) -> Result<(), String> {
        let sum = |of: fn(&Gauge) -> u64| self.hands.iter().map(|hand| of(&hand.gauge)).sum();
        let bytes = sum(|gauge| gauge.bytes.load(Ordering::Relaxed));
        let ops = sum(|gauge| gauge.ops.load(Ordering::Relaxed));
        self.say(&Report::Progress { bytes, ops })
    }

    fn obey(&mut self, order: Order) -> Result<(), String> {
        match order {
            Order::Start(mut start) => {
                if !start.settled {
                    volume::settle(&mut start.job);
                }
                self.begin(Arc::new(*start))
            }
            Order::Prepare { step, repetition, reach } => {
                let reach = Arc::new(reach);
                self.all(|| Task::Prepare { step, repetition, reach: Arc::clone(&reach) });
                Ok(())
            }
            Order::Go { part, start_ns } => {
                self.report = PartReport::default();
                self.merged.clear();
                (self.walled, self.level) = (0, 0);
                self.all(|| Task::Part { part, start_ns });
                Ok(())
            }
            Order::Level { ops } => {
                for hand in &self.hands {
                    let _ = hand.levels.send(Some(ops));
                }
                Ok(())
            }
            Order::Tidy { repetition } => {
                self.all(|| Task::Tidy { repetition });
                Ok(())
            }
            Order::Clean { made } => {
                let left = self.start.as_ref().map(|start| self.claims.clean(&start.job, &made));
                self.say(&Report::Cleaned { left: left.unwrap_or_default() })
            }
            Order::Stop => {
                self.halt();
                self.stopping = true;
                self.rested()
            }
            Order::End => Ok(()),
        }
    }

    fn begin(&mut self, start: Arc<Start>) -> Result<(), String> {
        let first = start.process.saturating_mul(start.job.workers.threads);
        match volume::preflight(&start) {
            Ok(warnings) => {
                for thread in 0..start.job.workers.threads {
                    let place = Place {
                        job: Arc::new(start.job.clone()),
                        worker: first + thread,
                        hosts: start.hosts,
                        claims: self.claims.clone(),
                    };
                    if let Err(error) = self.hire(place, thread as usize) {
                        let trouble = Trouble::found("start a thread", "".as_ref(), error.to_string());
                        return self.say(&Report::Failed { worker: first + thread, trouble });
                    }
                }
                self.start = Some(start);
                self.say(&Report::Ready { warnings })
            }
            Err(trouble) => self.say(&Report::Failed { worker: first, trouble }),
        }
    }

    fn hire(&mut self, place: Place, thread: usize) -> std::io::Result<()> {
        let (tasks, todo) = mpsc::channel();
        let (levels, level) = mpsc::channel::<Option<u64>>();
        let gauge = Arc::new(Gauge::default());
        let events = self.events.clone();
        let asking = self.events.clone();
        let ask = Box::new(move |done: u64| {
            let sent = asking.send(Event::Thread(thread, Answer::Walled(done)));
            sent.ok().and_then(|()| level.recv().ok()).flatten()
        });
        let meter = Meter::new(Arc::clone(&self.stop), Arc::clone(&gauge), ask);
        let builder = std::thread::Builder::new().name(format!("worker-{}", place.worker)).stack_size(STACK);
        builder.spawn(move || {
            work(&place, meter, &todo, &|answer| events.send(Event::Thread(thread, answer)).is_ok())
        })?;
        self.hands.push(Hand { tasks, levels, gauge });
        Ok(())
    }

    fn all(&mut self, task: impl Fn() -> Task) {
        self.pending = self.hands.iter().filter(|hand| hand.tasks.send(task()).is_ok()).count();
    }

    fn answered(&mut self, thread: usize, answer: Answer) -> Result<(), String> {
        match answer {
            Answer::Walled(ops) => {
                self.walled += 1;
                self.level = self.level.max(ops);
                let level = self.level;
                return if self.walled == self.hands.len() {
                    self.say(&Report::Walled { ops: level })
                } else {
                    Ok(())
                };
            }
            Answer::Ready(warnings) => {
                self.pending -= 1;
                self.warnings.extend(warnings);
            }
            Answer::Done(report, histograms) => {
                self.pending -= 1;
                self.report.workers.push(report);
                for (side, histogram) in histograms.iter().enumerate() {
                    match self.merged.get_mut(side) {
                        Some(merged) => merged.merge(histogram),
                        None => self.merged.push(histogram.clone()),
                    }
                }
                if self.pending == 0 && !self.stopping {
                    let mut report = std::mem::take(&mut self.report);
                    report.workers.sort_by_key(|worker| worker.worker);
                    report.latencies = self.merged.iter().map(Histogram::pairs).collect();
                    return self.say(&Report::Done(report));
                }
                return self.rested();
            }
            Answer::Failed(trouble) => {
                self.pending -= 1;
                let first = self.start.as_ref().map_or(0, |start| start.process * start.job.workers.threads);
                if !trouble.is_stop() {
                    let worker = first + thread as u32;
                    // The others of this process stop as well; those elsewhere when the director says so.
                    self.halt();
                    self.say(&Report::Failed { worker, trouble })?;
                }
                return self.rested();
            }
        }
        if self.pending == 0 && !self.stopping && !self.stop.load(Ordering::Relaxed) {
            let warnings = std::mem::take(&mut self.warnings);
            return self.say(&Report::Ready { warnings });
        }
        self.rested()
    }

    fn halt(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for hand in &self.hands {
            let _ = hand.levels.send(None);
        }
    }

    fn rested(&mut self) -> Result<(), String> {
        if self.stopping && self.pending == 0 {
            self.stopping = false;
            return self.say(&Report::Stopped);
        }
        Ok(())
    }

    fn leave(&mut self, abandoned: bool) {
        self.halt();
        let deadline = Instant::now() + REST;
        while self.pending > 0 {
            match self.inbox.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(
                    Event::Thread(_, Answer::Walled(_)) | Event::Order(_) | Event::Hangup(_) | Event::Made(_),
                ) => {}
                Ok(Event::Thread(..)) => self.pending -= 1,
                Err(_) => break,
            }
        }
        if let Some(start) = self.start.take().filter(|start| abandoned && !volume::keeps(&start.job)) {
            self.claims.clean(&start.job, &[]);
            // The directory around the trees is one process's, and empty when the last has cleaned up.
            let deadline = Instant::now() + OTHERS;
            while self.claims.waits(&start.job) && Instant::now() < deadline {
                std::thread::sleep(OTHERS / 100);
                self.claims.clean(&start.job, &[]);
            }
        }
    }
}

/// A thread's life: one task after the other until nobody gives any more.
fn work(place: &Place, mut meter: Meter, todo: &Receiver<Task>, answer: &dyn Fn(Answer) -> bool) {
    let steps = steps(&place.job);
    let mut load = load(place);
    let mut prepared: Option<&Step> = None;
    while let Ok(task) = todo.recv() {
        let done = match &mut load {
            Ok(load) => perform(place, &steps, load.as_mut(), &mut prepared, &mut meter, task),
            Err(trouble) => Err(trouble.clone()),
        };
        if !answer(done.unwrap_or_else(Answer::Failed)) {
            return;
        }
    }
}

fn perform<'a>(
    place: &Place,
    steps: &'a [Step],
    load: &mut dyn Load,
    prepared: &mut Option<&'a Step>,
    meter: &mut Meter,
    task: Task,
) -> Result<Answer, Trouble> {
    let out_of_turn =
        || Trouble::found("obey", "".as_ref(), "the director's order is out of turn".to_owned());
    match task {
        Task::Prepare { step, repetition, reach } => {
            let step = steps.get(step as usize).ok_or_else(out_of_turn)?;
            ground::forget();
            load.prepare(step, repetition, &reach)?;
            *prepared = Some(step);
            Ok(Answer::Ready(Vec::new()))
        }
        Task::Part { part, start_ns } => {
            let step = prepared.ok_or_else(out_of_turn)?;
            let mut wall = Wall::default();
            let data = matches!(part, Part::All | Part::Transfer);
            if let Some(stonewall) = place.job.stonewall.filter(|_| step.walled && data) {
                wall.at_ns = Some(start_ns.saturating_add(stonewall.after_ms.saturating_mul(1_000_000)));
                (wall.wear_out, wall.repeat) = (stonewall.wear_out, stonewall.repeat);
            }
            sleep_until(start_ns);
            meter.begin(wall);
            load.part(step, part, meter)?;
            let (report, histograms) = meter.report(place.worker);
            Ok(Answer::Done(report, histograms))
        }
        Task::Tidy { repetition } => load.tidy(repetition).map(Answer::Ready),
    }
}
