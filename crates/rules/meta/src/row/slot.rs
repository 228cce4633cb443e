//! The slot row: the last changing request of a client's lane, and its answer.

use skep_types::codec::{Buffer, Bytes, Draw, Example};
use skep_types::{Decode, DecodeError, Encode, Incarnation, Ino, LogIndex, Reader, Seq, Term, record};

record! {
    /// A truncate that targets are told of.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    pub struct TrimGate {
        pub ino: Ino,
        /// Number of the trim.
        pub id: u64,
    }
}

/// What must have happened before an answer may leave (or a request may run).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Gate {
    /// Nothing.
    Open,
    /// The log record is durable.
    Durable,
    /// All targets confirmed a truncate.
    Trim(TrimGate),
}

impl Example for Gate {
    fn example(draw: Draw) -> Self {
        let trim = Example::example(draw);
        draw.one(&[Self::Open, Self::Durable, Self::Trim(trim)])
    }
}

impl Encode for Gate {
    fn encode(&self, out: &mut Buffer) {
        match self {
            Self::Open => out.push(0),
            Self::Durable => out.push(1),
            Self::Trim(trim) => {
                out.push(2);
                trim.encode(out);
            }
        }
    }
}

impl Decode for Gate {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match u8::decode(r)? {
            0 => Self::Open,
            1 => Self::Durable,
            2 => Self::Trim(TrimGate::decode(r)?),
            _ => return Err(DecodeError::Invalid("gate")),
        })
    }
}

record! {
    /// The last changing request of a lane on this shard.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct SlotRow {
        /// Life of the client.
        pub incarnation: Incarnation,
        pub seq: Seq,
        /// Term of its log record.
        pub term: Term,
        /// Index of its log record.
        pub index: LogIndex,
        /// What the answer waits for.
        pub gate: Gate,
        /// The body of the answer.
        pub body: Bytes,
    }
}
