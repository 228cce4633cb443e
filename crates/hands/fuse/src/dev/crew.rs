//! The worker threads of one mount.
//!
//! Every worker blocks in `read` on its own clone of the device; the kernel wakes exactly one of them per request,
//! so no thread of ours hands work to another. Workers are added when a request finds nobody else waiting, because
//! a worker that waits for a server must not keep others from being served. When the limit is reached and the kernel waits in
//! a notification, workers of a reserve are added: see [`super::aside`].

use std::io;
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Scope};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::aside::Aside;
use super::drive::Driver;
use super::parking::{DevParking, after_dispatch};
use super::{DevOptions, PARKED_LIMIT, RESERVE_WORKERS};
use crate::buffer::{ReplyBuffer, RequestBuffer};
use crate::device::{Received, clone_device, receive, send};
use crate::dispatch::unique_of;
use crate::interrupt::InterruptTable;
use crate::parked::Parked;
use crate::transport::{NOTICE_CHECK, NOTICE_PATIENCE, Site};
use crate::{Answer, Ending, Errno, Mount, dispatch};

/// What the workers of one mount share.
struct Crew<'a, M> {
    site: &'a Site<'a>,
    mount: &'a M,
    options: &'a DevOptions,
    aside: Aside<Arc<OwnedFd>>,
    born: Instant,
    /// Workers that wait in `read`, or are about to.
    idle: AtomicUsize,
    /// Milliseconds after `born` when a request last found nobody else idle.
    last_shortage: AtomicU64,
    /// Nobody is idle and no worker may be added.
    saturated: AtomicBool,
    interrupts: InterruptTable,
    parked: Arc<Parked>,
    state: Mutex<State>,
    /// `state` or `saturated` changed in a way that concerns the supervisor.
    changed: Condvar,
}

struct State {
    /// Slots without a worker; the next one is the last.
    free: Vec<usize>,
    /// The same of the reserve.
    reserve: Vec<usize>,
    ending: Option<io::Result<Ending>>,
}

/// What a worker needs from the system. Made before its thread, so that a shortage (of descriptors, of memory) only
/// keeps the crew from growing.
struct Outfit {
    device: Arc<OwnedFd>,
    request: RequestBuffer,
    reply: ReplyBuffer,
}

impl Outfit {
    fn new(device: &OwnedFd, payload: usize) -> io::Result<Self> {
        let memory = |errno: Errno| io::Error::from_raw_os_error(errno.0);
        Ok(Outfit {
            device: Arc::new(clone_device(device)?),
            request: RequestBuffer::new(payload).map_err(memory)?,
            reply: ReplyBuffer::new(payload).map_err(memory)?,
        })
    }
}

/// What a worker has.
struct Desk<F> {
    slot: usize,
    fs: F,
    driver: Driver,
    reply: ReplyBuffer,
}

/// Serves until the connection ends, then waits for all workers.
pub(crate) fn serve<M: Mount>(site: &Site<'_>, mount: &M, options: &DevOptions) -> io::Result<Ending> {
    let parked = Parked::new(PARKED_LIMIT);
    let all = options.workers + RESERVE_WORKERS;
    let crew = Crew {
        site,
        mount,
        options,
        aside: Aside::new(options.workers),
        born: Instant::now(),
        idle: AtomicUsize::new(0),
        last_shortage: AtomicU64::new(0),
        saturated: AtomicBool::new(false),
        interrupts: InterruptTable::new(all, Arc::clone(&parked)),
        parked,
        state: Mutex::new(State {
            free: (0..options.workers).rev().collect(),
            reserve: (options.workers..all).rev().collect(),
            ending: None,
        }),
        changed: Condvar::new(),
    };
    thread::scope(|scope| {
        if let Err(error) = crew.add(scope, false) {
            crew.end(Err(error));
        }
        crew.supervise(scope);
    });
    let ending = crew.lock().ending.take();
    ending.unwrap_or(Ok(Ending::Unmounted))
}

impl<M: Mount> Crew<'_, M> {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a worker, of the reserve or not, if the limit allows.
    fn add<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>, reserve: bool) -> io::Result<bool> {
        let slot = {
            let mut state = self.lock();
            if state.ending.is_some() {
                return Ok(true);
            }
            let slots = if reserve { &mut state.reserve } else { &mut state.free };
            match slots.pop() {
                Some(slot) => slot,
                None => return Ok(false),
            }
        };
        let started = Outfit::new(self.site.device, self.site.payload).and_then(|outfit| {
            let name = format!("skep-fuse-{slot}");
            // Counted before it runs, or every request until then would add one more.
            self.idle.fetch_add(1, SeqCst);
            let spawned =
                thread::Builder::new().name(name).spawn_scoped(scope, move || self.work(slot, outfit, scope));
            spawned.inspect_err(|_| {
                self.idle.fetch_sub(1, SeqCst);
            })
        });
        if let Err(error) = started {
            self.give_back(slot);
            return Err(error);
        }
        Ok(true)
    }

    fn give_back(&self, slot: usize) {
        let mut state = self.lock();
        if slot < self.options.workers { state.free.push(slot) } else { state.reserve.push(slot) }
    }

    /// A request was taken by the last idle worker.
    fn shortage<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>) {
        self.last_shortage.store(self.age(), SeqCst);
        // A thread that cannot be made (process limits) is no reason to fail: those at work go on, as at the limit.
        if !matches!(self.add(scope, false), Ok(true)) && !self.saturated.swap(true, SeqCst) {
            let _state = self.lock();
            self.changed.notify_all();
        }
    }

    fn age(&self) -> u64 {
        u64::try_from(self.born.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Whether this worker of the reserve is not needed any more; it is then no longer counted as idle.
    fn is_relieved<'scope>(&'scope self, slot: usize, scope: &'scope Scope<'scope, '_>) -> bool {
        if slot < self.options.workers || self.site.notices.take(Duration::ZERO) {
            return false;
        }
        if self.idle.fetch_sub(1, SeqCst) == 1 {
            self.shortage(scope);
        }
        true
    }

    /// Whether this worker, about to be idle, is one too many; it is then no longer counted.
    fn is_surplus(&self) -> bool {
        let keep = self.options.idle_workers.max(1);
        if self.idle.load(SeqCst) <= keep {
            return false;
        }
        let quiet = self.age().saturating_sub(self.last_shortage.load(SeqCst));
        u128::from(quiet) >= self.options.quiet.as_millis()
            && self.idle.fetch_update(SeqCst, SeqCst, |idle| (idle > keep).then(|| idle - 1)).is_ok()
    }

    /// Ends the whole mount; the first reason counts.
    fn end(&self, ending: io::Result<Ending>) {
        let broken = ending.is_err();
        let mut state = self.lock();
        if state.ending.is_none() {
            state.ending = Some(ending);
        }
        drop(state);
        self.aside.close();
        self.interrupts.interrupt_all();
        self.parked.close().into_iter().for_each(|unique| self.mount.interrupt_parked(unique));
        self.changed.notify_all();
        if broken {
            (self.site.abort)();
        }
    }

    /// Waits for the end. While all workers are busy nobody reads the device: it looks for the end itself, and has the
    /// reserve read on when the kernel may wait for that.
    fn supervise<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>) {
        let mut state = self.lock();
        while state.ending.is_none() {
            if !self.saturated.load(SeqCst) {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            drop(state);
            // Cleared before the look: a shortage after it sets it, and notifies, again.
            self.saturated.store(false, SeqCst);
            if self.idle.load(SeqCst) == 0 {
                self.saturated.store(true, SeqCst);
                if self.site.notices.take(NOTICE_PATIENCE) {
                    // Without one it is tried again after a while.
                    let _ = self.add(scope, true);
                }
                self.look_for_abort();
            }
            state = self.lock();
        }
    }

    /// How a connection ended that is known to have ended: workers that are busy at that moment are told nothing.
    fn told_ending(&self) -> io::Result<Ending> {
        let memory = |errno: Errno| io::Error::from_raw_os_error(errno.0);
        let mut buffer = RequestBuffer::new(self.site.payload).map_err(memory)?;
        match receive(self.site.device, &mut buffer) {
            Received::Ended(ending) => Ok(ending),
            Received::Failed(error) => Err(error),
            Received::Request(_) => Ok(Ending::Aborted),
        }
    }

    fn look_for_abort(&self) {
        // Asked for no event, the device reports only the end of the connection; it must not be polled with a
        // time-out, which would be woken by every request.
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut polled = [PollFd::new(self.site.device, PollFlags::empty())];
        if matches!(poll(&mut polled, Some(&now)), Ok(1)) && polled[0].revents().contains(PollFlags::ERR) {
            // How it ended is what a reader is told, at once.
            self.end(self.told_ending());
            return;
        }
        let state = self.lock();
        if state.ending.is_none() {
            drop(self.changed.wait_timeout(state, NOTICE_CHECK).unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// The life of one worker.
    fn work<'scope>(&'scope self, slot: usize, outfit: Outfit, scope: &'scope Scope<'scope, '_>) {
        let _guard = AbortOnPanic(self);
        match self.work_until_done(slot, outfit, scope) {
            Ok(Some(ending)) => self.end(Ok(ending)),
            Ok(None) => {}
            Err(error) => self.end(Err(error)),
        }
        self.give_back(slot);
    }

    /// Returns the end of the connection, or `None` when this worker is not needed any more.
    fn work_until_done<'scope>(
        &'scope self,
        slot: usize,
        outfit: Outfit,
        scope: &'scope Scope<'scope, '_>,
    ) -> io::Result<Option<Ending>> {
        let Outfit { device, request: mut buffer, reply } = outfit;
        let mut desk = Desk { slot, fs: self.mount.worker(slot), driver: Driver::new(), reply };
        loop {
            let length = match receive(&device, &mut buffer) {
                Received::Request(length) => length,
                Received::Ended(ending) => return Ok(Some(ending)),
                Received::Failed(error) => return Err(error),
            };
            if self.idle.fetch_sub(1, SeqCst) == 1 {
                self.shortage(scope);
            }
            let request = buffer.request(length);
            let answer = if self.site.notices.is_awaited(request) {
                self.answer(&mut desk, &device, request)
            } else if self.aside.admit(&device, request) {
                let answer = self.answer(&mut desk, &device, request);
                self.aside.leave();
                answer
            } else {
                Answer::NoReply
            };
            self.finish(&mut desk, &device, answer)?;
            if self.is_relieved(slot, scope) || self.is_surplus() {
                return Ok(None);
            }
        }
    }

    /// Works on a request that was read from `device`.
    fn answer(&self, desk: &mut Desk<M::Worker>, device: &Arc<OwnedFd>, request: &[u8]) -> Answer {
        let Desk { slot, fs, driver, reply } = desk;
        let parking = DevParking::new(device, &self.parked);
        let told = |unique| self.mount.interrupt_parked(unique);
        let interrupt = self.interrupts.begin(*slot, unique_of(request).unwrap_or_default());
        let answer = driver.drive(pin!(dispatch(fs, request, interrupt, &parking, reply)));
        after_dispatch(&self.interrupts, *slot, &parking, request, answer, reply, &told)
    }

    /// Sends an answer, after which this worker is idle, unless something lies aside: then it serves that.
    fn finish(&self, desk: &mut Desk<M::Worker>, device: &Arc<OwnedFd>, answer: Answer) -> io::Result<()> {
        let (mut device, mut answer) = (Arc::clone(device), answer);
        loop {
            let next = self.aside.next();
            if next.is_none() {
                // Idle before the reply is out: the caller's next request may come while `send` returns, and must
                // not start a worker for that.
                self.idle.fetch_add(1, SeqCst);
            }
            if let Answer::Reply(length) = answer {
                send(&device, desk.reply.reply(length))?;
            }
            let Some((read_at, request)) = next else { return Ok(()) };
            answer = self.answer(desk, &read_at, &request);
            self.aside.leave();
            device = read_at;
        }
    }
}

/// A worker that panics leaves a request without an answer; the mount is ended rather than left hanging.
struct AbortOnPanic<'a, 'b, M: Mount>(&'a Crew<'b, M>);

impl<M: Mount> Drop for AbortOnPanic<'_, '_, M> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.end(Err(io::Error::other("a worker thread panicked")));
        }
    }
}
