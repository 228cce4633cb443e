//! The end of a child process, waited for by its descriptor.

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::retry_on_intr;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::io::Result;
use std::process::{Child, ExitStatus};
use std::time::Duration;

/// Whether it has ended, waited for so long at most. It is not reaped: until then nobody else gets its number, and
/// only until then this may be asked.
pub(crate) fn has_ended(child: &Child, limit: Duration) -> Result<bool> {
    let process = pidfd_open(Pid::from_child(child), PidfdFlags::empty())?;
    let limit = limit.try_into().ok();
    // A signal of ours, of which there are few, begins the wait anew.
    let ended = retry_on_intr(|| poll(&mut [PollFd::new(&process, PollFlags::IN)], limit.as_ref()))?;
    Ok(ended > 0)
}

/// How it has ended, waited for so long at most; none: it still runs.
pub(super) fn reap(child: &mut Child, limit: Duration) -> Result<Option<ExitStatus>> {
    if let Some(status) = child.try_wait()? {
        return Ok(Some(status));
    }
    has_ended(child, limit)?;
    child.try_wait()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;
    use std::time::Instant;

    /// Goal: one that runs is given up after the time, one that ends is told at once and stays until it is reaped, which
    /// may be asked for again.
    #[test]
    fn waited_for() {
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        let (short, long) = (Duration::from_millis(20), Duration::from_secs(60));
        let began = Instant::now();
        assert!(!has_ended(&child, short).unwrap() && reap(&mut child, short).unwrap().is_none());
        assert!(began.elapsed() >= 2 * short);
        child.kill().unwrap();
        assert!(has_ended(&child, long).unwrap() && has_ended(&child, long).unwrap());
        for _ in 0..2 {
            assert!(!reap(&mut child, long).unwrap().unwrap().success());
        }
        assert!(began.elapsed() < long);
    }
}
