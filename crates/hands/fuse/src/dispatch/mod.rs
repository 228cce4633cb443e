//! From request bytes to reply bytes: decodes, calls the file system, encodes. No kernel, thread or descriptor is
//! involved, so everything here is tested and fuzzed as a function.

mod control;
mod directory;
mod file;
#[cfg(test)]
mod fuzz;
mod namespace;
mod node;
#[cfg(test)]
mod tests;
mod xattr;

use zerocopy::FromBytes;

use crate::abi::control::InterruptIn;
use crate::abi::file::{READ_LOCKOWNER, ReadIn, WRITE_LOCKOWNER, WriteIn};
use crate::abi::header::{IN_HEADER, InHeader};
use crate::abi::node::{SetattrIn, fattr};
use crate::abi::opcode;
use crate::decode::Body;
use crate::{Context, Errno, Filesystem, Interrupt, Park, ReplyBuffer, Waited};

/// What to do after a request was dispatched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Send the first so many bytes of the reply buffer.
    Reply(usize),
    /// Nothing is to be sent.
    NoReply,
    /// The request was parked: its answer comes through the [`crate::ParkedReply`].
    Later,
    /// The kernel wants the request with this number given up: tell the [`crate::InterruptTable`].
    Interrupt {
        /// Number of the request to interrupt.
        unique: u64,
    },
}

/// A request whose header is taken off.
struct Call<'a> {
    cx: Context<'a>,
    ino: u64,
    body: Body<'a>,
}

/// Length of a reply's payload.
type Payload = Result<usize, Errno>;

/// The number of a request, before dispatching it.
pub(crate) fn unique_of(request: &[u8]) -> Option<u64> {
    InHeader::read_from_prefix(request).ok().map(|(header, _)| header.unique)
}

/// Whether a notification that drops pages may wait for this request: a read that fills pages (a program's own names its
/// owner), a write out of pages or through them, a change of the size, during which the kernel writes no page back. What
/// wants no answer counts as well. A file system answers these without waiting for a notification.
pub(crate) fn is_awaited(request: &[u8]) -> bool {
    // What cannot be read is refused at once.
    let Ok((header, body)) = InHeader::read_from_prefix(request) else { return true };
    match header.opcode {
        opcode::READ => {
            ReadIn::read_from_prefix(body).is_ok_and(|(read, _)| read.read_flags & READ_LOCKOWNER == 0)
        }
        opcode::WRITE => {
            WriteIn::read_from_prefix(body).is_ok_and(|(write, _)| write.write_flags & WRITE_LOCKOWNER == 0)
        }
        opcode::SETATTR => {
            SetattrIn::read_from_prefix(body).is_ok_and(|(set, _)| set.valid & fattr::SIZE != 0)
        }
        other => opcode::is_one_way(other),
    }
}

/// Fills `reply` with an error for `request`.
pub(crate) fn refuse(request: &[u8], errno: Errno, reply: &mut ReplyBuffer) -> Answer {
    match unique_of(request) {
        Some(unique) => Answer::Reply(reply.finish(unique, Err(errno))),
        None => Answer::NoReply,
    }
}

/// Answers one request. Whatever the bytes are, it does not panic, and every request that the kernel waits for gets
/// a well-formed reply with its own number.
pub async fn dispatch<F: Filesystem>(
    fs: &F,
    request: &[u8],
    interrupt: Interrupt<'_>,
    parking: &dyn Park,
    reply: &mut ReplyBuffer,
) -> Answer {
    let Ok((header, _)) = InHeader::read_from_prefix(request) else { return Answer::NoReply };
    let extensions = usize::from(header.total_extlen) * 8;
    let body = match request.get(IN_HEADER..request.len().saturating_sub(extensions)) {
        Some(body) if header.len as usize == request.len() => body,
        _ if opcode::is_one_way(header.opcode) => return Answer::NoReply,
        _ => return refuse(request, Errno::EINVAL, reply),
    };
    let mut call = Call {
        cx: Context {
            unique: header.unique,
            uid: header.uid,
            gid: header.gid,
            pid: header.pid,
            umask: 0,
            interrupt,
            parking,
        },
        ino: header.nodeid,
        body: Body::new(body),
    };
    if opcode::is_one_way(header.opcode) {
        return one_way(fs, header.opcode, &mut call).await;
    }
    let since = fs.clock();
    let outcome = match header.opcode {
        opcode::SETLK | opcode::SETLKW => {
            match control::setlk(fs, &mut call, header.opcode == opcode::SETLKW).await {
                Ok(Waited::Now) => Ok(0),
                Ok(Waited::Later) if parking.is_parked() => return Answer::Later,
                // Nobody would ever answer.
                Ok(Waited::Later) => Err(Errno::EIO),
                Err(errno) => Err(errno),
            }
        }
        other => two_way(fs, other, &mut call, reply).await,
    };
    if let Some(since) = since {
        fs.answered(since, header.opcode, request.len(), outcome);
    }
    Answer::Reply(reply.finish(header.unique, outcome))
}

async fn one_way<F: Filesystem>(fs: &F, opcode: u32, call: &mut Call<'_>) -> Answer {
    match opcode {
        opcode::FORGET => node::forget(fs, call).await,
        opcode::BATCH_FORGET => node::batch_forget(fs, call).await,
        opcode::INTERRUPT => {
            if let Ok(raw) = call.body.take::<InterruptIn>() {
                return Answer::Interrupt { unique: raw.unique };
            }
        }
        _ => {}
    }
    Answer::NoReply
}

async fn two_way<F: Filesystem>(
    fs: &F,
    opcode: u32,
    call: &mut Call<'_>,
    reply: &mut ReplyBuffer,
) -> Payload {
    match opcode {
        opcode::LOOKUP => namespace::lookup(fs, call, reply).await,
        opcode::GETATTR => node::getattr(fs, call, reply).await,
        opcode::SETATTR => node::setattr(fs, call, reply).await,
        opcode::READLINK => namespace::readlink(fs, call, reply).await,
        opcode::SYMLINK => namespace::symlink(fs, call, reply).await,
        opcode::MKNOD => namespace::mknod(fs, call, reply).await,
        opcode::MKDIR => namespace::mkdir(fs, call, reply).await,
        opcode::UNLINK => namespace::unlink(fs, call).await,
        opcode::RMDIR => namespace::rmdir(fs, call).await,
        opcode::RENAME => namespace::rename(fs, call).await,
        opcode::RENAME2 => namespace::rename2(fs, call).await,
        opcode::LINK => namespace::link(fs, call, reply).await,
        opcode::OPEN => file::open(fs, call, reply).await,
        opcode::CREATE => file::create(fs, call, reply).await,
        opcode::TMPFILE => file::tmpfile(fs, call, reply).await,
        opcode::READ => file::read(fs, call, reply).await,
        opcode::WRITE => file::write(fs, call, reply).await,
        opcode::FLUSH => file::flush(fs, call).await,
        opcode::RELEASE => file::release(fs, call).await,
        opcode::FSYNC => file::fsync(fs, call).await,
        opcode::FALLOCATE => file::fallocate(fs, call).await,
        opcode::LSEEK => file::lseek(fs, call, reply).await,
        opcode::COPY_FILE_RANGE => file::copy_file_range(fs, call, reply).await,
        opcode::COPY_FILE_RANGE_64 => file::copy_file_range_64(fs, call, reply).await,
        opcode::OPENDIR => directory::opendir(fs, call, reply).await,
        opcode::READDIR => directory::readdir(fs, call, reply).await,
        opcode::READDIRPLUS => directory::readdirplus(fs, call, reply).await,
        opcode::RELEASEDIR => directory::releasedir(fs, call).await,
        opcode::FSYNCDIR => directory::fsyncdir(fs, call).await,
        opcode::STATFS => node::statfs(fs, call, reply).await,
        opcode::ACCESS => node::access(fs, call).await,
        opcode::SETXATTR => xattr::setxattr(fs, call).await,
        opcode::GETXATTR => xattr::getxattr(fs, call, reply).await,
        opcode::LISTXATTR => xattr::listxattr(fs, call, reply).await,
        opcode::REMOVEXATTR => xattr::removexattr(fs, call).await,
        opcode::GETLK => control::getlk(fs, call, reply).await,
        opcode::IOCTL => control::ioctl(fs, call, reply).await,
        opcode::POLL => control::poll(fs, call, reply).await,
        // The transport answers the INIT that opens a connection; a second one is out of order.
        opcode::INIT => Err(Errno::EPROTO),
        // The end is announced to `Mount::destroy` by the transport, when no request is in flight any more.
        opcode::DESTROY => Ok(0),
        _ => Err(Errno::ENOSYS),
    }
}
