//! Calls into mounted file systems, which take as long as a server is away: nothing of the administration waits for that.

use crate::mount_table::{self, MountEntry};
use crate::{Failure, Outcome};
use clap::ValueEnum;
use clap::builder::PossibleValue;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::ffi::OsStr;
use std::fs::DirEntry;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// A file system that takes longer to say how full it is does not answer.
pub const ANSWER_LIMIT: Duration = Duration::from_secs(3);

/// This program, however it was started and whatever became of its file.
const OWN_PROGRAM: &str = "/proc/self/exe";
/// Its hidden command that asks.
const PROBE: &str = "probe";

/// What `ask` gives, unless it takes longer than `limit`. Its thread is left behind then, and ends with the process.
pub fn within<T: Send + 'static>(limit: Duration, ask: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (tell, told) = mpsc::channel();
    let asking = std::thread::Builder::new().name("asks".to_owned()).spawn(move || {
        // Nobody listens any more when the answer comes too late.
        let _ = tell.send(ask());
    });
    asking.ok().and_then(|_| told.recv_timeout(limit).ok())
}

/// For people.
pub fn seconds(limit: Duration) -> f32 {
    (limit.as_secs_f32() * 10.0).round() / 10.0
}

/// What is wanted of a path, so that the process that tries it touches the same mounts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Way {
    /// The entry itself, be it a symbolic link.
    Entry,
    /// What it leads to.
    Behind,
    /// Its path from the root without links.
    Real,
}

/// What [`answers`] starts: `mounted::probe`.
#[derive(Debug, clap::Args)]
pub struct ProbeArgs {
    pub way: Way,
    pub path: PathBuf,
    /// For others who look for this process
    device: u64,
}

/// Do the file systems that `path` leads over answer within `limit`? They are asked by a process of its own, which is left
/// behind if not: over io_uring nobody who asks a mount whose process is stopped can even be killed, and a program with such
/// a thread does not end.
pub fn answers(path: &Path, way: Way, limit: Duration) -> bool {
    let mounts = mount_table::read().unwrap_or_default();
    if !mounts.is_empty() && !mounts.iter().any(MountEntry::is_skep) {
        return true;
    }
    // One name for one place, wherever it is asked from.
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    // Another mount at the same place has another number.
    let device = mount_table::covering(&mounts, &path).map(|mount| mount.device).unwrap_or_default();
    let device = device.to_string().into_bytes();
    let value = way.to_possible_value();
    let way = value.as_ref().map_or("", PossibleValue::get_name);
    let words =
        [PROBE.as_bytes(), way.as_bytes(), path.as_os_str().as_bytes(), &device].map(OsStr::from_bytes);
    let limit = Timespec::try_from(limit).ok();
    let ends_in_time = |pid| {
        let ends = pidfd_open(pid, PidfdFlags::empty())?;
        retry_on_intr(|| poll(&mut [PollFd::new(&ends, PollFlags::IN)], limit.as_ref()))
            .map(|ready| ready > 0)
    };
    // However often a command is tried beside a mount that stands still, one process waits for it.
    if let Some(Ok(ended)) = asked_already(&words).map(ends_in_time) {
        return ended;
    }
    let mut command = Command::new(OWN_PROGRAM);
    command.args(words).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // Who cannot start one, or cannot wait for it, asks without.
    let Ok(mut child) = command.spawn() else { return true };
    let Ok(ended) = ends_in_time(Pid::from_child(&child)) else { return true };
    // Where it can be killed; where not, it ends with its mount.
    let _ = if ended { child.wait().map(drop) } else { child.kill() };
    ended
}

/// A process of this user, which sees the same mounts, that another command has started to ask the same, and that has no
/// answer yet.
fn asked_already(words: &[&OsStr]) -> Option<Pid> {
    let words = [&[OsStr::new(OWN_PROGRAM)], words, &[OsStr::new("")]].concat();
    let wanted = words.iter().map(|word| word.as_bytes()).collect::<Vec<_>>().join(&0);
    let mounts_of = |process: &Path| std::fs::read_link(process.join("ns/mnt"));
    let own = (rustix::process::geteuid().as_raw(), mounts_of(Path::new("/proc/self")).ok()?);
    let is_it = |entry: &DirEntry| {
        std::fs::read(entry.path().join("cmdline")).is_ok_and(|words| words == wanted)
            && entry.metadata().is_ok_and(|of| of.uid() == own.0)
            && mounts_of(&entry.path()).is_ok_and(|mounts| mounts == own.1)
    };
    let entry = std::fs::read_dir("/proc").ok()?.flatten().find(is_it)?;
    entry.file_name().to_str()?.parse().ok().and_then(Pid::from_raw)
}

/// What `ask` says of `path`, or that the file system there does not answer.
pub fn of_path<T: Send + 'static>(
    path: &Path,
    way: Way,
    limit: Duration,
    ask: impl FnOnce(&Path) -> T + Send + 'static,
) -> Outcome<T> {
    let (asked, begun) = (path.to_owned(), Instant::now());
    let answered = answers(path, way, limit).then(|| limit.saturating_sub(begun.elapsed()));
    answered.and_then(|left| within(left, move || ask(&asked))).ok_or_else(|| {
        Failure::new(format!(
            "{}: the file system there did not answer within {} s; it waits for a server that is away, or its process hangs: see skep health",
            path.display(),
            seconds(limit)
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::CommandExt;

    /// Goal: an answer is given, and what does not come in time is not waited for.
    #[test]
    fn answers_and_silence() {
        let limit = Duration::from_secs(60);
        assert_eq!(within(limit, || 7), Some(7));
        let (keep, never) = mpsc::channel::<()>();
        assert_eq!(within(Duration::from_millis(10), move || never.recv().is_ok()), None);
        drop(keep);
        let error =
            of_path(Path::new("/a"), Way::Entry, Duration::ZERO, |_| std::thread::park()).unwrap_err();
        assert!(error.to_string().contains("/a: the file system there did not answer"), "{error}");
    }

    /// Goal: who asks what another process is asking waits for that one.
    #[test]
    fn one_process_asks() {
        let scratch = tempfile::tempdir().unwrap();
        let silent = scratch.path().join("silent");
        rustix::fs::mkfifoat(rustix::fs::CWD, &silent, rustix::fs::Mode::RWXU).unwrap();
        let words = |device| [OsStr::new(PROBE), OsStr::new("entry"), silent.as_os_str(), OsStr::new(device)];
        assert_eq!(asked_already(&words("7")), None);
        let mut asks = Command::new("cat");
        let mut asks = asks.arg0(OWN_PROGRAM).args(words("7")).stderr(Stdio::null()).spawn().unwrap();
        // It has begun before its words can be read: the kernel lays them down last.
        let begun = Instant::now();
        let looks = || std::iter::repeat_with(|| asked_already(&words("7")));
        let seen = looks().find(|seen| seen.is_some() || begun.elapsed() > ANSWER_LIMIT).flatten();
        let of_another_mount = asked_already(&words("8"));
        // Before anything can fail: it holds what this program prints open, and would be waited for.
        asks.kill().unwrap();
        asks.wait().unwrap();
        assert_eq!((seen, of_another_mount), (Some(Pid::from_child(&asks)), None));
        assert_eq!(asked_already(&words("7")), None);
    }
}
