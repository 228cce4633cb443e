//! kill -9 of everything, one after the other, under a program that just goes on.

use super::{Running, bytes, plan, start};
use rustix::io::Errno;
use skep_rig::until;
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Rounds that a program must do after a daemon came back.
const ROUNDS: u32 = 3;
/// Longest time for them.
const LIMIT: Duration = Duration::from_secs(180);

/// One round of a program: every call must succeed.
fn work(directory: &Path, round: u32) {
    let (small, large) = (bytes(round, 300), bytes(round, 2_500_000));
    let path = |name: &str| directory.join(format!("{name}-{}", round % 7));
    fs::write(path("small"), &small).unwrap();
    fs::write(path("large"), &large).unwrap();
    fs::rename(path("small"), path("renamed")).unwrap();
    let file = File::open(path("large")).unwrap();
    file.sync_all().unwrap();
    assert_eq!(fs::read(path("renamed")).unwrap(), small);
    assert!(fs::read(path("large")).unwrap() == large, "round {round}");
    fs::create_dir(path("dir")).unwrap();
    assert!(fs::read_dir(directory).unwrap().count() >= 3);
    fs::remove_dir(path("dir")).unwrap();
    fs::remove_file(path("large")).unwrap();
}

/// Kills a process of `service` under a working program and brings it back.
fn goes_on(service: &str) {
    let cluster = start(plan());
    let (rounds, done) = (AtomicU32::new(0), AtomicBool::new(false));
    let at_least = |goal: u32| {
        until("the program goes on", LIMIT, || {
            let now = rounds.load(Ordering::SeqCst);
            if now >= goal { Ok(()) } else { Err(format!("round {now} of {goal}")) }
        })
    };
    std::thread::scope(|scope| {
        let program = scope.spawn(|| {
            while !done.load(Ordering::SeqCst) {
                work(cluster.mount(), rounds.load(Ordering::SeqCst));
                rounds.fetch_add(1, Ordering::SeqCst);
            }
        });
        let test = || -> Result<(), String> {
            at_least(1)?;
            for victim in cluster.of(service) {
                victim.kill()?;
                cluster.up()?;
                at_least(rounds.load(Ordering::SeqCst) + ROUNDS)?;
            }
            Ok(())
        };
        let result = test();
        done.store(true, Ordering::SeqCst);
        let program = program.join();
        assert!(program.is_ok(), "the program met an error");
        result.unwrap();
    });
    work(cluster.mount(), u32::MAX - 1);
}

/// Goal: a program does not notice that the management service is killed and comes back.
#[test]
fn a_killed_mgmtd_is_not_noticed() {
    goes_on("mgmtd");
}

/// Goal: a program waits while the metadata server is away, and goes on.
#[test]
fn a_killed_metad_is_waited_for() {
    goes_on("metad");
}

/// Goal: a program waits while each storage server is away, and goes on.
#[test]
fn a_killed_storaged_is_waited_for() {
    goes_on("storaged");
}

/// Goal: everything is killed at once; what was acknowledged is there when all came back.
#[test]
fn all_servers_killed_at_once() {
    let cluster = start(plan());
    let contents: Vec<Vec<u8>> = (0..20).map(|number| bytes(number, 1 << (number % 20))).collect();
    for (number, content) in contents.iter().enumerate() {
        fs::write(cluster.mount().join(format!("f{number}")), content).unwrap();
    }
    for daemon in cluster.daemons().into_iter().filter(|daemon| daemon.service != "mount") {
        daemon.kill().unwrap();
    }
    cluster.up().unwrap();
    for (number, content) in contents.iter().enumerate() {
        assert!(fs::read(cluster.mount().join(format!("f{number}"))).unwrap() == *content, "f{number}");
    }
}

fn fsynced(cluster: &Running, mount: &Path) -> Vec<u8> {
    let content = bytes(9, 5_000_000);
    let mut file = File::create(mount.join("fsynced")).unwrap();
    file.write_all(&content).unwrap();
    file.sync_all().unwrap();
    // Never closed: its process goes away first.
    let daemon = cluster.mount_daemon(mount).unwrap();
    daemon.kill().unwrap();
    // The kernel ends a ring somewhat later than its process: what is asked between is cut off with the connection.
    let ended = |error: std::io::Error| match Errno::from_io_error(&error) {
        Some(Errno::NOTCONN) => true,
        // ECANCELED: the kernel was handing it to the dying thread.
        Some(Errno::CONNABORTED | Errno::CANCELED) => false,
        _ => panic!("{error}"),
    };
    let until = Instant::now() + Duration::from_secs(120);
    while !ended(file.write(b"more").unwrap_err()) || !ended(fs::metadata(mount).unwrap_err()) {
        assert!(Instant::now() < until, "programs are not told that the mount has gone");
    }
    content
}

/// Goal: a killed mount: programs get ENOTCONN, another mount does not notice, `skep up` replaces it,
/// what was fsynced is there.
#[test]
fn a_killed_mount_is_replaced() {
    let cluster = start(plan());
    let second = cluster.second_mount("mnt1", &[]).unwrap();
    let content = fsynced(&cluster, cluster.mount());
    assert!(fs::read(second.join("fsynced")).unwrap() == content);
    cluster.up().unwrap();
    assert!(fs::read(cluster.mount().join("fsynced")).unwrap() == content);
    // And the other way, by `skep mount` over the dead mount.
    fs::remove_file(second.join("fsynced")).unwrap();
    let content = fsynced(&cluster, &second);
    cluster.mount_again(&second).unwrap();
    assert!(fs::read(second.join("fsynced")).unwrap() == content);
    let missing = fs::metadata(cluster.mount().join("absent")).unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NotFound);
}

/// Do these processes have memory mapped that a mount and a storage server share?
fn share_memory(pids: &[u32]) -> Result<(), String> {
    let shares = |pid: &u32| {
        fs::read_to_string(format!("/proc/{pid}/maps"))
            .is_ok_and(|maps| maps.contains("/memfd:skep-payloads"))
    };
    match pids.iter().find(|pid| !shares(pid)) {
        Some(pid) => Err(format!("process {pid} shares no memory")),
        None => Ok(()),
    }
}

/// One round of a program whose payloads go by shared memory: files of its own, each round other bytes in two thirds of it.
fn long_payloads(path: &Path, round: u32, held: &mut Vec<u8>) {
    const MIB: usize = 1 << 20;
    let file = File::options().read(true).write(true).create(true).truncate(false).open(path).unwrap();
    for (piece, at) in [0, 2 * MIB + 77].into_iter().enumerate() {
        let new = bytes(2 * round + piece as u32, MIB);
        file.write_all_at(&new, at as u64).unwrap();
        held[at..at + MIB].copy_from_slice(&new);
    }
    if round.is_multiple_of(4) {
        file.sync_all().unwrap();
    }
    let mut found = vec![0; held.len()];
    file.read_exact_at(&mut found, 0).unwrap();
    assert!(found == *held, "round {round}");
}

/// Goal: what goes by memory that a mount shares with storage servers is right on both transports, with readers and writers
/// at once, while these servers are killed and come back; the new connections share memory again.
#[test]
fn shared_memory_over_killed_servers() {
    const PROGRAMS: u32 = 4;
    let cluster = start(plan());
    for transport in ["dev", "auto"] {
        let point = cluster.second_mount(transport, &[&format!("transport={transport}")]).unwrap();
        let mount = cluster.mount_daemon(&point).unwrap().pid;
        // Every file on every server.
        let directory = point.join(transport);
        fs::create_dir(&directory).unwrap();
        let path = directory.to_str().unwrap();
        cluster.admin(["entry", "set", path, "--chunk-size", "1MiB", "--targets", "4"]).unwrap();
        let (rounds, done) = (AtomicU32::new(0), AtomicBool::new(false));
        let goes_on = || {
            let goal = rounds.load(Ordering::SeqCst) + PROGRAMS * ROUNDS;
            until("the programs go on", LIMIT, || {
                let now = rounds.load(Ordering::SeqCst);
                if now >= goal { Ok(()) } else { Err(format!("round {now} of {goal}")) }
            })?;
            let mut pids: Vec<u32> = cluster.of("storaged").iter().map(|server| server.pid).collect();
            pids.push(mount);
            until("memory is shared", LIMIT, || share_memory(&pids))
        };
        std::thread::scope(|scope| {
            let programs: Vec<_> = (0..PROGRAMS)
                .map(|program| {
                    let path = directory.join(program.to_string());
                    let (rounds, done) = (&rounds, &done);
                    scope.spawn(move || {
                        let mut held = vec![0; (3 << 20) + 77];
                        fs::write(&path, &held).unwrap();
                        for round in 0.. {
                            if done.load(Ordering::SeqCst) {
                                break;
                            }
                            long_payloads(&path, program << 24 | round, &mut held);
                            rounds.fetch_add(1, Ordering::SeqCst);
                        }
                    })
                })
                .collect();
            let test = || -> Result<(), String> {
                goes_on()?;
                for victim in cluster.of("storaged") {
                    victim.kill()?;
                    cluster.up()?;
                    goes_on()?;
                }
                Ok(())
            };
            let result = test();
            done.store(true, Ordering::SeqCst);
            let all_well =
                programs.into_iter().map(|program| program.join().is_ok()).fold(true, |all, one| all & one);
            assert!(all_well, "a program met an error");
            result.unwrap();
        });
        cluster.must(["umount".as_ref(), point.as_os_str()]).unwrap();
    }
}
