//! Older copies of directories, lost parts of them, and processes that another one has superseded.

use super::deletion::chunk_files;
use super::{Running, bytes, plan, start};
use rustix::process::Signal;
use skep_rig::{Daemon, PATIENCE, until};
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Files that are looked for after something went wrong.
const FILES: u32 = 5;

pub fn copy(from: &Path, to: &Path) {
    let status = Command::new("cp").args(["-a", "--"]).arg(from).arg(to).status().unwrap();
    assert!(status.success());
}

/// Ends a daemon in good order.
pub fn stop(daemon: &Daemon) {
    daemon.signal(Signal::TERM).unwrap();
    daemon.wait_gone(PATIENCE).unwrap();
}

/// Puts `copy` in the place of `directory`.
pub fn put_back(copied: &Path, directory: &Path) {
    fs::remove_dir_all(directory).unwrap();
    copy(copied, directory);
}

/// Files of several chunks, on stable storage with their names.
pub fn write_files(mount: &Path, tag: u32) {
    for number in 0..FILES {
        let mut file = File::create(mount.join(format!("f{tag}-{number}"))).unwrap();
        file.write_all(&bytes(tag + number, 100_000)).unwrap();
        file.sync_all().unwrap();
    }
    File::open(mount).unwrap().sync_all().unwrap();
}

pub fn check_files(mount: &Path, tag: u32) {
    for number in 0..FILES {
        let found = fs::read(mount.join(format!("f{tag}-{number}"))).unwrap();
        assert!(found == bytes(tag + number, 100_000), "f{tag}-{number}");
    }
}

pub fn logged(cluster: &Running, service: &str, text: &str) -> Result<(), String> {
    let logs = cluster.logs();
    let log = logs.iter().find(|(name, _)| name.starts_with(service)).map_or("", |(_, log)| log);
    match log.contains(text) {
        true => Ok(()),
        false => Err(log.lines().last().unwrap_or("nothing is logged").to_owned()),
    }
}

/// `skep up` must fail because `service` says `text`.
fn refused(cluster: &Running, service: &str, text: &str) {
    let said = cluster.up().unwrap_err();
    until(text, PATIENCE, || logged(cluster, service, text))
        .unwrap_or_else(|e| panic!("{e}; up said: {said}"));
}

/// The command that a service names to be told so, as it stands in its log.
fn advised(cluster: &Running, service: &str, name: &str) {
    let config = cluster.dir().join(format!("etc/{name}.toml"));
    let command = format!("`skep {service} --config {} --restored`", config.display());
    logged(cluster, name, &command).unwrap();
}

/// Tells a service once that its directory is an older copy.
fn restored(cluster: &Running, service: &str, name: &str) {
    advised(cluster, service, name);
    told_to_restore(cluster, service, name);
}

/// The same where nothing has refused the directory before.
pub fn told_to_restore(cluster: &Running, service: &str, name: &str) {
    let config = cluster.dir().join(format!("etc/{name}.toml"));
    cluster.must([service.as_ref(), "--config".as_ref(), config.as_os_str(), "--restored".as_ref()]).unwrap();
}

/// A process beside the cluster's own: killed when dropped.
pub struct Second(Child);

impl Drop for Second {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts another process of `name` on `directory`, with ports of its own.
pub fn second(cluster: &Running, (service, name): (&str, &str), directory: &Path, more: &[String]) -> Second {
    let mut command = cluster.command([service, "--config"]);
    command.arg(cluster.dir().join(format!("etc/{name}.toml")));
    let http = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut sets = vec![
        format!("state_dir={}", directory.display()),
        "listen=127.0.0.1:0".to_owned(),
        format!("http={http}"),
        format!("unix_socket={}", cluster.beside("second.sock").display()),
    ];
    sets.extend_from_slice(more);
    for set in &sets {
        command.args(["--set", set]);
    }
    let log = File::create(cluster.dir().join(format!("log/second-{name}.log"))).unwrap();
    let child = command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap();
    Second(child)
}

pub fn state(cluster: &Running, name: &str) -> PathBuf {
    cluster.dir().join("state").join(name)
}

/// Goal: a metadata server that hung while a copy of its directory took its place does not take the node back: it
/// ends and says why, what was fsynced at its successor stays, and started again it is refused.
#[test]
fn a_hung_metad_does_not_come_back() {
    let cluster = start(plan());
    let old = cluster.one("metad").unwrap();
    old.signal(Signal::STOP).unwrap();
    let stopped = Instant::now();
    // It waits for an answer, and must not get it from a server that has lost its place.
    let late = cluster.mount().join("late");
    let writer = std::thread::spawn(move || fs::write(late, b"not lost"));
    let copied = cluster.beside("copy");
    copy(&state(&cluster, "metad-1"), &copied);
    let _successor = second(&cluster, ("metad", "metad-1"), &copied, &[]);
    until("the copy serves", PATIENCE, || logged(&cluster, "second-metad", "ready")).unwrap();
    let mount = cluster.second_mount("mnt1", &[]).unwrap();
    write_files(&mount, 1);
    // Longer than heartbeats take: what is asked of the old one now it answers only when mgmtd says that it may.
    std::thread::sleep(Duration::from_secs(8).saturating_sub(stopped.elapsed()));
    old.signal(Signal::CONT).unwrap();
    old.wait_gone(PATIENCE).unwrap();
    logged(&cluster, "metad-1", "superseded").unwrap();
    writer.join().unwrap().unwrap();
    refused(&cluster, "metad-1", "older copy");
    let third = cluster.second_mount("mnt2", &[]).unwrap();
    check_files(&third, 1);
    check_files(cluster.mount(), 1);
    assert_eq!(fs::read(third.join("late")).unwrap(), b"not lost");
}

/// Goal: the same for a storage server.
#[test]
fn a_hung_storaged_does_not_come_back() {
    let cluster = start(plan());
    let old = cluster.of("storaged").into_iter().find(|daemon| of_config(daemon, "storaged-1")).unwrap();
    old.signal(Signal::STOP).unwrap();
    let copied = cluster.beside("copy");
    copy(&state(&cluster, "storaged-1"), &copied);
    let _successor = second(&cluster, ("storaged", "storaged-1"), &copied, &[]);
    // It has the node, and cannot have the targets as long as the other one holds them.
    until("mgmtd knows the successor", PATIENCE, || {
        logged(&cluster, "second-storaged", "another process serves it")
    })
    .unwrap();
    old.signal(Signal::CONT).unwrap();
    old.wait_gone(PATIENCE).unwrap();
    logged(&cluster, "storaged-1", "superseded").unwrap();
    refused(&cluster, "storaged-1", "older copy");
}

fn of_config(daemon: &Daemon, name: &str) -> bool {
    daemon.words.iter().any(|word| word.to_string_lossy().ends_with(&format!("{name}.toml")))
}

/// Goal: a metadata server without its log, or without log and rows, makes no empty file system and leaves the place
/// as it is; with them it goes on.
#[test]
fn a_metad_without_its_log_is_refused() {
    let cluster = start(plan());
    write_files(cluster.mount(), 1);
    let directory = state(&cluster, "metad-1");
    stop(&cluster.one("metad").unwrap());
    for parts in [&["log"][..], &["log", "rows"]] {
        for part in parts {
            fs::rename(directory.join(part), cluster.beside(part)).unwrap();
        }
        refused(&cluster, "metad-1", "its log is gone");
        assert!(!directory.join("log").exists(), "nothing is made where a disk may be missing");
        for part in parts {
            fs::rename(cluster.beside(part), directory.join(part)).unwrap();
        }
    }
    cluster.up().unwrap();
    check_files(cluster.mount(), 1);
}

/// Goal: an older copy of a metadata server's directory is refused; put back on purpose, no new file shows a byte of
/// the files that are lost.
#[test]
fn an_older_metad_shows_nobody_anothers_bytes() {
    let cluster = start(plan());
    write_files(cluster.mount(), 1);
    let (directory, backup) = (state(&cluster, "metad-1"), cluster.beside("backup"));
    stop(&cluster.one("metad").unwrap());
    copy(&directory, &backup);
    cluster.up().unwrap();
    for number in 0..100 {
        let mut file = File::create(cluster.mount().join(format!("private-{number}"))).unwrap();
        file.set_permissions(fs::Permissions::from_mode(0o600)).unwrap();
        file.write_all(&bytes(7, 20_000)).unwrap();
        file.sync_all().unwrap();
    }
    let last = fs::metadata(cluster.mount().join("private-99")).unwrap().ino();
    stop(&cluster.one("metad").unwrap());
    put_back(&backup, &directory);
    refused(&cluster, "metad-1", "older copy");
    restored(&cluster, "metad", "metad-1");
    cluster.up().unwrap();
    let mount = cluster.second_mount("mnt1", &[]).unwrap();
    check_files(&mount, 1);
    assert!(!mount.join("private-1").exists(), "it is an older copy");
    for number in 0..400 {
        let path = mount.join(format!("new-{number}"));
        let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        file.write_all_at(b"x", 19_999).unwrap();
        let mut found = vec![1; 19_999];
        file.read_exact_at(&mut found, 0).unwrap();
        assert!(found.iter().all(|byte| *byte == 0), "{number}: bytes of another file");
        assert!(file.metadata().unwrap().ino() > last + (1 << 31));
    }
}

/// Goal: an older copy of mgmtd's directory is found out by the daemons before it gives anything a second time, and
/// ends; everything else goes on meanwhile. Put back on purpose, it gives other numbers.
#[test]
fn an_older_mgmtd_is_found_out() {
    let cluster = start(plan());
    write_files(cluster.mount(), 1);
    let (directory, backup) = (state(&cluster, "mgmtd"), cluster.beside("backup"));
    stop(&cluster.one("mgmtd").unwrap());
    copy(&directory, &backup);
    cluster.up().unwrap();
    let second = cluster.second_mount("mnt1", &[]).unwrap();
    write_files(&second, 2);
    stop(&cluster.one("mgmtd").unwrap());
    put_back(&backup, &directory);
    // It starts; then the first daemon that knows better ends it, and nobody is told that all is well.
    let said = cluster.up().unwrap_err();
    assert!(said.contains("mgmtd ended") && said.contains("is an older copy"), "{said}");
    assert!(cluster.one("mgmtd").is_err(), "it runs");
    let status = cluster.run(["status".as_ref(), "--dir".as_ref(), cluster.dir().as_os_str()]).unwrap();
    let health = cluster.run(cluster.admin_words(["health"])).unwrap();
    for told in [&status, &health] {
        let text = String::from_utf8_lossy(&told.stdout);
        assert!(text.contains("ERROR mgmtd: ended") && text.contains("--restored"), "{text}");
        assert!(!text.contains("start it by skep up") && !text.contains("start skep mgmtd"), "{text}");
    }
    assert_eq!((status.status.code(), health.status.code()), (Some(1), Some(2)));
    assert_eq!(cluster.of("metad").len() + cluster.of("storaged").len(), 3, "they need no mgmtd");
    check_files(cluster.mount(), 2);
    write_files(cluster.mount(), 3);
    restored(&cluster, "mgmtd", "mgmtd");
    cluster.up().unwrap();
    let third = cluster.second_mount("mnt2", &[]).unwrap();
    (1..=3).for_each(|tag| check_files(&third, tag));
    write_files(&third, 4);
    check_files(cluster.mount(), 4);
    let sessions = cluster.admin(["session", "list", "-O", "ndjson"]).unwrap();
    let ids = sessions.lines().filter_map(|line| line.split("\"client\":").nth(1));
    let ids: Vec<u64> = ids.filter_map(|rest| rest.split([',', '}']).next()?.parse().ok()).collect();
    assert!(ids.iter().any(|id| *id > 1 << 32), "{sessions}");
}

/// Goal: a target without its chunks, an older copy of it, and a copy beside the one that is served are refused with
/// advice; put back on purpose, the older copy is served.
#[test]
fn copies_of_targets_are_refused() {
    let cluster = start(plan());
    write_files(cluster.mount(), 1);
    let (target, backup) = (cluster.dir().join("targets/1"), cluster.beside("backup"));
    let server =
        || cluster.of("storaged").into_iter().find(|daemon| of_config(daemon, "storaged-1")).unwrap();
    copy(&target, &backup);
    let copied = second(
        &cluster,
        ("storaged", "storaged-1"),
        &cluster.beside("state"),
        &[format!("targets={}", backup.display()), "alias=other".to_owned()],
    );
    until("it is refused", PATIENCE, || logged(&cluster, "second-storaged", "is this directory a copy"))
        .unwrap();
    drop(copied);
    check_files(cluster.mount(), 1);
    stop(&server());
    fs::rename(target.join("chunks"), cluster.beside("chunks")).unwrap();
    refused(&cluster, "storaged-1", "chunks/ is gone");
    fs::rename(cluster.beside("chunks"), target.join("chunks")).unwrap();
    cluster.up().unwrap();
    check_files(cluster.mount(), 1);
    stop(&server());
    put_back(&backup, &target);
    refused(&cluster, "storaged-1", "older copy");
    restored(&cluster, "storaged", "storaged-1");
    cluster.up().unwrap();
    check_files(cluster.mount(), 1);
}

/// Goal: after mgmtd was put back on purpose, an older copy of a target, and of a metadata server's directory, is refused
/// without any restart of their servers in between.
#[test]
fn a_restored_mgmtd_refuses_older_copies() {
    let cluster = start(plan());
    let older = |name: &str| cluster.beside(&format!("older-{name}"));
    let mgmtd = state(&cluster, "mgmtd");
    stop(&cluster.one("mgmtd").unwrap());
    copy(&mgmtd, &older("mgmtd"));
    cluster.up().unwrap();
    let target = cluster.dir().join("targets/1");
    let server =
        || cluster.of("storaged").into_iter().find(|daemon| of_config(daemon, "storaged-1")).unwrap();
    stop(&server());
    copy(&target, &older("target"));
    stop(&cluster.one("metad").unwrap());
    copy(&state(&cluster, "metad-1"), &older("metad"));
    cluster.up().unwrap();
    write_files(cluster.mount(), 1);
    stop(&cluster.one("mgmtd").unwrap());
    put_back(&older("mgmtd"), &mgmtd);
    told_to_restore(&cluster, "mgmtd", "mgmtd");
    cluster.up().unwrap();
    for who in ["metad-1 (", "storaged-1 (", "target-101 (", "target-102 (", "target-103 (", "target-104 ("] {
        until("all servers are heard", PATIENCE, || {
            let logs = cluster.logs();
            let log = &logs.iter().find(|(name, _)| name.starts_with("mgmtd")).unwrap().1;
            let heard = |line: &str| {
                line.contains(who) && (line.contains("known again") || line.contains("registered"))
            };
            let since = log.rsplit_once("ready:").map_or("", |(_, since)| since);
            if since.lines().any(heard) { Ok(()) } else { Err(format!("{who} is not known")) }
        })
        .unwrap();
    }
    for (service, name, directory) in
        [("storaged", "storaged-1", target), ("metad", "metad-1", state(&cluster, "metad-1"))]
    {
        if service == "storaged" {
            stop(&server())
        } else {
            stop(&cluster.one("metad").unwrap())
        }
        let newest = cluster.beside(&format!("newest-{service}"));
        copy(&directory, &newest);
        let copied = older(if service == "storaged" { "target" } else { service });
        put_back(&copied, &directory);
        refused(&cluster, name, "older copy");
        put_back(&newest, &directory);
        cluster.up().unwrap();
    }
    check_files(cluster.mount(), 1);
}

/// Goal: what servers keep is theirs alone, also in a directory that was made otherwise; so is what lies on targets.
#[test]
fn state_directories_are_private() {
    let cluster = start(plan());
    fs::write(cluster.mount().join("secret"), b"what only its owner may read").unwrap();
    let chunks = File::create(cluster.mount().join("secrets")).unwrap();
    chunks.write_all_at(&bytes(1, 3 << 20), 0).unwrap();
    chunks.sync_all().unwrap();
    stop(&cluster.one("metad").unwrap());
    let mut open = Vec::new();
    look_for_open(&state(&cluster, ""), &mut open);
    let mut looked = 0;
    for target in fs::read_dir(cluster.dir().join("targets")).unwrap() {
        looked += 1;
        look_for_open(&target.unwrap().path(), &mut open);
    }
    // What a target is, anybody may know.
    open.retain(|line| !line.contains("/skep-target.toml "));
    assert!(looked >= 4 && !chunk_files(&cluster).is_empty());
    assert_eq!(open, Vec::<String>::new());
    for name in ["metad-1", "mgmtd", "storaged-1"] {
        fs::set_permissions(state(&cluster, name), fs::Permissions::from_mode(0o755)).unwrap();
    }
    cluster.daemons().iter().filter(|daemon| daemon.service != "mount").for_each(stop);
    cluster.up().unwrap();
    let mut open = Vec::new();
    look_for_open(&state(&cluster, ""), &mut open);
    assert_eq!(open, Vec::<String>::new());
}

/// Names what of the state of daemons others may read.
fn look_for_open(directory: &Path, open: &mut Vec<String>) {
    for entry in fs::read_dir(directory).unwrap().flatten() {
        let metadata = entry.metadata().unwrap();
        if metadata.permissions().mode() & 0o077 != 0 {
            open.push(format!("{} {:o}", entry.path().display(), metadata.mode()));
        }
        if metadata.is_dir() {
            look_for_open(&entry.path(), open);
        }
    }
}
