//! Directories that commands make on a mount while they run. Their names say whose they are, so that what a killed
//! command left is told from what a running one uses.

use skep_base::process::{boot_id, started};
use std::path::{Path, PathBuf};

/// Of the kernel's boot id, so much stands in a name.
const BOOT_LETTERS: usize = 8;

/// What process ids mean here: the boot and the namespace.
fn here() -> String {
    let boot: String = boot_id().chars().take(BOOT_LETTERS).collect();
    let namespace = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    let digits: String = namespace.to_string_lossy().chars().filter(char::is_ascii_digit).collect();
    format!("{boot}.{digits}")
}

/// A name for a directory of this process.
pub fn own_name(prefix: &str) -> String {
    let pid = std::process::id();
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    format!("{prefix}{host}-{}-{pid}-{}", here(), started(pid).unwrap_or(0))
}

/// Has the process whose directory this is ended? `None`: it ran on another host, or before a restart of this one.
fn has_ended(name: &str) -> Option<bool> {
    let mut words = name.rsplitn(4, '-');
    let (since, pid): (u64, u32) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    (words.next()? == here()).then(|| started(pid) != Some(since))
}

/// Directories with this prefix whose commands have ended without removing them.
pub fn abandoned(above: &Path, prefix: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(above).into_iter().flatten().flatten();
    let ours = entries.filter(|entry| {
        let name = entry.file_name();
        let name = name.to_str().unwrap_or_default();
        name.starts_with(prefix)
            && has_ended(name) == Some(true)
            && entry.file_type().is_ok_and(|t| t.is_dir())
    });
    ours.map(|entry| entry.path()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// Goal: a directory of a process that has ended is found; one of a living process, of another host, and
    /// anything else with such a name is not.
    #[test]
    fn only_of_the_dead() {
        let dir = tempfile::tempdir().unwrap();
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        let own = own_name("x-");
        let of_child = |since: u64| format!("x-host-a-{}-{}-{since}", here(), child.id());
        let dead = of_child(1);
        let living = of_child(started(child.id()).unwrap());
        let foreign = living.replace(&here(), "00000000.1");
        for name in [&own, &dead, &living, &foreign, &"x-mine".to_owned(), &"y".to_owned()] {
            std::fs::create_dir(dir.path().join(name)).unwrap();
        }
        assert_eq!(abandoned(dir.path(), "x-"), [dir.path().join(&dead)]);
        child.kill().unwrap();
        child.wait().unwrap();
        let mut found = abandoned(dir.path(), "x-");
        found.sort();
        let mut expected = [dir.path().join(&dead), dir.path().join(&living)];
        expected.sort();
        assert_eq!(found, expected);
    }
}
