//! Connections and descriptors: a mount has few of them, gives them back, and goes on where there are fewer than
//! it would like.

use super::{bytes, plan, start};
use skep_rig::{Cluster, Daemon, until};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

/// Programs that work at once.
const PROGRAMS: u32 = 64;
/// Everything is written and read within this time, on a slow machine too; a mount that hangs takes its `retry`.
const SOON: Duration = Duration::from_secs(50);
/// Idle connections are given back within this time.
const GIVEN_BACK: Duration = Duration::from_secs(60);
/// Connections that others have to a storage server: metadata servers, and one of the mount that stays in use.
const OTHERS: usize = 4;

/// Writes a file of each program, all at once, and reads them back.
fn work(dir: &Path) {
    let began = Instant::now();
    thread::scope(|scope| {
        for program in 0..PROGRAMS {
            scope.spawn(move || {
                let path = dir.join(format!("of{program}"));
                let content = bytes(program, 1 << 20);
                std::fs::write(&path, &content).unwrap();
                assert!(std::fs::read(&path).unwrap() == content, "{}", path.display());
            });
        }
    });
    assert!(began.elapsed() < SOON, "it took {:?}", began.elapsed());
}

/// Threads of a storage server that serve a connection each.
fn connections(storaged: &Daemon) -> usize {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", storaged.pid)).unwrap().flatten();
    let name =
        |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("comm")).unwrap_or_default();
    tasks.filter(|task| task.path().exists()).map(name).filter(|name| name.trim() == "connection").count()
}

fn storage(cluster: &Cluster) -> Vec<Daemon> {
    cluster.of("storaged")
}

/// Goal: 64 programs on one mount finish although a storage server takes only 24 connections.
#[test]
fn a_storage_server_with_few_connections() {
    let cluster = start(plan().with("SKEP_STORAGED_MAX_CONNECTIONS", "24"));
    work(cluster.mount());
    // One that is just being refused has a thread as well.
    let within = || {
        let now: Vec<usize> = storage(&cluster).iter().map(connections).collect();
        if now.iter().all(|count| *count <= 24) { Ok(()) } else { Err(format!("{now:?} connections")) }
    };
    until("the limit is kept", GIVEN_BACK, within).unwrap();
}

/// Goal: 64 programs on each of two mounts finish although the metadata server takes only three connections, fewer than the
/// mounts have threads: they take turns.
#[test]
fn a_metadata_server_with_few_connections() {
    let cluster = start(plan().with("SKEP_METAD_MAX_CONNECTIONS", "3"));
    let other = cluster.second_mount("mnt1", &[]).unwrap().join("other");
    std::fs::create_dir(&other).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| work(cluster.mount()));
        scope.spawn(|| work(&other));
    });
}

/// Sockets of a metadata server.
fn sockets(metad: &Daemon) -> usize {
    let open = std::fs::read_dir(format!("/proc/{}/fd", metad.pid)).unwrap().flatten();
    let target = |file: std::fs::DirEntry| std::fs::read_link(file.path()).unwrap_or_default();
    open.map(target).filter(|target| target.to_string_lossy().starts_with("socket:")).count()
}

/// Goal: a mount has no more connections to a server than `tune` and `plan` say, however many programs
/// work on it, and gives those to storage servers back when they do not.
#[test]
fn connections_are_counted_as_they_are() {
    let cluster = start(plan());
    let most = skep_tune::STORAGE_CONNECTIONS_PER_CLIENT as usize;
    assert_eq!(most as u64, skep_plan::forward::CONNECTIONS_PER_CLIENT);
    let most_meta = skep_tune::META_CONNECTIONS_PER_CLIENT as usize;
    assert_eq!(most_meta as u64, skep_plan::forward::META_CONNECTIONS_PER_CLIENT);
    let metad = cluster.one("metad").unwrap();
    let idle = sockets(&metad);
    let (peak, meta) = thread::scope(|scope| {
        let work = scope.spawn(|| work(cluster.mount()));
        let (mut peak, mut meta) = (0, 0);
        while !work.is_finished() {
            peak = storage(&cluster).iter().map(connections).max().unwrap_or(0).max(peak);
            meta = sockets(&metad).saturating_sub(idle).max(meta);
            thread::sleep(Duration::from_millis(5));
        }
        work.join().unwrap();
        (peak, meta)
    });
    assert!((2..=most + OTHERS).contains(&peak), "{peak} connections");
    assert!((1..=most_meta + OTHERS).contains(&meta), "{meta} connections to metad");
    let few = || {
        let left: Vec<usize> = storage(&cluster).iter().map(connections).collect();
        if left.iter().all(|count| *count <= OTHERS) { Ok(()) } else { Err(format!("{left:?} connections")) }
    };
    until("idle connections are given back", GIVEN_BACK, few).unwrap();
}

/// Goal: 60 programs on a mount that may have 96 descriptors, on either transport, finish without an error, and the
/// mount says what it lacks.
#[test]
fn a_mount_with_few_descriptors() {
    let cluster = start(plan());
    for transport in ["dev", "auto"] {
        let point = cluster.beside(&format!("few-{transport}"));
        std::fs::create_dir_all(&point).unwrap();
        let option = format!("transport={transport}");
        let skep = cluster.command(cluster.mount_words(&point, &[&option]));
        let mut limited = Command::new("prlimit");
        limited.arg("--nofile=96:96").arg(skep.get_program()).args(skep.get_args());
        limited.envs(skep.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let output = limited.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let daemon = cluster.mount_daemon(&point).unwrap();
        let dir = point.join(transport);
        std::fs::create_dir(&dir).unwrap();
        work(&dir);
        let open = std::fs::read_dir(format!("/proc/{}/fd", daemon.pid)).unwrap().count();
        assert!(open <= 96, "{transport}: {open} descriptors");
        let said = cluster.logs().into_iter().any(|(_, text)| text.contains("the limit of open files is 96"))
            || logs_beside(&cluster).contains("the limit of open files is 96");
        assert!(said, "nothing is said about the limit");
        cluster.must(["umount".as_ref(), point.as_os_str()]).unwrap();
    }
}

/// What mounts that were started by hand have written.
fn logs_beside(cluster: &Cluster) -> String {
    let run = cluster.dir().join("run");
    let files = std::fs::read_dir(&run).map(|files| files.flatten().collect::<Vec<_>>()).unwrap_or_default();
    let logs = files.into_iter().filter(|file| file.path().extension().is_some_and(|ending| ending == "log"));
    logs.map(|file| std::fs::read_to_string(file.path()).unwrap_or_default()).collect()
}
