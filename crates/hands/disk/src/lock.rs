//! The lock that keeps two processes from one directory.

use rustix::fd::AsFd;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::io;
use std::time::{Duration, Instant};

/// A killed process holds its locks until the kernel has taken it down (descriptors, rings, memory):
/// its successor waits so long before it believes that somebody else is there.
pub const PREDECESSOR_LIMIT: Duration = Duration::from_secs(2);
/// Pause between two looks: the kernel offers no wait with a limit.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Locks an open file for this process alone; `WouldBlock` when another holds it for good.
pub fn hold(file: impl AsFd) -> io::Result<()> {
    let start = Instant::now();
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) if start.elapsed() < PREDECESSOR_LIMIT => std::thread::sleep(LOOK_EVERY),
            Err(Errno::INTR) => {}
            done => return Ok(done?),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    /// Goal: a lock that is let go soon is waited for, one that is kept is refused.
    #[test]
    fn a_dying_predecessor_is_waited_for() {
        let path = std::env::temp_dir().join(format!("skep-lock-{}", std::process::id()));
        let (first, second) = (File::create(&path).unwrap(), File::create(&path).unwrap());
        hold(&first).unwrap();
        assert_eq!(hold(&second).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        let waiter = std::thread::spawn(move || hold(&second).map(|()| second));
        drop(first);
        waiter.join().unwrap().unwrap();
        std::fs::remove_file(&path).unwrap();
    }
}
