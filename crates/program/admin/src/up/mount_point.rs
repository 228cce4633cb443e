//! The place where the file system appears: free, ours, dead, or somebody else's.

use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use skep_base::cluster_file::ClusterFile;
use skep_base::mount_table::{self, MountEntry};
use skep_base::unmount::take_away;
use skep_base::{Failure, Outcome};

/// State of a mount point.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PointState {
    /// Nothing is mounted there.
    Free,
    /// The file system of this cluster.
    Own,
    /// Another file system, perhaps of another cluster.
    Foreign(MountEntry),
}

/// Looks without touching the file system itself: a dead or hanging one must not stop us.
pub fn look(cluster: &ClusterFile) -> Outcome<PointState> {
    let mount = mount_table::at(&cluster.mount_point).map_err(|e| Failure::local("list of mounts", e))?;
    Ok(match mount {
        None => PointState::Free,
        Some(mount) if is_of(&mount, cluster) => PointState::Own,
        Some(mount) => PointState::Foreign(mount),
    })
}

/// Was it mounted from one of the cluster's addresses?
pub fn is_of(mount: &MountEntry, cluster: &ClusterFile) -> bool {
    let source = mount.source.rsplit_once(":/").map_or(mount.source.as_str(), |(list, _)| list);
    let is_own = |one: &str| cluster.mgmtd.iter().any(|address| address.to_string() == one);
    mount.is_skep() && source.split(',').any(is_own)
}

/// Refuses a place in the file system itself: when that is unmounted the place is gone, and another directory below it
/// would take the mount.
fn refuse_inside(cluster: &ClusterFile) -> Outcome {
    let mounts = mount_table::read().map_err(|e| Failure::local("list of mounts", e))?;
    let is_around = |mount: &&MountEntry| {
        mount.point != cluster.mount_point && cluster.mount_point.starts_with(&mount.point)
    };
    let around = mounts.iter().filter(is_around).max_by_key(|mount| mount.point.as_os_str().len());
    match around.filter(|mount| is_of(mount, cluster)) {
        None => Ok(()),
        Some(mount) => Err(Failure::new(format!(
            "{}: is inside {}, where this cluster is mounted; choose a directory of the machine's own",
            cluster.mount_point.display(),
            mount.point.display()
        ))),
    }
}

/// Refuses a place where something else is mounted.
pub fn refuse_foreign(cluster: &ClusterFile) -> Outcome {
    refuse_inside(cluster)?;
    let PointState::Foreign(mount) = look(cluster)? else { return Ok(()) };
    let point = cluster.mount_point.display();
    Err(Failure::new(match mount.is_skep() {
        true => format!(
            "{point}: another cluster ({}) is mounted there; choose another mount point (--mount DIR), or unmount that \
             one first: skep umount {point}",
            mount.source
        ),
        false => format!(
            "{point}: a {} file system is mounted there; choose another mount point (--mount DIR)",
            mount.kind
        ),
    }))
}

/// A place for the mount, which is not there. One whose process is gone is taken away; one that lives is not ours to end.
pub fn prepare(cluster: &ClusterFile) -> Outcome {
    let point = &cluster.mount_point;
    if look(cluster)? != PointState::Own {
        return make(cluster);
    }
    skep_fuse::replace_stale(point).map_err(|e| Failure::new(e.to_string()))?;
    if look(cluster)? == PointState::Own {
        return Err(Failure::new(format!(
            "{0}: the cluster is mounted there by a process that skep up did not start; unmount it first (skep umount {0}), \
             or start the servers only (--no-mount)",
            point.display()
        )));
    }
    eprintln!("replacing a mount at {} whose process is gone", point.display());
    Ok(())
}

/// Makes the directory when it is missing; refuses one that is in use for something else.
pub fn make(cluster: &ClusterFile) -> Outcome {
    let point = &cluster.mount_point;
    refuse_foreign(cluster)?;
    if look(cluster)? == PointState::Own {
        return Ok(());
    }
    std::fs::create_dir_all(point).map_err(|e| Failure::local(point.display(), e))?;
    let mut entries = std::fs::read_dir(point).map_err(|e| Failure::local(point.display(), e))?;
    match entries.next() {
        None => Ok(()),
        Some(_) => Err(Failure::new(format!(
            "{}: is not empty, the mount would hide what is in it; choose another mount point",
            point.display()
        ))),
    }
}

/// Leaves a place for another one, unless programs are in it: they would go on in the directory below.
pub fn leave(cluster: &ClusterFile) -> Outcome {
    let point = &cluster.mount_point;
    while look(cluster)? == PointState::Own {
        match take_away(point, UnmountFlags::NOFOLLOW, "-u") {
            Ok(()) => {}
            Err(Errno::BUSY) => {
                return Err(Failure::new(format!(
                    "{0}: the cluster is mounted there, and programs are in it: leave it there (without --mount), or end \
                     them first (skep umount {0} names them)",
                    point.display()
                )));
            }
            Err(e) => return Err(Failure::new(format!("{}: cannot be unmounted: {e}", point.display()))),
        }
    }
    Ok(())
}

/// Takes every mount of the cluster away from its place; one in use is detached, with a word about it, and `true`.
pub fn release(cluster: &ClusterFile) -> Result<bool, Failure> {
    let point = &cluster.mount_point;
    let mut is_used = false;
    while look(cluster)? == PointState::Own {
        match take_away(point, UnmountFlags::NOFOLLOW, "-u") {
            Ok(()) => {}
            Err(Errno::BUSY) => {
                eprintln!(
                    "{0} is in use and was detached: programs in it lose it when its process ends (skep umount {0} would have named them)",
                    point.display()
                );
                let flags = UnmountFlags::NOFOLLOW | UnmountFlags::DETACH;
                take_away(point, flags, "-uz").map_err(|e| Failure::local(point.display(), e))?;
                is_used = true;
            }
            Err(e) => return Err(Failure::new(format!("{}: cannot be unmounted: {e}", point.display()))),
        }
    }
    Ok(is_used)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    /// Goal: a missing place is made, an empty one taken, a full or foreign one refused.
    #[test]
    fn places() {
        let dir = tempfile::tempdir().unwrap();
        let at = |point: &Path| ClusterFile { mount_point: point.to_owned(), ..ClusterFile::sample() };
        let point = dir.path().join("a/mnt");
        prepare(&at(&point)).unwrap();
        prepare(&at(&point)).unwrap();
        assert_eq!(look(&at(&point)), Ok(PointState::Free));
        std::fs::write(point.join("x"), "").unwrap();
        assert!(prepare(&at(&point)).unwrap_err().to_string().contains("not empty"));
        assert!(prepare(&at(Path::new("/proc"))).unwrap_err().to_string().contains("proc file system"));
        release(&at(&point)).unwrap();
        leave(&at(&point)).unwrap();
    }
}
