//! `skep bench net mode`: a mount of its own, whose storage daemons drop what is written and answer reads from memory, as
//! long as this command runs.

use crate::bench::scratch::{abandoned, own_name};
use clap::Args;
use rustix::fs::{Mode, lgetxattr, mkdir};
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{Pid, Signal, kill_process};
use skep_base::access::{AccessArgs, CLUSTER_VARIABLE, is_of_another};
use skep_base::attributes::NETBENCH;
use skep_base::cluster_file::ClusterFile;
use skep_base::daemon::Stop;
use skep_base::mount_table::{self, MountEntry};
use skep_base::units::Period;
use skep_base::{Failure, Outcome};
use std::ffi::OsString;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The mount answers within this time, or does not come.
const MOUNT_LIMIT: Duration = Duration::from_secs(30);
/// It ends within this time unless somebody is in it.
const END_LIMIT: Duration = Duration::from_secs(10);
/// How often it is looked whether it is there, or has ended.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Names of directories in which contents are dropped begin so, and those of mount points.
pub const PREFIX: &str = ".skep-netbench-";
/// Names that load generators make begin so.
const LOAD_PREFIX: &str = "skep-bench-";

/// Which mount is measured.
#[derive(Debug, Args)]
pub struct WhichArgs {
    /// The mount [default: that of SKEP_CLUSTER; the only one of this machine]
    #[arg(long, value_name = "DIR")]
    mount: Option<PathBuf>,
    /// Options of the mount beside it that is made for measuring, as for skep mount (config=FILE, transport=dev, ...)
    #[arg(short = 'o', value_name = "OPTIONS")]
    options: Vec<String>,
}

/// Arguments of `skep bench net mode`.
#[derive(Debug, Args)]
pub struct ModeArgs {
    #[command(flatten)]
    which: WhichArgs,
    /// Name of the directory, which must not exist yet [default: .skep-netbench-HOST-...]
    #[arg(long, value_name = "NAME")]
    directory: Option<PathBuf>,
    /// How long; it ends sooner when the command does
    #[arg(long = "for", value_name = "TIME", default_value = "60s")]
    time: Period,
}

/// A mount that drops contents, of this process: when that ends, so does the mount.
struct Beside {
    point: PathBuf,
    process: Child,
}

/// A directory on such a mount. What was made in it through the mount goes with it when this is dropped.
pub struct Scratch {
    path: PathBuf,
    beside: Beside,
}

/// The mount that is meant.
pub fn mount_point(named: Option<&Path>) -> Outcome<MountEntry> {
    let mounts = mount_table::read().map_err(|e| Failure::local("list of mounts", e))?;
    let ours: Vec<_> = mounts.into_iter().filter(|mount| mount.is_skep() && !drops(mount)).collect();
    let topmost = |point: &Path| ours.iter().rev().find(|mount| mount.point == point).cloned();
    match (named, ours.as_slice()) {
        (Some(path), _) => {
            let path = std::fs::canonicalize(path).map_err(|e| Failure::local(path.display(), e))?;
            topmost(&path).ok_or_else(|| {
                Failure::new(format!("{}: no Skep file system is mounted there", path.display()))
            })
        }
        _ if let Some(point) = cluster_mount()? => topmost(&point).ok_or_else(|| {
            Failure::new(format!(
                "{}: the cluster of SKEP_CLUSTER is not mounted there: mount it, or name a mount by --mount",
                point.display()
            ))
        }),
        (None, [one]) => Ok(one.clone()),
        (None, []) => {
            Err(Failure::new("no Skep file system is mounted here: `skep mount`, or name it by --mount"))
        }
        (None, many) => {
            let list: Vec<String> = many.iter().map(|mount| mount.point.display().to_string()).collect();
            Err(Failure::new(format!("which mount? name one by --mount: {}", list.join(", "))))
        }
    }
}

/// Was it made for measuring?
fn drops(mount: &MountEntry) -> bool {
    mount.point.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(PREFIX.as_bytes()))
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

/// What `skep mount` is told, for one like `mount`: with its cluster's configuration if `skep up` made it, else with the
/// installed one.
fn words(mount: &MountEntry, options: &[String]) -> Outcome<Vec<OsString>> {
    let access =
        AccessArgs { mgmtd: Vec::new(), key: None, cluster: None, insecure: false, timeout: Period::secs(5) };
    let variable = std::env::var_os(CLUSTER_VARIABLE).filter(|file| !file.is_empty()).map(PathBuf::from);
    let cluster = match access.of_mount(mount)?.cluster {
        Some(file) => Some(ClusterFile::read(&file)?),
        None => variable.map(|file| ClusterFile::read(&file)).transpose()?,
    };
    let mut words: Vec<OsString> = Vec::new();
    match cluster.filter(|cluster| !is_of_another(&mount.source, &cluster.mgmtd)) {
        Some(cluster) => words.extend(["--config".into(), cluster.dir.join("etc/mount.toml").into()]),
        None => words.push(mount.source.clone().into()),
    }
    words.extend(options.iter().flat_map(|list| ["-o".into(), list.into()]));
    Ok(words)
}

impl Beside {
    /// Mounts, beside `mount`.
    fn new(mount: &MountEntry, options: &[String]) -> Outcome<Self> {
        let above = std::env::temp_dir();
        for dir in abandoned(&above, PREFIX) {
            // Its process may have been killed, too: nobody else takes the mount away.
            let _ = unmount(&dir, UnmountFlags::DETACH);
            let _ = std::fs::remove_dir(dir);
        }
        let point = above.join(own_name(PREFIX));
        let local = |e: std::io::Error| Failure::local(point.display(), e);
        let program = std::env::current_exe().map_err(local)?;
        let mut command = Command::new(program);
        command.args(["mount", "--foreground", "--netbench", &std::process::id().to_string()]);
        command.args(words(mount, options)?).args(["--set", "http=", "--set", "log=warn"]);
        // Everything of the cluster can be reached through it: only root may.
        command.args(["--set", "allow_other=false", "--set", &format!("mount_point={}", point.display())]);
        // What is typed at the terminal is for this command, which ends the mount after the load.
        command.process_group(0).stdin(Stdio::null()).stdout(Stdio::null());
        mkdir(&point, Mode::RWXU).map_err(|e| local(e.into()))?;
        let process = command.spawn().map_err(local)?;
        let mut beside = Self { point, process };
        let until = Instant::now() + MOUNT_LIMIT;
        while mount_table::at(&beside.point).map_err(|e| Failure::local("list of mounts", e))?.is_none() {
            beside.check()?;
            if Instant::now() >= until {
                let seconds = MOUNT_LIMIT.as_secs();
                return Err(Failure::new(format!("nothing was mounted for measuring within {seconds} s")));
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(beside)
    }

    /// Does it go on?
    fn check(&mut self) -> Outcome {
        match self.process.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => Err(Failure::new(format!(
                "{}: the mount for measuring has ended ({status}); what it said stands above",
                self.point.display()
            ))),
            Err(e) => Err(Failure::local(self.point.display(), e)),
        }
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        if let Some(pid) = Pid::from_raw(self.process.id().cast_signed()) {
            // It fails for one that has ended.
            let _ = kill_process(pid, Signal::TERM);
        }
        let until = Instant::now() + END_LIMIT;
        while matches!(self.process.try_wait(), Ok(None)) && Instant::now() < until {
            std::thread::sleep(LOOK_EVERY);
        }
        // Somebody is in it, or its process was killed.
        let _ = unmount(&self.point, UnmountFlags::DETACH);
        if let Err(e) = std::fs::remove_dir(&self.point) {
            warning!("{}: {e}", self.point.display());
        }
    }
}

impl Scratch {
    /// Makes the mount and the directory.
    pub fn new(which: &WhichArgs, name: Option<&Path>) -> Outcome<Self> {
        if !rustix::process::geteuid().is_root() {
            return Err(Failure::new("what is written is dropped: only root may do that"));
        }
        let mount = mount_point(which.mount.as_deref())?;
        sweep(&mount.point);
        let beside = Beside::new(&mount, &which.options)?;
        let own = PathBuf::from(own_name(PREFIX));
        let path = beside.point.join(name.unwrap_or(&own));
        mkdir(&path, Mode::RWXU).map_err(|e| Failure::local(path.display(), std::io::Error::from(e)))?;
        Ok(Self { path, beside })
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Fails when the mount has ended.
    pub fn check(&mut self) -> Outcome {
        self.beside.check()
    }

    /// Waits until the time is over or a signal comes, which is `false`.
    fn keep(&mut self, time: Duration, stop: &Stop) -> Outcome<bool> {
        let until = Instant::now() + time;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(true);
            }
            if stop.wait(left.min(Duration::from_secs(1))) {
                return Ok(false);
            }
            self.check()?;
        }
    }
}

/// Was it made through this mount? Anything else was moved in, and is somebody's.
fn is_made_here(path: &Path) -> bool {
    let mut mark = [0; 1];
    lgetxattr(path, NETBENCH, &mut mark[..]) == Ok(1) && mark == *b"1"
}

/// Removes what is below `dir` and was made through this mount.
fn clean(dir: &Path) -> std::io::Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        if !is_made_here(&path) {
            continue;
        }
        if path.symlink_metadata()?.is_dir() {
            clean(&path)?;
            // What was moved in keeps it, and is told of the uppermost directory.
            let _ = std::fs::remove_dir(path);
        } else {
            std::fs::remove_file(path)?;
        }
    }
    Ok(())
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(e) = clean(&self.path).and_then(|()| std::fs::remove_dir(&self.path)) {
            let why = "what is left in it was not made there: look at it, then remove it by hand";
            warning!("{}: {e}; {why}", self.path.display());
        }
    }
}

pub fn run(args: &ModeArgs, out: &mut dyn Write) -> Outcome {
    let stop = Stop::of_command().map_err(|e| Failure::local("signals", e))?;
    let mut scratch = Scratch::new(&args.which, args.directory.as_deref())?;
    writeln!(out, "{}", scratch.path().display())?;
    out.flush()?;
    eprintln!(
        "contents of files made in it are dropped, for {} s or until this command ends; then it is removed (if this \
         command is killed, the next `skep bench net mode` or `run` here removes it)",
        args.time.duration().as_secs()
    );
    match scratch.keep(args.time.duration(), &stop)? {
        true => Ok(()),
        false => Err(Failure::interrupted("stopped before its time was over: contents are kept again")),
    }
}
