//! Two clusters on one machine: what is said of a path on a mount is said of the cluster that is mounted there.

use super::{plan, refusal, start};
use skep_rig::Cluster;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

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
