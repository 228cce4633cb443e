//! What fsync says when the file system below a target is not what it was, and what is said of a target that nobody
//! serves.

use super::pools::{Disk, directory_of, set, target};
use super::{Running, bytes, plan, start, start_with_room};
use rustix::io::Errno;
use skep_rig::{PATIENCE, Plan, until};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Ends the storage servers at once, as a crash does.
fn kill_storage(cluster: &Running) {
    for daemon in cluster.of("storaged") {
        daemon.kill().unwrap();
    }
}

fn copy(from: &Path, to: &Path) {
    let done = Command::new("cp").arg("-aT").arg(from).arg(to).status().unwrap();
    assert!(done.success());
}

fn fsync(file: &File) -> Result<(), Option<Errno>> {
    file.sync_all().map_err(|e| Errno::from_io_error(&e))
}

/// A cluster whose only target for files below `dir` lies on a file system of its own.
pub fn on_a_disk(plan: Plan) -> (Running, Disk, PathBuf, PathBuf) {
    let cluster = start(plan);
    set(&cluster, &["pool", "create", "small", "--targets", "101"]);
    let directory = directory_of(&cluster, 101);
    cluster.down().unwrap();
    let disk = Disk::under(&directory, 200);
    cluster.up().unwrap();
    let dir = cluster.mount().join("dir");
    set(&cluster, &["dir", "create", dir.to_str().unwrap(), "--pool", "small"]);
    (cluster, disk, directory, dir)
}

/// What is in the directory of a target now, for [`goes_back`].
pub fn flush(cluster: &Running, directory: &Path) -> PathBuf {
    let flushed = cluster.beside("flushed");
    copy(directory, &flushed);
    flushed
}

/// The file system below a target becomes what it was when it was flushed, while its server is down.
pub fn goes_back(cluster: &Running, disk: Disk, directory: &Path, flushed: &Path) -> Disk {
    kill_storage(cluster);
    drop(disk);
    let empty = directory.with_extension("aside");
    fs::rename(directory, &empty).unwrap();
    fs::remove_dir(&empty).unwrap();
    copy(flushed, directory);
    let disk = Disk::under(directory, 200);
    cluster.up().unwrap();
    disk
}

/// Goal: the file system below a target goes back to what was flushed, without a reboot of the machine, while its
/// server is down: every fsync of a file that had lost something fails, and one of a file that had not succeeds. A
/// mere restart of the server fails none.
#[test]
fn fsync_tells_that_a_file_system_went_back() {
    let (cluster, disk, directory, dir) = on_a_disk(plan());
    let (old, new) = (bytes(1, 300_000), bytes(2, 300_000));
    let make = |name: &str, content: &[u8]| {
        let file = File::options().create_new(true).write(true).read(true).open(dir.join(name)).unwrap();
        file.write_all_at(content, 0).unwrap();
        file
    };
    let restarted = make("restarted", &old);
    kill_storage(&cluster);
    cluster.up().unwrap();
    assert_eq!(fsync(&restarted), Ok(()), "the kernel kept it");
    let (overwritten, steady) = (make("overwritten", &old), make("steady", &old));
    assert_eq!((fsync(&overwritten), fsync(&steady)), (Ok(()), Ok(())));
    let flushed = flush(&cluster, &directory);
    overwritten.write_all_at(&new, 0).unwrap();
    let fresh = make("fresh", &new);
    let disk = goes_back(&cluster, disk, &directory, &flushed);
    assert_eq!(fsync(&overwritten), Err(Some(Errno::IO)), "it holds the old bytes");
    assert_eq!(fsync(&fresh), Err(Some(Errno::IO)), "it holds nothing");
    assert_eq!(fsync(&steady), Ok(()));
    overwritten.write_all_at(&new, 0).unwrap();
    assert_eq!(fsync(&overwritten), Ok(()), "told once; what is written now is there");
    drop((restarted, overwritten, steady, fresh));
    cluster.down().unwrap();
    drop(disk);
}

/// Goal: a target whose disk was replaced is served by nobody although its server runs: it is offline, `skep health`
/// fails and names both ways out, and each of them is one. Nothing of that is said while servers are only restarted.
#[test]
fn a_target_that_nobody_serves_is_offline() {
    let cluster = start_with_room(plan());
    let directory = directory_of(&cluster, 101);
    let health = || {
        let output = cluster.run(cluster.admin_words(["health"])).unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let reach = |id| target(&cluster, id, "reachability");
    let becomes = |id: u64, wanted: &str| {
        let look = || if reach(id) == wanted { Ok(()) } else { Err(reach(id).to_string()) };
        until("the target's state changes", PATIENCE, look).unwrap();
    };
    let file = cluster.mount().join("file");
    fs::write(&file, bytes(1, 8 << 20)).unwrap();
    let config = |daemon: &skep_rig::Daemon| {
        let at = daemon.words.iter().position(|word| word == "--config").unwrap();
        PathBuf::from(&daemon.words[at + 1])
    };
    let serves = |config: &PathBuf| fs::read_to_string(config).unwrap().contains(directory.to_str().unwrap());
    let server = cluster.of("storaged").into_iter().find(|daemon| serves(&config(daemon))).unwrap();
    let (config, aside) = (config(&server), directory.with_extension("aside"));
    server.kill().unwrap();
    fs::rename(&directory, &aside).unwrap();
    fs::create_dir(&directory).unwrap();
    let words = ["storaged", "--config", config.to_str().unwrap(), "--init-only"];
    let made = cluster.run(words).unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    cluster.up().unwrap();
    becomes(101, "offline");
    assert_eq!(reach(105), "online", "the new one");
    let said = health();
    assert!(
        said.contains("runs and does not serve it") && said.contains("target remove target-101"),
        "{said}"
    );
    let status = cluster.run(["status", "--dir", cluster.dir().to_str().unwrap()]).unwrap();
    let status = String::from_utf8_lossy(&status.stdout).into_owned();
    assert!(status.contains("4 of 5 targets"), "{status}");

    let server =
        cluster.of("storaged").into_iter().find(|daemon| daemon.words.contains(&config.clone().into()));
    server.unwrap().kill().unwrap();
    fs::rename(&directory, directory.with_extension("new")).unwrap();
    fs::rename(&aside, &directory).unwrap();
    cluster.up().unwrap();
    becomes(101, "online");
    assert!(fs::read(&file).unwrap() == bytes(1, 8 << 20), "the first way out");
    becomes(105, "offline");
    set(&cluster, &["target", "remove", "target-105", "--force"]);
    assert!(!health().contains("does not serve it"), "the second one");
}
