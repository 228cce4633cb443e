//! A disk that loses what was not synced: a file system in a file, shut down under its users.

use skep_rig::Runner;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Room of a disk: what is not written to the file takes none.
const SIZE: &str = "3G";
/// FS_IOC_SHUTDOWN with "no log flush": nothing that is in memory reaches the disk any more.
const SHUTDOWN: &str = "import fcntl, os, struct, sys; \
     fcntl.ioctl(os.open(sys.argv[1], os.O_RDONLY), 0x8004587D, struct.pack('I', 2))";

/// Kinds of file systems.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Kind {
    /// ext4.
    Ext4,
    /// XFS.
    Xfs,
}

/// One disk, mounted where a directory was. It goes with the cluster, which unmounts all that is below its directory.
pub struct Disk {
    image: PathBuf,
    point: PathBuf,
    /// Programs have files open on mounts whose servers are away.
    runner: Arc<Runner>,
}

impl Disk {
    /// Puts what is in `point` on a disk of its own, whose file is `image`. Nobody may use the directory meanwhile.
    pub fn under(point: &Path, image: PathBuf, kind: Kind, runner: Arc<Runner>) -> Result<Self, String> {
        let aside = point.with_extension("aside");
        let disk = Self { image, point: point.to_owned(), runner };
        let image = disk.image.as_os_str();
        disk.run(&["truncate".as_ref(), "-s".as_ref(), SIZE.as_ref(), image])?;
        match kind {
            Kind::Ext4 => disk.run(&["mkfs.ext4".as_ref(), "-q".as_ref(), "-F".as_ref(), image])?,
            Kind::Xfs => disk.run(&["mkfs.xfs".as_ref(), "-q".as_ref(), "-f".as_ref(), image])?,
        }
        std::fs::rename(point, &aside).map_err(|e| format!("{}: {e}", point.display()))?;
        std::fs::create_dir(point).map_err(|e| format!("{}: {e}", point.display()))?;
        disk.mount()?;
        disk.run(&["cp".as_ref(), "-aT".as_ref(), aside.as_os_str(), point.as_os_str()])?;
        std::fs::remove_dir_all(&aside).map_err(|e| format!("{}: {e}", aside.display()))?;
        disk.run(&["sync".as_ref(), "-f".as_ref(), point.as_os_str()])?;
        Ok(disk)
    }

    fn mount(&self) -> Result<(), String> {
        let (image, point) = (self.image.as_os_str(), self.point.as_os_str());
        self.run(&["mount".as_ref(), "-o".as_ref(), "loop".as_ref(), image, point])
    }

    /// Power goes: what is only in memory never reaches the disk.
    pub fn cut(&self) -> Result<(), String> {
        self.run(&["python3".as_ref(), "-c".as_ref(), SHUTDOWN.as_ref(), self.point.as_os_str()])
    }

    /// Power is back.
    pub fn start(&self) -> Result<(), String> {
        // The kernel closes the files of a killed process a moment after it has gone.
        skep_rig::until("a disk without power is let go", skep_rig::PATIENCE, || {
            self.run(&["umount".as_ref(), self.point.as_os_str()])
        })?;
        self.mount()
    }

    fn run(&self, words: &[&OsStr]) -> Result<(), String> {
        let words: Vec<OsString> = words.iter().map(|word| word.to_os_string()).collect();
        let output = self.runner.run(&words, &[], &std::env::temp_dir())?;
        match output.status.success() {
            true => Ok(()),
            false => Err(format!("{words:?}: {}", String::from_utf8_lossy(&output.stderr).trim())),
        }
    }
}
