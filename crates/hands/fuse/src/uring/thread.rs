//! One ring thread: its entries, each a task, and what becomes of a request.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use rustix::io::Errno as SysErrno;
use skep_ring::{Reactor, Scope};

use super::crew::Crew;
use super::entry::Entry;
use super::later::{Later, later};
use super::plan::ThreadPlan;
use super::queue::Queue;
use super::workers::{Worker, Workers};
use super::{ADDED_PER_QUEUE, PARKED_PER_QUEUE};
use crate::parked::{Confirmed, Parked};
use crate::transport::{NOTICE_CHECK, NOTICE_PATIENCE};
use crate::{Answer, Errno, Mount, Park, ParkedReply, RingThread, dispatch};

/// Between two requests that are fetched from a queue whose places are all taken.
const NEXT_FETCH: Duration = Duration::from_millis(2);

/// What the tasks of one ring thread share.
pub(super) struct Loop<'a, M: Mount> {
    crew: &'a Crew<'a, M>,
    reactor: &'a Reactor,
    workers: Workers<M::Ring>,
    queues: Vec<Queue>,
    /// Entries that have not ended.
    live: Cell<usize>,
    /// What went wrong with an entry that never had a request.
    refused: RefCell<Option<io::Error>>,
}

type RingWorker<M> = Worker<<<M as Mount>::Ring as RingThread>::Worker>;

/// Parks the request in work on an entry.
struct EntryParking<'a> {
    queue: &'a Queue,
    parked: &'a Arc<Parked>,
    answer: RefCell<Option<Later<Result<(), Errno>>>>,
}

impl Park for EntryParking<'_> {
    fn park(&self, unique: u64) -> Result<ParkedReply, Errno> {
        if self.queue.parked() >= PARKED_PER_QUEUE {
            return Err(Errno::ENOLCK);
        }
        let (bringer, answer) = later();
        let reply = self.parked.park(unique, move |result| bringer.bring(result))?;
        if self.answer.replace(Some(answer)).is_none() {
            self.queue.park();
        }
        Ok(reply)
    }

    fn is_parked(&self) -> bool {
        self.answer.borrow().is_some()
    }
}

impl<'a, M: Mount> Loop<'a, M> {
    /// The thread's part of the crew; `first_slot` is where its slots in the table of interrupts begin.
    pub(super) fn new(
        crew: &'a Crew<'a, M>,
        reactor: &'a Reactor,
        ring: M::Ring,
        plan: &ThreadPlan,
        first_slot: usize,
    ) -> Self {
        let queues: Vec<Queue> = plan.queues.iter().map(|id| Queue::new(*id)).collect();
        let workers = Workers::new(ring, first_slot, queues.len() * crew.depth());
        Loop { crew, reactor, workers, queues, live: Cell::new(0), refused: RefCell::default() }
    }

    /// Registers every entry.
    pub(super) fn start<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>) {
        for at in 0..self.queues.len() {
            for _ in 0..self.crew.depth() {
                self.add_entry(scope, at);
            }
        }
    }

    /// Whether every entry has ended.
    pub(super) fn is_over(&self) -> bool {
        self.live.get() == 0
    }

    /// Why an entry was not taken.
    pub(super) fn refusal(&self) -> Option<io::Error> {
        self.refused.take()
    }

    fn add_entry<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>, at: usize) {
        self.live.set(self.live.get() + 1);
        self.queues[at].entry_added(self.reactor.turns());
        scope.spawn(self.entry(scope, at));
    }

    /// The life of one entry: requests, one after the other, until the connection ends.
    async fn entry<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>, at: usize) {
        let queue = &self.queues[at];
        let mut served = false;
        let error = match Entry::new(self.crew.payload()) {
            Ok(mut entry) => self.requests(scope, at, &mut entry, &mut served).await,
            Err(errno) => io::Error::from_raw_os_error(errno.0),
        };
        queue.entry_ended(self.reactor.turns());
        self.live.set(self.live.get() - 1);
        match SysErrno::from_io_error(&error) {
            Some(SysErrno::NOTCONN | SysErrno::CONNABORTED | SysErrno::NODEV | SysErrno::CANCELED) => {
                self.crew.connection_ended();
            }
            _ if served => self.crew.entry_failed(error),
            // One in the place of a parked request: the queue has to do with fewer.
            _ if self.crew.is_up() => {}
            _ => {
                self.refused.replace(Some(error));
            }
        }
    }

    async fn requests<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        at: usize,
        entry: &mut Entry,
        served: &mut bool,
    ) -> io::Error {
        let queue = &self.queues[at];
        loop {
            let next = entry.exchange(self.reactor, self.crew.device().as_fd(), queue.id).await;
            if let Err(error) = next {
                return error;
            }
            *served = true;
            queue.begun(self.reactor.turns());
            if queue.is_full() && !queue.watch(true) {
                scope.spawn(self.watch(scope, at));
            }
            let outcome = self.request(scope, at, entry).await;
            if let Err(errno) = outcome.or_else(|errno| entry.answer(Err(errno))) {
                return io::Error::from_raw_os_error(errno.0);
            }
            queue.answered(self.reactor.turns());
        }
    }

    /// One request, until its reply is in the entry. An error is to be the reply.
    async fn request<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        at: usize,
        entry: &mut Entry,
    ) -> Result<(), Errno> {
        let queue = &self.queues[at];
        let header = entry.begin()?;
        if self.crew.kicker().is_kick(&header) {
            queue.kick_answered(self.reactor.turns());
            return entry.answer(Err(Errno::EAGAIN));
        }
        let worker =
            self.workers.take(self.crew.notices().is_awaited(entry.work()?.0)).await.ok_or(Errno::EMFILE)?;
        let parking = EntryParking { queue, parked: self.crew.parked(), answer: RefCell::default() };
        let outcome = self.dispatch(&worker, &parking, entry).await;
        self.workers.put(worker);
        let Some(answer) = parking.answer.take() else {
            return finish(entry, outcome?);
        };
        let result = match outcome {
            Ok(outcome) => self.parked(scope, at, entry, outcome, answer).await,
            Err(errno) => Err(errno),
        };
        queue.unpark();
        result
    }

    async fn dispatch(
        &self,
        worker: &RingWorker<M>,
        parking: &EntryParking<'_>,
        entry: &mut Entry,
    ) -> Result<Answer, Errno> {
        let unique = entry.unique();
        let interrupts = self.crew.interrupts();
        let interrupt = interrupts.begin(worker.slot, unique);
        let (request, reply) = entry.work()?;
        let answer = dispatch(&worker.fs, request, interrupt, parking, reply).await;
        if answer != Answer::Later {
            interrupts.end(worker.slot);
            return Ok(answer);
        }
        let confirmed = self.crew.parked().confirm(unique);
        let overlooked = interrupts.end_parked(worker.slot, unique);
        if confirmed == Confirmed::Forgotten {
            return Err(Errno::EIO);
        }
        if overlooked {
            self.crew.mount().interrupt_parked(unique);
        }
        Ok(Answer::Later)
    }

    /// The end of a method that parked its request: waits for the answer, unless the method gave it itself.
    async fn parked<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        at: usize,
        entry: &mut Entry,
        outcome: Answer,
        answer: Later<Result<(), Errno>>,
    ) -> Result<(), Errno> {
        let queue = &self.queues[at];
        if outcome != Answer::Later && self.crew.parked().withdraw(entry.unique()) {
            return finish(entry, outcome);
        }
        if queue.usable() < self.crew.depth() && self.crew.is_up() {
            self.add_entry(scope, at);
        }
        if queue.needs_kick() {
            scope.spawn(self.kick(at));
        }
        entry.answer(answer.await)
    }

    /// All entries of a queue are in use. While that stays so and the kernel waits in a notification, what it waits for may be
    /// queued: so entries are added and what is queued is fetched, one request after the other. What no notification waits
    /// for then waits for a worker, in turn.
    async fn watch<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>, at: usize) {
        let (queue, depth) = (&self.queues[at], self.crew.depth());
        let mut pause = NOTICE_CHECK;
        while queue.is_busy(depth) {
            self.reactor.sleep(pause).await;
            pause = NOTICE_CHECK;
            if !self.crew.is_up() || !self.crew.notices().take(NOTICE_PATIENCE) {
                continue;
            }
            if queue.is_full() && queue.usable() < depth + ADDED_PER_QUEUE {
                self.add_entry(scope, at);
            }
            if queue.needs_kick_when_busy() {
                scope.spawn(self.kick(at));
            }
            pause = NEXT_FETCH;
        }
        queue.watch(false);
    }

    /// Fetches what is stuck in the kernel's queue; each request fetched that is parked as well asks for another
    /// kick.
    async fn kick(&self, at: usize) {
        let queue = &self.queues[at];
        // First the kernel must know of the entries that were added, or it has none for the kick.
        let turn = self.reactor.turns();
        poll_fn(|cx| match self.reactor.turns() == turn {
            true => {
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            false => Poll::Ready(()),
        })
        .await;
        self.crew.kicker().kick(usize::from(queue.id)).await;
        queue.after_kick(self.reactor.turns());
    }
}

/// Puts the reply into the entry.
fn finish(entry: &mut Entry, answer: Answer) -> Result<(), Errno> {
    match answer {
        Answer::Reply(length) => entry.finish(length),
        // One-way requests do not come this way; the kernel waits for something, be it this.
        _ => Err(Errno::EIO),
    }
}
