//! What is refused at start, and what is said.

use super::{plan, refusal, start};
use skep_rig::{Cluster, PATIENCE, is_mounted, until};
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// Starts a storage server by hand on `targets`, expecting it to refuse; what it said.
fn refused_target(cluster: &Cluster, target: &Path, more: &[&str]) -> String {
    let key = format!("key_file={}", cluster.dir().join("cluster.key").display());
    let mgmtd = format!("mgmtd={}", cluster.one("mgmtd").unwrap().tcp_listeners()[0]);
    let state = format!("state_dir={}", cluster.beside("state").display());
    let targets = format!("targets={}", target.display());
    let mut words = vec!["storaged"];
    for set in [&key, &mgmtd, &state, &targets] {
        words.extend(["--set", set]);
    }
    words.extend(["--set", "listen=127.0.0.1:0"]);
    words.extend(more);
    refusal(cluster, &words)
}

/// Goal: a missing, empty, foreign or busy target directory is refused at start, with a text that names
/// the directory and what to do; nothing is written to it.
#[test]
fn wrong_target_directories_are_refused() {
    let cluster = start(plan());
    let missing = cluster.beside("missing");
    let said = refused_target(&cluster, &missing, &[]);
    assert!(said.contains("missing") && said.contains("is the disk mounted"), "{said}");
    let empty = cluster.beside("empty");
    fs::create_dir(&empty).unwrap();
    let said = refused_target(&cluster, &empty, &[]);
    assert!(said.contains("skep-target.toml") && said.contains("--init"), "{said}");
    let used = cluster.beside("used");
    fs::create_dir(&used).unwrap();
    fs::write(used.join("precious"), b"data").unwrap();
    let said = refused_target(&cluster, &used, &["--init"]);
    assert!(said.contains("not empty") && said.contains("precious"), "{said}");
    assert_eq!(fs::read(used.join("precious")).unwrap(), b"data");
    let foreign = cluster.beside("foreign");
    fs::create_dir(&foreign).unwrap();
    let identity = target_directories(&cluster).remove(0).join("skep-target.toml");
    let text = fs::read_to_string(identity).unwrap();
    let cluster_line = text.lines().find(|line| line.starts_with("cluster")).unwrap();
    let text = text.replace(cluster_line, "cluster = \"00000000-0000-4000-8000-000000000001\"");
    fs::write(foreign.join("skep-target.toml"), text).unwrap();
    let said = refused_target(&cluster, &foreign, &["--init"]);
    assert!(said.contains("belongs to cluster"), "{said}");
    let busy = target_directories(&cluster).remove(0);
    let said = refused_target(&cluster, &busy, &[]);
    assert!(said.contains("another process serves it"), "{said}");
    assert_eq!(cluster.of("storaged").len(), 2);
}

/// The directories that hold a target's identity.
fn target_directories(cluster: &Cluster) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![cluster.dir()];
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(&dir).unwrap().flatten() {
            if entry.file_name() == "skep-target.toml" {
                found.push(dir.clone());
            } else if entry.path().is_dir() && entry.file_name() != "chunks" {
                open.push(entry.path());
            }
        }
    }
    found.sort();
    found
}

/// Goal: a disk that was swapped for another target's, or is not mounted, stops its server at start;
/// with the right disk it serves again.
#[test]
fn a_swapped_disk_is_noticed() {
    let cluster = start(plan());
    fs::write(cluster.mount().join("f"), super::bytes(1, 3 << 20)).unwrap();
    for daemon in cluster.of("storaged") {
        daemon.kill().unwrap();
    }
    let target = target_directories(&cluster).remove(0);
    let aside = cluster.beside("aside");
    fs::rename(&target, &aside).unwrap();
    fs::create_dir(&target).unwrap();
    let said = cluster.up().unwrap_err();
    assert!(said.contains("skep-target.toml") || logs_contain(&cluster, "skep-target.toml"), "{said}");
    fs::remove_file(target.join("lock")).unwrap_or_default();
    fs::remove_dir(&target).unwrap();
    fs::rename(&aside, &target).unwrap();
    cluster.up().unwrap();
    assert!(fs::read(cluster.mount().join("f")).unwrap() == super::bytes(1, 3 << 20));
}

fn logs_contain(cluster: &Cluster, text: &str) -> bool {
    cluster.logs().iter().any(|(_, log)| log.contains(text))
}

/// Goal: an unknown key of a configuration file is an error with file, line and the key that was meant;
/// on the command line too.
#[test]
fn unknown_keys_suggest_the_right_one() {
    let cluster = start(plan());
    let file = cluster.beside("storaged.toml");
    for service in ["mgmtd", "metad", "storaged", "mount"] {
        fs::write(&file, "log = \"info\"\nheartbaet = \"1s\"\n").unwrap();
        if service == "mgmtd" {
            fs::write(&file, "log = \"info\"\nsesion_timeout = \"1s\"\n").unwrap();
        }
        let said = refusal(&cluster, &[service, "--config", file.to_str().unwrap()]);
        assert!(said.contains("storaged.toml:2"), "{service}: {said}");
        assert!(said.contains("`heartbeat`") || said.contains("`session_timeout`"), "{service}: {said}");
    }
    let said = refusal(&cluster, &["metad", "--set", "gracee=1s"]);
    assert!(said.contains("grace"), "{said}");
    let said = refusal(&cluster, &["metad", "--set", "grace=soon"]);
    assert!(said.contains("grace") && said.contains("30s"), "{said}");
}

/// Goal: as mount(8) calls it: argv\[0\] is mount.skep, the spec of fstab, generic options of fstab that
/// mean nothing to us; an option that nobody knows is refused by name. umount(8) ends it.
#[test]
fn mounts_as_fstab_says() {
    let cluster = start(plan());
    let mgmtd = cluster.one("mgmtd").unwrap().tcp_listeners()[0];
    let point = cluster.beside("fstab");
    fs::create_dir(&point).unwrap();
    let key = cluster.dir().join("client.key");
    let mount = |options: &str| {
        let mut command = cluster.command([format!("{mgmtd}:/").as_ref(), point.as_os_str()]);
        command.arg0("mount.skep").args(["-o", options]);
        let log = fs::File::create(cluster.beside("mount.log")).unwrap();
        command.stdout(log.try_clone().unwrap()).stderr(log);
        let status = command.status().unwrap();
        (status.success(), fs::read_to_string(cluster.beside("mount.log")).unwrap())
    };
    let known = format!("rw,_netdev,noauto,nofail,x-systemd.automount,relatime,key_file={}", key.display());
    let (done, said) = mount(&known);
    assert!(done, "{said}");
    assert!(is_mounted(&point));
    fs::write(cluster.mount().join("f"), b"1").unwrap();
    assert_eq!(fs::read(point.join("f")).unwrap(), b"1");
    let daemon = cluster.mount_daemon(&point).unwrap();
    let status = std::process::Command::new("umount").arg(&point).status().unwrap();
    assert!(status.success());
    daemon.wait_gone(PATIENCE).unwrap();
    let (done, said) = mount(&format!("{known},ro"));
    assert!(done, "{said}");
    let error = fs::write(point.join("g"), b"1").unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    rustix::mount::unmount(&point, rustix::mount::UnmountFlags::empty()).unwrap();
    until("the mount's process ends", PATIENCE, || {
        cluster.mount_daemon(&point).map_or(Ok(()), |daemon| Err(format!("{daemon:?}")))
    })
    .unwrap();
    let (done, said) = mount(&format!("{known},frobnicate=7"));
    assert!(!done && said.contains("frobnicate"), "{said}");
    assert!(!is_mounted(&point));
    // Nobody there: one line, and no mount.
    let (done, said) = mount("key_file=/nonexistent/key");
    assert!(!done && said.contains("/nonexistent/key"), "{said}");
    assert!(!is_mounted(&point));
}

/// Goal: what makes no sense wherever it is asked is wrong usage: exit code 2, with what is wrong, and nothing is done.
#[test]
fn wrong_usage_has_its_exit_code() {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().to_str().unwrap();
    for (words, said) in [
        (&["bench", "io", place, "--transfer", "0"][..], "transfer is 0"),
        (&["bench", "io", place, "--time", "nonsense"], "open,fsync,close"),
        (&["bench", "meta", place, "--items", "0"], "items"),
        (&["bench", "meta", place, "--items", "9", "--verify"], "nothing would be compared"),
        (&["bench", "ior", "--", "--nonsense"], "is no option of ior"),
        (&["bench", "storage", "run", "--direct"], "--path raw"),
        (&["bench", "net", "pairs", "--block", "1GiB"], "--block"),
        (&["bench", "net", "run", "--processes", "0"], "processes is 0"),
        (&["tune", "apply", "--dry-run", "--role", "storage", "--setting", "nonsense"], "no setting"),
        (&["survey", "sweep", "--mount", place, "--budget", "1"], "--budget"),
    ] {
        let output =
            Command::new(env!("CARGO_BIN_EXE_skep")).args(words).stdin(Stdio::null()).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && text.contains(said), "{words:?}: {text}");
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

/// Goal: a terminal that is gone, or a full disk behind standard error, ends no command half-way.
#[test]
fn nobody_needs_to_listen() {
    let cluster = start(plan());
    let mount = cluster.mount().to_str().unwrap();
    for words in [
        &["tune", "check"][..],
        &["bench", "net", "mode", "--mount", mount, "--for", "1s"],
        &["bench", "storage", "run", "--all", "--size", "1MiB"],
    ] {
        let status = cluster
            .command(words)
            .env("SKEP_CLUSTER", cluster.dir().join("cluster.toml"))
            .stdout(Stdio::null())
            .stderr(fs::File::options().write(true).open("/dev/full").unwrap())
            .status()
            .unwrap();
        assert!(matches!(status.code(), Some(0 | 1)), "{words:?}: {status}");
    }
    assert_eq!(fs::read_dir(cluster.mount()).unwrap().count(), 0, "the directory of the mode is gone");
}
