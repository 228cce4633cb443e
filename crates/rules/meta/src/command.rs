//! Commands: what the log holds. A command carries everything that its effect depends on beside
//! the rows: the time, and whatever the server chose. Applying it again gives the same rows.

use crate::change;
use crate::fail::corrupt;
use crate::row::header::Keys;
use crate::store::StoreError;
use alloc::format;
use alloc::vec::Vec;
use skep_types::codec::Buffer;
use skep_types::{
    ClientId, Decode, DecodeError, Encode, Extent, Generation, Incarnation, Ino, LogIndex, Reader, Seq,
    ShardId, Slot, Stripe, Timestamp, record, union,
};
use skep_wire::meta::{MetaRequest, TxnId, TxnPromise};

/// Newest semantic version of commands that this release knows.
pub const COMMAND_LEVEL_MAX: u16 = 2;
/// That of records about what somebody holds, each by itself, whatever level is in force.
const LEVEL_OF_HELD: u16 = 2;
/// Oldest one: that of records of the server as a whole, and in force until a map says more.
pub const COMMAND_LEVEL_MIN: u16 = 1;

record! {
    /// The lane that a changing request came in.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Caller {
        pub client: ClientId,
        pub incarnation: Incarnation,
        pub slot: Slot,
        /// Position in the lane.
        pub seq: Seq,
    }
}

record! {
    /// A transaction over shards that all participants voted for.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Decided {
        /// Its number in the term of the record.
        pub counter: u64,
        /// What they promised, in the order of the plan.
        pub promises: Vec<TxnPromise>,
    }
}

record! {
    /// What the server chose when it ran the request.
    #[derive(Debug, Clone, Default, PartialEq, Eq)]
    pub struct Choices {
    } tags {
        /// Number of the new inode.
        1 => pub ino: Option<Ino>,
        /// The inode that lost its last name may be open.
        2 => pub held: Option<bool>,
        /// Nobody else has the truncated file open.
        3 => pub fresh: Option<bool>,
        /// Chunks allotted.
        4 => pub extents: Option<Vec<Extent>>,
        /// Other clients have the file open for writing.
        5 => pub live: Option<bool>,
        /// The answer shows a layout that is not durable yet.
        6 => pub settling: Option<bool>,
        /// Who may write to the chunks from now on.
        7 => pub writers: Option<Vec<ClientId>>,
        /// The transaction over shards that this decides.
        8 => pub decided: Option<Decided>,
        /// The client holds the new file: nobody else is told anything of it before he has told what became of it.
        9 => pub holds: Option<bool>,
        /// Who told of a file goes on holding it.
        10 => pub keeps: Option<bool>,
    }
}

record! {
    /// Makes a shard.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Format {
        /// Keys of cookies.
        pub keys: Keys,
        /// Epoch in the map.
        pub epoch: u64,
        /// Command level in force.
        pub level: u16,
        /// Era in the map.
        pub era: u16,
    }
}

record! {
    /// Reserves inode serials.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Serials {
        /// First serial that is not reserved.
        pub end: u64,
    }
}

record! {
    /// The map changed something about the shard.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Place {
        /// Epoch in the map.
        pub epoch: u64,
        /// Command level in force.
        pub level: u16,
        /// Era in the map; a newer one than that of the rows: they are an older copy that was put back, and what
        /// was given out since must not be given again.
        pub era: u16,
    }
}

record! {
    /// All targets confirmed these rows of the deletion queue.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Deleted {
        /// Their numbers.
        pub ids: Vec<u64>,
    }
}

record! {
    /// All targets confirmed a truncate.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Trimmed {
        pub ino: Ino,
        /// Number of the trim.
        pub id: u64,
        /// 512-byte blocks left.
        pub blocks: u64,
    }
}

record! {
    /// Nobody holds these nameless inodes any more.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Purge {
        /// The inodes.
        pub inos: Vec<Ino>,
    }
}

record! {
    /// A lane of a client.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Lane {
        pub client: ClientId,
        pub slot: Slot,
    }
}

record! {
    /// Growth intents are given up.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct CancelGrowth {
        /// Their files.
        pub inos: Vec<Ino>,
    } tags {
        /// This lane copies none any more of those that were given up before: their chunks go again.
        1 => pub over: Option<Lane>,
    }
}

record! {
    /// A session ended: its lanes are forgotten.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct SessionGone {
        pub client: ClientId,
    }
}

record! {
    /// A client is about to have something open on the shard for the first time: from now on a new term waits for it.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Holds {
        pub client: ClientId,
    }
}

record! {
    /// The size of a file whose writer was evicted, as its chunk files tell.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Recovered {
        pub ino: Ino,
        /// Generation that was asked for.
        pub generation: Generation,
        /// Where the furthest chunk file ends.
        pub size: u64,
        /// 512-byte blocks in all chunk files.
        pub blocks: u64,
        /// The writers that ended.
        pub clients: Vec<ClientId>,
    }
}

record! {
    /// Clients begin or cease to write to chunks (beside those that an operation notes).
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Writers {
        /// Who.
        pub client: ClientId,
        /// To which files.
        pub inos: Vec<Ino>,
        /// They cease.
        pub cease: bool,
    } tags {
        /// They report while changes wait for what an earlier term has lent, which may cover these files.
        1 => pub held: Option<bool>,
    }
}

record! {
    /// Every participant knows of a decision.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Finished {
        /// The transaction.
        pub txid: TxnId,
    }
}

record! {
    /// An extent is being closed.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct SealBegun {
        pub ino: Ino,
        pub generation: Generation,
        /// Number of the extent.
        pub extent: u16,
        /// Stripes chosen for what comes behind it.
        pub stripes: Vec<Stripe>,
    }
}

record! {
    /// An extent is closed where its targets have sealed its chunk files.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Sealed {
        pub ino: Ino,
        /// Number of the seal.
        pub id: u64,
        /// Of each stripe; a target that does not seal leaves its stripe open.
        pub limits: Vec<Option<u64>>,
    }
}

record! {
    /// Every session that lived when service began in this era has told what it has open, or has ended: from now on rows say
    /// again of whom a new term waits.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct EraTold {}
}

record! {
    /// Nobody holds these files, and nothing was told of them.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Unheld {
        /// The files.
        pub inos: Vec<Ino>,
    }
}

union! {
    /// What the server itself decides.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum Internal {
        /// See [`Format`].
        Format(Format) = 1,
        /// See [`Serials`].
        Serials(Serials) = 2,
        /// See [`Place`].
        Place(Place) = 3,
        /// See [`Deleted`].
        Deleted(Deleted) = 4,
        /// See [`Trimmed`].
        Trimmed(Trimmed) = 5,
        /// See [`Purge`].
        Purge(Purge) = 6,
        /// See [`CancelGrowth`].
        CancelGrowth(CancelGrowth) = 7,
        /// See [`SessionGone`].
        SessionGone(SessionGone) = 8,
        /// See [`Recovered`].
        Recovered(Recovered) = 9,
        /// See [`Finished`].
        Finished(Finished) = 10,
        /// See [`Holds`].
        Holds(Holds) = 11,
        /// See [`Writers`].
        Writers(Writers) = 12,
        /// See [`SealBegun`].
        SealBegun(SealBegun) = 13,
        /// See [`Sealed`].
        Sealed(Sealed) = 14,
        /// See [`EraTold`].
        EraTold(EraTold) = 15,
        /// See [`Unheld`].
        Unheld(Unheld) = 16,
    }
}

/// What a command does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Somebody asked for it.
    Request(MetaRequest),
    /// The server decided.
    Internal(Internal),
}

/// Number that stands where a request's number would, before an internal action.
const INTERNAL: u16 = 0;

/// One entry of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// Semantic version.
    pub level: u16,
    /// The time of the change.
    pub at: Timestamp,
    /// The lane, when a client asked.
    pub caller: Option<Caller>,
    /// What was chosen.
    pub choices: Choices,
    pub action: Action,
}

/// Writes the bytes of a command without taking the request from its owner; `None`: no request of its kind changes rows.
pub fn encode_request(
    level: u16,
    at: Timestamp,
    caller: Option<Caller>,
    choices: &Choices,
    request: &MetaRequest,
) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(192);
    let level = if matches!(request, MetaRequest::Tell(_)) { level.max(LEVEL_OF_HELD) } else { level };
    encode_head(&mut out, level, at, caller, choices);
    change::encode(request, &mut out).then_some(out)
}

/// Writes the bytes of an internal command.
pub fn encode_internal(level: u16, at: Timestamp, internal: &Internal) -> Vec<u8> {
    let mut out = Vec::with_capacity(96);
    let level = if matches!(internal, Internal::Unheld(_)) { level.max(LEVEL_OF_HELD) } else { level };
    encode_head(&mut out, level, at, None, &Choices::default());
    INTERNAL.encode(&mut out);
    internal.encode(&mut out);
    out
}

fn encode_head(out: &mut Buffer, level: u16, at: Timestamp, caller: Option<Caller>, choices: &Choices) {
    level.encode(out);
    at.encode(out);
    caller.encode(out);
    choices.encode(out);
}

impl Command {
    /// Reads a command back. One of a newer level than this release knows is refused.
    pub fn decode(bytes: &[u8], shard: ShardId, index: LogIndex) -> Result<Self, StoreError> {
        Self::decode_up_to(COMMAND_LEVEL_MAX, bytes, shard, index)
    }

    fn decode_up_to(most: u16, bytes: &[u8], shard: ShardId, index: LogIndex) -> Result<Self, StoreError> {
        let mut r = Reader::new(bytes);
        let level =
            u16::decode(&mut r).map_err(|e| corrupt(&format!("log record {index} of shard {shard}"), e))?;
        if level > most {
            return Err(StoreError::Corrupt(format!(
                "log record {index} of shard {shard} has command level {level}, this release knows up to \
                 {most}; start the newer release of skep that wrote it"
            )));
        }
        Self::body(level, &mut r).map_err(|e| corrupt(&format!("log record {index} of shard {shard}"), e))
    }

    fn body(level: u16, r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let at = Timestamp::decode(r)?;
        let caller = Option::decode(r)?;
        let choices = Choices::decode(r)?;
        let number = u16::decode(r)?;
        let action = if number == INTERNAL {
            Action::Internal(Internal::decode(r)?)
        } else {
            Action::Request(change::decode(number, r)?)
        };
        r.finish("command")?;
        Ok(Self { level, at, caller, choices, action })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use skep_types::Name;
    use skep_wire::meta::Unlink;

    /// Goal: a command reads back what was written; truncations and newer levels are errors.
    #[test]
    fn commands_read_back() {
        let request = MetaRequest::Unlink(Unlink { parent: Ino(1), name: Name::new(b"a").unwrap() });
        let choices = Choices { held: Some(true), ..Choices::default() };
        let at = Timestamp { secs: 5, nanos: 6 };
        let caller = Caller { client: ClientId(1), incarnation: Incarnation(2), slot: Slot(3), seq: Seq(4) };
        let bytes = encode_request(COMMAND_LEVEL_MIN, at, Some(caller), &choices, &request).unwrap();
        let back = Command::decode(&bytes, ShardId(0), LogIndex(1)).unwrap();
        assert_eq!(back.action, Action::Request(request));
        assert_eq!((back.caller, back.choices, back.at), (Some(caller), choices, at));
        for n in 0..bytes.len() {
            assert!(Command::decode(&bytes[..n], ShardId(0), LogIndex(1)).is_err());
        }
        let mut newer = bytes;
        newer[0] = 0xff;
        let Err(StoreError::Corrupt(text)) = Command::decode(&newer, ShardId(0), LogIndex(1)) else {
            panic!("a newer level was accepted")
        };
        assert!(text.contains("newer release"));
        let internal = Internal::Purge(Purge { inos: alloc::vec![Ino(9)] });
        let back =
            Command::decode(&encode_internal(COMMAND_LEVEL_MIN, at, &internal), ShardId(0), LogIndex(1))
                .unwrap();
        assert_eq!(back.action, Action::Internal(internal));
    }

    /// Goal: a release that knows level 1 only reads all records but those about what somebody holds, and of these it says
    /// that a newer one wrote them, whatever level was in force.
    #[test]
    fn records_of_held_files_have_a_level_of_their_own() {
        use skep_types::codec::Draw;
        let at = Timestamp { secs: 5, nanos: 6 };
        let mut refused = Vec::new();
        let mut read = |name: &'static str, bytes: Vec<u8>| {
            assert!(Command::decode(&bytes, ShardId(0), LogIndex(1)).is_ok());
            match Command::decode_up_to(1, &bytes, ShardId(0), LogIndex(1)) {
                Ok(command) => assert_eq!(command.level, 1),
                Err(StoreError::Corrupt(text)) => {
                    assert!(text.contains("command level 2") && text.contains("newer release"), "{text}");
                    refused.push(name);
                }
                Err(e) => panic!("{e:?}"),
            }
        };
        for (name, request) in change::each(Draw::FULL) {
            read(name, encode_request(1, at, None, &Choices::default(), &request).unwrap());
        }
        for internal in Internal::each(Draw::FULL) {
            let name = if matches!(internal, Internal::Unheld(_)) { "Unheld" } else { "internal" };
            read(name, encode_internal(1, at, &internal));
        }
        assert_eq!(refused, ["Tell", "Unheld"]);
    }
}
