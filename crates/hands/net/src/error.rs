//! What can go wrong with a link, said so that a person knows what to do.

use skep_wire::{HeaderError, Refusal};
use std::fmt;
use std::io;

#[derive(Debug)]
pub enum Cause {
    /// No address of the peer could be reached.
    Unreachable(io::Error),
    /// The peer answered the handshake with a refusal.
    Refused(Refusal),
    /// The handshake failed: keys, roles or versions do not fit.
    Handshake(String),
    /// The connection ended.
    Closed,
    /// The socket failed.
    Io(io::Error),
    /// No answer within the deadline.
    TimedOut,
    /// The caller gave up.
    Cancelled,
    /// The frame is damaged or not allowed.
    Header(HeaderError),
    /// Payload and checksum do not match.
    PayloadChecksum,
    /// The frame's MAC is wrong: changed, repeated, reordered or left out on the way.
    Mac,
    /// The payload does not fit where it was to go.
    PayloadTooLong {
        /// Bytes that came.
        got: usize,
        /// Bytes of room.
        room: usize,
    },
    /// An earlier failure left the link in the middle of a frame.
    Broken,
    /// What was to be sent is longer than the limit.
    TooLong,
    /// An answer came to a request that was never made.
    Unasked,
}

impl Cause {
    /// The same once more, for another one who waits.
    pub(crate) fn again(&self) -> Self {
        let copy = |e: &io::Error| io::Error::new(e.kind(), e.to_string());
        match self {
            Self::Unreachable(e) => Self::Unreachable(copy(e)),
            Self::Refused(refusal) => Self::Refused(refusal.clone()),
            Self::Handshake(text) => Self::Handshake(text.clone()),
            Self::Closed => Self::Closed,
            Self::Io(e) => Self::Io(copy(e)),
            Self::TimedOut => Self::TimedOut,
            Self::Cancelled => Self::Cancelled,
            Self::Header(e) => Self::Header(*e),
            Self::PayloadChecksum => Self::PayloadChecksum,
            Self::Mac => Self::Mac,
            Self::PayloadTooLong { got, room } => Self::PayloadTooLong { got: *got, room: *room },
            Self::Broken => Self::Broken,
            Self::TooLong => Self::TooLong,
            Self::Unasked => Self::Unasked,
        }
    }

    /// Of an operation of a ring.
    pub(crate) fn from_io(e: io::Error) -> Self {
        match rustix::io::Errno::from_io_error(&e) {
            Some(errno) => errno.into(),
            None => Self::Io(e),
        }
    }
}

/// An error of a link to a named peer.
#[derive(Debug)]
pub struct NetError {
    /// The peer's address.
    pub peer: String,
    pub cause: Cause,
}

impl NetError {
    pub(crate) fn new(peer: impl Into<String>, cause: Cause) -> Self {
        Self { peer: peer.into(), cause }
    }

    /// No answer within the deadline (the link may still be used when nothing of the answer had come).
    pub fn is_timeout(&self) -> bool {
        matches!(self.cause, Cause::TimedOut)
    }

    /// The caller's `cancelled` said so.
    pub fn is_cancelled(&self) -> bool {
        matches!(self.cause, Cause::Cancelled)
    }

    /// The refusal of the handshake, when that is the cause.
    pub fn refusal(&self) -> Option<&Refusal> {
        match &self.cause {
            Cause::Refused(refusal) => Some(refusal),
            _ => None,
        }
    }

    /// The process (or the system) has no descriptor left for another connection.
    pub fn lacks_descriptors(&self) -> bool {
        use rustix::io::Errno;
        let (Cause::Unreachable(e) | Cause::Io(e)) = &self.cause else { return false };
        matches!(Errno::from_io_error(e), Some(Errno::MFILE | Errno::NFILE))
    }

    /// Will the same attempt fail again until a person changes something (a key, a version)?
    pub fn is_permanent(&self) -> bool {
        matches!(self.cause, Cause::Handshake(_) | Cause::TooLong)
    }
}

impl fmt::Display for NetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.peer, self.cause)
    }
}

impl std::error::Error for NetError {}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable(e) => {
                write!(f, "cannot connect ({e}); is the service running and the address right?")
            }
            Self::Refused(refusal) => write!(f, "connection refused by the service: {refusal}"),
            Self::Handshake(text) => f.write_str(text),
            Self::Closed => f.write_str("the connection was closed by the other side; connect again"),
            Self::Io(e) => write!(f, "the connection failed ({e}); connect again"),
            Self::TimedOut => {
                f.write_str("no answer within the deadline; is the service overloaded or its host down?")
            }
            Self::Cancelled => f.write_str("given up by the caller"),
            Self::Header(e) => fmt::Display::fmt(e, f),
            Self::PayloadChecksum => {
                f.write_str("payload checksum does not match: the network or memory damaged it")
            }
            Self::Mac => f.write_str("frame authentication failed: it was changed or replayed on the way"),
            Self::PayloadTooLong { got, room } => {
                write!(f, "a payload of {got} bytes came where at most {room} were asked for")
            }
            Self::Broken => {
                f.write_str("an earlier failure cut this link in the middle of a frame; connect again")
            }
            Self::Unasked => f.write_str("an answer came that belongs to no request; connect again"),
            Self::TooLong => f.write_str("the frame to be sent is longer than the limits allow"),
        }
    }
}

impl From<HeaderError> for Cause {
    fn from(e: HeaderError) -> Self {
        Self::Header(e)
    }
}

impl From<rustix::io::Errno> for Cause {
    fn from(e: rustix::io::Errno) -> Self {
        use rustix::io::Errno;
        match e {
            Errno::CONNRESET | Errno::PIPE | Errno::NOTCONN => Self::Closed,
            Errno::TIMEDOUT => Self::Io(io::Error::new(io::ErrorKind::TimedOut, "its host does not answer")),
            e => Self::Io(e.into()),
        }
    }
}
