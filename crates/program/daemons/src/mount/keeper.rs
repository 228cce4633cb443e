//! The lock keeper: programs that wait for locks of the cluster are parked here, without a worker or a lane.
//!
//! - What has become of them is heard by one thread (`recalls.rs`). One for each metadata server with waiting programs does
//!   what that leads to, and answers their requests. It ends when nobody has waited there for a while.
//! - One thread takes back the wishes of programs that got a signal.
//! - A lock is told when the kernel's old pages of its file are gone. Where that takes long, because a page waits for a
//!   server that is away, a thread of that file waits for it, and nobody else does.

use super::drive;
use super::hands::Hands;
use super::port::BlockingPort;
use super::worker::MountLane;
use skep_client::state::Ended;
use skep_client::{Cell, Lane};
use skep_fuse::ParkedReply;
use skep_types::{Errno, Ino, NodeId};
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Lanes that the keeper may take: one for each metadata server with waiters, one for signals, and for files whose pages
/// go slowly.
pub const KEEPER_LANES: usize = 17 + SLOW_MAX;
/// Files with a thread that waits for their pages.
const SLOW_MAX: usize = 16;
/// Pages that are gone by then have no thread that waits for them.
const PAGES_PATIENCE_MS: u64 = 50;
/// A thread whose server has no waiters ends after this long.
const LINGER: Duration = if cfg!(test) { Duration::from_millis(500) } else { Duration::from_secs(30) };
/// What is to be done for waits is looked for whenever something was heard, and at least so often.
const TEND_EVERY: Duration = Duration::from_secs(5);
/// The same, if some of it could not be done.
const TEND_AGAIN: Duration = Duration::from_millis(100);
/// No lane is free: looked for again after this.
const AGAIN: Duration = Duration::from_millis(200);

/// A waiting program.
enum Place {
    /// Its request.
    Parked(ParkedReply),
    /// It was answered before its request was parked.
    Ended(Ended),
}

#[derive(Default)]
struct State {
    places: HashMap<u64, Place>,
    /// Tickets of parked requests, by the requests' numbers.
    tickets: HashMap<u64, u64>,
    cancels: VecDeque<u64>,
    /// Servers whose waits a thread looks after.
    tended: HashSet<NodeId>,
    /// The thread for signals runs.
    cancelling: bool,
    /// Locks that were granted of files whose pages go slowly; each file here has a thread.
    slow: HashMap<Ino, Vec<Ended>>,
    /// How often the thread that hears has heard something.
    heard: u64,
}

pub struct Keeper {
    hands: Arc<Hands>,
    state: Mutex<State>,
    wake: Condvar,
}

impl Keeper {
    /// Nobody waits yet.
    pub fn new(hands: Arc<Hands>) -> Arc<Self> {
        Arc::new(Self { hands, state: Mutex::default(), wake: Condvar::new() })
    }

    /// Tickets of waits that have ended, of which no request was parked yet.
    #[cfg(test)]
    pub fn told(&self) -> Vec<u64> {
        let mut told: Vec<u64> = self.lock().places.keys().copied().collect();
        told.sort_unstable();
        told
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A request waits under `ticket`.
    pub fn park(self: &Arc<Self>, ticket: u64, reply: ParkedReply) {
        let ended = {
            let mut state = self.lock();
            match state.places.remove(&ticket) {
                Some(Place::Ended(ended)) => Some((reply, ended.result)),
                _ => {
                    state.tickets.insert(reply.unique(), ticket);
                    state.places.insert(ticket, Place::Parked(reply));
                    None
                }
            }
        };
        match ended {
            Some((reply, result)) => answer(reply, result),
            None => self.watch(ticket),
        }
    }

    /// A request could not be parked, and what became of its wish is known.
    pub fn forget(&self, ticket: u64) {
        self.lock().places.remove(&ticket);
    }

    /// The program of a parked request has a signal.
    pub fn interrupt(self: &Arc<Self>, unique: u64) {
        let start = {
            let mut state = self.lock();
            let Some(ticket) = state.tickets.get(&unique).copied() else { return };
            state.cancels.push_back(ticket);
            !std::mem::replace(&mut state.cancelling, true)
        };
        self.wake.notify_all();
        if start {
            let keeper = self.clone();
            let thread = std::thread::Builder::new().name("lock signals".to_owned());
            if let Err(e) = thread.spawn(move || keeper.take_back()) {
                self.lock().cancelling = false;
                self.hands.say(format_args!("no thread for signals of waiting programs: {e}"));
            }
        }
    }

    /// Wishes that ended without a lock: their file was closed, or the session ended. Those that were granted are told by
    /// threads with a lane (see [`Keeper::settle_with`]).
    pub fn settle_ended(&self) {
        if self.lock().places.is_empty() {
            return;
        }
        let ended = self.hands.shared.with(|s| s.locks.take_refused());
        self.settle(ended);
    }

    /// Tells programs that have their lock now; what others wrote under it is looked at before.
    fn settle_with(self: &Arc<Self>, lane: &MountLane<BlockingPort>, ended: Vec<Ended>) {
        let (granted, refused): (Vec<_>, Vec<_>) = ended.into_iter().partition(|one| one.result.is_ok());
        self.settle(refused);
        for one in granted {
            drive(lane.learn_again(one.ino));
            self.settle_granted(lane, one);
        }
    }

    fn settle_granted(self: &Arc<Self>, lane: &MountLane<BlockingPort>, one: Ended) {
        let ino = one.ino;
        if drive(lane.drop_old_pages(ino, Some(PAGES_PATIENCE_MS))) {
            return self.settle(vec![one]);
        }
        let is_new = {
            let mut state = self.lock();
            let room = state.slow.len() < SLOW_MAX;
            match state.slow.get_mut(&ino) {
                Some(waiting) => return waiting.push(one),
                None if room => state.slow.insert(ino, vec![one]).is_none(),
                None => false,
            }
        };
        let keeper = self.clone();
        let thread = std::thread::Builder::new().name("lock pages".to_owned());
        if is_new && thread.spawn(move || keeper.wait_for_pages(ino)).is_ok() {
            return;
        }
        drive(lane.drop_old_pages(ino, None));
        let waiting = if is_new { self.lock().slow.remove(&ino).unwrap_or_default() } else { vec![one] };
        self.settle(waiting);
    }

    /// Tells of the locks of one file.
    fn wait_for_pages(&self, ino: Ino) {
        let Some(lane) = self.lane() else { return };
        loop {
            let waiting = {
                let mut state = self.lock();
                let waiting = state.slow.get_mut(&ino).map(std::mem::take).unwrap_or_default();
                if waiting.is_empty() {
                    state.slow.remove(&ino);
                    return;
                }
                waiting
            };
            // When that gives up, they count as old, and whoever locks next drops them.
            drive(lane.drop_old_pages(ino, None));
            self.settle(waiting);
        }
    }

    fn settle(&self, ended: Vec<Ended>) {
        for Ended { ticket, ino, result } in ended {
            let reply = {
                let mut state = self.lock();
                match state.places.remove(&ticket) {
                    Some(Place::Parked(reply)) => {
                        state.tickets.remove(&reply.unique());
                        reply
                    }
                    _ => {
                        state.places.insert(ticket, Place::Ended(Ended { ticket, ino, result }));
                        continue;
                    }
                }
            };
            answer(reply, result);
        }
    }

    /// Makes sure that somebody hears what became of `ticket`, and tells.
    fn watch(self: &Arc<Self>, ticket: u64) {
        let Some(node) = self.hands.shared.with(|s| s.wished_node(ticket)) else {
            // It ended a moment ago, perhaps without anybody who tells.
            return self.settle_ended();
        };
        self.hands.bell.ring();
        self.look_after([node]);
        self.wake.notify_all();
    }

    /// Makes sure that each of these servers has a thread that looks after its waits.
    pub fn look_after(self: &Arc<Self>, nodes: impl IntoIterator<Item = NodeId>) {
        for node in nodes {
            if !self.lock().tended.insert(node) {
                continue;
            }
            let keeper = self.clone();
            let thread = std::thread::Builder::new().name("locks".to_owned());
            if let Err(e) = thread.spawn(move || keeper.tend_as_needed(node)) {
                self.lock().tended.remove(&node);
                self.hands.say(format_args!("no thread for waiting locks: {e}"));
            }
        }
    }

    fn lane(&self) -> Option<MountLane<BlockingPort>> {
        loop {
            if self.hands.has_ended() {
                return None;
            }
            let port = |slot: skep_types::Slot| BlockingPort::new(self.hands.clone(), slot.0);
            match Lane::new(self.hands.shared.clone(), port) {
                Ok(lane) => return Some(lane),
                Err(_) => std::thread::sleep(AGAIN),
            }
        }
    }

    /// Something was heard, or the server could not be asked.
    pub fn heard(&self) {
        self.lock().heard += 1;
        self.wake.notify_all();
    }

    fn has_waits(&self, node: NodeId) -> bool {
        self.hands.shared.with(|s| s.nodes_with_waits().contains(&node))
    }

    /// Looks after the waits on one server until nobody has waited there for a while, whatever is heard meanwhile.
    fn tend_as_needed(self: &Arc<Self>, node: NodeId) {
        let Some(lane) = self.lane() else { return };
        let mut idle_until = None;
        while !self.hands.has_ended() {
            if self.has_waits(node) {
                idle_until = None;
                self.tend(&lane, node);
                continue;
            }
            self.settle_ended();
            let until = *idle_until.get_or_insert_with(|| Instant::now() + LINGER);
            let mut state = self.lock();
            // Under the lock: whoever parked since the look above has woken nobody.
            if self.has_waits(node) {
                continue;
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                // Whoever parks from now on finds no thread, and starts one.
                state.tended.remove(&node);
                return;
            }
            drop(self.wake.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// Does what is to be done for waits beside hearing, and waits until more may be.
    fn tend(self: &Arc<Self>, lane: &MountLane<BlockingPort>, node: NodeId) {
        let heard = self.lock().heard;
        let (ended, is_done) = drive(lane.tend_waits(node));
        self.settle_with(lane, ended);
        let patience = if is_done { TEND_EVERY } else { TEND_AGAIN };
        let nothing_new = |state: &mut State| state.heard == heard && !self.hands.has_ended();
        let waited = self.wake.wait_timeout_while(self.lock(), patience, nothing_new);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    /// Takes wishes back, one after the other.
    fn take_back(self: &Arc<Self>) {
        let Some(lane) = self.lane() else { return };
        while !self.hands.has_ended() {
            let next = {
                let mut state = self.lock();
                if state.cancels.is_empty() {
                    let waited = self.wake.wait_timeout(state, LINGER);
                    state = waited.unwrap_or_else(PoisonError::into_inner).0;
                }
                state.cancels.pop_front()
            };
            if let Some(ticket) = next
                && let Some(ended) = drive(lane.cancel_lock(ticket))
            {
                self.settle_with(&lane, vec![ended]);
            }
        }
    }
}

fn answer(reply: ParkedReply, result: Result<(), Errno>) {
    reply.answer(result.map_err(super::convert::errno));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mount::pages::Pages;
    use skep_client::{Limits, Shared};
    use std::sync::mpsc::channel;

    /// Goal: a lock that was granted while nobody asked for it is told by a thread that has looked at its file before. Who closes
    /// a file, or ends a session, tells of what was refused only.
    #[test]
    fn a_lock_is_not_told_without_a_look_at_its_file() {
        let hands = Hands::new(Shared::new(Limits::default()), skep_net::Keyring::insecure(), Vec::new());
        let keeper = Keeper::new(hands.clone());
        let ended = |ticket, result| Ended { ticket, ino: Ino(1), result };
        hands.shared.with(|s| {
            s.locks.keep_ended(ended(2, Ok(())));
            s.locks.keep_ended(ended(3, Err(Errno::EBADF)));
        });
        keeper.lock().places.insert(1, Place::Ended(ended(1, Ok(()))));
        keeper.settle_ended();
        assert_eq!(keeper.told(), [1, 3]);
        assert_eq!(hands.shared.with(|s| s.locks.take_ended()), [ended(2, Ok(()))]);
    }

    /// Goal: a thread that looks after waits ends when nobody has waited for a while, however often something is heard: where
    /// leases are held that is once a second.
    #[test]
    fn a_thread_ends_though_something_is_heard() {
        let hands = Hands::new(Shared::new(Limits::default()), skep_net::Keyring::insecure(), Vec::new());
        let keeper = Keeper::new(hands);
        keeper.look_after([NodeId(1)]);
        let until = Instant::now() + 40 * LINGER;
        while !keeper.lock().tended.is_empty() {
            assert!(Instant::now() < until, "it goes on for ever");
            keeper.heard();
            std::thread::sleep(LINGER / 10);
        }
    }

    /// Goal: a lock whose file has pages that do not go keeps the programs of other locks waiting no longer than a moment;
    /// it is told when they are gone.
    #[test]
    fn pages_that_stay_keep_no_other_lock_waiting() {
        let (gate, opened) = channel::<()>();
        let opened = Mutex::new(opened);
        let pages = Pages::telling(move |ino, _| {
            if ino == 1 {
                let _ = opened.lock().unwrap().recv();
            }
            skep_client::Dropped::Done
        });
        let key = skep_net::Keyring::insecure();
        let hands = Hands::new(Shared::new(Limits::default()), key, Vec::new());
        let _ = hands.pages.set(pages);
        hands.shared.with(|s| {
            (1..4).for_each(|ino| {
                s.inodes.entry(Ino(ino)).pages.fill_begins(0, 9);
            })
        });
        let keeper = Keeper::new(hands);
        let telling = std::thread::spawn({
            let keeper = keeper.clone();
            move || {
                let lane = keeper.lane().unwrap();
                for (ticket, ino) in [(1, 1), (2, 2), (3, 1), (4, 3)] {
                    keeper.settle_granted(&lane, Ended { ticket, ino: Ino(ino), result: Ok(()) });
                }
            }
        });
        let until = Instant::now() + Duration::from_secs(20);
        while !telling.is_finished() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(telling.is_finished(), "it waits for the pages of one file");
        assert_eq!(keeper.told(), [2, 4]);
        drop(gate);
        while keeper.told() != [1, 2, 3, 4] {
            assert!(Instant::now() < until, "{:?}", keeper.told());
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
