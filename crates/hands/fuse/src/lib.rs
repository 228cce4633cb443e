//! Hands: the FUSE kernel protocol and its transports.
//!
//! Layers, each usable without the ones below it:
//!
//! * [`abi`]: the kernel's structures and numbers, byte for byte.
//! * [`Filesystem`]: what a file system answers, one asynchronous method per operation.
//! * [`dispatch`]: request bytes in, reply bytes out; a pure function over a [`Filesystem`], so it is tested
//!   and fuzzed without a kernel.
//! * [`Fuse`]: a mounted file system, whose requests come through `io_uring` queues, one thread for each CPU, or
//!   through the classic `/dev/fuse`. Both call `dispatch` and nothing else of the file system.
//! * `empty`, with the feature `testing`: an in-memory file system without data, the baseline that benchmarks compare
//!   with.
//!
//! The kernel must be Linux 6.1 (FUSE 7.36) or newer; what a kernel does not grant is listed by
//! [`Negotiated::losses`].

pub mod abi;
mod attributes;
mod buffer;
mod decode;
mod dev;
mod device;
mod dir_sink;
mod dispatch;
#[cfg(any(test, feature = "testing"))]
pub mod empty;
mod errno;
mod error;
mod facts;
mod filesystem;
mod fuse;
mod heap;
mod interrupt;
mod mount;
mod negotiate;
mod notices;
mod notify;
mod parked;
mod requests;
mod sizes;
mod transport;
mod uring;

pub use abi::opcode::OPERATIONS;
pub use attributes::{Attr, AttrReply, Entry, FileKind, OpenFlags, Opened, StatFs, Time};
pub use buffer::{ReplyBuffer, RequestBuffer};
pub use decode::NAME_MAX;
pub use dev::{DEFAULT_IDLE_WORKERS, DEFAULT_QUIET, DEFAULT_WORKERS, DevOptions, RESERVE_WORKERS};
pub use dir_sink::{DirSink, Full};
pub use dispatch::{Answer, dispatch};
pub use errno::Errno;
pub use error::MountError;
pub use facts::ends_can_be_known;
pub use filesystem::{Filesystem, Mount, RingThread};
pub use fuse::{Fuse, FuseOptions};
pub use heap::give_back_memory;
pub use interrupt::Interrupt;
pub use mount::{MountFlags, MountOptions, Unmounter, remount, replace_stale, unmount};
pub use negotiate::{InitConfig, InitFlags, InitStep, Negotiated, negotiate};
pub use notify::{Dropped, Notifier};
pub use parked::{NoParking, Park, ParkedReply, Waited};
pub use requests::{
    Context, CopyRange, CreateRequest, FallocateRequest, FileLock, Forgets, IoctlRequest, LockKind,
    LockRequest, OpenRequest, ReadRequest, ReleaseRequest, SetAttr, SetTime, WriteRequest,
};
pub use sizes::{Looks, Sizes};
pub use transport::{Ending, Serving, Transport};
pub use uring::{
    ADDED_PER_QUEUE, DEFAULT_DEPTH, DEFAULT_THREADS, ENTRIES_LIMIT, PARKED_PER_QUEUE, RESERVE_PER_THREAD,
    UringOptions,
};
