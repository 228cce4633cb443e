//! When all programs have ended: a mount that holds something and asks for nothing, while the term of the shard that it
//! holds it on ends alone, or the shard goes to another server. It must hear of that by itself, and tell the shard again,
//! before the grace period is over: nobody may get what it holds.

use super::{LANES, SHARDS, World};
use crate::drive::SimLane;
use crate::hub::{HubRef, LaneId};
use crate::metad::GRACE_MS;
use crate::queue::Event;
use skep_client::{CreateHow, OpenHow, Port, Waiting, WriteHow};
use skep_types::{Errno, Ino, NodeId, ShardId, Term};
use skep_wire::meta::{LockKind, LockSpace, LockWish, OpenMode};
use std::cell::RefCell;
use std::rc::Rc;

const BOTH: OpenHow =
    OpenHow { mode: OpenMode::ReadWrite, truncate: false, sync: false, kill_suidgid: false };
const NAME: &[u8] = b"held by an idle mount";
const OTHER: &[u8] = b"held by another mount";
/// What the file holds.
const CONTENT: [u8; 100] = [0x5a; 100];
/// Who takes locks here: no lane of a client has this number.
const OWNER: u64 = 77;
/// Pause between two looks, in milliseconds.
pub(super) const LOOK_MS: u64 = 100;
/// Longest pause before the next thing befalls the shard: some come while the mount still tells what it holds.
const STRIKE_MAX_MS: u64 = 1_500;
/// The most that befalls it.
const STRIKES_MAX: u64 = 2;

/// How far it has come.
#[derive(Debug)]
pub struct Idle {
    /// Where the mount holds its file.
    shard: ShardId,
    /// The mount, and the one that would have what it holds.
    life: u32,
    /// The file, once it is open and locked.
    held: Option<Ino>,
    /// The other one was refused, as it must be.
    refused: u32,
    /// What is to befall the shard still, and when the next.
    strikes: u64,
    strike_at: u64,
    /// The term in which the shard is, and since when.
    term: (Term, u64),
    /// The shard has heard all that the mount holds, in its last term.
    settled: bool,
    over: bool,
}

type IdleRef = Rc<RefCell<Idle>>;

/// What one of the two mounts does it with.
struct Program {
    hub: HubRef,
    lane: Rc<SimLane>,
    id: LaneId,
    idle: IdleRef,
    /// A directory on the shard, and one on some shard.
    dirs: (Ino, Ino),
    /// The idle mount waits for a lock that the other one has, on the other shard: it listens to that server all the time.
    waits: bool,
    other: Rc<RefCell<Option<Ino>>>,
}

impl World {
    /// Two of the mounts begin.
    pub(super) fn begin_idle(&mut self) -> IdleRef {
        let seats = self.seats.len() as u64;
        let (first, second) = (self.draw(seats), 1 + self.draw(seats - 1));
        let lives = [first, (first + second) % seats].map(|seat| self.seats[seat as usize].life);
        let shards =
            [self.draw(u64::from(SHARDS)), self.draw(u64::from(SHARDS))].map(|shard| ShardId(shard as u16));
        let strikes = 1 + self.draw(STRIKES_MAX);
        let waits = self.draw(2) == 0;
        let roots: Vec<Ino> =
            self.seats.iter().flat_map(|seat| &seat.books).filter_map(|book| book.borrow().root).collect();
        let dir = |shard| roots.iter().copied().find(|root| root.shard() == shard).unwrap_or(Ino::ROOT);
        let dirs = (dir(shards[0]), dir(shards[1]));
        let idle = Rc::new(RefCell::new(Idle {
            shard: dirs.0.shard(),
            life: lives[0],
            held: None,
            refused: 0,
            strikes,
            strike_at: 0,
            term: (Term(0), 0),
            settled: false,
            over: false,
        }));
        let other = Rc::new(RefCell::new(None));
        for (at, life) in lives.into_iter().enumerate() {
            let shared = self.seats.iter().find(|seat| seat.life == life).map(|seat| seat.shared.clone());
            let Some(shared) = shared else { continue };
            let (id, lane) = self.lane(life, LANES + 1, &shared);
            let (hub, idle, other) = (self.hub.clone(), idle.clone(), other.clone());
            let program = Program { hub: hub.clone(), lane, id, idle, dirs, waits, other };
            self.spawn(id, async move {
                let done = if at == 0 { program.hold().await } else { program.want().await };
                if let Err(what) = done {
                    hub.borrow_mut().fail(format!("{id}, when all is calm: {what}"));
                }
            });
        }
        self.after(LOOK_MS, Event::Look);
        idle
    }

    /// Lets something befall the shard, when it is time, and looks whether it has heard what is held. `true`: it is over.
    pub(super) fn watch_idle(&mut self, idle: &IdleRef) -> bool {
        let idle = &mut *idle.borrow_mut();
        let now = self.now();
        if idle.held.is_none() || idle.refused == 0 {
            idle.strike_at = now + self.draw(STRIKE_MAX_MS);
        } else if idle.strikes > 0 {
            if now >= idle.strike_at && self.befalls(idle.shard) {
                idle.strikes -= 1;
                idle.strike_at = now + self.draw(STRIKE_MAX_MS);
            }
        } else if !idle.settled {
            idle.settled = self.has_heard(idle);
        }
        if idle.over {
            self.hub.borrow_mut().coverage.hit("an idle mount told again what it holds");
        }
        idle.over
    }

    /// The term of a shard ends, or the shard is given to another server. `false`: not now.
    fn befalls(&mut self, shard: ShardId) -> bool {
        if self.draw(2) == 0 {
            let node = self.some_metad();
            let hub = self.hub.clone();
            self.may_give() && self.mgmtd.give_shard(shard, node, &mut hub.borrow_mut())
        } else {
            let leader = self.serving(shard);
            leader.is_some_and(|node| self.end_term_of(node, shard))
        }
    }

    /// The server on which a term of the shard is under way.
    fn serving(&self, shard: ShardId) -> Option<NodeId> {
        let serves =
            |metad: &&crate::metad::Metad| metad.server().is_some_and(|server| server.has_term(shard));
        self.metads.iter().find(serves).map(|metad| metad.node)
    }

    /// Does the shard know all that the mount holds? A grace period after it began its term it must.
    fn has_heard(&mut self, idle: &mut Idle) -> bool {
        let Some(at) = self.serving(idle.shard).and_then(|node| self.metad_at(node)) else { return false };
        let Some(server) = self.metads[at].server() else { return false };
        let Some(term) = server.standing(idle.shard).map(|stamp| stamp.term) else { return false };
        let late = server.late_clients();
        let now = self.now();
        if idle.term.0 != term {
            idle.term = (term, now);
        }
        let Some(seat) = self.seats.iter().find(|seat| seat.life == idle.life) else { return false };
        let told = seat.shared.borrow().shards.told(idle.shard);
        let client = seat.shared.borrow().session.open().map(|session| session.client);
        let is_late = client.is_some_and(|client| late.contains(&client));
        if is_late || (told != Some(term) && now > idle.term.1 + GRACE_MS) {
            let what = format!(
                "an idle mount (life {}) has not told shard {} what it holds, {} ms after term {term} began; it told it \
                 in {told:?}",
                idle.life,
                idle.shard,
                now - idle.term.1
            );
            self.hub.borrow_mut().fail(what);
        }
        told == Some(term) && !is_late
    }
}

impl Program {
    fn wish(&self, kind: Option<LockKind>) -> LockWish {
        LockWish { owner: OWNER, pid: self.id.lane, space: LockSpace::Range, kind, start: 0, last: 9 }
    }

    async fn make(&self, dir: Ino, name: &[u8]) -> Result<(u64, Ino), String> {
        let how = CreateHow { mode: 0o644, umask: 0, uid: 0, gid: 0, exclusive: true, policy: None };
        let opened =
            self.lane.create(dir, name, how, BOTH).await.map_err(|errno| format!("create: {errno}"))?;
        let written = self.lane.write(opened.handle, 0, &CONTENT, WriteHow::default()).await;
        written.map_err(|errno| format!("write: {errno}"))?;
        let locked = self.lane.set_lock(opened.handle, self.wish(Some(LockKind::Write))).await;
        locked.map_err(|errno| format!("lock of a new file: {errno}"))?;
        Ok((opened.handle, opened.attr.ino))
    }

    async fn until(&self, is_so: impl Fn(&Idle) -> bool) {
        while !is_so(&self.idle.borrow()) {
            self.lane.port().pause(10).await;
        }
    }

    /// Has a file open and locked, and does nothing.
    async fn hold(&self) -> Result<(), String> {
        let (handle, ino) = self.make(self.dirs.0, NAME).await?;
        let mut awaited = None;
        if self.waits {
            let other = loop {
                let other = *self.other.borrow();
                match other {
                    Some(ino) => break ino,
                    None => self.lane.port().pause(10).await,
                }
            };
            let opened = self.lane.open(other, BOTH).await.map_err(|errno| format!("open: {errno}"))?;
            match self.lane.wait_for_lock(opened.handle, self.wish(Some(LockKind::Write))).await {
                Ok(Waiting::Ticket(ticket)) => {
                    self.hub.borrow_mut().ring(self.id.life);
                    awaited = Some((opened.handle, ticket));
                }
                told => return Err(format!("a lock that another mount holds: {told:?}")),
            }
        }
        self.idle.borrow_mut().held = Some(ino);
        self.until(|idle| idle.settled && idle.refused == 2).await;
        let given =
            |(_, ticket): (u64, u64)| self.hub.borrow().fields.ended.get(&(self.id.life, ticket)).copied();
        if let Some(told) = awaited.and_then(given) {
            return Err(format!("{told:?} for a lock that another mount holds all the time"));
        }
        let found = crate::drive::read(&self.lane, handle, 0, CONTENT.len() + 1).await;
        if found.as_deref() != Ok(&CONTENT[..]) {
            return Err(format!("a file that was held open all the time is read as {found:?}"));
        }
        let given_up = self.lane.set_lock(handle, self.wish(None)).await;
        given_up.map_err(|errno| format!("a lock that was held all the time is given up: {errno}"))?;
        self.lane.release(handle).await;
        if let Some((handle, ticket)) = awaited {
            self.served(handle, ticket).await?;
        }
        let gone = self.lane.unlink(self.dirs.0, NAME).await;
        self.idle.borrow_mut().held = None;
        gone.map_err(|errno| format!("unlink: {errno}"))
    }

    /// What it waits for comes: the other mount has given it up.
    async fn served(&self, handle: u64, ticket: u64) -> Result<(), String> {
        *self.other.borrow_mut() = None;
        let told = loop {
            if let Some(told) = self.hub.borrow_mut().fields.ended.remove(&(self.id.life, ticket)) {
                break told;
            }
            self.lane.port().pause(10).await;
        };
        told.map_err(|errno| format!("a lock that another mount has given up: {errno}"))?;
        self.lane.release(handle).await;
        Ok(())
    }

    /// Is refused what the other one holds, before and after, and gets it when it is given up.
    async fn want(&self) -> Result<(), String> {
        let mut own = None;
        if self.waits {
            let (handle, ino) = self.make(self.dirs.1, OTHER).await?;
            own = Some(handle);
            *self.other.borrow_mut() = Some(ino);
        }
        self.until(|idle| idle.held.is_some()).await;
        let held = self.idle.borrow().held.unwrap_or_default();
        for round in 1..=2 {
            self.until(|idle| round == 1 || idle.settled).await;
            let opened = self.lane.open(held, BOTH).await.map_err(|errno| format!("open: {errno}"))?;
            let told = self.lane.set_lock(opened.handle, self.wish(Some(LockKind::Write))).await;
            if told != Err(Errno::EAGAIN) {
                return Err(format!("{told:?} for a lock that an idle mount holds, in round {round}"));
            }
            // Closed before the shard is struck: only the idle mount has something open there.
            self.lane.release(opened.handle).await;
            self.idle.borrow_mut().refused = round;
        }
        if let Some(handle) = own {
            while self.other.borrow().is_some() {
                self.lane.port().pause(10).await;
            }
            let given_up = self.lane.set_lock(handle, self.wish(None)).await;
            given_up.map_err(|errno| format!("a lock is given up: {errno}"))?;
            self.lane.release(handle).await;
            let gone = self.lane.unlink(self.dirs.1, OTHER).await;
            gone.map_err(|errno| format!("unlink: {errno}"))?;
        }
        self.until(|idle| idle.held.is_none()).await;
        self.idle.borrow_mut().over = true;
        Ok(())
    }
}
