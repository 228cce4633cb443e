//! A control group that gives a process a part of one processor.

use std::path::{Path, PathBuf};

/// The group is refilled this often, in microseconds.
const PERIOD_US: u32 = 100_000;
/// What is in it gets its part before others do: a group counts as one process otherwise.
const SHARES: u32 = 262_144;
/// The same in the second version of groups.
const WEIGHT: u32 = 10_000;

/// One group; removed when dropped, after its process has ended.
pub struct Cage {
    path: PathBuf,
    first: bool,
}

impl Cage {
    /// Makes it, of the version that the machine has.
    pub fn new(name: &str) -> Result<Self, String> {
        let root = Path::new("/sys/fs/cgroup");
        let first = root.join("cpu/cgroup.procs").exists();
        let path = if first { root.join("cpu").join(name) } else { root.join(name) };
        match std::fs::create_dir(&path) {
            Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => {
                Err(format!("{}: {e}; mount control groups with the controller cpu there", path.display()))
            }
            _ => Ok(Self { path, first }),
        }
    }

    /// So many percent of one processor.
    pub fn limit(&self, percent: u32) -> Result<(), String> {
        let quota = PERIOD_US * percent / 100;
        if self.first {
            self.write("cpu.cfs_period_us", &PERIOD_US.to_string())?;
            self.write("cpu.cfs_quota_us", &quota.to_string())?;
            self.write("cpu.shares", &SHARES.to_string())
        } else {
            self.write("cpu.max", &format!("{quota} {PERIOD_US}"))?;
            self.write("cpu.weight", &WEIGHT.to_string())
        }
    }

    /// This process with all its threads is in it from now on.
    pub fn take(&self, pid: u32) -> Result<(), String> {
        self.write("cgroup.procs", &pid.to_string())
    }

    fn write(&self, file: &str, text: &str) -> Result<(), String> {
        let path = self.path.join(file);
        std::fs::write(&path, text).map_err(|e| format!("{}: {e}", path.display()))
    }
}

impl Drop for Cage {
    fn drop(&mut self) {
        if let Err(e) = std::fs::remove_dir(&self.path) {
            eprintln!("{}: {e}", self.path.display());
        }
    }
}
