//! A mounted file system.

use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use crate::abi::header::IN_HEADER;
use crate::abi::init::InitOut;
use crate::abi::opcode;
use crate::buffer::{ReplyBuffer, RequestBuffer, SMALLEST};
use crate::device::{Received, open_device, receive, send};
use crate::dispatch::unique_of;
use crate::mount::{Mounted, Unmounter, mount, mount_apart};
use crate::negotiate::whole_pages;
use crate::notices::Notices;
use crate::sizes::Sizes;
use crate::transport::Site;
use crate::uring::{Fault, Plan};
use crate::{
    DevOptions, Ending, Errno, InitConfig, InitFlags, InitStep, Mount, MountError, MountOptions, Negotiated,
    Notifier, Serving, Transport, UringOptions, dev, negotiate, uring,
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
    /// For `io_uring`.
    pub uring: UringOptions,
}

/// A mounted file system. Dropping it unmounts.
pub struct Fuse {
    device: Arc<OwnedFd>,
    notices: Arc<Notices>,
    mounted: Mounted,
    options: FuseOptions,
    /// The file system has agreed to be served.
    accepted: Cell<bool>,
}

/// The INIT of a connection, with what the two sides agree on; it waits for its reply.
struct Offer {
    unique: u64,
    out: InitOut,
    agreed: Negotiated,
}

impl Offer {
    /// Takes `io_uring` out of the agreement.
    fn without_rings(&mut self) {
        self.agreed.wanted = self.agreed.wanted & !InitFlags::OVER_IO_URING;
        self.agreed.granted = self.agreed.granted & !InitFlags::OVER_IO_URING;
        self.out = self.agreed.answer(self.out);
    }

    /// What the kernel wants room for in every entry: the largest write, or as many pages as a request may have.
    fn payload(&self) -> usize {
        let pages = usize::from(self.out.max_pages) * rustix::param::page_size();
        (self.out.max_write as usize).max(pages).max(SMALLEST)
    }
}

/// Why `/dev/fuse` instead of rings, and whether INIT was answered already.
struct Instead {
    why: Option<String>,
    accepted: bool,
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
        // Offered by the kernel only where it is switched on; taken only when everything is ready for it.
        let rings = if serve.transport == Transport::Dev { InitFlags(0) } else { InitFlags::OVER_IO_URING };
        serve.init.wanted = serve.init.wanted & !InitFlags::OVER_IO_URING | rings;
        let mounted = mount(options, device.as_fd(), serve.init.max_write)?;
        Ok(Fuse {
            device: Arc::new(device),
            notices: Arc::default(),
            mounted,
            options: serve,
            accepted: Cell::new(false),
        })
    }

    /// The same, shown nowhere: it lasts as long as somebody has something of it open, or this descriptor.
    pub(crate) fn apart(serve: FuseOptions) -> Result<(Fuse, OwnedFd), MountError> {
        let device = open_device().map_err(|error| MountError::Device(error.into()))?;
        let (mounted, root) = mount_apart(device.as_fd())?;
        let (device, notices) = (Arc::new(device), Arc::default());
        Ok((Fuse { device, notices, mounted, options: serve, accepted: Cell::new(false) }, root))
    }

    /// What the kernel is being told.
    pub(crate) fn notices(&self) -> Arc<Notices> {
        Arc::clone(&self.notices)
    }

    /// Where it is mounted.
    #[must_use]
    pub fn target(&self) -> &Path {
        self.mounted.target()
    }

    /// A handle for invalidations, usable from any thread while the file system is mounted.
    #[must_use]
    pub fn notifier(&self) -> Notifier {
        Notifier::new(&self.device, &self.notices)
    }

    /// What has the kernel look how long a file is, from any thread that serves nothing, while it is mounted.
    ///
    /// # Errors
    /// It is not mounted any more.
    pub fn sizes(&self) -> Result<Sizes, Errno> {
        Sizes::new(self.mounted.target(), &self.notices)
    }

    /// What unmounts it from another thread, or after a signal.
    #[must_use]
    pub fn unmounter(&self) -> Unmounter {
        self.mounted.unmounter()
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
        let ending = self.serve(mount, offer);
        if self.accepted.get() {
            mount.destroy();
        }
        self.mounted.ended();
        ending
    }

    fn serve<M: Mount>(&self, mount: &M, mut offer: Offer) -> Result<Ending, MountError> {
        let instead = match self.ring_plan(&offer) {
            Ok(plan) => match self.serve_rings(mount, &plan, &offer) {
                Ok(ending) => return Ok(ending),
                Err(Fault::Mount(error)) => return Err(error),
                Err(Fault::NoRing { why, accepted }) => Instead { why: Some(why), accepted },
            },
            Err(why) => Instead { why, accepted: false },
        };
        if self.options.transport == Transport::Uring {
            if !instead.accepted {
                self.reply(offer.unique, Err(Errno::EOPNOTSUPP))?;
            }
            return Err(MountError::NoRing(instead.why.unwrap_or_default()));
        }
        if !instead.accepted {
            offer.without_rings();
            self.accept(mount, &offer)?;
        }
        mount.serving(&Serving::Dev { instead: instead.why });
        let mounted = &self.mounted;
        let site = Site {
            device: &self.device,
            notices: &self.notices,
            target: self.mounted.target(),
            payload: self.options.init.max_write as usize,
            abort: &|| mounted.abort(),
        };
        let ending = dev::serve(&site, mount, &self.options.dev);
        ending.map_err(MountError::Broken)
    }

    /// The rings that shall be served, or why not; without a reason, nobody wishes for them.
    fn ring_plan(&self, offer: &Offer) -> Result<Plan, Option<String>> {
        if self.options.transport == Transport::Dev {
            return Err(None);
        }
        let plan = uring::plan(&self.options.uring).map_err(Some)?;
        match offer.agreed.granted.contains(InitFlags::OVER_IO_URING) {
            true => Ok(plan),
            false => Err(Some("this kernel does not offer it; run Linux 6.14 or newer".to_owned())),
        }
    }

    fn serve_rings<M: Mount>(&self, mount: &M, plan: &Plan, offer: &Offer) -> Result<Ending, Fault> {
        let mounted = &self.mounted;
        let site = Site {
            device: &self.device,
            notices: &self.notices,
            target: self.mounted.target(),
            payload: offer.payload(),
            abort: &|| mounted.abort(),
        };
        uring::serve(&site, mount, plan, &|| self.accept(mount, offer))
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
            Ok(()) => {
                self.accepted.set(true);
                self.reply(offer.unique, Ok(offer.out))
            }
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

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::{Fault, Fuse, FuseOptions, Site};
    use crate::empty::{EmptyConfig, EmptyMount};
    use crate::{Ending, Mount, MountOptions, Transport, dev, unmount, uring};

    const PARAMETER: &str = "/sys/module/fuse/parameters/enable_uring";

    struct Target(PathBuf);

    impl Drop for Target {
        fn drop(&mut self) {
            while unmount(&self.0, true, true).is_ok() {}
            let _ = std::fs::remove_dir(&self.0);
        }
    }

    /// Goal: when the kernel refuses an entry although INIT agreed on rings, it says so at once, and the device
    /// serves instead. (It refuses memory that is too small.)
    #[test]
    fn refused_entries() {
        std::fs::write(PARAMETER, "Y").expect("FUSE over io_uring needs Linux 6.14 and root");
        let target = Target(std::env::temp_dir().join(format!("skep-fuse-refused-{}", std::process::id())));
        std::fs::create_dir(&target.0).unwrap();
        let options = FuseOptions { transport: Transport::Uring, ..FuseOptions::default() };
        let mut fuse = Fuse::mount(&MountOptions::new(&target.0), options).unwrap();
        let asker = {
            let path = target.0.clone();
            std::thread::spawn(move || {
                std::fs::write(path.join("file"), b"content").unwrap();
                assert_eq!(std::fs::metadata(path.join("file")).unwrap().len(), 7);
                unmount(&path, false, false).unwrap();
            })
        };
        let mount = EmptyMount::new(EmptyConfig::default());
        let offer = fuse.offer().unwrap().unwrap();
        let plan = fuse.ring_plan(&offer).unwrap();
        let abort = || fuse.mounted.abort();
        let (device, notices) = (&fuse.device, &fuse.notices);
        let site = Site { device, notices, target: &target.0, payload: 8192, abort: &abort };
        match uring::serve(&site, &mount, &plan, &|| fuse.accept(&mount, &offer)) {
            Err(Fault::NoRing { why, accepted: true }) => assert!(why.contains("refuses"), "{why}"),
            Err(Fault::NoRing { why, .. }) => panic!("too early: {why}"),
            Err(Fault::Mount(error)) => panic!("{error}"),
            Ok(_) => panic!("served"),
        }
        let ending = dev::serve(&Site { payload: 1 << 20, ..site }, &mount, &options.dev).unwrap();
        assert_eq!(ending, Ending::Unmounted);
        mount.destroy();
        asker.join().unwrap();
        fuse.mounted.ended();
    }
}
