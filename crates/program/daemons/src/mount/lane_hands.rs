//! What the hands of a lane do the same way whatever carries their bytes: who they are, what time it is,
//! and whether the program that waits wants to give up.

use super::callers::{KILLED_WAIT, LOOK_AT_CALLER};
use super::hands::Hands;
use super::links::{Debts, Seat};
use super::pages::{Notice, Told};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use skep_base::caller::hello;
use skep_client::state::SessionState;
use skep_client::{Cell, Port};
use skep_fuse::Interrupt;
use skep_net::NetError;
use skep_types::{ClientId, Ino, Millis, NodeId, Role, Timestamp, Uuid};
use skep_wire::{Hello, SHARED_MEMORY};
use std::cell::{Cell as Local, RefCell};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A node must take a connection within this time.
pub const CONNECT_DEADLINE: Duration = Duration::from_secs(5);
/// A node must answer within this time; longer than any server lets a request wait (20 s).
pub const ANSWER_DEADLINE: Duration = Duration::from_millis(if cfg!(test) { 5_000 } else { 40_000 });
/// Whoever waits looks this often whether the program gave up.
pub const LOOK_EVERY: Duration = Duration::from_millis(100);

/// What makes an operation give up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Heeds {
    /// The end of its program (see `callers`): what a local disk gives up for.
    #[default]
    Kill,
    /// The time of its killed program is up: a close, which comes after the kill and whose change is to be sent.
    KillAtClose,
}

/// For whom an operation is done.
#[derive(Debug, Clone, Copy)]
pub struct Asker<'a> {
    /// Makes the first signal known, and the end of the connection.
    pub interrupt: Interrupt<'a>,
    /// The thread that waits.
    pub thread: u32,
    /// What makes it give up.
    pub heeds: Heeds,
}

/// The port of a lane that serves programs.
pub trait MountPort: Port {
    /// An operation begins.
    fn begin(&self, asker: &Asker<'_>);

    /// What all lanes share.
    fn hands(&self) -> &Hands;
}

/// What a file is like is known to the kernel by then, or tried anew.
const SETTLE_MAX: Duration = Duration::from_secs(2);

pub struct LaneHands {
    /// What all lanes share.
    pub hands: Arc<Hands>,
    /// Trying to get a session will fail again until a person changes something (a key, a version).
    hopeless: Local<bool>,
    /// Readable while the program of the present request has a signal.
    interrupt: RefCell<Option<OwnedFd>>,
    /// The connection to the kernel has gone.
    closing: RefCell<Option<Arc<AtomicBool>>>,
    thread: Local<u32>,
    heeds: Local<Heeds>,
    /// From then on nobody wants the result.
    wanted_until: Local<Option<Instant>>,
    /// When it was last looked whether the thread was killed; at first: when its operation began.
    looked: Local<Instant>,
    killed: Local<Option<Instant>>,
}

impl LaneHands {
    /// For a new lane.
    pub fn new(hands: Arc<Hands>) -> Self {
        Self {
            hands,
            hopeless: Local::new(false),
            interrupt: RefCell::new(None),
            closing: RefCell::new(None),
            thread: Local::new(0),
            heeds: Local::default(),
            wanted_until: Local::new(None),
            looked: Local::new(Instant::now()),
            killed: Local::new(None),
        }
    }

    /// See [`MountPort::begin`].
    pub fn begin(&self, asker: &Asker<'_>) {
        self.thread.set(asker.thread);
        self.heeds.set(asker.heeds);
        self.looked.set(Instant::now());
        self.killed.set(None);
        // Drains what an earlier request of this worker left behind.
        let _ = asker.interrupt.is_set();
        if self.interrupt.borrow().is_none() {
            // Without one the operation can still be waited for, up to the retry limit.
            let copy = asker.interrupt.descriptor().ok().and_then(|fd| fd.try_clone_to_owned().ok());
            self.interrupt.replace(copy);
            self.closing.replace(asker.interrupt.closing().cloned());
        }
    }

    /// Whose links these are: another session needs others.
    pub fn client(&self) -> ClientId {
        self.hands.client()
    }

    /// A connection of the present session, with the next number. Storage servers are offered memory for payloads: they
    /// take it where they are on this machine.
    pub fn hello(&self, node: NodeId, group: u32) -> Hello {
        let features = if self.hands.is_storage(node) { SHARED_MEMORY } else { 0 };
        let connection = self.hands.next_connection();
        let mut hello = Hello { group, connection, features, ..hello(Role::Client) };
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
        // Who had a session has shown that key and version fit: its service died in the handshake.
        let first = self.hands.shared.with(|s| matches!(s.session, SessionState::None));
        self.hopeless.set(why.is_permanent() && first);
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
        if !why.is_cancelled() {
            self.unreachable(why);
        }
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

    /// See [`Port::caller`].
    pub fn caller(&self) -> u32 {
        self.thread.get()
    }

    /// See [`Port::wanted_for`].
    pub fn wanted_for(&self, ms: Option<u64>) {
        self.wanted_until.set(ms.map(|ms| Instant::now() + Duration::from_millis(ms)));
    }

    fn is_late(&self) -> bool {
        self.wanted_until.get().is_some_and(|until| Instant::now() >= until)
    }

    /// See [`Port::cancelled`].
    pub fn cancelled(&self) -> bool {
        if self.hopeless.get() || self.has_gone() || self.is_late() {
            return true;
        }
        match self.heeds.get() {
            Heeds::Kill => self.is_killed(),
            Heeds::KillAtClose => self.is_killed() && self.leaves_changes(),
        }
    }

    /// May even a change be left behind that was sent?
    pub fn leaves_changes(&self) -> bool {
        self.is_killed() && self.killed.get().is_some_and(|since| since.elapsed() >= KILLED_WAIT)
    }

    fn has_gone(&self) -> bool {
        self.closing.borrow().as_ref().is_some_and(|closing| closing.load(Ordering::SeqCst))
    }

    fn has_signal(&self) -> bool {
        let interrupt = self.interrupt.borrow();
        let Some(interrupt) = interrupt.as_ref() else { return false };
        let mut polled = [PollFd::new(interrupt, PollFlags::IN)];
        matches!(poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })), Ok(1))
    }

    /// Was the program killed that this is done for? Looked at now and then only.
    fn is_killed(&self) -> bool {
        if self.killed.get().is_none() && self.looked.get().elapsed() >= LOOK_AT_CALLER {
            self.looked.set(Instant::now());
            if self.heeds.get() != Heeds::Kill || self.has_signal() {
                self.killed.set(self.hands.callers.killed_since(self.thread.get()));
            }
        }
        self.killed.get().is_some()
    }

    /// Tells the kernel of an inode; how long that may take at most: as long as anything, unless there is less `patience`.
    /// `None`: there is no kernel to be told.
    pub fn notify(&self, ino: Ino, notice: Notice, patience: Option<u64>) -> Option<(Arc<Told>, Instant)> {
        /// For a mount that never gives up.
        const FOR_EVER: Duration = Duration::from_secs(365 * 24 * 60 * 60);
        let told = self.tell(ino, notice)?;
        let retry = self.hands.shared.with(|s| s.limits.retry_ms);
        let limit = match patience.unwrap_or(retry) {
            0 => FOR_EVER,
            ms => Duration::from_millis(ms),
        };
        Some((told, Instant::now() + limit))
    }

    /// See [`Port::settle`]. `None`: there is no kernel that would have to.
    pub fn settle(&self, ino: Ino) -> Option<(Arc<Told>, Instant)> {
        let (_, pages) = self.hands.sizes.get()?;
        let retry = self.hands.shared.with(|s| s.limits.retry_ms);
        let limit = if retry == 0 { SETTLE_MAX } else { SETTLE_MAX.min(Duration::from_millis(retry)) };
        Some((pages.tell(ino.0, Notice::Settle), Instant::now() + limit))
    }

    /// See [`Port::drop_attributes`].
    pub fn drop_attributes(&self, ino: Ino) -> skep_client::Dropped {
        /// Attributes only.
        const NO_PAGES: i64 = -1;
        let told = self.hands.notifier.get().map(|notifier| notifier.inval_inode(ino.0, NO_PAGES, 0));
        match told {
            // Nothing was mounted that could know it.
            None | Some(Ok(skep_fuse::Dropped::Done)) => skep_client::Dropped::Done,
            Some(Ok(skep_fuse::Dropped::Unknown)) => skep_client::Dropped::Unknown,
            Some(Err(_)) => skep_client::Dropped::Failed,
        }
    }

    /// The same, for who waits by himself.
    pub fn tell(&self, ino: Ino, notice: Notice) -> Option<Arc<Told>> {
        Some(self.hands.pages.get()?.tell(ino.0, notice))
    }

    /// See [`Port::drop_names`].
    pub fn drop_names(&self) -> skep_client::Dropped {
        match self.hands.notifier.get().map(skep_fuse::Notifier::inc_epoch) {
            None | Some(Ok(())) => skep_client::Dropped::Done,
            Some(Err(_)) => skep_client::Dropped::Failed,
        }
    }

    /// See [`Port::has_mounts`].
    pub fn has_mounts(&self) -> bool {
        let Some(point) = self.hands.mount_point.get() else { return false };
        skep_base::mount_table::read()
            .map_or(true, |mounts| skep_base::mount_table::has_below(&mounts, point))
    }

    /// See [`Port::now`].
    pub fn now(&self) -> Millis {
        self.hands.now()
    }

    /// See [`Port::boot`].
    pub fn boot(&self) -> Millis {
        skep_net::boot()
    }

    /// See [`Port::wall`].
    pub fn wall(&self) -> Timestamp {
        skep_net::wall()
    }

    /// See [`Port::uuid`].
    pub fn uuid(&self) -> Uuid {
        skep_base::identity::random_uuid().unwrap_or_else(|e| {
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

#[cfg(test)]
mod tests {
    use super::*;
    use skep_client::{Limits, Shared};
    use skep_net::{Endpoint, Keyring, Link};
    use std::io::Read;
    use std::os::unix::net::UnixListener;

    /// Goal: a service that dies during a handshake is told apart from a wrong key only by who asks: a mount that never
    /// had a session gives up, one that was evicted goes on waiting, or its programs got EINTR without any signal.
    #[test]
    fn a_handshake_cut_short_ends_no_operation_of_an_evicted_mount() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let dying = std::thread::spawn(move || {
            // It has heard the question, whole or in part, and ends.
            let (mut asked, _) = listener.accept().unwrap();
            asked.read(&mut [0; 1 << 16]).unwrap()
        });
        let deadline = Instant::now() + Duration::from_secs(60);
        let why =
            Link::connect(&[Endpoint::Unix(path)], &Keyring::insecure(), &hello(Role::Client), deadline);
        let why = why.err().unwrap();
        assert!(dying.join().unwrap() > 0);
        assert!(why.is_permanent(), "{why}");
        for (session, gives_up) in
            [(SessionState::None, true), (SessionState::Dead { reason: "evicted".to_owned() }, false)]
        {
            let hands = Hands::new(Shared::new(Limits::default()), Keyring::insecure(), Vec::new());
            hands.shared.with(|s| s.session = session);
            let lane = LaneHands::new(hands);
            lane.unreachable(&why);
            assert_eq!(lane.cancelled(), gives_up);
        }
    }
}
