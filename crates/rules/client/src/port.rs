//! What the core needs from the world: a way to ask, a way to wait, two clocks and a log.
//!
//! The methods that wait are `async`, so one body of rules serves every kind of hands. A blocking
//! port (a FUSE worker) never pends: its futures are ready when polled first. A port of the
//! simulator, or of an io_uring loop, pends and is polled again when its answers are there.

use alloc::rc::Rc;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::fmt;
use core::future::Future;
use skep_types::{ClientId, FenceEpoch, Incarnation, Ino, Millis, NodeId, Timestamp, Uuid};
use skep_wire::Status;

/// Stands for "the management service, whichever member answers": it must be reachable before
/// there is a map, by the addresses that the program was given.
pub const MGMTD: NodeId = NodeId(0);

/// One request on its way to one node, and the place for its outcome.
#[derive(Debug)]
pub struct Call<'a> {
    /// To whom ([`MGMTD`], or a node of the cluster map).
    pub node: NodeId,
    /// As whom: sent in no other session than this one's, however long the port waits for a connection. What was decided in
    /// one session may be wrong in the next. (Of no meaning to [`MGMTD`].)
    pub client: ClientId,
    /// Number of the message, for the header.
    pub kind: u16,
    /// Fence epoch, for the header.
    pub epoch: FenceEpoch,
    /// Body of the frame.
    pub body: &'a [u8],
    /// Payload of the frame; only passed along.
    pub payload: &'a [u8],
    /// Where the payload of the answer goes. A longer one is a protocol error (`Lost`).
    pub into: &'a mut [u8],
    /// It changes something. Once a byte of it may have left, the port waits for its answer whatever the
    /// program wants (as a local file system does for its disk): a change that is given up could land
    /// behind what another lane, or another mount, does later.
    pub changing: bool,
    /// Set by the port.
    pub outcome: Outcome,
}

/// What became of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// An answer came.
    Answer(Answer),
    /// It may have been executed: the connection broke, the answer did not come in time, or the wait was
    /// given up (see [`Port::cancelled`]; never that of a [`Call::changing`]). The port must not use that connection again, and number the next one
    /// of its group higher, so that the server drops what it has not read of the old one.
    Lost,
    /// It was certainly not executed: no connection could be made, or the session is another one.
    Unreachable,
}

/// An answer, accepted or refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// 0, or why it was refused.
    pub status: Status,
    /// Body of the frame.
    pub body: Vec<u8>,
    /// Bytes written to [`Call::into`].
    pub payload_len: usize,
    /// Life of the node that answered (from its `Welcome`).
    pub incarnation: Incarnation,
    /// Fence epoch of the header.
    pub epoch: FenceEpoch,
}

/// What became of something that the kernel was to drop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dropped {
    Done,
    /// It does not know it, and may be about to: from an answer that it has not looked at yet.
    Unknown,
    /// Not yet: it waits for somebody else.
    Waits,
    /// It cannot be told: what it was given goes on being valid.
    Failed,
}

/// The hands of one lane. Each lane has a port of its own; its connection group is its slot.
#[allow(async_fn_in_trait)] // static dispatch only; one thread drives a lane, so no Send bound
pub trait Port {
    /// What is to become of a name.
    type Notice;

    /// Sends all calls, then waits until each has its outcome. Calls to one node go out in order
    /// on one connection. The map with the addresses is in the [`crate::Shared`] state, and so is
    /// the session that the port shows in its `Hello`.
    async fn call(&self, calls: &mut [Call<'_>]);

    /// Waits; returns early when [`Port::cancelled`] turns true.
    async fn pause(&self, ms: u64);

    /// As [`Port::pause`], and returns early when `called` is ready as well. (Nobody misses anything where it is not looked at: who
    /// waits looks again.)
    async fn pause_before(&self, ms: u64, called: impl Future<Output = ()>) {
        drop(called);
        self.pause(ms).await;
    }

    /// Monotonic time.
    fn now(&self) -> Millis;

    /// Time that goes on while the machine sleeps; leases count by it.
    fn boot(&self) -> Millis {
        self.now()
    }

    /// Time for files.
    fn wall(&self) -> Timestamp;

    /// Nobody wants the result any more: the program that waits was killed, or waits for a lock and has a signal.
    /// Other signals do not count: programs take them all the time, and no local disk returns EINTR for them.
    fn cancelled(&self) -> bool {
        false
    }

    /// Which program's thread the present operation is for; 0: none's, or nobody knows.
    fn caller(&self) -> u32 {
        0
    }

    /// What is asked for from now on is wanted for so many milliseconds: [`Port::cancelled`] turns true then. `None`: for
    /// as long as it takes.
    fn wanted_for(&self, _ms: Option<u64>) {}

    /// Sixteen random bytes, for the identity of a session.
    fn uuid(&self) -> Uuid;

    /// A line for the administrator.
    fn log(&self, line: fmt::Arguments<'_>);

    /// Has the kernel drop its pages of a file from byte `from` on (`len` bytes; 0 = to the end), and waits until they
    /// are gone: what was stored into mappings of them has been written back by then. `patience`: no longer than so
    /// many milliseconds. `false`: perhaps they are not gone.
    ///
    /// The kernel waits for fills of these pages, so whoever serves one must not call it.
    async fn drop_pages(&self, _ino: Ino, _from: u64, _len: u64, _patience: Option<u64>) -> bool {
        true
    }

    /// Has the kernel drop the attributes that it has of an inode, and none of its pages. It waits for no lock that a request of
    /// the kernel holds, so whoever serves one may call it.
    fn drop_attributes(&self, _ino: Ino) -> Dropped {
        Dropped::Done
    }

    /// Has the kernel drop a name, as soon as the lock of its directory is free, which a request may hold that waits for who calls
    /// this.
    fn drop_name(&self, dir: Ino, name: &[u8]) -> Self::Notice;

    /// Waits for that, for so many milliseconds at most.
    async fn noticed(&self, notice: &Self::Notice, patience: u64) -> Dropped;

    /// Has the kernel drop every name that it was given, at its next use, with all that is mounted below it. It waits for nothing.
    fn drop_names(&self) -> Dropped {
        Dropped::Done
    }

    /// Is something mounted on a name of this mount, as far as can be seen?
    fn has_mounts(&self) -> bool {
        false
    }

    /// Has the kernel believe that a file has at least this size, whatever it believes of the answer that comes next, and
    /// waits until it does. `false`: perhaps it does not. The same holds of who calls it as of [`Port::drop_pages`].
    async fn tell_size(&self, _ino: Ino, _size: u64) -> bool {
        true
    }

    /// Has the kernel ask for the attributes of a file, and waits until it has taken over what it was answered, which is what
    /// [`crate::Lane::settles`] says: nothing that it was answered before counts behind that. `false`: perhaps it has not. It waits
    /// for no fill, so whoever serves one may call it.
    async fn settle(&self, _ino: Ino) -> bool {
        true
    }

    /// Something waits for [`crate::Lane::housekeeping`]: call it within [`crate::HOUSEKEEPING_SOON_MS`].
    fn work_waits(&self) {}

    /// Somebody waits for a file that is held: [`crate::Lane::tell_held`] is to be called at once.
    fn is_asked(&self) {}

    /// The same, where one lane that does this is enough: it asks for another one where it finds more to do.
    fn is_looked_at(&self) {
        self.is_asked();
    }

    /// There is news for who calls [`crate::Lane::hear`], who is to look at [`Shared::nodes_to_hear`] at once: leases are held
    /// where none were, a server is to be told something, or to be asked whether it has something to tell.
    ///
    /// [`Shared::nodes_to_hear`]: crate::Shared::nodes_to_hear
    fn is_lent(&self) {}
}

/// State that several lanes share, behind whatever lock the hands have.
pub trait Cell<T> {
    /// Runs `f` on the state. Never called from inside `f`, never held while waiting.
    fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R;
}

impl<T> Cell<T> for RefCell<T> {
    fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        f(&mut self.borrow_mut())
    }
}

impl<T, C: Cell<T>> Cell<T> for Rc<C> {
    fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        (**self).with(f)
    }
}

impl<T, C: Cell<T>> Cell<T> for Arc<C> {
    fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        (**self).with(f)
    }
}

impl<T, C: Cell<T>> Cell<T> for &C {
    fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        (**self).with(f)
    }
}
