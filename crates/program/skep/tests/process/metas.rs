//! Several metadata servers of two groups each: shards are spread over them, one that is away stops only what lies on it.

use super::away::waiting_in_fuse;
use super::http::{metrics, ports};
use super::pools::rows;
use super::{Running, bytes, plan, start, start_with_room};
use rustix::process::Signal;
use skep_base::config::metad::port_of_group;
use skep_rig::{PATIENCE, Plan, patiently, until};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

const METAS: u32 = 3;
const GROUPS: u32 = 2;
const SHARDS: u32 = 16;

fn spread() -> Plan {
    Plan { metas: METAS, groups: GROUPS, shards: SHARDS, ..plan() }
}

/// A directory on each shard.
fn directories(cluster: &Running) -> Vec<PathBuf> {
    let make = |shard: u32| {
        let path = cluster.mount().join(format!("on-{shard}"));
        let number = shard.to_string();
        let words = ["dir", "create", "--shard", &number, path.to_str().unwrap()];
        cluster.admin(words).unwrap();
        path
    };
    (0..SHARDS).map(make).collect()
}

fn shard_of(path: &Path) -> u64 {
    fs::metadata(path).unwrap().ino() >> 48
}

/// Goal: what is made below a directory stays on its shard, and works as on one server; a rename or link to another shard is
/// EXDEV, which mv(1) answers by a copy; a directory of another server is removed; all of it is there after a restart, and
/// health finds nothing.
#[test]
fn shards_are_spread_and_work_as_one() {
    let cluster = start_with_room(spread());
    let directories = directories(&cluster);
    let content = bytes(3, 3 << 20);
    for (number, directory) in directories.iter().enumerate() {
        assert_eq!(shard_of(directory), number as u64);
        fs::create_dir(directory.join("sub")).unwrap();
        fs::write(directory.join("sub/large"), &content).unwrap();
        fs::write(directory.join("small"), b"small").unwrap();
        assert_eq!(shard_of(&directory.join("sub/large")), number as u64);
    }
    let other = fs::rename(directories[0].join("small"), directories[1].join("moved")).unwrap_err();
    assert_eq!(other.raw_os_error(), Some(rustix::io::Errno::XDEV.raw_os_error()));
    assert!(fs::hard_link(directories[2].join("small"), directories[3].join("linked")).is_err());
    let moved = std::process::Command::new("mv")
        .args([directories[0].join("small"), directories[1].join("moved")])
        .status()
        .unwrap();
    assert!(moved.success());
    fs::remove_dir_all(&directories[4]).unwrap();
    assert!(fs::remove_dir(&directories[5]).is_err(), "it is not empty");
    cluster.down().unwrap();
    cluster.up().unwrap();
    assert!(!directories[4].exists());
    assert_eq!(fs::read(directories[1].join("moved")).unwrap(), b"small");
    for directory in directories.iter().filter(|directory| **directory != directories[4]) {
        assert_eq!(fs::read(directory.join("sub/large")).unwrap(), content);
    }
    assert_eq!(cluster.of("metad").len(), METAS as usize);
    let nodes = cluster.admin(["node", "list", "--output", "json"]).unwrap();
    assert_eq!(nodes.matches("\"metad-").count(), (METAS * GROUPS) as usize, "{nodes}");
    every_group_is_counted(&cluster);
    until("health finds nothing", PATIENCE, || {
        let health = cluster.run(cluster.admin_words(["health"])).unwrap();
        if health.status.success() {
            Ok(())
        } else {
            Err(String::from_utf8_lossy(&health.stdout).into_owned())
        }
    })
    .unwrap();
}

/// `skep df` has a row for each group, and a total that is the mount's; each group shows metrics of its own, and together
/// they have all shards.
fn every_group_is_counted(cluster: &Running) {
    let df = rows(cluster, &["df"]);
    let mut groups: Vec<&str> =
        df.iter().filter(|row| row["kind"] == "metadata").map(|row| row["alias"].as_str().unwrap()).collect();
    groups.sort_unstable();
    assert_eq!(groups, ["metad-1", "metad-1.1", "metad-2", "metad-2.1", "metad-3", "metad-3.1"], "{df:?}");
    assert!(
        df.iter().all(|row| row["bytes"].as_u64() > Some(0) && row["inodes"].as_u64() > Some(0)),
        "{df:?}"
    );
    let (total, mount) = (df.last().unwrap(), rustix::fs::statvfs(cluster.mount()).unwrap());
    let of_mount = (mount.f_blocks * mount.f_frsize, mount.f_files);
    assert_eq!((total["bytes"].as_u64().unwrap(), total["inodes"].as_u64().unwrap()), of_mount, "{df:?}");
    let ports = ports(cluster);
    let of_server = |server: u32| {
        let first = ports[&format!("metad-{server}")];
        (0..GROUPS).map(move |group| metrics(port_of_group(first, group)).value("skep_metad_shards", &[]))
    };
    let shards: Vec<_> = (1..=METAS).flat_map(of_server).collect();
    assert!(shards.iter().all(|shards| *shards >= Some(1.0)), "{shards:?}");
    assert_eq!(shards.iter().flatten().sum::<f64>(), f64::from(SHARDS), "{shards:?}");
}

/// Goal: while one metadata server is away, what lies on the others goes on; what lies on it waits and then succeeds.
#[test]
fn one_that_is_away_stops_only_its_own() {
    let cluster = start(spread());
    let directories = directories(&cluster);
    let file = |shard: usize| directories[shard].join("file");
    (0..SHARDS as usize).for_each(|shard| fs::write(file(shard), b"before").unwrap());
    let is_on = |shard: &usize, server: &str| {
        let info =
            cluster.admin(["entry", "info", "--output", "json", directories[*shard].to_str().unwrap()]);
        let info = info.unwrap();
        info.contains(&format!("\"{server}\"")) || info.contains(&format!("\"{server}.1\""))
    };
    let shares = ["metad-1", "metad-2", "metad-3"]
        .map(|server| (0..SHARDS as usize).filter(|shard| is_on(shard, server)).collect::<Vec<_>>());
    assert!(shares.iter().all(|share| (4..=6).contains(&share.len())), "{shares:?}");
    // Not the one of the root: every path begins there.
    let away = shares.iter().position(|share| !share.contains(&0)).unwrap();
    let own = shares[away].clone();
    let others: Vec<usize> = (0..SHARDS as usize).filter(|shard| !own.contains(shard)).collect();
    let name = format!("metad-{}", away + 1);
    let is_it =
        |daemon: &&skep_rig::Daemon| daemon.words.iter().any(|word| word.to_string_lossy().contains(&name));
    let metads = cluster.of("metad");
    let second = metads.iter().find(is_it).unwrap();
    second.signal(Signal::STOP).unwrap();
    for shard in &others {
        fs::write(file(*shard), b"meanwhile").unwrap();
    }
    let waits = std::thread::spawn({
        let path = file(own[1]);
        move || fs::write(path, b"later")
    });
    patiently("the write waits", || waiting_in_fuse(&waits)).unwrap();
    for shard in &others {
        assert_eq!(fs::read(file(*shard)).unwrap(), b"meanwhile");
    }
    assert!(!waits.is_finished());
    second.kill().unwrap();
    cluster.up().unwrap();
    waits.join().unwrap().unwrap();
    assert_eq!(fs::read(file(own[1])).unwrap(), b"later");
    assert_eq!(fs::read(file(own[0])).unwrap(), b"before");
}

/// Goal: groups that have no shard (any more) are healthy, and tell their counters as the others do.
#[test]
fn groups_without_shards_are_healthy() {
    let cluster = start_with_room(Plan { metas: 2, groups: 1, shards: 2, ..plan() });
    (0..2).for_each(|shard| {
        cluster.admin(["shard", "give", &shard.to_string(), "metad-1"]).unwrap();
    });
    patiently("one server has both", || {
        let list = cluster.admin(["shard", "list", "--output", "json"]).unwrap();
        list.matches("\"metad-1\"").count() >= 2 && !list.contains("\"metad-2\"")
    })
    .unwrap();
    patiently("health finds nothing", || {
        cluster.run(cluster.admin_words(["health"])).unwrap().status.success()
    })
    .unwrap();
    patiently("one server leads both, the other one none", || {
        let stats = cluster.admin(["stats", "--output", "json"]).unwrap().replace([' ', '\n'], "");
        [0, 2].iter().all(|value| stats.contains(&format!("\"counter\":\"shards\",\"value\":{value}}}")))
    })
    .unwrap();
    assert!(cluster.run(cluster.admin_words(["health"])).unwrap().status.success());
}
