//! A run at an agent: its worker processes, the orders to them, the stream of their reports.

use super::question::{PIECE_MAX, Relayed, WAIT_MAX_MS};
use skep_bench::engine::{Crew, LocalCrew, Made, Order, Report, Start, keeps};
use skep_bench::job::Job;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A coordinator that asks nothing for this long is gone: its run is ended and cleaned up.
pub const SILENCE: Duration = Duration::from_secs(10);
/// Bytes of reports that wait to be fetched; beyond it the processes wait.
const OUTBOX_MAX: usize = 64 << 20;
/// How often orders are looked for while nothing is reported.
const LOOK: Duration = Duration::from_millis(2);
/// How long the processes have to come to rest when the coordinator is gone.
const REST: Duration = Duration::from_secs(15);
/// How long each has to remove what it made: large trees take their time.
const CLEANING: Duration = Duration::from_secs(3600);

/// Text that is fetched by its place in the stream.
#[derive(Default)]
struct Outbox {
    /// Place of the first byte that is kept.
    base: u64,
    text: String,
    closed: bool,
}

struct Inner {
    outbox: Mutex<Outbox>,
    more: Condvar,
    heard: Mutex<Instant>,
    end: AtomicBool,
    over: AtomicBool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub struct Run {
    /// As the coordinator named it.
    pub id: u64,
    job: Job,
    processes: Vec<u32>,
    last: u64,
    orders: Sender<(usize, Order)>,
    inner: Arc<Inner>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Run {
    /// Starts it with this crew: one member for each of `processes`.
    pub fn start(id: u64, job: Job, processes: Vec<u32>, crew: LocalCrew) -> Result<Self, String> {
        let (orders, inbox) = mpsc::channel();
        let inner = Arc::new(Inner {
            outbox: Mutex::default(),
            more: Condvar::new(),
            heard: Mutex::new(Instant::now()),
            end: AtomicBool::new(false),
            over: AtomicBool::new(false),
        });
        let mut keeper = Keeper {
            crew,
            job: job.clone(),
            processes: processes.clone(),
            inbox,
            inner: inner.clone(),
            begun: false,
            cleaning: CLEANING,
            made: vec![Vec::new(); processes.len()],
        };
        let thread = std::thread::Builder::new().name("bench-run".into()).spawn(move || keeper.keep());
        let thread = Some(thread.map_err(|e| format!("no thread for the run: {e}"))?);
        Ok(Self { id, job, processes, last: 0, orders, inner, thread })
    }

    /// Passes orders on. A number that was seen before is a question that came twice.
    pub fn order(&mut self, number: u64, orders: Vec<(Vec<u32>, Relayed)>) -> Result<(), String> {
        self.heard();
        if number <= self.last {
            return Ok(());
        }
        self.last = number;
        for (places, relayed) in orders {
            for place in places {
                let process = *self.processes.get(place as usize).ok_or("there is no such process here")?;
                let order = self.full(process, &relayed)?;
                // Nobody listens any more: the reports say why.
                let _ = self.orders.send((place as usize, order));
            }
        }
        Ok(())
    }

    fn full(&self, process: u32, relayed: &Relayed) -> Result<Order, String> {
        Ok(match relayed {
            Relayed::Start { hosts, host_processes, first_on_host, progress_ms } => {
                Order::Start(Box::new(Start {
                    job: self.job.clone(),
                    process,
                    hosts: *hosts,
                    host_processes: *host_processes,
                    first_on_host: *first_on_host,
                    progress_ms: *progress_ms,
                    settled: true,
                }))
            }
            // It would bring a job of its own, which nobody has checked.
            Relayed::Order(Order::Start(_)) => return Err("an order to start brings no job".to_owned()),
            Relayed::Order(order) => order.clone(),
        })
    }

    /// What waits from that byte on.
    pub fn outlet(&self) -> Outlet {
        self.heard();
        Outlet(self.inner.clone())
    }

    fn heard(&self) {
        *lock(&self.inner.heard) = Instant::now();
    }

    /// Have the processes ended?
    pub fn is_over(&self) -> bool {
        self.inner.over.load(Ordering::Acquire)
    }

    /// Ends it, and waits for that.
    pub fn end(&mut self) {
        self.inner.end.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            // A panic ends the process anyway.
            let _ = thread.join();
        }
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        self.end();
    }
}

/// The reading end of a run's reports; waiting there holds nothing else up.
pub struct Outlet(Arc<Inner>);

impl Outlet {
    /// The text from that byte on, waiting for it for a while.
    pub fn read(&self, from: u64) -> Result<String, String> {
        let mut outbox = lock(&self.0.outbox);
        let skip = from.checked_sub(outbox.base).and_then(|skip| usize::try_from(skip).ok());
        let skip = skip.filter(|skip| outbox.text.is_char_boundary(*skip));
        let skip = skip.ok_or_else(|| format!("there are no reports at byte {from}"))?;
        outbox.text.drain(..skip);
        outbox.base = from;
        let wait = Duration::from_millis(WAIT_MAX_MS);
        let empty = |outbox: &mut Outbox| outbox.text.is_empty() && !outbox.closed;
        let (outbox, _) =
            self.0.more.wait_timeout_while(outbox, wait, empty).unwrap_or_else(PoisonError::into_inner);
        let mut end = outbox.text.len().min(PIECE_MAX);
        while !outbox.text.is_char_boundary(end) {
            end -= 1;
        }
        Ok(outbox.text[..end].to_owned())
    }
}

/// What came of an order to clean up.
enum Cleaned {
    /// Done; what could not be removed.
    All(Vec<String>),
    /// The process is gone.
    Gone,
    /// It does not answer.
    Silent,
}

/// Owns the processes; runs on a thread of its own.
struct Keeper {
    crew: LocalCrew,
    job: Job,
    processes: Vec<u32>,
    inbox: Receiver<(usize, Order)>,
    inner: Arc<Inner>,
    /// Something may have been made.
    begun: bool,
    /// How long each process has to remove what it made.
    cleaning: Duration,
    /// What each process said that it made.
    made: Vec<Vec<Made>>,
}

impl Keeper {
    fn keep(&mut self) {
        let lost = self.relay();
        if lost && self.begun {
            // Nobody else is there to be told.
            let left = self.clean_up();
            if !left.is_empty() {
                skep_base::warning!("what the run made could not all be removed: {}", left.join(", "));
            }
        }
        self.crew.end();
        self.inner.over.store(true, Ordering::Release);
        lock(&self.inner.outbox).closed = true;
        self.inner.more.notify_all();
    }

    /// Until the run is ended (false), or its coordinator is lost (true).
    fn relay(&mut self) -> bool {
        loop {
            while let Ok((member, order)) = self.inbox.try_recv() {
                self.begun |= matches!(order, Order::Prepare { .. } | Order::Go { .. });
                if self.crew.send(member, &order).is_err() {
                    return false;
                }
            }
            if self.inner.end.load(Ordering::Acquire) {
                return false;
            }
            if lock(&self.inner.heard).elapsed() > SILENCE {
                skep_base::warning!(
                    "the coordinator of a run is gone: its {} processes end",
                    self.processes.len()
                );
                return true;
            }
            if lock(&self.inner.outbox).text.len() > OUTBOX_MAX {
                std::thread::sleep(LOOK);
                continue;
            }
            match self.crew.receive(LOOK) {
                Ok(Some((member, report))) => {
                    self.note(member, &report);
                    self.put(member, &report);
                }
                Ok(None) => {}
                Err(_) => return false,
            }
        }
    }

    fn put(&self, member: usize, report: &Report) {
        // Numbers and texts only: there is nothing in a report that JSON cannot say.
        let Ok(line) = serde_json::to_string(&(member, report)) else { return };
        let mut outbox = lock(&self.inner.outbox);
        outbox.text.push_str(&line);
        outbox.text.push('\n');
        drop(outbox);
        self.inner.more.notify_all();
    }

    fn note(&mut self, member: usize, report: &Report) {
        if let Report::Made(made) = report {
            self.made[member].retain(|other| other.path != made.path);
            self.made[member].push(made.clone());
        }
    }

    /// As the director would: all come to rest, then each removes what it made, and the first that answers what
    /// processes made that are gone. Twice, as who made the directory around all trees must come last. Returns what is
    /// left.
    fn clean_up(&mut self) -> Vec<String> {
        let count = self.processes.len();
        let mut alive = vec![true; count];
        (0..count).for_each(|member| drop(self.crew.send(member, &Order::Stop)));
        self.gather(&mut alive, |report| matches!(report, Report::Stopped));
        if keeps(&self.job) {
            return Vec::new();
        }
        let mut left = Vec::new();
        let mut hangs = false;
        for _ in 0..2 {
            left.clear();
            let gone = (0..count).filter(|member| !alive[*member]);
            let mut orphans: Vec<Made> = gone.flat_map(|member| self.made[member].clone()).collect();
            for member in (0..count).filter(|member| alive[*member]).collect::<Vec<_>>() {
                match self.cleaned(member, &orphans) {
                    Cleaned::All(more) => {
                        orphans.clear();
                        left.extend(more);
                    }
                    // The next one stands in for both.
                    silent_or_gone => {
                        alive[member] = false;
                        hangs |= matches!(silent_or_gone, Cleaned::Silent);
                        orphans.extend(self.made[member].iter().cloned());
                    }
                }
            }
            match hangs {
                // This process must not come to hang as well.
                true => left.extend(orphans.into_iter().map(|made| made.path)),
                false => left.extend(skep_bench::engine::clean(&self.job, &orphans)),
            }
        }
        left.sort();
        left.dedup();
        left
    }

    /// Has a process remove what it made, and more.
    fn cleaned(&mut self, member: usize, made: &[Made]) -> Cleaned {
        if self.crew.send(member, &Order::Clean { made: made.to_vec() }).is_err() {
            return Cleaned::Gone;
        }
        let mut deadline = Instant::now() + self.cleaning;
        let mut told = false;
        while Instant::now() < deadline {
            if !told && self.inner.end.load(Ordering::Acquire) {
                // The agent itself shall end.
                told = true;
                deadline = deadline.min(Instant::now() + REST);
            }
            match self.crew.receive(LOOK) {
                Ok(Some((from, Report::Cleaned { left }))) if from == member => return Cleaned::All(left),
                Ok(Some((from, Report::Gone { .. }))) if from == member => return Cleaned::Gone,
                Ok(Some((from, report))) => self.note(from, &report),
                Ok(None) => {}
                Err(_) => return Cleaned::Gone,
            }
        }
        Cleaned::Silent
    }

    /// Waits until all in `members` have said it; who is gone or silent leaves the list.
    fn gather(&mut self, members: &mut [bool], said: impl Fn(&Report) -> bool) {
        let mut waiting = members.to_vec();
        let deadline = Instant::now() + REST;
        while waiting.contains(&true) && Instant::now() < deadline {
            match self.crew.receive(LOOK) {
                Ok(Some((member, Report::Gone { .. }))) => {
                    (waiting[member], members[member]) = (false, false);
                }
                Ok(Some((member, report))) if said(&report) => waiting[member] = false,
                Ok(Some((member, report))) => self.note(member, &report),
                Ok(None) => {}
                Err(_) => return,
            }
        }
        members.iter_mut().zip(&waiting).for_each(|(member, waits)| *member &= !waits);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use skep_bench::job::{IoJob, Work};
    use std::path::Path;
    use std::process::Command;

    /// A process that stops when it is told to, and does `script` with an order to clean up in `$order`.
    fn worker(script: &str) -> Command {
        let mut command = Command::new("sh");
        let rest = format!(
            r#"while read -r order; do case "$order" in *stop*) echo '"stopped"';; *clean*) {script};; *) exit 0;; esac; done"#
        );
        command.arg("-c").arg(rest);
        command
    }

    fn keeper(dir: &Path, first: &str) -> Keeper {
        let orders = dir.join("orders");
        let second = format!(
            r#"printf '%s\n' "$order" >> {}; echo '{{"cleaned":{{"left":["/x/f (busy)"]}}}}'"#,
            orders.display()
        );
        let crew = LocalCrew::spawn(2, "here", |process| worker(if process == 0 { first } else { &second }));
        let (_, inbox) = mpsc::channel();
        let made = |path: &str| vec![Made { path: path.to_owned(), dev: 0, ino: 1 }];
        Keeper {
            crew: crew.unwrap(),
            job: Job::new(Work::Io(IoJob::new("/nowhere"))),
            processes: vec![0, 1],
            inbox,
            inner: Arc::new(Inner {
                outbox: Mutex::default(),
                more: Condvar::new(),
                heard: Mutex::new(Instant::now()),
                end: AtomicBool::new(false),
                over: AtomicBool::new(false),
            }),
            begun: true,
            cleaning: Duration::from_secs(60),
            made: vec![made("/nowhere/of-first"), made("/nowhere/of-second")],
        }
    }

    /// Goal: when the process that removes dies of it, another removes what it made; what could not be removed is
    /// known by name at the end.
    #[test]
    fn another_stands_in() {
        let dir = tempfile::tempdir().unwrap();
        let mut keeper = keeper(dir.path(), "exit 3");
        assert_eq!(keeper.clean_up(), ["/x/f (busy)"]);
        let orders = std::fs::read_to_string(dir.path().join("orders")).unwrap();
        assert!(orders.lines().next().unwrap().contains("/nowhere/of-first"), "{orders}");
    }

    /// Goal: a process that does not answer at all is named by what it made, its part is given to another, and the agent
    /// itself does not touch a file system that hangs.
    #[test]
    fn a_silent_one_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let mut keeper = keeper(dir.path(), "true");
        // Long enough for the one that answers.
        keeper.cleaning = Duration::from_secs(10);
        assert_eq!(keeper.clean_up(), ["/x/f (busy)"], "the second stood in");
        let orders = std::fs::read_to_string(dir.path().join("orders")).unwrap();
        assert!(orders.lines().next().unwrap().contains("/nowhere/of-first"), "{orders}");
        let mut alone = self::keeper(dir.path(), "true");
        (alone.cleaning, alone.processes) = (Duration::from_millis(100), vec![0]);
        assert_eq!(alone.clean_up(), ["/nowhere/of-first"]);
    }
}
