//! A lane: one worker's way to the cluster. It does one operation at a time and has one slot, so at
//! most one changing request of it is in flight on any shard.

use crate::job::{IntoStatus, Job, Reply, To};
use crate::port::{Cell, Port};
use crate::state::{FileHandle, Handle, Shared, SlotState, Told};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::cell::{self, RefCell};
use skep_types::{Encode, Errno, Ino, Seq, ShardId, Slot};
use skep_wire::meta::ShardCall;
use skep_wire::{Message, Refusal, Status};

/// A worker's lane. Operations are its `async` methods; the caller polls one at a time.
pub struct Lane<P: Port, C: Cell<Shared>> {
    pub(crate) port: P,
    pub(crate) shared: C,
    slot: Slot,
    /// The slot is its own: without one it changes nothing.
    has_slot: bool,
    position: RefCell<SlotState>,
    through: cell::Cell<Through>,
    /// See [`crate::Limits`].
    pub(crate) leases: bool,
    /// The kernel is told for how long it may use what leases cover.
    pub(crate) tells: bool,
}

/// The open files that a lane's operation goes through, and how many locks had been lost when it began.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Through {
    handles: [Option<Handle>; 2],
    lock_losses: u64,
}

/// While it lives, an operation goes through an open file.
pub(crate) struct Going<'a> {
    through: &'a cell::Cell<Through>,
    before: Through,
}

impl Drop for Going<'_> {
    fn drop(&mut self) {
        self.through.set(self.before);
    }
}

impl<P: Port, C: Cell<Shared>> Lane<P, C> {
    /// A lane with a slot of its own; `port` makes its hands, given the slot (the connection group).
    /// EMFILE when all slots are taken.
    pub fn new(shared: C, port: impl FnOnce(Slot) -> P) -> Result<Self, Errno> {
        let (taken, leases, tells) = shared.with(|s| (s.slots.take(), s.limits.leases, s.limits.tells()));
        let (slot, position) = taken.ok_or(Errno::EMFILE)?;
        Ok(Self {
            port: port(slot),
            shared,
            slot,
            has_slot: true,
            position: RefCell::new(position),
            through: cell::Cell::default(),
            leases,
            tells,
        })
    }

    /// A lane that only hears what servers tell ([`Lane::hear`]): it changes nothing, so it needs no slot, and there may be one
    /// for each server, however many they are.
    pub fn that_hears(shared: C, port: P) -> Self {
        let (leases, tells) = shared.with(|s| (s.limits.leases, s.limits.tells()));
        let (position, through) = (RefCell::default(), cell::Cell::default());
        Self { port, shared, slot: Slot(0), has_slot: false, position, through, leases, tells }
    }

    pub fn slot(&self) -> Slot {
        self.slot
    }

    /// Its hands.
    pub fn port(&self) -> &P {
        &self.port
    }

    /// The state it shares with the other lanes of the mount.
    pub fn shared(&self) -> &C {
        &self.shared
    }

    /// An operation goes through an open file, or two. It ends with EIO when a lock that was taken through one is lost
    /// meanwhile, with the session or a server's memory: what it would do from then on, it would do without the lock.
    pub(crate) fn through(&self, handles: [Option<Handle>; 2]) -> Going<'_> {
        let lock_losses = self.shared.with(|s| s.lock_losses);
        let before = self.through.replace(Through { handles, lock_losses });
        Going { through: &self.through, before }
    }

    /// As [`Lane::through`], with the open file: EIO when its program believes in a lock that is lost.
    pub(crate) fn through_file(&self, handle: Handle) -> Result<(FileHandle, Going<'_>), Errno> {
        self.through_file_with(handle, |_, _| ()).map(|(file, going, ())| (file, going))
    }

    /// The same, and what is to be seen with it.
    pub(crate) fn through_file_with<T>(
        &self,
        handle: Handle,
        look: impl FnOnce(&mut Shared, &FileHandle) -> T,
    ) -> Result<(FileHandle, Going<'_>, T), Errno> {
        let (lock_losses, found) = self.shared.with(|s| {
            let found = s.handles.file(handle).copied().map(|file| (file, look(s, &file)));
            (s.lock_losses, found)
        });
        let (file, seen) = found?;
        let before = self.through.replace(Through { handles: [Some(handle), None], lock_losses });
        Ok((file, Going { through: &self.through, before }, seen))
    }

    /// Was a lock lost under which the operation began?
    pub(crate) fn has_lost_its_lock(&self) -> bool {
        let Through { handles, lock_losses } = self.through.get();
        if handles == [None, None] {
            return false;
        }
        self.shared.with(|s| {
            let mut files = handles.iter().flatten();
            s.lock_losses != lock_losses
                && files.any(|handle| s.handles.any_file(*handle).is_some_and(|file| file.lock_lost))
        })
    }

    /// The body of a request to a shard.
    pub(crate) fn shard_body<M: Message>(&self, shard: ShardId, message: &M, changing: bool) -> Vec<u8> {
        debug_assert!(self.has_slot || !changing, "it has no place for changes");
        let seq = if changing { self.position.borrow_mut().next_seq(shard) } else { Seq(0) };
        let mut body = Vec::with_capacity(128);
        // The epoch is told at each try, as it is known then.
        ShardCall { shard, slot: self.slot, seq, epoch: 0, ..ShardCall::default() }.encode(&mut body);
        message.encode(&mut body);
        body
    }

    /// Number of the next reservation to append.
    pub(crate) fn next_reservation(&self) -> u64 {
        self.position.borrow_mut().next_reservation()
    }

    /// A job that asks a shard.
    pub(crate) fn asking<M: Message>(&self, shard: ShardId, message: &M) -> Job<'static> {
        Job::new(To::Shard(shard), M::KIND, self.shard_body(shard, message, false), false)
    }

    /// A job that changes something of `ino` on its shard. At most one of a shard may be in flight.
    pub(crate) fn changing<M: Message>(&self, ino: Ino, message: &M) -> Job<'static> {
        let shard = ino.shard();
        let job = Job::new(To::Shard(shard), M::KIND, self.shard_body(shard, message, true), true);
        Job { of: [Some(ino), None], ..job }
    }

    /// Runs one job.
    pub(crate) async fn settle(&self, job: Job<'_>) -> Result<Reply, Refusal> {
        self.settle_told(job).await.0
    }

    /// The same, with what the answer or refusal said beside its body, where leases are asked for.
    pub(crate) async fn settle_told(&self, job: Job<'_>) -> (Result<Reply, Refusal>, Option<Box<Told>>) {
        if let (To::Shard(shard), true) = (job.to, job.changing)
            && self.shared.with(|s| s.stamps.changed(shard) >= s.limits.changed_max)
            && let Err(refusal) = Box::pin(self.sync_shard(shard)).await
        {
            return (Err(refusal), None);
        }
        let mut jobs = [job];
        let change = self.own_change_begins(&mut jobs[0]).await;
        if jobs[0].settled.is_none() {
            self.run(&mut jobs).await;
        }
        let [mut job] = jobs;
        if let Some(change) = change {
            self.own_change_ends(&mut job, change).await;
        }
        if let (To::Shard(shard), Some(number), true) =
            (job.to, job.makes_open, job.unsure && !job.is_answered)
        {
            // It may be open for this mount by now, or later, and nobody here will close it.
            self.shared.with(|s| s.closes.add_untold(shard, number));
            self.port.work_waits();
        }
        (job.take(), job.told)
    }

    /// Asks a shard.
    pub(crate) async fn ask<M: Message>(&self, shard: ShardId, message: &M) -> Result<M::Reply, Refusal> {
        self.settle(self.asking(shard, message)).await?.read()
    }

    /// What was asked for in `reply` changed this inode as well: it had no number then.
    pub(crate) fn also_changed(&self, ino: Ino, reply: &Reply) {
        self.shared.with(|s| s.acknowledged(ino.shard(), &reply.stamp, [ino], self.port.caller()));
    }

    /// Changes something of `ino` on its shard: the names in a directory are its own.
    pub(crate) async fn change<M: Message>(&self, ino: Ino, message: &M) -> Result<M::Reply, Refusal> {
        self.settle(self.changing(ino, message)).await?.read()
    }

    /// What a program gets for a refusal. What is no Linux error, or has a text, goes to the log.
    pub(crate) fn errno<T>(&self, result: Result<T, Refusal>) -> Result<T, Errno> {
        result.map_err(|refusal| {
            let (errno, tell) = match (refusal.status.as_errno(), refusal.status) {
                // Whoever is asked why a program could not read looks there.
                (Some(errno), _) => (errno, errno == Errno::EIO || !refusal.detail.is_empty()),
                (None, Status::ROLE) => (Errno::EPERM, true),
                (None, Status::FENCED) => (Errno::ENOTCONN, false),
                (None, _) => (Errno::EIO, true),
            };
            if tell {
                self.port.log(format_args!("{refusal}"));
            }
            errno
        })
    }
}

impl<P: Port, C: Cell<Shared>> Drop for Lane<P, C> {
    fn drop(&mut self) {
        if !self.has_slot {
            return;
        }
        let position = core::mem::take(&mut *self.position.borrow_mut());
        self.shared.with(|s| s.slots.give_back(self.slot, position));
    }
}

/// A refusal of the client's own, with a text for the log.
pub(crate) fn refuse(errno: Errno, text: alloc::string::String) -> Refusal {
    Refusal::with(errno.into_status(), text)
}
