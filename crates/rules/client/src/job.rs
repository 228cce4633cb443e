//! One request of an operation, on its way to its answer.

use crate::state::{Change, Heard, Sent, Told};
use alloc::boxed::Box;
use alloc::vec::Vec;
use skep_types::{
    ClientId, Decode, DecodeError, Encode, Errno, Incarnation, Ino, NodeId, Reader, ShardId, TargetId,
};
use skep_wire::meta::{Closed, Events, Recalled, RemoveDir, Rename, ShardCall, ShardStamp, Unlink, Wish};
use skep_wire::{Message, Refusal};

/// To whom a request goes. Which node that is, the map says at every try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum To {
    /// The management service.
    Mgmt,
    /// The metadata server that leads a shard.
    Shard(ShardId),
    /// The storage daemon of a target.
    Target(TargetId),
}

/// A request with its outcome.
#[derive(Debug)]
pub(crate) struct Job<'a> {
    pub to: To,
    pub kind: u16,
    pub body: Vec<u8>,
    pub payload: &'a [u8],
    pub into: &'a mut [u8],
    /// It has a sequence number: it changes something.
    pub changing: bool,
    /// What it changes, as far as that has a number: an fsync of one of these answers for it.
    pub of: [Option<Ino>; 2],
    /// The names that it changes, with their directories.
    pub names: [Option<(Ino, Box<[u8]>)>; 2],
    /// It makes a file that this mount would hold.
    pub may_hold: bool,
    /// The number of the open of what it makes.
    pub makes_open: Option<u64>,
    /// It may have been executed by an earlier try.
    pub unsure: bool,
    /// A server has said what became of it.
    pub is_answered: bool,
    /// This try, where leases are asked for.
    pub sent: Option<Sent>,
    /// What the answer said beside its body.
    pub told: Option<Box<Told>>,
    /// The session in which it was sent last without an outcome, or refused because that had ended; 0 = none.
    pub sent_as: ClientId,
    /// It was given this session for its place, and means nothing in another.
    pub bound: Option<ClientId>,
    /// It brings what waited of this file, and is sent only while the mount is heard so still.
    pub waited: Option<(Ino, Heard)>,
    /// Where it goes in this try; `None` = the map does not say.
    pub node: Option<NodeId>,
    /// The last try had no answer at all.
    pub unanswered: bool,
    /// The last try came to the wrong server, and it is known how to find the right one.
    pub sent_on: bool,
    /// Why the last try did not settle it.
    pub trouble: Option<Refusal>,
    pub settled: Option<Result<Reply, Refusal>>,
}

/// An accepted answer.
#[derive(Debug)]
pub(crate) struct Reply {
    /// Body without the stamp.
    pub body: Vec<u8>,
    pub stamp: ShardStamp,
    pub payload_len: usize,
    pub node: NodeId,
    pub incarnation: Incarnation,
    /// The session that asked.
    pub client: ClientId,
}

impl Reply {
    /// Reads the body. A body that cannot be read is a fault of the server: EIO.
    pub fn read<T: Decode>(&self) -> Result<T, Refusal> {
        T::from_bytes(&self.body).map_err(garbled)
    }
}

/// The refusal for an answer that cannot be understood.
pub(crate) fn garbled(error: DecodeError) -> Refusal {
    Refusal::with(Errno::EIO.into_status(), alloc::format!("an answer cannot be understood: {error}"))
}

/// Splits the body of a shard's answer.
pub(crate) fn split_stamp(body: &[u8]) -> Result<(ShardStamp, &[u8]), DecodeError> {
    let mut r = Reader::new(body);
    let stamp = ShardStamp::decode(&mut r)?;
    let rest = r.remaining();
    Ok((stamp, &body[body.len() - rest..]))
}

/// Shorthand for refusals made by the client itself.
pub(crate) trait IntoStatus {
    /// As the status of a refusal.
    fn into_status(self) -> skep_wire::Status;
}

impl IntoStatus for Errno {
    fn into_status(self) -> skep_wire::Status {
        skep_wire::Status::errno(self)
    }
}

impl Job<'_> {
    /// A request without payload.
    pub fn new(to: To, kind: u16, body: Vec<u8>, changing: bool) -> Self {
        Self {
            to,
            kind,
            body,
            payload: &[],
            into: &mut [],
            changing,
            of: [None; 2],
            names: [None, None],
            may_hold: false,
            makes_open: None,
            unsure: false,
            is_answered: false,
            sent: None,
            told: None,
            sent_as: ClientId(0),
            bound: None,
            waited: None,
            node: None,
            unanswered: false,
            sent_on: false,
            trouble: None,
            settled: None,
        }
    }

    /// What is known at this try: the shard's epoch, and what the mount has of leases.
    pub fn tell(&mut self, epoch: u64) {
        let mut r = Reader::new(&self.body);
        let Ok(call) = ShardCall::decode(&mut r) else { return };
        let hold = if self.may_hold { Wish::HOLD } else { 0 };
        let wish = self.sent.filter(|sent| sent.wishes).map(|_| Wish::SHARED | hold);
        let lapses = self.sent.map(|sent| sent.lapses);
        if (call.epoch, call.wish, call.lapses) != (epoch, wish, lapses) {
            let head = self.body.len() - r.remaining();
            self.body.splice(..head, ShardCall { epoch, wish, lapses, ..call }.to_bytes());
        }
    }

    /// It says also that this is closed.
    pub fn closing(mut self, closed: Option<Closed>) -> Self {
        let mut r = Reader::new(&self.body);
        if let (Some(_), Ok(call)) = (closed, ShardCall::decode(&mut r)) {
            let head = self.body.len() - r.remaining();
            self.body.splice(..head, ShardCall { closed, ..call }.to_bytes());
        }
        self
    }

    /// May its answer give leases? Those that wait for long, and are about none, would only be waited for.
    pub fn wishes(&self) -> bool {
        ![Events::KIND, Recalled::KIND].contains(&self.kind)
    }

    /// What it changes, for those who might believe otherwise; `None`: nothing.
    pub fn change(&mut self) -> Option<Change> {
        let names = core::mem::take(&mut self.names);
        (self.of != [None; 2]).then_some(Change { inos: self.of, names, ..Change::default() })
    }

    /// Directories may go by it, or move.
    pub fn moves_dirs(&self) -> bool {
        [RemoveDir::KIND, Rename::KIND].contains(&self.kind)
    }

    /// What the names that it changes lead to may lose them.
    pub fn takes_names(&self) -> bool {
        self.kind == Unlink::KIND || self.moves_dirs()
    }

    /// It changes this name.
    pub fn naming(mut self, dir: Ino, name: &[u8]) -> Self {
        let free = self.names.iter_mut().find(|place| place.is_none());
        *free.expect("no request changes more than two names") = Some((dir, name.into()));
        self
    }

    /// It changes this one as well.
    pub fn and_of(mut self, ino: Ino) -> Self {
        self.of[1] = Some(ino);
        self
    }

    /// Takes the outcome; only after [`crate::Lane`] has run the job.
    pub fn take(&mut self) -> Result<Reply, Refusal> {
        self.settled.take().unwrap_or_else(|| Err(Errno::EIO.into()))
    }
}
