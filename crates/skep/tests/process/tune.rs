//! Settings: of a recorded machine through the program, and of a directory by measurement on a living cluster.

use super::schema::{check, check_element};
use super::{plan, start};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A server with turning disks, as `skep tune check --record` wrote it.
const MACHINE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tune/hosts/hdd.txt");

fn skep(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_skep")).args(words).stdin(Stdio::null()).output().unwrap()
}

/// Settings of this machine that `tune` could change.
fn live() -> BTreeMap<PathBuf, String> {
    let mut all = BTreeMap::new();
    let mut dirs = vec![PathBuf::from("/proc/sys/vm"), PathBuf::from("/proc/sys/net/core")];
    let disks = fs::read_dir("/sys/block").unwrap().flatten();
    dirs.extend(disks.map(|disk| disk.path().join("queue")));
    for entry in dirs.iter().flat_map(|dir| fs::read_dir(dir).unwrap().flatten()) {
        if let Ok(text) = fs::read_to_string(entry.path()) {
            all.insert(entry.path(), text);
        }
    }
    all
}

/// Goal: a recorded machine is checked through the program as documented; this machine is checked, and an apply of it is
/// shown, without a change of it; nobody is asked where nobody is.
#[test]
fn a_machine_is_checked_and_not_changed() {
    let output = skep(&["tune", "check", "--root", MACHINE, "--output", "json"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    check("tune-check", &document);
    let rows = document.as_array().unwrap();
    let one = |setting: &str, of: &str| {
        rows.iter().find(|row| row["setting"] == setting && row["subject"] == of).unwrap().clone()
    };
    assert_eq!(one("scheduler", "sda")["recommended"], "deadline");
    assert_eq!(one("barriers", "/data/skep0")["severity"], "danger");
    let table = skep(&["tune", "check", "--root", MACHINE, "--explain"]);
    let text = String::from_utf8(table.stdout).unwrap();
    assert!(text.contains("sda..sdl (12)") && text.contains("choice: HDD mq-deadline"), "{text}");

    let before = live();
    let words = ["--role", "storage,meta,client", "--path", "/"];
    for first in [&["tune", "check"][..], &["tune", "apply", "--dry-run"]] {
        let output = skep(&[first, &words].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let refused = skep(&[&["tune", "apply"][..], &words].concat());
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("--yes") || said.contains("nothing to change"), "{said}");
    // Disks may come and go meanwhile.
    let after = live();
    let changed: Vec<_> =
        before.iter().filter(|(path, text)| after.get(*path).is_some_and(|now| now != *text)).collect();
    assert!(changed.is_empty() && after.len() > 50, "{changed:?}");
    assert!(!Path::new("/var/lib/skep/tune").exists());
}

fn policy(cluster: &skep_rig::Cluster, path: &Path) -> Value {
    let text = cluster.admin(["entry", "info", path.to_str().unwrap(), "--output", "ndjson"]).unwrap();
    let info: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    info["policy"].clone()
}

/// Goal: the search runs on a living cluster, prints what the schema says, keeps a setting only when it says so, and
/// leaves nothing behind; with --dry-run the directory stays as it was whatever is found.
#[test]
fn a_directory_is_tuned_by_measurement() {
    let cluster = start(plan());
    let dir = cluster.mount().join("tuned");
    fs::create_dir(&dir).unwrap();
    let path = dir.to_str().unwrap();
    cluster.admin(["entry", "set", "--chunk-size", "64KiB", "--targets", "1", path]).unwrap();
    let before = policy(&cluster, &dir);
    let search =
        ["tune", "auto", path, "--size", "4MiB", "--chunk-sizes", "1MiB", "--targets", "1,4", "--pairs", "8"];
    let run = |more: &[&str]| -> Vec<Value> {
        let text = cluster.admin([&search[..], more, &["--output", "ndjson"]].concat()).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let rows = run(&["--dry-run"]);
    rows.iter().for_each(|row| check_element("tune-auto", row));
    assert_eq!(rows.len(), 3);
    assert!(rows[0]["present"] == true && rows.iter().all(|row| row["kept"] == false));
    assert_eq!(rows.iter().filter(|row| row["ratio"].is_number()).count(), 1);
    assert_eq!(policy(&cluster, &dir), before);

    let rows = run(&[]);
    let kept: Vec<&Value> = rows.iter().filter(|row| row["kept"] == true).collect();
    match kept[..] {
        [] => assert_eq!(policy(&cluster, &dir), before),
        [row] => {
            assert!(row["p"].as_f64().unwrap() <= 0.01 && row["ratio"].as_f64().unwrap() >= 1.03, "{row}");
            assert_ne!(policy(&cluster, &dir), before);
        }
        _ => panic!("{rows:?}"),
    }
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 0);

    let refused = cluster.run(cluster.admin_words(["tune", "auto", path, "--targets", "5"])).unwrap();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("the pool has 4"), "{said}");
}
