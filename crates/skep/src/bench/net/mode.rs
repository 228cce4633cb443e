//! `skep bench net mode`: the mode of a mount in which storage daemons drop what is written and answer reads from
//! memory, in one directory, as long as this command runs.

use crate::admin::mount_table;
use crate::admin::{Failure, Outcome};
use crate::daemon::Stop;
use crate::mount::special::NETBENCH;
use crate::units::Period;
use clap::Args;
use rustix::fs::{Mode, XattrFlags, mkdir, setxattr};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A command that was killed leaves the mode on for so long at most.
const LEASE: Duration = Duration::from_secs(5);
/// How often it is renewed.
const RENEW_EVERY: Duration = Duration::from_secs(1);
/// The mount ends it after this time, whatever is asked.
const TIME_MAX: Duration = Duration::from_secs(600);

/// Arguments of `skep bench net mode`.
#[derive(Debug, Args)]
pub struct ModeArgs {
    /// The mount [default: the only one of this machine]
    #[arg(long, value_name = "DIR")]
    mount: Option<PathBuf>,
    /// Name of the directory, which must not exist yet [default: .skep-netbench-<process>]
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

impl Scratch {
    /// Makes the directory and switches the mode on in it.
    pub fn new(mount: &Path, name: Option<&Path>) -> Outcome<Self> {
        if !rustix::process::geteuid().is_root() {
            return Err(Failure::new("the mode drops what is written: only root may switch it on"));
        }
        let own = PathBuf::from(format!(".skep-netbench-{}", std::process::id()));
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
        // Off first: nothing is dropped any more whatever becomes of the rest.
        if let Err(e) = set(&self.path, Duration::ZERO) {
            warning!("{}: switching off: {e}; it ends by itself", self.path.display());
        }
        if let Err(e) = std::fs::remove_dir_all(&self.path) {
            warning!("{}: {e}; remove it by hand", self.path.display());
        }
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
        "contents of files made in it are dropped, for {} s or until this command ends; then it is removed",
        time.as_secs()
    );
    scratch.keep(time, &stop, || false)
}
