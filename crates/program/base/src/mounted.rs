//! A path on a mount of this machine: which inode it is and of which cluster, looked at once, so that nothing can come in
//! between.

use crate::attributes::CLUSTER;
use crate::deadline::{self, ProbeArgs, Way};
use crate::mount_table::{self, MountEntry};
use crate::{Failure, Outcome};
use rustix::fs::{Mode, OFlags, fstat, getxattr, open};
use rustix::io::Errno;
use skep_types::{ClusterId, Ino};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Longest id of a cluster in text.
const ID_MAX: usize = 64;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mounted {
    /// As it was named.
    pub path: PathBuf,
    /// The mount that it lies on.
    pub mount: MountEntry,
    /// Its inode; of a symbolic link the link's own.
    pub ino: Ino,
    /// The cluster of the mount, as the mount says.
    pub cluster: ClusterId,
}

impl Mounted {
    /// Refused by a command for another cluster: the number would be taken for some other file there.
    pub fn must_be_of(&self, cluster: ClusterId, whom: &str) -> Outcome {
        if self.cluster == cluster {
            return Ok(());
        }
        Err(Failure::usage(format!(
            "{}: is on a mount of another cluster ({}) than the one that was asked ({cluster}, {whom}); --cluster, --mgmtd and \
             the variable {} name a cluster: without them it is that of the mount",
            self.path.display(),
            self.cluster,
            super::access::CLUSTER_VARIABLE
        )))
    }
}

/// Is a symbolic link itself meant, or what it leads to?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Link {
    /// It is an entry as any other.
    Itself,
    /// As df(1) and whoever works below it take it.
    Followed,
}

impl Link {
    /// As the process that tries it is told.
    pub fn way(self) -> Way {
        match self {
            Self::Itself => Way::Entry,
            Self::Followed => Way::Behind,
        }
    }
}

/// What `path` is; none when it is not there, or on no mount of Skep.
pub fn look(path: &Path, link: Link, limit: Duration) -> Outcome<Option<Mounted>> {
    let found = deadline::of_path(path, link.way(), limit, move |path| look_now(path, link))?;
    found.or_else(|e| match e {
        Errno::NOENT => Ok(None),
        Errno::NOTCONN => Err(Failure::new(format!(
            "{}: the process of the mount has ended; mount it again, or name the cluster by --cluster FILE",
            path.display()
        ))),
        Errno::NODATA | Errno::OPNOTSUPP => Err(Failure::usage(format!(
            "{}: its mount does not tell which cluster it is of: it is of an earlier release; unmount it, and mount it again",
            path.display()
        ))),
        // No mount is silent: a cluster that is named does not stand in for what cannot be looked at.
        e => Err(Failure::usage(format!("{}: {e}", path.display()))),
    })
}

/// The path from the root and without links, for whoever works below it.
pub fn real(path: &Path, limit: Duration) -> Outcome<PathBuf> {
    let found = deadline::of_path(path, Way::Real, limit, |path| path.canonicalize())?;
    found.map_err(|e| Failure::new(format!("{}: {e}; name a directory on a mount", path.display())))
}

/// Refuses a path that leads onto a mount, by a symbolic link or as one that is not there: it is no path in the name space
/// of a cluster.
pub fn must_not_lead_to_one(path: &Path, cluster: ClusterId, whom: &str, limit: Duration) -> Outcome {
    let Ok(absolute) = std::path::absolute(path) else { return Ok(()) };
    for above in absolute.ancestors() {
        if let Some(mounted) = look(above, Link::Followed, limit)? {
            mounted.must_be_of(cluster, whom)?;
            let why = if above == absolute { "is a link to something" } else { "does not exist" };
            let point = mounted.mount.point.display();
            return Err(Failure::new(format!("{}: {why} on the mount at {point}", path.display())));
        }
    }
    Ok(())
}

/// Ends when all that is wanted of the path has been answered, whatever was said.
pub fn probe(args: &ProbeArgs) -> ExitCode {
    match args.way {
        Way::Entry => drop(look_now(&args.path, Link::Itself)),
        Way::Behind => drop(look_now(&args.path, Link::Followed)),
        Way::Real => drop(args.path.canonicalize()),
    }
    ExitCode::SUCCESS
}

fn look_now(path: &Path, link: Link) -> rustix::io::Result<Option<Mounted>> {
    let follows = if link == Link::Itself { OFlags::NOFOLLOW } else { OFlags::empty() };
    let file = open(path, OFlags::PATH | OFlags::CLOEXEC | follows, Mode::empty())?;
    let stat = fstat(&file)?;
    let mount = mount_table::of_file(&file).map_err(|_| Errno::IO)?;
    let Some(mount) = mount.filter(MountEntry::is_skep) else { return Ok(None) };
    let cluster = told(&file).or_else(|e| match e {
        Errno::ACCESS | Errno::PERM => cluster_at(&mount.point, stat.st_dev),
        e => Err(e),
    })?;
    Ok(Some(Mounted { path: path.to_owned(), mount, ino: Ino(stat.st_ino), cluster }))
}

/// Where it is mounted more users may ask than at a file of somebody else. Another mount may lie over that place.
fn cluster_at(point: &Path, device: u64) -> rustix::io::Result<ClusterId> {
    let point = open(point, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    match fstat(&point)?.st_dev == device {
        true => told(&point),
        false => Err(Errno::XDEV),
    }
}

fn told(file: &OwnedFd) -> rustix::io::Result<ClusterId> {
    let mut text = [0; ID_MAX];
    let len = getxattr(format!("/proc/self/fd/{}", file.as_raw_fd()), CLUSTER, &mut text[..])?;
    std::str::from_utf8(&text[..len]).ok().and_then(ClusterId::parse).ok_or(Errno::IO)
}
