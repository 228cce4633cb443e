//! The threads of one connection: their start, before the kernel is told that rings are used, and their end.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use rustix::thread::CpuSet;
use skep_ring::{Reactor, Remote};

use super::kick::Kicker;
use super::plan::{Plan, ThreadPlan, no_ring};
use super::reader::{READER_SLOT, read};
use super::thread::Loop;
use super::{PARKED_PER_QUEUE, RESERVE_PER_THREAD};
use crate::interrupt::InterruptTable;
use crate::notices::Notices;
use crate::parked::Parked;
use crate::transport::Site;
use crate::{Ending, Mount, MountError, Serving};

/// Submissions that a thread queues between two system calls.
const RING_ENTRIES: u32 = 256;

/// Why a connection is not, or no longer, served.
pub(crate) enum Fault {
    /// There are no rings to be had, for this reason. `accepted`: INIT was answered already; the kernel then sends
    /// everything through the device.
    NoRing { why: String, accepted: bool },
    /// The mount is at its end.
    Mount(MountError),
}

/// How far the start has come.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Threads and rings are made.
    Prepare,
    /// INIT is answered: entries are registered, requests served.
    Serve,
    /// Everything stops.
    Stop,
}

struct State {
    phase: Phase,
    remotes: Vec<Remote>,
    /// The kernel has begun to end the connection.
    closing: bool,
    ending: Option<io::Result<Ending>>,
}

/// What the threads of one connection share.
pub(super) struct Crew<'a, M: Mount> {
    site: &'a Site<'a>,
    mount: &'a M,
    depth: usize,
    interrupts: InterruptTable,
    parked: Arc<Parked>,
    kicker: Kicker,
    /// All entries are registered.
    up: AtomicBool,
    stop: AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
}

/// What a ring thread says of its start.
type Report = Result<(), String>;

/// Serves until the connection ends. `accept` answers INIT.
pub(crate) fn serve<M: Mount>(
    site: &Site<'_>,
    mount: &M,
    plan: &Plan,
    accept: &dyn Fn() -> Result<(), MountError>,
) -> Result<Ending, Fault> {
    let parked = Parked::new(plan.queues * PARKED_PER_QUEUE);
    let slots = READER_SLOT + 1 + plan.queues * plan.depth + plan.threads.len() * RESERVE_PER_THREAD;
    let crew = Crew {
        site,
        mount,
        depth: plan.depth,
        interrupts: InterruptTable::new(slots, Arc::clone(&parked)),
        parked,
        kicker: Kicker::new(site.target),
        up: AtomicBool::new(false),
        stop: AtomicBool::new(false),
        state: Mutex::new(State { phase: Phase::Prepare, remotes: Vec::new(), closing: false, ending: None }),
        changed: Condvar::new(),
    };
    thread::scope(|scope| {
        let _guard = AbortOnPanic(&crew);
        let (sender, reports) = channel();
        let mut first_slot = READER_SLOT + 1;
        for (number, thread) in plan.threads.iter().enumerate() {
            let (crew, sender, slot) = (&crew, sender.clone(), first_slot);
            first_slot += thread.queues.len() * plan.depth + RESERVE_PER_THREAD;
            let name = format!("skep-ring-{number}");
            let work = move || crew.ring_thread(number, thread, slot, &sender);
            if let Err(error) = thread::Builder::new().name(name).spawn_scoped(scope, work) {
                crew.enter(Phase::Stop);
                return Err(Fault::NoRing { why: format!("no thread: {error}"), accepted: false });
            }
        }
        crew.start(plan, &reports, accept)?;
        let reader = || {
            let _guard = EndOnPanic { crew: &crew, reports: None };
            crew.end(read(&crew, site.device));
        };
        if let Err(error) = thread::Builder::new().name("skep-fuse-read".into()).spawn_scoped(scope, reader) {
            crew.end(Err(error));
        }
        crew.supervise();
        Ok(())
    })?;
    let ending = crew.lock().ending.take();
    ending.unwrap_or(Ok(Ending::Unmounted)).map_err(|error| Fault::Mount(MountError::Broken(error)))
}

/// Waits for a report of every ring thread, or the first bad one.
fn await_all(threads: usize, reports: &Receiver<Report>) -> Report {
    (0..threads).try_for_each(|_| reports.recv().unwrap_or_else(|_| Err("a ring thread ended".to_owned())))
}

impl<M: Mount> Crew<'_, M> {
    pub(super) fn device(&self) -> &Arc<OwnedFd> {
        self.site.device
    }

    pub(super) fn payload(&self) -> usize {
        self.site.payload
    }

    pub(super) fn mount(&self) -> &M {
        self.mount
    }

    pub(super) fn depth(&self) -> usize {
        self.depth
    }

    pub(super) fn interrupts(&self) -> &InterruptTable {
        &self.interrupts
    }

    pub(super) fn parked(&self) -> &Arc<Parked> {
        &self.parked
    }

    pub(super) fn notices(&self) -> &Notices {
        self.site.notices
    }

    pub(super) fn kicker(&self) -> &Kicker {
        &self.kicker
    }

    /// Whether all queues are served.
    pub(super) fn is_up(&self) -> bool {
        self.up.load(Ordering::Acquire)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(&self, phase: Phase) {
        let mut state = self.lock();
        state.phase = phase;
        if phase == Phase::Stop {
            self.stop.store(true, Ordering::Release);
            for remote in &state.remotes {
                // Whatever it does, it makes the thread look.
                remote.post(Box::new(|| {}));
            }
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Brings the ring threads up, with the answer to INIT in between.
    fn start(
        &self,
        plan: &Plan,
        reports: &Receiver<Report>,
        accept: &dyn Fn() -> Result<(), MountError>,
    ) -> Result<(), Fault> {
        let threads = plan.threads.len();
        if let Err(why) = await_all(threads, reports) {
            self.enter(Phase::Stop);
            return Err(Fault::NoRing { why, accepted: false });
        }
        if let Err(error) = accept() {
            self.enter(Phase::Stop);
            return Err(Fault::Mount(error));
        }
        self.enter(Phase::Serve);
        if let Err(why) = await_all(threads, reports) {
            self.enter(Phase::Stop);
            return Err(Fault::NoRing { why, accepted: true });
        }
        self.up.store(true, Ordering::Release);
        self.mount.serving(&Serving::Uring { queues: plan.queues, depth: plan.depth, threads });
        Ok(())
    }

    /// The life of a ring thread.
    fn ring_thread(&self, number: usize, plan: &ThreadPlan, first_slot: usize, reports: &Sender<Report>) {
        let _guard = EndOnPanic { crew: self, reports: Some(reports) };
        run_on(&plan.cpus);
        let reactor = match Reactor::new(RING_ENTRIES) {
            Ok(reactor) => reactor,
            Err(error) => {
                let _ = reports.send(Err(no_ring(&error)));
                return;
            }
        };
        self.lock().remotes.push(reactor.remote());
        let _ = reports.send(Ok(()));
        if !self.await_start() {
            return;
        }
        let ring = Loop::new(self, &reactor, self.mount.ring(number, &reactor), plan, first_slot);
        let result = reactor.scope(|scope| {
            ring.start(scope);
            reactor.step()?;
            let refused = ring.refusal().map(|error| format!("the kernel refuses an entry: {error}"));
            let _ = reports.send(refused.map_or(Ok(()), Err));
            reactor.run(|| ring.is_over() || self.stop.load(Ordering::Acquire))
        });
        drop(ring);
        reactor.drop_tasks();
        if let Err(error) = result {
            let _ = reports.send(Err(no_ring(&error)));
            self.end(Err(error));
        }
    }

    /// Waits until INIT is answered. `false`: it comes to nothing.
    fn await_start(&self) -> bool {
        let mut state = self.lock();
        while state.phase == Phase::Prepare {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.phase == Phase::Serve
    }

    /// The kernel takes entries away: it is ending the connection, and the reader will say how.
    pub(super) fn connection_ended(&self) {
        let mut state = self.lock();
        if !std::mem::replace(&mut state.closing, true) {
            drop(state);
            self.changed.notify_all();
        }
    }

    /// An entry is lost although the connection is not.
    pub(super) fn entry_failed(&self, error: io::Error) {
        self.end(Err(error));
    }

    /// Ends the whole mount; the first reason counts.
    fn end(&self, ending: io::Result<Ending>) {
        let mut state = self.lock();
        state.closing = true;
        if state.ending.is_none() {
            state.ending = Some(ending);
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Waits for the end and sees to it that nobody waits for anything afterwards. It is this thread that aborts,
    /// since an abort waits for the ring threads.
    fn supervise(&self) {
        let mut state = self.lock();
        while !state.closing {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        drop(state);
        self.release_all();
        let mut state = self.lock();
        while state.ending.is_none() {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let broken = matches!(state.ending, Some(Err(_)));
        drop(state);
        if broken {
            (self.site.abort)();
            self.enter(Phase::Stop);
        }
    }

    /// Requests in work are interrupted, parked ones answered.
    fn release_all(&self) {
        self.interrupts.interrupt_all();
        self.parked.close().into_iter().for_each(|unique| self.mount.interrupt_parked(unique));
    }
}

/// Runs the calling thread on these CPUs, if it may.
fn run_on(cpus: &[usize]) {
    let mut set = CpuSet::new();
    cpus.iter().for_each(|cpu| set.set(*cpu));
    if !cpus.is_empty() {
        // Elsewhere it works as well, only slower.
        let _ = rustix::thread::sched_setaffinity(None, &set);
    }
}

/// A thread that panics leaves requests without an answer; the mount is ended rather than left hanging.
struct EndOnPanic<'a, 'b, M: Mount> {
    crew: &'a Crew<'b, M>,
    /// Where the start may wait for this thread.
    reports: Option<&'a Sender<Report>>,
}

impl<M: Mount> Drop for EndOnPanic<'_, '_, M> {
    fn drop(&mut self) {
        if !thread::panicking() {
            return;
        }
        const WHAT: &str = "a thread that serves requests panicked";
        if let Some(reports) = self.reports {
            let _ = reports.send(Err(WHAT.to_owned()));
        }
        self.crew.end(Err(io::Error::other(WHAT)));
    }
}

/// As above, for the thread that ends everything otherwise.
struct AbortOnPanic<'a, 'b, M: Mount>(&'a Crew<'b, M>);

impl<M: Mount> Drop for AbortOnPanic<'_, '_, M> {
    fn drop(&mut self) {
        if thread::panicking() {
            (self.0.site.abort)();
            self.0.enter(Phase::Stop);
        }
    }
}
