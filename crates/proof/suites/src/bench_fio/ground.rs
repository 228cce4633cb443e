//! The file systems of the comparison.

use std::path::{Path, PathBuf};
use std::process::Command;

/// MiB of the image under ext4.
const IMAGE_MIB: u64 = 1536;

/// Which file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Place {
    /// Memory.
    Tmpfs,
    /// ext4 on a loop device over a file in memory.
    Ext4,
    /// A mount of a small cluster on this machine.
    Skep,
}

impl Place {
    /// Its name in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tmpfs => "tmpfs",
            Self::Ext4 => "ext4 on a loop device",
            Self::Skep => "a Skep mount",
        }
    }
}

/// A file system ready for use; gone when dropped.
pub struct Ground {
    /// Which.
    pub place: Place,
    /// Where to work.
    pub directory: PathBuf,
    /// Where the order of a random load is written down: beside the directory that is measured.
    pub order: PathBuf,
    scratch: PathBuf,
    skep: PathBuf,
}

impl Ground {
    /// Sets it up below `backing`.
    pub fn prepare(place: Place, skep: &Path, backing: &Path) -> Result<Self, String> {
        let scratch = backing.join(format!("skep-bench-fio-{}", std::process::id()));
        let directory = scratch.join("place");
        std::fs::create_dir_all(&directory).map_err(|e| format!("{}: {e}", directory.display()))?;
        let ground = Self { place, directory, order: scratch.join("order"), scratch, skep: skep.to_owned() };
        match place {
            Place::Tmpfs => {}
            Place::Ext4 => ground.ext4()?,
            Place::Skep => {
                let state = ground.scratch.join("cluster");
                let mut up = Command::new(skep);
                up.args(["up", "--targets", "4", "--dir"]).arg(state).arg("--mount").arg(&ground.directory);
                done(up)?;
            }
        }
        Ok(ground)
    }

    fn ext4(&self) -> Result<(), String> {
        let image = self.scratch.join("image");
        let file = std::fs::File::create(&image).map_err(|e| format!("{}: {e}", image.display()))?;
        file.set_len(IMAGE_MIB << 20).map_err(|e| format!("{}: {e}", image.display()))?;
        let mut mkfs = Command::new("mkfs.ext4");
        // Tables are written now, not by a thread of the kernel while something is measured.
        mkfs.args(["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"]).arg(&image);
        done(mkfs)?;
        let mut mount = Command::new("mount");
        mount.args(["-o", "loop,noatime"]).arg(&image).arg(&self.directory);
        done(mount)
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        let ended = match self.place {
            Place::Tmpfs => Ok(()),
            Place::Ext4 => {
                let mut umount = Command::new("umount");
                umount.arg(&self.directory);
                done(umount)
            }
            Place::Skep => {
                let mut down = Command::new(&self.skep);
                down.args(["down", "--dir"]).arg(self.scratch.join("cluster"));
                done(down)
            }
        };
        match ended {
            Ok(()) => {
                let _ = std::fs::remove_dir_all(&self.scratch);
            }
            Err(error) => eprintln!("xtask: {error}; {} is left", self.scratch.display()),
        }
    }
}

fn done(mut command: Command) -> Result<(), String> {
    let name = format!("{command:?}");
    let output = command.output().map_err(|e| format!("{name}: {e}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{name}: {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim()))
}
