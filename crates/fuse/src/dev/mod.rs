//! The `/dev/fuse` transport.

mod crew;
mod drive;
mod mount;
mod notify;

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno as SysErrno;

pub use mount::{MountFlags, MountOptions, replace_stale, unmount};
pub use notify::Notifier;

use crate::abi::header::IN_HEADER;
use crate::abi::opcode;
use crate::buffer::{ReplyBuffer, RequestBuffer};
use crate::dispatch::unique_of;
use crate::negotiate::whole_pages;
use crate::{Ending, Errno, InitConfig, InitStep, Mount, Negotiated, Transport, negotiate};

/// Limit of worker threads unless configured: so many requests may wait for servers at one time.
pub const DEFAULT_WORKERS: usize = 64;
/// Idle worker threads kept unless configured.
pub const DEFAULT_IDLE_WORKERS: usize = 4;

/// Time without a shortage after which surplus idle workers end, unless configured.
pub const DEFAULT_QUIET: Duration = Duration::from_secs(10);

const DEVICE: &str = "/dev/fuse";

/// How the device is served.
#[derive(Clone, Copy, Debug)]
pub struct DevOptions {
    /// Features and limits to ask for.
    pub init: InitConfig,
    /// Limit of worker threads, at least 1. They start when a request finds none idle. While all of them wait,
    /// interrupts are not read either, so what a file system waits for needs a deadline.
    pub workers: usize,
    /// Idle threads kept, at least 1.
    pub idle_workers: usize,
    /// More idle threads than that end after so long without a shortage: making a worker is not free for the file
    /// system (connections), and loads come in bursts.
    pub quiet: Duration,
}

impl Default for DevOptions {
    fn default() -> Self {
        DevOptions {
            init: InitConfig::default(),
            workers: DEFAULT_WORKERS,
            idle_workers: DEFAULT_IDLE_WORKERS,
            quiet: DEFAULT_QUIET,
        }
    }
}

/// What went wrong with a mount, where, and what to do.
#[derive(Debug)]
pub enum MountError {
    /// `/dev/fuse` could not be opened.
    Device(io::Error),
    /// `mount(2)` refused.
    Mount(PathBuf, io::Error),
    /// A mount point that could not be looked at or cleared.
    Target(PathBuf, io::Error),
    /// Another daemon serves this mount point, or does not answer.
    Busy(PathBuf),
    /// The kernel is too old, or the file system refused what it offers.
    Refused(String),
    /// The device failed while the file system was mounted.
    Broken(io::Error),
}

impl fmt::Display for MountError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MountError::Device(error) => {
                write!(
                    f,
                    "{DEVICE} cannot be opened: {error}; load the kernel module (modprobe fuse) and run as root"
                )
            }
            MountError::Mount(target, error) => write!(
                f,
                "mounting on {} failed: {error}; it must be an existing directory, and mounting needs root",
                target.display()
            ),
            MountError::Target(target, error) => {
                write!(f, "the mount point {} cannot be used: {error}", target.display())
            }
            MountError::Busy(target) => write!(
                f,
                "{} is a mount point whose daemon does not answer; end it, or run umount -f -l {}",
                target.display(),
                target.display()
            ),
            MountError::Refused(reason) => write!(f, "the mount was refused: {reason}"),
            MountError::Broken(error) => {
                write!(f, "reading {DEVICE} failed: {error}; the file system was unmounted")
            }
        }
    }
}

impl std::error::Error for MountError {}

/// A mounted file system whose requests come through `/dev/fuse`. Dropping it unmounts.
pub struct DevFuse {
    device: Arc<OwnedFd>,
    mounted: mount::Mounted,
    options: DevOptions,
}

impl DevFuse {
    /// Opens the device and mounts. Requests wait until [`Transport::run`] serves them, so nothing in this process
    /// may touch the mount point before.
    ///
    /// # Errors
    /// No device, no permission, no such directory.
    pub fn mount(options: &MountOptions, serve: DevOptions) -> Result<DevFuse, MountError> {
        let device = open_device().map_err(|error| MountError::Device(error.into()))?;
        let mut serve = serve;
        serve.init.max_write = whole_pages(serve.init.max_write);
        serve.workers = serve.workers.max(1);
        let mounted = mount::mount(options, device.as_fd(), serve.init.max_write)?;
        Ok(DevFuse { device: Arc::new(device), mounted, options: serve })
    }

    /// Where it is mounted.
    #[must_use]
    pub fn target(&self) -> &Path {
        self.mounted.target()
    }

    /// Answers INIT, which is the first request of every connection; `None` when it was unmounted before.
    fn handshake<M: Mount>(&self, mount: &M) -> Result<Option<Negotiated>, MountError> {
        let broken = |errno: Errno| MountError::Broken(io::Error::from_raw_os_error(errno.0));
        let mut buffer = RequestBuffer::new(self.options.init.max_write as usize).map_err(broken)?;
        let mut reply = ReplyBuffer::new(0).map_err(broken)?;
        loop {
            let length = match receive(&self.device, &mut buffer) {
                Received::Request(length) => length,
                Received::Ended(_) => return Ok(None),
                Received::Failed(error) => return Err(MountError::Broken(error)),
            };
            let request = buffer.request(length);
            let Some(unique) = unique_of(request) else { continue };
            if request.get(4..8) != Some(&opcode::INIT.to_ne_bytes()[..]) {
                continue; // the kernel holds everything else back until INIT is answered
            }
            let (out, step) = match negotiate(&request[IN_HEADER..], &self.options.init) {
                InitStep::Again(out) => (Ok(out), Ok(None)),
                InitStep::Refused(reason) => (Err(Errno::EPROTO), Err(MountError::Refused(reason))),
                InitStep::Ready(out, agreed) => match mount.init(&agreed) {
                    Ok(()) => (Ok(out), Ok(Some(agreed))),
                    Err(errno) => {
                        (Err(errno), Err(MountError::Refused(format!("the file system says {errno}"))))
                    }
                },
            };
            let outcome = out.and_then(|out| reply.put(0, &out));
            let length = reply.finish(unique, outcome);
            send(&self.device, reply.reply(length)).map_err(MountError::Broken)?;
            if let Some(agreed) = step? {
                return Ok(Some(agreed));
            }
        }
    }
}

impl Transport for DevFuse {
    fn run<M: Mount>(mut self, mount: &M) -> Result<Ending, MountError> {
        if self.handshake(mount)?.is_none() {
            self.mounted.ended();
            return Ok(Ending::Unmounted);
        }
        let ending = crew::serve(&self.device, mount, &self.options, &|| self.mounted.abort());
        mount.destroy();
        self.mounted.ended();
        ending.map_err(MountError::Broken)
    }

    fn notifier(&self) -> Notifier {
        Notifier::new(&self.device)
    }
}

fn open_device() -> Result<OwnedFd, SysErrno> {
    rustix::fs::open(DEVICE, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
}

/// `FUSE_DEV_IOC_CLONE`, `_IOR(229, 0, uint32_t)`.
const CLONE: rustix::ioctl::Opcode = rustix::ioctl::opcode::read::<u32>(229, 0);

/// Another descriptor of the same connection with its own queue of requests in progress, so that workers share no
/// lock for answering. Where cloning fails, the same queue through a duplicate.
#[allow(unsafe_code)] // rustix has no wrapper for this ioctl
fn clone_device(device: &OwnedFd) -> io::Result<OwnedFd> {
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

enum Received {
    Request(usize),
    Ended(Ending),
    Failed(io::Error),
}

/// Waits for a request.
fn receive(device: &OwnedFd, buffer: &mut RequestBuffer) -> Received {
    loop {
        match rustix::io::read(device, buffer.area()) {
            Ok(length) => return Received::Request(length),
            // ENOENT: the request was interrupted while it was handed out; the next one is meant.
            Err(SysErrno::INTR | SysErrno::AGAIN | SysErrno::NOENT) => {}
            Err(SysErrno::NODEV) => return Received::Ended(Ending::Unmounted),
            Err(SysErrno::CONNABORTED) => return Received::Ended(Ending::Aborted),
            Err(error) => return Received::Failed(error.into()),
        }
    }
}

/// Sends a reply; one whose request has gone meanwhile (abort, unmount) is no error.
fn send(device: &OwnedFd, reply: &[u8]) -> io::Result<()> {
    loop {
        match rustix::io::write(device, reply) {
            Ok(_) | Err(SysErrno::NOENT | SysErrno::NODEV | SysErrno::CONNABORTED) => return Ok(()),
            Err(SysErrno::INTR | SysErrno::AGAIN) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
