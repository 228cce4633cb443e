//! Who waits, and whether he should go on. One timer for all lanes of a thread: a request costs no timer
//! of its own, and no time at all when nobody waits.

use super::RingHands;
use crate::mount::lane_hands::{ANSWER_DEADLINE, LOOK_EVERY, LaneHands};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::os::fd::{AsFd, OwnedFd};
use std::pin::pin;
use std::rc::{Rc, Weak};
use std::task::{Poll, Waker};

/// The timer ends after so many looks that found nobody.
const QUIET_LOOKS: u32 = 10;

/// Why a wait ended without its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stopped {
    /// The program gave up.
    Cancelled,
    /// Nothing came for too long.
    TimedOut,
}

/// The wait of one lane.
pub struct Watch {
    lane: Rc<LaneHands>,
    /// Looks of the timer since something came; `None` = it does not wait.
    looks: Cell<Option<u32>>,
    stopped: Cell<Option<Stopped>>,
    /// A change was sent in this wait: it ends with the answers, by time, or long after its program was killed.
    committed: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

/// The waits of a thread.
#[derive(Default)]
pub struct Watches {
    all: RefCell<Vec<Weak<Watch>>>,
    pub(super) looking: Cell<bool>,
}

impl Watches {
    /// A place for a new lane.
    pub fn add(&self, lane: Rc<LaneHands>) -> Rc<Watch> {
        let watch = Rc::new(Watch {
            lane,
            looks: Cell::new(None),
            stopped: Cell::new(None),
            committed: Cell::new(false),
            waker: RefCell::new(None),
        });
        self.all.borrow_mut().push(Rc::downgrade(&watch));
        watch
    }

    /// Looks after everybody; `false`: nobody waits.
    fn look(&self) -> bool {
        let mut anybody = false;
        self.all.borrow_mut().retain(|watch| {
            let Some(watch) = watch.upgrade() else { return false };
            if let Some(looks) = watch.looks.get() {
                anybody = true;
                watch.looks.set(Some(looks + 1));
                watch.judge(looks);
            }
            true
        });
        anybody
    }
}

impl Watch {
    /// Something came.
    pub fn progress(&self) {
        self.looks.set(Some(0));
    }

    /// A request may be on its way. One that changes something must not be left behind: it could land at any
    /// time later.
    pub fn sent(&self, changing: bool) {
        if changing {
            self.committed.set(true);
        }
    }

    fn judge(&self, looks: u32) {
        let stopped = match () {
            () if self.lane.cancelled() && (!self.committed.get() || self.lane.leaves_changes()) => {
                Stopped::Cancelled
            }
            () if LOOK_EVERY * looks >= ANSWER_DEADLINE => Stopped::TimedOut,
            () => return,
        };
        self.stopped.set(Some(stopped));
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    /// Waits for `future` as long as that makes sense; then it is dropped.
    pub async fn over<T>(
        &self,
        thread: &Rc<RingHands>,
        future: impl Future<Output = T>,
    ) -> Result<T, Stopped> {
        self.progress();
        self.stopped.set(None);
        self.committed.set(false);
        begin_looking(thread);
        let mut future = pin!(future);
        let result = poll_fn(|cx| {
            if let Some(stopped) = self.stopped.take() {
                return Poll::Ready(Err(stopped));
            }
            let Poll::Ready(value) = future.as_mut().poll(cx) else {
                let mut waker = self.waker.borrow_mut();
                if !waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
                    *waker = Some(cx.waker().clone());
                }
                return Poll::Pending;
            };
            Poll::Ready(Ok(value))
        })
        .await;
        self.looks.set(None);
        result
    }
}

/// Makes sure that the timer runs.
///
/// A timer of the kernel that is read, not one of the reactor: that one would be the time-out of every
/// system call of the thread, and setting it costs each of them.
fn begin_looking(thread: &Rc<RingHands>) {
    if thread.watches.looking.replace(true) {
        return;
    }
    let (reactor, weak) = (thread.reactor.clone(), Rc::downgrade(thread));
    thread.reactor.spawn(async move {
        let timer = ticking();
        let mut quiet = 0;
        while quiet < QUIET_LOOKS {
            match &timer {
                Ok(timer) if reactor.readable(timer.as_fd()).await.is_ok() => {
                    let _ = rustix::io::read(timer, &mut [0; 8]);
                }
                // No descriptor left: the dearer way.
                _ => reactor.sleep(LOOK_EVERY).await,
            }
            let Some(thread) = weak.upgrade() else { return };
            quiet = if thread.watches.look() { 0 } else { quiet + 1 };
        }
        if let Some(thread) = weak.upgrade() {
            thread.watches.looking.set(false);
        }
    });
}

/// Readable every [`LOOK_EVERY`].
fn ticking() -> rustix::io::Result<OwnedFd> {
    let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
    let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
    let every = Timespec { tv_sec: 0, tv_nsec: i64::from(LOOK_EVERY.subsec_nanos()) };
    timerfd_settime(&timer, TimerfdTimerFlags::empty(), &Itimerspec { it_interval: every, it_value: every })?;
    Ok(timer)
}
