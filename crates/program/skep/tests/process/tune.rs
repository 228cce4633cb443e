//! Settings: of a recorded machine through the program, and of a directory by measurement on a living cluster.

use super::loads::{Bound, INTERRUPTED};
use super::schema::{check, check_element};
use super::{plan, start};
use rustix::process::Signal;
use serde_json::Value;
use skep_rig::patiently;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A server with turning disks, as `skep tune check --record` wrote it.
const MACHINE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../know-how/tune/hosts/hdd.txt");

fn skep(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_skep")).args(words).stdin(Stdio::null()).output().unwrap()
}

/// Settings of this machine that `tune` could change, but for those that others change by using it: loop devices come
/// and go, caches are dropped.
fn live() -> BTreeMap<PathBuf, String> {
    let mut all = BTreeMap::new();
    let mut dirs = vec![PathBuf::from("/proc/sys/vm"), PathBuf::from("/proc/sys/net/core")];
    let disks = fs::read_dir("/sys/block").unwrap().flatten();
    let disks = disks.filter(|disk| !disk.file_name().to_string_lossy().starts_with("loop"));
    dirs.extend(disks.map(|disk| disk.path().join("queue")));
    for entry in dirs.iter().flat_map(|dir| fs::read_dir(dir).unwrap().flatten()) {
        if let Ok(text) = fs::read_to_string(entry.path())
            && entry.file_name() != "drop_caches"
        {
            all.insert(entry.path(), text);
        }
    }
    all
}

/// What earlier changes of this machine left, with when it was written.
fn changes() -> BTreeMap<PathBuf, std::time::SystemTime> {
    let mut all = BTreeMap::new();
    let mut left = vec![PathBuf::from("/var/lib/skep/tune")];
    while let Some(path) = left.pop() {
        if let Ok(meta) = path.symlink_metadata() {
            left.extend(fs::read_dir(&path).into_iter().flatten().flatten().map(|one| one.path()));
            all.insert(path, meta.modified().unwrap());
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

    let (before, changes_before) = (live(), changes());
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
    assert_eq!(changes(), changes_before);
}

/// Goal: a value that counts at once is changed and put back, and nobody is told to restart anything for it.
#[test]
fn nothing_remains_to_do_for_a_value() {
    let root = tempfile::tempdir().unwrap();
    let value = root.path().join("proc/sys/vm/vfs_cache_pressure");
    for dir in ["proc/sys/vm", "etc", "sys", "var/lib/skep"] {
        fs::create_dir_all(root.path().join(dir)).unwrap();
    }
    fs::write(&value, "100\n").unwrap();
    let place = ["--root", root.path().to_str().unwrap()];
    let apply = ["tune", "apply", "--yes", "--role", "storage", "--setting", "vm.vfs_cache_pressure"];
    for (words, now) in [(&apply[..], "50"), (&["tune", "undo"], "100")] {
        let output = skep(&[words, &place].concat());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() && said.contains("1 values and 1 files are"), "{said}");
        assert!(!said.contains("still to do") && !said.contains("systemctl"), "{said}");
        assert_eq!(fs::read_to_string(&value).unwrap().trim(), now);
    }
    assert!(!root.path().join("etc/sysctl.d").exists());
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
        [] => {
            assert_eq!(policy(&cluster, &dir), before);
            let best = rows.iter().find(|row| row["ratio"].is_number()).unwrap();
            assert!(best["p"].as_f64().unwrap() > 0.01 || best["ratio"].as_f64().unwrap() < 1.03, "{best}");
        }
        [row] => {
            let now = policy(&cluster, &dir);
            assert_eq!((&now["chunk_size"], &now["targets"]), (&row["chunk_size"], &row["targets"]), "{now}");
            assert!(row["p"].as_f64().unwrap() <= 0.01 && row["ratio"].as_f64().unwrap() >= 1.03, "{row}");
        }
        _ => panic!("{rows:?}"),
    }
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 0);

    // A gain that nothing can bring: whatever was tried, the directory has what it had.
    let before = policy(&cluster, &dir);
    let rows = run(&["--gain", "100000"]);
    assert!(rows.iter().all(|row| row["kept"] == false), "{rows:?}");
    assert_eq!(policy(&cluster, &dir), before);

    // From within the mount, by its name alone; the limit of files in the metadata.
    let words = ["tune", "auto", "tuned", "--goal", "small", "--files", "10", "--pairs", "7", "--dry-run"];
    let words = cluster.admin_words([&words[..], &["--output", "ndjson"]].concat());
    let output = cluster.command(words).current_dir(cluster.mount()).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let rows: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    rows.iter().for_each(|row| check_element("tune-auto", row));
    let limits: Vec<Option<u64>> = rows.iter().map(|row| row["inline_limit"].as_u64()).collect();
    assert_eq!(limits, [None, Some(0), Some(8192)]);
    assert!(rows.iter().all(|row| row["unit"] == "files/s" && row["kept"] == false), "{rows:?}");
    assert_eq!((policy(&cluster, &dir), fs::read_dir(&dir).unwrap().count()), (before, 0));

    let refused = cluster.run(cluster.admin_words(["tune", "auto", path, "--targets", "5"])).unwrap();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("the pool has 4"), "{said}");
}

/// Goal: settings of a mount are searched on mounts of their own: the one in use stays, its file is written only when the
/// answer says so and then holds what the answer says, undo brings it back, and nothing is left behind.
#[test]
fn a_mount_is_tuned_by_measurement() {
    let cluster = start(plan());
    let path = cluster.mount().to_str().unwrap().to_owned();
    let root = tempfile::tempdir().unwrap();
    let file = root.path().join("etc/skep/mount.toml");
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::create_dir_all(root.path().join("var/lib/skep")).unwrap();
    fs::copy(cluster.dir().join("etc/mount.toml"), &file).unwrap();
    let before = fs::read_to_string(&file).unwrap();
    let place = ["--root", root.path().to_str().unwrap(), "--config", "/etc/skep/mount.toml"];
    for (gain, may_keep) in [("100000", false), ("3", true)] {
        let search = ["tune", "auto", &path, "--mount-options", "--yes", "--size", "1MiB", "--pairs", "8"];
        let words = [&search[..], &place, &["--gain", gain, "--output", "ndjson"]].concat();
        let text = cluster.admin(&words).unwrap();
        let rows: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        rows.iter().for_each(|row| check_element("tune-auto", row));
        assert!(rows.len() > 4 && rows[0]["mount_options"] == "as it is", "{rows:?}");
        let kept: Vec<&Value> = rows.iter().filter(|row| row["kept"] == true).collect();
        let now = fs::read_to_string(&file).unwrap();
        match kept[..] {
            [] => assert_eq!(now, before),
            [row] => {
                assert!(may_keep && row["p"].as_f64().unwrap() <= 0.01, "{row}");
                let lines = row["mount_options"].as_str().unwrap().split(", ");
                assert!(lines.clone().all(|line| now.lines().any(|one| one == line)), "{row} {now}");
            }
            _ => panic!("{rows:?}"),
        }
        let undone = skep(&["tune", "undo", "--root", place[1]]);
        let said = String::from_utf8_lossy(&undone.stderr).into_owned();
        assert!(undone.status.success() && !said.contains("daemon-reload"), "{said}");
        assert_eq!(said.contains("still to do: mount again"), kept.len() == 1, "{said}");
        assert_eq!(fs::read_to_string(&file).unwrap(), before);
        assert!(
            fs::read_dir(cluster.mount())
                .unwrap()
                .flatten()
                .all(|one| !one.file_name().to_string_lossy().contains("skep-tune"))
        );
    }
}

/// Names below a directory that have to do with searches.
fn of_searches(dir: &Path) -> Vec<PathBuf> {
    let all = fs::read_dir(dir).unwrap().flatten().map(|one| one.path());
    all.filter(|path| path.to_string_lossy().contains("skep-tune-")).collect()
}

/// Mounts below a directory.
fn mounts_below(dir: &Path) -> usize {
    let table = fs::read_to_string("/proc/self/mounts").unwrap();
    table.lines().filter(|line| line.contains(dir.to_str().unwrap())).count()
}

/// Goal: a search that any signal ends says so in its own words, with the code of interrupted commands, and leaves neither
/// directories nor mounts, also when the terminal is closed.
#[test]
fn an_interrupted_search_leaves_nothing() {
    let cluster = start(plan());
    let mount = cluster.mount();
    for (signal, more) in
        [(Signal::INT, &["--mount-options"][..]), (Signal::HUP, &["--mount-options"]), (Signal::TERM, &[])]
    {
        let temporary = tempfile::tempdir().unwrap();
        let words = ["tune", "auto", mount.to_str().unwrap(), "--dry-run", "--pairs", "24"];
        let mut command = cluster.command(cluster.admin_words([&words[..], more].concat()));
        command.env("TMPDIR", temporary.path()).stdin(Stdio::null());
        let search = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut search = Bound::new(search);
        let is_on = || mounts_below(temporary.path()) > 1 || more.is_empty();
        patiently("it searches", || of_searches(mount).len() == 1 && is_on()).unwrap();
        search.signal(signal);
        let output = search.output();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == INTERRUPTED && said.contains("nothing is kept"), "{output:?}");
        let left = (mounts_below(temporary.path()), of_searches(mount), of_searches(temporary.path()));
        assert_eq!(left, (0, vec![], vec![]), "{said}");
    }
}

/// Goal: a search that was killed leaves directories on the mount and mounts elsewhere; the next one removes both.
#[test]
fn a_killed_search_is_swept() {
    let cluster = start(plan());
    let temporary = tempfile::tempdir().unwrap();
    let mount = cluster.mount();
    let search = |more: &[&str]| {
        let words = ["tune", "auto", mount.to_str().unwrap(), "--dry-run", "--pairs", "7"];
        let mut command = cluster.command(cluster.admin_words([&words[..], more].concat()));
        command.env("TMPDIR", temporary.path()).stdin(Stdio::null());
        command
    };
    let killed = search(&["--mount-options"]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let killed = Bound::new(killed);
    let mounts = || mounts_below(temporary.path());
    patiently("candidates are mounted", || mounts() > 1 && of_searches(mount).len() == 1).unwrap();
    killed.kill();
    assert!(mounts() > 1 && of_searches(mount).len() == 1 && of_searches(temporary.path()).len() == 1);
    let output = search(&["--goal", "small", "--files", "5"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        output.status.success() && said.contains("was left by a command that was killed; removed"),
        "{said}"
    );
    assert_eq!((mounts(), of_searches(mount), of_searches(temporary.path())), (0, vec![], vec![]), "{said}");
}
