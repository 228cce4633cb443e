//! The executor.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::io;
use std::os::fd::AsRawFd;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use io_uring::{cqueue, opcode, types};
use rustix::event::PollFlags;

use crate::look_again::look_again;
use crate::operation::{CALLED, CANCELLED, Table};
use crate::remote::{Job, Remote, Shared};
use crate::ring::{Completion, Ring};
use crate::task::{Body, NO_SCOPE, ROOT, Ready, Running, TaskWaker, Tasks};
use crate::timer::Timers;

/// Rounds of woken tasks between two looks at the kernel: enough for tasks that hand each other work, and a bound
/// for those that keep waking themselves.
const ROUNDS: usize = 8;
/// How often, and for how long each time, a reactor that is dropped waits for its cancelled operations.
const LAST_TURNS: usize = 20;
/// See [`LAST_TURNS`].
const LAST_TURN: Duration = Duration::from_millis(5);

/// One thread's `io_uring` and its tasks. A clone is the same reactor.
#[derive(Clone)]
pub struct Reactor {
    inner: Rc<Inner>,
}

/// See [`Reactor::expects`].
pub struct Expected {
    inner: Rc<Inner>,
}

impl Drop for Expected {
    fn drop(&mut self) {
        self.inner.expected.set(self.inner.expected.get() - 1);
    }
}

pub(crate) struct Inner {
    pub(crate) ring: Ring,
    pub(crate) operations: Table,
    pub(crate) timers: RefCell<Timers>,
    pub(crate) tasks: Tasks,
    ready: Rc<Ready>,
    root: Arc<TaskWaker>,
    root_ready: Cell<bool>,
    shared: Arc<Shared>,
    /// Another thread has called.
    called: Cell<bool>,
    /// For completions, used again each turn.
    scratch: RefCell<Vec<Completion>>,
    scopes: Cell<u64>,
    /// So many tasks wait for what comes soon.
    expected: Cell<usize>,
    /// Other threads' calls were taken since that was asked.
    came: Cell<bool>,
}

impl Reactor {
    /// A reactor for the calling thread; `entries` is how many operations one turn submits without an extra
    /// system call (a power of two).
    ///
    /// # Errors
    /// ENOSYS, EPERM: no `io_uring` here, or not for this process (`kernel.io_uring_disabled`, a container's
    /// filter); ENOMEM: the limit of locked memory.
    pub fn new(entries: u32) -> io::Result<Reactor> {
        let ring = Ring::new(entries)?;
        let shared = Shared::new()?;
        let inner = Inner {
            ring,
            operations: Table::default(),
            timers: RefCell::default(),
            tasks: Tasks::new(),
            ready: Rc::default(),
            root: TaskWaker::new(&shared, ROOT),
            root_ready: Cell::new(false),
            shared,
            called: Cell::new(false),
            scratch: RefCell::default(),
            scopes: Cell::new(NO_SCOPE),
            expected: Cell::new(0),
            came: Cell::new(false),
        };
        inner.listen();
        Ok(Reactor { inner: Rc::new(inner) })
    }

    /// Adds a task; it is first polled when the reactor runs.
    pub fn spawn(&self, future: impl Future<Output = ()> + 'static) {
        self.add(Box::pin(future), NO_SCOPE);
    }

    /// Drops every task where it stands. Tasks that hold a clone of their reactor keep it alive, so a thread that
    /// is done with its reactor calls this.
    pub fn drop_tasks(&self) {
        while let Some(body) = self.inner.tasks.take_of(None) {
            drop(body);
        }
    }

    /// For other threads.
    #[must_use]
    pub fn remote(&self) -> Remote {
        Remote { shared: Arc::clone(&self.inner.shared) }
    }

    /// Tasks that have not ended.
    #[must_use]
    pub fn tasks(&self) -> usize {
        self.inner.tasks.count()
    }

    /// How often the kernel was entered so far.
    #[must_use]
    pub fn turns(&self) -> u64 {
        self.inner.ring.turns()
    }

    /// Runs tasks until `until`, which is asked after every round of them, says so.
    ///
    /// # Errors
    /// The ring failed.
    pub fn run(&self, mut until: impl FnMut() -> bool) -> io::Result<()> {
        let _running = Running::enter(self.inner.shared.id, &self.inner.ready);
        loop {
            self.inner.run_tasks();
            if until() {
                return Ok(());
            }
            self.inner.turn()?;
        }
    }

    /// Runs tasks, gives the kernel what they queued, and runs those that have their completion at once. Waits for
    /// nothing.
    ///
    /// # Errors
    /// The ring failed.
    pub fn step(&self) -> io::Result<()> {
        let _running = Running::enter(self.inner.shared.id, &self.inner.ready);
        self.inner.run_tasks();
        self.inner.enter(Some(Duration::ZERO))?;
        self.inner.run_tasks();
        Ok(())
    }

    /// Runs tasks until `future` has ended.
    ///
    /// # Errors
    /// The ring failed.
    pub fn block_on<T>(&self, future: impl Future<Output = T>) -> io::Result<T> {
        let _running = Running::enter(self.inner.shared.id, &self.inner.ready);
        let mut future = pin!(future);
        let waker = Waker::from(Arc::clone(&self.inner.root));
        let mut context = Context::from_waker(&waker);
        self.inner.root_ready.set(true);
        loop {
            for _ in 0..ROUNDS {
                if !self.inner.root_ready.replace(false) {
                    break;
                }
                self.inner.root.begin();
                if let Poll::Ready(value) = future.as_mut().poll(&mut context) {
                    return Ok(value);
                }
                self.inner.run_tasks();
            }
            self.inner.turn()?;
            self.inner.run_tasks();
        }
    }

    /// While it lives the thread looks again before it sleeps ([`look_again`]): what its task waits for comes soon.
    #[must_use]
    pub fn expects(&self) -> Expected {
        self.inner.expected.set(self.inner.expected.get() + 1);
        Expected { inner: Rc::clone(&self.inner) }
    }

    pub(crate) fn inner(&self) -> &Rc<Inner> {
        &self.inner
    }

    pub(crate) fn add(&self, body: Body, scope: u64) {
        let waker = self.inner.tasks.add(body, scope, &self.inner.shared);
        let _running = Running::enter(self.inner.shared.id, &self.inner.ready);
        waker.wake();
    }

    pub(crate) fn next_scope(&self) -> u64 {
        self.inner.scopes.set(self.inner.scopes.get() + 1);
        self.inner.scopes.get()
    }
}

impl Inner {
    /// Asks to be told of calls from other threads.
    #[allow(unsafe_code)] // a submission without memory
    fn listen(&self) {
        let events = u32::from(PollFlags::IN.bits());
        let poll = opcode::PollAdd::new(types::Fd(self.shared.event().as_raw_fd()), events).multi(true);
        // SAFETY: no memory is involved; the descriptor lives as long as the ring.
        unsafe { self.ring.push(poll.build().user_data(CALLED).into()) };
    }

    /// Polls what is to be polled: some rounds, so that work handed from task to task is done in one turn.
    fn run_tasks(&self) {
        for _ in 0..ROUNDS {
            let round = self.ready.len();
            if round == 0 {
                return;
            }
            for _ in 0..round {
                match self.ready.pop() {
                    Some(ROOT) => self.root_ready.set(true),
                    Some(task) => self.poll(task),
                    None => break,
                }
            }
        }
    }

    fn poll(&self, task: u32) {
        let Some((mut body, waker)) = self.tasks.begin(task) else { return };
        match body.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Pending => self.tasks.put_back(task, body),
            Poll::Ready(()) => {
                drop(body);
                self.tasks.end(task);
            }
        }
    }

    /// One system call: gives the kernel what is queued, waits if nothing else is to do, takes what is done.
    fn turn(&self) -> io::Result<()> {
        if self.has_work() {
            return self.enter(Some(Duration::ZERO));
        }
        let has_come = || {
            self.enter(Some(Duration::ZERO))?;
            // Whoever runs the reactor may wait for what such a call has done.
            Ok(self.has_work() || self.came.replace(false))
        };
        if self.expected.get() > 0 && look_again(has_come)? {
            return Ok(());
        }
        let limit = self.timers.borrow().next_in();
        self.enter(limit)
    }

    fn has_work(&self) -> bool {
        !self.ready.is_empty() || self.root_ready.get()
    }

    fn enter(&self, limit: Option<Duration>) -> io::Result<()> {
        self.ring.enter(limit)?;
        self.take_completions();
        if limit.is_some() {
            self.wake_sleepers();
        }
        if self.called.replace(false) {
            self.take_calls();
        }
        Ok(())
    }

    fn take_completions(&self) {
        let mut scratch = self.scratch.take();
        self.ring.take(&mut scratch);
        for completion in scratch.drain(..) {
            match completion.whose {
                CANCELLED => {}
                CALLED => {
                    self.called.set(true);
                    if !cqueue::more(completion.flags) {
                        self.listen();
                    }
                }
                whose => {
                    let waker = self.operations.borrow_mut().complete(whose, completion.result);
                    if let Some(waker) = waker {
                        waker.wake();
                    }
                }
            }
        }
        self.scratch.replace(scratch);
    }

    fn wake_sleepers(&self) {
        let now = Instant::now();
        loop {
            let due = self.timers.borrow_mut().take_due(now);
            match due {
                Some(waker) => waker.wake(),
                None => return,
            }
        }
    }

    fn take_calls(&self) {
        let (jobs, woken) = self.shared.take();
        self.came.set(true);
        woken.into_iter().for_each(|task| self.ready.push(task));
        jobs.into_iter().for_each(|job: Job| job());
    }
}

impl Drop for Inner {
    /// Whatever the kernel still does for this reactor is cancelled. Memory that it does not give back soon is
    /// never freed.
    fn drop(&mut self) {
        while let Some(body) = self.tasks.take_of(None) {
            drop(body);
        }
        self.shared.close();
        for _ in 0..LAST_TURNS {
            if self.operations.borrow().pending() == 0 || self.ring.enter(Some(LAST_TURN)).is_err() {
                break;
            }
            self.take_completions();
        }
        self.operations.borrow_mut().leak();
    }
}
