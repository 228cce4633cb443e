//! New files: what their mount keeps of them for a moment, and what others see.

use super::http::{metrics, ports};
use super::{Running, plan, start};
use rustix::process::Signal;
use skep_rig::{PATIENCE, until};
use std::collections::BTreeMap;
use std::fs::{self, File, FileTimes, Metadata, OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// The times that files are given.
const GIVEN: Duration = Duration::from_secs(1_000_000_007);

/// Two mounts, and a directory that the first has made: it is alone with it.
pub(super) fn two_mounts() -> (Running, PathBuf, PathBuf) {
    let cluster = start(plan());
    let second = cluster.second_mount("mnt1", &[]).unwrap();
    let first = cluster.mount().to_owned();
    until("a file is held", PATIENCE, || {
        let _ = fs::remove_dir_all(first.join("d"));
        fs::create_dir(first.join("d")).unwrap();
        let before = answered(&cluster);
        drop(like_tar(&first.join("d/first"), b"x"));
        fs::remove_file(first.join("d/first")).unwrap();
        let tells = answered(&cluster).get("Tell").copied() > before.get("Tell").copied();
        if tells { Ok(()) } else { Err("its changes are told one by one".to_owned()) }
    })
    .unwrap();
    (cluster, first.join("d"), second.join("d"))
}

/// Requests that the metadata server has answered, by kind.
fn answered(cluster: &Running) -> BTreeMap<String, u64> {
    answered_by(cluster, "metad")
}

/// The same of all servers of a kind.
pub(super) fn answered_by(cluster: &Running, role: &str) -> BTreeMap<String, u64> {
    let (mut answered, name) = (BTreeMap::new(), format!("skep_{role}_requests_total"));
    for (_, port) in ports(cluster).into_iter().filter(|(name, _)| name.starts_with(role)) {
        let samples = metrics(port).samples.into_iter();
        for sample in samples.filter(|sample| sample.name == name) {
            *answered.entry(sample.labels["message"].clone()).or_default() += sample.value as u64;
        }
    }
    answered
}

/// Makes a file as `tar` does, and leaves it open.
fn like_tar(path: &Path, content: &[u8]) -> File {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).unwrap();
    file.write_all(content).unwrap();
    let given = SystemTime::UNIX_EPOCH + GIVEN;
    file.set_times(FileTimes::new().set_accessed(given).set_modified(given)).unwrap();
    std::os::unix::fs::fchown(&file, Some(7), Some(8)).unwrap();
    file.set_permissions(Permissions::from_mode(0o640)).unwrap();
    file
}

fn seen(found: &Metadata) -> (u32, u32, u32, i64, u64) {
    (found.mode() & 0o7777, found.uid(), found.gid(), found.mtime(), found.len())
}

fn made(len: usize) -> (u32, u32, u32, i64, u64) {
    (0o640, 7, 8, GIVEN.as_secs() as i64, len as u64)
}

/// Goal: what `tar` does to a file is two requests to its metadata server, the close included (a growth more, where it is in
/// chunks); the program sees all of it at once, and another mount whenever it looks, while the file is open or after.
#[test]
fn what_is_made_of_a_file_is_told_once_and_seen_by_all() {
    let (cluster, here, there) = two_mounts();
    for (len, kinds) in [(700, &["Create", "Tell"][..]), (30_000, &["Create", "Grow", "Tell"])] {
        let content = super::bytes(1, len);
        // One that nobody else has looked at.
        let (here, there) = (here.join(format!("{len}")), there.join(format!("{len}")));
        fs::create_dir(&here).unwrap();
        // Nobody has to give back names of directories for these, which go by time.
        for number in 0..50 {
            fs::create_dir(here.join(format!("open-{number}"))).unwrap();
        }
        let before = answered(&cluster);
        for number in 0..20 {
            let file = like_tar(&here.join(format!("{number}")), &content);
            assert_eq!(seen(&file.metadata().unwrap()), made(len));
        }
        let mut after = answered(&cluster);
        after.retain(|kind, count| {
            *count -= before.get(kind).copied().unwrap_or(0);
            *count >= 20
        });
        assert_eq!(after.keys().collect::<Vec<_>>(), kinds);
        for number in 0..20 {
            let path = there.join(format!("{number}"));
            assert_eq!(seen(&fs::metadata(&path).unwrap()), made(len));
            assert!(fs::read(&path).unwrap() == content);
        }
        for number in 0..50 {
            let dir = format!("open-{number}");
            let (name, there) = (here.join(&dir).join("f"), there.join(&dir).join("f"));
            let file = like_tar(&name, &content);
            if number % 2 == 0 {
                assert_eq!(seen(&fs::metadata(&there).unwrap()), made(len), "{number}");
            }
            assert!(fs::read(&there).unwrap() == content, "{number}");
            file.set_permissions(Permissions::from_mode(0o600)).unwrap();
            assert_eq!(fs::metadata(&there).unwrap().mode() & 0o777, 0o600, "{number}");
            fs::remove_file(&there).unwrap();
        }
    }
}

/// Goal: a file that stays open is told within about a second, though nobody asks; the change time that its program saw stays.
#[test]
fn an_open_file_is_told_soon() {
    let (cluster, here, there) = two_mounts();
    let before = answered(&cluster).get("Tell").copied();
    let file = like_tar(&here.join("f"), b"content");
    let shown = file.metadata().unwrap();
    until("it is told", PATIENCE, || {
        if answered(&cluster).get("Tell").copied() > before { Ok(()) } else { Err("not yet".to_owned()) }
    })
    .unwrap();
    drop(file);
    for mount in [&here, &there] {
        let found = fs::metadata(mount.join("f")).unwrap();
        assert_eq!(seen(&found), made(7));
        assert_eq!((found.ctime(), found.ctime_nsec()), (shown.ctime(), shown.ctime_nsec()));
    }
}

/// Goal: a metadata server that is killed while files are held is told of them again: nothing is lost, and others see all of it.
#[test]
fn a_killed_server_loses_nothing_that_is_held() {
    let (cluster, here, there) = two_mounts();
    for round in 0..3 {
        let name = |number: usize| format!("{round}-{number}");
        let files: Vec<File> = (0..30).map(|number| like_tar(&here.join(name(number)), b"held")).collect();
        cluster.one("metad").unwrap().kill().unwrap();
        cluster.up().unwrap();
        for number in 0..10 {
            assert_eq!(seen(&fs::metadata(there.join(name(number))).unwrap()), made(4), "{round} {number}");
        }
        drop(files);
        for number in 0..30 {
            assert_eq!(seen(&fs::metadata(there.join(name(number))).unwrap()), made(4), "{round} {number}");
            assert_eq!(fs::read(there.join(name(number))).unwrap(), b"held");
        }
    }
}

/// Goal: who asks about a file of a mount that stands still waits for it, and sees what its programs had seen; a mount that is killed
/// leaves each file as it was made, or as it was told.
#[test]
fn a_mount_that_stands_still_is_waited_for() {
    let (cluster, here, there) = two_mounts();
    let daemon = cluster.mount_daemon(cluster.mount()).unwrap();
    let file = like_tar(&here.join("f"), b"still");
    daemon.signal(Signal::STOP).unwrap();
    let path = there.join("f");
    let asked = std::thread::spawn(move || fs::metadata(path).unwrap());
    std::thread::sleep(Duration::from_millis(1_500));
    let waits = !asked.is_finished();
    daemon.signal(Signal::CONT).unwrap();
    assert_eq!(seen(&asked.join().unwrap()), made(5));
    assert!(waits, "it was shown what is not so");
    drop(file);
    let files: Vec<File> = (0..20).map(|number| like_tar(&here.join(format!("{number}")), b"gone")).collect();
    daemon.kill().unwrap();
    drop(files);
    skep_rig::unmount_lazily(cluster.mount());
    cluster.mount_again(cluster.mount()).unwrap();
    for number in 0..20 {
        let found = seen(&fs::metadata(there.join(format!("{number}"))).unwrap());
        let is_new = (found.0, found.4) == (0o600, 0);
        assert!(is_new || found == made(4), "{found:?}");
    }
}
