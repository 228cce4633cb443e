//! Typed calls to one service, connecting and connecting again as needed.

use skep_net::{Endpoint, Keyring, Link, NetError};
use skep_types::{
    ClientId, ClusterId, Decode, DecodeError, Encode, FenceEpoch, Incarnation, NodeId, Reader, Role,
};
use skep_wire::meta::{ShardCall, ShardStamp};
use skep_wire::{Header, Hello, Message, Refusal, VERSION_MAX, VERSION_MIN};
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

/// Why a call gave nothing.
#[derive(Debug)]
pub enum CallError {
    /// No connection, or it broke before the answer came.
    Net(NetError),
    /// The service refused.
    Refused(Refusal),
    /// The answer cannot be understood: releases that do not fit.
    Decode(DecodeError),
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Net(e) => fmt::Display::fmt(e, f),
            Self::Refused(refusal) => fmt::Display::fmt(refusal, f),
            Self::Decode(e) => {
                write!(f, "the answer cannot be understood ({e}); do both sides run the same release?")
            }
        }
    }
}

impl std::error::Error for CallError {}

impl From<DecodeError> for CallError {
    fn from(e: DecodeError) -> Self {
        Self::Decode(e)
    }
}

/// A hello of this role; who has a session or a node id fills it in.
pub fn hello(role: Role) -> Hello {
    Hello {
        version_min: VERSION_MIN,
        version_max: VERSION_MAX,
        features: 0,
        role,
        client: ClientId(0),
        incarnation: Incarnation(0),
        token: [0; 32],
        node: NodeId(0),
        group: 0,
        connection: 0,
        cluster: ClusterId::default(),
        epoch: FenceEpoch(0),
    }
}

/// A service and the connection to it, if there is one at the moment.
///
/// A broken connection is replaced and the request sent once more: use it for requests that may be
/// done twice (everything that mgmtd and storaged answer may).
pub struct Caller {
    keyring: Arc<Keyring>,
    endpoints: Vec<Endpoint>,
    /// Said at every connection.
    pub hello: Hello,
    link: Option<Link>,
    request: u64,
}

impl Caller {
    /// Connects at the first call.
    pub fn new(keyring: Arc<Keyring>, endpoints: Vec<Endpoint>, hello: Hello) -> Self {
        Self { keyring, endpoints, hello, link: None, request: 0 }
    }

    /// Ends the connection until the next call.
    pub fn hang_up(&mut self) {
        self.link = None;
    }

    /// Calls mgmtd or a storage daemon.
    pub fn call<M: Message>(&mut self, message: &M, deadline: Instant) -> Result<M::Reply, CallError> {
        let body = self.exchange(M::KIND, &message.to_bytes(), &mut [], deadline, &|| false)?;
        match body.status {
            0 => Ok(M::Reply::from_bytes(&body.bytes)?),
            _ => Err(CallError::Refused(Refusal::from_bytes(&body.bytes)?)),
        }
    }

    pub fn call_shard<M: Message>(
        &mut self,
        shard: ShardCall,
        message: &M,
        deadline: Instant,
    ) -> Result<(ShardStamp, M::Reply), CallError> {
        let mut request = shard.to_bytes();
        message.encode(&mut request);
        let body = self.exchange(M::KIND, &request, &mut [], deadline, &|| false)?;
        let mut r = Reader::new(&body.bytes);
        let stamp = ShardStamp::decode(&mut r)?;
        match body.status {
            0 => Ok((stamp, M::Reply::decode(&mut r)?)),
            _ => Err(CallError::Refused(Refusal::decode(&mut r)?)),
        }
    }

    /// Sends bytes and gives back the answer's; the link is kept when it is still good.
    pub fn exchange(
        &mut self,
        kind: u16,
        body: &[u8],
        into: &mut [u8],
        deadline: Instant,
        cancelled: &dyn Fn() -> bool,
    ) -> Result<Body, CallError> {
        let kept = self.link.is_some();
        match self.try_exchange(kind, body, into, deadline, cancelled) {
            // A kept connection may have been closed while it was idle.
            Err(CallError::Net(e)) if kept && !e.is_timeout() && !e.is_cancelled() => {
                self.try_exchange(kind, body, into, deadline, cancelled)
            }
            other => other,
        }
    }

    fn try_exchange(
        &mut self,
        kind: u16,
        body: &[u8],
        into: &mut [u8],
        deadline: Instant,
        cancelled: &dyn Fn() -> bool,
    ) -> Result<Body, CallError> {
        let mut link = match self.link.take() {
            Some(link) => link,
            None => {
                self.hello.connection += 1;
                Link::connect(&self.endpoints, &self.keyring, &self.hello, deadline)
                    .map_err(CallError::Net)?
            }
        };
        self.request += 1;
        let header = Header { epoch: self.hello.epoch, ..Header::request(kind, self.request) };
        link.send(&header, body, &[]).map_err(CallError::Net)?;
        let answer = loop {
            let frame = link.recv(into, deadline, cancelled).map_err(CallError::Net)?;
            // An answer to an earlier, abandoned request is passed over.
            if frame.header.request == self.request {
                break Body { status: frame.header.status, bytes: frame.body.to_vec() };
            }
        };
        self.link = Some(link);
        Ok(answer)
    }
}

/// An answer as it came.
pub struct Body {
    /// 0, or why the request was refused.
    pub status: u32,
    /// The reply or the refusal.
    pub bytes: Vec<u8>,
}
