//! What runs in a lane: a history of operations, each compared with the oracle; after every mishap
//! that took something, the honest reckoning of what is left.

use crate::book::{Book, StepId};
use crate::deeds::Deed;
use crate::drive::{Driver, SimLane};
use crate::hub::{Cut, HubRef, LaneId};
use crate::port::SharedRef;
use crate::reckon::Cause;
use crate::turns::{HELD, Kept};
use crate::verify::{Loose, verify};
use skep_client::Port;
use skep_client::state::{Mounting, SessionState};
use skep_model::{At, Handle, Op, Outcome, SETID};
use skep_types::limits::CHUNK_MIN;
use skep_types::{ClientId, Errno, Ino, ShardId};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

/// Deeds after the end of chaos.
const CALM_DEEDS: u64 = 8;
/// Programs interrupted, of a thousand operations.
const INTERRUPTED: u64 = 15;
/// How long an attach may take, in milliseconds.
const PATIENCE_MS: u64 = 300_000;
/// Between two looks at the end for a new session.
const END_LOOK_MS: u64 = 50;

/// A lane's book, shared with the engine.
pub type BookRef = Rc<RefCell<Book>>;

/// The run ends here: the failure is in the hub.
pub struct Failed;

pub struct Actor {
    pub hub: HubRef,
    /// Its way to the cluster.
    pub lane: Rc<SimLane>,
    /// State of its client.
    pub shared: SharedRef,
    /// Which lane.
    pub id: LaneId,
    /// What it did and does.
    pub book: BookRef,
    /// Longest pause between two, in milliseconds.
    pub pause_max: u64,
    /// Shard of its directory.
    pub shard: ShardId,
    /// It goes on where a client that is gone ended.
    pub takes_over: bool,
    /// It makes the directory of all.
    pub makes_shared: bool,
    /// The session in which it did its last step.
    pub session: Cell<Option<ClientId>>,
    /// Its handles of the files that all write, and of the one that they write at once.
    pub kept: RefCell<[Option<Kept>; HELD]>,
}

/// Opens the session of a client.
pub async fn attach(hub: &HubRef, lane: &SimLane, id: LaneId) {
    let mounting = Mounting { host: format!("host{}", id.life), mount: "/mnt".into(), ..Mounting::default() };
    if let Err(refusal) = lane.attach(mounting, PATIENCE_MS).await {
        hub.borrow_mut().fail(format!("{id}: no session after {PATIENCE_MS} ms: {refusal}"));
    }
}

/// Housekeeping, for ever.
pub async fn keep_house(hub: HubRef, lane: Rc<SimLane>, shared: SharedRef, id: LaneId) {
    loop {
        let ms = match session_of(&shared) {
            Some(_) => lane.housekeeping().await,
            None if shared.borrow().session.is_dead() => lane.housekeeping().await,
            None => 20,
        };
        let due = hub.borrow().now + ms.clamp(1, 1_000);
        hub.borrow_mut().timers.push((due, id));
        std::future::poll_fn(|_| {
            let hub = &mut *hub.borrow_mut();
            let now = hub.now >= due || hub.nudged.remove(&id.life);
            if now { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
        })
        .await;
    }
}

/// Makes closed files durable, for ever.
pub async fn keep_synced(lane: Rc<SimLane>) {
    loop {
        let ms = lane.sync_closed().await;
        lane.port().pause(ms).await;
    }
}

pub(crate) fn session_of(shared: &SharedRef) -> Option<ClientId> {
    match &shared.borrow().session {
        SessionState::Open(session) => Some(session.client),
        _ => None,
    }
}

impl Actor {
    /// The whole program.
    pub async fn run(self) {
        // A failure is recorded in the hub, which ends the run.
        let _ = self.story().await;
    }

    async fn story(&self) -> Result<(), Failed> {
        while session_of(&self.shared).is_none() {
            self.lane.port().pause(10).await;
        }
        if self.takes_over {
            self.reckon(Cause { renewed: true, ..Cause::default() }).await?;
            self.hub.borrow_mut().coverage.hit("a new mount took over");
        } else {
            self.make_root().await?;
        }
        let none = self.hub.borrow().shared.dir.is_none();
        if self.makes_shared && none {
            self.make_shared().await;
            self.make_fields().await;
        }
        let mut calm_deeds = 0;
        while calm_deeds < CALM_DEEDS {
            let (pause, calm, deed) = {
                let hub = &mut *self.hub.borrow_mut();
                (hub.rng.below(self.pause_max), hub.calm, hub.deeds.next(&mut hub.rng))
            };
            while self.hub.borrow().lending.rests(self.hub.borrow().now) {
                self.lane.port().pause(20).await;
            }
            calm_deeds += u64::from(calm);
            self.lane.port().pause(if calm { pause / 8 } else { pause }).await;
            if self.hub.borrow_mut().writes_pieces() {
                self.use_pieces().await?;
                continue;
            }
            match deed {
                Deed::Lock => self.lock_something().await?,
                Deed::Append => self.use_log().await?,
                Deed::Page => self.use_pages().await?,
                Deed::Keep => self.keep_something().await?,
                Deed::Turn => self.take_a_turn().await?,
                Deed::Together => self.together().await?,
                Deed::Careful => self.be_careful().await?,
                Deed::Contend => self.contend().await?,
                Deed::Afar => self.go_afar().await?,
                Deed::History => {
                    let op = self.next_op();
                    self.step(op).await?;
                }
            }
        }
        // What was cut off is taken into account by the next step of the lane's own history.
        let last = self.next_op();
        self.step(last).await?;
        self.close_kept().await?;
        self.close_pieces().await;
        self.close_watched().await;
        self.close_all().await?;
        self.close_ledgers().await;
        self.compare_at_the_end().await
    }

    /// The next of the history. Set-id bits that are given to a file whose writer's session has ended may be cleared when
    /// the shard looks after it, which promises tell of: nobody here who may meet such files gives any.
    fn next_op(&self) -> Op {
        self.note_told();
        let op = self.book.borrow_mut().next_op();
        let op = self.with_held().unwrap_or(op);
        let meets = self.takes_over || self.hub.borrow().was_evicted(self.id.life);
        match op {
            Op::Chmod { at, mode } if meets => Op::Chmod { at, mode: mode & !SETID },
            op => op,
        }
    }

    /// The lane's directory, on its shard.
    async fn make_root(&self) -> Result<(), Failed> {
        let name = self.book.borrow().name.clone();
        loop {
            let made = match self.shard {
                ShardId(0) => {
                    let new = skep_client::NewNode {
                        kind: skep_types::Kind::Dir,
                        mode: 0o755,
                        umask: 0,
                        uid: 0,
                        gid: 0,
                        rdev: 0,
                    };
                    self.lane.make_node(Ino::ROOT, name.as_bytes(), new).await.map(|attr| attr.ino)
                }
                shard => {
                    self.hub.borrow_mut().coverage.hit("a directory on another shard");
                    let made = self.lane.make_dir_on(Ino::ROOT, name.as_bytes(), 0o755, (0, 0), shard).await;
                    made.map(|entry| entry.ino)
                }
            };
            // An administrator's command has no lane: a repetition after a lost answer finds it there.
            let made = match made {
                Err(Errno::EEXIST) => self.lane.lookup(Ino::ROOT, name.as_bytes()).await.map(|attr| attr.ino),
                made => made,
            };
            match made {
                Ok(ino) => {
                    self.wish(ino).await;
                    // Durable from here on, so that no power cut takes the ground away.
                    let dir = self.lane.opendir(Ino::ROOT);
                    let synced = match dir {
                        Ok(handle) => {
                            let synced = self.lane.fsyncdir(handle).await;
                            self.lane.releasedir(handle);
                            synced
                        }
                        Err(errno) => Err(errno),
                    };
                    let there = self.lane.lookup(Ino::ROOT, name.as_bytes()).await;
                    if synced.is_ok() && there.is_ok_and(|attr| attr.ino == ino) {
                        let mut book = self.book.borrow_mut();
                        book.root = Some(ino);
                        book.seen_cuts = self.hub.borrow().cuts.len();
                        return Ok(());
                    }
                }
                // ENOSPC: where it is to be made the disk is nearly full for a while.
                Err(Errno::EIO | Errno::ENOTCONN | Errno::ENOENT | Errno::ENOSPC) => {}
                Err(errno) => return self.fail(format!("its directory cannot be made: {errno}")),
            }
            self.wait_while_dead().await;
            self.lane.port().pause(50).await;
        }
    }

    /// Every other directory wants its files striped, and little of them in the metadata.
    async fn wish(&self, root: Ino) {
        if self.shard.0 % 2 == 1 {
            let policy = skep_types::Policy {
                pool: skep_types::PoolId(0),
                chunk_size: CHUNK_MIN,
                targets: 3,
                inline_limit: Some(1_000),
            };
            // Lost by a power cut or refused: the files are what they are without.
            let _ = self.lane.set_policy(root, policy).await;
        }
    }

    pub(crate) fn fail<T>(&self, what: String) -> Result<T, Failed> {
        let (name, number) = (self.book.borrow().name.clone(), self.book.borrow().number);
        self.hub.borrow_mut().fail(format!("{} in {name}, step {number}: {what}", self.id));
        Err(Failed)
    }

    pub(crate) async fn wait_while_dead(&self) {
        while session_of(&self.shared).is_none() {
            self.lane.port().pause(100).await;
        }
    }

    /// Steps of this lane that lost a record since last asked.
    pub(crate) fn take_lost(&self) -> BTreeSet<StepId> {
        let (book, hub) = (&mut *self.book.borrow_mut(), &mut *self.hub.borrow_mut());
        let (mine, others): (BTreeSet<_>, _) =
            std::mem::take(&mut hub.lost).into_iter().partition(|step| book.is_mine(*step));
        hub.lost = others;
        book.lost.extend(mine);
        book.lost.clone()
    }

    async fn carry_out(&self, op: &Op) -> Outcome {
        let root = self.book.borrow().root.unwrap_or(Ino::ROOT);
        let mut opens = std::mem::take(&mut self.book.borrow_mut().opens);
        let outcome = Driver { lane: &self.lane, root, opens: &mut opens }.carry_out(op).await;
        self.book.borrow_mut().opens = opens;
        outcome
    }

    /// One operation, and whatever must follow from it.
    async fn step(&self, op: Op) -> Result<(), Failed> {
        self.wait_while_dead().await;
        if self.session.get().is_some_and(|known| Some(known) != session_of(&self.shared)) {
            self.reckon(Cause { renewed: true, ..Cause::default() }).await?;
        }
        let session = session_of(&self.shared);
        let number = self.book.borrow_mut().begin(self.id, op);
        {
            let mut hub = self.hub.borrow_mut();
            hub.at_step.insert(self.id, number);
            hub.say(format_args!("{} {} step {number}: {op:?}", self.book.borrow().name, self.id));
            if !hub.calm && hub.permille(INTERRUPTED) {
                let at = hub.now + hub.rng.below(25);
                hub.cancelled.insert(self.id, at);
                hub.timers.push((at, self.id));
            }
        }
        let outcome = self.carry_out(&op).await;
        let interrupted = {
            let mut hub = self.hub.borrow_mut();
            hub.say(format_args!("{} {} step {number}: {outcome:?}", self.book.borrow().name, self.id));
            let given_up = hub.cancelled.remove(&self.id).is_some_and(|at| at <= hub.now);
            // A write that is given up half-way tells how far it came.
            given_up && matches!(outcome, Outcome::Failed(Errno::EINTR) | Outcome::Written(_))
        };
        if let Some(now) = &mut self.book.borrow_mut().now {
            now.outcome = Some(outcome.clone());
        }
        if interrupted {
            self.hub.borrow_mut().coverage.hit("an operation was interrupted");
        }
        let renewed = session_of(&self.shared) != session;
        self.session.set(session);
        let cause = Cause { interrupted, renewed };
        if interrupted || renewed || self.something_was_cut(&op) {
            return self.reckon(cause).await;
        }
        self.judge(&op, &outcome)
    }

    /// Did a power cut take anything of this lane, or may it have?
    fn something_was_cut(&self, op: &Op) -> bool {
        let (book, hub) = (self.book.borrow(), self.hub.borrow());
        let now_lost = book.now.as_ref().is_some_and(|now| hub.lost.contains(&now.step.id));
        let storaged = hub.cuts[book.seen_cuts..].contains(&Cut::Storaged);
        !self.never_told().is_empty()
            || now_lost
            || book.has_lost(&hub.lost)
            || (storaged && (is_data(op) || book.unsynced().next().is_some()))
    }

    /// Nothing is in doubt: the outcome must be the oracle's.
    fn judge(&self, op: &Op, outcome: &Outcome) -> Result<(), Failed> {
        let expected = match &self.book.borrow().now {
            Some(now) => now.expected.clone(),
            None => return Ok(()),
        };
        let hub_cuts = self.hub.borrow().cuts.len();
        self.book.borrow_mut().seen_cuts = hub_cuts;
        if !expected.accepts(outcome) {
            // A loss elsewhere may count for this handle too: an error too many is no lie.
            let excusable = match op {
                Op::Fsync { handle } | Op::Close { handle } if *outcome == Outcome::Failed(Errno::EIO) => {
                    self.may_have_lost(*handle)
                }
                // A client does not pin directories: of a removed one that is open it has the attributes, no others.
                _ => *outcome == Outcome::Failed(Errno::ESTALE) && self.is_removed_dir(op),
            };
            if !excusable {
                self.show_opens();
                return self.fail(format!("{op:?} gives {outcome:?}, should give {expected:?}"));
            }
            self.book.borrow_mut().ended();
            self.note_held(op);
            return Ok(());
        }
        self.book.borrow_mut().ended();
        self.note_held(op);
        match op {
            Op::Fsync { handle } if expected == Outcome::Done => self.promised(*handle),
            _ => {}
        }
        Ok(())
    }

    /// What the client holds of its open files, for the trace of a failure.
    fn show_opens(&self) {
        for (handle, open) in &self.book.borrow().opens {
            let inode = format!("{:?}", self.shared.borrow().inodes.get(open.ino));
            let short: String = inode.chars().take(1_500).collect();
            self.hub
                .borrow_mut()
                .say(format_args!("{} {handle:?} is inode {}: {short}", self.id, open.ino.0));
        }
    }

    fn is_removed_dir(&self, op: &Op) -> bool {
        let book = self.book.borrow();
        let at = match *op {
            Op::Setxattr { at, .. }
            | Op::Getxattr { at, .. }
            | Op::Listxattr { at }
            | Op::SetAcl { at, .. }
            | Op::GetAcl { at, .. }
            | Op::RemoveAcl { at, .. }
            | Op::Removexattr { at, .. } => at,
            _ => return false,
        };
        let At::Handle(handle) = at else { return false };
        let dir = book.opens.get(&handle).is_some_and(|open| open.dir);
        let stat = book.fs.handle(handle).and_then(|(ino, _)| book.fs.stat(ino));
        dir && stat.is_ok_and(|stat| stat.nlink == 0)
    }

    pub(crate) fn may_have_lost(&self, handle: Handle) -> bool {
        let synced = self.book.borrow().ino_of(handle).is_none();
        synced || !self.hub.borrow().cuts.is_empty()
    }

    /// An fsync was answered: from now on no power cut may take what it covered.
    fn promised(&self, handle: Handle) {
        let mut book = self.book.borrow_mut();
        let Some(ino) = book.ino_of(handle) else { return };
        book.synced(ino);
        book.synced_at.insert(ino, self.hub.borrow().cuts.len());
        let told = self.told_at(&book, ino);
        let mut hub = self.hub.borrow_mut();
        let steps = book.steps_of(ino).filter_map(|step| hub.indices.get(&step));
        let places = steps.flatten().map(|(metad, index)| (*metad, *index));
        let told = told.into_iter().map(|place| (place.metad, place.index));
        let places: Vec<(usize, u64)> = places.chain(told).collect();
        for (metad, index) in places {
            let promised = hub.promised.entry(metad).or_default();
            if index > promised.0 {
                *promised = (index, format!("{}: fsync of step {}", book.name, book.number));
            }
        }
    }

    async fn close_all(&self) -> Result<(), Failed> {
        loop {
            let next = self.book.borrow().opens.keys().next().copied();
            match next {
                Some(handle) => self.step(Op::Close { handle }).await?,
                None => return Ok(()),
            }
        }
    }

    /// All is calm: the directory is exactly what the oracle says.
    async fn compare_at_the_end(&self) -> Result<(), Failed> {
        loop {
            self.wait_while_dead().await;
            let session = session_of(&self.shared);
            let (root, fs) = {
                let book = self.book.borrow();
                (book.root.unwrap_or(Ino::ROOT), book.fs.clone())
            };
            let found = verify(&self.lane, root, &fs, &Loose::default()).await;
            let is_same = session_of(&self.shared) == session;
            let lives = session.is_some_and(|client| self.hub.borrow().fields.living.contains(&client));
            match found {
                Ok(_) if lives => break,
                Err(what) if lives && is_same => return self.fail(format!("at the end: {what}")),
                _ => {}
            }
            // Ended during chaos: the mount notices only now, and the shard may have looked after its files, or does later.
            while session_of(&self.shared) == session {
                self.lane.port().pause(END_LOOK_MS).await;
            }
            self.reckon(Cause { renewed: true, ..Cause::default() }).await?;
        }
        self.book.borrow_mut().verified = true;
        Ok(())
    }
}

/// Does the outcome, or the effect, depend on chunk files?
pub(crate) fn is_data(op: &Op) -> bool {
    match op {
        Op::Open { how, .. } => how.truncate,
        Op::Read { .. }
        | Op::Write { .. }
        | Op::Punch { .. }
        | Op::Allocate { .. }
        | Op::Zero { .. }
        | Op::Copy { .. }
        | Op::Seek { .. }
        | Op::Truncate { .. }
        | Op::Fsync { .. }
        | Op::Close { .. } => true,
        _ => false,
    }
}
