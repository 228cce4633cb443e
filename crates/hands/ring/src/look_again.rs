//! Whoever has just worked looks again for a moment before it sleeps: to wake an idle processor takes longer than most
//! answers take to come. Only where nobody else wants the processor: so it ends by itself when a machine gets busy.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

/// What is found of the machine counts for so long.
const COUNTS_FOR: Duration = Duration::from_millis(1);
/// Where the kernel says how many threads run or want to.
const RUNNING: &str = "/proc/loadavg";

/// Of this process. Not set: nobody looks again.
static POLICY: OnceLock<Policy> = OnceLock::new();

struct Policy {
    moment: Duration,
    /// Processors that this process may use at once.
    processors: u64,
    running: File,
    began: Instant,
    /// In nanoseconds since then: what was found counts until then.
    counts_until: AtomicU64,
    is_idle: AtomicBool,
}

/// Threads of this process look again for so long, from now on. The first call counts.
pub fn look_again_for(moment: Duration) {
    let processors = available_parallelism().map_or(1, |n| n.get() as u64);
    // With one processor whoever is to answer waits for it.
    if moment.is_zero() || processors < 2 {
        return;
    }
    if let Ok(running) = File::open(RUNNING) {
        let (counts_until, is_idle) = (AtomicU64::new(0), AtomicBool::new(false));
        let began = Instant::now();
        let _ = POLICY.set(Policy { moment, processors, running, began, counts_until, is_idle });
    }
}

/// Asks again and again for a moment, if processors are idle. `true`: it was there.
///
/// # Errors
/// Those of who is asked.
pub fn look_again(mut is_there: impl FnMut() -> io::Result<bool>) -> io::Result<bool> {
    let Some(policy) = POLICY.get() else { return Ok(false) };
    let begun = Instant::now();
    if !policy.has_idle(begun) {
        return Ok(false);
    }
    while begun.elapsed() < policy.moment {
        if is_there()? {
            return Ok(true);
        }
        std::hint::spin_loop();
    }
    Ok(false)
}

impl Policy {
    /// Is there a processor for each thread that wants one, this one included?
    fn has_idle(&self, now: Instant) -> bool {
        let at = now.saturating_duration_since(self.began).as_nanos() as u64;
        if at >= self.counts_until.load(Ordering::Relaxed) {
            self.counts_until.store(at + COUNTS_FOR.as_nanos() as u64, Ordering::Relaxed);
            let mut text = [0; 64];
            let read = self.running.read_at(&mut text, 0).unwrap_or(0);
            let is_idle = running(&text[..read]).is_some_and(|running| running <= self.processors);
            self.is_idle.store(is_idle, Ordering::Relaxed);
        }
        self.is_idle.load(Ordering::Relaxed)
    }
}

/// `0.08 0.03 0.05 2/345 6789`: the number before the slash.
fn running(text: &[u8]) -> Option<u64> {
    let field = text.split(|byte| *byte == b' ').nth(3)?;
    let number = field.split(|byte| *byte == b'/').next()?;
    std::str::from_utf8(number).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the number of threads that run, of what the kernel says.
    #[test]
    fn how_many_run() {
        assert_eq!(running(b"0.08 0.03 0.05 2/345 6789\n"), Some(2));
        assert_eq!((running(b""), running(b"1 2 3 x/4 5")), (None, None));
        assert!(running(&std::fs::read(RUNNING).unwrap()).unwrap() >= 1);
    }

    /// Goal: what comes within the moment is seen; nobody looks for longer, nor where the processors are in use.
    #[test]
    fn for_a_moment() {
        let moment = Duration::from_millis(20);
        assert!(!look_again(|| panic!("nobody has said that it should")).unwrap());
        look_again_for(moment);
        let Some(policy) = POLICY.get() else { return };
        let say = |is_idle| {
            policy.is_idle.store(is_idle, Ordering::Relaxed);
            policy.counts_until.store(u64::MAX, Ordering::Relaxed);
        };
        say(false);
        assert!(!look_again(|| panic!("they are in use")).unwrap());
        say(true);
        let (mut times, begun) = (0, Instant::now());
        let third = |times: &mut u32| {
            *times += 1;
            Ok(*times == 3)
        };
        assert!(look_again(|| third(&mut times)).unwrap());
        assert!(!look_again(|| Ok(false)).unwrap());
        assert!(times == 3 && begun.elapsed() >= moment);
        assert_eq!(look_again(|| Err(io::ErrorKind::Other.into())).unwrap_err().kind(), io::ErrorKind::Other);
    }
}
