//! Names local file systems, so that two targets on one disk are counted as one.

use siphasher::sip::SipHasher13;
use skep_net::machine_id;
use std::hash::Hasher;
use std::path::Path;

/// A number for the file system that `path` is on: the same for every directory on it, after every
/// restart, and another one for every other file system of every machine. 0 when it cannot be asked.
pub fn id(path: &Path) -> u64 {
    let Ok(at) = rustix::fs::statvfs(path) else { return 0 };
    // Some file systems have no id of their own; their device number lasts as long as the mount.
    let own = match at.f_fsid {
        0 => rustix::fs::stat(path).map_or(0, |at| at.st_dev),
        own => own,
    };
    let mut hasher = SipHasher13::new();
    hasher.write(&machine_id().0);
    hasher.write(&own.to_le_bytes());
    hasher.finish().max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: directories of one file system share a number, others do not, and nothing has none.
    #[test]
    fn one_number_per_file_system() {
        let dir = tempfile::tempdir().unwrap();
        let below = dir.path().join("below");
        std::fs::create_dir(&below).unwrap();
        assert_eq!(id(dir.path()), id(&below));
        assert_ne!(id(dir.path()), id(Path::new("/proc")));
        assert_eq!(id(Path::new("/nowhere/at/all")), 0);
    }
}
