//! What all lanes of a mount share. One owner, no lock inside; the hands wrap it in a [`crate::Cell`].

mod acls;
mod ahead;
mod believed;
mod clocks;
mod closes;
pub(crate) mod copies;
mod gather;
mod ghosts;
mod handle;
mod held;
mod hold;
mod holds;
mod inode;
mod inodes;
mod kept;
mod kernel;
mod leases;
mod locks;
mod losses;
mod map;
mod mark;
mod names;
mod node;
mod pages;
mod run;
mod session;
mod shards;
mod slot;
mod stamps;
mod strays;
mod stride;
mod untold;
mod waits;
mod wish;

pub use acls::{Acl, Acls};
pub use ahead::{Ahead, Aheads, AsOf, Fetched, Place};
pub use believed::Believed;
pub use closes::Closes;
pub use gather::{Asking, Gathering, Moving, Put, Run, Stay};
pub use ghosts::Ghosts;
pub use handle::{DirHandle, FileHandle, Handle, Handles};
pub use held::{Answered, Point, Telling};
pub use hold::{Hold, News, Word};
pub use holds::{Holds, ToTell, Why};
pub use inode::{Inline, Inode, Uncut, Unsynced};
pub use inodes::Inodes;
pub use kept::{Kept, LOOKS_AT_ONCE};
pub use kernel::{AttrsBy, Drop, Kernel, LeadsTo, NameDrop};
pub use leases::{Became, Change, Heard, LeaseCounts, Leases, OwnChanges, Sent, Source, TakenBack, Told};
pub use locks::{Ended, LockKey, Locks, Wish};
pub use losses::Losses;
pub(crate) use losses::Seen;
pub use map::ClusterMap;
pub use mark::{Begun, Mark};
pub use names::{Before, CoveredSince, Found, Line, Names, Part};
pub use node::{Nodes, Silence};
pub use pages::{Filled, PageDrop, Pages};
pub use run::Pieces;
pub use session::{Mounting, Session, SessionState};
pub use shards::Shards;
pub use slot::{SlotState, Slots};
pub use stamps::Stamps;
pub use strays::{Stray, Strays};
pub use stride::{Guess, place_in};
pub use untold::Untold;
use waits::Waits;
pub use wish::{Given, Wish as HoldWish, Wished};

use crate::limits::Limits;
use crate::port::MGMTD;
use alloc::collections::{BTreeSet, VecDeque};
use alloc::string::String;
use alloc::vec::Vec;
use skep_types::{ChunkId, ClientId, FenceEpoch, Ino, Millis, NodeId, ShardId, TargetId, Term};
use skep_wire::meta::ShardStamp;

/// A server that does not answer, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    /// What people call it.
    pub server: String,
    /// For how long.
    pub ms: u64,
    /// What the network said.
    pub why: String,
}

/// Questions of programs that the mount answered from memory, for people.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Spared {
    /// What a name leads to.
    pub names: u64,
    /// That a name is not there.
    pub absent: u64,
    /// Attributes of an inode.
    pub attributes: u64,
    /// Parts of listings.
    pub listings: u64,
    /// That there is no such extended attribute.
    pub extended: u64,
    /// That a file is open.
    pub opens: u64,
    /// Parts of files that had been read ahead.
    pub reads: u64,
    /// Changes of new files that are told with others.
    pub kept: u64,
    /// Small writes that went to their targets with others.
    pub gathered: u64,
    /// Files that were asked for, to hold them,
    pub holds_asked: u64,
    /// and those that were.
    pub holds_given: u64,
    /// Questions of others who only look at a file that is held, by which the hold does not end.
    pub looks_told: u64,
}

/// The state of a mount.
#[derive(Debug, Default)]
pub struct Shared {
    /// Configured limits.
    pub limits: Limits,
    /// Who we are to the cluster.
    pub session: SessionState,
    /// Who we say we are when a session is opened.
    pub mounting: Mounting,
    /// What is to be opened again in a new session before anybody else may use it; `None` = it has begun.
    pub reopening: Option<VecDeque<Ino>>,
    /// When servers were last asked what they have to tell, without anybody who waits for it.
    pub listened: Option<Millis>,
    /// Highest fence epoch seen; goes into every header.
    pub epoch: FenceEpoch,
    /// Where everything is.
    pub map: ClusterMap,
    /// When mgmtd was last asked for the space of targets; `None`: the next who wants to know asks.
    pub space_asked: Option<Millis>,
    /// Lives of the metadata shards.
    pub shards: Shards,
    /// The metadata servers that have them.
    pub nodes: Nodes,
    /// Lanes' positions.
    pub slots: Slots,
    /// Files that are open, or were.
    pub inodes: Inodes,
    /// Access ACLs that were asked for.
    pub acls: Acls,
    /// Shards between which somebody wanted to move or link a name, once the log has said that it cannot be done.
    pub told_apart: BTreeSet<(ShardId, ShardId)>,
    /// Directories removed while in use.
    pub ghosts: Ghosts,
    pub handles: Handles,
    /// What was read ahead through them.
    pub aheads: Aheads,
    /// Locks held and waited for.
    pub locks: Locks,
    /// Closes to be told to shards.
    pub closes: Closes,
    /// New files that nobody else is told of.
    pub holds: Holds,
    /// What was written to them and waits for more.
    pub gathering: Gathering,
    /// Who waits for what other lanes are at.
    pub(crate) waits: Waits,
    /// Opens that nobody needs now, and no shard is told of.
    pub kept: Kept,
    /// Changes that are acknowledged but not known to be durable.
    pub stamps: Stamps,
    /// Of what was lost, and who is to be told.
    pub untold: Untold,
    /// How often what shards had said was disbelieved: answers from before that come late count no more than that.
    pub disbeliefs: u64,
    /// Counts locks that were lost while their programs believed in them.
    pub lock_losses: u64,
    /// What housekeeping is to punch.
    pub strays: Strays,
    /// Chunk files of which something is lost.
    pub losses: Losses,
    /// How the sync of closed files goes.
    pub(crate) syncing: crate::op::ClosedSync,
    /// Leases that this mount has.
    pub leases: Leases,
    /// What it knows under them.
    pub names: Names,
    /// What the kernel was told of that.
    pub kernel: Kernel,
    /// How often that spared a question.
    pub spared: Spared,
    /// Counts opens and closes of the mount, so that shards can order them.
    pub open_seq: u64,
    /// Counts changes made by this mount; a listing's attributes are stale when it moved.
    pub changes: u64,
}

/// About so many bytes are kept of a file, ...
const INODE_BYTES: usize = 1 << 10;
/// ... of an inode that the kernel knows, ...
const KNOWN_BYTES: usize = 128;
/// ... and of a name that it was told.
const TOLD_BYTES: usize = 256;

impl Shared {
    /// A mount that knows nothing yet.
    pub fn new(limits: Limits) -> Self {
        let mut aheads = Aheads::new(limits.ahead_bytes);
        aheads.canary_keeps_records = limits.canary_keeps_records;
        Self { leases: Leases::new(&limits), names: Names::new(&limits), aheads, limits, ..Self::default() }
    }

    /// The number of the next open or close.
    pub fn next_open_seq(&mut self) -> u64 {
        self.open_seq += 1;
        self.open_seq
    }

    /// What people call `node`.
    pub fn name_of(&self, node: NodeId) -> String {
        if node == MGMTD {
            return String::from("mgmtd");
        }
        match self.map.node(node) {
            Some(entry) => entry.alias.clone(),
            None => alloc::format!("node {node}"),
        }
    }

    /// Servers that somebody waits for.
    pub fn waits(&self, now: Millis) -> Vec<Waiting> {
        let waiting = |(node, silence): (NodeId, &Silence)| Waiting {
            server: self.name_of(node),
            ms: now.since(silence.since),
            why: silence.why.clone(),
        };
        self.nodes.silences().map(waiting).collect()
    }

    /// About so many bytes are kept of files, names, and what the kernel was told.
    pub fn kept_bytes(&self) -> usize {
        let ((known, _), (told, ..)) = (self.kernel.counts(), self.kernel.names.counts());
        self.names.bytes() + self.inodes.len() * INODE_BYTES + known * KNOWN_BYTES + told * TOLD_BYTES
    }

    /// How often something was lost that programs had been answered for and had not synced.
    pub fn losses(&self) -> u64 {
        self.untold.newest()
    }

    /// Something of it is lost that was acknowledged.
    pub(crate) fn loses(&mut self, ino: Ino) {
        self.lost_by([(ino, 0)]);
    }

    fn lost_by(&mut self, lost: impl IntoIterator<Item = (Ino, u32)>) {
        for (ino, caller) in lost {
            let Limits { canary_tells_the_first, canary_opens_behind_losses, .. } = self.limits;
            let caller = if canary_tells_the_first || canary_opens_behind_losses { 0 } else { caller };
            self.untold.lost(ino, caller);
        }
        if self.untold.is_full() {
            self.untold.make_room(&self.handles.inos());
        }
    }

    /// The session has ended in which files were held: what was not told of them is lost.
    fn lose_holds(&mut self) {
        self.holds.clear();
        self.loses_runs();
        for ino in self.inodes.take_holds() {
            self.loses(ino);
        }
    }

    /// A write to `chunk` on `target` was answered.
    pub(crate) fn wrote_chunk(&mut self, ino: Ino, target: TargetId, chunk: ChunkId, answer: Answered) {
        if self.inodes.entry(ino).wrote_chunk(target, chunk, answer) {
            self.loses(ino);
        }
    }

    /// What a new handle of `ino` need not tell of.
    pub(crate) fn losses_before_open(&self, ino: Ino) -> u64 {
        match self.limits.canary_opens_behind_losses {
            true => self.untold.newest(),
            false => self.untold.before_open(ino),
        }
    }

    /// A change of these inodes by `caller` was acknowledged; said once more of one that had no number when it was asked for.
    pub(crate) fn acknowledged(
        &mut self,
        shard: ShardId,
        stamp: &ShardStamp,
        of: impl IntoIterator<Item = Ino>,
        caller: u32,
    ) {
        if let Some(term) = self.stamps.acknowledged(shard, stamp, of, caller) {
            self.lost_history(shard, term);
        }
    }

    /// `shard` lost its changes of `term`: what this mount changed in it since the last durable position is lost.
    pub fn lost_history(&mut self, shard: ShardId, term: Term) {
        let lost = self.stamps.lost(shard, term);
        self.lost_by(lost);
        self.disbeliefs += 1;
        self.forget_leased(shard);
        for (_, inode) in self.inodes.of_shard_mut(shard) {
            if let Some(attr) = &mut inode.attr {
                attr.change = 0;
            }
            inode.forget_cuts();
        }
    }

    /// The client that requests are sent as; `None` while one session has ended and what is open is not opened again
    /// in the next.
    pub fn sender(&self) -> Option<ClientId> {
        match &self.session {
            SessionState::Dead { .. } => None,
            SessionState::Open(_) if self.reopening.is_some() => None,
            SessionState::Open(session) => Some(session.client),
            SessionState::None => Some(ClientId(0)),
        }
    }

    /// Is there a session in which everything that is open is known?
    pub fn has_session(&self) -> bool {
        self.session.open().is_some() && self.reopening.is_none()
    }

    /// Programs believe in locks that were taken through these handles, and are lost.
    pub(crate) fn locks_lost(&mut self, handles: &[Handle]) {
        for handle in handles {
            if let Some(file) = self.handles.any_file(*handle) {
                file.lock_lost = true;
                self.lock_losses += 1;
            }
        }
    }

    /// A session was opened in the place of one that the cluster ended: what was known in that one counts no more,
    /// and everything that is open is to be opened again. What was written and not made durable is on the targets
    /// all the same; they will say if it is not.
    pub(crate) fn begin_again(&mut self) {
        self.disbeliefs += 1;
        if !self.limits.canary_keeps_beliefs {
            self.inodes.disbelieve_all();
        }
        self.acls = Acls::default();
        self.leases.session_ended();
        self.names.forget_all();
        self.nodes.forget_events();
        // None of what the ended one had open is open any more.
        while self.close_oldest(Millis(0)) {}
        self.closes = Closes::default();
        self.lose_holds();
        // Whose file has another generation by now, nobody knows.
        self.strays.clear();
        let handles = self.locks.take_lost();
        self.locks_lost(&handles);
        let used = self.inodes.iter().filter(|(_, inode)| inode.uses() > 0);
        self.reopening = Some(used.map(|(ino, _)| ino).collect());
    }
}
