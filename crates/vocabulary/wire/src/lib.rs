//! Vocabulary: what goes over a connection. A frame is `header | body | payload`; the header says
//! which message the body is. One file per message, grouped by the service that answers it.
//! Nothing here decides anything; see `docs/design/wire.md` for the bytes.
#![no_std]
#![warn(missing_docs)]
extern crate alloc;

mod header;
mod hello;
mod message;
mod refusal;

pub mod formats;
pub mod instrument;
pub mod meta;
pub mod mgmt;
pub mod storage;

pub use header::{Crc32c, Flags, HEADER_LEN, Header, HeaderError, MAGIC, VERSION_MAX, VERSION_MIN};
pub use hello::{Hello, Protection, SHARED_MEMORY, SessionToken, Welcome};
pub use message::{Empty, Message, Visitor};
pub use refusal::{Lead, Refusal, Status, View};
