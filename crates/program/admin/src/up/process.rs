//! Processes by their files: a process id alone may be somebody else's by now, so the start time
//! and the boot are kept, too. They have a file of their own: people send signals by `kill $(cat FILE)`,
//! and every number in it is a process for them.

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use skep_base::process::{boot_id, stat};
use skep_base::{Failure, Outcome};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A process that lives, held by a descriptor: signals reach it and nobody else.
pub struct Living {
    pub pid: u32,
    fd: OwnedFd,
}

/// What is beside a file with a process id: that id once more, the start of the process and that of the machine.
fn life(file: &Path) -> PathBuf {
    file.with_extension("life")
}

/// Notes a process in a file.
pub fn note(file: &Path, pid: u32) -> Outcome {
    let fail = |e: &dyn std::fmt::Display| Failure::local(file.display(), e);
    let (_, started) = stat(pid).ok_or_else(|| fail(&"the process ended at once"))?;
    let written = std::fs::write(life(file), format!("{pid} {started} {}\n", boot_id()));
    written.and_then(|()| std::fs::write(file, format!("{pid}\n"))).map_err(|e| fail(&e))
}

/// Forgets it. A leftover note finds nobody: harmless.
pub fn forget(file: &Path) {
    let _ = std::fs::remove_file(file);
    let _ = std::fs::remove_file(life(file));
}

/// The process that a file notes, if it still lives.
pub fn living(file: &Path) -> Option<Living> {
    let mut text = std::fs::read_to_string(file).ok()?;
    let noted = text.split_whitespace().next()?.to_owned();
    // Files of earlier releases hold everything.
    if text.split_whitespace().nth(1).is_none() {
        text = std::fs::read_to_string(life(file)).ok()?;
    }
    let mut words = text.split_whitespace();
    if words.next() != Some(noted.as_str()) {
        return None;
    }
    let (pid, started): (u32, u64) = (noted.parse().ok()?, words.next()?.parse().ok()?);
    if words.next() != Some(boot_id().as_str()) {
        return None;
    }
    let living = hold(pid)?;
    // Checked once it is held: from here on the id cannot pass to another process.
    let (state, since) = stat(pid)?;
    (since == started && !matches!(state, b'Z' | b'X')).then_some(living)
}

/// Holds a process that is known to be ours.
pub fn hold(pid: u32) -> Option<Living> {
    let id = Pid::from_raw(i32::try_from(pid).ok()?)?;
    Some(Living { pid, fd: pidfd_open(id, PidfdFlags::empty()).ok()? })
}

impl Living {
    /// Sends a signal; a process that has ended does not mind.
    pub fn signal(&self, signal: Signal) {
        let _ = pidfd_send_signal(&self.fd, signal);
    }

    /// Readable once the process has ended.
    pub fn ended(&self) -> PollFd<'_> {
        PollFd::new(&self.fd, PollFlags::IN)
    }

    /// Waits for its end until `deadline`; true when it has ended.
    pub fn wait(&self, deadline: Instant) -> bool {
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let limit = left.min(Duration::from_secs(3_600)).try_into().ok();
            match poll(&mut [self.ended()], limit.as_ref()) {
                Ok(0) if left.is_zero() => return false,
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                Ok(_) => return true,
                Err(_) => return false,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use skep_base::process::process_exists;
    use std::process::Command;

    /// Goal: a noted process is found and ended, and its file holds its id and no other number; a note of an earlier owner
    /// of the id, of another process, or of an earlier boot, finds nobody.
    #[test]
    fn notes_find_their_process_only() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("x.pid");
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        note(&file, child.id()).unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), format!("{}\n", child.id()));
        let beside = life(&file);
        let text = std::fs::read_to_string(&beside).unwrap();
        let started = text.split_whitespace().nth(1).unwrap();
        let other = text.replacen(&child.id().to_string(), "1", 1);
        for wrong in [text.replace(started, "1"), text.replace(&boot_id(), "other"), other, String::new()] {
            std::fs::write(&beside, wrong).unwrap();
            assert!(living(&file).is_none());
        }
        // Files of earlier releases hold everything.
        for earlier in [text.clone(), text.replacen(' ', "\n", 1)] {
            std::fs::write(&file, earlier).unwrap();
            assert_eq!(living(&file).map(|found| found.pid), Some(child.id()));
        }
        note(&file, child.id()).unwrap();
        let found = living(&file).unwrap();
        assert!(!found.wait(Instant::now()));
        found.signal(Signal::KILL);
        assert!(found.wait(Instant::now() + Duration::from_secs(60)));
        assert!(living(&file).is_none(), "a zombie lives");
        child.wait().unwrap();
        assert!(living(&file).is_none() && !process_exists(child.id()));
        forget(&file);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
