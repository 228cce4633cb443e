//! What goes wrong with mounts.

use std::path::PathBuf;
use std::{fmt, io};

use crate::device::DEVICE;

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
    /// `io_uring` was demanded and cannot be had.
    NoRing(String),
    /// The device failed while the file system was mounted.
    Broken(io::Error),
}

impl fmt::Display for MountError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MountError::Device(error) => {
                let advice = match error.kind() {
                    io::ErrorKind::NotFound => {
                        "as root, run: modprobe fuse; in a container, pass the device in"
                    }
                    io::ErrorKind::PermissionDenied => {
                        "mount as root, or as root: chmod 0666 /dev/fuse; in a container, allow the device"
                    }
                    _ => "load the kernel module (modprobe fuse) and run as root",
                };
                write!(f, "{DEVICE} cannot be opened: {error}; {advice}")
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
            MountError::NoRing(why) => write!(f, "FUSE over io_uring is not to be had: {why}"),
            MountError::Broken(error) => {
                write!(f, "reading {DEVICE} failed: {error}; the file system was unmounted")
            }
        }
    }
}

impl std::error::Error for MountError {}
