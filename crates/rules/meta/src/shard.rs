//! A shard: what a metadata server knows of one part of the namespace beside its rows. Everything in here is forgotten
//! when the shard's term ends; rows and log bring back what must not be.
//!
//! What it needs of the thread that it lives in - rows, log, clock, other servers - comes with each call as [`Host`].

mod absorb;
mod admit;
mod answers;
mod begin;
mod chores;
mod deletions;
mod ends;
mod grace;
mod holders;
mod homes;
mod lane;
mod lend;
mod live;
mod locks;
mod looks;
mod lost;
mod open_ends;
mod opens;
mod passed;
mod place;
mod prepared;
mod reads;
mod recovery;
mod request;
mod run;
mod seals;
mod serials;
mod stripes;
mod time;
mod told;
mod transact;
mod trims;
mod txns;
mod waits;

pub use homes::Homes;
pub use locks::is_circle_over;
pub use opens::OpenCounts;
pub use place::is_one_history;
pub use txns::Begun;

use crate::group::{Host, Load};
use crate::row::header::{Given, Keys, Terms};
use crate::store::{Store, StoreError};
use absorb::Later;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use chores::Chores;
use deletions::Deletions;
use ends::Ends;
use grace::Grace;
use holders::FilesHeld;
use lane::Memories;
use lend::{Hold, LeaseRow};
use locks::Table as Locks;
use lost::LostChunks;
use open_ends::Reading;
use opens::Opens;
use recovery::Recoveries;
use seals::Seals;
use serials::Serials;
use skep_types::{ClientId, Ino, LogIndex, Millis, ShardId, Slot, Term};
use skep_wire::Refusal;
use skep_wire::meta::ShardStamp;
use skep_wire::mgmt::ShardState;
use trims::Trims;
use txns::Txns;
use waits::{Again, Waits};

/// See the module.
pub struct Shard {
    /// Which one.
    pub id: ShardId,
    keys: Keys,
    epoch: u64,
    level: u16,
    era: u16,
    /// As its rows say: since this era began not everybody has told what is open.
    era_untold: bool,
    /// As its rows say: another server may have newer ones.
    given: Option<Given>,
    /// The map says that this server answers for it, and its rows do not say otherwise.
    leads: bool,
    /// As the map says: nobody is served from a shard that is still new.
    state: ShardState,
    /// Service has begun in this term.
    serves: bool,
    terms: Terms,
    /// Index of its newest record.
    last: LogIndex,
    /// Its records up to this one are on stable storage.
    durable: LogIndex,
    /// First index of this term, once it began.
    started: Option<LogIndex>,
    /// What the last term left in the rows is being read.
    reading: Option<Reading>,
    /// Clients that rows of lanes and growths name, before it is known which of them live.
    in_rows: BTreeSet<ClientId>,
    serials: Serials,
    opens: Opens,
    locks: Locks,
    ends: Ends,
    grace: Grace,
    /// What an earlier term has lent may be in use up to then: changes wait.
    hold: Option<Hold>,
    /// The row that there may be leases, while it is there.
    lease_row: Option<LeaseRow>,
    remembered: Memories,
    waits: Waits,
    /// Requests whose wait is over.
    again: VecDeque<Again>,
    later: BTreeMap<LogIndex, Vec<Later>>,
    /// The record is durable, and it has not begun.
    ready: VecDeque<(LogIndex, Later)>,
    settling: BTreeMap<Ino, LogIndex>,
    /// Files of which somebody stopped writing to chunks, until that is durable: a power cut has him write again, and the next
    /// term takes for not covered what somebody writes to.
    ceasing: BTreeMap<Ino, LogIndex>,
    /// The newest truncate of a file whose record is not durable yet: nothing of it may leave before that.
    cutting: BTreeMap<Ino, LogIndex>,
    /// Files with a truncate that not all targets have confirmed.
    trimming: BTreeSet<Ino>,
    orphans: BTreeSet<Ino>,
    growths: BTreeSet<Ino>,
    /// Lanes that may be copying a growth that was given up.
    dead_growths: BTreeSet<(ClientId, Slot)>,
    /// Who has, or had, something open in this session, and the record that says so.
    holders: BTreeMap<ClientId, LogIndex>,
    /// Files that their mounts hold.
    files_held: FilesHeld,
    /// Who may have written to chunks more than was committed, as the rows say.
    writers: BTreeSet<(Ino, ClientId)>,
    /// Files of which a writer's row says, as the term begins, that nobody knew their attributes when it was written.
    /// For [`Hold`], when service begins.
    unlent: BTreeSet<Ino>,
    /// Sizes to recover once the current step is over.
    recover_later: Vec<Ino>,
    next_sweep: Option<Millis>,
    chores: Chores,
    deletions: Deletions,
    trims: Trims,
    seals: Seals,
    recoveries: Recoveries,
    txns: Txns,
    lost: LostChunks,
    /// Its next term is this one or a later one.
    least: Term,
    /// Its service has begun before, in an earlier term and this life of the group.
    served: bool,
    /// A target has heard of a later term: then the next one begins here.
    renew_at: Option<Millis>,
    /// When that was.
    deposed_at: Millis,
    /// mgmtd has said since that this process has its place still.
    is_vouched_for: bool,
    /// So many terms were ended by that, one after the other.
    deposed: u32,
    /// Its deadline as the group knows it.
    noted: Option<Millis>,
    /// Its load as the group knows it.
    noted_load: Load,
}

impl Shard {
    /// Its term.
    pub fn term(&self) -> Term {
        self.terms.last()
    }

    /// Can it answer requests: its term durable, map and fence list known, formatted as far as mgmtd knows?
    pub fn is_ready<S: Store>(&self, host: &Host<S>) -> bool {
        let is_begun = self.started.is_some_and(|index| self.durable >= index);
        is_begun
            && self.reading.is_none()
            && host.knows_cluster()
            && !matches!(self.state, ShardState::New | ShardState::Moving)
    }

    /// Does it answer requests? Of many shards that are ready at once some begin a step later: it is not known before who is
    /// waited for.
    pub fn is_in_service<S: Store>(&self, host: &Host<S>) -> bool {
        self.serves && self.is_ready(host)
    }

    /// Does the map still call it new, though it is formatted, on stable storage?
    pub fn awaits_word(&self) -> bool {
        self.leads && self.state == ShardState::New
    }

    /// Is it on its way, so that nobody is served?
    pub fn is_moving(&self) -> bool {
        self.state == ShardState::Moving
    }

    /// Has its term begun here? Then the map gives it to this group. Without one it keeps quiet: towards targets, other
    /// shards, and its log.
    pub fn has_term(&self) -> bool {
        self.leads && self.started.is_some()
    }

    /// Has it a term, and has it read what the last one left? Before that it keeps as quiet as without one.
    pub fn acts(&self) -> bool {
        self.has_term() && self.reading.is_none()
    }

    /// Is its first record on stable storage?
    pub fn is_formatted(&self) -> bool {
        self.started.is_some_and(|index| self.durable >= index)
    }

    /// Sends an answer, or keeps it when the group itself asked.
    fn answer<S: Store>(
        &self,
        host: &mut Host<S>,
        to: u64,
        stamp: ShardStamp,
        result: Result<Vec<u8>, Refusal>,
    ) {
        host.held.remove(&to);
        // An answer kept from an older term vouches for itself only: what that term had after it may be
        // lost, and its indexes may be in use again.
        let durable = match stamp.term == self.term() {
            true => self.durable,
            false => self.durable.min(stamp.index),
        };
        host.reply(to, ShardStamp { durable, ..stamp }, result);
    }

    /// The stamp of an answer that shows the shard as it is now.
    pub fn stamp(&self) -> ShardStamp {
        ShardStamp::new(self.term(), self.last, self.durable)
    }

    /// The same of an answer that says nothing of its state. A term that is not on stable storage is not shown: it may be
    /// given once more.
    pub fn stamp_in_service<S: Store>(&self, host: &Host<S>) -> ShardStamp {
        if self.leads && self.is_in_service(host) { self.stamp() } else { ShardStamp::default() }
    }

    /// Is there something to go on with at once, without any input?
    pub fn can_resume(&self) -> bool {
        let resumes = !(self.recover_later.is_empty() && self.again.is_empty());
        self.acts() && (resumes || !self.ready.is_empty())
    }

    /// Is there a recovery to begin, as soon as the group has room for its read?
    pub fn can_recover(&self, most: usize) -> bool {
        self.acts() && self.recoveries.can_begin(most)
    }

    /// Goes on with one thing that became possible.
    pub fn resume_one<S: Store>(&mut self, host: &mut Host<S>) -> Result<(), StoreError> {
        if let Some(ino) = self.recover_later.pop().or_else(|| self.next_recovery(host)) {
            self.recover(host, ino)
        } else if let Some(again) = self.again.pop_front() {
            self.request_again(host, again)
        } else {
            self.begin_next(host).map(drop)
        }
    }
}
