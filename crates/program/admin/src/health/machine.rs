//! What can be said of this machine: its mounts, its kernel, its FUSE device.

use super::{Check, Verdict, check, fine};
use rustix::fs::{lgetxattr, lstat};
use serde::Deserialize;
use skep_base::access::is_of_another;
use skep_base::attributes::CLUSTER;
use skep_base::config::address::Address;
use skep_base::control;
use skep_base::deadline::{ANSWER_LIMIT, Way, answers, seconds, within};
use skep_base::mount_table::{self, MountEntry};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// What every mount opens.
const DEVICE: &str = "/dev/fuse";
/// Whatever it is, it is not looked at.
const VALUE_MAX: usize = 64;
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
    let ours =
        entries.map(|entry| entry.path()).filter(|path| control::pid_of(path, control::NOTE).is_some());
    let note = |path: PathBuf| toml::from_str(&std::fs::read_to_string(path).ok()?).ok();
    ours.filter_map(note).filter(|note: &MountNote| skep_base::process::process_exists(note.pid)).collect()
}

/// Does the mount answer within this time?
fn mount_check(point: &Path, limit: Duration) -> Check {
    let (asked, begun) = (point.to_owned(), Instant::now());
    let subject = point.display().to_string();
    let answered = answers(point, Way::Entry, limit).then(|| limit.saturating_sub(begun.elapsed()));
    // What the space is would be asked of mgmtd, which nobody else waits for. The kernel of a mount that has died goes on answering by
    // itself what it was told a moment ago, but for extended attributes.
    let alive = move || match lgetxattr(&asked, CLUSTER, &mut [0; VALUE_MAX][..]) {
        Err(rustix::io::Errno::NOTCONN) => Err(rustix::io::Errno::NOTCONN),
        _ => lstat(&asked).map(drop),
    };
    let answered = answered.and_then(|left| within(left, alive));
    match answered {
        Some(Ok(())) => fine("mount", &subject, "answers"),
        Some(Err(rustix::io::Errno::NOTCONN)) => {
            let hint = format!("its process is gone: umount -l {subject}, then mount it again");
            check(Verdict::Error, "mount", &subject, "dead".to_owned(), &hint)
        }
        Some(Err(e)) => {
            check(Verdict::Error, "mount", &subject, e.to_string(), "look into the log of the mount")
        }
        None => {
            let detail = format!("no answer within {} s", seconds(limit));
            let hint =
                "it waits for a server that is away (see the nodes), or its process hangs (see its log)";
            check(Verdict::Error, "mount", &subject, detail, hint)
        }
    }
}

/// Whatever is wrong with a mount of another cluster is worth knowing, and no fault of this one.
fn of_another(found: Check, mount: &MountEntry) -> Check {
    let verdict = found.verdict.min(Verdict::Note);
    Check {
        verdict,
        detail: format!("{} (of another cluster, or by a port from before: {})", found.detail, mount.source),
        ..found
    }
}

/// What the mount says of itself, by its own socket.
fn state_checks(subject: &str, state: control::State) -> Vec<Check> {
    let mut checks: Vec<Check> = state
        .waits
        .into_iter()
        .map(|wait| {
            let detail = format!("waits for {wait}");
            let hint = "programs go on when it answers; see the nodes and its log";
            check(Verdict::Error, "mount", subject, detail, hint)
        })
        .collect();
    if state.losses > 0 {
        let detail = format!(
            "lost something {} times that programs had been answered for and had not synced, since it was mounted",
            state.losses
        );
        let hint = "its log says of which inodes and why (find MOUNT -inum N); the next fsync of each fails";
        checks.push(check(Verdict::Warning, "mount", subject, detail, hint));
    }
    if state.looks_lost > 0 {
        let detail = format!("{} times its count of what its kernel knows was wrong", state.looks_lost);
        let hint = "a bug: programs may have seen what was old; report it, and mount with leases = \"off\"";
        checks.push(check(Verdict::Error, "mount", subject, detail, hint));
    }
    if state.drops_contents {
        let detail =
            "measures the network: contents of files that are made through it are dropped".to_owned();
        let hint = "it ends with `skep bench net`";
        checks.push(check(Verdict::Warning, "mount", subject, detail, hint));
    }
    checks
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

/// Mounts of this machine, and whether one could be made. The addresses are those of the cluster that is asked for; each
/// mount may take `limit` to answer, and no longer than any has.
pub fn checks(run_dir: &Path, mgmtd: &[Address], limit: Duration) -> Vec<Check> {
    let limit = limit.min(ANSWER_LIMIT);
    let mut mounts = mount_table::read().unwrap_or_default();
    mounts.retain(MountEntry::is_skep);
    let look = |mount: &MountEntry| {
        let found = mount_check(&mount.point, limit);
        vec![if is_of_another(&mount.source, mgmtd) { of_another(found, mount) } else { found }]
    };
    let notes = mount_notes(run_dir);
    // All at once: each of them may be silent.
    let mut checks: Vec<Check> = std::thread::scope(|scope| {
        let looking: Vec<_> = mounts.iter().map(|mount| scope.spawn(|| look(mount))).collect();
        let told: Vec<_> =
            notes.iter().map(|note| scope.spawn(|| note_checks(run_dir, note, limit))).collect();
        looking.into_iter().chain(told).filter_map(|one| one.join().ok()).flatten().collect()
    });
    checks.extend(device_check(Path::new(DEVICE)));
    checks.extend(kernel_check(&rustix::system::uname().release().to_string_lossy()));
    checks
}

/// What a mount wrote down when it began, and what it says now.
fn note_checks(run_dir: &Path, note: &MountNote, limit: Duration) -> Vec<Check> {
    let subject = note.mount_point.display().to_string();
    let asked = control::socket(run_dir, note.pid);
    let state = within(limit, move || control::ask(&asked)).flatten();
    let mut checks = state.map(|state| state_checks(&subject, state)).unwrap_or_default();
    if !note.transport.is_empty() {
        checks.push(fine("mount", &subject, note.transport.clone()));
    }
    let hint = "a newer kernel has it; everything works without";
    checks.extend(note.lost.iter().map(|lost| check(Verdict::Note, "mount", &subject, lost.clone(), hint)));
    checks
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a living mount answers, and the released field names stay.
    #[test]
    fn mounts_and_names() {
        let root = mount_check(Path::new("/"), ANSWER_LIMIT);
        assert_eq!(root.verdict, Verdict::Ok);
        let json = serde_json::to_string(&root).unwrap();
        assert!(json.starts_with(r#"{"verdict":"ok","check":"mount","subject":"/","detail":"#), "{json}");
        assert!(mount_notes(Path::new("/nonexistent")).is_empty());
    }

    /// Goal: what a mount lost, and what it should never see, is told.
    #[test]
    fn losses_are_told() {
        assert_eq!(state_checks("/mnt", control::State::default()), vec![]);
        let state = control::State { losses: 3, looks_lost: 1, ..control::State::default() };
        let found = state_checks("/mnt", state);
        let said: Vec<_> = found.iter().map(|one| (one.verdict, &one.detail[..20])).collect();
        let (lost, kept) = ("lost something 3 tim", "1 times its count of");
        assert_eq!(said, [(Verdict::Warning, lost), (Verdict::Error, kept)]);
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
