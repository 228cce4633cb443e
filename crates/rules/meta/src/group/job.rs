//! What the courier carries to other servers, on which lines, and what comes back.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use skep_types::{ChunkId, Decode, DecodeError, Encode, NodeId, Reader, ShardId, TargetId, Term};
use skep_wire::meta::{
    AskHistory, AskHistoryReply, AskOutcome, AskOutcomeReply, Decide, FetchRows, MetaRequest, Prepare,
    PrepareReply, RowsReply, ShardCall, ShardStamp, TxnOutcome, Vote,
};
use skep_wire::storage::{
    ChunkReply, ChunkStat, DeleteChunks, SealChunk, SealChunkReply, ShardTerm, StatChunks, StatChunksReply,
    TrimChunk,
};
use skep_wire::{Empty, Message, Refusal, Status};

/// What the courier carries to another server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Job {
    /// `DeleteChunks`.
    Delete {
        /// Target.
        target: TargetId,
        /// Chunk files.
        chunks: Vec<ChunkId>,
    },
    /// `TrimChunk`.
    Trim {
        /// Target.
        target: TargetId,
        /// Chunk file.
        chunk: ChunkId,
        /// New length.
        size: u64,
        /// What is reserved behind it stays.
        keeps_reserved: bool,
    },
    /// `SealChunk`.
    Seal {
        /// Target.
        target: TargetId,
        /// Chunk file.
        chunk: ChunkId,
        /// It held so much once.
        floor: u64,
    },
    /// `StatChunks`.
    Stat {
        /// Target.
        target: TargetId,
        /// Chunk files.
        chunks: Vec<ChunkId>,
    },
    /// `FetchRows`, of the server that has the rows of a shard which this one is to lead.
    Fetch {
        /// The shard.
        shard: ShardId,
        /// The server.
        node: NodeId,
        /// The epoch in which the map gives the shard to this one.
        epoch: u64,
        /// What is asked.
        message: FetchRows,
    },
    /// Something for another shard.
    Shard {
        /// Which.
        shard: ShardId,
        /// The message.
        message: ShardMessage,
    },
}

/// Jobs for one destination that do not wait for those of other classes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Trims, seals, questions for sizes: somebody waits for them.
    Trims,
    /// Deletions: nobody waits, each takes long, and there may be very many.
    Deletions,
    /// What shards tell each other: programs wait, and an answer takes as long as a sync of the other server's log.
    Messages,
    /// Rows of a shard that moves: long answers, one after the other.
    Rows,
}

impl Class {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Trims, Self::Deletions, Self::Messages, Self::Rows];

    /// Lines to one destination; so many of its jobs are under way there at once.
    pub const fn lines(self) -> u32 {
        match self {
            // Two for each target: one that hangs leaves the others of its server six.
            Self::Trims => 8,
            // One for each target, for a deletion is 256 files.
            Self::Deletions => 4,
            // A server answers many with one sync of its log.
            Self::Messages => 8,
            // Each shard that comes asks for one part at a time.
            Self::Rows => 2,
        }
    }
}

/// A connection of its own to a destination. What is sent again goes by the same line, so what was sent before is silenced:
/// a server hears nothing of a connection once a newer one of its line has spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Line {
    /// Whose.
    pub class: Class,
    /// Below [`Class::lines`].
    pub number: u32,
}

impl Line {
    /// The connection group.
    pub fn group(self) -> u32 {
        let before = Class::ALL.into_iter().filter(|class| *class < self.class).map(Class::lines);
        before.sum::<u32>() + self.number
    }
}

impl Job {
    /// How it goes, as number `id`. All that changes one chunk file goes by one line: a truncate that was held up must not
    /// arrive behind the next one, nor behind its own repetition and what a client has written since. For all else any order
    /// is right (`docs/design/group.md`).
    pub fn line(&self, id: u64) -> Line {
        let (class, by) = match self {
            Self::Trim { target, chunk, .. } | Self::Seal { target, chunk, .. } => {
                (Class::Trims, u64::from(target.0) * 2 + chunk.ino.0 % 2)
            }
            Self::Stat { target, chunks } => {
                let ino = chunks.first().map_or(0, |chunk| chunk.ino.0);
                (Class::Trims, u64::from(target.0) * 2 + ino % 2)
            }
            Self::Delete { target, .. } => (Class::Deletions, u64::from(target.0)),
            Self::Shard { .. } => (Class::Messages, id),
            Self::Fetch { shard, .. } => (Class::Rows, u64::from(shard.0)),
        };
        Line { class, number: (by % u64::from(class.lines())) as u32 }
    }

    /// Its message and body, in the name of `by`, for a shard in this epoch.
    pub fn request(&self, by: ShardTerm, epoch: u64) -> (u16, Vec<u8>) {
        let to_shard = |shard: ShardId, message: MetaRequest| {
            let mut body = ShardCall { shard, epoch, ..ShardCall::default() }.to_bytes();
            message.encode_body(&mut body);
            (message.kind(), body)
        };
        match self.clone() {
            Self::Delete { target, chunks } => {
                (DeleteChunks::KIND, DeleteChunks { target, by: Some(by), chunks }.to_bytes())
            }
            Self::Trim { target, chunk, size, keeps_reserved } => {
                let keeps_reserved = keeps_reserved.then_some(true);
                let message = TrimChunk { target, by: Some(by), chunk, size, keeps_reserved };
                (TrimChunk::KIND, message.to_bytes())
            }
            Self::Seal { target, chunk, floor } => {
                (SealChunk::KIND, SealChunk { target, by, chunk, floor }.to_bytes())
            }
            Self::Stat { target, chunks } => {
                (StatChunks::KIND, StatChunks { target, by: Some(by), chunks }.to_bytes())
            }
            Self::Fetch { shard, message, .. } => to_shard(shard, message.into()),
            Self::Shard { shard, message } => to_shard(shard, message.into()),
        }
    }

    /// What was answered: a body, or a refusal.
    pub fn answered(&self, answer: Result<&[u8], Refusal>) -> Result<JobReply, JobFailure> {
        let failed = |e: DecodeError| {
            JobFailure(format!("the answer cannot be understood ({e}); do both sides run the same release?"))
        };
        match (answer, self) {
            (Ok(body), _) => self.reply(body).map_err(failed),
            (Err(refusal), _) if refusal.status == Status::OLD_TERM => {
                Ok(JobReply::Deposed { term: refusal.term, why: refusal.to_string() })
            }
            // It will not: its disk is full to the last byte, or has failed.
            (Err(refusal), Self::Seal { target, .. }) if is_final(&refusal) => {
                Ok(JobReply::NotSealed(format!("target {target}: {refusal}")))
            }
            (Err(refusal), _) => Err(JobFailure(refusal.to_string())),
        }
    }

    fn reply(&self, body: &[u8]) -> Result<JobReply, DecodeError> {
        let r = &mut Reader::new(body);
        let reply = match self {
            Self::Delete { .. } => Empty::decode(r).map(|_| JobReply::Done)?,
            Self::Trim { .. } => JobReply::Trimmed(ChunkReply::decode(r)?.blocks),
            Self::Seal { .. } => JobReply::Sealed(SealChunkReply::decode(r)?.limit),
            Self::Stat { .. } => JobReply::Stats(StatChunksReply::decode(r)?.chunks),
            Self::Fetch { .. } => {
                ShardStamp::decode(r)?;
                JobReply::Rows(RowsReply::decode(r)?)
            }
            Self::Shard { message, .. } => {
                ShardStamp::decode(r)?;
                message.read_reply(r)?
            }
        };
        r.finish("reply").map(|()| reply)
    }

    /// The body of a refusal.
    pub fn refusal(&self, body: &[u8]) -> Result<Refusal, DecodeError> {
        let r = &mut Reader::new(body);
        if matches!(self, Self::Fetch { .. } | Self::Shard { .. }) {
            ShardStamp::decode(r)?;
        }
        Refusal::decode(r)
    }
}

/// Will the target never do this for the shard?
fn is_final(refusal: &Refusal) -> bool {
    !refusal.status.is_transient() && !refusal.status.is_misdirected()
}

/// What one shard tells or asks another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ShardMessage {
    /// A coordinator asks a participant for its vote.
    Prepare(Prepare),
    /// It tells the outcome.
    Decide(Decide),
    /// A participant asks for it.
    AskOutcome(AskOutcome),
    /// A server that had a shard asks how far it is.
    AskHistory(AskHistory),
}

impl From<ShardMessage> for MetaRequest {
    fn from(message: ShardMessage) -> Self {
        match message {
            ShardMessage::Prepare(m) => m.into(),
            ShardMessage::Decide(m) => m.into(),
            ShardMessage::AskOutcome(m) => m.into(),
            ShardMessage::AskHistory(m) => m.into(),
        }
    }
}

impl ShardMessage {
    /// The body of an answer to it.
    pub fn reply(&self, body: &[u8]) -> Result<JobReply, DecodeError> {
        let mut reader = Reader::new(body);
        let reply = self.read_reply(&mut reader)?;
        reader.finish("reply").map(|()| reply)
    }

    fn read_reply(&self, r: &mut Reader<'_>) -> Result<JobReply, DecodeError> {
        Ok(match self {
            Self::Prepare(_) => JobReply::Voted(PrepareReply::decode(r)?.vote),
            Self::Decide(_) => Empty::decode(r).map(|_| JobReply::Done)?,
            Self::AskOutcome(_) => JobReply::Outcome(AskOutcomeReply::decode(r)?.outcome),
            Self::AskHistory(_) => JobReply::History(AskHistoryReply::decode(r)?.holds),
        })
    }
}

/// A job with its number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    /// Number: comes back with the result.
    pub id: u64,
    /// In whose name: a target that has heard of a later term refuses it.
    pub by: ShardTerm,
    /// What to do.
    pub job: Job,
}

/// What came back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobReply {
    /// Deleted, or the participant knows.
    Done,
    /// Trimmed; 512-byte blocks left.
    Trimmed(u64),
    /// Sealed, there.
    Sealed(u64),
    /// The target does not seal it.
    NotSealed(String),
    /// The target has heard of a later term of the shard (OLD_TERM).
    Deposed {
        /// Which, if it says so.
        term: Option<Term>,
        /// For people.
        why: String,
    },
    /// Lengths, in the order asked.
    Stats(Vec<ChunkStat>),
    /// The participant's vote.
    Voted(Vote),
    /// How the coordinator has decided.
    Outcome(TxnOutcome),
    /// Rows of a shard that comes here.
    Rows(RowsReply),
    /// Does the shard go on elsewhere from the record that was asked for?
    History(bool),
}

/// Nothing came back, or a refusal: the server asks again later.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobFailure(pub String);
