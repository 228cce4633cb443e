//! Taking a mount out of the tree.

use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};
use std::path::Path;
use std::process::Command;

/// Unmounts as this user may: by the system call, or by the helper with `helper_flag`.
pub fn take_away(point: &Path, flags: UnmountFlags, helper_flag: &str) -> Result<(), Errno> {
    match unmount(point, flags) {
        Err(Errno::PERM) => {
            // Users unmount their own mounts by the set-uid helper.
            let ran = Command::new("fusermount3").arg(helper_flag).arg(point).output();
            match ran {
                Ok(ran) if ran.status.success() => Ok(()),
                Ok(ran) if String::from_utf8_lossy(&ran.stderr).contains("busy") => Err(Errno::BUSY),
                _ => Err(Errno::PERM),
            }
        }
        other => other,
    }
}
