//! What a search that was killed left: the next one on this machine removes it.

use crate::bench::scratch::abandoned;
use rustix::mount::UnmountFlags;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Directories of candidates, below the one that is tuned, begin so.
pub const DIRECTORY: &str = ".skep-tune-";
/// Directories with mounts of candidates begin so.
pub const MOUNTS: &str = "skep-tune-mounts-";
/// Directories with a recorded machine begin so.
pub const MACHINE: &str = "skep-tune-machine-";

fn told(dir: &Path, done: std::io::Result<()>) {
    let dir = dir.display();
    match done {
        Ok(()) => eprintln!("note: {dir}: was left by a command that was killed; removed"),
        Err(e) => eprintln!("note: {dir}: was left by a command that was killed: {e}; remove it by hand"),
    }
}

/// Removes directories of candidates below the one that is tuned.
pub fn sweep_directories(above: &Path) {
    for dir in abandoned(above, DIRECTORY) {
        told(&dir, std::fs::remove_dir_all(&dir));
    }
}

/// Removes this user's directories below the one for temporary files: whatever others put there is not ours.
pub fn sweep_temporary(above: &Path) {
    let own = |dir: &std::path::PathBuf| {
        dir.symlink_metadata().is_ok_and(|meta| meta.uid() == rustix::process::geteuid().as_raw())
    };
    for dir in abandoned(above, MOUNTS).into_iter().filter(own) {
        told(&dir, unmounted(&dir));
    }
    for dir in abandoned(above, MACHINE).into_iter().filter(own) {
        told(&dir, std::fs::remove_dir_all(&dir));
    }
}

/// Unmounts everything directly below a directory, and removes it.
pub fn unmounted(dir: &Path) -> std::io::Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let point = entry?.path();
        let flags = UnmountFlags::NOFOLLOW;
        if skep_base::unmount::take_away(&point, flags, "-u").is_err() {
            // What is no mount any more cannot be unmounted; whether it is gone is seen when it is removed.
            let _ = skep_base::unmount::take_away(&point, flags | UnmountFlags::DETACH, "-uz");
        }
        std::fs::remove_dir(&point)?;
    }
    std::fs::remove_dir(dir)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::scratch::own_name;
    use std::process::Command;

    /// Goal: what a killed command left goes, whichever kind it is; what a living one uses stays.
    #[test]
    fn of_the_dead_only() {
        let dir = tempfile::tempdir().unwrap();
        let mut ended = Command::new("true").spawn().unwrap();
        let pid = ended.id();
        ended.wait().unwrap();
        for prefix in [DIRECTORY, MOUNTS, MACHINE] {
            let own = own_name(prefix);
            let dead = own.replace(&format!("-{}-", std::process::id()), &format!("-{pid}-"));
            for name in [&own, &dead] {
                std::fs::create_dir_all(dir.path().join(name).join("candidate-0")).unwrap();
            }
        }
        std::fs::write(dir.path().join(own_name(DIRECTORY)).join("candidate-0/file"), "x").unwrap();
        sweep_directories(dir.path());
        sweep_temporary(dir.path());
        let mut left: Vec<_> = std::fs::read_dir(dir.path())
            .unwrap()
            .map(|one| one.unwrap().file_name().into_string().unwrap())
            .collect();
        left.sort();
        assert_eq!(left, [DIRECTORY, MACHINE, MOUNTS].map(own_name));
    }
}
