//! `/dev/fuse` itself: opening, reading, writing.

use std::io;
use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno as SysErrno;

use crate::Ending;
use crate::buffer::RequestBuffer;

/// Where the kernel hands requests out.
pub(crate) const DEVICE: &str = "/dev/fuse";

pub(crate) fn open_device() -> Result<OwnedFd, SysErrno> {
    rustix::fs::open(DEVICE, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
}

/// `FUSE_DEV_IOC_CLONE`, `_IOR(229, 0, uint32_t)`.
const CLONE: rustix::ioctl::Opcode = rustix::ioctl::opcode::read::<u32>(229, 0);

/// Another descriptor of the same connection with its own queue of requests in progress, so that workers share no
/// lock for answering. Where cloning fails, the same queue through a duplicate.
#[allow(unsafe_code)] // rustix has no wrapper for this ioctl
pub(crate) fn clone_device(device: &OwnedFd) -> io::Result<OwnedFd> {
    use std::os::fd::AsRawFd;
    let Ok(clone) = open_device() else { return device.try_clone() };
    let mut source = device.as_raw_fd().cast_unsigned();
    // SAFETY: the opcode is FUSE_DEV_IOC_CLONE, which reads a u32 through the pointer and writes nothing.
    let request = unsafe { rustix::ioctl::Updater::<CLONE, u32>::new(&mut source) };
    // SAFETY: as above; the number is that of a descriptor borrowed for the duration of the call.
    match unsafe { rustix::ioctl::ioctl(&clone, request) } {
        Ok(()) => Ok(clone),
        Err(_) => device.try_clone(),
    }
}

pub(crate) enum Received {
    Request(usize),
    Ended(Ending),
    Failed(io::Error),
}

/// Waits for a request.
pub(crate) fn receive(device: &OwnedFd, buffer: &mut RequestBuffer) -> Received {
    loop {
        match rustix::io::read(device, buffer.area()) {
            Ok(length) => return Received::Request(length),
            // ENOENT: the request was interrupted while it was handed out; the next one is meant.
            Err(SysErrno::INTR | SysErrno::AGAIN | SysErrno::NOENT) => {}
            Err(SysErrno::NODEV) => return Received::Ended(Ending::Unmounted),
            Err(SysErrno::CONNABORTED) => return aborted(device, buffer),
            Err(error) => return Received::Failed(error.into()),
        }
    }
}

/// ECONNABORTED says that the connection was aborted, or that it ended, however it did, while a request was handed out.
/// Only who reads when the end is complete learns which of the two it was.
fn aborted(device: &OwnedFd, buffer: &mut RequestBuffer) -> Received {
    // Asked for no event, the device reports only the end of the connection.
    let mut polled = [PollFd::new(device, PollFlags::empty())];
    loop {
        match poll(&mut polled, None) {
            Ok(_) => break,
            Err(SysErrno::INTR | SysErrno::AGAIN) => {}
            Err(error) => return Received::Failed(error.into()),
        }
    }
    match rustix::io::read(device, buffer.area()) {
        Err(SysErrno::NODEV) => Received::Ended(Ending::Unmounted),
        Err(SysErrno::CONNABORTED) => Received::Ended(Ending::Aborted),
        Err(error) => Received::Failed(error.into()),
        Ok(_) => Received::Failed(io::Error::other("a request came over a connection that has ended")),
    }
}

/// Sends a reply; one whose request has gone meanwhile (abort, unmount) is no error.
pub(crate) fn send(device: &OwnedFd, reply: &[u8]) -> io::Result<()> {
    loop {
        match rustix::io::write(device, reply) {
            Ok(_) | Err(SysErrno::NOENT | SysErrno::NODEV | SysErrno::CONNABORTED) => return Ok(()),
            Err(SysErrno::INTR | SysErrno::AGAIN) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
