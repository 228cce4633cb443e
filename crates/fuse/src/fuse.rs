//! A mounted file system.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use crate::abi::header::IN_HEADER;
use crate::abi::init::InitOut;
use crate::abi::opcode;
use crate::buffer::{ReplyBuffer, RequestBuffer};
use crate::device::{Received, open_device, receive, send};
use crate::dispatch::unique_of;
use crate::mount::{Mounted, mount};
use crate::negotiate::whole_pages;
use crate::{
    DevOptions, Ending, Errno, InitConfig, InitStep, Mount, MountError, MountOptions, Negotiated, Notifier,
    Serving, Transport, dev, negotiate,
};

/// How a mounted file system is served.
#[derive(Clone, Copy, Debug, Default)]
pub struct FuseOptions {
    /// Features and limits to ask for.
    pub init: InitConfig,
    /// How requests travel.
    pub transport: Transport,
    /// For `/dev/fuse`.
    pub dev: DevOptions,
}

/// A mounted file system. Dropping it unmounts.
pub struct Fuse {
    device: Arc<OwnedFd>,
    mounted: Mounted,
    options: FuseOptions,
}

/// The INIT of a connection, with what the two sides agree on; it waits for its reply.
struct Offer {
    unique: u64,
    out: InitOut,
    agreed: Negotiated,
}

impl Fuse {
    /// Opens the device and mounts. Requests wait until [`Fuse::run`] serves them, so nothing in this process may
    /// touch the mount point before.
    ///
    /// # Errors
    /// No device, no permission, no such directory.
    pub fn mount(options: &MountOptions, serve: FuseOptions) -> Result<Fuse, MountError> {
        let device = open_device().map_err(|error| MountError::Device(error.into()))?;
        let mut serve = serve;
        serve.init.max_write = whole_pages(serve.init.max_write);
        serve.dev.workers = serve.dev.workers.max(1);
        let mounted = mount(options, device.as_fd(), serve.init.max_write)?;
        Ok(Fuse { device: Arc::new(device), mounted, options: serve })
    }

    /// Where it is mounted.
    #[must_use]
    pub fn target(&self) -> &Path {
        self.mounted.target()
    }

    /// A handle for invalidations, usable from any thread while the file system is mounted.
    #[must_use]
    pub fn notifier(&self) -> Notifier {
        Notifier::new(&self.device)
    }

    /// Serves until the file system is unmounted or aborted.
    ///
    /// # Errors
    /// The kernel is too old, the transport demanded cannot be had, or the device failed.
    pub fn run<M: Mount>(mut self, mount: &M) -> Result<Ending, MountError> {
        let Some(offer) = self.offer()? else {
            self.mounted.ended();
            return Ok(Ending::Unmounted);
        };
        let ending = self.serve(mount, &offer);
        self.mounted.ended();
        ending
    }

    fn serve<M: Mount>(&self, mount: &M, offer: &Offer) -> Result<Ending, MountError> {
        self.accept(mount, offer)?;
        mount.serving(&Serving::Dev { instead: None });
        let payload = self.options.init.max_write as usize;
        let abort = || self.mounted.abort();
        let ending = dev::serve(&self.device, mount, &self.options.dev, payload, &abort);
        mount.destroy();
        ending.map_err(MountError::Broken)
    }

    /// Waits for INIT, which is the first request of every connection; `None` when it was unmounted before.
    fn offer(&self) -> Result<Option<Offer>, MountError> {
        let mut buffer = RequestBuffer::new(self.options.init.max_write as usize).map_err(broken)?;
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
            match negotiate(&request[IN_HEADER..], &self.options.init) {
                InitStep::Again(out) => self.reply(unique, Ok(out))?,
                InitStep::Refused(reason) => {
                    self.reply(unique, Err(Errno::EPROTO))?;
                    return Err(MountError::Refused(reason));
                }
                InitStep::Ready(out, agreed) => return Ok(Some(Offer { unique, out, agreed })),
            }
        }
    }

    /// Answers INIT, if the file system takes what was agreed on.
    fn accept<M: Mount>(&self, mount: &M, offer: &Offer) -> Result<(), MountError> {
        match mount.init(&offer.agreed) {
            Ok(()) => self.reply(offer.unique, Ok(offer.out)),
            Err(errno) => {
                self.reply(offer.unique, Err(errno))?;
                Err(MountError::Refused(format!("the file system says {errno}")))
            }
        }
    }

    fn reply(&self, unique: u64, out: Result<InitOut, Errno>) -> Result<(), MountError> {
        let mut reply = ReplyBuffer::new(0).map_err(broken)?;
        let outcome = out.and_then(|out| reply.put(0, &out));
        let length = reply.finish(unique, outcome);
        send(&self.device, reply.reply(length)).map_err(MountError::Broken)
    }
}

fn broken(errno: Errno) -> MountError {
    MountError::Broken(io::Error::from_raw_os_error(errno.0))
}
