//! The end of the mode, with a mount whose limits are short.

use super::*;
use rustix::io::Errno;
use std::sync::Mutex;

/// Does with one directory what a mount does: what is there while the mode is on is marked, the mode ends when it is not
/// renewed and after its whole time, and with it the marks go.
struct Short {
    total: Duration,
    since: Instant,
    until: Mutex<Option<Instant>>,
    most: usize,
}

impl Short {
    fn is_on(&self) -> bool {
        let until = self.until.lock().unwrap();
        until.is_some_and(|until| Instant::now() < until.min(self.since + self.total))
    }
}

impl Switch for &Short {
    fn set(&self, dir: &Path, lease: Duration) -> rustix::io::Result<()> {
        if lease.is_zero() {
            *self.until.lock().unwrap() = None;
            return Ok(());
        }
        if self.since.elapsed() >= self.total {
            return Err(Errno::TIMEDOUT);
        }
        if !self.is_on() && std::fs::read_dir(dir).unwrap().count() > 0 {
            return Err(Errno::NOTEMPTY);
        }
        *self.until.lock().unwrap() = Some(Instant::now() + lease);
        Ok(())
    }

    fn is_marked(&self, path: &Path) -> bool {
        let number = path.file_name().and_then(|name| name.to_str()?.parse().ok());
        self.is_on() && number.is_none_or(|number: usize| number < self.most)
    }

    fn unmarked(&self, dir: &Path) -> u64 {
        let files = std::fs::read_dir(dir).unwrap().count();
        if self.is_on() { files.saturating_sub(self.most) as u64 } else { 0 }
    }
}

fn short(total: Duration, most: usize) -> Short {
    Short { total, since: Instant::now(), until: Mutex::new(None), most }
}

fn limits(total: Duration) -> Limits {
    Limits { lease: total / 2, renew_every: Duration::from_millis(20), total, cleanup: total / 2 }
}

/// Goal: whoever asks for all the time that there is gets an end in good order: the files made meanwhile are gone, and
/// the directory too.
#[test]
fn the_whole_time() {
    let dir = tempfile::tempdir().unwrap();
    // A second until it ends, and as much time to clean up as a busy machine takes.
    let (total, cleanup) = (Duration::from_secs(121), Duration::from_secs(120));
    let mount = short(total, usize::MAX);
    let limits = Limits { lease: cleanup, cleanup, ..limits(total) };
    let scratch = Scratch::at(dir.path().join("scratch"), &mount, limits).unwrap();
    std::fs::create_dir(scratch.path().join("deep")).unwrap();
    (0..20).for_each(|n| std::fs::write(scratch.path().join(format!("deep/{n}")), "x").unwrap());
    let stop = Stop::new().unwrap();
    assert!(scratch.keep(total, &stop).unwrap());
    assert!(mount.is_on() && Instant::now() >= scratch.ends(), "time is left to clean up");
    drop(scratch);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

/// Goal: a signal ends it at once, and is told.
#[test]
fn ended_by_a_signal() {
    let dir = tempfile::tempdir().unwrap();
    let total = Duration::from_secs(600);
    let mount = short(total, usize::MAX);
    let scratch = Scratch::at(dir.path().join("scratch"), &mount, limits(total)).unwrap();
    let stop = Stop::new().unwrap();
    stop.set();
    assert!(!scratch.keep(total, &stop).unwrap());
    drop(scratch);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

/// Goal: files beyond the limit of marks are told, and stay.
#[test]
fn too_many_files() {
    let dir = tempfile::tempdir().unwrap();
    let total = Duration::from_secs(60);
    let mount = short(total, 3);
    let scratch = Scratch::at(dir.path().join("scratch"), &mount, limits(total)).unwrap();
    assert_eq!(scratch.beyond(), None);
    (0..5).for_each(|n| std::fs::write(scratch.path().join(n.to_string()), "x").unwrap());
    let said = scratch.beyond().unwrap();
    assert!(said.contains("at least 2 more") && said.contains("kept on disks"), "{said}");
    drop(scratch);
    let mut left: Vec<_> =
        std::fs::read_dir(dir.path().join("scratch")).unwrap().map(|one| one.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["3", "4"]);
}
