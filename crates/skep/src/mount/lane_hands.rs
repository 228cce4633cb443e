//! What the hands of a lane do the same way whatever carries their bytes: who they are, what time it is,
//! and whether the program that waits wants to give up.

use super::hands::Hands;
use super::links::{Debts, Seat};
use crate::caller::hello;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use skep_client::{Cell, INTERRUPT_AFTER_MS, Port};
use skep_fuse::Interrupt;
use skep_net::NetError;
use skep_types::{ClientId, Millis, NodeId, Role, Timestamp, Uuid};
use skep_wire::Hello;
use std::cell::{Cell as Local, RefCell};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A node must take a connection within this time.
pub const CONNECT_DEADLINE: Duration = Duration::from_secs(5);
/// A node must answer within this time; longer than any server lets a request wait (20 s).
pub const ANSWER_DEADLINE: Duration = Duration::from_millis(if cfg!(test) { 5_000 } else { 40_000 });
/// Whoever waits looks this often whether the program gave up.
pub const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The port of a lane that serves programs.
pub trait MountPort: Port {
    /// An operation begins for a program whose signals make `interrupt` known.
    fn begin(&self, interrupt: &Interrupt<'_>);
}

/// See the module.
pub struct LaneHands {
    /// What all lanes share.
    pub hands: Arc<Hands>,
    started: Local<Instant>,
    /// Trying to get a session will fail again until a person changes something (a key, a version).
    hopeless: Local<bool>,
    /// Readable while the program of the present request has a signal.
    interrupt: RefCell<Option<OwnedFd>>,
}

impl LaneHands {
    /// For a new lane.
    pub fn new(hands: Arc<Hands>) -> Self {
        let started = Local::new(Instant::now());
        Self { hands, started, hopeless: Local::new(false), interrupt: RefCell::new(None) }
    }

    /// See [`MountPort::begin`].
    pub fn begin(&self, interrupt: &Interrupt<'_>) {
        self.started.set(Instant::now());
        // Drains what an earlier request of this worker left behind.
        let _ = interrupt.is_set();
        if self.interrupt.borrow().is_none() {
            // Without one the operation can still be waited for, up to the retry limit.
            let copy = interrupt.descriptor().ok().and_then(|fd| fd.try_clone_to_owned().ok());
            self.interrupt.replace(copy);
        }
    }

    /// Whose links these are: another session needs others.
    pub fn client(&self) -> ClientId {
        self.hands.client()
    }

    /// A connection of the present session, with the next number.
    pub fn hello(&self, group: u32) -> Hello {
        let mut hello = Hello { group, connection: self.hands.next_connection(), ..hello(Role::Client) };
        self.hands.shared.with(|s| {
            hello.epoch = s.epoch;
            if let Some(session) = s.session.open() {
                hello.client = session.client;
                hello.incarnation = session.incarnation;
                hello.token = session.token;
                hello.cluster = session.cluster;
            }
        });
        hello
    }

    /// No connection could be made.
    pub fn unreachable(&self, why: &NetError) {
        self.hopeless.set(why.is_permanent() && self.client() == ClientId(0));
        self.hands.unreachable(why);
    }

    /// A connection in `group` was not made, while `owed` was owed. `true`: it is worth asking again.
    pub fn connects_again(
        &self,
        debts: &Debts,
        node: NodeId,
        owed: Option<u32>,
        group: u32,
        seat: Seat,
        why: &NetError,
    ) -> bool {
        self.unreachable(why);
        let again = self.hands.links.failed(seat, why);
        if owed.is_none() {
            // Nothing was asked in it yet.
            debts.paid(node);
            self.hands.links.settle(node, group);
        }
        again && !self.cancelled()
    }

    /// Whatever it waits for, it gives up.
    #[cfg(test)]
    pub fn give_up(&self) {
        self.hopeless.set(true);
    }

    /// See [`Port::cancelled`].
    pub fn cancelled(&self) -> bool {
        if self.hopeless.get() {
            return true;
        }
        if self.started.get().elapsed() < Duration::from_millis(INTERRUPT_AFTER_MS) {
            return false;
        }
        let interrupt = self.interrupt.borrow();
        let Some(interrupt) = interrupt.as_ref() else { return false };
        let mut polled = [PollFd::new(interrupt, PollFlags::IN)];
        matches!(poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })), Ok(1))
    }

    /// See [`Port::now`].
    pub fn now(&self) -> Millis {
        self.hands.now()
    }

    /// See [`Port::wall`].
    pub fn wall(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp { secs: since.as_secs() as i64, nanos: since.subsec_nanos() }
    }

    /// See [`Port::uuid`].
    pub fn uuid(&self) -> Uuid {
        crate::identity::random_uuid().unwrap_or_else(|e| {
            // A session's identity only has to differ from others'.
            self.hands.say(format_args!("{e}"));
            let mut raw = [0; 16];
            raw[..8].copy_from_slice(&self.wall().secs.to_le_bytes());
            raw[8..12].copy_from_slice(&self.wall().nanos.to_le_bytes());
            raw[12..].copy_from_slice(&std::process::id().to_le_bytes());
            Uuid(raw)
        })
    }
}
