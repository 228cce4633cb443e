//! What every process tells of itself, under the names that Prometheus gives it everywhere.

use super::{Exposition, Kind};
use std::time::{SystemTime, UNIX_EPOCH};

/// Adds build, start, processor time, memory, descriptors, threads and log lines.
pub fn expose(service: &str, out: &mut Exposition) {
    out.family("skep_build_info", Kind::Gauge, "Which release this is; always 1.")
        .value(&[("service", service), ("version", env!("CARGO_PKG_VERSION"))], 1);
    let mut lines = out.family("skep_log_lines_total", Kind::Counter, "Lines written to the log.");
    for (level, count) in crate::log::counts() {
        lines.value(&[("level", level)], count);
    }
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name of the process may hold blanks; what follows its bracket does not.
    let words: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let word = |at: usize| words.get(at).and_then(|word| word.parse::<f64>().ok()).unwrap_or(0.0);
    let ticks = rustix::param::clock_ticks_per_second() as f64;
    let page = rustix::param::page_size() as f64;
    let mut one = |name: &str, kind: Kind, help: &str, value: f64| {
        out.family(name, kind, help).value(&[], value);
    };
    let cpu = (word(11) + word(12)) / ticks;
    one("process_cpu_seconds_total", Kind::Counter, "Processor time used.", cpu);
    one("process_threads", Kind::Gauge, "Threads.", word(17));
    one("process_virtual_memory_bytes", Kind::Gauge, "Address space.", word(20));
    one("process_resident_memory_bytes", Kind::Gauge, "Memory in use.", word(21) * page);
    one("process_start_time_seconds", Kind::Gauge, "When it started.", boot_time() + word(19) / ticks);
    let open = std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    // Looking takes one, too.
    one("process_open_fds", Kind::Gauge, "Open descriptors.", open.saturating_sub(1) as f64);
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let limit = limit.map_or(f64::INFINITY, |limit| limit as f64);
    one("process_max_fds", Kind::Gauge, "Most descriptors that may be open.", limit);
}

/// When the machine started, in seconds since 1970.
fn boot_time() -> f64 {
    let uptime = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.as_secs_f64() - uptime.tv_sec as f64 - uptime.tv_nsec as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::super::parse::parse;
    use super::*;

    /// Goal: the values are those of this process, in the right units.
    #[test]
    fn of_this_process() {
        let mut out = Exposition::default();
        expose("metad", &mut out);
        let parsed = parse(&out.into_text()).unwrap();
        let value = |name: &str| parsed.value(name, &[]).unwrap();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
        let age = now - value("process_start_time_seconds");
        assert!((-1.0..3_600.0).contains(&age), "started {age} s ago");
        assert!(value("process_resident_memory_bytes") > 1e6);
        assert!(value("process_threads") >= 1.0 && value("process_open_fds") >= 3.0);
        assert!(value("process_max_fds") >= value("process_open_fds"));
        assert_eq!(parsed.value("skep_build_info", &[("service", "metad")]), Some(1.0));
    }
}
