//! Unlinked open files, and space that is given back.

use super::{bytes, plan, start};
use skep_rig::{Cluster, until};
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Longest time until space is free again.
const FREED: Duration = Duration::from_secs(60);

/// Every chunk file of the cluster.
pub fn chunk_files(cluster: &Cluster) -> Vec<PathBuf> {
    fn walk(dir: &Path, inside: bool, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                walk(&path, inside || entry.file_name() == "chunks", found);
            } else if inside {
                found.push(path);
            }
        }
    }
    let mut found = Vec::new();
    walk(&cluster.dir(), false, &mut found);
    found
}

/// Waits until no chunk file is left.
pub fn nothing_left(cluster: &Cluster) {
    until("every chunk is deleted", FREED, || {
        let left = chunk_files(cluster);
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
    })
    .unwrap();
}

/// Goal: an unlinked open file stays whole over a restart of the metadata server, and its space is free
/// after the last close.
#[test]
fn unlinked_open_files_outlive_a_metad_restart() {
    let cluster = start(plan());
    let open = |name: &str| {
        let path = cluster.mount().join(name);
        OpenOptions::new().read(true).write(true).create_new(true).open(path).unwrap()
    };
    let files: Vec<(File, Vec<u8>)> = [("inline", 700), ("striped", 6 << 20)]
        .map(|(name, len)| {
            let (file, content) = (open(name), bytes(len as u32, len));
            file.write_all_at(&content, 0).unwrap();
            fs::remove_file(cluster.mount().join(name)).unwrap();
            (file, content)
        })
        .into();
    for round in 0..2u8 {
        cluster.one("metad").unwrap().kill().unwrap();
        cluster.up().unwrap();
        for (file, content) in &files {
            let meta = file.metadata().unwrap();
            assert_eq!((meta.nlink(), meta.len()), (0, content.len() as u64));
            let mut found = vec![0; content.len()];
            file.read_exact_at(&mut found, 0).unwrap();
            assert!(found == *content, "round {round}");
        }
    }
    files[1].0.write_all_at(b"still writable", 5 << 20).unwrap();
    files[1].0.sync_all().unwrap();
    assert!(!chunk_files(&cluster).is_empty());
    drop(files);
    nothing_left(&cluster);
}

/// Goal: truncate, rename over and unlink give space back, also when servers are killed right after.
#[test]
fn space_is_given_back_after_kills() {
    let cluster = start(plan());
    let mount = cluster.mount();
    for round in 0..3 {
        for name in ["cut", "covered", "unlinked", "cover"] {
            fs::write(mount.join(name), bytes(round, 5 << 20)).unwrap();
        }
        assert!(!chunk_files(&cluster).is_empty());
        File::create(mount.join("cut")).unwrap();
        fs::rename(mount.join("cover"), mount.join("covered")).unwrap();
        fs::remove_file(mount.join("unlinked")).unwrap();
        for service in ["metad", "storaged"] {
            cluster.one(service).unwrap().kill().unwrap();
        }
        cluster.up().unwrap();
        assert_eq!(fs::metadata(mount.join("cut")).unwrap().len(), 0);
        assert!(fs::read(mount.join("covered")).unwrap() == bytes(round, 5 << 20));
        fs::remove_file(mount.join("covered")).unwrap();
        nothing_left(&cluster);
    }
}

/// Goal: files that a killed mount held open without a name are purged when its session has ended.
#[test]
fn a_killed_mount_leaves_no_orphan() {
    let cluster = start(plan().with("SKEP_MGMTD_SESSION_TIMEOUT", "6s"));
    let second = cluster.second_mount("mnt1", &[]).unwrap();
    let file = File::create_new(second.join("orphan")).unwrap();
    file.write_all_at(&bytes(1, 4 << 20), 0).unwrap();
    fs::remove_file(second.join("orphan")).unwrap();
    assert!(!chunk_files(&cluster).is_empty());
    cluster.mount_daemon(&second).unwrap().kill().unwrap();
    drop(file);
    nothing_left(&cluster);
}
