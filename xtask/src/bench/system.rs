//! The file systems that are compared: started here, stopped when dropped.

use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// Longest time that a mount may take to appear.
const MOUNT_LIMIT: Duration = Duration::from_secs(20);

/// One mounted file system.
pub struct System {
    /// Its name in the report.
    pub name: &'static str,
    /// Where the load works.
    pub directory: PathBuf,
}

/// All of them.
pub struct Systems {
    all: Vec<System>,
    scratch: PathBuf,
    skep: PathBuf,
    empty: Vec<(Child, PathBuf)>,
}

impl Systems {
    /// tmpfs, the empty FUSE file system (with the page cache and without) and Skep.
    pub fn start(root: &Path, backing: &Path) -> Result<Self, String> {
        let scratch = backing.join(format!("skep-bench-{}", std::process::id()));
        let release = root.join("target/release");
        let mut systems = Self { all: Vec::new(), skep: release.join("skep"), empty: Vec::new(), scratch };
        let tmpfs = systems.directory("tmpfs")?;
        systems.all.push(System { name: "tmpfs", directory: tmpfs });
        systems.start_empty(&release)?;
        systems.start_skep()?;
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

    /// The same attribute and entry time-outs (0), open flags and messages (FLUSH among them) as Skep's.
    fn start_empty(&mut self, release: &Path) -> Result<(), String> {
        let target = self.directory("empty")?;
        let program = release.join("examples/empty_mount");
        let mut command = Command::new(&program);
        command.arg(&target).args(["--ttl", "0", "--direct-io", "--flush"]);
        let child = command.spawn().map_err(|e| format!("{}: {e}", program.display()))?;
        self.empty.push((child, target.clone()));
        let started = Instant::now();
        while !is_mount_point(&target) {
            if started.elapsed() > MOUNT_LIMIT {
                return Err(format!("{} did not mount {}", program.display(), target.display()));
            }
            // A child process offers no event for this; the benchmark has not begun.
            std::thread::sleep(Duration::from_millis(5));
        }
        self.all.push(System { name: "empty", directory: target });
        Ok(())
    }

    fn start_skep(&mut self) -> Result<(), String> {
        let mount = self.directory("skep-mount")?;
        let state = self.directory("skep")?;
        let mut command = Command::new(&self.skep);
        command.args(["up", "--targets", "4", "--dir"]).arg(&state).arg("--mount").arg(&mount);
        let output = command.output().map_err(|e| format!("{}: {e}", self.skep.display()))?;
        if !output.status.success() {
            return Err(format!("skep up: {}", String::from_utf8_lossy(&output.stderr)));
        }
        self.all.push(System { name: "skep", directory: mount });
        Ok(())
    }
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
        let down = Command::new(&self.skep).args(["down", "--dir"]).arg(self.scratch.join("skep")).output();
        if let Err(e) = down {
            eprintln!("skep down: {e}");
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
