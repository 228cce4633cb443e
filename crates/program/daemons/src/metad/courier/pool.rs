//! The jobs of one class for one destination: its lines, each with a queue and a connection, and the threads that serve
//! them. A thread begins when there is more to do than threads have in hand, and ends when there was nothing for a while:
//! then nothing is left of the pool but memory.

use super::super::mailbox::Mailbox;
use skep_base::caller::{CallError, Caller};
use skep_meta::{Class, JobFailure, JobReply, Line as Way, Task};
use skep_types::FenceEpoch;
use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Jobs that wait in one line; more are handed back as failed, to be tried later. A truncate of the largest file has one for
/// each of 64 extents of a target; a shard has one deletion for each.
pub const QUEUE_MAX: usize = 256;
/// How long things may take.
#[derive(Debug, Clone, Copy)]
pub struct Times {
    /// See [`JOB_LIMIT`].
    pub job: Duration,
    /// See [`IDLE`].
    pub idle: Duration,
}

/// Longest time that one job may take: after that its destination counts as away, and the rules repeat it.
pub const JOB_LIMIT: Duration = Duration::from_secs(10);
/// A thread ends after this long without work, and the connections of its pool with the last one: shorter than a program
/// that works now and then pauses for, and threads come and go all the time; longer, and a server keeps those that it needed
/// once.
pub const IDLE: Duration = Duration::from_secs(20);
/// Threads of one courier beside the first of each pool. Where more are needed, lines take turns: so hundreds of storage
/// daemons that hang together do not take all threads that the system gives to a service (some thousand, by default).
pub const FURTHER_THREADS_MAX: usize = 512;
/// As in `skep-net`: such a thread has a frame or two on its stack.
const THREAD_STACK: usize = 256 << 10;

/// A task, the epoch of the shard that it is for, and the fence epoch.
#[derive(Debug)]
pub struct Sent {
    pub task: Task,
    pub shard_epoch: u64,
    pub fences: FenceEpoch,
}

struct Line {
    queue: VecDeque<Sent>,
    /// `None`: a thread has it. Its numbers of connections go on as long as the destination lives.
    caller: Option<Caller>,
}

#[derive(Default)]
struct State {
    lines: Vec<Line>,
    threads: usize,
    /// Of threads that wait for work. The one that began to wait last is called first: under a light load it has all there
    /// is to do, and the others end.
    waiting: Vec<Arc<Condvar>>,
    /// The line behind the one that was served last.
    next: usize,
    /// The owner is gone, or the destination has another life.
    closed: bool,
}

impl Line {
    /// Something waits in it, and nothing of it is under way.
    fn can_be_served(&self) -> bool {
        self.caller.is_some() && !self.queue.is_empty()
    }
}

impl State {
    /// There is work.
    fn call_one(&mut self) {
        if let Some(bell) = self.waiting.pop() {
            bell.notify_one();
        }
    }
}

struct Shared {
    state: Mutex<State>,
    mailbox: Arc<Mailbox>,
    /// Threads of the courier beside the first of each pool.
    further: Arc<AtomicUsize>,
    times: Times,
    name: String,
}

/// The owner's side. Threads end after what they have in hand once it is dropped; what waits is handed back.
pub struct Pool(Arc<Shared>);

impl Pool {
    /// Calls as `caller` does, each line on a connection of its own.
    pub fn new(
        class: Class,
        caller: impl Fn(u32) -> Caller,
        mailbox: Arc<Mailbox>,
        further: Arc<AtomicUsize>,
        times: Times,
        name: String,
    ) -> Self {
        let line = |number| {
            let group = Way { class, number }.group();
            Line { queue: VecDeque::new(), caller: Some(caller(group)) }
        };
        let state = State { lines: (0..class.lines()).map(line).collect(), ..State::default() };
        Self(Arc::new(Shared { state: Mutex::new(state), mailbox, further, times, name }))
    }

    /// Takes a task for a line.
    pub fn push(&self, line: u32, sent: Sent) -> Result<(), String> {
        let mut state = self.0.lock();
        let Some(place) = state.lines.get_mut(line as usize) else { return Err("no such line".to_owned()) };
        if place.queue.len() >= QUEUE_MAX {
            return Err(format!("{QUEUE_MAX} tasks wait in {} {line} already", self.0.name));
        }
        place.queue.push_back(sent);
        let at_work =
            state.lines.iter().filter(|line| line.caller.is_none() || !line.queue.is_empty()).count();
        if at_work > state.threads && self.0.may_start(&state) {
            return self.start(&mut state, line);
        }
        state.call_one();
        Ok(())
    }

    fn start(&self, state: &mut State, line: u32) -> Result<(), String> {
        let shared = self.0.clone();
        let thread = std::thread::Builder::new().name(self.0.name.clone()).stack_size(THREAD_STACK);
        let started: io::Result<_> = thread.spawn(move || shared.serve());
        state.threads += 1;
        let Err(e) = started else { return Ok(()) };
        self.0.ended(state);
        // Others see to it, if there are others.
        if state.threads > 0 {
            return Ok(());
        }
        state.lines.get_mut(line as usize).and_then(|line| line.queue.pop_back());
        Err(format!("no thread for {}: {e}", self.0.name))
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.closed = true;
        let left: Vec<Sent> = state.lines.iter_mut().flat_map(|line| line.queue.drain(..)).collect();
        state.waiting.drain(..).for_each(|bell| bell.notify_one());
        drop(state);
        for Sent { task, .. } in left {
            let why = "its server has begun another life meanwhile, or is gone".to_owned();
            self.0.mailbox.result(task.id, Err(JobFailure(why)));
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The first thread always; a further one while there are not too many.
    fn may_start(&self, state: &State) -> bool {
        state.threads == 0
            || self
                .further
                .fetch_update(Relaxed, Relaxed, |n| (n < FURTHER_THREADS_MAX).then_some(n + 1))
                .is_ok()
    }

    /// One of the threads is no more: as long as there are others, it was a further one.
    fn ended(&self, state: &mut State) {
        state.threads -= 1;
        if state.threads > 0 {
            self.further.fetch_sub(1, Relaxed);
        }
    }

    fn serve(&self) {
        let bell = Arc::new(Condvar::new());
        while let Some((line, mut caller, sent)) = self.next(&bell) {
            caller.hello.epoch = caller.hello.epoch.max(sent.fences);
            let result = carry(&mut caller, &sent, self.times.job);
            let mut state = self.lock();
            if let Some(line) = state.lines.get_mut(line) {
                line.caller = Some(caller);
            }
            drop(state);
            self.mailbox.result(sent.task.id, result);
        }
    }

    /// The next task, each line in turn; one of a line at a time. `None`: the thread is to end.
    fn next(&self, bell: &Arc<Condvar>) -> Option<(usize, Caller, Sent)> {
        let idle_from = Instant::now();
        let mut state = self.lock();
        loop {
            let count = state.lines.len();
            for at in 0..count {
                let at = (state.next + at) % count;
                let line = &mut state.lines[at];
                if line.can_be_served()
                    && let Some(caller) = line.caller.take()
                    && let Some(sent) = line.queue.pop_front()
                {
                    state.next = at + 1;
                    // Somebody who waits may be able to do more, which was not so when it came.
                    if state.lines.iter().any(Line::can_be_served) {
                        state.call_one();
                    }
                    return Some((at, caller, sent));
                }
            }
            let left = self.times.idle.saturating_sub(idle_from.elapsed());
            if state.closed || left.is_zero() {
                self.ended(&mut state);
                if state.threads == 0 {
                    state.lines.iter_mut().filter_map(|line| line.caller.as_mut()).for_each(Caller::hang_up);
                }
                return None;
            }
            state.waiting.push(bell.clone());
            state = bell.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
            // It is there still when nobody has called.
            state.waiting.retain(|other| !Arc::ptr_eq(other, bell));
        }
    }
}

fn carry(caller: &mut Caller, sent: &Sent, limit: Duration) -> Result<JobReply, JobFailure> {
    let Sent { task, shard_epoch, .. } = sent;
    let (kind, body) = task.job.request(task.by, *shard_epoch);
    let deadline = Instant::now() + limit;
    let answer = caller.exchange(kind, &body, &mut [], deadline, &|| false);
    let answer = answer.and_then(|answer| match answer.status {
        0 => Ok(Ok(answer.bytes)),
        _ => Ok(Err(task.job.refusal(&answer.bytes)?)),
    });
    match answer.map_err(|e: CallError| JobFailure(e.to_string()))? {
        Ok(body) => task.job.answered(Ok(&body)),
        Err(refusal) => task.job.answered(Err(refusal)),
    }
}
