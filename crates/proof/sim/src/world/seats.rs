//! Clients: their lives, their lanes, and who goes on when one is gone.

use super::held::Untold;
use super::{LANES, SHARDS, World};
use crate::appends::Broken;
use crate::book::Book;
use crate::drive::SimLane;
use crate::hub::{Hub, LaneId, METADS_MAX};
use crate::kernel::Release;
use crate::lending::hear_events;
use crate::locking::keep_locks;
use crate::looking::look_on;
use crate::loss::{Harm, Stored};
use crate::moments::Moment;
use crate::port::{SharedRef, SimPort};
use crate::program::{Actor, BookRef, attach, keep_house, keep_synced};
use crate::queue::Event;
use crate::task::Task;
use crate::telling::keep_telling;
use crate::{Canary, Options};
use skep_client::limits::{
    AHEAD_BYTES_MAX, AHEAD_FIRST, CHANGED_MAX, IDLE_INODES_MS, KEPT_OPENS_MAX, KEPT_OPENS_MS, TOLD_AT_ONCE,
};
use skep_client::{Lane, LeaseCounts, Limits, Shared};
use skep_types::{Ino, Millis, NodeId, ShardId};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

/// A client that was evicted and could not open a new session is replaced after this.
const DEAD_MAX: u64 = 3_000;

/// The lane that looks after waiting locks; one is the witness's.
const KEEPER: usize = LANES + 2;
/// The lane that makes closed files durable.
const SYNCER: usize = LANES + 3;
/// The lane of the program that only looks, which outlives its mount.
pub(super) const LOOKER: usize = LANES + 4;
/// From here on lanes that hear what servers tell, one for each metadata server.
pub const HEARERS: usize = LANES + 5;
/// The lane that tells what is kept of files that are held. (In seeds that have none it does not exist.)
pub const TELLER: usize = HEARERS + METADS_MAX;

/// By server: when the oldest recall went out that is not confirmed, and when that was seen first.
pub type Recalled = BTreeMap<NodeId, (Millis, u64)>;

/// A place for a client, whichever life is in it.
pub struct Seat {
    pub life: u32,
    pub shared: SharedRef,
    /// What its lanes did.
    pub books: Vec<BookRef>,
    /// It is gone, and nobody has taken over.
    pub vacant: bool,
    /// So often its leases had lapsed when somebody looked, ...
    pub lapses: u64,
    /// ... and what else had become of some.
    pub leases: LeaseCounts,
    /// Recalls that are to be confirmed.
    pub recalled: Recalled,
    /// What it holds, or held when somebody looked last, and what of it was to be told then.
    pub held: BTreeMap<Ino, Untold>,
    dead_since: Option<u64>,
}

impl World {
    /// A client comes for the first time.
    pub(super) fn seat_client(&mut self, number: usize) {
        let books = (0..LANES)
            .map(|lane| {
                let seed = self.hub.borrow_mut().rng.next_u64();
                Rc::new(RefCell::new(Book::new(format!("dir{number}{lane}"), seed)))
            })
            .collect();
        let shared = Rc::new(RefCell::new(Shared::new(self.client_limits)));
        self.seats.push(Seat {
            life: 0,
            shared,
            books,
            vacant: true,
            lapses: 0,
            leases: LeaseCounts::default(),
            recalled: Recalled::new(),
            held: BTreeMap::new(),
            dead_since: None,
        });
        self.begin_life(number, false);
    }

    fn begin_life(&mut self, number: usize, takes_over: bool) {
        self.last_client += 1;
        let life = self.last_client;
        let mut limits = self.client_limits;
        {
            let hub = &mut *self.hub.borrow_mut();
            hub.lending.limit_mount(&mut limits, &mut hub.rng);
            limits.old_kernel = hub.hosts.release(Hub::host_of(life)) == Release::Old;
            // Without the locks of directories nothing could tell what is applied later.
            limits.names = hub.locks_dirs && !limits.old_kernel;
            limits.hasty_kernel = hub.hosts.release(Hub::host_of(life)) == Release::Hasty;
        }
        let shared = Rc::new(RefCell::new(Shared::new(limits)));
        let books = {
            let seat = &mut self.seats[number];
            (seat.lapses, seat.leases) = (0, LeaseCounts::default());
            (seat.recalled, seat.held) = (Recalled::new(), BTreeMap::new());
            (seat.life, seat.shared, seat.vacant, seat.dead_since) = (life, shared.clone(), false, None);
            seat.books.clone()
        };
        self.hub.borrow_mut().say(format_args!("client {number} begins life {life}"));
        let slowness = self.hub.borrow().lending.slowness();
        for (at, book) in books.into_iter().enumerate() {
            let (id, lane) = self.lane(life, at, &shared);
            let shard = ShardId(((number * LANES + at) % SHARDS as usize) as u16);
            let actor = Actor {
                hub: self.hub.clone(),
                lane: lane.clone(),
                shared: shared.clone(),
                id,
                makes_shared: number == 0 && at == 0,
                takes_over: takes_over && book.borrow().root.is_some(),
                session: std::cell::Cell::new(None),
                kept: std::cell::RefCell::default(),
                book,
                pause_max: (self.mood.calm_at / self.options.steps.max(1)).max(2) * slowness,
                shard,
            };
            let hub = self.hub.clone();
            self.spawn(id, async move {
                if at == 0 {
                    attach(&hub, &lane, id).await;
                }
                actor.run().await;
            });
        }
        let (id, lane) = self.lane(life, LANES, &shared);
        self.spawn(id, keep_house(self.hub.clone(), lane, shared.clone(), id));
        let (id, lane) = self.lane(life, KEEPER, &shared);
        self.spawn(id, keep_locks(self.hub.clone(), lane, shared.clone(), id));
        let nodes: Vec<_> = self.metads.iter().map(|metad| metad.node).collect();
        for (at, node) in nodes.into_iter().enumerate() {
            let (id, lane) = self.lane(life, HEARERS + at, &shared);
            self.spawn(id, hear_events(self.hub.clone(), lane, shared.clone(), node, id));
        }
        let (id, lane) = self.lane(life, SYNCER, &shared);
        self.spawn(id, keep_synced(lane));
        if limits.holds {
            let (id, lane) = self.lane(life, TELLER, &shared);
            self.spawn(id, keep_telling(self.hub.clone(), lane, id));
        }
        let (id, lane) = self.lane(life, LOOKER, &shared);
        self.spawn(id, look_on(self.hub.clone(), lane, shared, id));
    }

    pub(super) fn lane(&self, life: u32, at: usize, shared: &SharedRef) -> (LaneId, Rc<SimLane>) {
        let id = LaneId { life, lane: at as u32 };
        let (hub, shared_too) = (self.hub.clone(), shared.clone());
        let port = |_| SimPort { hub, lane: id, shared: shared_too, wanted: Cell::default() };
        match Lane::new(shared.clone(), port) {
            Ok(lane) => (id, Rc::new(lane)),
            // Slots number 256, a client here takes seven.
            Err(errno) => unreachable!("no slot for {id}: {errno}"),
        }
    }

    pub(super) fn spawn(&mut self, id: LaneId, future: impl Future<Output = ()> + 'static) {
        self.tasks.insert(id, Task::new(future));
        self.after(0, Event::Wake(id));
    }

    /// A client that compares all directories, beside its other lanes.
    pub(super) fn spawn_witness(&mut self, number: usize, crossed: &Rc<RefCell<usize>>) {
        let (life, shared) = (self.seats[number].life, self.seats[number].shared.clone());
        let (id, lane) = self.lane(life, LANES + 1, &shared);
        let books: Vec<BookRef> = self.seats.iter().flat_map(|seat| seat.books.clone()).collect();
        let (hub, crossed) = (self.hub.clone(), crossed.clone());
        self.spawn(id, async move {
            for book in books {
                let (name, root, fs) = {
                    let book = book.borrow();
                    (book.name.clone(), book.root.unwrap_or_default(), book.fs.clone())
                };
                let loose = crate::verify::Loose::default();
                if let Err(what) = crate::verify::verify(&lane, root, &fs, &loose).await {
                    hub.borrow_mut().fail(format!("{id} sees another {name}: {what}"));
                }
            }
            let logs: Vec<_> = hub.borrow().fields.logs.iter().map(|log| log.ino).collect();
            for (log, ino) in logs.into_iter().enumerate() {
                match crate::appends::check_log(&hub, &lane, log, ino).await {
                    Ok(()) => {}
                    Err(Broken::Unread(errno)) => {
                        hub.borrow_mut().fail(format!("{id} cannot read log {log}: {errno}"));
                    }
                    Err(Broken::Told(what)) => hub.borrow_mut().fail(format!("{id} sees at the end: {what}")),
                }
            }
            let kept = hub.borrow().kept.files.len();
            for at in 0..kept {
                match crate::keeping::check_kept(&hub, &lane, at).await {
                    Ok(()) => {}
                    Err(None) => hub.borrow_mut().fail(format!("{id} cannot read kept file {at}")),
                    Err(Some(what)) => hub.borrow_mut().fail(format!("{id} sees at the end: {what}")),
                }
            }
            crate::turns::check_ledgers(&hub, &lane, id).await;
            crate::rivals::check_contest(&hub, &lane, id).await;
            if let Err(what) = compare_shared(&hub, &lane).await {
                hub.borrow_mut().fail(format!("{id} sees another directory of all: {what}"));
            }
            *crossed.borrow_mut() += 1;
        });
    }

    /// A client that reads files of which some were harmed.
    pub(super) fn spawn_inspector(
        &mut self,
        files: Vec<(Stored, Option<Harm>)>,
        crossed: &Rc<RefCell<usize>>,
    ) {
        let (life, shared) = (self.seats[0].life, self.seats[0].shared.clone());
        let (id, lane) = self.lane(life, LANES + 3, &shared);
        let (hub, crossed) = (self.hub.clone(), crossed.clone());
        self.spawn(id, async move {
            for (file, harm) in files {
                if let Err(what) = file.check(&lane, harm).await {
                    hub.borrow_mut().fail(what);
                }
            }
            *crossed.borrow_mut() += 1;
        });
    }

    /// One of the lives in the seats.
    pub(super) fn some_life(&mut self) -> u32 {
        let at = self.hub.borrow_mut().rng.below(self.seats.len() as u64) as usize;
        self.seats[at].life
    }

    /// A mount is killed.
    pub(super) fn kill_a_client(&mut self) {
        let at = self.hub.borrow_mut().rng.below(self.seats.len() as u64) as usize;
        self.hub.borrow_mut().coverage.hit("a client was killed");
        self.end_life(at);
    }

    /// The mount that a program would have killed.
    pub(super) fn kill_asked(&mut self) {
        let Some(life) = self.hub.borrow_mut().pieces.kills.take() else { return };
        if let Some(at) = self.seats.iter().position(|seat| seat.life == life && !seat.vacant) {
            self.hub.borrow_mut().coverage.hit("a client was killed");
            self.end_life(at);
        }
    }

    fn end_life(&mut self, at: usize) {
        let seat = &mut self.seats[at];
        if seat.vacant {
            return;
        }
        seat.vacant = true;
        let life = seat.life;
        for book in &seat.books {
            // Borrowed by the future only while it is polled.
            book.borrow_mut().taken_over();
        }
        self.hub.borrow_mut().say(format_args!("the client in life {life} is gone"));
        self.hub.borrow_mut().stopped.remove(&life);
        self.mount_is_gone(at);
        self.leave_the_kernel(life);
        self.network.remove_client(life, &mut self.hub.borrow_mut(), &mut self.queue);
        {
            let hub = &mut *self.hub.borrow_mut();
            hub.fields.client_gone(life);
            hub.pieces.client_gone(life);
            hub.watches.client_gone(life);
        }
        self.after(500, Event::TakeOver(at));
    }

    /// A new mount comes, once the cluster has done with the old one.
    pub(super) fn take_over(&mut self, at: usize) {
        let life = self.seats[at].life;
        let host = format!("host{life}");
        let known = self.mgmtd.state().sessions.values().any(|session| session.host == host);
        let epoch = self.mgmtd.state().epoch;
        let behind = self.metads.iter().any(|metad| self.epoch_of(metad.node) != epoch);
        if known || behind || self.mgmtd.is_a_copy() || self.network.has_flights_of(life) {
            return self.after(200, Event::TakeOver(at));
        }
        self.begin_life(at, true);
    }

    /// Clients that were evicted and cannot go on are replaced.
    pub(super) fn bury_the_dead(&mut self) {
        let now = self.now();
        for at in 0..self.seats.len() {
            let seat = &mut self.seats[at];
            if seat.vacant || !seat.shared.borrow().session.is_dead() {
                seat.dead_since = None;
                continue;
            }
            let since = *seat.dead_since.get_or_insert(now);
            if now > since + DEAD_MAX {
                self.end_life(at);
            }
        }
    }

    /// Who has not finished, for the failure's text.
    pub(super) fn unfinished(&mut self) -> String {
        let open = |seat: &Seat| {
            let waiting = seat.books.iter().filter(|book| !book.borrow().verified);
            let text = |book: &BookRef| {
                let book = book.borrow();
                let op = book.now.as_ref().map(|now| format!("{:?}", now.op)).unwrap_or_default();
                format!("{} at step {} {op}", book.name, book.number)
            };
            waiting.map(text).collect::<Vec<_>>()
        };
        let list: Vec<String> = self.seats.iter().flat_map(open).collect();
        format!("{}; {}", list.join(", "), self.leftovers())
    }

    /// Every lane has compared its directory.
    pub(super) fn all_verified(&self) -> bool {
        self.seats.iter().all(|seat| !seat.vacant && seat.books.iter().all(|book| book.borrow().verified))
    }
}

/// For so long opens that nobody needs are kept in some seeds, and what is known of files that nobody has open.
const KEPT_BRIEFLY_MS: u64 = 300;

/// What holds for every client of this seed.
pub(super) fn client_limits(seed: u64, options: &Options) -> Limits {
    let (is_reopened, canary) = (Moment::draw(seed, options.canary) == Some(Moment::Reopened), options.bug());
    Limits {
        // So small in half the seeds that what a client opens, locks and closes is told in several parts.
        told_at_once: if seed & 2 == 0 { TOLD_AT_ONCE } else { 1 + (seed >> 2) as usize % 3 },
        canary_keeps_layout: canary == Some(Canary::KeepsLayout),
        canary_keeps_beliefs: canary == Some(Canary::ZeroForDead),
        // Few in half of the seeds, and for a short time in a quarter.
        kept_max: if seed & 32 == 0 || is_reopened { KEPT_OPENS_MAX } else { (seed >> 6) as usize % 3 },
        kept_ms: if seed & 768 == 0 || is_reopened { KEPT_BRIEFLY_MS } else { KEPT_OPENS_MS },
        // Briefly in another quarter: what a mount knows of a file goes while its server, or the mount, is in trouble.
        idle_ms: if seed & 5 == 5 { KEPT_BRIEFLY_MS } else { IDLE_INODES_MS },
        canary_erases_opens: canary == Some(Canary::ErasesLeasedOpen),
        // Small in a quarter of them: the shard is to sync now and then before more is changed.
        changed_max: if seed & 24 == 0 { 6 } else { CHANGED_MAX },
        canary_forgets_touched: canary == Some(Canary::ForgetsTouched),
        canary_tells_the_first: canary == Some(Canary::TellsTheFirst),
        canary_opens_behind_losses: canary == Some(Canary::OpensBehindLosses),
        canary_forgets_recalls: canary == Some(Canary::RecallOvertakesGrant),
        canary_counts_from_answers: canary == Some(Canary::KeepsLeaseOverTerm),
        canary_ignores_ended: canary == Some(Canary::RenewsForAShardThatLeft),
        canary_keeps_complete: canary == Some(Canary::AbsentNameUncovered),
        canary_installs_late: canary == Some(Canary::InstallsAfterConfirm),
        canary_forgets_doubts: canary == Some(Canary::GivenUpCreate),
        canary_revives: canary == Some(Canary::RevivedByLateAnswer),
        canary_confirms_first: canary == Some(Canary::AcksRecallBeforeInval),
        canary_forgets_told_names: canary == Some(Canary::ForgetsToldNames),
        // No more than one handle reads ahead in half of them.
        ahead_bytes: if seed & 1024 == 0 { AHEAD_BYTES_MAX } else { AHEAD_FIRST },
        canary_reads_cuts_as_holes: canary == Some(Canary::CutReadAsHole),
        canary_keeps_ahead: canary == Some(Canary::ReadsOldAhead),
        canary_keeps_records: canary == Some(Canary::ReadsOldRecords),
        canary_leaves_pages: canary == Some(Canary::ReadsOldPages),
        canary_ends_unknown: canary == Some(Canary::EndsUnknown),
        canary_forgets_questions: canary == Some(Canary::HoldsWhatWasAsked),
        canary_tells_unput: canary == Some(Canary::BehindToldAsSynced),
        canary_reads_unput: canary == Some(Canary::ReadsPastTheRun),
        canary_puts_unheard: canary == Some(Canary::PutsUnheard),
        canary_unknown_is_gone: canary == Some(Canary::AnswerOvertakesNotify),
        ..Limits::default()
    }
}

/// The directory of all is what the log made of it.
async fn compare_shared(hub: &crate::hub::HubRef, lane: &SimLane) -> Result<(), String> {
    let (dir, names) = {
        let hub = hub.borrow();
        (hub.shared.dir, hub.shared.names.clone())
    };
    let Some(dir) = dir else { return Ok(()) };
    let failed = |errno| format!("{errno:?}");
    let attr = lane.getattr(dir).await.map_err(failed)?;
    let found = crate::drive::list(lane, &attr).await.map_err(failed)?;
    let (found, wanted): (Vec<_>, Vec<_>) =
        (found.keys().map(|name| name.as_bytes().to_vec()).collect(), names.keys().cloned().collect());
    if found != wanted {
        return Err(format!("{found:?} instead of {wanted:?}"));
    }
    for (name, ino) in &names {
        let attr = lane.lookup(dir, name).await.map_err(failed)?;
        let links = names.values().filter(|other| *other == ino).count() as u32;
        let nlink = if attr.kind == skep_types::Kind::Dir { 1 + links } else { links };
        if attr.ino != *ino || attr.nlink != nlink {
            return Err(format!("{}: {attr:?}", name.escape_ascii()));
        }
    }
    Ok(())
}
