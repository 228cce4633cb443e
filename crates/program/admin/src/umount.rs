//! `skep umount`: a tidy end of a mount, or who keeps it busy.

use clap::Args;
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use skep_base::control;
use skep_base::mount_table::{self, MountEntry};
use skep_base::process::process_exists;
use skep_base::unmount::take_away;
use skep_base::{Failure, Outcome};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The mount's process has what was written synced (up to 10 s), tells servers about its last closes and ends its session
/// within this time.
const END_LIMIT: Duration = Duration::from_secs(15);
/// Its end is looked for this often.
const LOOK_PAUSE: Duration = Duration::from_millis(20);
/// Programs that are named.
const HOLDERS_MAX: usize = 10;

/// Arguments of `skep umount`.
#[derive(Debug, Args)]
pub struct UmountArgs {
    /// Where it is mounted
    directory: PathBuf,
    /// Take it out of the tree at once; it ends when its last user does
    #[arg(long, short = 'l')]
    lazy: bool,
    /// End what waits for servers that are away, with EIO
    #[arg(long, short = 'f')]
    force: bool,
}

/// Who uses something on the mount, and how.
#[derive(Debug, PartialEq, Eq)]
struct Holder {
    pid: u32,
    name: String,
    how: String,
}

/// Uses of a process that `/proc` shows as links.
fn uses(process: &Path, point: &Path) -> Option<String> {
    // Reading a link asks nobody but the kernel, so a mount that hangs does not hang this.
    let on_it = |link: &Path| {
        let target = fs::read_link(link).ok()?;
        target.starts_with(point).then_some(target)
    };
    for (link, how) in [("cwd", "works in"), ("root", "has its root at"), ("exe", "runs")] {
        if let Some(target) = on_it(&process.join(link)) {
            return Some(format!("{how} {}", target.display()));
        }
    }
    let entries = fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
    if let Some(target) = entries.filter_map(|entry| on_it(&entry.path())).next() {
        return Some(format!("has {} open", target.display()));
    }
    let maps = fs::read_to_string(process.join("maps")).unwrap_or_default();
    let mapped = maps.lines().filter_map(|line| line.find('/').map(|at| Path::new(&line[at..])));
    mapped
        .into_iter()
        .find(|path| path.starts_with(point))
        .map(|path| format!("has {} mapped", path.display()))
}

/// Everybody who uses it, as far as this user may know.
fn holders(point: &Path) -> Vec<Holder> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let holder = |entry: fs::DirEntry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let how = uses(&entry.path(), point)?;
        let name = fs::read_to_string(entry.path().join("comm")).unwrap_or_default().trim().to_owned();
        Some(Holder { pid, name, how })
    };
    processes.filter_map(holder).collect()
}

/// Who uses it, a line each.
fn users(point: &Path, mounts: &[MountEntry]) -> String {
    let mut text = String::new();
    let below = mounts.iter().filter(|mount| mount.point != point && mount.point.starts_with(point));
    for mount in below.take(HOLDERS_MAX) {
        text.push_str(&format!("\n  {} is mounted at {}", mount.source, mount.point.display()));
    }
    let holders = holders(point);
    for Holder { pid, name, how } in holders.iter().take(HOLDERS_MAX) {
        text.push_str(&format!("\n  process {pid} ({name}) {how}"));
    }
    if holders.len() > HOLDERS_MAX {
        text.push_str(&format!("\n  and {} processes more", holders.len() - HOLDERS_MAX));
    }
    if holders.is_empty() && !rustix::process::geteuid().is_root() {
        text.push_str("\n  processes of other users: ask as root");
    } else if text.is_empty() {
        text.push_str("\n  somebody whom /proc does not show, such as a loop device or swap file on it");
    }
    text
}

/// Why it is busy and what to do.
fn busy(point: &Path, mounts: &[MountEntry]) -> Failure {
    Failure::new(format!(
        "{} is busy:{}\nend them, or take it away with --lazy: they keep what they have open until they end",
        point.display(),
        users(point, mounts)
    ))
}

/// The kernel has ended a mount that was to go by force before it says that somebody uses it: what is left is of no use.
fn detach_dead(mount: &MountEntry, users: &str) -> Outcome {
    let point = &mount.point;
    // Its own process may be faster, and something else be there by now.
    let is_there = || mount_table::at(point).is_ok_and(|now| now.is_some_and(|now| now.id == mount.id));
    if is_there()
        && let Err(e) = take_away(point, UnmountFlags::NOFOLLOW | UnmountFlags::DETACH, "-uz")
        && is_there()
    {
        return Err(Failure::new(format!("{}: was ended, and cannot be unmounted: {e}", point.display())));
    }
    eprintln!("ended under who used it, and gets errors from now on:{users}");
    Ok(())
}

/// The mount's process, from the note that it leaves beside its sockets or in /run/skep.
fn process_of(mount: &MountEntry) -> Option<u32> {
    let beside = mount.source.split(',').find_map(|one| Path::new(one.strip_prefix("unix:")?).parent());
    let dirs = [beside, Some(Path::new("/run/skep"))];
    let notes = dirs.into_iter().flatten().flat_map(|dir| fs::read_dir(dir).into_iter().flatten().flatten());
    notes.map(|entry| entry.path()).find_map(|path| {
        let pid = control::pid_of(&path, control::NOTE)?;
        let note: toml::Table = fs::read_to_string(&path).ok()?.parse().ok()?;
        let at = note.get("mount_point")?.as_str()?;
        (Path::new(at) == mount.point && process_exists(pid)).then_some(pid)
    })
}

pub fn run(args: &UmountArgs) -> Outcome {
    let point =
        std::path::absolute(&args.directory).map_err(|e| Failure::local(args.directory.display(), e))?;
    let mounts = mount_table::read().map_err(|e| Failure::local("list of mounts", e))?;
    let Some(mount) = mounts.iter().rev().find(|mount| mount.point == point) else {
        let all: Vec<_> =
            mounts.iter().filter(|m| m.is_skep()).map(|m| m.point.display().to_string()).collect();
        let list = if all.is_empty() { "nothing".to_owned() } else { all.join(", ") };
        return Err(Failure::new(format!(
            "{}: nothing is mounted there; Skep is at: {list}",
            point.display()
        )));
    };
    if !mount.is_skep() {
        let (at, kind) = (point.display(), &mount.kind);
        return Err(Failure::new(format!(
            "{at}: a {kind} file system is mounted there, not Skep; use umount"
        )));
    }
    let process = process_of(mount);
    let mut flags = UnmountFlags::NOFOLLOW;
    flags.set(UnmountFlags::DETACH, args.lazy);
    flags.set(UnmountFlags::FORCE, args.force);
    // What a dead mount had open is not named any more.
    let users = if args.force { users(&point, &mounts) } else { String::new() };
    match take_away(&point, flags, if args.lazy { "-uz" } else { "-u" }) {
        Ok(()) => {}
        Err(Errno::BUSY | Errno::INVAL) if args.force => detach_dead(mount, &users)?,
        Err(Errno::BUSY) => return Err(busy(&point, &mounts)),
        Err(e) => return Err(Failure::new(format!("{}: cannot be unmounted: {e}", point.display()))),
    }
    if let Some(pid) = process.filter(|_| !args.lazy) {
        let until = Instant::now() + END_LIMIT;
        while process_exists(pid) && Instant::now() < until {
            std::thread::sleep(LOOK_PAUSE);
        }
        if process_exists(pid) {
            eprintln!(
                "note: process {pid} of the mount goes on: it waits for servers, and what was written last may not be \
                 synced yet; or a mount name space of somebody's own (a container) has the file system still: grep {} \
                 /proc/*/mountinfo",
                point.display()
            );
        }
    }
    eprintln!("{} is unmounted", point.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: whoever works in a directory, or has a file below it open, is named with what he uses.
    #[test]
    fn holders_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().canonicalize().unwrap();
        assert_eq!(holders(&dir), []);
        let file = fs::File::create(dir.join("open")).unwrap();
        let mut worker = std::process::Command::new("sleep").arg("600").current_dir(&dir).spawn().unwrap();
        let found = holders(&dir);
        let how = |pid: u32| found.iter().find(|holder| holder.pid == pid).unwrap().how.clone();
        assert_eq!(how(std::process::id()), format!("has {}/open open", dir.display()));
        assert_eq!(how(worker.id()), format!("works in {}", dir.display()));
        assert!(busy(&dir, &[]).to_string().contains("(sleep) works in"));
        worker.kill().unwrap();
        worker.wait().unwrap();
        drop(file);
    }

    /// Goal: what is not a Skep mount is left alone, with a word about what to use.
    #[test]
    fn others_are_left_alone() {
        let run = |directory: &str| {
            run(&UmountArgs { directory: directory.into(), lazy: false, force: false })
                .unwrap_err()
                .to_string()
        };
        assert!(run("/proc").contains("use umount"));
        assert!(run("/nonexistent/x").contains("nothing is mounted"));
    }
}
