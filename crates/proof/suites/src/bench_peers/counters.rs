//! What a system has used: processor time of its processes, and of Skep the messages and RPCs that its daemons count.

use super::systems::Member;
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Longest time for an answer of a daemon.
const LIMIT: Duration = Duration::from_secs(5);
/// Requests of the kernel that a mount answered.
const MESSAGES: &str = "skep_mount_fuse_requests_total";
/// Requests that servers answered.
const RPCS: [&str; 2] = ["skep_metad_requests_total", "skep_storaged_requests_total"];
/// Those of servers among themselves, and of mounts that do nothing.
const HOUSEKEEPING: [&str; 10] = [
    "GroupStats",
    "TargetStats",
    "Events",
    "Reclaim",
    "Prepare",
    "Decide",
    "AskOutcome",
    "FetchRows",
    "AskHistory",
    "DeleteChunks",
];

/// At one moment.
pub struct Counters {
    /// Nanoseconds of all threads that live, and the whole in ticks, by process.
    processes: BTreeMap<u32, Used>,
    /// Seconds of children of this process that have ended.
    children: f64,
    messages: f64,
    rpcs: f64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Used {
    /// Seconds of its threads: exact, but without those that have ended.
    threads: f64,
    /// Seconds of the whole process, in ticks of the clock.
    whole: f64,
}

/// Between two moments.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spent {
    /// Seconds of processor time of everything.
    pub cpu: f64,
    /// Messages of the kernel, where they are counted.
    pub messages: Option<f64>,
    /// RPCs, where they are counted.
    pub rpcs: Option<f64>,
}

impl Counters {
    /// Now.
    pub fn read(member: &Member) -> Result<Self, String> {
        let (mut messages, mut rpcs) = (0.0, 0.0);
        for port in &member.counted_at {
            let text = page(*port)?;
            messages += sum(&text, MESSAGES, &[]);
            rpcs += RPCS.iter().map(|family| sum(&text, family, &HOUSEKEEPING)).sum::<f64>();
        }
        let stat = std::fs::read_to_string("/proc/self/stat").map_err(|e| format!("/proc/self/stat: {e}"))?;
        let children = ticks(&stat, 13..15);
        Ok(Self { processes: processes(&member.mark)?, children, messages, rpcs })
    }

    /// Since `before`.
    pub fn since(&self, before: &Self, member: &Member) -> Spent {
        let of = |(pid, now): (&u32, &Used)| {
            let then = before.processes.get(pid).copied().unwrap_or_default();
            // Threads end: then the ticks know more.
            (now.threads - then.threads).max(now.whole - then.whole - 2.0 * tick()).max(0.0)
        };
        let counted = |now: f64, then: f64| (!member.counted_at.is_empty()).then_some(now - then);
        Spent {
            cpu: self.processes.iter().map(of).sum::<f64>() + self.children - before.children,
            messages: counted(self.messages, before.messages),
            rpcs: counted(self.rpcs, before.rpcs),
        }
    }
}

fn tick() -> f64 {
    1.0 / rustix::param::clock_ticks_per_second() as f64
}

/// Fields of `/proc/PID/stat`, counted behind the name, added up as seconds.
fn ticks(stat: &str, fields: std::ops::Range<usize>) -> f64 {
    let Some((_, rest)) = stat.rsplit_once(')') else { return 0.0 };
    let numbers = rest.split_whitespace().skip(fields.start).take(fields.len());
    numbers.filter_map(|field| field.parse::<f64>().ok()).sum::<f64>() * tick()
}

/// All processes with `mark` on their command lines. One that ends meanwhile is left out.
fn processes(mark: &str) -> Result<BTreeMap<u32, Used>, String> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir("/proc").map_err(|e| format!("/proc: {e}"))?.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        let Ok(line) = std::fs::read(entry.path().join("cmdline")) else { continue };
        if pid == std::process::id() || !String::from_utf8_lossy(&line).contains(mark) {
            continue;
        }
        let whole =
            std::fs::read_to_string(entry.path().join("stat")).map_or(0.0, |stat| ticks(&stat, 11..13));
        let threads = std::fs::read_dir(entry.path().join("task")).into_iter().flatten().flatten();
        let threads =
            threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("schedstat")).ok());
        let nanos = threads.filter_map(|text| text.split(' ').next()?.parse::<f64>().ok()).sum::<f64>();
        found.insert(pid, Used { threads: nanos / 1e9, whole });
    }
    Ok(found)
}

/// Ends what has `mark` on its command line.
pub fn end(mark: &str) {
    for pid in processes(mark).unwrap_or_default().into_keys() {
        if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
            // It may have ended by itself.
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

/// The counters of a daemon of this machine.
fn page(port: u16) -> Result<String, String> {
    let fail = |e: std::io::Error| format!("http://127.0.0.1:{port}/metrics: {e}");
    let mut stream = TcpStream::connect(("127.0.0.1", port)).map_err(fail)?;
    stream.set_read_timeout(Some(LIMIT)).map_err(fail)?;
    let ask = b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n";
    stream.write_all(ask).map_err(fail)?;
    let mut text = String::new();
    stream.read_to_string(&mut text).map_err(fail)?;
    Ok(text)
}

/// Adds up the values of a family, but not those with one of these labels.
fn sum(text: &str, family: &str, without: &[&str]) -> f64 {
    let values = text.lines().filter_map(|line| {
        let (name, value) = line.rsplit_once(' ')?;
        let labels = name.strip_prefix(family)?;
        let left_out = without.iter().any(|label| labels.contains(&format!("\"{label}\"")));
        (labels.starts_with('{') && !left_out).then(|| value.parse::<f64>().ok())?
    });
    values.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: only the family itself is added up, and housekeeping is left out.
    #[test]
    fn families() {
        let text = "# TYPE skep_metad_requests_total counter\nskep_metad_requests_total{message=\"Lookup\"} 7\n\
            skep_metad_requests_total{message=\"Create\"} 3\nskep_metad_requests_total{message=\"Events\"} 90\n\
            skep_metad_requests_failed_total{message=\"Lookup\"} 4\n";
        assert_eq!(sum(text, RPCS[0], &HOUSEKEEPING), 10.0);
        assert_eq!(sum(text, RPCS[0], &[]), 100.0);
        assert_eq!(sum(text, MESSAGES, &[]), 0.0);
    }

    /// Goal: a name with blanks and brackets moves no field.
    #[test]
    fn fields_of_stat() {
        let stat = "7 (a b) c) S 1 2 3 4 5 6 7 8 9 10 150 50 30 20 0";
        assert_eq!(ticks(stat, 11..13) / tick(), 200.0);
        assert_eq!(ticks(stat, 13..15) / tick(), 50.0);
    }

    /// Goal: a thread that ended still counts, by the ticks; the two kinds of clock are not mixed up otherwise.
    #[test]
    fn time_of_ended_threads() {
        let member = Member { counted_at: vec![1], ..Member::plain("x", "/x".into()) };
        let at = |threads, whole, messages| Counters {
            processes: BTreeMap::from([(7, Used { threads, whole })]),
            children: 0.0,
            messages,
            rpcs: 2.0 * messages,
        };
        let spent = at(1.5, 1.51, 5.0).since(&at(1.0, 1.0, 2.0), &member);
        assert_eq!((spent.cpu, spent.messages, spent.rpcs), (0.5, Some(3.0), Some(6.0)));
        let spent = at(0.5, 3.0, 0.0).since(&at(1.0, 1.0, 0.0), &Member::plain("x", "/x".into()));
        assert!((spent.cpu - (2.0 - 2.0 * tick())).abs() < 1e-9);
        assert_eq!(spent.messages, None);
    }
}
