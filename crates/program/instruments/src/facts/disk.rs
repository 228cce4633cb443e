//! What is below a target: file system, device, disk.

use super::super::question::TargetFacts;
use super::{line, numa};
use std::path::{Path, PathBuf};

/// One line of the list of mounts.
struct Mount {
    device_number: String,
    point: String,
    options: String,
    filesystem: String,
    source: String,
}

/// `36 35 98:0 /root /mnt rw,noatime tag:1 - xfs /dev/sda1 rw,logbufs=8`
fn mount(text: &str) -> Option<Mount> {
    let (left, right) = text.split_once(" - ")?;
    let mut left = left.split(' ').skip(2);
    let device_number = left.next()?.to_owned();
    let point = left.nth(1)?.replace("\\040", " ");
    let own = left.next()?;
    let mut right = right.split(' ');
    let (filesystem, source) = (right.next()?.to_owned(), right.next()?.to_owned());
    let of_all = right.next().unwrap_or_default();
    Some(Mount { device_number, point, options: format!("{own},{of_all}"), filesystem, source })
}

/// The mount that `path` is on: the last one with its device number, else the deepest one above it (file systems
/// with several volumes give numbers that no list has).
fn mount_of(list: &str, path: &Path) -> Option<Mount> {
    let number = rustix::fs::stat(path).ok().map(|at| at.st_dev);
    let number = number.map(|dev| format!("{}:{}", rustix::fs::major(dev), rustix::fs::minor(dev)));
    let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let above = |mount: &Mount| path.starts_with(&mount.point);
    let all: Vec<Mount> = list.lines().filter_map(mount).filter(above).collect();
    let exact = |mount: &Mount| Some(&mount.device_number) == number.as_ref();
    let has_exact = all.iter().any(exact);
    all.into_iter().filter(|one| !has_exact || exact(one)).max_by_key(|one| one.point.len())
}

/// Looks it up.
pub fn look(target: u32, path: &Path) -> TargetFacts {
    let list = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mut facts = TargetFacts { target, path: path.display().to_string(), ..TargetFacts::default() };
    if let Ok(space) = rustix::fs::statvfs(path) {
        facts.bytes = space.f_blocks * space.f_frsize;
        facts.bytes_free = space.f_bavail * space.f_frsize;
    }
    if let Some(mount) = mount_of(&list, path) {
        facts.device = mount.source;
        facts.filesystem = mount.filesystem;
        facts.options = mount.options;
        if let Ok(at) = std::fs::canonicalize(Path::new("/sys/dev/block").join(mount.device_number)) {
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

    /// Goal: the mount of a path is found with its options, by number or, failing that, by the deepest place.
    #[test]
    fn mounts() {
        let list = "1 0 999:1 / / rw shared:1 - ext4 /dev/sda1 rw,errors=remount-ro\n\
                    2 1 999:2 / /data rw,noatime - xfs /dev/sdb rw,logbufs=8\nnonsense\n";
        let found = mount_of(list, Path::new("/data/nowhere/at/all")).unwrap();
        assert_eq!(found.source, "/dev/sdb");
        assert_eq!(found.options, "rw,noatime,rw,logbufs=8");
        assert_eq!(mount_of(list, Path::new("/datanowhere")).unwrap().filesystem, "ext4");
        assert!(mount_of("", Path::new("/")).is_none());
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
