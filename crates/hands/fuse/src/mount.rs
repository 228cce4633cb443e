//! mount(2) and umount(2) for FUSE, and mounts whose daemon has died.

use std::ffi::CString;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;
use std::{io, thread};

use rustix::fs::{AtFlags, CWD, StatxFlags};
pub use rustix::mount::MountFlags;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, UnmountFlags, fsconfig_create, fsconfig_set_string, fsmount,
    fsopen,
};

use crate::MountError;

/// How long a mount point may take to answer before its daemon counts as hanging.
const PROBE_DEADLINE: Duration = Duration::from_secs(5);
/// Dead mounts stacked on one directory that are cleared at once.
const STALE_LIMIT: usize = 16;

/// Where and how to mount.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// An existing directory.
    pub target: PathBuf,
    /// First column of the mount table.
    pub source: String,
    /// The part of the type behind `fuse.`: letters, digits and dashes.
    pub subtype: String,
    /// ro, nodev, nosuid, noexec, noatime ...
    pub flags: MountFlags,
    /// The kernel checks permissions from mode, owner and ACL.
    pub default_permissions: bool,
    /// Users other than the one who mounted have access.
    pub allow_other: bool,
}

impl MountOptions {
    /// A mount of type `fuse.skep` for all users, checked by the kernel, with devices and suid programs off.
    #[must_use]
    pub fn new(target: impl Into<PathBuf>) -> Self {
        MountOptions {
            target: target.into(),
            source: "skep".into(),
            subtype: "skep".into(),
            flags: MountFlags::NODEV | MountFlags::NOSUID,
            default_permissions: true,
            allow_other: true,
        }
    }
}

/// A mount made by this process; undone when dropped.
pub(crate) struct Mounted(Unmounter);

/// Takes one mount away from its directory, and never another one.
#[derive(Clone, Debug)]
pub struct Unmounter {
    target: PathBuf,
    /// Device number of the mounted root: says later whether the directory still shows this mount.
    device: Option<(u32, u32)>,
}

impl Unmounter {
    /// Does the directory still show this mount? Not after somebody unmounted or detached it, or mounted over it.
    #[must_use]
    pub fn is_shown(&self) -> bool {
        self.device.is_some() && device_of(&self.target) == self.device
    }

    /// Unmounts it; `lazy` detaches it. Nothing happens where it is not shown any more.
    ///
    /// # Errors
    /// EBUSY while it is in use (not lazy).
    pub fn unmount(&self, lazy: bool) -> io::Result<()> {
        match self.is_shown().then(|| unmount(&self.target, lazy, false)) {
            // Somebody else was faster.
            Some(Err(_)) if !self.is_shown() => Ok(()),
            Some(done) => done,
            None => Ok(()),
        }
    }
}

pub(crate) fn mount(
    options: &MountOptions,
    device: BorrowedFd<'_>,
    max_read: u32,
) -> Result<Mounted, MountError> {
    let failed = |error: io::Error| MountError::Mount(options.target.clone(), error);
    let target = absolute(&options.target).map_err(failed)?;
    let mut data = format!("fd={},rootmode=40000,user_id=", device.as_raw_fd());
    data +=
        &format!("{},group_id={}", rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    data += &format!(",max_read={max_read}");
    if options.default_permissions {
        data += ",default_permissions";
    }
    if options.allow_other {
        data += ",allow_other";
    }
    let data = CString::new(data).map_err(|error| failed(error.into()))?;
    let kind = format!("fuse.{}", options.subtype);
    rustix::mount::mount(options.source.as_str(), &target, kind, options.flags, data.as_c_str())
        .map_err(|error| failed(error.into()))?;
    let device = device_of(&target);
    Ok(Mounted(Unmounter { target, device }))
}

/// A mount that is shown nowhere, for its maker alone.
pub(crate) fn mount_apart(device: BorrowedFd<'_>) -> Result<(Mounted, OwnedFd), MountError> {
    let made = || {
        let making = fsopen(c"fuse", FsOpenFlags::FSOPEN_CLOEXEC)?;
        fsconfig_set_string(&making, c"source", c"skep")?;
        fsconfig_set_string(&making, c"fd", device.as_raw_fd().to_string())?;
        fsconfig_set_string(&making, c"rootmode", c"40000")?;
        fsconfig_set_string(&making, c"user_id", rustix::process::getuid().as_raw().to_string())?;
        fsconfig_set_string(&making, c"group_id", rustix::process::getgid().as_raw().to_string())?;
        fsconfig_create(&making)?;
        let attributes = MountAttrFlags::MOUNT_ATTR_NODEV | MountAttrFlags::MOUNT_ATTR_NOSUID;
        fsmount(&making, FsMountFlags::FSMOUNT_CLOEXEC, attributes)
    };
    let target = PathBuf::from("nowhere");
    let root = made().map_err(|error| MountError::Mount(target.clone(), error.into()))?;
    Ok((Mounted(Unmounter { target, device: None }), root))
}

impl Mounted {
    pub(crate) fn target(&self) -> &Path {
        &self.0.target
    }

    pub(crate) fn unmounter(&self) -> Unmounter {
        self.0.clone()
    }

    /// The connection has ended. Usually the mount is gone with it; after `umount -f` of a busy mount, or an abort
    /// through the control file system, it is still there and dead, and is removed here.
    pub(crate) fn ended(&mut self) {
        if self.0.is_shown() && matches!(probe(&self.0.target), Probe::Dead) {
            let _ = rustix::mount::unmount(&self.0.target, UnmountFlags::DETACH);
        }
        // From here on the directory may show somebody else's mount, even one with the same device number.
        self.0.device = None;
    }

    /// Ends the connection: all requests fail, all readers of the device return.
    pub(crate) fn abort(&self) {
        if self.0.is_shown() {
            let _ = rustix::mount::unmount(&self.0.target, UnmountFlags::FORCE | UnmountFlags::DETACH);
        }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        self.abort();
    }
}

/// Device number of the file system that `path` shows. Answered from the kernel's memory: neither a dead daemon nor
/// one that is this very thread can block it.
fn device_of(path: &Path) -> Option<(u32, u32)> {
    let flags = AtFlags::STATX_DONT_SYNC | AtFlags::NO_AUTOMOUNT;
    let stat = rustix::fs::statx(CWD, path, flags, StatxFlags::empty()).ok()?;
    Some((stat.stx_dev_major, stat.stx_dev_minor))
}

/// The path without links, and without asking the last component, which may be a dead mount.
fn absolute(path: &Path) -> io::Result<PathBuf> {
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) => {
            let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
            let whole = parent.canonicalize()?.join(name);
            // A link as last component is followed; reading it asks no daemon, since a mounted root is none.
            if whole.read_link().is_ok() { whole.canonicalize() } else { Ok(whole) }
        }
        _ => path.canonicalize(),
    }
}

/// Gives the mount at `target` other flags; programs in it go on. EBUSY: read-only while somebody writes.
///
/// # Errors
/// Those of mount(2).
pub fn remount(target: &Path, flags: MountFlags) -> io::Result<()> {
    Ok(rustix::mount::mount_remount(target, flags, c"")?)
}

/// Unmounts. `lazy` detaches at once and lets open files end by themselves; `force` aborts every request first.
///
/// # Errors
/// EBUSY while it is in use (neither lazy nor forced), EINVAL when nothing is mounted there.
pub fn unmount(target: &Path, lazy: bool, force: bool) -> io::Result<()> {
    let mut flags = UnmountFlags::NOFOLLOW;
    flags.set(UnmountFlags::DETACH, lazy);
    flags.set(UnmountFlags::FORCE, force);
    Ok(rustix::mount::unmount(target, flags)?)
}

enum Probe {
    Alive,
    Dead,
    Failed(io::Error),
    Silent,
}

/// Asks the file system at `target` for its size, which no cache answers.
fn probe(target: &Path) -> Probe {
    let (sender, receiver) = mpsc::channel();
    let path = target.to_owned();
    // On its own thread: a daemon that hangs would hang the caller too. The thread stays until the mount ends.
    let asked = thread::Builder::new().name("skep-probe".into()).spawn(move || {
        let _ = sender.send(rustix::fs::statfs(&path).map(|_| ()));
    });
    if let Err(error) = asked {
        return Probe::Failed(error);
    }
    match receiver.recv_timeout(PROBE_DEADLINE) {
        Ok(Ok(())) => Probe::Alive,
        Ok(Err(rustix::io::Errno::NOTCONN | rustix::io::Errno::CONNABORTED)) => Probe::Dead,
        Ok(Err(error)) => Probe::Failed(error.into()),
        Err(_) => Probe::Silent,
    }
}

/// Removes the mounts that died daemons left on `target`, so that a new one can take their place; says whether
/// there were any.
///
/// # Errors
/// The directory cannot be looked at, or its daemon lives but does not answer.
pub fn replace_stale(target: &Path) -> Result<bool, MountError> {
    let failed = |error: io::Error| MountError::Target(target.to_owned(), error);
    let path = absolute(target).map_err(failed)?;
    for removed in 0..STALE_LIMIT {
        match probe(&path) {
            Probe::Alive => return Ok(removed > 0),
            Probe::Dead => unmount(&path, true, false).map_err(failed)?,
            Probe::Failed(error) => return Err(failed(error)),
            Probe::Silent => return Err(MountError::Busy(path)),
        }
    }
    Err(MountError::Busy(path))
}
