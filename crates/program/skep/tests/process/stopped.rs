//! A mount that stands still while others work: what its programs are shown, and what they have open.

use super::{Running, plan, start};
use rustix::process::Signal;
use skep_rig::Daemon;
use std::fs::{self, File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

/// How long mounts use what they know without a word of its server: as short as can be set, for the sake of the test's time.
pub(super) const TERM: Duration = Duration::from_secs(2);

pub(super) fn two_mounts() -> (Running, PathBuf, PathBuf) {
    let cluster = start(plan().with("SKEP_METAD_LEASE_TIME", "2s").with("SKEP_MOUNT_LEASES", "on"));
    let second = cluster.second_mount("mnt1", &[]).unwrap();
    let first = cluster.mount().to_owned();
    (cluster, first, second)
}

/// It goes on whatever becomes of the test: threads that wait for the mount would never end.
pub(super) struct Still(Daemon);

impl Still {
    pub fn stand(cluster: &Running) -> Self {
        let daemon = cluster.mount_daemon(cluster.mount()).unwrap();
        daemon.signal(Signal::STOP).unwrap();
        Self(daemon)
    }
}

impl Drop for Still {
    fn drop(&mut self) {
        let _ = self.0.signal(Signal::CONT);
    }
}

/// Files of which each version has another length and other bytes. Inline, and in chunks; written in place, and replaced.
const KINDS: [(&str, usize, bool); 4] = [
    ("inline", 200, false),
    ("chunks", 20_000, false),
    ("new-inline", 300, true),
    ("new-chunks", 30_000, true),
];

/// What another mount has done to them: which version it has begun, and which is done.
#[derive(Default)]
struct Versions {
    begun: AtomicUsize,
    done: AtomicUsize,
}

fn write(dir: &Path, version: usize) -> std::io::Result<()> {
    for (name, len, is_replaced) in KINDS {
        let (path, content) = (dir.join(name), vec![version as u8; len + version]);
        if is_replaced {
            let new = dir.join("new");
            fs::write(&new, content)?;
            fs::rename(new, path)?;
        } else {
            OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(false)
                .open(path)?
                .write_all_at(&content, 0)?;
        }
    }
    Ok(())
}

#[derive(Debug, Clone, Copy)]
enum Look {
    Stat,
    Read,
    /// By a descriptor that has been open all the time.
    Size,
}

/// The oldest and the newest version that a look shows something of. (A write in place is no one step.)
fn look(dir: &Path, open: &[File], kind: usize, how: Look) -> (usize, usize) {
    let (name, len, _) = KINDS[kind];
    let one = |found: u64| (found as usize - len, found as usize - len);
    match how {
        Look::Stat => one(fs::metadata(dir.join(name)).unwrap().len()),
        Look::Size => one(open[kind].metadata().unwrap().len()),
        Look::Read => {
            let mut found = Vec::new();
            File::open(dir.join(name)).unwrap().read_to_end(&mut found).unwrap();
            let shown = found.iter().map(|byte| usize::from(*byte)).chain([found.len() - len]);
            (shown.clone().min().unwrap(), shown.max().unwrap())
        }
    }
}

/// Goal: a program whose mount stands still for three terms, while another mount writes and replaces files, is shown what was
/// written by the time it asked, or it waits: never what was there before. Before, meanwhile and after; by name, by its
/// content, and of what it has open. The other mount waits for a term at most.
#[test]
fn nobody_is_shown_what_was_before() {
    let (cluster, here, there) = two_mounts();
    let (here, there) = (here.join("dir"), there.join("dir"));
    fs::create_dir(&there).unwrap();
    let versions = Versions::default();
    write(&there, 0).unwrap();
    let open: Vec<File> = KINDS.iter().map(|(name, ..)| File::open(here.join(name)).unwrap()).collect();
    let wrong = Mutex::new(Vec::new());
    // Asks, and notes an answer that is older than what was done when it was asked for, or newer than what was begun.
    let ask = |kind: usize, how: Look| {
        let done = versions.done.load(Ordering::SeqCst);
        let asked = Instant::now();
        let (oldest, newest) = look(&here, &open, kind, how);
        let begun = versions.begun.load(Ordering::SeqCst);
        // The old file stays what it is when another one takes its name.
        let is_old = matches!(how, Look::Size) && KINDS[kind].2;
        let is_right = if is_old { newest == 0 } else { oldest >= done && newest <= begun };
        if !is_right {
            let (name, waited) = (KINDS[kind].0, asked.elapsed());
            let text =
                format!("{name}: {how:?} shows {oldest} to {newest} of {done} to {begun} after {waited:?}");
            wrong.lock().unwrap().push(text);
        }
    };
    let ask_all = || {
        for (kind, how) in
            (0..KINDS.len()).flat_map(|kind| [Look::Stat, Look::Read, Look::Size].map(|how| (kind, how)))
        {
            ask(kind, how);
        }
    };
    // Known, attributes and content: not asked for again.
    (0..3).for_each(|_| ask_all());
    let ends = AtomicBool::new(false);
    let longest = std::thread::scope(|scope| {
        let still = Still::stand(&cluster);
        let writer = scope.spawn(|| writes(&there, &versions, &ends));
        let mut asking: Vec<ScopedJoinHandle<'_, ()>> = Vec::new();
        let begun = Instant::now();
        while begun.elapsed() < 3 * TERM {
            asking.extend(asks(scope, &ask));
            std::thread::sleep(Duration::from_millis(300));
        }
        drop(still);
        ask_all();
        asking.into_iter().for_each(|thread| thread.join().unwrap());
        // And while the other one goes on.
        (0..20).for_each(|_| ask_all());
        ends.store(true, Ordering::SeqCst);
        writer.join().unwrap()
    });
    ask_all();
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "{wrong:#?}");
    let done = versions.done.load(Ordering::SeqCst);
    println!("{done} versions; the other mount waited for {} ms at most", longest.as_millis());
    assert!(done > 5, "{done} versions");
    // For a term and its margin; and for what a busy machine adds.
    assert!(longest < 3 * TERM, "{longest:?}");
}

/// Writes one version after the other; the longest time that one took.
fn writes(dir: &Path, versions: &Versions, ends: &AtomicBool) -> Duration {
    let mut longest = Duration::ZERO;
    // Versions are bytes.
    for version in 1..250 {
        if ends.load(Ordering::SeqCst) {
            break;
        }
        let begun = Instant::now();
        versions.begun.store(version, Ordering::SeqCst);
        write(dir, version).unwrap();
        versions.done.store(version, Ordering::SeqCst);
        longest = longest.max(begun.elapsed());
        std::thread::sleep(Duration::from_millis(50));
    }
    longest
}

/// Each question by a thread of its own: while the mount stands still it has no answer.
fn asks<'scope>(
    scope: &'scope Scope<'scope, '_>,
    ask: &'scope (impl Fn(usize, Look) + Sync),
) -> Vec<ScopedJoinHandle<'scope, ()>> {
    let kinds = 0..KINDS.len();
    let all = kinds.flat_map(|kind| [Look::Stat, Look::Read, Look::Size].map(|how| (kind, how)));
    all.map(|(kind, how)| scope.spawn(move || ask(kind, how))).collect()
}
