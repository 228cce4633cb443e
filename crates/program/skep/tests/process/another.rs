//! Two clusters on one machine: what is said of a path on a mount is said of the cluster that is mounted there.

use super::{plan, refusal, start};
use rustix::process::Signal;
use skep_rig::Cluster;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

fn words(words: &[&str], path: &Path) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).chain([path.to_str().unwrap().to_owned()]).collect()
}

/// What a command of one cluster says to a path: exit code, and everything it prints.
fn told(cluster: &Cluster, command: &[&str], path: &Path) -> (Option<i32>, String) {
    let output = cluster.run(cluster.admin_words(words(command, path))).unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(text).unwrap())
}

/// With the first cluster named: neither a link nor a name that is missing on a mount leads to a file of it.
fn links_and_missing_paths(one: &Cluster, own: &Path, other: &Path) {
    let made = other.join("made");
    // A link is followed by who works below it, and by df(1).
    let link = one.mount().join("link");
    std::os::unix::fs::symlink(other, &link).unwrap();
    for command in [&["survey", "--mount"][..], &["tune", "auto"], &["df"], &["health"]] {
        let (code, text) = told(one, command, &link);
        assert!(code != Some(0) && text.contains("is on a mount of another cluster"), "{command:?}: {text}");
    }
    // What is missing on a mount is no path in the name space of the cluster that is named.
    fs::create_dir(own.join("made")).unwrap();
    for (command, says) in [
        (&["df"][..], "does not exist, or is on no mount"),
        (&["health"], "does not exist, or is on no mount"),
        (&["entry", "info"], "is on a mount of another cluster"),
        (&["dir", "create"], "is on a mount of another cluster"),
        (&["entry", "set", "--targets", "2"], "is on a mount of another cluster"),
    ] {
        let (code, text) = told(one, command, &made.join("deep"));
        assert!(code != Some(0) && text.contains(says), "{command:?}: {text}");
    }
    let (_, text) = told(one, &["entry", "info"], &own.join("missing"));
    assert!(text.contains("does not exist on the mount at"), "{text}");
    fs::remove_dir(own.join("made")).unwrap();
}

/// With the first cluster named: a link of this machine onto a mount of the other, whose place the first has a name for, is
/// not taken for that name.
fn links_of_the_machine(one: &Cluster, other: &Path) {
    let link = one.dir().join("link");
    std::os::unix::fs::symlink(other, &link).unwrap();
    let namesake = one.mount().join(link.strip_prefix("/").unwrap());
    fs::create_dir_all(&namesake).unwrap();
    let shown = || one.admin(words(&["entry", "info", "--output", "json"], &namesake)).unwrap();
    let before = shown();
    for (command, path) in [
        (&["entry", "info"][..], link.clone()),
        (&["entry", "set", "--chunk-size", "1MiB"], link.clone()),
        (&["entry", "set", "--recursive", "--chunk-size", "1MiB"], link.clone()),
        (&["entry", "repair", "--zero"], link.clone()),
        (&["dir", "create"], link.join("made")),
    ] {
        let (code, text) = told(one, command, &path);
        assert!(code != Some(0) && text.contains("is on a mount of another cluster"), "{command:?}: {text}");
    }
    assert!(!namesake.join("made").exists() && !other.join("made").exists());
    assert_eq!(shown(), before);
    // What is no link and on no mount may be meant; it is said how it is taken.
    fs::remove_file(&link).unwrap();
    fs::create_dir(&link).unwrap();
    let (code, text) = told(one, &["entry", "info"], &link);
    assert!(code == Some(0) && text.contains("is taken as a path in the name space"), "{text}");
}

/// Goal: who names one cluster and a path on a mount of another is refused by every command that takes a path; nothing is
/// shown or changed of the file that has this number in the cluster that was named. By whatever address the right cluster
/// is named, it is taken.
#[test]
fn a_path_of_another_cluster_is_refused() {
    let one = start(plan());
    // Beside it: this test has its turn already.
    let two = Cluster::start(plan()).unwrap();
    let [own, other] = [&one, &two].map(|cluster: &Cluster| {
        let directory = cluster.mount().join("directory");
        fs::create_dir(&directory).unwrap();
        directory
    });
    let number = |path: &Path| fs::metadata(path).unwrap().ino();
    assert_eq!(number(&own), number(&other), "the numbers must meet, or nothing is at stake");
    let made = other.join("made");
    let policy = |path: &Path| one.admin(words(&["entry", "info", "--output", "json"], path)).unwrap();
    let before = policy(&own);
    for command in [
        &["entry", "info"][..],
        &["entry", "set", "--chunk-size", "1MiB"],
        &["entry", "set", "--recursive", "--chunk-size", "1MiB"],
        &["entry", "repair"],
        &["entry", "repair", "--zero"],
        &["df"],
        &["health"],
        &["tune", "auto"],
        &["tune", "auto", "--mount-options", "--yes"],
        &["survey", "--mount"],
    ] {
        let (code, text) = told(&one, command, &other);
        let path = other.display().to_string();
        assert!(
            text.contains(&path) && text.contains("is on a mount of another cluster"),
            "{command:?}: {text}"
        );
        assert!(
            code.is_some_and(|code| code != 0 && (command[0] != "health" || code == 3)),
            "{command:?}: {code:?}"
        );
    }
    let (_, text) = told(&one, &["dir", "create"], &made);
    assert!(text.contains("is on a mount of another cluster"), "{text}");
    assert!(!made.exists() && !own.join("made").exists());
    assert_eq!(policy(&own), before);
    links_and_missing_paths(&one, &own, &other);
    links_of_the_machine(&one, &other);

    // The variable names a cluster just so.
    let mut command = one.command(words(&["entry", "info"], &other));
    let output = command.env("SKEP_CLUSTER", one.dir().join("cluster.toml")).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains("is on a mount of another cluster"));
    // A mount names the socket of mgmtd, this its port.
    let list = one.admin(["node", "list", "--output", "json"]).unwrap();
    let at = list.find("127.0.0.1:").unwrap();
    let port: String = list[at..].chars().take_while(|c| !c.is_whitespace() && *c != '"').collect();
    let key = one.dir().join("cluster.key");
    let by_port = ["entry", "info", "--mgmtd", &port, "--key", key.to_str().unwrap()];
    one.must(words(&by_port, &own)).unwrap();
    assert!(refusal(&one, &[&by_port[..], &[other.to_str().unwrap()]].concat()).contains("another cluster"));
    one.must(words(&["entry", "info"], &other)).unwrap();
    assert!(told(&one, &["df"], &own).0 == Some(0) && told(&two, &["entry", "info"], &other).0 == Some(0));
}

/// Goal: a mount that cannot be asked whose it is hides nothing of the cluster that was named.
#[test]
fn a_dead_mount_does_not_hide_the_cluster_that_is_named() {
    let one = start(plan());
    let two = Cluster::start(plan()).unwrap();
    two.one("mount").unwrap().kill().unwrap();
    let (code, text) = told(&one, &["df"], two.mount());
    assert!(code == Some(0) && text.contains("target-104"), "{text}");
    let (code, text) = told(&one, &["health", "--all"], two.mount());
    assert!(
        code != Some(3) && text.contains("answers, cluster") && text.contains("dead (of another"),
        "{text}"
    );
}

/// Goal: a file that names no cluster is said so, whatever mount the path is on; and only a mount that is silent is passed
/// over for the cluster that is named.
#[test]
fn a_wrong_name_of_a_cluster_is_not_passed_over() {
    let one = start(plan());
    let two = Cluster::start(plan()).unwrap();
    for command in [&["health"][..], &["df"], &["entry", "info"]] {
        let words = words(&[command, &["--cluster", "/nowhere/cluster.toml"]].concat(), one.mount());
        let output = one.command(words).output().unwrap();
        let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        assert!(!output.status.success() && text.contains("/nowhere/cluster.toml"), "{command:?}: {text}");
    }
    let file = two.mount().join("file");
    fs::write(&file, b"1").unwrap();
    for command in [&["df"][..], &["health"]] {
        let (code, text) = told(&one, command, &file.join("below"));
        assert!(code != Some(0) && text.contains("Not a directory"), "{command:?}: {text}");
    }
}

/// Goal: of two clusters one has a mount that stands still: a link onto it, and a path of the healthy one that the kernel
/// lists below it as well, are answered in time.
#[test]
fn a_link_onto_a_mount_that_stands_still_is_given_up_in_time() {
    let one = start(plan());
    let two = Cluster::start(plan()).unwrap();
    let (directory, nested) = (two.mount().join("directory"), two.mount().join("nested"));
    fs::create_dir(&directory).unwrap();
    fs::create_dir(&nested).unwrap();
    fs::write(one.mount().join("file"), b"1").unwrap();
    let link = one.dir().join("link");
    std::os::unix::fs::symlink(&directory, &link).unwrap();
    rustix::mount::mount_bind(one.mount(), &nested).unwrap();
    let mount = two.one("mount").unwrap();
    mount.signal(Signal::STOP).unwrap();
    let ask = |command: &[&str], path: &Path| {
        let begun = Instant::now();
        let (code, text) = told(&one, &[command, &["--timeout", "2s"]].concat(), path);
        (begun.elapsed() < Duration::from_secs(10), code, text)
    };
    let asked =
        [&["df"][..], &["health"], &["tune", "auto"], &["survey", "--mount"]].map(|words| ask(words, &link));
    let healthy = [&["df"][..], &["entry", "info"]].map(|words| ask(words, &one.mount().join("file")));
    mount.signal(Signal::CONT).unwrap();
    rustix::mount::unmount(&nested, rustix::mount::UnmountFlags::DETACH).unwrap();
    assert!(asked.iter().all(|(in_time, ..)| *in_time), "{asked:?}");
    assert!(healthy.iter().all(|(in_time, code, _)| *in_time && *code == Some(0)), "{healthy:?}");
}
