//! The jobs of a daemon: each on a thread of its own, a few at once, the last ones remembered.

use super::question::{Findings, JobShown, JobState, Measurement, Order};
use skep_bench::engine::now_ns;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Jobs that run at once; one more is refused.
pub const RUNNING_MAX: usize = 8;
/// Ended jobs that are remembered.
pub const REMEMBERED_MAX: usize = 32;

/// What a job shows while it runs.
type Partial = Box<dyn Fn() -> Findings + Send>;

/// Longest text of whom a job is for.
const BY_MAX: usize = 200;
/// A held job that nobody asks for during this time ends, whether it has a lease or not.
const HOLD_MAX: Duration = Duration::from_secs(15);
/// A moment to begin at that lies further away is not waited for: clocks were confused.
const AHEAD_MAX: Duration = Duration::from_secs(60);
/// A held job looks so often whether it shall end.
const HELD_LOOK: Duration = Duration::from_millis(100);

/// What the thread of a job and those who ask for it share.
pub struct Control {
    stop: AtomicBool,
    partial: Mutex<Option<Partial>>,
    began: Instant,
    /// It ends when nobody has asked for it for so long; 0: it does not.
    lease_ms: u64,
    /// When it was asked for last, in milliseconds since it began.
    asked_ms: AtomicU64,
    /// When a held job begins, by [`now_ns`]; none: that was not said yet.
    go: Mutex<Option<u64>>,
    told: Condvar,
}

impl Default for Control {
    fn default() -> Self {
        Self::leased(0)
    }
}

impl Control {
    /// Of a job that must be asked for.
    fn leased(lease_ms: u64) -> Self {
        Self {
            stop: AtomicBool::new(false),
            partial: Mutex::new(None),
            began: Instant::now(),
            lease_ms,
            asked_ms: AtomicU64::new(0),
            go: Mutex::new(None),
            told: Condvar::new(),
        }
    }

    fn now_ms(&self) -> u64 {
        self.began.elapsed().as_millis() as u64
    }

    /// Somebody asks for it.
    fn renew(&self) {
        self.asked_ms.store(self.now_ms(), Relaxed);
    }

    /// Has nobody asked for it for so long?
    fn is_forgotten(&self, ms: u64) -> bool {
        self.now_ms() > self.asked_ms.load(Relaxed).saturating_add(ms)
    }

    /// Shall it end?
    pub fn is_stopped(&self) -> bool {
        // Who has forgotten it is gone for good: a late question does not bring it back.
        if self.lease_ms > 0 && self.is_forgotten(self.lease_ms) {
            self.stop();
        }
        self.stop.load(Relaxed)
    }

    /// Waits until [`Self::go`] was called and the moment has come, or the job is stopped or forgotten.
    pub fn held(&self) {
        let mut go = lock(&self.go);
        while !self.is_stopped() {
            let left = match *go {
                Some(at) => Duration::from_nanos(at.saturating_sub(now_ns())),
                None => HELD_LOOK,
            };
            if left.is_zero() || left > AHEAD_MAX {
                return;
            }
            if go.is_none() && self.is_forgotten(HOLD_MAX.as_millis() as u64) {
                self.stop();
            }
            go = self.told.wait_timeout(go, left.min(HELD_LOOK)).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// A held job begins at this moment of the monotonic clock.
    pub fn go(&self, at_ns: u64) {
        *lock(&self.go) = Some(at_ns);
        self.told.notify_all();
    }

    /// What a question for the job is answered with while it runs.
    pub fn show(&self, partial: impl Fn() -> Findings + Send + 'static) {
        *lock(&self.partial) = Some(Box::new(partial));
    }

    pub fn stop(&self) {
        self.stop.store(true, Relaxed);
        self.told.notify_all();
    }
}

struct Job {
    what: Measurement,
    by: String,
    began: Instant,
    control: Arc<Control>,
    outcome: Option<Outcome>,
}

/// How a job has ended.
struct Outcome {
    result: Result<Findings, String>,
    took: Duration,
    stopped: bool,
}

#[derive(Default)]
struct Table {
    last: u64,
    jobs: BTreeMap<u64, Job>,
}

#[derive(Clone, Default)]
pub struct Jobs(Arc<Mutex<Table>>);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Jobs {
    /// Runs `work` on a thread of its own. Refused when too many run, or one that `excludes` does.
    pub fn start(
        &self,
        order: Order,
        excludes: impl Fn(&Measurement) -> bool,
        work: impl FnOnce(&Control) -> Result<Findings, String> + Send + 'static,
    ) -> Result<u64, String> {
        let mut table = lock(&self.0);
        let running = || table.jobs.iter().filter(|(_, job)| job.outcome.is_none());
        if let Some((other, job)) = running().find(|(_, job)| excludes(&job.what)) {
            return Err(format!(
                "job {other} ({}) of {} has been running for {} s: wait for it, or stop it",
                job.what.name(),
                job.by,
                job.began.elapsed().as_secs()
            ));
        }
        if running().count() >= RUNNING_MAX {
            return Err(format!("{RUNNING_MAX} measurements run already: wait for one, or stop it"));
        }
        table.last += 1;
        let number = table.last;
        let control = Arc::new(Control::leased(order.lease_ms));
        let (jobs, own) = (self.clone(), control.clone());
        let began = Instant::now();
        let by = order.by.chars().filter(|letter| !letter.is_control()).take(BY_MAX).collect();
        table.jobs.insert(number, Job { what: order.what, by, began, control, outcome: None });
        let thread = std::thread::Builder::new().name("instrument".to_owned());
        let spawned = thread.spawn(move || {
            let result = work(&own);
            jobs.ended(number, result);
        });
        if let Err(e) = spawned {
            table.jobs.remove(&number);
            return Err(format!("cannot start a thread: {e}"));
        }
        Ok(number)
    }

    fn ended(&self, number: u64, result: Result<Findings, String>) {
        let mut table = lock(&self.0);
        if let Some(job) = table.jobs.get_mut(&number) {
            let (took, stopped) = (job.began.elapsed(), job.control.is_stopped());
            job.outcome = Some(Outcome { result, took, stopped });
        }
        let ended: Vec<u64> =
            table.jobs.iter().filter(|(_, job)| job.outcome.is_some()).map(|(number, _)| *number).collect();
        for oldest in ended.iter().take(ended.len().saturating_sub(REMEMBERED_MAX)) {
            table.jobs.remove(oldest);
        }
    }

    /// How a job stands.
    pub fn shown(&self, number: u64) -> Option<JobShown> {
        lock(&self.0).jobs.get(&number).map(|job| show(number, job))
    }

    /// [`Self::shown`] to whom it is for: it may go on.
    pub fn asked(&self, number: u64) -> Option<JobShown> {
        let table = lock(&self.0);
        let job = table.jobs.get(&number)?;
        job.control.renew();
        Some(show(number, job))
    }

    /// A held job begins at this moment of the monotonic clock; how it stands.
    pub fn go(&self, number: u64, at_ns: u64) -> Option<JobShown> {
        let table = lock(&self.0);
        let job = table.jobs.get(&number)?;
        job.control.renew();
        job.control.go(at_ns);
        Some(show(number, job))
    }

    /// Does a job run that is so?
    pub fn runs(&self, is: impl Fn(&Measurement) -> bool) -> bool {
        lock(&self.0).jobs.values().any(|job| job.outcome.is_none() && is(&job.what))
    }

    /// All of them; findings only of the newest of each kind, for an answer has a limit.
    pub fn all(&self) -> Vec<JobShown> {
        let mut all: Vec<JobShown> =
            lock(&self.0).jobs.iter().map(|(number, job)| show(*number, job)).collect();
        let mut seen = Vec::new();
        for job in all.iter_mut().rev() {
            let kind = job.what.name();
            if seen.contains(&kind) {
                job.findings = None;
            }
            seen.push(kind);
        }
        all
    }

    /// Ends a job soon. `false`: there is no such job.
    pub fn stop(&self, number: u64) -> bool {
        match lock(&self.0).jobs.get(&number) {
            Some(job) => {
                job.control.stop();
                true
            }
            None => false,
        }
    }

    /// Ends all of them soon: the daemon stops.
    pub fn stop_all(&self) {
        lock(&self.0).jobs.values().for_each(|job| job.control.stop());
    }

    #[cfg(test)]
    fn running(&self) -> usize {
        lock(&self.0).jobs.values().filter(|job| job.outcome.is_none()).count()
    }
}

fn show(number: u64, job: &Job) -> JobShown {
    let (what, by) = (job.what.clone(), job.by.clone());
    let shown = |state, took: Duration, findings, error| JobShown {
        job: number,
        what,
        by,
        state,
        seconds: took.as_secs_f64(),
        findings,
        error,
    };
    match &job.outcome {
        None => {
            let partial = lock(&job.control.partial).as_ref().map(|partial| partial());
            shown(JobState::Running, job.began.elapsed(), partial, None)
        }
        Some(Outcome { result: Ok(findings), took, stopped }) => {
            let state = if *stopped { JobState::Stopped } else { JobState::Done };
            shown(state, *took, Some(findings.clone()), None)
        }
        Some(Outcome { result: Err(why), took, .. }) => {
            shown(JobState::Failed, *took, None, Some(why.clone()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    fn wait_for(jobs: &Jobs, number: u64) -> JobShown {
        loop {
            let shown = jobs.shown(number).unwrap();
            if shown.state != JobState::Running {
                return shown;
            }
            std::thread::yield_now();
        }
    }

    fn order(lease_ms: u64) -> Order {
        Order { what: Measurement::Facts, by: "somebody".to_owned(), lease_ms, keep: false }
    }

    /// Goal: a job that nobody asks for ends by itself, one that is asked for goes on, and one that has ended keeps
    /// its state.
    #[test]
    fn forgotten_jobs_end() {
        let jobs = Jobs::default();
        let endless = |control: &Control| {
            while !control.is_stopped() {
                std::thread::yield_now();
            }
            Ok(removed(1))
        };
        let asked = jobs.start(order(60_000), |_| false, endless).unwrap();
        let forgotten = jobs.start(order(1), |_| false, endless).unwrap();
        assert_eq!(wait_for(&jobs, forgotten).state, JobState::Stopped);
        assert_eq!(jobs.asked(asked).unwrap().state, JobState::Running);
        jobs.stop_all();
        wait_for(&jobs, asked);
        let done = jobs.start(order(50), |_| false, |_| Ok(removed(2))).unwrap();
        let state = wait_for(&jobs, done).state;
        while !lock(&jobs.0).jobs[&done].control.is_stopped() {
            std::thread::yield_now();
        }
        assert_eq!(jobs.shown(done).unwrap().state, state);
    }

    /// Goal: a held job begins when it was told to, not before; one that is stopped meanwhile ends.
    #[test]
    fn held_jobs_begin_when_told() {
        let jobs = Jobs::default();
        let (begun, begins) = channel();
        let held = move |control: &Control| {
            control.held();
            begun.send((now_ns(), control.is_stopped())).unwrap();
            Ok(removed(1))
        };
        let number = jobs.start(order(60_000), |_| false, held.clone()).unwrap();
        assert!(begins.recv_timeout(Duration::from_millis(50)).is_err(), "nobody has said go");
        let at = now_ns() + 50_000_000;
        jobs.go(number, at).unwrap();
        let (began, stopped) = begins.recv().unwrap();
        assert!(began >= at && !stopped, "{began} {at}");
        // A moment that is past, or beyond all reason, is now.
        for at in [1, u64::MAX] {
            let late = jobs.start(order(0), |_| false, held.clone()).unwrap();
            jobs.go(late, at).unwrap();
            assert!(!begins.recv().unwrap().1);
        }
        let stopped = jobs.start(order(0), |_| false, held).unwrap();
        jobs.stop(stopped);
        assert!(begins.recv().unwrap().1);
        assert!(jobs.go(99, 0).is_none());
    }

    fn removed(n: u64) -> Findings {
        Findings::Cleanup { removed: n }
    }

    /// Goal: a job is shown with what it has so far, stops when told, and its findings stay.
    #[test]
    fn life_of_a_job() {
        let jobs = Jobs::default();
        let (begun, begins) = channel();
        let number = jobs.start(
            order(0),
            |_| false,
            move |control| {
                control.show(|| removed(3));
                begun.send(()).unwrap();
                while !control.is_stopped() {
                    std::thread::yield_now();
                }
                Ok(removed(4))
            },
        );
        let number = number.unwrap();
        begins.recv().unwrap();
        let shown = jobs.shown(number).unwrap();
        assert_eq!((shown.state, shown.findings), (JobState::Running, Some(removed(3))));
        let refused = jobs.start(order(0), |_| true, |_| Ok(removed(0))).unwrap_err();
        assert!(refused.contains("job 1 (facts) of somebody"), "{refused}");
        assert!(jobs.stop(number) && !jobs.stop(99));
        let shown = wait_for(&jobs, number);
        assert_eq!((shown.state, shown.findings), (JobState::Stopped, Some(removed(4))));
        let failed = jobs.start(order(0), |_| true, |_| Err("no disk".to_owned())).unwrap();
        assert_eq!(wait_for(&jobs, failed).error.as_deref(), Some("no disk"));
    }

    /// Goal: neither running nor ended jobs pile up.
    #[test]
    fn jobs_are_bounded() {
        let jobs = Jobs::default();
        for _ in 0..REMEMBERED_MAX + 10 {
            let number = jobs.start(order(0), |_| false, |_| Ok(removed(0))).unwrap();
            wait_for(&jobs, number);
        }
        let all = jobs.all();
        assert_eq!(all.len(), REMEMBERED_MAX);
        let with_findings: Vec<u64> =
            all.iter().filter(|job| job.findings.is_some()).map(|job| job.job).collect();
        assert_eq!(with_findings, [all.last().unwrap().job]);
        let (done, waits) = channel::<()>();
        let waits = Arc::new(Mutex::new(waits));
        for _ in 0..RUNNING_MAX {
            let waits = waits.clone();
            let work = move |_: &Control| {
                let _ = lock(&waits).recv();
                Ok(removed(0))
            };
            jobs.start(order(0), |_| false, work).unwrap();
        }
        assert!(jobs.start(order(0), |_| false, |_| Ok(removed(0))).is_err());
        assert_eq!(jobs.running(), RUNNING_MAX);
        drop(done);
    }
}
