//! What the futures of the clients and the engine both see: the clock, the seed's random numbers,
//! calls on their way out, answers on their way in.

use crate::arena::SharedDir;
use crate::clocks::Hosts;
use crate::coverage::Coverage;
use crate::deeds::{Deeds, Theme};
use crate::fields::Fields;
use crate::kept::Kept;
use crate::kernel::Kernel;
use crate::lending::Lending;
use crate::moments::Moment;
use crate::pieces::Pieces;
use crate::tells::Tells;
use crate::trace::Trace;
use crate::truth::Truth;
use crate::watched::Watches;
use crate::{Canary, Options};
use skep_client::Outcome;
use skep_model::Rng;
use skep_types::{ClientId, FenceEpoch, Incarnation, Ino, Millis, NodeId, ShardId, Term, Timestamp};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::rc::Rc;

/// Hosts with clocks of their own: those of metadata servers, then those of clients.
pub const HOSTS: usize = METADS_MAX + 3;
/// Most metadata servers of a run.
pub const METADS_MAX: usize = 3;
/// Seconds since 1970 at the start of every run.
const EPOCH_SECS: i64 = 1_700_000_000;

/// The hub, shared by everybody in a run.
pub type HubRef = Rc<RefCell<Hub>>;

/// One lane of one life of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct LaneId {
    /// Which life of which client: never used twice.
    pub life: u32,
    /// Which lane of it.
    pub lane: u32,
}

impl fmt::Display for LaneId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "c{}.{}", self.life, self.lane)
    }
}

/// Number of a call.
pub type CallId = u64;

/// A request that a port has made.
#[derive(Debug)]
pub struct Outgoing {
    pub id: CallId,
    pub from: LaneId,
    pub node: NodeId,
    pub kind: u16,
    pub epoch: FenceEpoch,
    pub client: ClientId,
    pub incarnation: Incarnation,
    pub body: Vec<u8>,
    pub payload: Vec<u8>,
    /// Bytes that the answer's payload may have.
    pub room: usize,
}

/// What came of a call.
#[derive(Debug)]
pub struct Landed {
    pub outcome: Outcome,
    pub payload: Vec<u8>,
}

/// Something that takes content away from under the clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// The log of a metadata server ends earlier now.
    Metad,
    /// Unsynced chunk files of a storage daemon may be old.
    Storaged,
}

/// Who sent a changing request: client, slot, shard, sequence number.
pub type Ticket = (ClientId, u32, ShardId, u64);

/// Where a record stands: which metadata server's log, and the index there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    pub metad: usize,
    pub index: u64,
}

pub struct Hub {
    /// Milliseconds since the start of the run.
    pub now: u64,
    /// What hosts take for time.
    pub hosts: Hosts,
    /// How far the wall clock of each host is from the monotonic one, in milliseconds: see [`HOSTS`].
    pub clocks: [i64; HOSTS],
    /// The most that any of them was ahead so far.
    pub clock_ahead: i64,
    /// What the clock furthest behind showed after each jump.
    jumps: Vec<Timestamp>,
    /// The only source of chance.
    pub rng: Rng,
    /// What lanes do, and how often.
    pub deeds: Deeds,
    pub trace: Trace,
    pub coverage: Coverage,
    /// Calls to be sent.
    pub calls: Vec<Outgoing>,
    /// Calls whose port has given them up.
    pub abandoned: Vec<CallId>,
    /// Outcomes that a port has not taken.
    pub landed: BTreeMap<CallId, Landed>,
    /// Lanes to be woken, and when.
    pub timers: Vec<(u64, LaneId)>,
    /// Clients whose housekeeping has work.
    pub work: BTreeSet<u32>,
    /// Clients whose housekeeping was asked for.
    pub nudged: BTreeSet<u32>,
    /// Lanes whose deed has met a name that an own change of their host is about.
    pub beside_own: BTreeSet<LaneId>,
    /// Clients of whom somebody wants to know about a file that they hold.
    pub asked: BTreeSet<u32>,
    /// Records that told of files that were held.
    pub tells: Tells,
    /// The program of a lane has lost its patience since then.
    pub cancelled: BTreeMap<LaneId, u64>,
    /// When a metadata server lost its power last.
    pub cut_at: Option<u64>,
    /// What was cut, and when; nobody forgets.
    pub cuts: Vec<Cut>,
    /// Step that a lane is at.
    pub at_step: BTreeMap<LaneId, u64>,
    /// Which step sent a request.
    pub tickets: BTreeMap<Ticket, (LaneId, u64)>,
    /// Requests that were executed, and where in the log: a retry must find that out.
    pub executed: BTreeMap<Ticket, Place>,
    /// A canary: they are executed again.
    pub retries_run_twice: bool,
    /// What is wrong on purpose.
    pub canary: Option<Canary>,
    /// The seed is one that is to find this.
    pub drawn_for: Option<Canary>,
    /// Ends of files given last, for the canary.
    pub ends: BTreeMap<skep_types::Ino, u64>,
    /// Highest index of a step's records in each log that has any.
    pub indices: BTreeMap<(LaneId, u64), BTreeMap<usize, u64>>,
    /// Steps with a record that a power cut took.
    pub lost: BTreeSet<(LaneId, u64)>,
    /// The log of a metadata server must never end before this: something below it was promised to be durable.
    pub promised: BTreeMap<usize, (u64, String)>,
    /// What all clients do to one directory.
    pub shared: SharedDir,
    /// What was true of it, and when.
    pub truth: Truth,
    /// What all clients do to some files.
    pub fields: Fields,
    /// For how long hosts had slept when their mounts looked last.
    pub slept: [u64; HOSTS],
    /// The kernels above the clients, by life.
    pub kernels: BTreeMap<u32, Kernel>,
    /// Kernels lock directories, as real ones do. In the other seeds lanes of one mount meet in more orders.
    pub locks_dirs: bool,
    /// Mounts that are stopped, by life, and until when. Their kernels go on.
    pub stopped: BTreeMap<u32, u64>,
    /// Leases.
    pub lending: Lending,
    /// The term of this shard is to end.
    pub term_ends: Option<(NodeId, ShardId)>,
    /// Requests of programs that are on their way, by life and node.
    pub pooled: BTreeMap<(u32, NodeId), usize>,
    /// Rounds of requests of each lane.
    pub rounds: BTreeMap<LaneId, u64>,
    /// Files that clients keep open.
    pub kept: Kept,
    /// Directories of clients whose lanes sync what they put there, by the client's life.
    pub careful: BTreeMap<u32, Ino>,
    /// Files that are written in small pieces.
    pub pieces: Pieces,
    /// And such as lanes keep open.
    pub watches: Watches,
    /// The metadata servers that are up; of the one that has it, the term of the root's shard.
    pub metad_terms: BTreeMap<NodeId, Term>,
    /// A program did something after which a power cut of metad is worth a try: when.
    pub provoked: Option<u64>,
    /// A program has an administrator end this session.
    pub evicts: Option<ClientId>,
    /// The session in which a life of a client sent last.
    pub sessions: BTreeMap<u32, ClientId>,
    /// When it began to send in it.
    pub session_from: BTreeMap<u32, u64>,
    /// Lives that had more than one.
    pub evicted: BTreeSet<u32>,
    /// Lanes that know all about their directory on another shard, as long as there is no other power cut and session.
    pub afar: BTreeMap<LaneId, (usize, Option<ClientId>)>,
    /// Deeds done in the directory.
    pub last_deed: u64,
    /// Chaos is over.
    pub calm: bool,
    /// When that will be.
    pub calm_from: u64,
    /// The first violation.
    pub failure: Option<String>,
    last_call: CallId,
}

impl Hub {
    /// At time 0.
    pub fn new(seed: u64, options: &Options) -> Self {
        let Options { canary, whole_trace, pieces, leases, .. } = *options;
        let leases = leases || pieces;
        let mut rng = Rng::new(Rng::new(seed ^ 0x5345_4544).next_u64());
        let lending = Lending::draw(seed, canary, leases, pieces);
        let theme = match lending.moment.map(Moment::theme) {
            None if lending.gathers => Some(Theme::Histories),
            None if leases => Some(Theme::Names),
            theme => theme.or_else(|| canary.and_then(Canary::theme)),
        };
        let deeds = Deeds::draw(&mut rng, theme);
        Self {
            now: 0,
            hosts: Hosts::draw(&mut rng),
            clocks: [0; HOSTS],
            clock_ahead: 0,
            jumps: Vec::new(),
            rng,
            deeds,
            trace: Trace::new(whole_trace),
            coverage: Coverage::default(),
            calls: Vec::new(),
            abandoned: Vec::new(),
            landed: BTreeMap::new(),
            timers: Vec::new(),
            work: BTreeSet::new(),
            nudged: BTreeSet::new(),
            beside_own: BTreeSet::new(),
            asked: BTreeSet::new(),
            tells: Tells::default(),
            cancelled: BTreeMap::new(),
            cut_at: None,
            cuts: Vec::new(),
            at_step: BTreeMap::new(),
            tickets: BTreeMap::new(),
            executed: BTreeMap::new(),
            retries_run_twice: options.bug().is_some(),
            canary: options.bug(),
            drawn_for: canary,
            ends: BTreeMap::new(),
            indices: BTreeMap::new(),
            lost: BTreeSet::new(),
            promised: BTreeMap::new(),
            shared: SharedDir::default(),
            truth: Truth::default(),
            fields: Fields::default(),
            slept: [0; HOSTS],
            kernels: BTreeMap::new(),
            locks_dirs: canary.is_some() || !seed.is_multiple_of(4),
            stopped: BTreeMap::new(),
            lending,
            term_ends: None,
            pooled: BTreeMap::new(),
            rounds: BTreeMap::new(),
            kept: Kept::default(),
            careful: BTreeMap::new(),
            pieces: Pieces::default(),
            watches: Watches::default(),
            metad_terms: BTreeMap::new(),
            provoked: None,
            evicts: None,
            sessions: BTreeMap::new(),
            session_from: BTreeMap::new(),
            evicted: BTreeSet::new(),
            afar: BTreeMap::new(),
            last_deed: 0,
            calm: false,
            calm_from: u64::MAX,
            failure: None,
            last_call: 0,
        }
    }

    /// A number for a call.
    pub fn next_call(&mut self) -> CallId {
        self.last_call += 1;
        self.last_call
    }

    /// True time, which only mgmtd has.
    pub fn millis(&self) -> Millis {
        Millis(self.now)
    }

    /// Monotonic time of a host.
    pub fn mono(&self, host: usize) -> Millis {
        Millis(self.hosts.mono(host, self.now))
    }

    /// When a deadline of a host is over.
    pub fn true_time(&self, host: usize, due: Millis) -> u64 {
        self.hosts.true_time(host, due.0, self.now)
    }

    /// Time for files, by the clock of a host.
    pub fn wall(&self, host: usize) -> Timestamp {
        self.wall_at(self.clocks[host])
    }

    /// Which host a life of a client is on.
    pub fn host_of(life: u32) -> usize {
        METADS_MAX + life as usize % (HOSTS - METADS_MAX)
    }

    /// Is the mount of this life stopped?
    pub fn is_stopped(&self, life: u32) -> bool {
        self.stopped.get(&life).is_some_and(|until| self.now < *until)
    }

    /// A clock is put right, or wrong.
    pub fn set_clock(&mut self, host: usize, shift: i64) {
        self.clocks[host] = shift;
        self.clock_ahead = self.clock_ahead.max(shift);
        self.jumps.push(self.lowest());
    }

    /// From now on: see [`Hub::lowest_since`].
    pub fn lowest_from(&self) -> (usize, Timestamp) {
        (self.jumps.len(), self.lowest())
    }

    /// The lowest that any clock has shown since.
    pub fn lowest_since(&self, (jumps, lowest): (usize, Timestamp)) -> Timestamp {
        self.jumps[jumps..].iter().fold(lowest, |lowest, after| lowest.min(*after))
    }

    /// What the clock that is furthest behind shows.
    pub fn lowest(&self) -> Timestamp {
        self.wall_at(self.clocks.iter().copied().min().unwrap_or(0))
    }

    /// More than any clock has shown so far.
    pub fn highest(&self) -> Timestamp {
        self.wall_at(self.clock_ahead)
    }

    fn wall_at(&self, shift: i64) -> Timestamp {
        let ms = self.now as i64 + shift;
        let nanos = ms.rem_euclid(1000) as u32 * 1_000_000;
        Timestamp { secs: EPOCH_SECS + ms.div_euclid(1000), nanos }
    }

    /// Adds a line to the trace.
    pub fn say(&mut self, what: fmt::Arguments<'_>) {
        self.trace.line(self.now, what);
    }

    /// The run has failed; the first reason counts.
    pub fn fail(&mut self, what: String) {
        self.say(format_args!("FAILED: {what}"));
        self.failure.get_or_insert(what);
    }

    /// A power cut took the records behind `last`.
    pub fn cut_log(&mut self, last: Place) {
        let is_gone = |place: Place| place.metad == last.metad && place.index > last.index;
        let loses = |indices: &BTreeMap<usize, u64>| {
            indices.iter().any(|(metad, index)| is_gone(Place { metad: *metad, index: *index }))
        };
        let gone: Vec<_> = self.indices.iter().filter(|(_, at)| loses(at)).map(|(step, _)| *step).collect();
        self.executed.retain(|_, place| !is_gone(*place));
        let takes_steps = !gone.is_empty();
        for step in gone {
            self.indices.remove(&step);
            self.lost.insert(step);
            self.coverage.hit("a power cut took acknowledged records");
        }
        if self.tells.cut(last.metad, takes_steps, is_gone) {
            self.coverage.hit("a power cut took what was told of a held file");
        }
        self.shared.cut(self.now, last);
        self.truth.cut(self.now, last);
        self.cut_at = Some(self.now);
        self.cuts.push(Cut::Metad);
    }

    /// A life of a client sends something in a session.
    pub fn sends(&mut self, life: u32, client: ClientId) {
        let before = self.sessions.insert(life, client);
        if before != Some(client) {
            self.session_from.insert(life, self.now);
        }
        if before.is_some_and(|before| before != client) {
            self.evicted.insert(life);
        }
    }

    /// A session of this life has ended, though it may not know yet.
    pub fn was_evicted(&self, life: u32) -> bool {
        self.evicted.contains(&life) || self.without_session().contains(&life)
    }

    /// Lives whose session has ended, though they may not know.
    pub fn without_session(&self) -> BTreeSet<u32> {
        let ended = self.sessions.iter().filter(|(_, client)| !self.fields.living.contains(client));
        ended.map(|(life, _)| *life).collect()
    }

    /// Lives of clients whose session lives.
    pub fn with_session(&self) -> BTreeSet<u32> {
        let open = self.sessions.iter().filter(|(_, client)| self.fields.living.contains(client));
        open.map(|(life, _)| *life).collect()
    }

    /// True `n` times in a thousand.
    pub fn permille(&mut self, n: u64) -> bool {
        self.rng.below(1000) < n
    }
}
