//! The worker threads of one mount.
//!
//! Every worker blocks in `read` on its own clone of the device; the kernel wakes exactly one of them per request,
//! so no thread of ours hands work to another. Workers are added when a request finds nobody else waiting, because
//! a worker that waits for a server must not keep others from being served.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Scope};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::drive::Driver;
use super::parking::{DevParking, after_dispatch};
use super::{DevOptions, PARKED_LIMIT};
use crate::buffer::{ReplyBuffer, RequestBuffer};
use crate::device::{Received, clone_device, receive, send};
use crate::dispatch::unique_of;
use crate::interrupt::InterruptTable;
use crate::parked::Parked;
use crate::{Answer, Ending, Errno, Mount, dispatch};

/// With every allowed worker busy nobody reads the device, so nobody learns that the mount was aborted; the thread
/// that called `run` then looks this often.
const SATURATED_CHECK: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };

/// What the workers of one mount share.
struct Crew<'a, M> {
    device: &'a OwnedFd,
    mount: &'a M,
    options: &'a DevOptions,
    payload: usize,
    abort: &'a (dyn Fn() + Sync),
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

/// Serves until the connection ends, then waits for all workers. Payloads are at most `payload` bytes.
pub(crate) fn serve<M: Mount>(
    device: &OwnedFd,
    mount: &M,
    options: &DevOptions,
    payload: usize,
    abort: &(dyn Fn() + Sync),
) -> io::Result<Ending> {
    let parked = Parked::new(PARKED_LIMIT);
    let crew = Crew {
        device,
        mount,
        options,
        payload,
        abort,
        born: Instant::now(),
        idle: AtomicUsize::new(0),
        last_shortage: AtomicU64::new(0),
        saturated: AtomicBool::new(false),
        interrupts: InterruptTable::new(options.workers, Arc::clone(&parked)),
        parked,
        state: Mutex::new(State { free: (0..options.workers).rev().collect(), ending: None }),
        changed: Condvar::new(),
    };
    thread::scope(|scope| {
        if let Err(error) = crew.add(scope) {
            crew.end(Err(error));
        }
        crew.supervise();
    });
    let ending = crew.lock().ending.take();
    ending.unwrap_or(Ok(Ending::Unmounted))
}

impl<M: Mount> Crew<'_, M> {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a worker, if the limit allows.
    fn add<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>) -> io::Result<bool> {
        let slot = {
            let mut state = self.lock();
            if state.ending.is_some() {
                return Ok(true);
            }
            match state.free.pop() {
                Some(slot) => slot,
                None => return Ok(false),
            }
        };
        let started = Outfit::new(self.device, self.payload).and_then(|outfit| {
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
            self.lock().free.push(slot);
            return Err(error);
        }
        Ok(true)
    }

    /// A request was taken by the last idle worker.
    fn shortage<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>) {
        self.last_shortage.store(self.age(), SeqCst);
        // A thread that cannot be made (process limits) is no reason to fail: those at work go on, as at the limit.
        if !matches!(self.add(scope), Ok(true)) && !self.saturated.swap(true, SeqCst) {
            let _state = self.lock();
            self.changed.notify_all();
        }
    }

    fn age(&self) -> u64 {
        u64::try_from(self.born.elapsed().as_millis()).unwrap_or(u64::MAX)
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
        self.interrupts.interrupt_all();
        self.parked.close().into_iter().for_each(|unique| self.mount.interrupt_parked(unique));
        self.changed.notify_all();
        if broken {
            (self.abort)();
        }
    }

    /// Waits for the end. While all workers are busy it looks for it itself.
    fn supervise(&self) {
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
                self.look_for_abort();
            }
            state = self.lock();
        }
    }

    /// How a connection ended that is known to have ended: workers that are busy at that moment are told nothing.
    fn told_ending(&self) -> io::Result<Ending> {
        let memory = |errno: Errno| io::Error::from_raw_os_error(errno.0);
        let mut buffer = RequestBuffer::new(self.payload).map_err(memory)?;
        match receive(self.device, &mut buffer) {
            Received::Ended(ending) => Ok(ending),
            Received::Failed(error) => Err(error),
            Received::Request(_) => Ok(Ending::Aborted),
        }
    }

    fn look_for_abort(&self) {
        // Asked for no event, the device reports only the end of the connection; it must not be polled with a
        // time-out, which would be woken by every request.
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut polled = [PollFd::new(self.device, PollFlags::empty())];
        if matches!(poll(&mut polled, Some(&now)), Ok(1)) && polled[0].revents().contains(PollFlags::ERR) {
            // How it ended is what a reader is told, at once.
            self.end(self.told_ending());
            return;
        }
        let state = self.lock();
        if state.ending.is_none() {
            let pause = Duration::from_nanos(SATURATED_CHECK.tv_nsec.cast_unsigned());
            drop(self.changed.wait_timeout(state, pause).unwrap_or_else(PoisonError::into_inner));
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
        self.lock().free.push(slot);
    }

    /// Returns the end of the connection, or `None` when this worker is not needed any more.
    fn work_until_done<'scope>(
        &'scope self,
        slot: usize,
        outfit: Outfit,
        scope: &'scope Scope<'scope, '_>,
    ) -> io::Result<Option<Ending>> {
        let Outfit { device, request: mut buffer, mut reply } = outfit;
        let fs = self.mount.worker(slot);
        let driver = Driver::new();
        let parking = DevParking::new(&device, &self.parked);
        let told = |unique| self.mount.interrupt_parked(unique);
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
            let unique = unique_of(request).unwrap_or_default();
            let interrupt = self.interrupts.begin(slot, unique);
            let answer = driver.drive(dispatch(&fs, request, interrupt, &parking, &mut reply));
            let answer = after_dispatch(&self.interrupts, slot, &parking, request, answer, &mut reply, &told);
            // Idle before the reply is out: the caller's next request may come while `send` returns, and must not
            // start a worker for that.
            self.idle.fetch_add(1, SeqCst);
            if let Answer::Reply(length) = answer {
                send(&device, reply.reply(length))?;
            }
            if self.is_surplus() {
                return Ok(None);
            }
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
