//! What can be said of this machine: its mounts, its kernel, its FUSE device.

use super::{Check, Verdict, check, fine};
use crate::admin::access::is_of_another;
use crate::admin::mount_table::{self, MountEntry};
use crate::config::address::Address;
use serde::Deserialize;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

/// A mount that takes longer to answer does not answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(3);
/// Longest answer to the question for directories that are measured in.
const NETBENCH_VALUE_MAX: usize = 4_096;
/// What every mount opens.
const DEVICE: &str = "/dev/fuse";
/// Oldest kernel that everything was tried on.
const KERNEL_MIN: (u32, u32) = (6, 1);

/// What a mount writes about itself into its run directory, as `mount-<pid>.toml`.
#[derive(Debug, Deserialize)]
struct MountNote {
    mount_point: PathBuf,
    pid: u32,
    /// What this kernel's FUSE lacks, and what it costs.
    #[serde(default)]
    lost: Vec<String>,
    /// How requests come from the kernel.
    #[serde(default)]
    transport: String,
}

fn mount_notes(run_dir: &Path) -> Vec<MountNote> {
    let entries = std::fs::read_dir(run_dir).into_iter().flatten().flatten();
    let ours = entries.filter(|entry| {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        name.starts_with("mount-") && name.ends_with(".toml")
    });
    let note = |entry: std::fs::DirEntry| toml::from_str(&std::fs::read_to_string(entry.path()).ok()?).ok();
    ours.filter_map(note).filter(|note: &MountNote| crate::up::process_exists(note.pid)).collect()
}

/// Does the mount answer? Asked by a thread: a hanging mount must not hang the command.
fn mount_check(point: &Path) -> Check {
    let (tell, told) = mpsc::channel();
    let asked = point.to_owned();
    let asking = std::thread::Builder::new().name("statvfs".to_owned()).spawn(move || {
        // Nobody listens any more when the answer comes too late.
        let _ = tell.send(rustix::fs::statvfs(&asked));
    });
    let subject = point.display().to_string();
    match asking.map(|_| told.recv_timeout(ANSWER_LIMIT)) {
        Ok(Ok(Ok(_))) => fine("mount", &subject, "answers"),
        Ok(Ok(Err(rustix::io::Errno::NOTCONN))) => {
            let hint = format!("its process is gone: umount -l {subject}, then mount it again");
            check(Verdict::Error, "mount", &subject, "dead".to_owned(), &hint)
        }
        Ok(Ok(Err(e))) => {
            check(Verdict::Error, "mount", &subject, e.to_string(), "look into the log of the mount")
        }
        Ok(Err(_)) | Err(_) => {
            let detail = format!("no answer within {} s", ANSWER_LIMIT.as_secs());
            check(
                Verdict::Error,
                "mount",
                &subject,
                detail,
                "it waits for a server that is away: see the nodes",
            )
        }
    }
}

/// Whatever is wrong with a mount of another cluster is worth knowing, and no fault of this one.
fn of_another(found: Check, mount: &MountEntry) -> Check {
    let verdict = found.verdict.min(Verdict::Note);
    Check { verdict, detail: format!("{} (of another cluster: {})", found.detail, mount.source), ..found }
}

/// In how many directories of a mount that answers the network is measured, so that contents are dropped there.
pub fn netbench_directories(point: &Path) -> usize {
    let mut value = [0; NETBENCH_VALUE_MAX];
    let len = rustix::fs::lgetxattr(point, crate::mount::special::NETBENCH, &mut value[..]).unwrap_or(0);
    let measured: Option<Vec<serde_json::Value>> =
        value.get(..len).and_then(|value| serde_json::from_slice(value).ok());
    measured.map_or(0, |all| all.len())
}

fn netbench_check(point: &Path) -> Option<Check> {
    let many = netbench_directories(point);
    (many > 0).then(|| {
        let detail =
            format!("the network is measured: contents of files in {many} scratch directories are dropped");
        let hint = "it ends with `skep bench net`, or by itself";
        check(Verdict::Warning, "mount", &point.display().to_string(), detail, hint)
    })
}

/// Could a file system be mounted here? A server need not be able to.
fn device_check(device: &Path) -> Option<Check> {
    let note = |detail: String, hint: &str| {
        Some(check(Verdict::Note, "kernel", &device.display().to_string(), detail, hint))
    };
    match std::fs::metadata(device) {
        Err(_) => note("is missing: nothing can be mounted here".to_owned(), "as root: modprobe fuse"),
        Ok(meta) if !meta.file_type().is_char_device() => {
            note("is no device".to_owned(), "as root: rm it, then modprobe -r fuse; modprobe fuse")
        }
        Ok(_) => match std::fs::OpenOptions::new().read(true).write(true).open(device) {
            Ok(_) => None,
            Err(e) => note(
                format!("cannot be opened by this user ({e}): nothing can be mounted here"),
                "mount as root, or as root: chmod 0666 /dev/fuse; in a container, pass the device in",
            ),
        },
    }
}

/// Is the kernel one of those that Skep was tried on?
fn kernel_check(release: &str) -> Option<Check> {
    let mut numbers = release.split(['.', '-']).map(|word| word.parse::<u32>().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    let (major, minor) = KERNEL_MIN;
    (version < KERNEL_MIN).then(|| {
        let detail = format!("older than {major}.{minor}: Skep was not tried on it");
        check(Verdict::Warning, "kernel", release, detail, "take a newer one")
    })
}

/// Mounts of this machine, and whether one could be made. The addresses are those of the cluster that is asked for.
pub fn checks(run_dir: &Path, mgmtd: &[Address]) -> Vec<Check> {
    let mounts = mount_table::read().unwrap_or_default();
    let mut checks: Vec<_> = mounts
        .iter()
        .filter(|mount| mount.is_skep())
        .map(|mount| {
            let found = mount_check(&mount.point);
            if is_of_another(&mount.source, mgmtd) { of_another(found, mount) } else { found }
        })
        .collect();
    let answering: Vec<PathBuf> = checks
        .iter()
        .filter(|one| one.verdict == Verdict::Ok)
        .map(|one| PathBuf::from(&one.subject))
        .collect();
    checks.extend(answering.iter().filter_map(|point| netbench_check(point)));
    checks.extend(device_check(Path::new(DEVICE)));
    checks.extend(kernel_check(&rustix::system::uname().release().to_string_lossy()));
    for note in mount_notes(run_dir) {
        let subject = note.mount_point.display().to_string();
        if !note.transport.is_empty() {
            checks.push(fine("mount", &subject, note.transport.clone()));
        }
        let lost = note.lost.into_iter().map(|lost| {
            check(Verdict::Note, "mount", &subject, lost, "a newer kernel has it; everything works without")
        });
        checks.extend(lost);
    }
    checks
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a living mount answers, and the released field names stay.
    #[test]
    fn mounts_and_names() {
        let root = mount_check(Path::new("/"));
        assert_eq!(root.verdict, Verdict::Ok);
        let json = serde_json::to_string(&root).unwrap();
        assert!(json.starts_with(r#"{"verdict":"ok","check":"mount","subject":"/","detail":"#), "{json}");
        assert!(mount_notes(Path::new("/nonexistent")).is_empty());
    }

    /// Goal: a machine that cannot mount, or whose kernel is old, is told what to do.
    #[test]
    fn machines() {
        let missing = device_check(Path::new("/nonexistent/fuse")).unwrap();
        assert!(missing.verdict == Verdict::Note && missing.hint.contains("modprobe"), "{missing:?}");
        assert!(device_check(Path::new("/etc/hostname")).unwrap().detail.contains("no device"));
        assert!(device_check(Path::new("/dev/null")).is_none());
        assert_eq!(kernel_check("5.15.0-91-generic").unwrap().verdict, Verdict::Warning);
        assert!(kernel_check("6.1.0-18-amd64").is_none() && kernel_check("10.0").is_none());
    }
}
