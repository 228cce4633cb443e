//! Why a request was not done.

use crate::storage::Clock;
use alloc::boxed::Box;
use alloc::string::String;
use core::fmt;
use skep_types::codec::{Buffer, Decode, DecodeError, Draw, Encode, Example, Reader};
use skep_types::{Errno, MapVersion, NodeId, Term, record};

/// The `status` of a refused request: a Linux error for the program, or (from 4096 on) an
/// answer that only the client itself acts upon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Status(pub u32);

impl Status {
    /// The target is not served here: the sender's map is old, and a newer one says where it is.
    pub const STALE_MAP: Self = Self(4096);
    /// The layout generation is old: ask the shard for the layout, send again.
    pub const STALE_GENERATION: Self = Self(4097);
    /// The sender was evicted: its session and everything it held is gone.
    pub const FENCED: Self = Self(4098);
    /// The receiver must first learn of a newer fence epoch, or is starting: send again shortly.
    pub const NOT_READY: Self = Self(4099);
    /// The shard is in its grace period and cannot answer this yet: send again shortly.
    pub const GRACE: Self = Self(4100);
    /// The slot is behind this request: an older duplicate, dropped without effect.
    pub const OLD_SEQUENCE: Self = Self(4101);
    /// A limit is reached for the moment: send again after a pause.
    pub const BUSY: Self = Self(4102);
    /// Acknowledged changes were lost by a power cut: the next fsync must fail.
    pub const LOST_HISTORY: Self = Self(4103);
    /// The file must leave the metadata first: see `Grow`.
    pub const MUST_GROW: Self = Self(4104);
    /// The role of the connection does not allow this message.
    pub const ROLE: Self = Self(4105);
    /// The message cannot be understood.
    pub const MALFORMED: Self = Self(4106);
    /// The target lost unsynced writes since the sender's write.
    pub const LOST_WRITES: Self = Self(4107);
    /// The file was cut since the size was known: ask the targets where what was written ends, send that.
    pub const STALE_SIZE: Self = Self(4108);
    /// The file was truncated since the sender looked at its chunk files: ask for the layout, look again.
    pub const CUT_SINCE: Self = Self(4120);
    /// A chunk file is missing, or shorter than its floor: ask the shard whether that still holds.
    pub const LOST_CHUNK: Self = Self(4121);

    /// The chunk file is sealed in front of what is asked for: ask the shard for the newer layout.
    pub const STALE_LAYOUT: Self = Self(4122);
    /// The target has heard of a later term of the shard: the sender's was ended, it has nothing to say any more.
    pub const OLD_TERM: Self = Self(4123);
    /// Another server leads the shard: [`Refusal::lead`] says which, send there.
    pub const NOT_LEADER: Self = Self(4124);
    /// Nobody can be named here who answers for the shard: fetch the map ([`Refusal::view`]), look where it is.
    pub const ELSEWHERE: Self = Self(4125);
    /// The sender does not hold the file that it tells of: it has told that before, or its hold has ended otherwise.
    pub const NOT_HELD: Self = Self(4126);
    /// The sender was not heard while others waited for the file that it held, and it was changed by others since.
    pub const HOLD_PASSED: Self = Self(4127);
    /// The write came to its target later than it counts there, or was meant for another run of its daemon: nothing of it was
    /// written. [`Refusal::clock`] says what the clock shows.
    pub const TOO_LATE: Self = Self(4128);

    /// A Linux error as status.
    pub fn errno(errno: Errno) -> Self {
        Self(u32::from(errno.0))
    }

    /// The Linux error, when it is one.
    pub fn as_errno(self) -> Option<Errno> {
        (1..4096).contains(&self.0).then_some(Errno(self.0 as u16))
    }

    /// It came to a server that does not have what it is about: worth sending again to the one that has.
    pub fn is_misdirected(self) -> bool {
        matches!(self, Self::STALE_MAP | Self::NOT_LEADER | Self::ELSEWHERE)
    }

    /// Worth sending again after a pause, unchanged.
    pub fn is_transient(self) -> bool {
        matches!(self, Self::NOT_READY | Self::GRACE | Self::BUSY)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match *self {
            Self::STALE_MAP => "the cluster map used is old",
            Self::STALE_GENERATION => "the layout used is old",
            Self::FENCED => "this client was evicted",
            Self::NOT_READY => "the service is not ready",
            Self::GRACE => "the shard is in its grace period",
            Self::OLD_SEQUENCE => "an older duplicate",
            Self::BUSY => "a limit is reached",
            Self::LOST_HISTORY => "acknowledged changes were lost by a power cut",
            Self::MUST_GROW => "the file does not fit into the metadata",
            Self::ROLE => "this role may not send that",
            Self::MALFORMED => "the message cannot be understood",
            Self::LOST_WRITES => "the target lost unsynced writes",
            Self::STALE_SIZE => "the file was cut since",
            Self::CUT_SINCE => "the file was truncated meanwhile",
            Self::STALE_LAYOUT => "the layout used is from before the extent was closed",
            Self::OLD_TERM => "the shard has gone on in a later term",
            Self::NOT_LEADER => "another server leads the shard",
            Self::ELSEWHERE => "the shard is somewhere else",
            Self::NOT_HELD => "this mount does not hold the file",
            Self::HOLD_PASSED => "this mount was not heard, and others have changed the file since",
            Self::TOO_LATE => "it came to the target later than it counts",
            Self::LOST_CHUNK => "a chunk file is missing or too short",
            _ => match self.as_errno() {
                Some(errno) => return fmt::Display::fmt(&errno, f),
                None => return write!(f, "status {}", self.0),
            },
        };
        f.write_str(text)
    }
}

impl Example for Status {
    fn example(draw: Draw) -> Self {
        Self(Example::example(draw))
    }
}

impl Encode for Status {
    fn encode(&self, out: &mut Buffer) {
        self.0.encode(out);
    }
}

impl Decode for Status {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self(u32::decode(r)?))
    }
}

record! {
    /// Who leads a shard, as the map of the refusing server says.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Lead {
        /// Its server.
        pub node: NodeId,
        /// The shard's epoch there: who knows a later one knows better.
        pub epoch: u64,
    }
}

record! {
    /// What the refusing server knows of the map, and the sender should know before it asks again.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct View {
        /// Its map.
        pub map: MapVersion,
        /// The shard's epoch in it; 0 = the map does not have the shard.
        pub epoch: u64,
    }
}

record! {
    /// The body of a refused request's answer.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Refusal {
        /// Why.
        pub status: Status,
        /// What, where and what to do, for people; may be empty.
        pub detail: String,
    } tags {
        /// OLD_TERM: the term of the shard that was heard of.
        1 => pub term: Option<Term>,
        /// With NOT_LEADER.
        2 => pub lead: Option<Lead>,
        /// With ELSEWHERE. (In a box, as the next one: few refusals have it, and all are moved about a lot.)
        3 => pub view: Option<Box<View>>,
        /// With TOO_LATE: what the target's clock shows.
        4 => pub clock: Option<Box<Clock>>,
    }
}

impl Refusal {
    /// Without text.
    pub fn new(status: Status) -> Self {
        Self::with(status, String::new())
    }

    /// With text for people.
    pub fn with(status: Status, detail: impl Into<String>) -> Self {
        Self { status, detail: detail.into(), term: None, lead: None, view: None, clock: None }
    }
}

impl From<Errno> for Refusal {
    fn from(errno: Errno) -> Self {
        Self::new(Status::errno(errno))
    }
}

impl From<Status> for Refusal {
    fn from(status: Status) -> Self {
        Self::new(status)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.detail.is_empty() {
            write!(f, "{}", self.status)
        } else {
            write!(f, "{} ({})", self.detail, self.status)
        }
    }
}

impl core::error::Error for Refusal {}
