//! The thread that hears what shards take back, and confirms it at once. It does nothing else, so that nothing which waits for
//! that confirmation is ever in its way (`docs/design/leases.md`, section 4): what events lead to besides is for the keeper
//! (locks) and for housekeeping (terms, the map).
//!
//! One thread for all metadata servers, however many they are: a task for each of which something is held, or where a lock is
//! waited for. Its connections are its own, one to each of them, beside the mount's. It also looks at both clocks.

use super::clocks::Clocks;
use super::hands::Hands;
use super::keeper::Keeper;
use super::lane_hands::LOOK_EVERY;
use super::ring::{RingHands, RingPort};
use skep_client::limits::EVENTS_WAIT_MS;
use skep_client::{Cell, Lane};
use skep_ring::Reactor;
use skep_types::{Errno, NodeId};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

/// Entries of its ring: a few operations for each server; with more the kernel is entered more often.
const RING_ENTRIES: u32 = 64;
/// Pauses before a server that told nothing is asked again.
const AGAIN_MIN: Duration = Duration::from_millis(50);
/// See [`AGAIN_MIN`].
const AGAIN_MAX: Duration = Duration::from_secs(1);
/// While nothing is held: who begins to hold something rings.
const IDLE_LOOK: Duration = Duration::from_secs(5);

/// Calls the thread that hears.
#[derive(Default)]
pub struct Bell {
    rung: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

impl Bell {
    /// There is something to look at.
    pub fn ring(&self) {
        if !self.rung.swap(true, Ordering::AcqRel)
            && let Some(waker) = self.waker.lock().unwrap_or_else(PoisonError::into_inner).take()
        {
            waker.wake();
        }
    }

    /// Waits until it was rung, or until `limit`.
    async fn wait(&self, limit: impl Future<Output = ()>) {
        let mut limit = pin!(limit);
        poll_fn(|cx| {
            *self.waker.lock().unwrap_or_else(PoisonError::into_inner) = Some(cx.waker().clone());
            // After the waker is there: who rings from now on finds it.
            match self.rung.swap(false, Ordering::AcqRel) {
                true => Poll::Ready(()),
                false => limit.as_mut().poll(cx),
            }
        })
        .await;
    }
}

/// Can a mount hear on this machine? Else it must not ask for leases.
pub fn can_hear() -> io::Result<()> {
    Reactor::new(1).map(drop)
}

/// Hears until the mount has ended. When it cannot go on the mount has no leases any more, and the keeper hears for itself.
pub fn hear(hands: &Arc<Hands>, keeper: &Arc<Keeper>) {
    if let Err(e) = try_to_hear(hands, keeper) {
        warning!("nobody hears what servers take back ({e}): from now on this mount asks for everything");
        hands.shared.with(|s| s.all_lapses(true));
    }
    hands.hears.store(false, Ordering::SeqCst);
    keeper.heard();
}

fn try_to_hear(hands: &Arc<Hands>, keeper: &Arc<Keeper>) -> io::Result<()> {
    let reactor = Reactor::new(RING_ENTRIES)?;
    let ear = Rc::new(Ear {
        ring: RingHands::new(hands.clone(), &reactor),
        hands: hands.clone(),
        keeper: keeper.clone(),
        reactor: reactor.clone(),
        asked: RefCell::default(),
    });
    let ended = reactor.block_on(ear.listen());
    reactor.drop_tasks();
    ended
}

struct Ear {
    hands: Arc<Hands>,
    keeper: Arc<Keeper>,
    reactor: Reactor,
    ring: Rc<RingHands>,
    /// Servers that have a task.
    asked: RefCell<BTreeSet<NodeId>>,
}

impl Ear {
    async fn listen(self: &Rc<Self>) {
        let mut clocks = Clocks::new();
        while !self.hands.has_ended() {
            // A server that is to be told first what this mount has open there is not asked before.
            let (nodes, is_idle) =
                self.hands.shared.with(|s| (s.nodes_to_hear(), s.leases.nodes().is_empty()));
            let pause = if is_idle { IDLE_LOOK } else { LOOK_EVERY };
            for node in nodes {
                if self.asked.borrow_mut().insert(node) {
                    self.reactor.spawn(self.clone().ask(node));
                }
            }
            self.hands.bell.wait(self.reactor.sleep(pause)).await;
            if let Some(still) = clocks.stood_still(pause) {
                info!("this mount stood still for {} ms: all is asked for again", still.as_millis());
                self.hands.shared.with(|s| s.all_lapses(false));
            }
        }
    }

    /// Asks one server as long as there is a reason to.
    async fn ask(self: Rc<Self>, node: NodeId) {
        let lane = Lane::that_hears(self.hands.shared.clone(), RingPort::new(&self.ring));
        let mut pause = AGAIN_MIN;
        while self.hands.shared.with(|s| s.nodes_to_hear().contains(&node)) {
            let told = lane.hear(node, EVENTS_WAIT_MS).await;
            self.keeper.heard();
            let Err(why) = told else {
                pause = AGAIN_MIN;
                continue;
            };
            // Who was silent may be a machine that is gone, whose connection nobody ends.
            if why.as_errno() == Some(Errno::EIO) {
                self.ring.hang_up(node);
            }
            self.reactor.sleep(pause).await;
            pause = (pause * 2).min(AGAIN_MAX);
        }
        self.asked.borrow_mut().remove(&node);
    }
}
