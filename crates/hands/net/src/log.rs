//! One line per event, limited per peer, so that a port scanner cannot fill a disk.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Lines per second that one peer host may cause.
pub const LINES_PER_PEER: u32 = 10;
/// Hosts that are counted apart; all beyond share one allowance.
pub const PEERS_COUNTED: usize = 1_024;

const WINDOW: Duration = Duration::from_secs(1);
/// Name of the allowance that all hosts beyond [`PEERS_COUNTED`] share.
const EVERYBODY_ELSE: &str = "other hosts";

struct Count {
    since: Instant,
    lines: u32,
    dropped: u64,
}

struct Inner {
    sink: Box<dyn Fn(&str) + Send + Sync>,
    counts: Mutex<BTreeMap<String, Count>>,
}

/// Where lines go. Clones share the sink and the allowances.
#[derive(Clone)]
pub struct Log(Arc<Inner>);

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Log")
    }
}

impl Default for Log {
    fn default() -> Self {
        static STDERR: LazyLock<Log> = LazyLock::new(|| Log::new(|line| eprintln!("{line}")));
        STDERR.clone()
    }
}

impl Log {
    /// Gives every line to `sink`.
    pub fn new(sink: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self(Arc::new(Inner { sink: Box::new(sink), counts: Mutex::default() }))
    }

    /// One line about `who` (a host), unless that host has used up its allowance.
    pub fn line(&self, who: &str, text: impl fmt::Display) {
        match self.admit(who, Instant::now()) {
            Some(0) => (self.0.sink)(&format!("{who}: {text}")),
            Some(n) => (self.0.sink)(&format!("{who}: {text} ({n} lines about {who} left out before)")),
            None => {}
        }
    }

    /// May `who` cause a line now? Then with the number of lines that were left out before.
    fn admit(&self, who: &str, now: Instant) -> Option<u64> {
        let mut counts = self.0.counts.lock().unwrap_or_else(PoisonError::into_inner);
        if counts.len() >= PEERS_COUNTED && !counts.contains_key(who) {
            counts.retain(|_, count| now.duration_since(count.since) < WINDOW);
        }
        let full = counts.len() >= PEERS_COUNTED && !counts.contains_key(who);
        let key = if full { EVERYBODY_ELSE } else { who };
        let count = counts.entry(key.to_owned()).or_insert(Count { since: now, lines: 0, dropped: 0 });
        if now.duration_since(count.since) >= WINDOW {
            (count.since, count.lines) = (now, 0);
        }
        if count.lines >= LINES_PER_PEER {
            count.dropped += 1;
            return None;
        }
        count.lines += 1;
        Some(std::mem::take(&mut count.dropped))
    }
}

/// One line to standard error about `who`, under the same limits.
pub fn line(who: &str, text: impl fmt::Display) {
    Log::default().line(who, text);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a noisy host gets its ten lines a second, is told about later, and disturbs no other host.
    #[test]
    fn limited_per_host() {
        let log = Log::new(|_| ());
        let start = Instant::now();
        let allowed = (0..100).filter(|_| log.admit("scanner", start).is_some()).count();
        assert_eq!(allowed, LINES_PER_PEER as usize);
        assert_eq!(log.admit("other", start), Some(0));
        assert_eq!(log.admit("scanner", start + WINDOW), Some(90));
    }

    /// Goal: hosts without number do not grow the table.
    #[test]
    fn the_table_is_bounded() {
        let log = Log::new(|_| ());
        let start = Instant::now();
        let allowed = (0..10 * PEERS_COUNTED).filter(|n| log.admit(&n.to_string(), start).is_some()).count();
        assert_eq!(allowed, PEERS_COUNTED + LINES_PER_PEER as usize);
        assert_eq!(log.0.counts.lock().unwrap().len(), PEERS_COUNTED + 1);
        log.admit("later", start + WINDOW);
        assert_eq!(log.0.counts.lock().unwrap().len(), 1);
    }
}
