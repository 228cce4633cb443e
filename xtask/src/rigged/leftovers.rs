//! Nothing stays when a series ends: by itself, by a signal, or killed.
//!
//! Everything that a series starts ends with the process that started it (see the hosts and disks); what is left then
//! are mounts without a server and directories. A signal ends the hosts, which ends the survey that goes on in them, and
//! the series takes the rest away itself. What a killed one could not take away goes when the next one starts.

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

/// Directories of series begin so; their process follows.
const PREFIX: &str = "skep-rigged-";
/// Between two looks for a signal.
const LOOK: Duration = Duration::from_millis(100);
/// What holds a host.
const HOLDER: &str = "unshare";

/// The directory of this series, gone with it.
pub struct Place(PathBuf);

impl Place {
    /// Makes it, after taking away what killed series have left.
    pub fn new() -> Result<Self, String> {
        let base = std::env::temp_dir();
        for left in abandoned(&base, &runs) {
            println!("{}: left by a series that was killed; removed", left.display());
            remove(&left)?;
        }
        let own = base.join(format!("{PREFIX}{}", std::process::id()));
        std::fs::create_dir(&own).map_err(|e| format!("{}: {e}", own.display()))?;
        Ok(Self(own))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Err(why) = remove(&self.0) {
            eprintln!("{why}");
        }
    }
}

/// Mounts first: what is mounted must not be emptied.
fn remove(place: &Path) -> Result<(), String> {
    skep_rig::unmount_lazily(place);
    std::fs::remove_dir_all(place).map_err(|e| format!("{}: is left behind: {e}", place.display()))
}

/// Is it the process of a series?
fn runs(pid: u32) -> bool {
    let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    words.split(|byte| *byte == 0).any(|word| word == b"rigged")
}

/// Directories whose process is gone.
fn abandoned(base: &Path, runs: &dyn Fn(u32) -> bool) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(base).into_iter().flatten().flatten();
    let gone = |entry: std::fs::DirEntry| {
        let name = entry.file_name();
        let pid: u32 = name.to_str()?.strip_prefix(PREFIX)?.parse().ok()?;
        (!runs(pid)).then(|| entry.path())
    };
    entries.filter_map(gone).collect()
}

/// Told of a signal.
#[derive(Clone)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// From now on a signal ends the set-up that goes on, and then the series.
    pub fn on_signals() -> Result<Self, String> {
        let told = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, told.clone()).map_err(|e| format!("signals: {e}"))?;
        }
        let watched = told.clone();
        std::thread::spawn(move || {
            loop {
                std::thread::sleep(LOOK);
                if watched.load(SeqCst) {
                    // Again and again: a set-up may be starting some more.
                    end_hosts();
                }
            }
        });
        Ok(Self(told))
    }

    /// Was there one?
    pub fn came(&self) -> bool {
        self.0.load(SeqCst)
    }
}

/// Ends the holders of this process's hosts; whatever runs in them ends with them.
fn end_hosts() {
    let own = std::process::id();
    let list = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let children = list.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    for pid in children.flat_map(|text| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>()) {
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        if name.trim() == HOLDER && pid != own.to_string() {
            let _ = Command::new("kill").args(["-KILL", &pid]).status();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: directories of processes that are gone are found; those of a series that runs, and others', are not.
    #[test]
    fn the_abandoned() {
        let scratch = skep_rig::Scratch::new(None).unwrap();
        for name in ["skep-rigged-41", "skep-rigged-42", "skep-rigged-x", "skep-rig-41-1-"] {
            std::fs::create_dir(scratch.path().join(name)).unwrap();
        }
        let found = abandoned(scratch.path(), &|pid| pid == 42);
        assert_eq!(found, [scratch.path().join("skep-rigged-41")]);
        assert!(!runs(u32::MAX));
        std::fs::create_dir(found[0].join("disk0")).unwrap();
        remove(&found[0]).unwrap();
        assert!(!found[0].exists());
    }
}
