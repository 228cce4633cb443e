//! `skep bench net mode`: the mode of a mount in which storage daemons drop what is written and answer reads from
//! memory, in one directory, as long as this command runs.

use crate::bench::scratch::{abandoned, own_name};
use clap::Args;
use rustix::fs::{Mode, XattrFlags, lgetxattr, mkdir, setxattr};
use skep_base::access::CLUSTER_VARIABLE;
use skep_base::attributes::{NETBENCH, NETBENCH_MARK};
use skep_base::cluster_file::ClusterFile;
use skep_base::daemon::Stop;
use skep_base::mount_table;
use skep_base::units::Period;
use skep_base::{Failure, Outcome};
use skep_client::state::NETBENCH_MARKS_MAX;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// How long the mode is on.
#[derive(Debug, Clone, Copy)]
struct Limits {
    /// A command that was killed leaves the mode on for so long at most.
    lease: Duration,
    /// How often it is renewed.
    renew_every: Duration,
    /// The mount ends it after this time, whatever is asked.
    total: Duration,
    /// So much of that is left for cleaning up: with the mode go the marks that tell what may be removed.
    cleanup: Duration,
}

const LIMITS: Limits = Limits {
    lease: Duration::from_secs(5),
    renew_every: Duration::from_secs(1),
    total: Duration::from_secs(600),
    cleanup: Duration::from_secs(30),
};
/// Longest list of directories that are measured in.
const LIST_MAX: usize = 4_096;

/// Names of directories in which the mode is on begin so.
pub const PREFIX: &str = ".skep-netbench-";
/// Names that load generators make begin so.
const LOAD_PREFIX: &str = "skep-bench-";

/// Arguments of `skep bench net mode`.
#[derive(Debug, Args)]
pub struct ModeArgs {
    /// The mount [default: that of SKEP_CLUSTER; the only one of this machine]
    #[arg(long, value_name = "DIR")]
    mount: Option<PathBuf>,
    /// Name of the directory, which must not exist yet [default: .skep-netbench-HOST-...]
    #[arg(long, value_name = "NAME")]
    directory: Option<PathBuf>,
    /// How long (10 min at most, of which the last 30 s are for cleaning up); it ends sooner when the command does
    #[arg(long = "for", value_name = "TIME", default_value = "60s")]
    time: Period,
}

/// What has the mode: a mount.
pub trait Switch {
    /// Begins or goes on in this directory for so long; zero ends it.
    fn set(&self, dir: &Path, lease: Duration) -> rustix::io::Result<()>;
    /// Was this made in such a directory while the mode was on?
    fn is_marked(&self, path: &Path) -> bool;
    /// What was made in this directory and got no mark, for there were too many.
    fn unmarked(&self, dir: &Path) -> u64;
}

/// A mount of this machine.
pub struct Mounted;

impl Switch for Mounted {
    fn set(&self, dir: &Path, lease: Duration) -> rustix::io::Result<()> {
        setxattr(dir, NETBENCH, lease.as_millis().to_string().as_bytes(), XattrFlags::empty())
    }

    fn is_marked(&self, path: &Path) -> bool {
        let mut mark = [0; 1];
        lgetxattr(path, NETBENCH_MARK, &mut mark[..]) == Ok(1) && mark == *b"1"
    }

    fn unmarked(&self, dir: &Path) -> u64 {
        let mut list = [0; LIST_MAX];
        let len = lgetxattr(dir, NETBENCH, &mut list[..]).unwrap_or(0);
        let Ok(all) = serde_json::from_slice::<Vec<serde_json::Value>>(&list[..len]) else { return 0 };
        let Ok(own) = dir.symlink_metadata() else { return 0 };
        let ours = all.iter().find(|one| one["directory"] == own.ino());
        ours.and_then(|one| one["unmarked"].as_u64()).unwrap_or(0)
    }
}

/// A directory in which the mode is on. It is off, and the directory gone, when this is dropped.
pub struct Scratch<S: Switch = Mounted> {
    path: PathBuf,
    switch: S,
    limits: Limits,
    began: Instant,
    told: AtomicBool,
}

/// The mount that is meant.
pub fn mount_point(named: Option<&Path>) -> Outcome<PathBuf> {
    let mounts = mount_table::read().map_err(|e| Failure::local("list of mounts", e))?;
    let ours: Vec<_> = mounts.into_iter().filter(|mount| mount.is_skep()).collect();
    match (named, ours.as_slice()) {
        (Some(path), _) => {
            let path = std::fs::canonicalize(path).map_err(|e| Failure::local(path.display(), e))?;
            match ours.iter().any(|mount| mount.point == path) {
                true => Ok(path),
                false => {
                    Err(Failure::new(format!("{}: no Skep file system is mounted there", path.display())))
                }
            }
        }
        _ if let Some(point) = cluster_mount()? => match ours.iter().any(|mount| mount.point == point) {
            true => Ok(point),
            false => Err(Failure::new(format!(
                "{}: the cluster of SKEP_CLUSTER is not mounted there: mount it, or name a mount by --mount",
                point.display()
            ))),
        },
        (None, [one]) => Ok(one.point.clone()),
        (None, []) => {
            Err(Failure::new("no Skep file system is mounted here: `skep mount`, or name it by --mount"))
        }
        (None, many) => {
            let list: Vec<String> = many.iter().map(|mount| mount.point.display().to_string()).collect();
            Err(Failure::new(format!("which mount? name one by --mount: {}", list.join(", "))))
        }
    }
}

/// Where the cluster is mounted that the environment names.
fn cluster_mount() -> Outcome<Option<PathBuf>> {
    let file = std::env::var_os(CLUSTER_VARIABLE).filter(|file| !file.is_empty());
    file.map(|file| Ok(ClusterFile::read(Path::new(&file))?.mount_point)).transpose()
}

/// Removes what commands of this host that were killed have left. What is not a load generator's stays: since the mode
/// ended, its bytes are kept.
fn sweep(mount: &Path) {
    for dir in abandoned(mount, PREFIX) {
        for entry in std::fs::read_dir(&dir).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with(LOAD_PREFIX) {
                let directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
                // What cannot be removed keeps the directory, which is told below.
                let _ = match directory {
                    true => std::fs::remove_dir_all(entry.path()),
                    false => std::fs::remove_file(entry.path()),
                };
            }
        }
        match std::fs::remove_dir(&dir) {
            Ok(()) => eprintln!("note: {}: was left by a command that was killed; removed", dir.display()),
            Err(e) => eprintln!(
                "note: {}: was left by a command that was killed, and stays ({e}): look into it, then rm -r it",
                dir.display()
            ),
        }
    }
}

impl Scratch {
    /// Makes the directory and switches the mode on in it.
    pub fn new(mount: &Path, name: Option<&Path>) -> Outcome<Self> {
        if !rustix::process::geteuid().is_root() {
            return Err(Failure::new("the mode drops what is written: only root may switch it on"));
        }
        sweep(mount);
        let own = PathBuf::from(own_name(PREFIX));
        Self::at(mount.join(name.unwrap_or(&own)), Mounted, LIMITS)
    }
}

impl<S: Switch> Scratch<S> {
    fn at(path: PathBuf, switch: S, limits: Limits) -> Outcome<Self> {
        let began = Instant::now();
        mkdir(&path, Mode::RWXU).map_err(|e| Failure::local(path.display(), std::io::Error::from(e)))?;
        let scratch = Self { path, switch, limits, began, told: AtomicBool::new(false) };
        scratch.renew()?;
        Ok(scratch)
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The load must have ended then: what is left of the mode's time is needed to clean up.
    pub fn ends(&self) -> Instant {
        self.began + self.most()
    }

    /// How long a load can go on.
    fn most(&self) -> Duration {
        self.limits.total.saturating_sub(self.limits.cleanup)
    }

    /// How often the mode must be renewed.
    pub fn renew_every(&self) -> Duration {
        self.limits.renew_every
    }

    /// Keeps the mode on; says it when files have been made that it is not for.
    pub fn renew(&self) -> Outcome {
        self.switch.set(&self.path, self.limits.lease).map_err(|e| {
            let why = match e {
                rustix::io::Errno::TIMEDOUT => {
                    format!("the mode has been on for {} s, the limit", self.limits.total.as_secs())
                }
                rustix::io::Errno::BUSY => "too many directories are measured in already".to_owned(),
                rustix::io::Errno::NOTEMPTY => "the mode has ended: nobody renewed it in time".to_owned(),
                e => std::io::Error::from(e).to_string(),
            };
            Failure::local(self.path.display(), why)
        })?;
        if let Some(said) = self.beyond().filter(|_| !self.told.swap(true, Relaxed)) {
            eprintln!("note: {said}");
        }
        Ok(())
    }

    /// What is to be said of files that go to disks, if there are any.
    pub fn beyond(&self) -> Option<String> {
        let many = self.switch.unmarked(&self.path);
        (many > 0).then(|| {
            format!(
                "{}: {NETBENCH_MARKS_MAX} files and directories were made in it, and at least {many} more, whose \
                 contents are kept on disks: make fewer, or the figures are not of the network alone",
                self.path.display()
            )
        })
    }

    /// What was made below `dir` while the mode was on, contents before their directory.
    fn marked(
        &self,
        dir: &Path,
        renewed: &mut Instant,
        into: &mut Vec<(PathBuf, u64)>,
    ) -> std::io::Result<()> {
        for entry in std::fs::read_dir(dir)? {
            let path = entry?.path();
            if renewed.elapsed() > self.limits.renew_every {
                // With the mode the marks would go.
                self.switch.set(&self.path, self.limits.lease)?;
                *renewed = Instant::now();
            }
            if !self.switch.is_marked(&path) {
                continue;
            }
            let meta = path.symlink_metadata()?;
            if meta.is_dir() {
                self.marked(&path, renewed, into)?;
            }
            into.push((path, meta.ino()));
        }
        Ok(())
    }

    /// Keeps the mode on until the time is over or a signal comes; in any case not for so long that nothing could be
    /// cleaned up. `false`: there was a signal.
    pub fn keep(&self, time: Duration, stop: &Stop) -> Outcome<bool> {
        let until = self.began + time.min(self.most());
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(true);
            }
            if stop.wait(left.min(self.limits.renew_every)) {
                return Ok(false);
            }
            self.renew()?;
        }
    }
}

impl<S: Switch> Drop for Scratch<S> {
    fn drop(&mut self) {
        // What was made in it is told while the mode is on; anything else was moved in, and is somebody's.
        let mut marked = Vec::new();
        if let Err(e) = self.marked(&self.path, &mut Instant::now(), &mut marked) {
            warning!("{}: {e}", self.path.display());
        }
        let beyond = self.beyond();
        // Off before anything is removed: nothing is dropped any more whatever becomes of the rest.
        if let Err(e) = self.switch.set(&self.path, Duration::ZERO) {
            warning!("{}: switching off: {e}; it ends by itself", self.path.display());
        }
        for (path, inode) in &marked {
            if let Err(e) = remove(path, *inode) {
                warning!("{}: {e}", path.display());
            }
        }
        if let Err(e) = std::fs::remove_dir(&self.path) {
            let why = beyond
                .unwrap_or_else(|| "what is left in it was not made there while the mode was on".to_owned());
            warning!("{}: {e}; {why}: look at it, then remove it by hand", self.path.display());
        }
    }
}

/// Removes it if it is the same still.
fn remove(path: &Path, inode: u64) -> std::io::Result<()> {
    match path.symlink_metadata() {
        Ok(meta) if meta.ino() != inode => Ok(()),
        Ok(meta) if meta.is_dir() => std::fs::remove_dir(path),
        Ok(_) => std::fs::remove_file(path),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(e) => Err(e),
    }
}

/// Does it.
pub fn run(args: &ModeArgs, out: &mut dyn Write) -> Outcome {
    let time = args.time.duration();
    if time > LIMITS.total {
        return Err(Failure::usage(format!("--for: {} s at most", LIMITS.total.as_secs())));
    }
    let stop = Stop::of_command().map_err(|e| Failure::local("signals", e))?;
    let mount = mount_point(args.mount.as_deref())?;
    let scratch = Scratch::new(&mount, args.directory.as_deref())?;
    writeln!(out, "{}", scratch.path().display())?;
    out.flush()?;
    eprintln!(
        "contents of files made in it are dropped, for {} s or until this command ends; then it is removed (if this \
         command is killed, they are dropped for {} s more, and the next `skep bench net mode` or `run` here removes it)",
        time.min(scratch.most()).as_secs(),
        LIMITS.lease.as_secs()
    );
    match scratch.keep(time, &stop)? {
        true => Ok(()),
        false => Err(Failure::interrupted("stopped before its time was over: the mode is off")),
    }
}

#[cfg(test)]
mod tests;
