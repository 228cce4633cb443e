//! Pools, capacity classes, aliases and removals, against a living cluster.

use super::deletion::{chunk_files, nothing_left};
use super::{bytes, plan, refusal, start, start_with_room};
use rustix::fs::{FallocateFlags, fallocate, statvfs};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use serde_json::Value;
use skep_rig::{Cluster, PATIENCE, until};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Well before a request to a target that is away is tried for the last time (60 s).
const PROMPTLY: Duration = Duration::from_secs(45);

/// The rows that an administrative command prints.
pub fn rows(cluster: &Cluster, words: &[&str]) -> Vec<Value> {
    let text = cluster.admin([words, &["--output", "ndjson"]].concat()).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Numbers of the targets that hold a file's bytes.
pub fn targets_of(cluster: &Cluster, path: &Path) -> BTreeSet<u64> {
    let info = rows(cluster, &["entry", "info", path.to_str().unwrap()]).remove(0);
    let extents = info["extents"].as_array().unwrap().iter();
    extents
        .flat_map(|extent| extent["stripes"].as_array().unwrap())
        .flat_map(|stripe| stripe["targets"].as_array().unwrap())
        .map(|t| t["target"].as_u64().unwrap())
        .collect()
}

/// The field of a target in `target list`.
pub fn target(cluster: &Cluster, id: u64, field: &str) -> Value {
    let all = rows(cluster, &["target", "list"]);
    all.iter().find(|row| row["id"] == id).map_or(Value::Null, |row| row[field].clone())
}

/// Where `skep up` put a target.
pub fn directory_of(cluster: &Cluster, id: u64) -> PathBuf {
    let all = fs::read_dir(cluster.dir().join("targets")).unwrap();
    let says = format!("target = {id}");
    all.flatten()
        .map(|entry| entry.path())
        .find(|path| fs::read_to_string(path.join("skep-target.toml")).is_ok_and(|text| text.contains(&says)))
        .unwrap_or_else(|| panic!("no directory of target {id}"))
}

/// Runs a command that must succeed: what it said.
pub fn set(cluster: &Cluster, words: &[&str]) -> String {
    let output = cluster.run(cluster.admin_words(words)).unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{words:?}: {said}");
    said
}

/// Goal: a file of which one target is full goes on on another one of its pool, for a mount with an old layout too; no
/// byte is lost, and none is refused while there is room.
#[test]
fn a_growing_file_goes_on_where_there_is_room() {
    let cluster = start(plan().with("SKEP_STORAGED_RESERVE", "8MiB"));
    set(&cluster, &["pool", "create", "some", "--targets", "101,102"]);
    let narrow = directory_of(&cluster, 101);
    cluster.down().unwrap();
    let disk = Disk::under(&narrow, 24);
    cluster.up().unwrap();
    let second = cluster.second_mount("mnt1", &[]).unwrap();
    let dir = cluster.mount().join("dir");
    set(&cluster, &["dir", "create", dir.to_str().unwrap(), "--pool", "some"]);
    set(&cluster, &["entry", "set", dir.to_str().unwrap(), "--targets", "2"]);
    let path = dir.join("large");
    let both = |path: &Path| {
        OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).unwrap()
    };
    let files = [both(&path), both(&second.join("dir/large"))];
    let part = |number: u64| bytes(number as u32, 1 << 20);
    for number in 0..64 {
        files[number as usize % 2]
            .write_all_at(&part(number), number << 20)
            .unwrap_or_else(|e| panic!("MiB {number}: {e}"));
    }
    files.iter().for_each(|file| file.sync_all().unwrap());
    assert_eq!(targets_of(&cluster, &path), BTreeSet::from([101, 102]));
    let info = rows(&cluster, &["entry", "info", path.to_str().unwrap()]).remove(0);
    assert!(info["extents"].as_array().unwrap().len() > 1, "{info}");
    let mut found = vec![0; 1 << 20];
    for path in [&path, &second.join("dir/large")] {
        let file = File::open(path).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 64 << 20);
        for number in 0..64 {
            file.read_exact_at(&mut found, number << 20).unwrap();
            assert!(found == part(number), "MiB {number} of {path:?}");
        }
    }
    drop(files);
    drop(cluster);
    drop(disk);
}

/// Goal: files below a directory that names a pool are on that pool's targets and no others, however wide
/// they should be, which is said; other directories do not use them. Both ways to make such a directory.
#[test]
fn files_stay_in_their_pool() {
    let cluster = start(plan());
    set(&cluster, &["pool", "create", "hot", "--targets", "101,target-102"]);
    let (made, changed) = (cluster.mount().join("made"), cluster.mount().join("changed"));
    set(&cluster, &["dir", "create", made.to_str().unwrap(), "--pool", "hot"]);
    fs::create_dir_all(changed.join("below")).unwrap();
    let said =
        set(&cluster, &["entry", "set", "-r", "--pool", "2", "--targets", "4", changed.to_str().unwrap()]);
    assert!(said.contains("4 targets wanted") && said.contains("hot has 2"), "{said}");
    let hot = BTreeSet::from([101, 102]);
    for number in 0..6 {
        for dir in [&made, &changed.join("below")] {
            let path = dir.join(number.to_string());
            fs::write(&path, bytes(number, 300_000)).unwrap();
            assert!(targets_of(&cluster, &path).is_subset(&hot), "{path:?}");
        }
        let path = cluster.mount().join(format!("cold{number}"));
        fs::write(&path, bytes(number, 300_000)).unwrap();
        assert!(targets_of(&cluster, &path).is_disjoint(&hot), "{path:?}");
    }
    let wide = changed.join("below/wide");
    fs::write(&wide, bytes(9, 5 << 20)).unwrap();
    assert_eq!(targets_of(&cluster, &wide), hot);
    assert!(fs::read(&wide).unwrap() == bytes(9, 5 << 20));
    let text = refusal(
        &cluster,
        &["pool", "delete", "hot", "--cluster", cluster.dir().join("cluster.toml").to_str().unwrap()],
    );
    assert!(text.contains("target-101, target-102"), "{text}");
    set(&cluster, &["pool", "assign", "default", "101", "102"]);
    let said = set(&cluster, &["pool", "delete", "hot"]);
    assert!(said.contains("entry set"), "{said}");
    assert!(fs::read(&wide).unwrap() == bytes(9, 5 << 20), "what is there stays");
    // Nothing of a deleted pool takes new files.
    let refused = until("the pool is gone for writers", PATIENCE, || {
        match fs::write(made.join("late"), bytes(1, 300_000)) {
            Err(e) => Ok(e),
            Ok(()) => Err("still written".to_owned()),
        }
    });
    assert_eq!(Errno::from_io_error(&refused.unwrap()), Some(Errno::NOSPC));
}

/// A file system of its own for a target, taken off at the end.
pub struct Disk(PathBuf);

impl Disk {
    /// Puts what is in `directory` on a file system of `megabytes` in memory.
    pub fn under(directory: &Path, megabytes: u32) -> Self {
        Self::mounted(directory, || {
            let size = std::ffi::CString::new(format!("size={megabytes}m")).unwrap();
            mount("skep-test", directory, "tmpfs", MountFlags::empty(), Some(size.as_c_str())).unwrap();
        })
    }

    /// The same on ext4, which tells what is reserved, in a sparse file.
    pub fn ext4_under(directory: &Path, megabytes: u32, image: &Path) -> Self {
        let run = |command: &mut Command| {
            let done = command.output().unwrap();
            assert!(done.status.success(), "{command:?}: {}", String::from_utf8_lossy(&done.stderr));
        };
        File::create(image).unwrap().set_len(u64::from(megabytes) << 20).unwrap();
        run(Command::new("/sbin/mkfs.ext4").args(["-q", "-m", "0"]).arg(image));
        Self::mounted(directory, || run(Command::new("mount").args(["-o", "loop"]).args([image, directory])))
    }

    fn mounted(directory: &Path, mount: impl FnOnce()) -> Self {
        let aside = directory.with_extension("aside");
        fs::rename(directory, &aside).unwrap();
        fs::create_dir(directory).unwrap();
        mount();
        let disk = Self(directory.to_owned());
        let copied = Command::new("cp").arg("-aT").arg(&aside).arg(directory).status().unwrap();
        assert!(copied.success());
        fs::remove_dir_all(&aside).unwrap();
        disk
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if let Err(e) = unmount(&self.0, UnmountFlags::DETACH) {
            eprintln!("{}: {e}", self.0.display());
        }
    }
}

/// Goal: a reservation of which one target has no room goes on on another one, and what the others gave stays with the
/// file: nothing is taken twice, and every byte can be written.
#[test]
fn a_reservation_goes_on_where_there_is_room() {
    let cluster = start(plan().with("SKEP_STORAGED_RESERVE", "16MiB"));
    set(&cluster, &["pool", "create", "some", "--targets", "101,102"]);
    let directories = [101, 102].map(|id| directory_of(&cluster, id));
    cluster.down().unwrap();
    let disk =
        |at: usize, megabytes, name| Disk::ext4_under(&directories[at], megabytes, &cluster.beside(name));
    let disks = [disk(0, 80, "narrow.image"), disk(1, 240, "wide.image")];
    let left = || statvfs(&directories[1]).map(|at| at.f_bavail * at.f_frsize).unwrap();
    cluster.up().unwrap();
    let dir = cluster.mount().join("dir");
    set(&cluster, &["dir", "create", dir.to_str().unwrap(), "--pool", "some"]);
    set(&cluster, &["entry", "set", dir.to_str().unwrap(), "--targets", "2"]);
    let (before, parts) = (left(), 160);
    assert!(before < (parts + 80 + 16) << 20, "a half fits twice");
    let file = File::options().read(true).write(true).create_new(true).open(dir.join("reserved")).unwrap();
    fallocate(&file, FallocateFlags::KEEP_SIZE, 0, parts << 20).unwrap();
    let taken = before - left();
    assert!((parts << 20..(parts + 8) << 20).contains(&taken), "{taken} bytes are taken");
    let part = |number: u64| bytes(number as u32, 1 << 20);
    for number in 0..parts {
        file.write_all_at(&part(number), number << 20).unwrap_or_else(|e| panic!("MiB {number}: {e}"));
    }
    file.sync_all().unwrap();
    let mut found = vec![0; 1 << 20];
    for number in 0..parts {
        file.read_exact_at(&mut found, number << 20).unwrap();
        assert!(found == part(number), "MiB {number}");
    }
    let taken = before - left();
    assert!(taken < (parts + 8) << 20, "{taken} bytes are taken");
    drop(file);
    drop(cluster);
    drop(disks);
}

/// Goal: a full pool is full: its writers get ENOSPC while there is room in another, nothing of them is
/// put there, and others go on.
#[test]
fn a_full_pool_does_not_spill() {
    let cluster = start(plan().with("SKEP_STORAGED_RESERVE", "8MiB"));
    set(&cluster, &["pool", "create", "small", "--targets", "101,102"]);
    let (a, b) = (directory_of(&cluster, 101), directory_of(&cluster, 102));
    cluster.down().unwrap();
    let disks = [Disk::under(&a, 40), Disk::under(&b, 40)];
    cluster.up().unwrap();
    let dir = cluster.mount().join("dir");
    set(&cluster, &["dir", "create", dir.to_str().unwrap(), "--pool", "small"]);
    set(&cluster, &["entry", "set", dir.to_str().unwrap(), "--targets", "2"]);
    let file = File::create(dir.join("large")).unwrap();
    let part = bytes(1, 1 << 20);
    let error = (0..200).find_map(|n| file.write_all_at(&part, n << 20).err()).expect("never full");
    assert_eq!(Errno::from_io_error(&error), Some(Errno::NOSPC), "{error}");
    assert_eq!(targets_of(&cluster, &dir.join("large")), BTreeSet::from([101, 102]));
    let outside = cluster.mount().join("outside");
    fs::write(&outside, bytes(2, 8 << 20)).unwrap();
    assert!(targets_of(&cluster, &outside).is_disjoint(&BTreeSet::from([101, 102])));
    // A new file: the chooser refuses it, too, once the registry has heard.
    let error = until("new files are refused", PATIENCE, || match fs::write(dir.join("new"), &part) {
        Err(e) => Ok(e),
        Ok(()) => Err(format!("on {:?}", targets_of(&cluster, &dir.join("new")))),
    });
    assert_eq!(Errno::from_io_error(&error.unwrap()), Some(Errno::NOSPC));
    fs::write(dir.join("inline"), b"fits into the metadata").unwrap();
    drop(file);
    drop(cluster);
    drop(disks);
}

/// Goal: limits move targets between classes within a heartbeat, shown by the lists, and new files avoid
/// the low ones while there are others.
#[test]
fn capacity_classes_steer_new_files() {
    let cluster = start_with_room(plan());
    set(&cluster, &["pool", "create", "hot", "--targets", "101,102,103"]);
    set(&cluster, &["pool", "assign", "hot", "104"]);
    let dir = cluster.mount().join("hot");
    set(&cluster, &["dir", "create", dir.to_str().unwrap(), "--pool", "hot"]);
    let classes = || -> Vec<Value> { (101..=104).map(|id| target(&cluster, id, "class")).collect() };
    set(
        &cluster,
        &["pool", "set-limits", "hot", "--space-low", "8EiB", "--inodes-low", "0", "--inodes-emergency", "0"],
    );
    until("all are low", PATIENCE, || match classes() {
        all if all.iter().all(|class| class == "low") => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .unwrap();
    fs::write(dir.join("still"), bytes(1, 100_000)).unwrap();
    // One of another pool is normal, and comes in.
    set(&cluster, &["pool", "set-limits", "hot", "--default"]);
    until("all are normal again", PATIENCE, || match classes() {
        all if all.iter().all(|class| class == "normal") => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .unwrap();
    let pool = rows(&cluster, &["pool", "list"]).into_iter().find(|row| row["alias"] == "hot").unwrap();
    assert_eq!(
        (&pool["targets"], &pool["targets_normal"], &pool["targets_low"]),
        (&4.into(), &4.into(), &0.into())
    );
    assert_eq!(pool["bytes"], target(&cluster, 101, "bytes"), "one disk under four targets is one disk");
    let said = refusal(
        &cluster,
        &cluster
            .admin_words(["pool", "set-limits", "hott", "--space-low", "1GiB"])
            .iter()
            .map(|w| w.to_str().unwrap())
            .collect::<Vec<_>>(),
    );
    assert!(said.contains("did you mean \"hot\""), "{said}");
}

/// Goal: aliases change while files are written, are shown at once, and hold over restarts of every daemon.
#[test]
fn aliases_change_live() {
    let cluster = start(plan());
    let path = cluster.mount().join("f");
    let file = File::create(&path).unwrap();
    file.write_all_at(&bytes(1, 1 << 20), 0).unwrap();
    let id = *targets_of(&cluster, &path).first().unwrap();
    set(&cluster, &["target", "set-alias", &id.to_string(), "ssd"]);
    set(&cluster, &["node", "set-alias", "storaged-1", "rack7"]);
    file.write_all_at(&bytes(2, 1 << 20), 1 << 20).unwrap();
    assert_eq!(target(&cluster, id, "alias"), "ssd");
    let info = rows(&cluster, &["entry", "info", path.to_str().unwrap()]).remove(0);
    assert_eq!(info["extents"][0]["stripes"][0]["targets"][0]["alias"], "ssd");
    let cluster_file = cluster.dir().join("cluster.toml");
    let words = ["target", "set-alias", "102", "rack7", "--cluster", cluster_file.to_str().unwrap()];
    let said = refusal(&cluster, &words);
    assert!(said.contains("taken") || id == 102, "{said}");
    for service in ["mgmtd", "storaged", "metad"] {
        cluster.of(service).into_iter().for_each(|daemon| daemon.kill().unwrap());
        cluster.up().unwrap();
    }
    assert_eq!(target(&cluster, id, "alias"), "ssd");
    let nodes = rows(&cluster, &["node", "list"]);
    assert!(nodes.iter().any(|node| node["alias"] == "rack7"), "{nodes:?}");
    assert!(fs::read(&path).unwrap() == [bytes(1, 1 << 20), bytes(2, 1 << 20)].concat());
}

/// Goal: a target that holds chunks is not removed and goes on; emptied, it is; its daemon serves it no
/// more, also after a restart with the old configuration; nothing new is put on it, its number is gone.
#[test]
fn an_empty_target_is_removed() {
    let cluster = start(plan());
    let cluster_file = cluster.dir().join("cluster.toml");
    let remove = |timeout: &str| {
        let words = ["target", "remove", "104", "--timeout", timeout, "--cluster"];
        cluster.run([&words[..], &[cluster_file.to_str().unwrap()]].concat()).unwrap()
    };
    set(&cluster, &["entry", "set", "--targets", "4", cluster.mount().to_str().unwrap()]);
    let wide = cluster.mount().join("wide");
    fs::write(&wide, bytes(1, 5 << 20)).unwrap();
    // It waits all that time for the chunks to go.
    let refused = remove("15s");
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        !refused.status.success() && said.contains("holds chunks") && said.contains("back in pool default"),
        "{said}"
    );
    assert_eq!(target(&cluster, 104, "pool_alias"), "default");
    assert!(fs::read(&wide).unwrap() == bytes(1, 5 << 20));
    fs::remove_file(&wide).unwrap();
    nothing_left(&cluster);
    let done = remove("100s");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    assert_eq!(rows(&cluster, &["target", "list"]).len(), 3);
    fs::write(&wide, bytes(2, 5 << 20)).unwrap();
    assert_eq!(targets_of(&cluster, &wide), BTreeSet::from([101, 102, 103]));
    let told = |what: &str| cluster.logs().iter().any(|(_, text)| text.contains(what));
    until("its daemon was told", PATIENCE, || {
        if told("target 104 was removed from the cluster: it is served no more") {
            Ok(())
        } else {
            Err(String::new())
        }
    })
    .unwrap();
    cluster.of("storaged").into_iter().for_each(|daemon| daemon.kill().unwrap());
    cluster.up().unwrap();
    assert!(told("target 104 was removed from the cluster: take its directory out of"));
    assert_eq!(rows(&cluster, &["target", "list"]).len(), 3);
    assert!(fs::read(&wide).unwrap() == bytes(2, 5 << 20));
}

/// Goal: a target is removed by force with what it holds: files with bytes on it fail in bounded time, the
/// others are whole, and files that lost bytes can be deleted for good.
#[test]
fn a_lost_target_is_removed_by_force() {
    let cluster = start(plan());
    set(&cluster, &["entry", "set", "--targets", "1", cluster.mount().to_str().unwrap()]);
    // Targets are drawn: as many files as it takes for some on that one and some elsewhere.
    let (mut lost, mut kept) = (Vec::new(), Vec::new());
    for n in 0.. {
        let path = cluster.mount().join(n.to_string());
        fs::write(&path, bytes(1, 200_000)).unwrap();
        match targets_of(&cluster, &path).contains(&103) {
            true => lost.push(path),
            false => kept.push(path),
        }
        if lost.len() >= 2 && kept.len() >= 2 {
            break;
        }
    }
    let said = set(&cluster, &["target", "remove", "--force", "target-103", "--timeout", "2s"]);
    assert!(said.contains("removed all the same"), "{said}");
    let second = cluster.second_mount("second", &[]).unwrap();
    for path in &kept {
        assert!(fs::read(second.join(path.file_name().unwrap())).unwrap() == bytes(1, 200_000));
    }
    for path in &lost {
        let begun = Instant::now();
        let error = fs::read(second.join(path.file_name().unwrap())).unwrap_err();
        assert_eq!(Errno::from_io_error(&error), Some(Errno::IO), "{error}");
        assert!(begun.elapsed() < PROMPTLY, "what is lost is not waited for");
    }
    let path = lost[0].to_str().unwrap();
    let plain = ["entry", "repair", path].map(OsString::from).to_vec();
    for words in [plain, cluster.admin_words(["entry", "repair", "--zero", path])] {
        let repair = cluster.run(words).unwrap();
        let said = String::from_utf8_lossy(&repair.stderr).into_owned();
        assert!(!repair.status.success() && said.contains("removed from the cluster"), "{said}");
    }
    let info = cluster.must(["entry", "info", path]).unwrap();
    assert!(info.contains("target 103, which was removed from the cluster"), "{info}");
    // It can be cut to nothing and written anew when nobody else has it open, which a mount tells a moment after the
    // close; and deleted.
    until("it is written anew", PATIENCE, || {
        fs::write(&lost[0], bytes(2, 200_000)).map_err(|error| error.to_string())
    })
    .unwrap();
    assert!(fs::read(&lost[0]).unwrap() == bytes(2, 200_000));
    lost.iter().for_each(|path| fs::remove_file(path).unwrap());
    kept.iter().for_each(|path| fs::remove_file(path).unwrap());
    // What is left is on the removed target, and nobody waits for it.
    until("the rest is deleted", PATIENCE, || {
        let gone = directory_of(&cluster, 103);
        let left: Vec<_> =
            chunk_files(&cluster).into_iter().filter(|path| !path.starts_with(&gone)).collect();
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
    })
    .unwrap();
}

/// Goal: a node is removed when it is offline and has no targets; the rest goes on without it.
#[test]
fn an_empty_node_is_removed() {
    let cluster = start(
        plan().with("SKEP_MGMTD_NODE_PROBABLY_OFFLINE", "1500ms").with("SKEP_MGMTD_NODE_OFFLINE", "3s"),
    );
    let cluster_file = cluster.dir().join("cluster.toml");
    let words = ["node", "remove", "storaged-2", "--cluster", cluster_file.to_str().unwrap()];
    let said = refusal(&cluster, &words);
    assert!(said.contains("2 targets"), "{said}");
    let id = target(&cluster, 101, "node").as_u64().unwrap();
    let nodes = rows(&cluster, &["node", "list"]);
    let other = nodes.iter().find(|node| node["alias"] == "storaged-2").unwrap()["id"].as_u64().unwrap();
    let theirs: Vec<u64> = rows(&cluster, &["target", "list"])
        .iter()
        .filter(|row| row["node"] == other)
        .map(|row| row["id"].as_u64().unwrap())
        .collect();
    assert_eq!((theirs.len(), id == other || id + 1 == other || id > other), (2, true));
    for target in &theirs {
        set(&cluster, &["target", "remove", &target.to_string()]);
    }
    assert!(refusal(&cluster, &words).contains("online"));
    let daemon = cluster
        .of("storaged")
        .into_iter()
        .find(|daemon| daemon.words.iter().any(|word| word.to_string_lossy().contains("storaged-2")));
    daemon.unwrap().kill().unwrap();
    until("it is offline and removed", PATIENCE, || cluster.must(words).map(drop)).unwrap();
    assert!(rows(&cluster, &["node", "list"]).iter().all(|node| node["id"] != other));
    fs::write(cluster.mount().join("f"), bytes(1, 3 << 20)).unwrap();
    assert!(fs::read(cluster.mount().join("f")).unwrap() == bytes(1, 3 << 20));
}

/// Goal: entry set -r reaches every directory once, on every shard, goes on after paths that are wrong, says
/// how many it was in JSON, and its exit code tells of the failure.
#[test]
fn entry_set_walks_trees() {
    let cluster = start(plan());
    let top = cluster.mount().join("top");
    fs::create_dir(&top).unwrap();
    let mut count = 1;
    for shard in 0..4 {
        let on = top.join(format!("s{shard}"));
        set(&cluster, &["dir", "create", on.to_str().unwrap(), "--shard", &shard.to_string()]);
        for number in 0..30 {
            fs::create_dir_all(on.join(format!("{number}/deep"))).unwrap();
            fs::write(on.join(format!("{number}/file")), b"x").unwrap();
        }
        count += 1 + 60;
    }
    let path = top.to_str().unwrap();
    let row = rows(&cluster, &["entry", "set", "-r", "--targets", "2", "--chunk", "128KiB", path]).remove(0);
    assert_eq!(
        (&row["entries"], &row["failed"], &row["targets_available"]),
        (&count.into(), &0.into(), &4.into())
    );
    for shard in 0..4 {
        let path = top.join(format!("s{shard}/17/deep/new"));
        fs::write(&path, bytes(1, 1 << 20)).unwrap();
        assert_eq!(targets_of(&cluster, &path).len(), 2, "{path:?}");
    }
    let words = ["entry", "set", "-r", "--targets", "3", "/nowhere", path, "-O", "json", "--cluster"];
    let output =
        cluster.run([&words[..], &[cluster.dir().join("cluster.toml").to_str().unwrap()]].concat()).unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("/nowhere"), "{said}");
    let rows: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((rows.as_array().unwrap().len(), &rows[0]["entries"]), (1, &count.into()));
}
