//! What the control group of this process, and those above it, hold back.

use super::super::question::GroupFacts;
use std::path::{Path, PathBuf};

/// Where the kernel shows them.
const ROOT: &str = "/sys/fs/cgroup";

/// Where a controller's files of this process are, and the root of that tree.
struct Place {
    root: PathBuf,
    path: String,
}

impl Place {
    /// In the unified tree, or in that of one controller.
    fn of(controller: &str) -> Option<Self> {
        Self::of_process("self", controller)
    }

    fn of_process(process: &str, controller: &str) -> Option<Self> {
        let text = std::fs::read_to_string(format!("/proc/{process}/cgroup")).ok()?;
        find(&text, controller, Path::new(ROOT))
    }

    /// The group and all above it, up to the root.
    fn upwards(&self) -> impl Iterator<Item = PathBuf> + '_ {
        let own = self.root.join(self.path.trim_start_matches('/'));
        let mut at = Some(own);
        std::iter::from_fn(move || {
            let here = at.take()?;
            at = here.parent().filter(|above| above.starts_with(&self.root)).map(Path::to_owned);
            Some(here)
        })
    }
}

/// The line of `/proc/self/cgroup` that counts: `0::/path` or `4:cpu,cpuacct:/path`.
fn find(text: &str, controller: &str, root: &Path) -> Option<Place> {
    let of_line = |line: &str| {
        let mut words = line.splitn(3, ':');
        let (_, names, path) = (words.next()?, words.next()?, words.next()?);
        Some((names.to_owned(), path.to_owned()))
    };
    let lines: Vec<(String, String)> = text.lines().filter_map(of_line).collect();
    let own = lines.iter().find(|(names, _)| names.split(',').any(|name| name == controller));
    match own {
        Some((_, path)) => Some(Place { root: root.join(controller), path: path.clone() }),
        None => {
            let (_, path) = lines.iter().find(|(names, _)| names.is_empty())?;
            Some(Place { root: root.to_owned(), path: path.clone() })
        }
    }
}

/// `max 100000`, `50000 100000`: processors' worth of time.
fn quota(text: &str) -> Option<f64> {
    let mut words = text.split_whitespace();
    let (quota, period) = (words.next()?.parse::<f64>().ok()?, words.next()?.parse::<f64>().ok()?);
    (period > 0.0 && quota > 0.0).then(|| quota / period)
}

/// The limits of this process.
pub fn look() -> GroupFacts {
    let smallest = |values: Vec<f64>| values.into_iter().reduce(f64::min);
    let mut facts = GroupFacts::default();
    if let Some(place) = Place::of("cpu") {
        let limits = place.upwards().filter_map(|at| {
            super::line(at.join("cpu.max")).and_then(|text| quota(&text)).or_else(|| {
                let (quota, period) = (at.join("cpu.cfs_quota_us"), at.join("cpu.cfs_period_us"));
                self::quota(&format!("{} {}", super::number(quota)?, super::number(period)?))
            })
        });
        facts.processors = smallest(limits.collect());
        facts.path = place.path.clone();
    }
    if let Some(place) = Place::of("memory") {
        let limits = place.upwards().filter_map(|at| super::number(at.join("memory.max")));
        facts.memory_bytes = limits.min().and_then(|bytes| u64::try_from(bytes).ok());
    }
    facts
}

/// How often, and for how many microseconds, this process' group and those above it were held back; none when
/// nothing limits them.
pub fn throttling() -> Option<(u64, u64)> {
    throttling_of("self")
}

/// The same of another process, by its number.
pub fn throttling_of(process: &str) -> Option<(u64, u64)> {
    let place = Place::of_process(process, "cpu")?;
    let stats = place.upwards().filter_map(|at| std::fs::read_to_string(at.join("cpu.stat")).ok());
    stats.filter_map(|text| held_back(&text)).reduce(|a, b| (a.0.max(b.0), a.1.max(b.1)))
}

fn held_back(text: &str) -> Option<(u64, u64)> {
    let value = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)?.trim().parse::<u64>().ok());
    let time = value("throttled_usec ").or_else(|| value("throttled_time ").map(|ns| ns / 1_000));
    Some((value("nr_throttled ")?, time?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: both forms of the tree are understood, and every file's format.
    #[test]
    fn formats() {
        let root = Path::new("/r");
        let new = find("0::/system.slice/skep.service\n", "cpu", root).unwrap();
        let paths: Vec<PathBuf> = new.upwards().collect();
        assert_eq!(paths.len(), 3);
        assert_eq!(
            (paths[0].as_path(), paths[2].as_path()),
            (Path::new("/r/system.slice/skep.service"), root)
        );
        let old = find("4:cpu,cpuacct:/a\n1:name=systemd:/b\n0::/c\n", "cpu", root).unwrap();
        assert_eq!(old.upwards().next().unwrap(), Path::new("/r/cpu/a"));
        assert!(find("nonsense\n", "cpu", root).is_none());
        assert_eq!((quota("max 100000"), quota("50000 100000"), quota("-1 100000")), (None, Some(0.5), None));
        assert_eq!(held_back("usage_usec 1\nnr_throttled 3\nthrottled_usec 42\n"), Some((3, 42)));
        assert_eq!(held_back("nr_throttled 3\nthrottled_time 42000\n"), Some((3, 42)));
        assert_eq!(held_back("usage_usec 1\n"), None);
    }
}
