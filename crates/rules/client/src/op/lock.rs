//! fcntl and flock locks: taken, waited for, given up, looked at. See `docs/design/client.md`.

use crate::job::Reply;
use crate::lane::Lane;
use crate::port::{Cell, Port};
use crate::state::{Ended, Handle, LockKey, Shared, Wish};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use skep_types::{Errno, Ino, NodeId, ShardId, Term};
use skep_wire::meta::{
    CancelLock, CancelLockReply, DropLocks, GetLock, HeldLock, LockKind, LockOutcome, LockSpace, LockState,
    LockWish, SetLock, SetLockReply,
};
use skep_wire::{Refusal, Status};

/// A request overtaken by a newer one of the same owner is numbered anew this often.
const OVERTAKEN_MAX: u32 = 1_000;
/// Pause before.
const OVERTAKEN_PAUSE_MS: u64 = 1;

/// What became of a wish that may wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waiting {
    /// The lock is held, or given up, as wished.
    Done,
    /// It stands in a queue under this ticket, which [`Lane::tend_waits`] will name when it ends.
    Ticket(u64),
}

/// A request that was answered.
struct Taken {
    state: LockState,
    /// Term of the shard.
    term: Term,
    /// Number of the request.
    order: u64,
}

impl<P: Port, C: Cell<Shared>> Lane<P, C> {
    /// Takes or gives up a lock. EAGAIN when another owner has it. What was written under it is committed
    /// before it is given up; who takes it sees what others wrote under it.
    pub async fn set_lock(&self, handle: Handle, lock: LockWish) -> Result<(), Errno> {
        if lock.kind.is_none()
            && let Some(ino) = self.shared.with(|s| s.learns_of_lost_lock(handle))
        {
            // What it took beside the lost one is given up.
            if self.commit_under(ino, handle, lock).await.is_ok() {
                let _ = self.set_committed(ino, handle, lock).await;
            }
            return Err(Errno::EIO);
        }
        let ino = self.lockable(handle, &lock)?;
        self.commit_under(ino, handle, lock).await?;
        self.set_committed(ino, handle, lock).await?;
        if lock.kind.is_some() {
            self.look_again(ino).await;
        }
        Ok(())
    }

    async fn set_committed(&self, ino: Ino, handle: Handle, lock: LockWish) -> Result<(), Errno> {
        let record = |s: &mut Shared, result: &Result<Taken, Refusal>| match result {
            Ok(taken) => s.locks.done(ino, &lock, handle, taken.order),
            Err(refusal) if is_unsure(refusal) => s.locks.suspect(ino, lock, None),
            Err(_) => {}
        };
        let (result, ()) = self.request_lock(ino, lock, None, record).await;
        self.told_of_doubt(&result);
        self.errno(result).map(|_| ())
    }

    /// Before a lock is given up, or held for reading only: what was written under it is committed. When
    /// that fails the program is told, and the lock is given up all the same: nobody would do it later.
    async fn commit_under(&self, ino: Ino, handle: Handle, lock: LockWish) -> Result<(), Errno> {
        if lock.kind == Some(LockKind::Write) {
            return Ok(());
        }
        let committed = self.errno(self.commit(ino).await);
        if committed.is_err() {
            let less = match lock.kind {
                None => Vec::from([lock]),
                Some(_) => self.shared.with(|s| s.locks.downgrades(ino, &lock)),
            };
            for lock in less {
                // The first error is the one to tell.
                let _ = self.set_committed(ino, handle, lock).await;
            }
        }
        committed
    }

    /// A lock was taken: whoever had it before may have changed the file. The kernel's pages go if they are older than
    /// that. Without an answer nothing is believed any more: the next read asks.
    pub async fn look_again(&self, ino: Ino) {
        self.learn_again(ino).await;
        // When the program gives up, they count as old, and whoever locks next drops them.
        self.drop_old_pages(ino, None).await;
    }

    /// The first half of [`Lane::look_again`]: asks the shard.
    pub async fn learn_again(&self, ino: Ino) {
        if self.fetch_layout(ino).await.is_err() {
            self.shared.with(|s| {
                s.inodes.set_inline(ino, None);
                if let Some(inode) = s.inodes.get_mut(ino) {
                    inode.layout = None;
                    inode.pages.forget_change();
                }
            });
        }
    }

    /// The other half, which may wait for servers of chunk files: no longer than so many milliseconds of `patience`.
    /// `false`: they are not gone.
    pub async fn drop_old_pages(&self, ino: Ino, patience: Option<u64>) -> bool {
        self.freshen_pages(ino, false, patience).await
    }

    /// As [`Lane::set_lock`], and stands in line when another owner has it.
    pub async fn wait_for_lock(&self, handle: Handle, lock: LockWish) -> Result<Waiting, Errno> {
        let ino = self.lockable(handle, &lock)?;
        self.commit_under(ino, handle, lock).await?;
        let ticket = self.shared.with(|s| s.locks.wish(ino, lock, handle));
        // A wish that is gone ended while its request was on its way: whoever ended it tells the program.
        let record = |s: &mut Shared, result: &_| s.wish_answered(ticket, ino, &lock, handle, result);
        let (result, told) = self.request_lock(ino, lock, Some(ticket), record).await;
        if told {
            self.port.work_waits();
            return Ok(Waiting::Ticket(ticket));
        }
        let waiting = match &result {
            Ok(Taken { state: LockState::Waits, .. }) => Waiting::Ticket(ticket),
            Ok(_) => {
                self.look_again(ino).await;
                Waiting::Done
            }
            Err(_) => Waiting::Done,
        };
        self.told_of_doubt(&result);
        self.errno(result).map(|_| waiting)
    }

    /// A lock that stands in the way of a wish.
    pub async fn get_lock(&self, handle: Handle, lock: LockWish) -> Result<Option<HeldLock>, Errno> {
        let ino = self.lockable(handle, &lock)?;
        self.errno(self.ask(ino.shard(), &GetLock { ino, lock }).await).map(|reply| reply.held)
    }

    /// Is a lock of this mount?
    pub fn is_own(&self, lock: &HeldLock) -> bool {
        self.shared.with(|s| s.session.open().is_some_and(|session| session.client == lock.by.client))
    }

    /// The program that waits under `ticket` has a signal. `None`: it ended already, and was or will be
    /// told. Tried once: a program that is killed must not wait for a server that is away.
    pub async fn cancel_lock(&self, ticket: u64) -> Option<Ended> {
        let Some(Wish { ino, .. }) = self.shared.with(|s| s.locks.wish_of(ticket)) else {
            return self.shared.with(|s| s.locks.take_ended_of(ticket));
        };
        let reply = self.once(self.asking(ino.shard(), &CancelLock { ino, ticket })).await;
        let held = reply.and_then(|reply| reply.read::<CancelLockReply>()).map(|reply| reply.held);
        let (answer, doubt) = self.shared.with(|s| {
            let Some(wish) = s.locks.take_wish(ticket) else {
                return s.locks.take_ended_of(ticket).map(|ended| (ended.result, false));
            };
            match held {
                // A request for it that was not answered may have been granted at once, or is on its way.
                Ok(false) if wish.unsure => {
                    s.locks.suspect(ino, wish.lock, Some(ticket));
                    Some((Err(Errno::EINTR), true))
                }
                Ok(true) => {
                    s.locks.done(ino, &wish.lock, wish.handle, wish.order);
                    Some((Ok(()), false))
                }
                Ok(false) => Some((Err(Errno::EINTR), false)),
                Err(_) => {
                    s.locks.suspect(ino, wish.lock, Some(ticket));
                    Some((Err(Errno::EINTR), true))
                }
            }
        })?;
        if doubt {
            self.port.work_waits();
        }
        Some(Ended { ticket, ino, result: answer })
    }

    /// Wishes that shards of `node` have forgotten are put into their queues again, each asked for once: one that its shard
    /// does not take now (it is in its grace period) stays forgotten. Gives those that ended.
    pub(super) async fn wish_forgotten_again(&self, node: NodeId) -> Vec<Ended> {
        let mut ended = Vec::new();
        for ticket in self.shared.with(|s| s.forgotten_wishes(node)) {
            ended.extend(self.wish_again(ticket).await);
        }
        ended
    }

    async fn wish_again(&self, ticket: u64) -> Option<Ended> {
        let Wish { ino, lock, handle, .. } = self.shared.with(|s| s.locks.wish_of(ticket))?;
        let record = |s: &mut Shared, result: &_| s.wish_answered(ticket, ino, &lock, handle, result);
        let key = LockKey::of(ino, &lock);
        let order = self.shared.with(|s| {
            s.locks.asks(key);
            s.locks.number(Some(ticket))
        });
        let reply =
            self.once(self.asking(ino.shard(), &SetLock { ino, lock, ticket: Some(ticket), order })).await;
        let recorded = self.shared.with(|s| {
            let result = reply.and_then(|reply| s.taken(ino.shard(), &reply, order));
            s.locks.asked(&key);
            if let Err(refusal) = &result
                && (is_passing(refusal) || refusal.status == Status::OLD_SEQUENCE)
            {
                s.locks.not_answered(ticket, is_unsure(refusal));
                return None;
            }
            let told = record(s, &result);
            Some((result, told))
        });
        let (result, told) = recorded?;
        if told {
            self.port.work_waits();
            return None;
        }
        match result {
            Ok(Taken { state: LockState::Waits, .. }) => None,
            Ok(Taken { state: LockState::Done, .. }) => Some(Ended { ticket, ino, result: Ok(()) }),
            Err(refusal) => {
                let result = Err(refusal.status.as_errno().unwrap_or(Errno::ENOLCK));
                Some(Ended { ticket, ino, result })
            }
        }
    }

    /// Every lock and wish of `key` that was asked for before request `order` is given up.
    pub(crate) async fn drop_locks(&self, key: LockKey, order: u64) {
        self.shared.with(|s| s.locks.leaves(order, key, 0, u64::MAX));
        let LockKey { ino, space, owner } = key;
        let told = self.settle(self.asking(ino.shard(), &DropLocks { ino, space, owner, order })).await;
        let again = self.shared.with(|s| {
            s.locks.left(order);
            let waited = s.locks.dropped(&key, order);
            s.locks.ended(order);
            let again = s.is_doubtful(ino.shard(), &told, is_unsure);
            if again {
                s.locks.undropped(key, order);
            } else if told.is_ok() {
                s.locks.settled(&key);
            }
            let again = s.doubts_overtaken(key, &told) || again;
            if again {
                // The server may still have them in its queue, and whoever repeats the end may be overtaken.
                waited.into_iter().for_each(|(ticket, lock)| s.locks.suspect(ino, lock, Some(ticket)));
            }
            again
        });
        if again {
            self.port.work_waits();
        }
    }

    /// What was given up in the middle is put right: housekeeping. `false`: not all of it, now.
    pub(crate) async fn settle_locks(&self) -> bool {
        let (suspects, drops) = self.shared.with(|s| (s.locks.take_suspects(), s.locks.take_drops()));
        let mut ok = true;
        for (key, order) in drops {
            let LockKey { ino, space, owner } = key;
            let job = self.asking(ino.shard(), &DropLocks { ino, space, owner, order });
            let told = self.once(job).await;
            self.shared.with(|s| {
                if s.is_doubtful(ino.shard(), &told, is_passing) {
                    s.locks.undropped(key, order);
                    ok = false;
                }
                ok &= !s.doubts_overtaken(key, &told);
            });
        }
        for (ino, lock, ticket) in suspects {
            ok &= self.put_right(ino, lock, ticket).await;
        }
        ok
    }

    /// `ticket`: of a wish that is to be taken back first. `false`: what is not right yet is in doubt again.
    async fn put_right(&self, ino: Ino, lock: LockWish, ticket: Option<u64>) -> bool {
        if let Some(number) = ticket {
            let job = self.asking(ino.shard(), &CancelLock { ino, ticket: number });
            if self.once(job).await.is_err_and(|refusal| is_passing(&refusal)) {
                self.shared.with(|s| s.locks.suspect(ino, lock, ticket));
                return false;
            }
        }
        // Numbered together with the look at what is held: whatever the program asks for from now on has
        // a higher number, and wins. What it asked for before and may still be granted has a lower one, and
        // would be taken away: that part waits until it is decided.
        let (decided, wishes, waits) = self.shared.with(|s| {
            let (decided, open) = s.locks.decided(ino, &lock);
            open.iter().for_each(|lock| s.locks.suspect(ino, *lock, None));
            let believed: Vec<LockWish> =
                decided.iter().flat_map(|lock| s.locks.believed(ino, lock)).collect();
            let numbered = believed.into_iter().map(|lock| (lock, s.locks.next_order()));
            (decided, numbered.collect::<Vec<_>>(), !open.is_empty())
        });
        for (wish, order) in &wishes {
            let message = SetLock { ino, lock: *wish, ticket: None, order: *order };
            let Err(refusal) = self.once(self.asking(ino.shard(), &message)).await else { continue };
            if is_passing(&refusal) || refusal.status == Status::OLD_SEQUENCE {
                self.shared.with(|s| s.locks.suspect(ino, lock, None));
                return false;
            }
            if wish.kind.is_some() && refusal.status.as_errno() == Some(Errno::EAGAIN) {
                // It was given up after all, by an unlock whose answer did not come.
                self.shared.with(|s| s.locks.disbelieve(ino, wish, *order));
            }
        }
        if let Some((_, order)) = wishes.last() {
            self.shared.with(|s| decided.iter().for_each(|lock| s.locks.told_again(ino, lock, *order)));
        }
        !waits
    }

    fn lockable(&self, handle: Handle, lock: &LockWish) -> Result<Ino, Errno> {
        if lock.start > lock.last {
            return Err(Errno::EINVAL);
        }
        self.shared.with(|s| s.handles.file(handle).map(|file| file.ino))
    }

    /// Sends a wish until it is answered. One that a newer one of the same owner overtook is sent anew. What came of
    /// it is recorded at the moment when the request counts as answered, so that nobody finds it neither on its
    /// way nor held.
    async fn request_lock<T>(
        &self,
        ino: Ino,
        lock: LockWish,
        ticket: Option<u64>,
        record: impl FnOnce(&mut Shared, &Result<Taken, Refusal>) -> T,
    ) -> (Result<Taken, Refusal>, T) {
        let key = LockKey::of(ino, &lock);
        self.shared.with(|s| s.locks.asks(key));
        let mut record = Some(record);
        let (mut tries, mut before) = (0, None);
        loop {
            tries += 1;
            let order = self.shared.with(|s| {
                let order = s.locks.number(ticket);
                if lock.kind.is_none() {
                    s.locks.leaves(order, key, lock.start, lock.last);
                }
                before.replace(order).into_iter().for_each(|before| s.locks.left(before));
                order
            });
            let reply = self.settle(self.asking(ino.shard(), &SetLock { ino, lock, ticket, order })).await;
            let last = tries >= OVERTAKEN_MAX || self.port.cancelled();
            let recorded = self.shared.with(|s| {
                let result = match reply.and_then(|reply| s.taken(ino.shard(), &reply, order)) {
                    Err(refusal) if refusal.status == Status::OLD_SEQUENCE => {
                        let wanted = ticket.is_none_or(|ticket| s.locks.wish_of(ticket).is_some());
                        if wanted && !last {
                            return None;
                        }
                        Err(Errno::EINTR.into())
                    }
                    result => result,
                };
                s.locks.left(order);
                s.locks.asked(&key);
                let record = record.take()?;
                let recorded = record(s, &result);
                Some((result, recorded))
            });
            if let Some(recorded) = recorded {
                return recorded;
            }
            // Its close has overtaken it, or a server that forgot is just being told that the file is open.
            self.port.pause(OVERTAKEN_PAUSE_MS).await;
        }
    }

    fn told_of_doubt<T>(&self, result: &Result<T, Refusal>) {
        if result.as_ref().is_err_and(is_unsure) {
            self.port.work_waits();
        }
    }
}

/// It was given up, and may have been executed.
fn is_unsure(refusal: &Refusal) -> bool {
    matches!(refusal.status.as_errno(), Some(Errno::EINTR | Errno::EIO))
}

/// The server was not reached, or is not ready.
fn is_passing(refusal: &Refusal) -> bool {
    refusal.status.is_transient() || refusal.status.is_misdirected() || is_unsure(refusal)
}

impl Shared {
    /// Reads the answer to a lock request. What a life granted that has ended since is nothing: the next one was told
    /// of what was held without it, and may have given it to another. OLD_SEQUENCE: ask it, under a new number.
    fn taken(&mut self, shard: ShardId, reply: &Reply, order: u64) -> Result<Taken, Refusal> {
        let SetLockReply { state } = reply.read()?;
        let term = reply.stamp.term;
        if self.shards.opened(shard, term) {
            return Err(Status::OLD_SEQUENCE.into());
        }
        Ok(Taken { state, term, order })
    }

    /// A newer request of the same owner reached the server before the end of its open file, which was refused: the
    /// server may still hold what was to be given up, beside what is held now. `true`: to be put right.
    fn doubts_overtaken<T>(&mut self, key: LockKey, told: &Result<T, Refusal>) -> bool {
        let overtaken = told.as_ref().is_err_and(|refusal| refusal.status == Status::OLD_SEQUENCE);
        if overtaken {
            self.locks.suspect(key.ino, key.all(), None);
        }
        overtaken
    }

    /// The shards of `node` that have a wish in their queues.
    pub(super) fn wished_shards(&self, node: NodeId) -> BTreeSet<ShardId> {
        let shards = self.locks.wishes().map(|(_, wish)| wish.ino.shard());
        shards.filter(|shard| self.map.leader(*shard) == Some(node)).collect()
    }

    /// Servers with wishes in their queues.
    pub(super) fn wished_nodes(&self) -> Vec<NodeId> {
        let shards = self.locks.wishes().map(|(_, wish)| wish.ino.shard());
        let mut nodes: Vec<NodeId> = shards.filter_map(|shard| self.map.leader(shard)).collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes
    }

    /// The server that a wish waits on, or waited on until it ended without being told.
    pub fn wished_node(&self, ticket: u64) -> Option<NodeId> {
        self.map.leader(self.locks.ino_of(ticket)?.shard())
    }

    /// A wish was answered. `true`: it had ended before. What the server did for it all the same is put
    /// right by housekeeping.
    fn wish_answered(
        &mut self,
        ticket: u64,
        ino: Ino,
        lock: &LockWish,
        handle: Handle,
        result: &Result<Taken, Refusal>,
    ) -> bool {
        if self.locks.was_early(ticket) {
            return true;
        }
        if self.locks.wish_of(ticket).is_none() {
            self.locks.suspect(ino, *lock, Some(ticket));
            return true;
        }
        match result {
            Ok(Taken { state: LockState::Waits, term, .. }) => self.locks.waits(ticket, *term),
            Ok(Taken { state: LockState::Done, order, .. }) => {
                self.locks.take_wish(ticket);
                self.locks.done(ino, lock, handle, *order);
            }
            Err(refusal) => {
                self.locks.take_wish(ticket);
                if is_unsure(refusal) {
                    self.locks.suspect(ino, *lock, Some(ticket));
                }
            }
        }
        false
    }

    /// Locks that were to be given up may still stand: no answer that counts, or one of a life that has ended,
    /// while the next one was told of them before.
    fn is_doubtful(
        &mut self,
        shard: ShardId,
        told: &Result<Reply, Refusal>,
        passing: fn(&Refusal) -> bool,
    ) -> bool {
        match told {
            Ok(reply) => self.shards.opened(shard, reply.stamp.term),
            Err(refusal) => passing(refusal),
        }
    }

    /// A program gives up a lock that was lost with a session. `true`: it is told so now, and the handle may be used
    /// again.
    fn learns_of_lost_lock(&mut self, handle: Handle) -> Option<Ino> {
        let file = self.handles.any_file(handle)?;
        core::mem::take(&mut file.lock_lost).then_some(file.ino)
    }

    /// What became of a wish, as its server tells. What was granted in a term that has ended since is nothing, see `taken`:
    /// the wish is put again in the next.
    pub(super) fn lock_outcome(&mut self, outcome: &LockOutcome) -> Option<Ended> {
        let LockOutcome { ticket, errno, term } = *outcome;
        let shard = self.locks.wish_of(ticket)?.ino.shard();
        if self.shards.term(shard) > term {
            return None;
        }
        if errno == 0 {
            return self.locks.granted(ticket);
        }
        let wish = self.locks.take_wish(ticket)?;
        let result = Err(Errno(u16::try_from(errno).unwrap_or(Errno::EIO.0)));
        Some(Ended { ticket, ino: wish.ino, result })
    }

    /// Wishes that another life of their shard had in its queue, or may have had; of shards of `node`.
    pub(super) fn forgotten_wishes(&self, node: NodeId) -> Vec<u64> {
        let is_new = |shard, put| self.shards.term(shard) != put || self.shards.is_unsure(shard);
        let old = |wish: &Wish| wish.term.is_some_and(|put| is_new(wish.ino.shard(), put));
        let here = |wish: &Wish| self.map.leader(wish.ino.shard()) == Some(node);
        self.locks.wishes().filter(|(_, wish)| old(wish) && here(wish)).map(|(ticket, _)| ticket).collect()
    }

    /// Keys of the locks that a closing descriptor of `owner` takes along.
    pub(crate) fn range_key(ino: Ino, owner: u64) -> LockKey {
        LockKey { ino, space: LockSpace::Range, owner }
    }
}

#[cfg(test)]
pub(super) mod tests;
#[cfg(test)]
mod tests_doubts;
