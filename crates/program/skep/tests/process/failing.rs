//! A disk that fails below a target: what programs are told of it, and who decides when it is good again.

use super::pools::{directory_of, set, target};
use super::{Running, bytes, plan, start};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use rustix::process::Signal;
use skep_rig::{MemoryDisk, PATIENCE, until};
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

fn system(program: &str, words: &[&str]) -> String {
    let output = Command::new(program).args(words).output().unwrap_or_else(|e| panic!("{program}: {e}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {words:?}: {said}");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// A file system in an image that lies on another one: when that one is full, blocks that are new cannot be written. It
/// has no journal, whose end would tell of a failure by itself.
struct FailingDisk {
    directory: PathBuf,
    device: String,
    below: MemoryDisk,
}

impl FailingDisk {
    /// Puts what is in `directory` on such a disk.
    fn under(directory: &Path) -> Self {
        let below = MemoryDisk::new(48).unwrap();
        let image = below.path().join("image");
        let image = image.to_str().unwrap();
        system("truncate", &["-s", "80m", image]);
        system("mkfs.ext4", &["-q", "-F", "-E", "lazy_itable_init=0,nodiscard", "-O", "^has_journal", image]);
        let device = system("losetup", &["--find", "--show", image]);
        let aside = directory.with_extension("aside");
        fs::rename(directory, &aside).unwrap();
        fs::create_dir(directory).unwrap();
        let disk = Self { directory: directory.to_owned(), device, below };
        mount(disk.device.as_str(), directory, "ext4", MountFlags::empty(), None).unwrap();
        fs::remove_dir(directory.join("lost+found")).unwrap();
        system("cp", &["-aT", aside.to_str().unwrap(), directory.to_str().unwrap()]);
        fs::remove_dir_all(&aside).unwrap();
        disk
    }

    fn ballast(&self) -> PathBuf {
        self.below.path().join("ballast")
    }

    fn write_back(&self) -> Result<(), Errno> {
        rustix::fs::syncfs(File::open(&self.directory).unwrap())
    }

    /// From now on no block is written that was not there before.
    fn fails(&self) {
        self.write_back().unwrap();
        let mut ballast = File::create(self.ballast()).unwrap();
        let mut block = vec![1; 1 << 16];
        while !block.is_empty() {
            if ballast.write_all(&block).is_err() {
                block.truncate(block.len() / 2);
            }
        }
    }

    /// It is as good as before.
    fn is_well(&self) {
        fs::remove_file(self.ballast()).unwrap();
    }
}

impl Drop for FailingDisk {
    fn drop(&mut self) {
        if let Err(e) = unmount(&self.directory, UnmountFlags::DETACH) {
            eprintln!("{}: {e}", self.directory.display());
        }
        // It goes with its last user.
        let _ = Command::new("losetup").args(["-d", &self.device]).status();
    }
}

/// A cluster whose only target for files below the directory is on such a disk.
fn on_a_failing_disk() -> (Running, FailingDisk, PathBuf) {
    let cluster = start(plan().with("SKEP_STORAGED_RESERVE", "8MiB").with("SKEP_STORAGED_HEARTBEAT", "20ms"));
    set(&cluster, &["pool", "create", "small", "--targets", "101"]);
    let directory = directory_of(&cluster, 101);
    cluster.down().unwrap();
    let disk = FailingDisk::under(&directory);
    cluster.up().unwrap();
    let dir = cluster.mount().join("dir");
    set(&cluster, &["dir", "create", dir.to_str().unwrap(), "--pool", "small"]);
    (cluster, disk, dir)
}

/// A new file, of more bytes than blocks that were written before and are free again.
fn written(path: &Path, tag: u32) -> File {
    let file = File::create_new(path).unwrap();
    file.write_all_at(&bytes(tag, 8 << 20), 0).unwrap();
    file
}

fn fsync(file: &File) -> Result<(), Option<Errno>> {
    file.sync_all().map_err(|e| Errno::from_io_error(&e))
}

fn becomes(cluster: &Running, wanted: &str) {
    let look = || {
        let state = target(cluster, 101, "consistency");
        if state == wanted { Ok(()) } else { Err(state.to_string()) }
    };
    until("the target's state changes", PATIENCE, look).unwrap();
}

/// Goal: what the kernel could not write back, long after the write was answered and while nobody of Skep asked for it, is
/// told by the next fsync of that file, though the disk is well again by then and other files were written and synced
/// meanwhile; the target is bad.
#[test]
fn fsync_tells_of_a_write_back_that_failed() {
    let (cluster, disk, dir) = on_a_failing_disk();
    let steady = written(&dir.join("steady"), 1);
    assert_eq!(fsync(&steady), Ok(()));
    disk.fails();
    let lost = written(&dir.join("lost"), 2);
    assert!(disk.write_back().is_err(), "nothing failed: else this tests nothing");
    disk.is_well();
    fs::write("/proc/sys/vm/drop_caches", "3").unwrap();
    assert_eq!(fsync(&lost), Err(Some(Errno::IO)));
    becomes(&cluster, "bad");
    drop((steady, lost));
    cluster.down().unwrap();
    drop(disk);
}

/// Goal: a target whose disk failed while mgmtd was silent is bad until somebody decides otherwise: neither what mgmtd says
/// when it goes on makes it good, nor a restart of the server or of mgmtd. (The one order in which mgmtd's map is older than
/// the failure is made by hand in `only_a_word_that_answers_the_failure_counts`; this test meets it by chance only.)
#[test]
fn a_failed_target_is_good_by_decision_only() {
    let (cluster, disk, dir) = on_a_failing_disk();
    let mgmtd = cluster.one("mgmtd").unwrap();
    // A change waits, too, after which every server asks for the map.
    mgmtd.signal(Signal::STOP).unwrap();
    let change = cluster.admin_words(["pool", "create", "other", "--targets", "102", "--timeout", "60s"]);
    let mut change = cluster.command(change).spawn().unwrap();
    disk.fails();
    let lost = written(&dir.join("lost"), 1);
    assert!(disk.write_back().is_err(), "nothing failed: else this tests nothing");
    assert_eq!(fsync(&lost), Err(Some(Errno::IO)));
    disk.is_well();
    mgmtd.signal(Signal::CONT).unwrap();
    assert!(change.wait().unwrap().success());
    becomes(&cluster, "bad");
    for service in ["storaged", "mgmtd"] {
        cluster.of(service).iter().for_each(|daemon| daemon.kill().unwrap());
        cluster.up().unwrap();
        let online = || {
            let reach = target(&cluster, 101, "reachability");
            if reach == "online" { Ok(()) } else { Err(reach.to_string()) }
        };
        until("the server has reported", PATIENCE, online).unwrap();
        assert_eq!(target(&cluster, 101, "consistency"), "bad", "after a restart of {service}");
    }
    set(&cluster, &["target", "set-state", "101", "good"]);
    becomes(&cluster, "good");
    // The metadata server hears of it with its next heartbeat; until then no target of the pool takes new data.
    let again = File::create_new(dir.join("again")).unwrap();
    let write = || again.write_all_at(&bytes(2, 8 << 20), 0).map_err(|e| e.to_string());
    until("the target takes new data", PATIENCE, write).unwrap();
    assert_eq!(fsync(&again), Ok(()));
    drop((lost, again));
    cluster.down().unwrap();
    drop(disk);
}
