//! The file systems that are compared, each with two mounts where it has servers: started here, ended when dropped.

use super::load::FOUR;
use super::{apart, counters, gluster, moose};
use crate::bench::system::{LOCAL, appears, mount_empty, up};
use crate::bench::transport::Transport;
use rustix::mount::{UnmountFlags, unmount};
use serde::{Deserialize, Serialize};
use std::net::TcpListener;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Names in the report.
pub const DISK: &str = "ext4";
/// See `docs/bench/peers.md`.
pub const EMPTY: &str = "empty";
/// The empty one with the page cache.
pub const PAGES: &str = "empty, pages";
/// This build.
pub const SKEP: &str = "skep";
/// Another build of it.
pub const BEFORE: &str = "skep before";
/// Without it there is no "best peer".
pub const MOOSE: &str = "MooseFS";
/// The other peer.
pub const GLUSTER: &str = "GlusterFS";
/// In the order of tables.
pub const ALL: [&str; 8] = [LOCAL, DISK, EMPTY, PAGES, SKEP, BEFORE, MOOSE, GLUSTER];
/// Of the empty file system with pages.
const READ_AHEAD_KIB: &str = "1024";
/// What tmpfs calls itself.
const TMPFS: rustix::fs::FsWord = 0x0102_1994;
/// What ext4 calls itself.
const EXT4: rustix::fs::FsWord = 0xEF53;

/// One file system.
#[derive(Debug)]
pub struct Member {
    /// Its name.
    pub name: &'static str,
    /// A directory of it.
    pub here: PathBuf,
    /// The same through another mount; without servers it is the same one.
    pub there: PathBuf,
    /// Through more of them, of Skep only.
    pub more: Vec<PathBuf>,
    /// Is what it keeps on a disk?
    pub is_on_disk: bool,
    /// Its processes are told by this text on their command lines, those of the load among them.
    pub mark: String,
    /// Ports where its daemons show what they count.
    pub counted_at: Vec<u16>,
}

impl Member {
    /// One without another mount, in a directory of its own.
    pub fn plain(name: &'static str, home: PathBuf) -> Self {
        let mark = format!("{}/", home.display());
        let here = home.join("here");
        // What it keeps lies beside it, or in it. Nothing is kept by the empty one.
        let is_on_disk = ![LOCAL, EMPTY, PAGES].contains(&name) && !is_in_memory(&home);
        Self { name, there: here.clone(), here, more: Vec::new(), is_on_disk, mark, counted_at: Vec::new() }
    }

    fn with_other_mount(self) -> Self {
        Self { there: self.here.with_file_name("there"), ..self }
    }

    /// Can two mounts of it be compared?
    pub fn is_shared(&self) -> bool {
        [SKEP, BEFORE, MOOSE, GLUSTER].contains(&self.name)
    }
}

/// One that did not run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Absent {
    /// Which.
    pub system: String,
    /// What it lacks.
    pub why: String,
}

/// A process that was started, and what it has mounted.
pub struct Running {
    child: Child,
    mounted: Option<PathBuf>,
}

impl Running {
    /// Starts a daemon that stays in the foreground; what it says goes to a file.
    pub fn start(command: &mut Command, log: &Path, mounted: Option<&Path>) -> Result<Self, String> {
        let file = std::fs::File::create(log).map_err(|e| format!("{}: {e}", log.display()))?;
        let errors = file.try_clone().map_err(|e| format!("{}: {e}", log.display()))?;
        command.stdin(Stdio::null()).stdout(file).stderr(errors);
        let program = command.get_program().to_string_lossy().into_owned();
        let child = command.spawn().map_err(|e| format!("{program}: {e}"))?;
        let running = Self { child, mounted: mounted.map(Path::to_path_buf) };
        if let Some(target) = mounted {
            appears(&program, target).map_err(|e| format!("{e}; see {}", log.display()))?;
        }
        Ok(running)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(target) = &self.mounted {
            // Nothing that was measured needs it any more.
            let _ = unmount(target.as_path(), UnmountFlags::DETACH);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// All of them.
pub struct Members {
    all: Vec<Member>,
    absent: Vec<Absent>,
    scratch: PathBuf,
    disk: Option<PathBuf>,
    running: Vec<Running>,
    /// (program, directory) of each cluster of Skep.
    clusters: Vec<(PathBuf, PathBuf)>,
}

/// What they are started with.
pub struct Start<'a> {
    /// Where the programs lie.
    pub binaries: &'a Path,
    /// Another build.
    pub beside: Option<&'a Path>,
    /// State, targets and mounts go below it.
    pub backing: &'a Path,
    /// A directory on a disk with ext4.
    pub disk: &'a Path,
    /// How the kernel's requests reach Skep and the empty file systems.
    pub transport: Transport,
}

impl Members {
    /// Peers that are not installed, or do not start, are absent; everything else must start.
    pub fn start(start: &Start<'_>) -> Result<Self, String> {
        let scratch = start.backing.join(format!("skep-bench-peers-{}", std::process::id()));
        let mut members = Self {
            all: Vec::new(),
            absent: Vec::new(),
            scratch,
            disk: None,
            running: Vec::new(),
            clusters: Vec::new(),
        };
        members.add(Member::plain(LOCAL, members.scratch.join("tmpfs")))?;
        members.add_disk(start.disk)?;
        let inline = skep_types::limits::INLINE_DEFAULT.to_string();
        members.add_empty(start, EMPTY, "empty", &["--like-skep", &inline])?;
        let pages = members.add_empty(start, PAGES, "pages", &["--like-skep", &inline, "--pages"])?;
        read_ahead(&pages)?;
        members.add_skep(start.binaries, SKEP, "skep", start.transport)?;
        if let Some(beside) = start.beside {
            members.add_skep(beside, BEFORE, "before", start.transport)?;
        }
        members.add_peer(MOOSE, "moosefs", moose::start)?;
        members.add_peer(GLUSTER, "glusterfs", gluster::start)?;
        Ok(members)
    }

    /// In the order of a round.
    pub fn all(&self) -> &[Member] {
        &self.all
    }

    /// Those that did not run.
    pub fn absent(&self) -> &[Absent] {
        &self.absent
    }

    /// A directory for what the load needs, on tmpfs.
    pub fn scratch(&self) -> &Path {
        &self.scratch
    }

    fn add(&mut self, member: Member) -> Result<(), String> {
        for directory in [&member.here, &member.there] {
            std::fs::create_dir_all(directory).map_err(|e| format!("{}: {e}", directory.display()))?;
        }
        self.all.push(member);
        Ok(())
    }

    fn add_disk(&mut self, disk: &Path) -> Result<(), String> {
        let home = disk.join(format!("skep-bench-peers-{}", std::process::id()));
        std::fs::create_dir_all(&home).map_err(|e| format!("{}: {e}", home.display()))?;
        let kind = rustix::fs::statfs(&home).map_err(|e| format!("{}: {e}", home.display()))?.f_type;
        self.disk = Some(home.clone());
        if kind == EXT4 {
            return self.add(Member::plain(DISK, home));
        }
        self.absent
            .push(Absent { system: DISK.to_owned(), why: "--disk names no directory on ext4".to_owned() });
        Ok(())
    }

    fn add_empty(
        &mut self,
        start: &Start<'_>,
        name: &'static str,
        home: &str,
        words: &[&str],
    ) -> Result<PathBuf, String> {
        let member = Member::plain(name, self.scratch.join(home));
        let target = member.here.clone();
        self.add(member)?;
        let child = mount_empty(start.binaries, &target, start.transport, words)?;
        self.running.push(Running { child, mounted: Some(target.clone()) });
        Ok(target)
    }

    fn add_skep(
        &mut self,
        binaries: &Path,
        name: &'static str,
        home: &str,
        transport: Transport,
    ) -> Result<(), String> {
        let home = self.scratch.join(home);
        let mut member = Member::plain(name, home.clone()).with_other_mount();
        let (cluster, there, program) = (home.join("cluster"), member.there.clone(), binaries.join("skep"));
        std::fs::create_dir_all(&member.here).map_err(|e| format!("{}: {e}", member.here.display()))?;
        self.clusters.push((program.clone(), cluster.clone()));
        up(binaries, transport, &cluster, &member.here)?;
        let file = cluster.join("cluster.toml");
        let text = std::fs::read_to_string(&file).map_err(|e| format!("{}: {e}", file.display()))?;
        member.counted_at = ports(&text);
        member.more = (2..FOUR).map(|number| home.join(format!("there-{number}"))).collect();
        for mount in [&there].into_iter().chain(&member.more) {
            std::fs::create_dir_all(mount).map_err(|e| format!("{}: {e}", mount.display()))?;
            let port = free_port()?;
            member.counted_at.push(port);
            let mut command = Command::new(&program);
            command.env("SKEP_MOUNT_TRANSPORT", transport.name());
            command.args(["mount", "--foreground", "--config"]).arg(cluster.join("etc/mount.toml"));
            command.arg("--set").arg(format!("mount_point={}", mount.display()));
            command.args(["--set", &format!("http=127.0.0.1:{port}")]);
            self.running.push(Running::start(&mut command, &mount.with_extension("log"), Some(mount))?);
        }
        self.all.push(member);
        Ok(())
    }

    fn add_peer(
        &mut self,
        name: &'static str,
        home: &str,
        start: fn(&Member, &Path, &mut Vec<Running>) -> Result<(), String>,
    ) -> Result<(), String> {
        let home = self.scratch.join(home);
        self.add(Member::plain(name, home.clone()).with_other_mount())?;
        let Some(member) = self.all.last() else { return Ok(()) };
        let mut running = Vec::new();
        let started = if apart::is_inside() {
            start(member, &home, &mut running)
        } else {
            Err("not root: no namespaces to start it in".to_owned())
        };
        if let Err(why) = started {
            eprintln!("bench: without {name}: {why}");
            self.absent.push(Absent { system: name.to_owned(), why });
            self.all.pop();
            // Its mounts go before its servers.
            running.into_iter().rev().for_each(drop);
            return Ok(());
        }
        self.running.extend(running);
        Ok(())
    }
}

impl Drop for Members {
    fn drop(&mut self) {
        while let Some(last) = self.running.pop() {
            drop(last);
        }
        for (skep, cluster) in &self.clusters {
            if let Err(e) = Command::new(skep).args(["down", "--dir"]).arg(cluster).output() {
                eprintln!("skep down: {e}");
            }
        }
        // What a peer's daemons have started. Inside there is nothing but what this run has started.
        if apart::is_inside() {
            for member in &self.all {
                counters::end(&member.mark);
            }
        }
        for directory in self.disk.iter().chain([&self.scratch]) {
            if let Err(e) = std::fs::remove_dir_all(directory) {
                eprintln!("{} is left behind: {e}", directory.display());
            }
        }
    }
}

/// Lets the kernel read ahead as far as a request can ask for.
fn read_ahead(mount: &Path) -> Result<(), String> {
    let device = std::fs::metadata(mount).map_err(|e| format!("{}: {e}", mount.display()))?.dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let file = format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb");
    std::fs::write(&file, READ_AHEAD_KIB).map_err(|e| format!("{file}: {e}"))
}

/// Is the nearest directory above it that exists on a file system without a disk?
fn is_in_memory(path: &Path) -> bool {
    let there = path.ancestors().find(|path| path.exists()).unwrap_or(path);
    rustix::fs::statfs(there).is_ok_and(|found| found.f_type == TMPFS)
}

/// The ports of the section `[http]` of a cluster's file.
fn ports(cluster: &str) -> Vec<u16> {
    let section = cluster.lines().skip_while(|line| line.trim() != "[http]").skip(1);
    let lines = section.take_while(|line| !line.trim_start().starts_with('['));
    lines.filter_map(|line| line.split_once('=')?.1.trim().parse().ok()).collect()
}

/// A port that nobody has.
fn free_port() -> Result<u16, String> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(|e| e.to_string())?;
    listener.local_addr().map(|address| address.port()).map_err(|e| e.to_string())
}

/// An error that names the first of these programs that is nowhere, and the package that has it.
pub fn installed(programs: &[(&str, &str)]) -> Result<(), String> {
    let path = std::env::var("PATH").unwrap_or_default();
    let is_there = |name: &str| path.split(':').any(|directory| Path::new(directory).join(name).is_file());
    match programs.iter().find(|(name, _)| !is_there(name)) {
        Some((name, package)) => Err(format!("not installed: {name} (Debian: {package})")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the daemons' ports, and not those of another section.
    #[test]
    fn ports_of_a_cluster() {
        let text =
            "targets = 4\n\n[ports]\nmgmtd = 1\n\n[http]\nmetad-1 = 28326\nmount = 28329\n\n[more]\nx = 3\n";
        assert_eq!(ports(text), [28_326, 28_329]);
        assert!(ports("targets = 4\n").is_empty());
    }

    /// Goal: a peer that is not there is told with its package.
    #[test]
    fn what_is_not_installed() {
        assert_eq!(installed(&[("sh", "dash")]), Ok(()));
        let why = installed(&[("sh", "dash"), ("no-such-program", "nothing")]).unwrap_err();
        assert_eq!(why, "not installed: no-such-program (Debian: nothing)");
    }
}
