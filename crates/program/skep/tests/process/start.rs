//! `skep up`, `status`, `down`.

use super::{bytes, plan, start};
use skep_rig::{Daemon, is_mounted};
use std::fs;
use std::io::Write;
use std::path::Path;

fn pids(daemons: &[Daemon]) -> Vec<u32> {
    daemons.iter().map(|daemon| daemon.pid).collect()
}

/// Goal: up starts every service and mounts, a second up changes nothing, down leaves no process and no
/// mount; all of it a second time, with the files of the first.
#[test]
fn up_status_down_twice() {
    let cluster = start(plan());
    let services: Vec<String> = cluster.daemons().into_iter().map(|daemon| daemon.service).collect();
    assert_eq!(services, ["metad", "mgmtd", "mount", "storaged", "storaged"]);
    let content = bytes(1, 3_000_000);
    fs::write(cluster.mount().join("kept"), &content).unwrap();
    for round in 0..2 {
        let before = pids(&cluster.daemons());
        cluster.up().unwrap();
        assert_eq!(pids(&cluster.daemons()), before, "a second up must not start anything");
        let status = cluster.must(["status", "--dir", cluster.dir().to_str().unwrap()]).unwrap();
        for service in ["mgmtd", "metad", "storaged"] {
            assert!(status.contains(service), "round {round}: {status}");
        }
        assert_eq!(fs::read(cluster.mount().join("kept")).unwrap(), content);
        cluster.down().unwrap();
        assert_eq!(cluster.daemons(), [], "down leaves nobody running");
        assert!(!is_mounted(cluster.mount()));
        // Of something that is down already.
        cluster.down().unwrap();
        cluster.up().unwrap();
    }
    assert_eq!(fs::read(cluster.mount().join("kept")).unwrap(), content);
}

/// Goal: down ends everything although a program has a file open on the mount, and says so.
#[test]
fn down_while_a_program_works() {
    let cluster = start(plan());
    let file = fs::File::create(cluster.mount().join("open")).unwrap();
    cluster.down().unwrap();
    assert_eq!(cluster.daemons(), []);
    assert!(!is_mounted(cluster.mount()));
    drop(file);
}

/// Goal: who asks for more targets of a cluster that is there is told how they are added, and that works word for word.
#[test]
fn targets_are_added() {
    let cluster = start(plan());
    let dir = cluster.dir();
    let more = dir.join("targets/5");
    let said = cluster
        .run(["up".as_ref(), "--dir".as_ref(), dir.as_os_str(), "--targets".as_ref(), "5".as_ref()])
        .unwrap();
    assert!(!said.status.success());
    let said = String::from_utf8(said.stderr).unwrap();
    let config = dir.join("etc/storaged-1.toml");
    assert!(said.contains(config.to_str().unwrap()), "{said}");
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, text.replace("targets = [", &format!("targets = [\"{}\", ", more.display()))).unwrap();
    fs::create_dir(&more).unwrap();
    for command in said.lines().filter_map(|line| line.strip_prefix("  ")) {
        let done = std::process::Command::new("sh").args(["-c", command]).output().unwrap();
        assert!(done.status.success(), "{command}: {done:?}");
    }
    let targets = cluster.admin(["target", "list", "-O", "ndjson"]).unwrap();
    assert_eq!(targets.lines().filter(|line| line.contains("\"online\"")).count(), 5, "{targets}");
}

/// Goal: `skep up` takes no place from a mount that is used, neither its own cluster's nor another one's: what programs
/// write would land in a directory below, or in the wrong cluster. And it makes no new key for a cluster that has one.
#[test]
fn a_place_in_use_is_not_taken() {
    let one = start(plan());
    let two = one.beside("two");
    let up = |dir: &Path, mount: &Path| {
        let words = ["up".as_ref(), "--dir".as_ref(), dir.as_os_str(), "--mount".as_ref(), mount.as_os_str()];
        let said = one.run(words).unwrap();
        (said.status.success(), String::from_utf8(said.stderr).unwrap())
    };
    let mut file = fs::File::create(one.mount().join("log")).unwrap();
    let elsewhere = one.beside("elsewhere");
    let (ok, said) = up(&one.dir(), &elsewhere);
    assert!(!ok && said.contains("programs are in it"), "{said}");
    let (ok, said) = up(&two, one.mount());
    assert!(!ok && said.contains("another cluster") && said.contains("skep umount"), "{said}");
    let full = one.beside("full");
    fs::create_dir(&full).unwrap();
    fs::write(full.join("x"), "").unwrap();
    let (ok, said) = up(&one.dir(), &full);
    assert!(!ok && said.contains("not empty") && is_mounted(one.mount()), "{said}");
    let inside = one.mount().join("inside");
    let (ok, said) = up(&one.dir(), &inside);
    assert!(!ok && said.contains("where this cluster is mounted") && is_mounted(one.mount()), "{said}");
    assert!(!inside.exists());
    file.write_all(b"still here").unwrap();
    drop(file);
    assert_eq!(fs::read(one.mount().join("log")).unwrap(), b"still here");
    let (ok, said) = up(&one.dir(), &elsewhere);
    assert!(ok && !is_mounted(one.mount()), "{said}");
    assert_eq!(fs::read(elsewhere.join("log")).unwrap(), b"still here");
    // By a link it is the same place, and who is in it stays there.
    let link = one.beside("link");
    std::os::unix::fs::symlink(&elsewhere, &link).unwrap();
    let file = fs::File::open(elsewhere.join("log")).unwrap();
    let (ok, said) = up(&one.dir(), &link);
    assert!(ok && is_mounted(&elsewhere), "{said}");
    assert!(file.metadata().is_ok());
    drop(file);
    one.down().unwrap();
    let key = one.dir().join("cluster.key");
    fs::rename(&key, one.beside("key")).unwrap();
    let (ok, said) = up(&one.dir(), &elsewhere);
    assert!(!ok && said.contains("key of this cluster is missing") && !key.exists(), "{said}");
    fs::rename(one.beside("key"), &key).unwrap();
    let (ok, said) = up(&one.dir(), one.mount());
    assert!(ok, "{said}");
    assert_eq!(fs::read(one.mount().join("log")).unwrap(), b"still here");
}

/// Goal: a mount that somebody made by hand is not taken away from the programs in it.
#[test]
fn a_mount_made_by_hand_stays() {
    let cluster = start(plan());
    let point = cluster.mount();
    cluster.must(["umount".as_ref(), point.as_os_str()]).unwrap();
    cluster.mount_again(point).unwrap();
    let mut file = fs::File::create(point.join("log")).unwrap();
    let dir = cluster.dir();
    let said = cluster.run(["up".as_ref(), "--dir".as_ref(), dir.as_os_str()]).unwrap();
    let text = String::from_utf8(said.stderr).unwrap();
    assert!(!said.status.success() && text.contains("did not start"), "{text}");
    file.write_all(b"still here").unwrap();
    drop(file);
    assert_eq!(fs::read(point.join("log")).unwrap(), b"still here");
    cluster.must(["umount".as_ref(), point.as_os_str()]).unwrap();
    cluster.must(["up".as_ref(), "--dir".as_ref(), dir.as_os_str()]).unwrap();
    assert_eq!(fs::read(point.join("log")).unwrap(), b"still here");
}

/// Goal: down never ends a process that only has the number of a daemon that died.
#[test]
fn a_foreign_process_is_left_alone() {
    let cluster = start(plan());
    let victim = cluster.of("storaged").remove(0);
    victim.kill().unwrap();
    let mut foreign = std::process::Command::new("sleep").arg("600").spawn().unwrap();
    let mut lied = 0;
    for entry in fs::read_dir(cluster.dir().join("run")).unwrap().flatten() {
        let Ok(text) = fs::read_to_string(entry.path()) else { continue };
        let first = text.split_whitespace().next().unwrap_or_default();
        if first == victim.pid.to_string() {
            fs::write(entry.path(), text.replacen(first, &foreign.id().to_string(), 1)).unwrap();
            lied += 1;
        }
    }
    assert_eq!(lied, 2, "its pid file and the file beside it name the daemon");
    cluster.down().unwrap();
    assert_eq!(foreign.try_wait().unwrap(), None, "the foreign process still runs");
    foreign.kill().unwrap();
    foreign.wait().unwrap();
}
