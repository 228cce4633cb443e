//! What lanes do to the files that all lock: never may two hold what excludes each other, and whoever waits is
//! served in the end.

use crate::drive::SimLane;
use crate::fields::Holder;
use crate::hub::{HubRef, LaneId};
use crate::port::SharedRef;
use crate::program::{Actor, Failed, session_of};
use skep_client::{OpenHow, Port, Waiting};
use skep_types::Errno;
use skep_wire::meta::{LockKind, LockSpace, LockWish, OpenMode};
use std::rc::Rc;

/// Pause before a keeper looks again for waiting programs.
const LOOK_MS: u64 = 30;
/// How often a lane takes the same lock in a row.
const IN_A_ROW_PERCENT: u64 = 30;
/// How often it wants all of one file and then all of the other: two that begin with different ones wait in a circle.
const BOTH_PERCENT: u64 = 25;
/// At most so many times.
const ROUNDS_MAX: u64 = 30;
/// It is held for less than this.
const HELD_MAX_MS: u64 = 8;
/// Added to an owner's number: a process that takes no locks.
const OTHER_OWNER: u64 = 1_000;
/// Ranges that are locked.
const RANGES: [(u64, u64); 4] = [(0, 9), (5, 14), (10, 10), (0, u64::MAX)];

/// Does, for ever, what is to be done for the client's waiting locks beside hearing what became of them. Also tells metad of
/// open files that have ended, late, as a kernel does.
pub async fn keep_locks(hub: HubRef, lane: Rc<SimLane>, shared: SharedRef, id: LaneId) {
    loop {
        let late = hub.borrow_mut().fields.take_closed(id.life);
        for handle in late {
            lane.release(handle).await;
        }
        let nodes = shared.borrow().nodes_with_waits();
        for node in nodes {
            let (ended, _) = lane.tend_waits(node).await;
            tell(&hub, id, ended);
        }
        let ended = shared.borrow_mut().locks.take_ended();
        tell(&hub, id, ended);
        lane.port().pause(LOOK_MS).await;
    }
}

fn tell(hub: &HubRef, id: LaneId, ended: Vec<skep_client::state::Ended>) {
    let hub = &mut *hub.borrow_mut();
    hub.fields.ended.extend(ended.into_iter().map(|ended| ((id.life, ended.ticket), ended.result)));
}

impl Actor {
    /// Takes a lock, holds it for a while, perhaps takes another one meanwhile, and gives them up.
    pub(crate) async fn lock_something(&self) -> Result<(), Failed> {
        let file = self.hub.borrow_mut().rng.below(2) as usize;
        let Some(handle) = self.open_locked(file).await else { return Ok(()) };
        if self.hub.borrow_mut().rng.percent(IN_A_ROW_PERCENT) {
            let taken = self.lock_in_a_row(file, handle).await;
            self.give_up(file, handle).await;
            return taken;
        }
        let both = self.hub.borrow_mut().rng.percent(BOTH_PERCENT);
        let draw = || if both { (self.all_of(LockSpace::Range), true) } else { self.draw_wish() };
        let wish = draw();
        let taken = self.take(file, handle, wish).await;
        if matches!(taken, Ok(true)) {
            let (ms, second, beside) = {
                let rng = &mut self.hub.borrow_mut().rng;
                let beside = if !both && rng.percent(30) { file } else { 1 - file };
                (rng.below(150), both || rng.percent(50), beside)
            };
            let also = draw();
            // Circles are looked for among ranges only.
            let finite = [wish, also].iter().all(|wish| wish.0.space == LockSpace::Range) || !also.1;
            self.lane.port().pause(ms).await;
            if second
                && finite
                && let Some(other) = self.open_locked(beside).await
            {
                let also = self.take(beside, other, also).await;
                self.give_up(beside, other).await;
                also?;
            }
        }
        self.give_up(file, handle).await;
        taken.map(drop)
    }

    /// Takes the same lock again and again, as a program with a counter in a file does: so it waits anew while the
    /// mount is still busy with the wish before. In between it opens and closes another descriptor.
    async fn lock_in_a_row(&self, file: usize, handle: u64) -> Result<(), Failed> {
        let (rounds, space, beside) = {
            let rng = &mut self.hub.borrow_mut().rng;
            let space = if rng.percent(50) { LockSpace::Whole } else { LockSpace::Range };
            (rng.below(ROUNDS_MAX), space, rng.percent(50))
        };
        let wish = self.all_of(space);
        let (owner, all) = (wish.owner, LockWish { kind: None, ..wish });
        for _ in 0..rounds {
            if !self.take(file, handle, (wish, true)).await? {
                return Ok(());
            }
            if beside && let Some(other) = self.open_locked(file).await {
                // Of another process: a close of the owner would give up its record locks.
                let _ = self.lane.flush(other, owner + OTHER_OWNER).await;
                self.lane.release(other).await;
            }
            let ms = self.hub.borrow_mut().rng.below(HELD_MAX_MS);
            self.lane.port().pause(ms).await;
            self.gives_up_now(file);
            if self.lane.set_lock(handle, all).await.is_err() {
                return Ok(());
            }
        }
        self.hub.borrow_mut().coverage.hit("a lock was taken many times in a row");
        Ok(())
    }

    /// Nobody else may hold any of it.
    fn all_of(&self, space: LockSpace) -> LockWish {
        let (owner, kind) = (u64::from(self.id.lane) + 1, Some(LockKind::Write));
        LockWish { owner, pid: self.id.lane, space, kind, start: 0, last: u64::MAX }
    }

    /// Before the server is told: from then on others may hold it.
    fn gives_up_now(&self, file: usize) {
        let hub = &mut *self.hub.borrow_mut();
        if hub.fields.gives_up(self.id, file) {
            hub.coverage.hit("a lock outlived metad");
        }
    }

    async fn open_locked(&self, file: usize) -> Option<u64> {
        self.wait_while_dead().await;
        let ino = *self.hub.borrow().fields.locked.get(file)?;
        self.hub.borrow_mut().at_step.insert(self.id, 0);
        let how = OpenHow { mode: OpenMode::ReadWrite, truncate: false, sync: false, kill_suidgid: false };
        self.lane.open(ino, how).await.ok().map(|opened| opened.handle)
    }

    fn draw_wish(&self) -> (LockWish, bool) {
        let hub = &mut *self.hub.borrow_mut();
        let whole = hub.rng.percent(25);
        let range = if whole { (0, u64::MAX) } else { hub.rng.pick(&RANGES) };
        let kind = if hub.rng.percent(60) { LockKind::Write } else { LockKind::Read };
        let space = if whole { LockSpace::Whole } else { LockSpace::Range };
        let owner = u64::from(self.id.lane) + 1;
        let wish =
            LockWish { owner, pid: self.id.lane, space, kind: Some(kind), start: range.0, last: range.1 };
        (wish, hub.rng.percent(70))
    }

    /// `true`: it is held.
    async fn take(&self, file: usize, handle: u64, (wish, waits): (LockWish, bool)) -> Result<bool, Failed> {
        let session = session_of(&self.shared);
        {
            let hub = &mut *self.hub.borrow_mut();
            hub.say(format_args!("{} wants {wish:?} of lock file {file}, waits: {waits}", self.id));
            hub.fields.asks(self.id, file, wish.space == LockSpace::Whole, (wish.start, wish.last));
        }
        let told = match waits {
            false => self.lane.set_lock(handle, wish).await,
            true => match self.lane.wait_for_lock(handle, wish).await {
                Ok(Waiting::Done) => Ok(()),
                Ok(Waiting::Ticket(ticket)) => {
                    // Who hears recalls is told of that, too.
                    self.hub.borrow_mut().ring(self.id.life);
                    self.stand_in_line(ticket).await
                }
                Err(errno) => Err(errno),
            },
        };
        let hub = &mut *self.hub.borrow_mut();
        hub.say(format_args!("{} is told {told:?} of its lock", self.id));
        let same = session.filter(|_| session_of(&self.shared) == session);
        let Some(client) = same else { return Ok(false) };
        match told {
            Ok(()) => {}
            Err(Errno::EDEADLK) => {
                hub.coverage.hit("a deadlock was found");
                return Ok(false);
            }
            Err(Errno::EAGAIN) if !waits => return Ok(false),
            // The file of a shard that a power cut took, a session that ends at this moment.
            Err(Errno::EINTR | Errno::EIO | Errno::ENOTCONN | Errno::ESTALE) => return Ok(false),
            Err(errno) => {
                hub.fail(format!("{}: {wish:?} gives {errno}", self.id));
                return Err(Failed);
            }
        }
        let holder = Holder {
            file,
            whole: wish.space == LockSpace::Whole,
            lane: self.id,
            client,
            exclusive: wish.kind == Some(LockKind::Write),
            range: (wish.start, wish.last),
            metad_lives: hub.fields.metad_lives,
        };
        match hub.fields.holds(holder) {
            Ok(()) => Ok(true),
            Err(what) => {
                hub.fail(format!("two hold a lock: {what}"));
                Err(Failed)
            }
        }
    }

    /// Until its turn comes, or its patience ends.
    async fn stand_in_line(&self, ticket: u64) -> Result<(), Errno> {
        let mut patience = {
            let hub = &mut *self.hub.borrow_mut();
            hub.coverage.hit("a lock was waited for");
            hub.rng.percent(20).then(|| hub.now + hub.rng.below(400))
        };
        loop {
            if let Some(result) = self.hub.borrow_mut().fields.ended.remove(&(self.id.life, ticket)) {
                return result;
            }
            let now = self.hub.borrow().now;
            if patience.is_some_and(|until| until <= now) {
                patience = None;
                self.hub.borrow_mut().coverage.hit("a waiting lock was taken back");
                if let Some(ended) = self.lane.cancel_lock(ticket).await {
                    return ended.result;
                }
            }
            self.lane.port().pause(10).await;
        }
    }

    async fn give_up(&self, file: usize, handle: u64) {
        self.gives_up_now(file);
        let (by_unlock, late) = {
            let rng = &mut self.hub.borrow_mut().rng;
            (rng.percent(50), rng.percent(50))
        };
        let owner = u64::from(self.id.lane) + 1;
        if by_unlock {
            for space in [LockSpace::Range, LockSpace::Whole] {
                let wish = LockWish { owner, pid: 0, space, kind: None, start: 0, last: u64::MAX };
                // What is not confirmed the close repeats, and housekeeping after it.
                let _ = self.lane.set_lock(handle, wish).await;
            }
        }
        let _ = self.lane.flush(handle, owner).await;
        if late {
            // The program goes on, and its next open file has the same number.
            let hub = &mut *self.hub.borrow_mut();
            hub.coverage.hit("a lock file was closed late");
            hub.fields.closes_late(self.id.life, handle);
            return;
        }
        self.lane.release(handle).await;
    }
}
