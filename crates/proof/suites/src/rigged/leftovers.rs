//! Nothing stays when a series ends: by itself, by a signal, or killed.
//!
//! Everything that a series starts ends with the process that started it (see the hosts and disks); what is left then
//! are mounts without a server and directories. A signal ends the hosts, which ends the survey that goes on in them, and
//! the series takes the rest away itself. What a killed one could not take away goes when the next one starts.

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// Directories of series begin so; their process follows.
const PREFIX: &str = "skep-rigged-";
/// After a signal hosts are ended so often, as a set-up may be starting some more ...
const AGAIN: Duration = Duration::from_millis(100);
/// ... until the series has ended, or for so long.
const END_LIMIT: Duration = Duration::from_secs(60);
/// Exit code of a series that does not end by itself after a signal.
const EXIT_INTERRUPTED: i32 = 130;
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
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// From now on a signal ends the set-up that goes on, and then the series. A second one ends this process at once.
    pub fn on_signals() -> Result<Self, String> {
        let failed = |e: std::io::Error| format!("signals: {e}");
        let told = Arc::new(AtomicBool::new(false));
        let (reader, writer) = UnixStream::pair().map_err(failed)?;
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            // Known before anything that the same signal ended is missed.
            signal_hook::flag::register(signal, told.clone()).map_err(failed)?;
            let writer = writer.try_clone().map_err(failed)?;
            signal_hook::low_level::pipe::register(signal, writer).map_err(failed)?;
        }
        let thread = std::thread::Builder::new().name("signals".to_owned());
        let watch = move || {
            if let Some(why) = watch(reader, END_LIMIT, end_hosts) {
                eprintln!("{why}: what is left goes when the next series starts");
                std::process::exit(EXIT_INTERRUPTED);
            }
        };
        thread.spawn(watch).map_err(failed)?;
        Ok(Self(told))
    }

    /// Was there one?
    pub fn came(&self) -> bool {
        self.0.load(SeqCst)
    }
}

/// Waits for a byte, one for each signal; then calls `end`, and again and again until there is another byte or that took
/// too long. Gives which; none: there can be no signal any more.
fn watch(mut signals: UnixStream, limit: Duration, mut end: impl FnMut()) -> Option<String> {
    let mut byte = [0];
    signals.read_exact(&mut byte).ok()?;
    let until = Instant::now() + limit;
    signals.set_read_timeout(Some(AGAIN)).ok()?;
    loop {
        end();
        if signals.read(&mut byte).is_ok_and(|bytes| bytes > 0) {
            return Some("a second signal".to_owned());
        }
        if Instant::now() >= until {
            return Some(format!("the series did not end within {limit:?} after a signal"));
        }
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

    /// Goal: nothing is ended without a signal; after one it is ended again and again, but not for ever, and a second
    /// signal cuts that short.
    #[test]
    fn signals_end_hosts() {
        use std::io::Write;
        // The second signal comes when hosts were ended so often.
        let run = |first: &[u8], second_after: u32, limit: Duration| {
            let (reader, mut writer) = UnixStream::pair().unwrap();
            writer.write_all(first).unwrap();
            // Nothing comes any more where nothing came; else the other end stays.
            let mut open = (!first.is_empty()).then_some(writer);
            let mut ended = 0;
            let end = || {
                ended += 1;
                if let Some(writer) = open.as_mut().filter(|_| ended == second_after) {
                    writer.write_all(&[1]).unwrap();
                }
            };
            (watch(reader, limit, end), ended)
        };
        let second = || Some("a second signal".to_owned());
        assert_eq!(run(&[], 0, END_LIMIT), (None, 0));
        assert_eq!(run(&[1], 1, END_LIMIT), (second(), 1));
        assert_eq!(run(&[1], 3, END_LIMIT), (second(), 3));
        assert_eq!(run(&[1, 1], 0, END_LIMIT), (second(), 1));
        // However late it is: once.
        let (why, ended) = run(&[1], 0, Duration::ZERO);
        assert!(ended == 1 && why.is_some_and(|why| why.contains("did not end within")), "{ended}");
    }
}
