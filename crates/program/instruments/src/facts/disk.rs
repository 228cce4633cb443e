//! What is below a target: file system, device, disk.

use super::super::question::TargetFacts;
use super::{line, numa};
use skep_base::mount_table::{self, MountEntry, covering};
use std::path::{Path, PathBuf};

/// The mount that `path` is on: the last one with its device number, else the deepest one above it (file systems
/// with several volumes give numbers that no list has).
fn mount_of(mounts: &[MountEntry], path: &Path) -> Option<MountEntry> {
    let device = rustix::fs::stat(path).ok().map(|at| at.st_dev);
    let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let exact: Vec<MountEntry> = mounts.iter().filter(|one| Some(one.device) == device).cloned().collect();
    covering(&exact, &path).or_else(|| covering(mounts, &path)).cloned()
}

pub fn look(target: u32, path: &Path) -> TargetFacts {
    let mounts = mount_table::read().unwrap_or_default();
    let mut facts = TargetFacts { target, path: path.display().to_string(), ..TargetFacts::default() };
    if let Ok(space) = rustix::fs::statvfs(path) {
        facts.bytes = space.f_blocks * space.f_frsize;
        facts.bytes_free = space.f_bavail * space.f_frsize;
    }
    if let Some(mount) = mount_of(&mounts, path) {
        facts.device = mount.source;
        facts.filesystem = mount.kind;
        facts.options = mount.options;
        let number = format!("{}:{}", rustix::fs::major(mount.device), rustix::fs::minor(mount.device));
        if let Ok(at) = std::fs::canonicalize(Path::new("/sys/dev/block").join(number)) {
            describe(&whole_disk(at), &mut facts);
        }
    }
    facts
}

/// Of a partition its disk, of a mapped device the first one below it.
fn whole_disk(mut at: PathBuf) -> PathBuf {
    if at.join("partition").exists()
        && let Some(disk) = at.parent()
    {
        at = disk.to_owned();
    }
    let below = std::fs::read_dir(at.join("slaves")).into_iter().flatten().flatten().next();
    match below.and_then(|entry| std::fs::canonicalize(entry.path()).ok()) {
        Some(below) if below != at => whole_disk(below),
        _ => at,
    }
}

fn describe(disk: &Path, facts: &mut TargetFacts) {
    let name = disk.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let rotational = line(disk.join("queue/rotational"));
    facts.medium = match rotational.as_deref() {
        _ if name.starts_with("nvme") => "nvme",
        Some("1") => "hdd",
        Some("0") => "ssd",
        _ => "",
    }
    .to_owned();
    facts.model = line(disk.join("device/model")).unwrap_or_default();
    facts.numa = numa(disk.join("device/numa_node")).or_else(|| numa(disk.join("device/device/numa_node")));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the mount of a path is found by number or, failing that, by the deepest place.
    #[test]
    fn mounts() {
        let mounts = [("/", 999), ("/data", 998)].map(|(point, number)| MountEntry {
            id: 1,
            parent: 0,
            device: rustix::fs::makedev(number, 1),
            point: point.into(),
            kind: "xfs".into(),
            source: String::new(),
            options: String::new(),
            read_only: false,
        });
        let point = |path: &str| mount_of(&mounts, Path::new(path)).unwrap().point;
        assert_eq!(point("/data/nowhere/at/all"), Path::new("/data"));
        assert_eq!(point("/datanowhere"), Path::new("/"));
        assert!(mount_of(&[], Path::new("/")).is_none());
        let dir = tempfile::tempdir().unwrap();
        let device = rustix::fs::stat(dir.path()).unwrap().st_dev;
        let mut by_number = mounts.clone();
        by_number[0].device = device;
        by_number[1].point = dir.path().canonicalize().unwrap();
        assert_eq!(mount_of(&by_number, dir.path()).unwrap().device, device);
    }

    /// Goal: media are told apart, through a partition and through a mapped device.
    #[test]
    fn media() {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path();
        for (path, text) in [
            ("sda/queue/rotational", "1"),
            ("sda/device/model", "SEAGATE"),
            ("sda/sda1/partition", "1"),
            ("nvme0n1/queue/rotational", "0"),
        ] {
            let file = at.join(path);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, text).unwrap();
        }
        std::fs::create_dir_all(at.join("dm-0/slaves")).unwrap();
        std::os::unix::fs::symlink("../../nvme0n1", at.join("dm-0/slaves/nvme0n1")).unwrap();
        let mut facts = TargetFacts::default();
        describe(&whole_disk(at.join("sda/sda1")), &mut facts);
        assert_eq!((facts.medium.as_str(), facts.model.as_str()), ("hdd", "SEAGATE"));
        describe(&whole_disk(at.join("dm-0")), &mut facts);
        assert_eq!(facts.medium, "nvme");
    }
}
