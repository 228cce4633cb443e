//! `skep bench net mode`: the mode of a mount in which storage daemons drop what is written and answer reads from
//! memory, in one directory, as long as this command runs.

use crate::admin::access::CLUSTER_VARIABLE;
use crate::admin::mount_table;
use crate::admin::{Failure, Outcome};
use crate::bench::scratch::{abandoned, own_name};
use crate::daemon::Stop;
use crate::mount::special::{NETBENCH, NETBENCH_MARK};
use crate::units::Period;
use crate::up::ClusterFile;
use clap::Args;
use rustix::fs::{Mode, XattrFlags, lgetxattr, mkdir, setxattr};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A command that was killed leaves the mode on for so long at most.
const LEASE: Duration = Duration::from_secs(5);
/// How often it is renewed.
const RENEW_EVERY: Duration = Duration::from_secs(1);
/// The mount ends it after this time, whatever is asked.
const TIME_MAX: Duration = Duration::from_secs(600);

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
    /// How long (10 min at most); it ends sooner when the command does
    #[arg(long = "for", value_name = "TIME", default_value = "60s")]
    time: Period,
}

/// A directory in which the mode is on. It is off, and the directory gone, when this is dropped.
pub struct Scratch {
    path: PathBuf,
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
        let path = mount.join(name.unwrap_or(&own));
        mkdir(&path, Mode::RWXU).map_err(|e| Failure::local(path.display(), std::io::Error::from(e)))?;
        let scratch = Self { path };
        scratch.renew()?;
        Ok(scratch)
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Keeps the mode on.
    pub fn renew(&self) -> Outcome {
        set(&self.path, LEASE).map_err(|e| {
            let why = match e {
                rustix::io::Errno::TIMEDOUT => {
                    format!("the mode has been on for {} s, the limit", TIME_MAX.as_secs())
                }
                rustix::io::Errno::BUSY => "too many directories are measured in already".to_owned(),
                rustix::io::Errno::NOTEMPTY => "the mode has ended: nobody renewed it in time".to_owned(),
                e => std::io::Error::from(e).to_string(),
            };
            Failure::local(self.path.display(), why)
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
            if renewed.elapsed() > RENEW_EVERY {
                // With the mode the marks would go.
                set(&self.path, LEASE)?;
                *renewed = Instant::now();
            }
            let mut mark = [0; 1];
            if lgetxattr(&path, NETBENCH_MARK, &mut mark[..]) != Ok(1) || mark != *b"1" {
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

    /// Keeps the mode on until the time is over, `ended` says so, or a signal comes.
    pub fn keep(&self, time: Duration, stop: &Stop, mut ended: impl FnMut() -> bool) -> Outcome {
        let until = Instant::now() + time.min(TIME_MAX);
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || ended() || stop.wait(left.min(RENEW_EVERY)) {
                return Ok(());
            }
            self.renew()?;
        }
    }
}

fn set(path: &Path, lease: Duration) -> rustix::io::Result<()> {
    setxattr(path, NETBENCH, lease.as_millis().to_string().as_bytes(), XattrFlags::empty())
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What was made in it is told while the mode is on; anything else was moved in, and is somebody's.
        let mut marked = Vec::new();
        if let Err(e) = self.marked(&self.path, &mut Instant::now(), &mut marked) {
            warning!("{}: {e}", self.path.display());
        }
        // Off before anything is removed: nothing is dropped any more whatever becomes of the rest.
        if let Err(e) = set(&self.path, Duration::ZERO) {
            warning!("{}: switching off: {e}; it ends by itself", self.path.display());
        }
        for (path, inode) in &marked {
            if let Err(e) = remove(path, *inode) {
                warning!("{}: {e}", path.display());
            }
        }
        if let Err(e) = std::fs::remove_dir(&self.path) {
            warning!(
                "{}: {e}; what is left in it was not made there while the mode was on: look at it, then remove it by hand",
                self.path.display()
            );
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
    if time > TIME_MAX {
        return Err(Failure::new(format!("--for: {} s at most", TIME_MAX.as_secs())));
    }
    let stop = Stop::on_signals().map_err(|e| Failure::local("signals", e))?;
    let mount = mount_point(args.mount.as_deref())?;
    let scratch = Scratch::new(&mount, args.directory.as_deref())?;
    writeln!(out, "{}", scratch.path().display())?;
    out.flush()?;
    eprintln!(
        "contents of files made in it are dropped, for {} s or until this command ends; then it is removed (if this \
         command is killed, they are dropped for {} s more, and the next `skep bench net` here removes it)",
        time.as_secs(),
        LEASE.as_secs()
    );
    scratch.keep(time, &stop, || false)
}
