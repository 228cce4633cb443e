//! Hands: the FUSE kernel protocol and its transports.
//!
//! Layers, each usable without the ones below it:
//!
//! * [`abi`]: the kernel's structures and numbers, byte for byte.
//! * [`Filesystem`]: what a file system answers, one asynchronous method per operation.
//! * [`dispatch`]: request bytes in, reply bytes out; a pure function over a [`Filesystem`], so it is tested
//!   and fuzzed without a kernel.
//! * [`Transport`]: carries bytes between the kernel and `dispatch`. [`DevFuse`] is the classic `/dev/fuse` loop.
//! * [`empty`]: an in-memory file system without data: the baseline that benchmarks compare with.
//!
//! The kernel must be Linux 6.1 (FUSE 7.36) or newer; what a kernel does not grant is listed by
//! [`Negotiated::losses`].

pub mod abi;
mod attributes;
mod buffer;
mod decode;
mod dev;
mod dir_sink;
mod dispatch;
pub mod empty;
mod errno;
mod filesystem;
mod interrupt;
mod negotiate;
mod requests;
mod transport;

pub use attributes::{Attr, AttrReply, Entry, FileKind, OpenFlags, Opened, StatFs, Time};
pub use buffer::{ReplyBuffer, RequestBuffer};
pub use decode::NAME_MAX;
pub use dev::{
    DEFAULT_IDLE_WORKERS, DEFAULT_QUIET, DEFAULT_WORKERS, DevFuse, DevOptions, MountError, MountFlags,
    MountOptions, Notifier, replace_stale, unmount,
};
pub use dir_sink::{DirSink, Full};
pub use dispatch::{Answer, dispatch};
pub use errno::Errno;
pub use filesystem::{Filesystem, Mount};
pub use interrupt::{Interrupt, InterruptTable, Interrupted};
pub use negotiate::{InitConfig, InitFlags, InitStep, Negotiated, negotiate};
pub use requests::{
    Context, CopyRange, CreateRequest, FallocateRequest, FileLock, Forgets, IoctlRequest, LockKind,
    LockRequest, OpenRequest, ReadRequest, ReleaseRequest, SetAttr, SetTime, WriteRequest,
};
pub use transport::{Ending, Transport};
