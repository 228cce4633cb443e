//! fcntl and flock locks: taken, waited for, given up, looked at. See `docs/design/client.md`.

use crate::job::Reply;
use crate::lane::Lane;
use crate::port::{Cell, Port};
use crate::state::{Ended, Handle, LockKey, Shared, Wish};
use alloc::vec::Vec;
use skep_types::{Errno, Incarnation, Ino, NodeId, ShardId};
use skep_wire::meta::{
    AwaitLocks, AwaitLocksReply, CancelLock, CancelLockReply, DropLocks, GetLock, HeldLock, LockKind,
    LockSpace, LockState, LockWish, SetLock, SetLockReply,
};
use skep_wire::{Refusal, Status};

/// A request overtaken by a newer one of the same owner is numbered anew this often.
const OVERTAKEN_MAX: u32 = 1_000;

/// What became of a wish that may wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waiting {
    /// The lock is held, or given up, as wished.
    Done,
    /// It stands in a queue under this ticket, which [`Lane::await_locks`] will name when it ends.
    Ticket(u64),
}

impl<P: Port, C: Cell<Shared>> Lane<P, C> {
    /// Takes or gives up a lock. EAGAIN when another owner has it. What was written under it is committed
    /// before it is given up; who takes it sees what others wrote under it.
    pub async fn set_lock(&self, handle: Handle, lock: LockWish) -> Result<(), Errno> {
        let ino = self.lockable(handle, &lock)?;
        if lock.kind != Some(LockKind::Write) {
            self.errno(self.commit(ino).await)?;
        }
        let result = self.request_lock(ino, lock, None).await;
        self.shared.with(|s| match &result {
            Ok(_) => s.locks.done(ino, &lock, handle),
            Err(refusal) if is_unsure(refusal) => s.locks.suspect(ino, lock, None),
            Err(_) => {}
        });
        self.told_of_doubt(&result);
        self.errno(result)?;
        if lock.kind.is_some() {
            self.look_again(ino).await;
        }
        Ok(())
    }

    /// A lock was taken: whoever had it before may have changed the file. When the kernel's pages are old,
    /// [`Lane::take_misplaced`] says so. Without an answer, what is known stays.
    pub async fn look_again(&self, ino: Ino) {
        let Ok(reply) = self.fetch_layout(ino).await else { return };
        let change = reply.attr.change;
        self.shared.with(|s| {
            if let Some(inode) = s.inodes.get_mut(ino)
                && inode.seen_change != change
            {
                inode.seen_change = change;
                if inode.cached == Some(true) {
                    inode.misplaced = Some(0);
                }
            }
        });
    }

    /// As [`Lane::set_lock`], and stands in line when another owner has it.
    pub async fn wait_for_lock(&self, handle: Handle, lock: LockWish) -> Result<Waiting, Errno> {
        let ino = self.lockable(handle, &lock)?;
        if lock.kind != Some(LockKind::Write) {
            self.errno(self.commit(ino).await)?;
        }
        let ticket = self.shared.with(|s| s.locks.wish(ino, lock, handle));
        let result = self.request_lock(ino, lock, Some(ticket)).await;
        // A wish that is gone ended while its request was on its way: whoever ended it tells the program.
        let told = self.shared.with(|s| s.wish_answered(ticket, ino, &lock, handle, &result));
        if told {
            self.port.work_waits();
            return Ok(Waiting::Ticket(ticket));
        }
        let waiting = match &result {
            Ok((LockState::Waits, _)) => Waiting::Ticket(ticket),
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
        let Wish { ino, .. } = self.shared.with(|s| s.locks.wish_of(ticket))?;
        let reply = self.once(self.asking(ino.shard(), &CancelLock { ino, ticket })).await;
        let held = reply.and_then(|reply| reply.read::<CancelLockReply>()).map(|reply| reply.held);
        let (answer, doubt) = self.shared.with(|s| {
            let wish = s.locks.take_wish(ticket)?;
            match held {
                Ok(true) => {
                    s.locks.done(ino, &wish.lock, wish.handle);
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

    /// Waits up to `wait_ms` for outcomes of wishes in the queues of `node`, and gives those that came.
    /// Wishes that the server has forgotten (a new life) are put into its queues again. An error: the
    /// server could not be asked; ask again after a pause.
    pub async fn await_locks(&self, node: NodeId, wait_ms: u64) -> Result<Vec<Ended>, Errno> {
        let shard = self.shared.with(|s| s.wished_shard(node));
        let Some(shard) = shard else { return Ok(self.shared.with(|s| s.locks.take_ended())) };
        if self.shared.with(|s| s.nodes.begin_reclaim(node)) && !self.reclaim(node).await {
            return Err(Errno::EAGAIN);
        }
        let received = self.shared.with(|s| s.nodes.outcomes(node));
        let job = self.asking(shard, &AwaitLocks { received, wait_ms });
        let reply: Reply = match self.once(job).await {
            Ok(reply) => reply,
            Err(refusal) if refusal.status == Status::FENCED => {
                return Ok(self.shared.with(|s| s.locks.take_ended()));
            }
            Err(_) => {
                // The server may have moved, or be a new one.
                self.refresh_map().await;
                return Err(Errno::EAGAIN);
            }
        };
        let AwaitLocksReply { outcomes, number } = self.errno(reply.read())?;
        let mut ended: Vec<Ended> = self.shared.with(|s| {
            let told = outcomes.iter().filter_map(|outcome| s.lock_outcome(outcome.ticket, outcome.errno));
            let told = told.collect();
            s.nodes.opened(reply.node, reply.incarnation);
            s.nodes.confirm_outcomes(node, number);
            told
        });
        let forgotten: Vec<u64> = self.shared.with(|s| s.forgotten_wishes(node, reply.incarnation));
        for ticket in forgotten {
            ended.extend(self.wish_again(ticket).await);
        }
        Ok(ended)
    }

    async fn wish_again(&self, ticket: u64) -> Option<Ended> {
        let Wish { ino, lock, handle, .. } = self.shared.with(|s| s.locks.wish_of(ticket))?;
        let result = self.request_lock(ino, lock, Some(ticket)).await;
        if self.shared.with(|s| s.wish_answered(ticket, ino, &lock, handle, &result)) {
            self.port.work_waits();
            return None;
        }
        self.told_of_doubt(&result);
        match result {
            Ok((LockState::Waits, _)) => None,
            Ok((LockState::Done, _)) => Some(Ended { ticket, ino, result: Ok(()) }),
            Err(refusal) => {
                let result = Err(refusal.status.as_errno().unwrap_or(Errno::ENOLCK));
                Some(Ended { ticket, ino, result })
            }
        }
    }

    /// Every lock and wish of `key` is given up, if there is any.
    pub(crate) async fn drop_locks(&self, key: LockKey) {
        let Some(order) = self.shared.with(|s| s.locks.knows(&key).then(|| s.locks.next_order())) else {
            return;
        };
        let LockKey { ino, space, owner } = key;
        let told = self.ask(ino.shard(), &DropLocks { ino, space, owner, order }).await;
        self.shared.with(|s| {
            s.locks.dropped(&key);
            if told.as_ref().is_err_and(is_unsure) {
                s.locks.undropped(key, order);
            }
        });
        if told.as_ref().is_err_and(is_unsure) {
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
            if self.once(job).await.is_err_and(|refusal| is_passing(&refusal)) {
                self.shared.with(|s| s.locks.undropped(key, order));
                ok = false;
            }
        }
        for (ino, lock, ticket) in suspects {
            if !self.put_right(ino, lock, ticket).await {
                self.shared.with(|s| s.locks.suspect(ino, lock, ticket));
                ok = false;
            }
        }
        ok
    }

    async fn put_right(&self, ino: Ino, lock: LockWish, ticket: Option<u64>) -> bool {
        if let Some(ticket) = ticket {
            let job = self.asking(ino.shard(), &CancelLock { ino, ticket });
            if self.once(job).await.is_err_and(|refusal| is_passing(&refusal)) {
                return false;
            }
        }
        // Numbered together with the look at what is held: whatever the program asks for from now on has
        // a higher number, and wins.
        let wishes: Option<Vec<(LockWish, u64)>> = self.shared.with(|s| {
            if s.locks.is_asking(&LockKey::of(ino, &lock)) {
                return None;
            }
            let believed = s.locks.believed(ino, &lock);
            Some(believed.into_iter().map(|lock| (lock, s.locks.next_order())).collect())
        });
        let Some(wishes) = wishes else { return false };
        for (lock, order) in wishes {
            let job = self.asking(ino.shard(), &SetLock { ino, lock, ticket: None, order });
            let put = self.once(job).await;
            if put.is_err_and(|e| is_passing(&e) || e.status == Status::OLD_SEQUENCE) {
                return false;
            }
        }
        true
    }

    fn lockable(&self, handle: Handle, lock: &LockWish) -> Result<Ino, Errno> {
        if lock.start > lock.last {
            return Err(Errno::EINVAL);
        }
        self.shared.with(|s| s.handles.file(handle).map(|file| file.ino))
    }

    /// Sends a wish until it is answered. One that a newer one of the same owner overtook is sent anew.
    async fn request_lock(
        &self,
        ino: Ino,
        lock: LockWish,
        ticket: Option<u64>,
    ) -> Result<(LockState, Incarnation), Refusal> {
        let key = LockKey::of(ino, &lock);
        self.shared.with(|s| s.locks.asks(key));
        let mut result = Err(Errno::ENOLCK.into());
        for _ in 0..OVERTAKEN_MAX {
            let order = self.shared.with(|s| s.locks.next_order());
            let reply = self.settle(self.asking(ino.shard(), &SetLock { ino, lock, ticket, order })).await;
            result = reply.and_then(|reply| {
                let SetLockReply { state } = reply.read()?;
                self.shared.with(|s| {
                    // A life that has ended since: the next one was told of what was believed before.
                    if s.nodes.opened(reply.node, reply.incarnation) {
                        s.locks.suspect(ino, lock, None);
                    }
                });
                Ok((state, reply.incarnation))
            });
            let overtaken = result.as_ref().is_err_and(|refusal| refusal.status == Status::OLD_SEQUENCE);
            let wanted = ticket.is_none_or(|ticket| self.shared.with(|s| s.locks.wish_of(ticket)).is_some());
            if !overtaken || !wanted || self.port.cancelled() {
                break;
            }
        }
        self.shared.with(|s| s.locks.asked(&key));
        match result {
            Err(refusal) if refusal.status == Status::OLD_SEQUENCE => Err(Errno::EINTR.into()),
            result => result,
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
    refusal.status.is_transient() || refusal.status == Status::STALE_MAP || is_unsure(refusal)
}

impl Shared {
    /// A shard of `node` that has a wish in its queue: any names the server.
    fn wished_shard(&self, node: NodeId) -> Option<ShardId> {
        let shards = self.locks.wishes().map(|(_, wish)| wish.ino.shard());
        let mut shards = shards.filter(|shard| self.map.leader(*shard) == Some(node));
        shards.next()
    }

    /// Servers with wishes in their queues.
    pub fn wished_nodes(&self) -> Vec<NodeId> {
        let shards = self.locks.wishes().map(|(_, wish)| wish.ino.shard());
        let mut nodes: Vec<NodeId> = shards.filter_map(|shard| self.map.leader(shard)).collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes
    }

    /// The server that a wish waits on.
    pub fn wished_node(&self, ticket: u64) -> Option<NodeId> {
        self.map.leader(self.locks.wish_of(ticket)?.ino.shard())
    }

    /// A wish was answered. `true`: it had ended before. What the server did for it all the same is put
    /// right by housekeeping.
    fn wish_answered(
        &mut self,
        ticket: u64,
        ino: Ino,
        lock: &LockWish,
        handle: Handle,
        result: &Result<(LockState, Incarnation), Refusal>,
    ) -> bool {
        if self.locks.wish_of(ticket).is_none() {
            self.locks.suspect(ino, *lock, Some(ticket));
            return true;
        }
        match result {
            Ok((LockState::Waits, life)) => self.locks.waits(ticket, *life),
            Ok((LockState::Done, _)) => {
                self.locks.take_wish(ticket);
                self.locks.done(ino, lock, handle);
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

    fn lock_outcome(&mut self, ticket: u64, errno: u32) -> Option<Ended> {
        let wish = self.locks.take_wish(ticket)?;
        if errno == 0 {
            self.locks.done(wish.ino, &wish.lock, wish.handle);
            return Some(Ended { ticket, ino: wish.ino, result: Ok(()) });
        }
        let result = Err(Errno(u16::try_from(errno).unwrap_or(Errno::EIO.0)));
        Some(Ended { ticket, ino: wish.ino, result })
    }

    /// Wishes that another life of `node` had in its queues.
    fn forgotten_wishes(&self, node: NodeId, life: Incarnation) -> Vec<u64> {
        let old = |wish: &Wish| wish.life.is_some_and(|put| put != life);
        let here = |wish: &Wish| self.map.leader(wish.ino.shard()) == Some(node);
        self.locks.wishes().filter(|(_, wish)| old(wish) && here(wish)).map(|(ticket, _)| ticket).collect()
    }

    /// Keys of the locks that a closing descriptor of `owner` takes along.
    pub(crate) fn range_key(ino: Ino, owner: u64) -> LockKey {
        LockKey { ino, space: LockSpace::Range, owner }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::OPENS_PER_REQUEST;
    use crate::testing::{BOTH, FakeLane, Fault, block_on, create, mount, mounted, read, write};
    use crate::{OpenHow, Opened};
    use skep_wire::Message;

    fn wish(owner: u64, kind: Option<LockKind>, start: u64, last: u64) -> LockWish {
        LockWish { owner, pid: owner as u32, space: LockSpace::Range, kind, start, last }
    }

    const READ: Option<LockKind> = Some(LockKind::Read);
    const WRITE: Option<LockKind> = Some(LockKind::Write);

    fn open(lane: &FakeLane, ino: Ino) -> Opened {
        block_on(lane.open(ino, OpenHow { ..BOTH })).unwrap()
    }

    fn waiting(lane: &FakeLane, file: &Opened, lock: LockWish) -> u64 {
        match block_on(lane.wait_for_lock(file.handle, lock)).unwrap() {
            Waiting::Ticket(ticket) => ticket,
            Waiting::Done => panic!("nothing to wait for"),
        }
    }

    fn cancel(lane: &FakeLane, ticket: u64) -> Option<Result<(), Errno>> {
        block_on(lane.cancel_lock(ticket)).map(|ended| ended.result)
    }

    fn node(lane: &FakeLane) -> NodeId {
        lane.shared.borrow().map.leader(ShardId(0)).unwrap()
    }

    /// Goal: a lock of one mount keeps another's away, is told to it, is waited for, and the outcome is
    /// told once; a descriptor that is closed without locks costs no request.
    #[test]
    fn two_mounts_and_a_queue() {
        let (cluster, first) = mounted();
        let second = mount(&cluster);
        let file = create(&first, b"f");
        let other = open(&second, file.attr.ino);
        block_on(first.flush(file.handle, 1)).unwrap();
        assert_eq!(cluster.borrow().count(DropLocks::KIND), 0);
        block_on(first.set_lock(file.handle, wish(1, WRITE, 0, 9))).unwrap();
        assert_eq!(block_on(second.set_lock(other.handle, wish(1, READ, 9, 20))), Err(Errno::EAGAIN));
        let held = block_on(second.get_lock(other.handle, wish(1, READ, 9, 20))).unwrap().unwrap();
        assert!((held.start, held.last, second.is_own(&held), first.is_own(&held)) == (0, 9, false, true));
        let ticket = waiting(&second, &other, wish(1, READ, 9, 20));
        assert_eq!(block_on(second.await_locks(node(&second), 0)), Ok(Vec::new()));
        block_on(first.flush(file.handle, 1)).unwrap();
        assert_eq!(
            block_on(second.await_locks(node(&second), 0)),
            Ok(alloc::vec![Ended { ticket, ino: file.attr.ino, result: Ok(()) }])
        );
        assert_eq!(block_on(second.await_locks(node(&second), 0)), Ok(Vec::new()));
        assert_eq!(block_on(first.set_lock(file.handle, wish(5, WRITE, 20, 20))), Err(Errno::EAGAIN));
        block_on(second.release(other.handle));
        block_on(first.set_lock(file.handle, wish(5, WRITE, 20, 20))).unwrap();
    }

    /// Goal: what was written under a lock, to inline content or chunks, is seen by who gets it next, and
    /// the kernel's pages of it go.
    #[test]
    fn locks_carry_what_was_written_under_them() {
        let (cluster, first) = mounted();
        let second = mount(&cluster);
        let file = create(&first, b"f");
        let other = open(&second, file.attr.ino);
        for (round, len) in [100usize, 3_000, 40_000].into_iter().enumerate() {
            second.choose_cached(file.attr.ino, true);
            let ticket = {
                block_on(first.set_lock(file.handle, wish(1, WRITE, 0, 0))).unwrap();
                waiting(&second, &other, wish(2, READ, 0, 0))
            };
            let content = alloc::vec![round as u8 + 1; len];
            write(&first, &file, 0, &content);
            block_on(first.set_lock(file.handle, wish(1, None, 0, 0))).unwrap();
            let ended = block_on(second.await_locks(node(&second), 0)).unwrap();
            assert_eq!(ended[0].ticket, ticket);
            block_on(second.look_again(ended[0].ino));
            assert_eq!(second.take_misplaced(ended[0].ino), Some(0));
            assert_eq!(read(&second, &other, 0, len + 10), content);
            block_on(second.set_lock(other.handle, wish(2, None, 0, 0))).unwrap();
        }
    }

    /// Goal: a wish is taken back when its program has a signal, and a lock that came first is kept.
    #[test]
    fn signals() {
        let (cluster, first) = mounted();
        let second = mount(&cluster);
        let file = create(&first, b"f");
        let other = open(&second, file.attr.ino);
        block_on(first.set_lock(file.handle, wish(1, WRITE, 0, 9))).unwrap();
        let ticket = waiting(&second, &other, wish(2, WRITE, 0, 9));
        assert_eq!(cancel(&second, ticket), Some(Err(Errno::EINTR)));
        assert_eq!(cancel(&second, ticket), None);
        let ticket = waiting(&second, &other, wish(2, WRITE, 0, 9));
        block_on(first.set_lock(file.handle, wish(1, None, 0, 9))).unwrap();
        assert_eq!(cancel(&second, ticket), Some(Ok(())), "too late: it is held");
        assert_eq!(block_on(first.set_lock(file.handle, wish(1, READ, 0, 9))), Err(Errno::EAGAIN));
        // The server does not answer: the program goes on, and housekeeping takes the wish back.
        let ticket = waiting(&first, &file, wish(1, WRITE, 0, 9));
        cluster.borrow_mut().fail(CancelLock::KIND, &[Fault::Unreachable]);
        assert_eq!(cancel(&first, ticket), Some(Err(Errno::EINTR)));
        block_on(first.housekeeping());
        assert!(cluster.borrow().shard.locks.queue.is_empty());
        assert_eq!(cluster.borrow().shard.locks.held.len(), 1);
    }

    /// Goal: a lock whose request was given up in the middle is not held in the end, and what was held
    /// before is.
    #[test]
    fn a_request_given_up_leaves_what_was() {
        let (cluster, lane) = mounted();
        let file = create(&lane, b"f");
        block_on(lane.set_lock(file.handle, wish(1, READ, 5, 6))).unwrap();
        cluster.borrow_mut().cancelled = true;
        cluster.borrow_mut().fail(SetLock::KIND, &[Fault::LoseAnswer]);
        assert_eq!(block_on(lane.set_lock(file.handle, wish(1, WRITE, 0, 9))), Err(Errno::EINTR));
        cluster.borrow_mut().cancelled = false;
        block_on(lane.housekeeping());
        let held = cluster.borrow().shard.locks.held.clone();
        assert_eq!(held.len(), 1);
        assert_eq!(held[0].2, wish(1, READ, 5, 6));
    }

    /// Goal: a restarted server is told every lock in bounded requests before anything else, and waiting
    /// wishes are put into its queues again.
    #[test]
    fn a_restart_forgets_nothing() {
        const LOCKS: u64 = OPENS_PER_REQUEST as u64 + 500;
        let (cluster, first) = mounted();
        let second = mount(&cluster);
        let file = create(&first, b"f");
        let other = open(&second, file.attr.ino);
        for number in 0..LOCKS {
            block_on(first.set_lock(file.handle, wish(1, WRITE, number * 2, number * 2))).unwrap();
        }
        let ticket = waiting(&second, &other, wish(2, READ, 10, 10));
        {
            let mut cluster = cluster.borrow_mut();
            cluster.incarnation += 1;
            cluster.shard.locks.restart();
        }
        block_on(first.getattr(file.attr.ino)).unwrap();
        block_on(first.housekeeping());
        assert_eq!(cluster.borrow().shard.locks.held.len() as u64, LOCKS);
        assert_eq!(block_on(second.await_locks(node(&second), 0)), Ok(Vec::new()));
        assert_eq!(cluster.borrow().shard.locks.queue.len(), 1, "the wish is there again");
        block_on(first.flush(file.handle, 1)).unwrap();
        assert_eq!(
            block_on(second.await_locks(node(&second), 0)),
            Ok(alloc::vec![Ended { ticket, ino: file.attr.ino, result: Ok(()) }])
        );
    }

    /// Goal: the end of a session ends every wait, and a mount whose programs believe in locks does not
    /// go on with a new session as if nothing had been.
    #[test]
    fn an_eviction_ends_waits() {
        let (cluster, first) = mounted();
        let second = mount(&cluster);
        let file = create(&first, b"f");
        let other = open(&second, file.attr.ino);
        block_on(first.set_lock(file.handle, wish(1, WRITE, 0, 9))).unwrap();
        block_on(second.set_lock(other.handle, wish(2, WRITE, 20, 29))).unwrap();
        let ticket = waiting(&second, &other, wish(2, WRITE, 0, 9));
        cluster.borrow_mut().fail(AwaitLocks::KIND, &[Fault::Refuse(Status::FENCED)]);
        let ended = block_on(second.await_locks(node(&second), 0));
        assert_eq!(
            ended,
            Ok(alloc::vec![Ended { ticket, ino: file.attr.ino, result: Err(Errno::ENOTCONN) }])
        );
        block_on(second.housekeeping());
        assert!(second.shared.borrow().session.is_dead());
        let _ = block_on(second.flush(other.handle, 2));
        block_on(second.housekeeping());
        assert!(!second.shared.borrow().session.is_dead());
    }
}
