//! A daemon that stays away: bounded waits, and a mount that can be taken away.

use super::{bytes, plan, start};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::Signal;
use skep_rig::{PATIENCE, is_mounted, patiently};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// What the mounts of these tests are told to wait.
const RETRY: Duration = Duration::from_secs(3);
/// What may come on top: back-off, and several calls of one operation.
const SLACK: Duration = Duration::from_secs(9);

/// What a command may take: its `--timeout`, and what a busy machine adds.
const ANSWER_MAX: Duration = Duration::from_secs(12);

/// The error of `call`, which must come within the bound.
fn gives_up<T>(what: &str, call: impl FnOnce() -> io::Result<T>) {
    let begun = Instant::now();
    let Err(error) = call() else { panic!("{what} succeeded without its daemon") };
    assert_eq!(Errno::from_io_error(&error), Some(Errno::IO), "{what}: {error}");
    assert!(begun.elapsed() < RETRY + SLACK, "{what} took {:?}", begun.elapsed());
    assert!(begun.elapsed() > RETRY / 2, "{what} gave up after {:?}", begun.elapsed());
}

/// Goal: without storage servers data fails with EIO after the retry time, names go on; when they are
/// back, everything works again.
#[test]
fn storage_that_stays_away() {
    let cluster = start(plan().with("SKEP_MOUNT_RETRY", "3s"));
    let mount = cluster.mount();
    fs::write(mount.join("large"), bytes(1, 4 << 20)).unwrap();
    let file = fs::OpenOptions::new().read(true).write(true).open(mount.join("large")).unwrap();
    for storaged in cluster.of("storaged") {
        storaged.kill().unwrap();
    }
    gives_up("read", || file.read_at(&mut [0; 10], 1 << 20));
    gives_up("write", || file.write_at(b"x", 2 << 20));
    fs::write(mount.join("small"), b"inline").unwrap();
    assert_eq!(fs::read(mount.join("small")).unwrap(), b"inline");
    drop(file);
    cluster.up().unwrap();
    assert!(fs::read(mount.join("large")).unwrap() == bytes(1, 4 << 20));
    fs::write(mount.join("large"), bytes(2, 4 << 20)).unwrap();
    assert!(fs::read(mount.join("large")).unwrap() == bytes(2, 4 << 20));
}

/// Goal: without the metadata server names fail with EIO after the retry time, and umount works.
#[test]
fn metadata_that_stays_away() {
    let cluster = start(plan().with("SKEP_MOUNT_RETRY", "3s"));
    let second = cluster.second_mount("mnt1", &[]).unwrap();
    fs::write(cluster.mount().join("f"), b"1").unwrap();
    cluster.one("metad").unwrap().kill().unwrap();
    gives_up("stat", || fs::metadata(cluster.mount().join("f")));
    gives_up("create", || File::create(cluster.mount().join("g")));
    let begun = Instant::now();
    let daemon = cluster.mount_daemon(&second).unwrap();
    unmount(&second, UnmountFlags::empty()).unwrap();
    // Its end is written down by mgmtd, on a disk that may be busy; without the limit it would try for 10 minutes.
    daemon.wait_gone(PATIENCE).unwrap();
    assert!(begun.elapsed() < PATIENCE, "umount took {:?}", begun.elapsed());
    cluster.up().unwrap();
    assert_eq!(fs::read(cluster.mount().join("f")).unwrap(), b"1");
    // A create that got EIO happened wholly or not at all.
    assert!(matches!(fs::read(cluster.mount().join("g")).as_deref(), Ok([]) | Err(_)));
}

/// What a question of these tests names as its time, and what a busy machine adds to it.
const TIMEOUT: &str = "2s";
const ASKED_MAX: Duration = Duration::from_secs(3);

/// Goal: with any process stopped (a server, the mount, another one's mount) what people type answers in the time that they
/// give it, and what does not answer is named. (Over io_uring the kernel counts a request as being worked on although a stopped
/// process has not seen it: who waits for it cannot even be killed.)
#[test]
fn commands_name_what_is_silent_in_time() {
    let cluster = start(plan());
    let second = cluster.second_mount("mnt1", &[]).unwrap();
    let (mount, dir) = (cluster.mount().to_owned(), cluster.dir());
    let path = mount.join("f");
    fs::write(&path, bytes(1, 1 << 20)).unwrap();
    let (path, dir) = (path.to_str().unwrap(), dir.to_str().unwrap());
    let file = format!("{dir}/cluster.toml");
    let timeout = ["--timeout", TIMEOUT];
    let questions: [Vec<&str>; 5] = [
        [&["health", path][..], &timeout].concat(),
        [&["health", "--cluster", &file][..], &timeout].concat(),
        [&["status", "--dir", dir][..], &timeout].concat(),
        [&["df", path][..], &timeout].concat(),
        [&["entry", "info", path][..], &timeout].concat(),
    ];
    let (points, within) = ((mount.to_str().unwrap(), second.to_str().unwrap()), "no answer within ");
    let (no_answer, silent, no_paths) = (
        "the file system there did not answer within 2 s",
        "does not answer",
        "no chunk paths of its targets",
    );
    let mount_of = |point: &Path| vec![cluster.mount_daemon(point).unwrap()];
    let storage = ["storaged-1", "storaged-2"];
    // Who is stopped, what each of the questions must say, and whether it succeeds all the same.
    type Said<'a> = (&'a [&'a str], bool);
    let cases: [(Vec<skep_rig::Daemon>, [Said<'_>; 4]); 5] = [
        (cluster.of("mgmtd"), [(&["mgmtd"], false); 4]),
        (
            cluster.of("metad"),
            [(&["metad-1"], false), (&[], true), (&[no_answer], false), (&[no_answer], false)],
        ),
        (cluster.of("storaged"), [(&storage, false), (&[], true), (&[], true), (&[no_paths], true)]),
        (
            mount_of(&mount),
            [(&[points.0, within], false), (&[silent], true), (&[no_answer], false), (&[no_answer], false)],
        ),
        (mount_of(&second), [(&[points.1, within], false), (&[], true), (&[], true), (&[], true)]),
    ];
    for (daemons, expected) in cases {
        daemons.iter().for_each(|daemon| daemon.signal(Signal::STOP).unwrap());
        // Health says the same whichever way the cluster is named.
        for (words, (parts, succeeds)) in questions.iter().zip(expected[..1].iter().chain(&expected)) {
            let begun = Instant::now();
            let output = cluster.command(words).output().unwrap();
            let took = begun.elapsed();
            let said = [output.stdout, output.stderr].concat();
            let said = String::from_utf8_lossy(&said);
            let what = &daemons[0].service;
            assert!(took < ASKED_MAX, "{what} stopped: skep {words:?} took {took:?}: {said}");
            assert!(parts.iter().all(|part| said.contains(part)), "{what} stopped: skep {words:?}: {said}");
            assert_eq!(output.status.success(), *succeeds, "{what} stopped: skep {words:?}: {said}");
            // What goes on is not called silent: only the space of the whole is asked of mgmtd.
            assert!(
                what != "mgmtd" || !said.contains("ERROR    mount"),
                "{what} stopped: skep {words:?}: {said}"
            );
        }
        daemons.iter().for_each(|daemon| daemon.signal(Signal::CONT).unwrap());
    }
}

/// Goal: what people type when programs hang answers in time, whatever is away, and says what the mount waits for.
#[test]
fn commands_answer_while_servers_are_away() {
    let cluster = start(plan());
    let path = cluster.mount().join("f");
    fs::write(&path, b"1").unwrap();
    let dir = cluster.dir();
    let ask = |words: &[&str]| {
        let begun = Instant::now();
        let output = cluster.command(words).output().unwrap();
        assert!(begun.elapsed() < ANSWER_MAX, "skep {words:?} took {:?}", begun.elapsed());
        let [out, err] =
            [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
        (output.status.success(), out + &err)
    };
    let (dir, path, file) = (dir.to_str().unwrap(), path.to_str().unwrap(), dir.join("cluster.toml"));
    let health = ["health", "--cluster", file.to_str().unwrap()];
    let questions: [&[&str]; 4] =
        [&health, &["status", "--dir", dir], &["df", path], &["entry", "info", path]];
    for stopped in [true, false] {
        let metad = cluster.one("metad").unwrap();
        if stopped {
            metad.signal(Signal::STOP).unwrap()
        } else {
            metad.kill().unwrap()
        }
        for words in questions {
            let (succeeded, said) = ask(words);
            // What asks the file system says that it is silent; health and status know more.
            assert_eq!(succeeded, stopped && words[0] == "status", "skep {words:?}: {said}");
        }
        if stopped {
            metad.signal(Signal::CONT).unwrap();
        }
    }
    let waiter = std::thread::spawn({
        let path = path.to_owned();
        move || fs::metadata(path)
    });
    let waits = || ask(&["status", "--dir", dir]).1.contains("waits for metad-1 since");
    skep_rig::patiently("status says what the mount waits for", waits).unwrap();
    let (_, said) = ask(&health);
    assert!(said.contains("waits for metad-1 since"), "{said}");
    cluster.up().unwrap();
    waiter.join().unwrap().unwrap();
    let (_, said) = ask(&["status", "--dir", dir]);
    assert!(!said.contains("waits for"), "{said}");
}

/// Runs `umount` with these words on a mount in which a program waits without end.
fn unmount_under_a_waiter(words: &[&str], lazily: bool) {
    let cluster = start(plan());
    let mount = cluster.mount().to_owned();
    fs::write(mount.join("f"), b"1").unwrap();
    let daemon = cluster.mount_daemon(&mount).unwrap();
    cluster.one("metad").unwrap().kill().unwrap();
    let path = mount.join("f");
    let waiter = std::thread::spawn(move || fs::metadata(path));
    skep_rig::patiently("the program waits", || waiting_in_fuse(&waiter)).unwrap();
    let begun = Instant::now();
    let status = std::process::Command::new("umount").args(words).arg(&mount).status().unwrap();
    assert!(status.success() || !lazily, "umount {words:?}: {status}");
    assert!(begun.elapsed() < PATIENCE);
    if !lazily {
        // The force aborted what waited; nobody is in the way of a plain umount any more.
        assert!(waiter.join().unwrap().is_err(), "the waiting program gets an error");
        if is_mounted(&mount) {
            unmount(&mount, UnmountFlags::empty()).unwrap();
        }
    }
    assert!(!is_mounted(Path::new(&mount)));
    daemon.kill().or_else(|e| if daemon.is_alive() { Err(e) } else { Ok(()) }).unwrap();
}

/// Does the kernel say that some thread of this process waits for an answer of FUSE?
pub fn waiting_in_fuse<T>(waiter: &std::thread::JoinHandle<T>) -> bool {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    let stacks = tasks.flatten().filter_map(|task| fs::read_to_string(task.path().join("wchan")).ok());
    !waiter.is_finished()
        && stacks.into_iter().any(|wchan| wchan.contains("fuse") || wchan.contains("request_wait"))
}

/// Goal: `umount -f` aborts what waits for a daemon that stays away (10 minutes by default), and the
/// mount goes.
#[test]
fn umount_by_force_ends_the_wait() {
    unmount_under_a_waiter(&["-f", "-i"], false);
}

/// Goal: `umount -l` takes the mount away at once, whoever waits in it.
#[test]
fn umount_lazily_works_at_once() {
    unmount_under_a_waiter(&["-l", "-i"], true);
}

/// Goal: `skep down` leaves the mount the time to have synced what was written, or to name it.
#[test]
fn down_waits_for_the_last_sync() {
    for _ in 0..5 {
        let cluster = start(plan());
        let said = || cluster.logs().iter().any(|(_, text)| text.contains("(files not synced: 1, inodes "));
        let mount = cluster.mount_daemon(cluster.mount()).unwrap();
        let servers = cluster.of("storaged");
        fs::write(cluster.mount().join("file"), bytes(1, 3 << 20)).unwrap();
        servers.iter().for_each(|server| server.signal(Signal::STOP).unwrap());
        let named = std::thread::scope(|scope| {
            let down = scope.spawn(|| cluster.down());
            patiently("the mount has ended", || !mount.is_alive()).unwrap();
            servers.iter().for_each(|server| server.signal(Signal::CONT).unwrap());
            down.join().unwrap().unwrap();
            said()
        });
        // On a slow machine what was closed may be synced before the servers hang.
        if named {
            return;
        }
    }
    panic!("no mount could say what was not synced");
}

/// Goal: an unmount waits for some seconds for storage servers that hang, ends then, and says that what was written is not
/// synced.
#[test]
fn an_unmount_waits_for_no_hung_server() {
    let cluster = start(plan());
    let servers = cluster.of("storaged");
    let send = |signal| servers.iter().for_each(|server| server.signal(signal).unwrap());
    let said = || cluster.logs().iter().any(|(_, text)| text.contains("(files not synced: 1, inodes "));
    // On a slow machine what was closed may be synced before the servers hang.
    for attempt in 0..5 {
        let point = cluster.second_mount(&format!("mount-{attempt}"), &[]).unwrap();
        let daemon = cluster.mount_daemon(&point).unwrap();
        fs::write(point.join(format!("file-{attempt}")), bytes(1, 3 << 20)).unwrap();
        send(Signal::STOP);
        let begun = Instant::now();
        unmount(&point, UnmountFlags::empty()).unwrap();
        daemon.wait_gone(PATIENCE).unwrap();
        let took = begun.elapsed();
        send(Signal::CONT);
        assert!(took < Duration::from_secs(25), "{took:?}");
        if said() {
            assert!(took > Duration::from_secs(5), "{took:?}");
            return;
        }
    }
    panic!("no mount was told of a server that hung");
}
