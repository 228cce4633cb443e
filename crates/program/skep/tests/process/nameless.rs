//! Files without a name: O_TMPFILE, and those whose name was taken while they were open.

use super::deletion::{chunk_files, nothing_left};
use super::{bytes, plan, start};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, linkat, open};
use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

fn nameless(directory: &Path, flags: OFlags) -> File {
    open(directory, OFlags::RDWR | OFlags::TMPFILE | flags, Mode::from_raw_mode(0o640)).unwrap().into()
}

fn link(file: &File, to: &Path) -> rustix::io::Result<()> {
    let from = format!("/proc/self/fd/{}", file.as_raw_fd());
    linkat(CWD, from, CWD, to, AtFlags::SYMLINK_FOLLOW)
}

/// Goal: a file made without a name is used like any other, can be named once it is complete, for every
/// mount to see, and takes no space after its close when it was not.
#[test]
fn files_are_named_when_complete() {
    let cluster = start(plan());
    let second = cluster.second_mount("mnt1", &[]).unwrap();
    for len in [600usize, 5 << 20] {
        let (content, name) = (bytes(len as u32, len), format!("named-{len}"));
        let file = nameless(cluster.mount(), OFlags::empty());
        assert_eq!(file.metadata().unwrap().nlink(), 0);
        file.write_all_at(&content, 0).unwrap();
        assert_eq!(fs::read_dir(&second).unwrap().count(), fs::read_dir(cluster.mount()).unwrap().count());
        link(&file, &cluster.mount().join(&name)).unwrap();
        assert_eq!(file.metadata().unwrap().nlink(), 1);
        drop(file);
        assert!(fs::read(second.join(&name)).unwrap() == content, "{name}");
        assert_eq!(fs::metadata(second.join(&name)).unwrap().mode() & 0o777, 0o640);
        fs::remove_file(second.join(&name)).unwrap();
    }
    let file = nameless(cluster.mount(), OFlags::EXCL);
    file.write_all_at(&bytes(1, 3 << 20), 0).unwrap();
    assert!(link(&file, &cluster.mount().join("never")).is_err(), "O_EXCL: never to be named");
    assert!(!chunk_files(&cluster).is_empty());
    drop(file);
    nothing_left(&cluster);
}

/// Goal: open files without a name, of both kinds, stay whole, readable and writable over a restart of each
/// daemon, and of all of them at once; their space is free after the last close.
#[test]
fn they_outlive_every_restart() {
    let cluster = start(plan());
    let mut files: Vec<(File, Vec<u8>)> = Vec::new();
    for (name, len) in [("inline", 700), ("striped", 6 << 20)] {
        let (path, content) = (cluster.mount().join(name), bytes(len as u32, len));
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path).unwrap();
        fs::remove_file(&path).unwrap();
        for file in [file, nameless(cluster.mount(), OFlags::empty())] {
            file.write_all_at(&content, 0).unwrap();
            files.push((file, content.clone()));
        }
    }
    for (round, service) in ["metad", "storaged", "mgmtd", ""].into_iter().enumerate() {
        for daemon in cluster.daemons() {
            if daemon.service == service || (service.is_empty() && daemon.service != "mount") {
                daemon.kill().unwrap();
            }
        }
        cluster.up().unwrap();
        for (file, content) in &mut files {
            let mut found = vec![0; content.len()];
            file.read_exact_at(&mut found, 0).unwrap();
            assert!(found == *content, "after {service:?}");
            let at = content.len() / 2 + round;
            content[at..at + 50].fill(round as u8 + 1);
            file.write_all_at(&content[at..at + 50], at as u64).unwrap();
            file.sync_all().unwrap();
            assert_eq!(file.metadata().unwrap().nlink(), 0);
        }
    }
    assert!(!chunk_files(&cluster).is_empty());
    drop(files);
    nothing_left(&cluster);
}
