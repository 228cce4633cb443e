//! Killed mounts: programs get ENOTCONN, and what was fsynced is there when a new mount replaced it.

use super::load::remove_tree;
use super::team::Team;
use super::worker::Signs;
use rustix::io::Errno;
use skep_model::{Fill, Rng};
use skep_rig::{Cluster, until};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Longest time until every program has noticed.
const NOTICE_LIMIT: Duration = Duration::from_secs(30);
/// Longest time that programs work before the mount is killed, in milliseconds.
const WORK_MAX: u64 = 3_000;
/// Longest file.
const LENGTH_MAX: u64 = 300_000;

/// Kills the process behind the mount at `point` while the processes on it write, and mounts again.
pub fn kill_mount(cluster: &Cluster, point: &Path, team: &mut Team, rng: &mut Rng) -> Result<(), String> {
    let daemon = cluster.mount_daemon(point)?;
    let first = point == cluster.mount();
    // Processes are spread over mounts in turns, the first of each on the mount of its number.
    let mounts = cluster.of("mount").len();
    let number = if first { 0 } else { place_of(point)? };
    let affected: Vec<usize> = (0..team.len()).filter(|index| index % mounts == number).collect();
    for index in &affected {
        team.tell(*index, "brave")?;
    }
    team.watch(Duration::from_millis(500 + rng.below(WORK_MAX)))?;
    daemon.kill()?;
    team.answers(&affected, NOTICE_LIMIT)?;
    if first {
        return cluster.up();
    }
    cluster.mount_again(point)
}

/// The number in the name of the mount point that `run` gave it.
fn place_of(point: &Path) -> Result<usize, String> {
    let name = point.file_name().map(|name| name.display().to_string()).unwrap_or_default();
    name.trim_start_matches("mnt")
        .parse()
        .map_err(|_| format!("{} is no mount of this test", point.display()))
}

/// Files that were fsynced, and what is in them.
pub struct Brave {
    directory: PathBuf,
    files: BTreeMap<String, Fill>,
    rng: Rng,
    made: u32,
}

impl Brave {
    /// Makes the directory.
    pub fn new(index: usize, seed: u64, mounts: &[PathBuf]) -> Result<Self, String> {
        let directory = mounts.first().ok_or("no mount")?.join(format!("brave-{index}"));
        fs::create_dir(&directory).map_err(|e| format!("{}: {e}", directory.display()))?;
        Ok(Self { directory, files: BTreeMap::new(), rng: Rng::new(seed ^ 0xb4a7e), made: 0 })
    }

    /// Makes files until the mount is gone; says how many are known to be safe.
    pub fn run(&mut self, gone: &AtomicBool) -> Result<usize, String> {
        while !gone.load(Ordering::SeqCst) {
            self.made += 1;
            let name = format!("file-{}", self.made);
            let fill = Fill { tag: self.made, len: self.rng.below(LENGTH_MAX) as u32 };
            match self.make(&name, fill) {
                Ok(()) => drop(self.files.insert(name, fill)),
                Err(e) => return self.noticed(&e),
            }
        }
        Err("nobody listens".to_owned())
    }

    fn make(&self, name: &str, fill: Fill) -> std::io::Result<()> {
        let mut file = File::create_new(self.directory.join(name))?;
        file.write_all(&fill.bytes())?;
        file.sync_all()
    }

    /// Requests that were under way are aborted, as long as the dying process has a descriptor of the
    /// connection; every one after that finds no connection.
    fn noticed(&self, error: &std::io::Error) -> Result<usize, String> {
        let mut errno = Errno::from_io_error(error);
        until("programs get ENOTCONN", NOTICE_LIMIT / 2, || {
            let found = errno;
            errno = fs::metadata(&self.directory).err().and_then(|e| Errno::from_io_error(&e));
            match found {
                Some(Errno::NOTCONN) => Ok(self.files.len()),
                other => Err(format!("{}: {other:?}", self.directory.display())),
            }
        })
    }

    /// Every fsynced file is there through `mount`, with its content.
    pub fn verify(&self, mount: &Path, signs: &mut Signs) -> Result<(), String> {
        let directory = self.directory.file_name().map(|name| mount.join(name)).ok_or("no name")?;
        for (name, fill) in &self.files {
            let path = directory.join(name);
            signs.at(&path);
            let found = fs::read(&path).map_err(|e| format!("{}, fsynced before: {e}", path.display()))?;
            if found != fill.bytes() {
                let (found, expected) = (found.len(), fill.len);
                return Err(format!("{}: {found} bytes, not the {expected} fsynced", path.display()));
            }
        }
        Ok(())
    }

    /// Takes everything away.
    pub fn remove(&mut self) -> Result<(), String> {
        self.files.clear();
        remove_tree(&self.directory)
    }
}
