//! What goes into and comes out of a server.

use super::LOOPBACK;
use super::job::{JobFailure, JobReply, ShardMessage, Task};
use crate::store::{StoreError, Wanted};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use skep_types::log::Record;
use skep_types::{ClientId, FenceEpoch, Incarnation, LogSeq, Millis, NodeId, Role};
use skep_wire::meta::{MetaRequest, ShardCall, ShardStamp};
use skep_wire::mgmt::{FencesReply, MapReply};
use skep_wire::{Refusal, Status};

/// Who is at the other end of a connection, as the handshake proved it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerIdentity {
    /// What it may do.
    pub role: Role,
    /// A client's id; 0 otherwise.
    pub client: ClientId,
    /// Its life.
    pub incarnation: Incarnation,
    /// A server's node; 0 otherwise.
    pub node: NodeId,
}

/// A request from a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Where the answer goes: chosen by the hands, below 2^63.
    pub reply_to: u64,
    /// Who asks.
    pub peer: PeerIdentity,
    /// Fence epoch in the frame.
    pub epoch: FenceEpoch,
    /// Shard, lane, number.
    pub call: ShardCall,
    /// What is asked.
    pub message: MetaRequest,
}

impl Request {
    /// Refuses what is not for the role of its sender.
    pub(crate) fn of_role(&self, allowed: bool) -> Result<(), Refusal> {
        let text = || format!("{} is not for this role", self.message.name());
        if allowed { Ok(()) } else { Err(Refusal::with(Status::ROLE, text())) }
    }

    /// From one shard of this server to another: the same path, no short cut.
    pub(crate) fn loopback(
        errand: u64,
        call: ShardCall,
        node: NodeId,
        message: ShardMessage,
        epoch: FenceEpoch,
    ) -> Self {
        Self {
            reply_to: LOOPBACK | errand,
            peer: PeerIdentity { role: Role::Server, client: ClientId(0), incarnation: Incarnation(0), node },
            epoch,
            call,
            message: message.into(),
        }
    }
}

/// What happens to a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// A request arrived.
    Request(Request),
    /// Nobody waits for the answer to this request any more: its connection has ended, or a newer one of the
    /// same lane has taken its place. If it has not been carried out it never will be.
    Gone(u64),
    /// Log records up to this one are on stable storage.
    Durable(LogSeq),
    /// A task ended.
    Courier {
        /// Its number.
        task: u64,
        /// How.
        result: Result<JobReply, JobFailure>,
    },
    /// What was to be read under this number is in memory, as far as there is room for it: see [`Read`].
    Read(u64),
    /// A newer map.
    Map {
        /// This server's node id.
        own: NodeId,
        /// The map.
        map: MapReply,
    },
    /// A newer fence list.
    Fences(FencesReply),
    /// mgmtd has answered a heartbeat of this life that was sent then, and whatever map it told of is here: no other
    /// process had taken this server's place.
    Vouched(Millis),
    /// Time passed: see [`super::Group::next_deadline`].
    Tick,
    /// The disk of the server is (no longer) nearly full.
    LowSpace(bool),
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// [`Request::reply_to`].
    pub to: u64,
    /// Goes before the body.
    pub stamp: ShardStamp,
    /// The body, or why not.
    pub result: Result<Vec<u8>, Refusal>,
}

/// Rows that a request waits for. Once they are in memory the hands say so by [`Input::Read`], also when the disk failed
/// or the rows were outdated by then: the request is run again in any case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Read {
    /// Number: comes back.
    pub id: u64,
    /// What is to be read.
    pub wanted: Vec<Wanted>,
}

/// What the hands carry out: append `records`, then send `replies`, then hand over `tasks`.
#[derive(Debug, Default)]
pub struct Output {
    /// To be appended in one write, in order.
    pub records: Vec<Record>,
    /// To be sent after that.
    pub replies: Vec<Reply>,
    /// For the courier.
    pub tasks: Vec<Task>,
    /// For those who read from the disk.
    pub reads: Vec<Read>,
    /// Numbers of those, of this step or earlier ones, whose requests are gone: they need not be read.
    pub reads_given_up: Vec<u64>,
    /// Somebody waits for the log to be durable: sync now.
    pub sync_now: bool,
    /// A peer knows a newer fence list: fetch it.
    pub fetch_fences: bool,
    /// Somebody knows of something that a newer map may hold: fetch it, and say when mgmtd has answered a heartbeat that was
    /// sent later than this ([`Input::Vouched`]; of others nothing needs to be said).
    pub fetch_map: bool,
    /// Lines for the log of the daemon.
    pub notes: Vec<String>,
    /// The same, of what an administrator must see.
    pub warnings: Vec<String>,
}

impl Output {
    /// Adds a line for people, up to the limit.
    pub(crate) fn note(&mut self, line: String) {
        if self.notes.len() < crate::limit::NOTES_MAX {
            self.notes.push(line);
        }
    }

    /// Adds a warning, up to the limit.
    pub(crate) fn warn(&mut self, line: String) {
        if self.warnings.len() < crate::limit::NOTES_MAX {
            self.warnings.push(line);
        }
    }
}

/// A log record as the log gives it back.
pub(super) fn misplaced(record: &Record, expected: LogSeq) -> StoreError {
    StoreError::Corrupt(alloc::format!(
        "the log continues at record {} where {expected} is needed; rows and log are not of one server",
        record.seq
    ))
}
