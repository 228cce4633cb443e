//! The file systems that are compared: started here, stopped when dropped.

use super::transport::Transport;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// Longest time that a mount may take to appear.
const MOUNT_LIMIT: Duration = Duration::from_secs(20);
/// Storage targets of each system.
pub const TARGETS: usize = 4;
/// The name of the local file system that lies below everything.
pub const LOCAL: &str = "tmpfs";

/// One mounted file system.
pub struct System {
    /// Its name in the report.
    pub name: &'static str,
    /// Where the load works.
    pub directory: PathBuf,
    /// Told from others' processes by this text on the command lines of its daemons.
    pub mark: String,
}

impl System {
    /// Are chunks deleted behind the program's back?
    pub fn works_on(&self) -> bool {
        self.name.starts_with("skep") || self.name.starts_with("beside")
    }
}

/// All of them.
pub struct Systems {
    all: Vec<System>,
    scratch: PathBuf,
    /// (program, directory) of each cluster.
    clusters: Vec<(PathBuf, PathBuf)>,
    empty: Vec<(Child, PathBuf)>,
}

impl Systems {
    /// tmpfs, and per transport the empty FUSE file system, a cluster of Skep, and one of another
    /// build (`beside`: where its programs lie).
    pub fn start(
        binaries: &Path,
        beside: Option<&Path>,
        backing: &Path,
        transports: &[Transport],
    ) -> Result<Self, String> {
        let scratch = backing.join(format!("skep-bench-{}", std::process::id()));
        let mut systems = Self { all: Vec::new(), empty: Vec::new(), clusters: Vec::new(), scratch };
        systems.add(LOCAL)?;
        for transport in transports {
            systems.start_empty(binaries, *transport)?;
            systems.start_skep(binaries, *transport, transport.skep())?;
            if let Some(beside) = beside {
                systems.start_skep(beside, *transport, transport.beside())?;
            }
        }
        Ok(systems)
    }

    /// In the order of a round.
    pub fn all(&self) -> &[System] {
        &self.all
    }

    fn directory(&self, name: &str) -> Result<PathBuf, String> {
        let path = self.scratch.join(name);
        std::fs::create_dir_all(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        Ok(path)
    }

    fn add(&mut self, name: &'static str) -> Result<PathBuf, String> {
        let directory = self.directory(name)?;
        let mark = directory.display().to_string();
        self.all.push(System { name, directory: directory.clone(), mark });
        Ok(directory)
    }

    /// The same attribute and entry time-outs (0), open flags and messages (FLUSH among them) as Skep's.
    fn start_empty(&mut self, binaries: &Path, transport: Transport) -> Result<(), String> {
        let target = self.add(transport.empty())?;
        let child = mount_empty(binaries, &target, transport, &["--direct-io", "--flush"])?;
        self.empty.push((child, target));
        Ok(())
    }

    fn start_skep(
        &mut self,
        binaries: &Path,
        transport: Transport,
        name: &'static str,
    ) -> Result<(), String> {
        let mount = self.add(name)?;
        let state = self.directory(&format!("{name}-cluster"))?;
        self.clusters.push((binaries.join("skep"), state.clone()));
        up(binaries, transport, &state, &mount)
    }
}

/// Mounts the empty file system, with further words for it.
pub fn mount_empty(
    binaries: &Path,
    target: &Path,
    transport: Transport,
    words: &[&str],
) -> Result<Child, String> {
    let program = binaries.join("examples/empty_mount");
    let mut command = Command::new(&program);
    command.arg(target).args(["--ttl", "0", "--transport", transport.name()]).args(words);
    let child = command.spawn().map_err(|e| format!("{}: {e}", program.display()))?;
    appears(&program.display().to_string(), target)?;
    Ok(child)
}

/// Waits until something is mounted there.
pub fn appears(who: &str, target: &Path) -> Result<(), String> {
    let started = Instant::now();
    while !is_mount_point(target) {
        if started.elapsed() > MOUNT_LIMIT {
            return Err(format!("{who} did not mount {}", target.display()));
        }
        // A child process offers no event for this; the benchmark has not begun.
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// Starts a cluster and mounts it.
pub fn up(binaries: &Path, transport: Transport, state: &Path, mount: &Path) -> Result<(), String> {
    let program = binaries.join("skep");
    let mut command = Command::new(&program);
    command.env("SKEP_MOUNT_TRANSPORT", transport.name());
    command.args(["up", "--targets", &TARGETS.to_string(), "--dir"]).arg(state).arg("--mount").arg(mount);
    let output = command.output().map_err(|e| format!("{}: {e}", program.display()))?;
    if !output.status.success() {
        return Err(format!("skep up: {}", String::from_utf8_lossy(&output.stderr)));
    }
    Ok(())
}

/// Is another file system mounted here than above?
fn is_mount_point(path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let device = |path: &Path| std::fs::metadata(path).map(|m| m.dev()).ok();
    let above = path.parent().and_then(device);
    device(path).is_some_and(|here| Some(here) != above)
}

impl Drop for Systems {
    fn drop(&mut self) {
        for (skep, cluster) in &self.clusters {
            if let Err(e) = Command::new(skep).args(["down", "--dir"]).arg(cluster).output() {
                eprintln!("skep down: {e}");
            }
        }
        for (child, target) in &mut self.empty {
            let _ = rustix::mount::unmount(target.as_path(), rustix::mount::UnmountFlags::DETACH);
            let _ = child.kill();
            let _ = child.wait();
        }
        if let Err(e) = std::fs::remove_dir_all(&self.scratch) {
            eprintln!("{} is left behind: {e}", self.scratch.display());
        }
    }
}
