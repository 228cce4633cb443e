//! Hands: links, handshake, servers. Moves frames between processes and proves who is at the
//! other end; decides nothing about what the frames say. Bytes: `docs/design/wire.md`.
//!
//! - [`Link`]: the blocking side that asks (mounts, couriers, commands).
//! - [`EventServer`]: one thread, epoll, many connections (mgmtd, metad).
//! - [`StreamServer`]: a thread per connection (storaged).
//! - [`ring`]: the asking side of a thread that serves many requests at once.
//! - [`Keyring`]: the keys of the roles; [`Endpoint`]: where a service listens.

mod address;
mod clock;
mod error;
mod event;
mod frame;
mod handshake;
mod inbound;
mod key;
mod link;
pub mod log;
mod machine;
mod memory;
mod outbound;
mod payload;
mod peer;
pub mod ring;
mod role;
mod seal;
mod socket;
mod stream;
mod waker;

pub use address::{Endpoint, EndpointError, choose};
pub use clock::{boot, now, wall};
pub use error::{Cause, NetError};
pub use event::{ConnId, EventLimits, EventServer, Replies, Service};
#[cfg(feature = "testing")]
pub use handshake::meet_stranger;
pub use handshake::{CLOSED_KEYS_HINT, HANDSHAKE_DEADLINE, HANDSHAKE_MESSAGE_MAX, PREAMBLE_LEN};
pub use key::{KeyError, KeyFile, Keyring};
pub use link::{Frame, Link, SEND_DEADLINE};
pub use log::Log;
pub use machine::machine_id;
pub use payload::Payload;
pub use peer::{Peer, PeerInfo};
pub use role::{may_call, role_may};
pub use skep_ring::look_again_for;
pub use socket::{Listener, PEER_DEAD_AFTER};
pub use stream::{Answer, Handler, StreamLimits, StreamServer};
pub use waker::{StopHandle, Waker};

#[cfg(test)]
mod testing;
