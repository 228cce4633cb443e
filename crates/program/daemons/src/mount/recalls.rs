//! The thread that hears what metadata servers tell: what became of waiting locks, terms that begin, and what shards take back,
//! which it confirms at once. It does nothing else, so that nothing which waits for that confirmation is ever in its way
//! (`docs/design/leases.md`, section 4): what events lead to besides is for the keeper (locks) and for housekeeping (terms, the
//! map). Nobody else asks while there is a reason to.
//!
//! One thread for all metadata servers, however many they are: a task for each of which something is held, or where a lock is
//! waited for. Its connections are its own, one to each of them, beside the mount's. It also looks at both clocks.
//!
//! Where io_uring is not to be had, or fails, the same is done by a thread for each of these servers, over connections of the
//! mount's pool. There are no leases then, whose confirmation might wait for one of those.

use super::clocks::Clocks;
use super::drive;
use super::hands::Hands;
use super::keeper::Keeper;
use super::lane_hands::LOOK_EVERY;
use super::links::Unpark;
use super::port::BlockingPort;
use super::ring::{RingHands, RingPort};
use super::worker::MountLane;
use skep_client::limits::EVENTS_WAIT_MS;
use skep_client::{Cell, Lane, Port};
use skep_ring::Reactor;
use skep_types::{Errno, NodeId};
use std::collections::BTreeSet;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// Entries of its ring: a few operations for each server; with more the kernel is entered more often.
const RING_ENTRIES: u32 = 64;
/// Pauses before a server that told nothing is asked again.
const AGAIN_MIN_MS: u64 = 50;
/// See [`AGAIN_MIN_MS`].
const AGAIN_MAX_MS: u64 = 1_000;
/// While nothing is held: who begins to hold something, or to wait for a lock, rings.
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

    /// The same on a thread without a reactor.
    fn wait_blocking(&self, limit: Duration) {
        let until = Instant::now() + limit;
        let is_over = |_: &mut Context<'_>| match Instant::now() < until {
            true => Poll::Pending,
            false => Poll::Ready(()),
        };
        let mut waiting = pin!(self.wait(poll_fn(is_over)));
        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
        let mut context = Context::from_waker(&waker);
        while waiting.as_mut().poll(&mut context).is_pending() {
            std::thread::park_timeout(until.saturating_duration_since(Instant::now()));
        }
    }
}

/// Can this machine hear by one thread? Else its mounts must not ask for leases.
pub fn can_hear() -> io::Result<()> {
    Reactor::new(1).map(drop)
}

/// Hears until the mount has ended. When one thread cannot, or cannot go on, the mount has no leases any more, and hears by
/// several.
pub fn hear(hands: &Arc<Hands>, keeper: &Arc<Keeper>) {
    let ear = Ear::new(hands, keeper);
    if let Err(e) = ear.by_ring() {
        ear.without_ring(&e);
    }
}

struct Ear {
    hands: Arc<Hands>,
    keeper: Arc<Keeper>,
    /// Servers that are asked.
    asked: Mutex<BTreeSet<NodeId>>,
}

impl Ear {
    fn new(hands: &Arc<Hands>, keeper: &Arc<Keeper>) -> Arc<Self> {
        Arc::new(Self { hands: hands.clone(), keeper: keeper.clone(), asked: Mutex::default() })
    }

    fn asked(&self) -> MutexGuard<'_, BTreeSet<NodeId>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A task for each server, over connections of this thread.
    fn by_ring(self: &Arc<Self>) -> io::Result<()> {
        let reactor = Reactor::new(RING_ENTRIES)?;
        let ring = RingHands::new(self.hands.clone(), &reactor);
        let ended = reactor.block_on(async {
            let mut clocks = Clocks::new();
            while !self.hands.has_ended() {
                let (nodes, pause) = self.look();
                for node in nodes {
                    let lane = Lane::that_hears(self.hands.shared.clone(), RingPort::new(&ring));
                    let (ear, ring) = (self.clone(), ring.clone());
                    reactor.spawn(async move { ear.ask(&lane, node, || ring.hang_up(node)).await });
                }
                self.hands.bell.wait(reactor.sleep(pause)).await;
                if let Some(still) = clocks.stood_still(pause) {
                    info!("this mount stood still for {} ms: all is asked for again", still.as_millis());
                    self.hands.shared.with(|s| s.all_lapses(false));
                    // No server needs to answer first. Nor does this wait for it: the clocks are to be looked at.
                    let lane = Lane::that_hears(self.hands.shared.clone(), RingPort::new(&ring));
                    reactor.spawn(async move { lane.drop_all_told().await });
                }
            }
        });
        reactor.drop_tasks();
        self.asked().clear();
        ended
    }

    fn without_ring(self: &Arc<Self>, why: &io::Error) {
        if self.hands.shared.with(|s| s.limits.leases) {
            warning!(
                "what servers take back cannot be heard ({why}): from now on this mount asks for everything"
            );
            self.hands.shared.with(|s| s.all_lapses(true));
        }
        self.by_threads();
    }

    /// A thread for each server.
    fn by_threads(self: &Arc<Self>) {
        while !self.hands.has_ended() {
            let (nodes, mut pause) = self.look();
            for node in nodes {
                let ear = self.clone();
                let thread = std::thread::Builder::new().name("events".to_owned());
                let started = thread.spawn(move || {
                    let port = BlockingPort::new(ear.hands.clone(), ear.hands.next_group());
                    // The port gives up a connection on which nothing comes by itself.
                    drive(ear.ask(&Lane::that_hears(ear.hands.shared.clone(), port), node, || ()));
                });
                if let Err(e) = started {
                    self.hands.say(format_args!("no thread that hears what became of waiting locks: {e}"));
                    self.asked().remove(&node);
                    pause = Duration::from_millis(AGAIN_MAX_MS);
                }
            }
            self.hands.bell.wait_blocking(pause);
        }
    }

    /// Servers that are to be asked from now on, and when to look again. Those where programs wait have somebody who looks after
    /// them: one may have become the leader of their shard a moment ago.
    fn look(&self) -> (Vec<NodeId>, Duration) {
        let mut asked = self.asked();
        // A server that is to be told first what this mount has open there is not asked before.
        let (nodes, waits, is_idle) = self
            .hands
            .shared
            .with(|s| (s.nodes_to_hear(), s.nodes_with_waits(), s.leases.nodes().is_empty()));
        let nodes = nodes.into_iter().filter(|node| asked.insert(*node)).collect();
        drop(asked);
        self.keeper.look_after(waits);
        (nodes, if is_idle { IDLE_LOOK } else { LOOK_EVERY })
    }

    /// Is there a reason to go on asking? Who rings finds either somebody who asks, or nobody.
    fn goes_on(&self, node: NodeId) -> bool {
        let mut asked = self.asked();
        let goes_on =
            !self.hands.has_ended() && self.hands.shared.with(|s| s.nodes_to_hear().contains(&node));
        if !goes_on {
            asked.remove(&node);
        }
        goes_on
    }

    /// Asks one server as long as there is a reason to.
    async fn ask<P: Port>(&self, lane: &MountLane<P>, node: NodeId, hang_up: impl Fn()) {
        let mut pause = AGAIN_MIN_MS;
        while self.goes_on(node) {
            let told = lane.hear(node, EVENTS_WAIT_MS).await;
            self.keeper.heard();
            let Err(why) = told else {
                pause = AGAIN_MIN_MS;
                continue;
            };
            // Who was silent may be a machine that is gone, whose connection nobody ends.
            if why.as_errno() == Some(Errno::EIO) {
                hang_up();
            }
            lane.port().pause(pause).await;
            pause = (pause * 2).min(AGAIN_MAX_MS);
        }
    }
}

#[cfg(test)]
mod tests;
