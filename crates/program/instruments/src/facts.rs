//! What the machine and the daemon on it are, from `/proc` and `/sys`.

mod disk;
pub mod group;

use super::question::{MountFacts, NicFacts, NodeFacts};
use super::service::BenchTarget;
use crate::processes::running;
use skep_base::config;
use skep_base::mount_table;
use std::collections::BTreeMap;
use std::path::Path;

/// Reads a file of one line; none when it is not there.
fn line(path: impl AsRef<Path>) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

fn number(path: impl AsRef<Path>) -> Option<i64> {
    line(path)?.parse().ok()
}

/// The zone in a file `numa_node`; -1 says there is none.
fn numa(path: impl AsRef<Path>) -> Option<u32> {
    number(path).and_then(|zone| u32::try_from(zone).ok())
}

/// The value of `key` in a file of `key : value` lines.
fn field(path: &str, key: &str) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    let value = text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        (name.trim() == key).then(|| value.trim().to_owned())
    });
    value.filter(|value| !value.is_empty())
}

/// Looks everything up.
pub fn look(service: &str, targets: &[BenchTarget]) -> NodeFacts {
    let uname = rustix::system::uname();
    let text = |text: &std::ffi::CStr| text.to_string_lossy().into_owned();
    let memory = field("/proc/meminfo", "MemTotal");
    let kib = memory.and_then(|text| text.split_whitespace().next()?.parse::<u64>().ok());
    let load = line("/proc/loadavg").and_then(|text| text.split_whitespace().next()?.parse().ok());
    let cores = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let cores = cores.lines().filter(|line| line.starts_with("processor")).count();
    NodeFacts {
        service: service.to_owned(),
        host: text(uname.nodename()),
        kernel: text(uname.release()),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        pid: std::process::id(),
        // ARM's list has no model, but a part number of its own.
        processor: field("/proc/cpuinfo", "model name")
            .or_else(|| field("/proc/cpuinfo", "CPU part").map(|part| format!("ARM part {part}")))
            .unwrap_or_default(),
        cores: cores.max(1) as u32,
        allowed: field("/proc/self/status", "Cpus_allowed_list").unwrap_or_default(),
        numa_zones: zones(),
        memory_bytes: kib.unwrap_or(0) << 10,
        load: load.unwrap_or(0.0),
        nice: rustix::process::getpriority_process(None).unwrap_or(0),
        group: group::look(),
        nics: nics(Path::new("/sys/class/net")),
        targets: targets.iter().map(|target| disk::look(target.target.0, &target.path)).collect(),
        machine: skep_net::machine_id().to_string(),
        settings: config::in_use(),
        mounts: mounts(),
        network: std::fs::read_link("/proc/self/ns/net")
            .map(|link| link.to_string_lossy().into_owned())
            .unwrap_or_default(),
    }
}

/// Mounts of Skep here: how the kernel shows them, and with which settings their processes run.
fn mounts() -> Vec<MountFacts> {
    // What cannot be read (another user's process) is not told.
    let Ok(table) = mount_table::read() else { return Vec::new() };
    let own: Vec<_> = table.into_iter().filter(mount_table::MountEntry::is_skep).collect();
    if own.is_empty() {
        return Vec::new();
    }
    let running = skep_tune::Root::new(Path::new("/")).map(|root| running(&root)).unwrap_or_default();
    let told = |entry: mount_table::MountEntry| {
        let point = entry.point.display().to_string();
        let here = |settings: &BTreeMap<String, String>| settings.get("mount_point") == Some(&point);
        let settings = running.iter().find(|one| here(&one.settings));
        let settings = settings.map(|one| one.settings.clone()).unwrap_or_default();
        MountFacts { point, options: entry.describe(), settings }
    };
    own.into_iter().map(told).collect()
}

/// The process of the mount at this place, as far as it can be looked at.
pub fn mount_process(point: &Path) -> Option<u32> {
    let point = point.display().to_string();
    let running = running(&skep_tune::Root::new(Path::new("/")).ok()?);
    running.into_iter().find(|one| one.settings.get("mount_point") == Some(&point))?.pid
}

fn zones() -> u32 {
    let entries = std::fs::read_dir("/sys/devices/system/node").into_iter().flatten().flatten();
    let is_zone = |name: &str| name.strip_prefix("node").is_some_and(|rest| rest.parse::<u32>().is_ok());
    entries.filter(|entry| is_zone(&entry.file_name().to_string_lossy())).count().max(1) as u32
}

/// Interfaces that are up, in the order of their names.
fn nics(class: &Path) -> Vec<NicFacts> {
    let entries = std::fs::read_dir(class).into_iter().flatten().flatten();
    let mut nics: Vec<NicFacts> = entries
        .filter(|entry| !matches!(line(entry.path().join("operstate")).as_deref(), None | Some("down")))
        .map(|entry| {
            let at = entry.path();
            let driver = std::fs::read_link(at.join("device/driver")).unwrap_or_default();
            NicFacts {
                name: entry.file_name().to_string_lossy().into_owned(),
                megabits: number(at.join("speed")).and_then(|speed| u64::try_from(speed).ok()),
                mtu: number(at.join("mtu")).and_then(|mtu| u32::try_from(mtu).ok()).unwrap_or(0),
                numa: numa(at.join("device/numa_node")),
                driver: driver
                    .file_name()
                    .map(|name| name.to_string_lossy().into_owned())
                    .unwrap_or_default(),
            }
        })
        .collect();
    nics.sort_by(|a, b| a.name.cmp(&b.name));
    nics
}

#[cfg(test)]
mod tests {
    use super::*;
    use skep_types::{TargetId, Uuid};

    /// Goal: this machine is described: kernel, processors, memory, the file system below a target.
    #[test]
    fn this_machine() {
        let dir = tempfile::tempdir().unwrap();
        let target = BenchTarget {
            target: TargetId(101),
            path: dir.path().to_owned(),
            cluster: Uuid([1; 16]),
            reserve: 0,
        };
        let facts = look("storaged", &[target]);
        assert!(!facts.host.is_empty() && facts.kernel.contains('.'), "{facts:?}");
        assert_eq!(facts.machine, skep_net::machine_id().to_string());
        assert!(facts.cores >= 1 && facts.memory_bytes > 1 << 20 && !facts.allowed.is_empty(), "{facts:?}");
        let below = &facts.targets[0];
        assert_eq!(below.target, 101);
        assert!(!below.filesystem.is_empty() && below.bytes > 0 && below.options.contains("rw"), "{below:?}");
    }

    /// Goal: a recorded interface is read; one that is down is left out.
    #[test]
    fn interfaces() {
        let dir = tempfile::tempdir().unwrap();
        for (name, state) in [("eth0", "up"), ("eth1", "down")] {
            let at = dir.path().join(name);
            std::fs::create_dir_all(at.join("device")).unwrap();
            for (file, text) in
                [("operstate", state), ("speed", "100000"), ("mtu", "9000"), ("device/numa_node", "1")]
            {
                std::fs::write(at.join(file), format!("{text}\n")).unwrap();
            }
        }
        let (name, driver) = ("eth0".to_owned(), String::new());
        let eth0 = NicFacts { name, megabits: Some(100_000), mtu: 9_000, numa: Some(1), driver };
        assert_eq!(nics(dir.path()), [eth0]);
    }
}
