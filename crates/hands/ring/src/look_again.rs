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
    /// Not where more threads than these run or want to.
    most: u64,
    running: File,
    began: Instant,
    /// In nanoseconds since then: what was found counts until then.
    counts_until: AtomicU64,
    is_idle: AtomicBool,
}

/// Threads of this process look again for so long, from now on. The first call counts.
pub fn look_again_for(moment: Duration) {
    let processors = available_parallelism().map_or(1, |n| n.get() as u64);
    if let Some(policy) = Policy::new(moment, processors) {
        let _ = POLICY.set(policy);
    }
}

/// Asks again and again for a moment, if processors are idle. `true`: it was there.
///
/// # Errors
/// Those of who is asked.
pub fn look_again(is_there: impl FnMut() -> io::Result<bool>) -> io::Result<bool> {
    POLICY.get().map_or(Ok(false), |policy| policy.look(is_there))
}

impl Policy {
    /// `None`: nobody is to look again.
    fn new(moment: Duration, processors: u64) -> Option<Self> {
        // With one processor whoever is to answer waits for it.
        if moment.is_zero() || processors < 2 {
            return None;
        }
        let running = File::open(RUNNING).ok()?;
        let (counts_until, is_idle) = (AtomicU64::new(0), AtomicBool::new(false));
        // Where there are many, some are left to those who come next.
        let most = processors - processors / 4;
        Some(Self { moment, most, running, began: Instant::now(), counts_until, is_idle })
    }

    fn look(&self, mut is_there: impl FnMut() -> io::Result<bool>) -> io::Result<bool> {
        let begun = Instant::now();
        let at = begun.saturating_duration_since(self.began).as_nanos() as u64;
        if at >= self.counts_until.load(Ordering::Relaxed) {
            // What this thread has done meanwhile goes out before that is asked, which takes a while where there are many processors.
            if is_there()? {
                return Ok(true);
            }
            self.counts_until.store(at + COUNTS_FOR.as_nanos() as u64, Ordering::Relaxed);
            self.is_idle.store(self.has_idle(), Ordering::Relaxed);
        }
        if !self.is_idle.load(Ordering::Relaxed) {
            return Ok(false);
        }
        while begun.elapsed() < self.moment {
            if is_there()? {
                return Ok(true);
            }
            std::hint::spin_loop();
        }
        Ok(false)
    }

    /// Is there a processor for each thread that wants one, this one included?
    fn has_idle(&self) -> bool {
        let mut text = [0; 64];
        let read = self.running.read_at(&mut text, 0).unwrap_or(0);
        running(&text[..read]).is_some_and(|running| running <= self.most)
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

    /// Goal: what comes within the moment is seen; nobody looks for longer, nor where the processors are in use, but once where
    /// that is not known yet; nor at all with one processor, or where it was not asked for.
    #[test]
    fn for_a_moment() {
        let moment = Duration::from_millis(20);
        assert!(Policy::new(moment, 1).is_none() && Policy::new(Duration::ZERO, 2).is_none());
        assert!(!look_again(|| panic!("nobody has said that it should")).unwrap());
        let mut policy = Policy::new(moment, 1 << 40).unwrap();
        let (mut times, begun) = (0, Instant::now());
        let third = |times: &mut u32| {
            *times += 1;
            Ok(*times == 3)
        };
        assert!(policy.look(|| third(&mut times)).unwrap());
        assert!(!policy.look(|| Ok(false)).unwrap());
        assert!(times == 3 && begun.elapsed() >= moment);
        let refused = policy.look(|| Err(io::ErrorKind::Other.into())).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::Other);
        // More threads run than there may.
        (policy.most, policy.counts_until) = (0, AtomicU64::new(0));
        times = 0;
        assert!(!policy.look(|| third(&mut times)).unwrap());
        policy.counts_until = AtomicU64::new(u64::MAX);
        assert!(!policy.look(|| panic!("they are in use")).unwrap());
        assert_eq!(times, 1);
    }
}
