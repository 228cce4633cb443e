//! Processes of a cluster, found by what the kernel knows of them.

use crate::wait::patiently;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::time::Duration;

/// Longest time that a killed process takes to be gone: it first gets the answer of a disk that may be busy.
const DYING: Duration = Duration::from_secs(120);

/// The services, as the first word of their command line.
const SERVICES: [&str; 4] = ["mgmtd", "metad", "storaged", "mount"];

/// A running process of the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Daemon {
    /// Its service: `mgmtd`, `metad`, `storaged`, `mount`.
    pub service: String,
    /// Process id.
    pub pid: u32,
    /// Its command line.
    pub words: Vec<OsString>,
}

impl Daemon {
    /// Every process of a cluster that lives below `dir`: its program is a service, and a word of its
    /// command line names that directory.
    pub fn all(dir: &Path) -> Vec<Self> {
        let Ok(processes) = std::fs::read_dir("/proc") else { return Vec::new() };
        let pids = processes.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let mut found: Vec<Self> = pids.filter_map(|pid| Self::of(pid, dir)).collect();
        found.sort_by(|a, b| (&a.service, &a.words).cmp(&(&b.service, &b.words)));
        found
    }

    fn of(pid: u32, dir: &Path) -> Option<Self> {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let words: Vec<OsString> =
            line.split(|byte| *byte == 0).map(|word| OsString::from_vec(word.to_vec())).collect();
        let service = service_of(&words)?;
        let needle = dir.as_os_str().as_bytes();
        line.windows(needle.len()).any(|window| window == needle).then(|| Self {
            service: service.to_owned(),
            pid,
            words,
        })
    }

    /// Its name in the cluster, such as `metad-2`: that of its configuration; of who has none, its service.
    pub fn name(&self) -> String {
        let mut files = self.words.iter().map(Path::new);
        let configuration = files.find(|file| file.extension().is_some_and(|end| end == "toml"));
        let name = configuration.and_then(Path::file_stem).unwrap_or(self.service.as_ref());
        name.display().to_string()
    }

    /// Seconds of processor that it has used, of all its threads.
    pub fn cpu_seconds(&self) -> Result<f64, String> {
        let path = format!("/proc/{}/stat", self.pid);
        let text = std::fs::read_to_string(&path).map_err(|e| format!("{path}: {e}"))?;
        // After the name, which may hold blanks: the state, and ten more before the times.
        let fields = text.rsplit(") ").next().unwrap_or_default().split_whitespace();
        let ticks: Vec<f64> = fields.skip(11).take(2).filter_map(|field| field.parse().ok()).collect();
        match ticks[..] {
            [user, system] => Ok((user + system) / rustix::param::clock_ticks_per_second() as f64),
            _ => Err(format!("{path}: no times in {text:?}")),
        }
    }

    /// Sends a signal; an error when the process is gone. What is to stop has stopped afterwards: a process goes on until
    /// the thread that the kernel chose for the signal gets a processor, long enough on a busy machine to answer a request.
    pub fn signal(&self, signal: Signal) -> Result<(), String> {
        let fd = self.handle()?;
        pidfd_send_signal(&fd, signal).map_err(|e| format!("{} {}: {e}", self.service, self.pid))?;
        if signal != Signal::STOP {
            return Ok(());
        }
        patiently(&format!("{} {} has stopped", self.service, self.pid), || self.has_stopped())
    }

    /// Do none of its threads run?
    fn has_stopped(&self) -> bool {
        let Ok(threads) = std::fs::read_dir(format!("/proc/{}/task", self.pid)) else { return false };
        threads.flatten().all(|thread| matches!(state(&thread.path()), None | Some('T')))
    }

    /// kill -9, and waits until the process is gone: its sockets closed, its locks free.
    pub fn kill(&self) -> Result<(), String> {
        let fd = self.handle()?;
        pidfd_send_signal(&fd, Signal::KILL).map_err(|e| format!("{} {}: {e}", self.service, self.pid))?;
        wait_gone(&fd, DYING).map_err(|e| format!("{} {}: {e}", self.service, self.pid))
    }

    /// Waits until the process has ended by itself.
    pub fn wait_gone(&self, limit: Duration) -> Result<(), String> {
        match self.handle() {
            Ok(fd) => wait_gone(&fd, limit).map_err(|e| format!("{} {}: {e}", self.service, self.pid)),
            Err(_) => Ok(()),
        }
    }

    /// Open descriptors.
    pub fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.pid)).map_or(0, Iterator::count)
    }

    /// Resident memory in KiB.
    pub fn resident_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid)).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        line.and_then(|line| line.trim().trim_end_matches(" kB").trim().parse().ok()).unwrap_or(0)
    }

    /// Does it run, and not as a zombie?
    pub fn is_alive(&self) -> bool {
        state(Path::new(&format!("/proc/{}", self.pid))).is_some_and(|state| !matches!(state, 'Z' | 'X'))
    }

    fn handle(&self) -> Result<OwnedFd, String> {
        let gone = || format!("{} {} is not running", self.service, self.pid);
        let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw).ok_or_else(gone)?;
        pidfd_open(pid, PidfdFlags::empty()).map_err(|_| gone())
    }
}

/// What a process or thread does, by the letter of its `stat`; none when it is gone.
fn state(directory: &Path) -> Option<char> {
    let stat = std::fs::read_to_string(directory.join("stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

/// The service that a command line starts: `skep SERVICE ...`, or `mount.skep ...`.
fn service_of(words: &[OsString]) -> Option<&'static str> {
    let program = Path::new(words.first()?).file_name()?;
    match words.get(1) {
        _ if program == "mount.skep" || program == "mount.fuse.skep" => Some("mount"),
        Some(word) if program.as_bytes().starts_with(b"skep") => {
            SERVICES.into_iter().find(|service| *word == **service)
        }
        _ => None,
    }
}

fn wait_gone(fd: &OwnedFd, limit: Duration) -> Result<(), String> {
    let limit = Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: i64::from(limit.subsec_nanos()) };
    let mut fds = [PollFd::new(fd, PollFlags::IN)];
    match poll(&mut fds, Some(&limit)) {
        Ok(1) => Ok(()),
        Ok(_) => Err(format!("still there after {} s", limit.tv_sec)),
        Err(e) => Err(e.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: services are told from other commands that name the same directory.
    #[test]
    fn services_by_their_words() {
        let of = |line: &str| service_of(&line.split(' ').map(OsString::from).collect::<Vec<_>>());
        assert_eq!(of("/x/skep metad --config /d/metad.toml"), Some("metad"));
        assert_eq!(of("mount.skep m:/ /d/mnt"), Some("mount"));
        assert_eq!(of("/x/skep down --dir /d"), None);
        assert_eq!(of("tail mount /d"), None);
    }
}
