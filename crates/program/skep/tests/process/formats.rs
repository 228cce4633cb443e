//! State directories as a release left them are opened by every later one, with all that is in them.

use super::moves::{arrives, give, place};
use super::pools::targets_of;
use super::{Running, bytes, plan, start};
use rustix::fs::{CWD, FileType, Mode, XattrFlags, getxattr, mknodat, setxattr};
use skep_rig::Plan;
use skep_types::limits::FORMAT_FILES;
use std::collections::BTreeSet;
use std::fs::{self, File, FileTimes, OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, UNIX_EPOCH};

/// What of a cluster's directory outlives a release.
const KEPT: [&str; 4] = ["cluster.key", "client.key", "state", "targets"];
/// Behind the hole of the sparse file.
const FAR: u64 = 40 << 20;
/// A time that was set.
const SET: Duration = Duration::from_secs(1_234_567_890);
/// Names of the directory that has many.
const MANY: u32 = 300;

fn at(number: u32) -> String {
    format!("name {number:03} \u{e9}\u{4e2d}")
}

fn archives() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/process/formats")
}

fn tar(words: &[&str], within: &Path) {
    let output = Command::new("tar").args(words).current_dir(within).output().unwrap();
    assert!(output.status.success(), "tar {words:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// One of everything.
fn write_tree(cluster: &Running) {
    let root = cluster.mount();
    cluster.admin(["pool", "create", "some", "--targets", "102"]).unwrap();
    let pooled = root.join("pooled");
    cluster.admin(["dir", "create", pooled.to_str().unwrap(), "--pool", "some"]).unwrap();
    fs::write(pooled.join("f"), bytes(1, 70_000)).unwrap();
    let dir = root.join("dir");
    fs::create_dir(&dir).unwrap();
    fs::set_permissions(&dir, Permissions::from_mode(0o2750)).unwrap();
    cluster
        .admin(["entry", "set", dir.to_str().unwrap(), "--targets", "2", "--chunk-size", "64KiB"])
        .unwrap();
    setxattr(&dir, "user.colour", b"green", XattrFlags::empty()).unwrap();
    fs::write(dir.join("small"), bytes(2, 100)).unwrap();
    std::os::unix::fs::chown(dir.join("small"), Some(1000), Some(1001)).unwrap();
    fs::write(dir.join("large"), bytes(3, 300_005)).unwrap();
    fs::hard_link(dir.join("large"), root.join("also large")).unwrap();
    symlink("dir/small", root.join("link")).unwrap();
    mknodat(CWD, root.join("fifo"), FileType::Fifo, Mode::from_raw_mode(0o640), 0).unwrap();
    let sparse = File::create(root.join("sparse")).unwrap();
    sparse.write_all_at(&bytes(4, 1_000), FAR).unwrap();
    let cut = File::create(root.join("cut")).unwrap();
    (&cut).write_all(&bytes(5, 150_000)).unwrap();
    cut.set_len(100_001).unwrap();
    cut.set_len(200_000).unwrap();
    cut.set_times(FileTimes::new().set_modified(UNIX_EPOCH + SET)).unwrap();
    let many = root.join("many");
    fs::create_dir(&many).unwrap();
    for number in 0..MANY {
        File::create(many.join(at(number))).unwrap();
    }
    for number in (0..MANY).step_by(3) {
        fs::remove_file(many.join(at(number))).unwrap();
    }
    fs::rename(many.join(at(1)), root.join("renamed")).unwrap();
    rustix::fs::syncfs(File::open(root).unwrap()).unwrap();
}

fn check_tree(cluster: &Running) {
    let root = cluster.mount();
    assert_eq!(fs::read(root.join("pooled/f")).unwrap(), bytes(1, 70_000));
    assert_eq!(targets_of(cluster, &root.join("pooled/f")), BTreeSet::from([102]));
    assert_eq!(targets_of(cluster, &root.join("dir/large")).len(), 2);
    let dir = root.join("dir");
    assert_eq!(fs::metadata(&dir).unwrap().mode() & 0o7777, 0o2750);
    let mut value = [0; 16];
    let len = getxattr(&dir, "user.colour", &mut value[..]).unwrap();
    assert_eq!(&value[..len], b"green");
    assert_eq!(fs::read(root.join("link")).unwrap(), bytes(2, 100));
    let small = fs::metadata(dir.join("small")).unwrap();
    assert_eq!((small.uid(), small.gid()), (1000, 1001));
    assert!(fs::read(root.join("also large")).unwrap() == bytes(3, 300_005));
    assert_eq!(fs::metadata(dir.join("large")).unwrap().nlink(), 2);
    assert!(fs::symlink_metadata(root.join("fifo")).unwrap().file_type().is_fifo());
    let sparse = fs::read(root.join("sparse")).unwrap();
    let (hole, data) = sparse.split_at(FAR as usize);
    assert!(hole.iter().all(|byte| *byte == 0) && data == bytes(4, 1_000));
    let cut = fs::read(root.join("cut")).unwrap();
    let mut expected = bytes(5, 150_000)[..100_001].to_vec();
    expected.resize(200_000, 0);
    assert!(cut == expected);
    assert_eq!(fs::metadata(root.join("cut")).unwrap().mtime(), SET.as_secs() as i64);
    let mut names: Vec<String> = fs::read_dir(root.join("many"))
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, (2..MANY).filter(|number| number % 3 > 0).map(at).collect::<Vec<_>>());
    assert_eq!(fs::metadata(root.join("renamed")).unwrap().len(), 0);
}

/// The work goes on.
fn go_on(cluster: &Running) {
    let dir = cluster.mount().join("dir");
    let large = OpenOptions::new().write(true).open(dir.join("large")).unwrap();
    large.write_all_at(&bytes(9, 250_000), 200_000).unwrap();
    large.sync_all().unwrap();
    let mut expected = bytes(3, 300_005);
    expected.truncate(200_000);
    expected.extend(bytes(9, 250_000));
    assert!(fs::read(dir.join("large")).unwrap() == expected);
    fs::write(dir.join("new"), bytes(10, 300_000)).unwrap();
    fs::remove_dir_all(cluster.mount().join("many")).unwrap();
    assert!(fs::read(dir.join("new")).unwrap() == bytes(10, 300_000));
}

/// Shards of the cluster with several metadata servers and groups.
const SHARDS: u64 = 4;
/// One of them is given to a group that did not have it, before the archive is made.
const GIVEN: u64 = 1;
/// A file that says to which: which group has which shard at first is not always the same.
const GIVEN_TO: &str = "given to";
/// The archive is small, also with the logs of all groups.
const LARGE: usize = 20_000;

fn on(cluster: &Running, shard: u64) -> PathBuf {
    cluster.mount().join(format!("on-{shard}"))
}

/// A directory on each shard, and what was changed when one of them had moved.
fn write_shards(cluster: &Running) {
    for shard in 0..SHARDS {
        let dir = on(cluster, shard);
        cluster.admin(["dir", "create", "--shard", &shard.to_string(), dir.to_str().unwrap()]).unwrap();
        fs::create_dir(dir.join("sub")).unwrap();
        fs::write(dir.join("sub/small"), bytes(shard as u32, 100)).unwrap();
        fs::write(dir.join("large"), bytes(shard as u32, LARGE)).unwrap();
        fs::hard_link(dir.join("large"), dir.join("sub/also large")).unwrap();
    }
    // The name of a directory on one shard, its contents on another.
    let below = on(cluster, 2).join("below");
    cluster.admin(["dir", "create", "--shard", &GIVEN.to_string(), below.to_str().unwrap()]).unwrap();
    let to = if place(cluster, GIVEN).1 == "metad-2.1" { "metad-1.1" } else { "metad-2.1" };
    give(cluster, GIVEN, to);
    arrives(cluster, GIVEN, to);
    fs::write(cluster.mount().join(GIVEN_TO), to).unwrap();
    fs::write(below.join("since"), bytes(9, LARGE)).unwrap();
    fs::rename(on(cluster, GIVEN).join("large"), on(cluster, GIVEN).join("renamed")).unwrap();
    fs::remove_dir_all(on(cluster, 3)).unwrap();
    rustix::fs::syncfs(File::open(cluster.mount()).unwrap()).unwrap();
}

fn check_shards(cluster: &Running) {
    arrives(cluster, GIVEN, &fs::read_to_string(cluster.mount().join(GIVEN_TO)).unwrap());
    for shard in 0..3 {
        let dir = on(cluster, shard);
        assert_eq!(fs::metadata(&dir).unwrap().ino() >> 48, shard);
        assert!(fs::read(dir.join("sub/small")).unwrap() == bytes(shard as u32, 100));
        let large = dir.join(if shard == GIVEN { "renamed" } else { "large" });
        assert!(fs::read(&large).unwrap() == bytes(shard as u32, LARGE));
        assert!(fs::read(dir.join("sub/also large")).unwrap() == bytes(shard as u32, LARGE));
        assert_eq!(fs::metadata(&large).unwrap().nlink(), 2);
    }
    let below = on(cluster, 2).join("below");
    assert_eq!(fs::metadata(&below).unwrap().ino() >> 48, GIVEN);
    assert!(fs::read(below.join("since")).unwrap() == bytes(9, LARGE));
    assert!(!on(cluster, 3).exists());
}

/// The work goes on, and so do moves.
fn go_on_with_shards(cluster: &Running) {
    let dir = on(cluster, GIVEN);
    fs::write(dir.join("new"), bytes(10, LARGE)).unwrap();
    give(cluster, GIVEN, "metad-1");
    arrives(cluster, GIVEN, "metad-1");
    assert!(fs::read(dir.join("new")).unwrap() == bytes(10, LARGE));
    fs::remove_file(dir.join("renamed")).unwrap();
    assert!(fs::read(dir.join("sub/also large")).unwrap() == bytes(GIVEN as u32, LARGE));
    fs::remove_dir_all(on(cluster, 2)).unwrap();
    fs::remove_dir_all(dir).unwrap();
}

/// A cluster of which each release leaves an archive.
struct Kind {
    /// Behind the release, in the archive's name.
    name: &'static str,
    plan: Plan,
    write: fn(&Running),
    check: fn(&Running),
    go_on: fn(&Running),
}

fn kinds() -> [Kind; 2] {
    let groups = Plan { metas: 2, groups: 2, shards: SHARDS as u32, ..plan() };
    [
        Kind { name: "", plan: plan(), write: write_tree, check: check_tree, go_on },
        Kind {
            name: "-groups",
            plan: groups,
            write: write_shards,
            check: check_shards,
            go_on: go_on_with_shards,
        },
    ]
}

/// Writes the archive of this release: with a log to be replayed, as a power cut leaves it.
fn write_archive(cluster: &Running, write: fn(&Running), archive: &Path) {
    write(cluster);
    cluster.of("metad").iter().for_each(|metad| metad.kill().unwrap());
    cluster.one("mgmtd").unwrap().kill().unwrap();
    cluster.down().unwrap();
    fs::create_dir_all(archive.parent().unwrap()).unwrap();
    let words = ["--create", "--sparse", "--gzip", "--owner=0", "--group=0", "--file"];
    let words = [&words[..], &[archive.to_str().unwrap()], &KEPT].concat();
    tar(&words, &cluster.dir());
    cluster.up().unwrap();
}

/// Of one kind: those of a release are its name, that of the kind, and the ending.
fn archives_of(kind: &Kind) -> Vec<PathBuf> {
    let others = kinds();
    let is_of_kind = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy();
        let release = name.strip_suffix(".tar.gz").unwrap();
        let mut fitting = others.iter().filter(|other| release.ends_with(other.name));
        fitting.next_back().is_some_and(|other| other.name == kind.name)
    };
    let all = fs::read_dir(archives()).unwrap().map(|entry| entry.unwrap().path());
    let mut all: Vec<PathBuf> = all.filter(is_of_kind).collect();
    all.sort();
    all
}

/// Goal: directories of this release and of every one before that they are kept of are opened, show what was written,
/// and work goes on in them: of a cluster with one metadata server, and of one with several, of which each has several
/// groups. With SKEP_WRITE_FIXTURES archives of this release that are missing are made first, which is done when it is
/// released: what is added to a record before is in the files of the crates.
#[test]
fn directories_of_releases_open() {
    for kind in kinds() {
        let cluster = start(kind.plan.clone());
        let own = archives().join(format!("{FORMAT_FILES}{}.tar.gz", kind.name));
        if std::env::var_os("SKEP_WRITE_FIXTURES").is_some() && !own.exists() {
            write_archive(&cluster, kind.write, &own);
        }
        let all = archives_of(&kind);
        assert!(!all.is_empty(), "{} is missing: SKEP_WRITE_FIXTURES=1 makes it", own.display());
        for archive in all {
            cluster.down().unwrap();
            for name in KEPT {
                let path = cluster.dir().join(name);
                if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }.unwrap();
            }
            tar(&["--extract", "--gzip", "--file", archive.to_str().unwrap()], &cluster.dir());
            cluster.up().unwrap_or_else(|e| panic!("{}: {e}", archive.display()));
            (kind.check)(&cluster);
            (kind.go_on)(&cluster);
        }
    }
}
