//! Programs that wait, and whether somebody killed them.
//!
//! The kernel tells a mount of the first signal of a waiting program, whichever it is, and of no other. Most are none
//! that a program ends by: timers, children, profilers. No local disk returns EINTR for them, so neither does a mount: from the
//! first signal on it looks by itself whether SIGKILL waits for the program. (Linux makes SIGKILL of every signal that ends a
//! program without a core dump, for each of its threads.)
//!
//! A killed program that waited in a change closes its files next, and each close may be a change again. At that
//! time its signals are taken already and the kernel tells nothing; what it ended by stands in its exit code.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Changes of a killed program that were sent, all together, are waited for no longer than this.
pub const KILLED_WAIT: Duration = super::lane_hands::ANSWER_DEADLINE;
/// It is looked this often whether a waiting program was killed.
pub const LOOK_AT_CALLER: Duration = Duration::from_millis(250);
/// Killed programs that are remembered; beyond it the oldest go.
const KILLED_MAX: usize = 4_096;
/// SIGKILL in the masks of `status`.
const KILL_BIT: u64 = 1 << (9 - 1);
/// PF_EXITING of the kernel, in the flags of `stat`.
const EXITING: u64 = 0x4;
/// Bits of an exit code that name a signal.
const EXIT_SIGNAL: u64 = 0x7f;

/// A thread: its number, and when it began, for numbers are used again.
type Thread = (u32, u64);

/// Threads of programs that were seen killed, and when first.
#[derive(Debug, Default)]
pub struct Callers(Mutex<HashMap<Thread, Instant>>);

impl Callers {
    /// Since when a thread is known to be killed; `None`: it is not, it has ended, or it is of another pid name space.
    pub fn killed_since(&self, thread: u32) -> Option<Instant> {
        if thread == 0 {
            return None;
        }
        let read = |name: &str| std::fs::read_to_string(format!("/proc/{thread}/{name}")).ok();
        let stat = Stat::parse(&read("stat")?)?;
        let key = (thread, stat.began);
        let known = self.lock().get(&key).copied();
        if known.is_some() {
            return known;
        }
        let killed = match stat.exiting {
            true => stat.exit_code & EXIT_SIGNAL != 0,
            false => has_kill(&read("status")?),
        };
        killed.then(|| self.remember(key))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Thread, Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn remember(&self, key: Thread) -> Instant {
        let mut killed = self.lock();
        let now = Instant::now();
        if killed.len() >= KILLED_MAX {
            // Whoever used up its time ends at once, now or later.
            killed.retain(|_, since| now.duration_since(*since) < KILLED_WAIT);
            if killed.len() >= KILLED_MAX {
                killed.clear();
            }
        }
        *killed.entry(key).or_insert(now)
    }
}

/// Is a caller in this group? One whose further groups cannot be seen has none.
pub fn is_member(thread: u32, own: u32, group: u32) -> bool {
    if own == group {
        return true;
    }
    let status = match thread {
        0 => return false,
        thread => std::fs::read_to_string(format!("/proc/{thread}/status")).unwrap_or_default(),
    };
    groups(&status).any(|of| of == group)
}

fn groups(status: &str) -> impl Iterator<Item = u32> + '_ {
    let line = status.lines().find_map(|line| line.strip_prefix("Groups:"));
    line.unwrap_or_default().split_whitespace().filter_map(|group| group.parse().ok())
}

/// What is needed of `/proc/N/stat`.
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    exiting: bool,
    began: u64,
    exit_code: u64,
}

impl Stat {
    fn parse(text: &str) -> Option<Self> {
        // The name before may hold anything. Numbers as in proc(5), which counts from 1.
        let (_, rest) = text.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        Some(Self { exiting: field(9)? & EXITING != 0, began: field(22)?, exit_code: field(52)? })
    }
}

/// Does SIGKILL wait for the thread, or for its process?
fn has_kill(status: &str) -> bool {
    let mask = |line: &str| {
        let (name, value) = line.split_once(':')?;
        let of_signals = matches!(name, "SigPnd" | "ShdPnd");
        of_signals.then(|| u64::from_str_radix(value.trim(), 16).ok()).flatten()
    };
    status.lines().filter_map(mask).any(|mask| mask & KILL_BIT != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the fields are those of proc(5), whatever the program is called.
    #[test]
    fn fields_of_stat() {
        let before = "77 (a) b (c) D 1 2 3 4 5 ";
        let middle = "10 11 12 13 14 15 16 17 18 19 20 21 4711";
        let after = (23..52).map(|n| n.to_string()).collect::<Vec<_>>().join(" ");
        let stat = |flags: u64, code: u64| Stat::parse(&format!("{before}{flags} {middle} {after} {code}\n"));
        assert_eq!(stat(0x40_0000, 0), Some(Stat { exiting: false, began: 4711, exit_code: 0 }));
        assert_eq!(stat(0x40_0004, 9), Some(Stat { exiting: true, began: 4711, exit_code: 9 }));
        assert_eq!(Stat::parse("77 (cut"), None);
        assert_eq!(Stat::parse("77 (cut) D 1"), None);
    }

    /// Goal: only SIGKILL counts, pending for the thread or for the process, not blocked or caught ones.
    #[test]
    fn masks_of_status() {
        let status = |own: u64, shared: u64| {
            format!(
                "Name:\tx\nSigPnd:\t{own:016x}\nShdPnd:\t{shared:016x}\nSigBlk:\t0000000000000100\nSigCgt:\tffff\n"
            )
        };
        assert!(!has_kill(&status(0, 0)) && !has_kill(&status(0x2000, 0x4001)));
        assert!(has_kill(&status(0x100, 0)) && has_kill(&status(0, 0x4100)));
        assert!(!has_kill("") && !has_kill("SigPnd:\tz\n"));
    }

    /// Goal: a caller's own group and its further ones count; one that cannot be looked at has no further ones.
    #[test]
    fn members_of_groups() {
        assert_eq!(groups("Name:\tx\nGroups:\t4 24 1000 \nNStgid:\t7\n").collect::<Vec<_>>(), [4, 24, 1000]);
        assert_eq!(groups("Groups:\n").count() + groups("").count(), 0);
        assert!(is_member(0, 7, 7) && !is_member(0, 7, 8) && !is_member(u32::MAX, 7, 8));
    }

    /// Goal: a living thread is not killed, a number that nobody has is nobody; a thread once seen killed keeps its
    /// time, and memory is bounded.
    #[test]
    fn threads_of_this_machine() {
        let callers = Callers::default();
        let own = std::process::id();
        assert_eq!((callers.killed_since(own), callers.killed_since(0)), (None, None));
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        assert_eq!(callers.killed_since(child.id()), None);
        // Killed and not waited for: it has exited, by a signal.
        child.kill().unwrap();
        let until = Instant::now() + Duration::from_secs(60);
        let since = loop {
            if let Some(since) = callers.killed_since(child.id()) {
                break since;
            }
            assert!(Instant::now() < until, "a killed process is not seen");
            std::thread::yield_now();
        };
        assert_eq!(callers.killed_since(child.id()), Some(since));
        child.wait().unwrap();
        assert_eq!(callers.killed_since(child.id()), None);
        for number in 0..2 * KILLED_MAX as u64 {
            callers.remember((1, number));
        }
        assert!(callers.lock().len() <= KILLED_MAX);
    }
}
