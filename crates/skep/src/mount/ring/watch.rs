//! Who waits, and whether he should go on. One timer for all lanes of a thread: a request costs no timer
//! of its own, and no time at all when nobody waits.

use super::RingHands;
use crate::mount::lane_hands::{ANSWER_DEADLINE, LOOK_EVERY, LaneHands};
use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::{Rc, Weak};
use std::task::{Poll, Waker};
use std::time::Instant;

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
    /// Since when nothing has come; `None` = it does not wait.
    since: Cell<Option<Instant>>,
    stopped: Cell<Option<Stopped>>,
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
            since: Cell::new(None),
            stopped: Cell::new(None),
            waker: RefCell::new(None),
        });
        self.all.borrow_mut().push(Rc::downgrade(&watch));
        watch
    }

    /// Looks after everybody; `false`: nobody waits.
    fn look(&self) -> bool {
        let now = Instant::now();
        let mut anybody = false;
        self.all.borrow_mut().retain(|watch| {
            let Some(watch) = watch.upgrade() else { return false };
            if let Some(since) = watch.since.get() {
                anybody = true;
                watch.judge(now, since);
            }
            true
        });
        anybody
    }
}

impl Watch {
    /// Something came.
    pub fn progress(&self) {
        self.since.set(Some(Instant::now()));
    }

    fn judge(&self, now: Instant, since: Instant) {
        let stopped = match () {
            () if self.lane.cancelled() => Stopped::Cancelled,
            () if now.duration_since(since) >= ANSWER_DEADLINE => Stopped::TimedOut,
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
        self.since.set(None);
        result
    }
}

/// Makes sure that the timer runs.
fn begin_looking(thread: &Rc<RingHands>) {
    if thread.watches.looking.replace(true) {
        return;
    }
    let (reactor, weak) = (thread.reactor.clone(), Rc::downgrade(thread));
    thread.reactor.spawn(async move {
        let mut quiet = 0;
        while quiet < QUIET_LOOKS {
            reactor.sleep(LOOK_EVERY).await;
            let Some(thread) = weak.upgrade() else { return };
            quiet = if thread.watches.look() { 0 } else { quiet + 1 };
        }
        if let Some(thread) = weak.upgrade() {
            thread.watches.looking.set(false);
        }
    });
}
