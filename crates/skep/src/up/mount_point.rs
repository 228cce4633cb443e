//! The place where the file system appears: free, ours, dead, or somebody else's.

use crate::admin::mount_table::{self, MountEntry};
use crate::admin::{Failure, Outcome};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};
use std::path::Path;
use std::process::Command;

/// State of a mount point.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PointState {
    /// Nothing is mounted there.
    Free,
    /// A skep file system.
    Skep,
    /// Another file system.
    Foreign(MountEntry),
}

/// Looks without touching the file system itself: a dead or hanging one must not stop us.
pub fn look(point: &Path) -> Outcome<PointState> {
    let mount = mount_table::at(point).map_err(|e| Failure::local("list of mounts", e))?;
    Ok(match mount {
        None => PointState::Free,
        Some(mount) if mount.is_skep() => PointState::Skep,
        Some(mount) => PointState::Foreign(mount),
    })
}

/// Makes the directory when it is missing; refuses one that is in use for something else.
pub fn prepare(point: &Path) -> Outcome {
    match look(point)? {
        PointState::Foreign(mount) => Err(Failure::new(format!(
            "{}: a {} file system is mounted there; choose another mount point",
            point.display(),
            mount.kind
        ))),
        PointState::Skep => {
            eprintln!("replacing a mount at {} whose process is gone", point.display());
            release(point).map(drop)
        }
        PointState::Free => {
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
    }
}

/// Takes every skep mount away from the place; one in use is detached, with a word about it, and `true`.
pub fn release(point: &Path) -> Result<bool, Failure> {
    let mut is_used = false;
    while look(point)? == PointState::Skep {
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

/// Unmounts as this user may: by the system call, or by the helper with `helper_flag`.
pub fn take_away(point: &Path, flags: UnmountFlags, helper_flag: &str) -> Result<(), Errno> {
    match unmount(point, flags) {
        Err(Errno::PERM) => {
            // Users unmount their own mounts by the set-uid helper.
            let ran = Command::new("fusermount3").arg("-q").arg(helper_flag).arg(point).status();
            if ran.is_ok_and(|status| status.success()) { Ok(()) } else { Err(Errno::BUSY) }
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a missing place is made, an empty one taken, a full or foreign one refused.
    #[test]
    fn places() {
        let dir = tempfile::tempdir().unwrap();
        let point = dir.path().join("a/mnt");
        prepare(&point).unwrap();
        prepare(&point).unwrap();
        assert_eq!(look(&point), Ok(PointState::Free));
        std::fs::write(point.join("x"), "").unwrap();
        assert!(prepare(&point).unwrap_err().to_string().contains("not empty"));
        assert!(prepare(Path::new("/proc")).unwrap_err().to_string().contains("proc file system"));
        release(&point).unwrap();
    }
}
